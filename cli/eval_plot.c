/* eval_plot.c - see eval_plot.h. */
#include "cli/eval_plot.h"

#include <math.h>

#define WIDTH 720.0
#define LEFT 70.0
#define RIGHT 20.0
#define PANEL 180.0
#define GAP 50.0
#define TOP 40.0
#define TICKS 4

static double drift_value(const struct eval_stats *s, uint32_t i) {
    const struct eval_sums *b = &s->buckets[i];
    return s->two ? eval_mean(b->kl, b->n) : eval_mean(b->nll_a, b->n);
}

static double agreement_value(const struct eval_stats *s, uint32_t i) {
    return 100 * eval_agreement(&s->buckets[i]);
}

struct panel {
    const char *name;
    double (*value)(const struct eval_stats *s, uint32_t i);
    double low, high, top;
};

static void range(struct panel *p, const struct eval_stats *s, double floor, double ceiling) {
    p->low = INFINITY;
    p->high = -INFINITY;
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        double v = p->value(s, i);
        p->low = v < p->low ? v : p->low; /* NAN compares false */
        p->high = v > p->high ? v : p->high;
    }
    if (!isfinite(p->low))
        p->low = p->high = 0;
    double margin = (p->high - p->low) * 0.1 + 1e-6 + fabs(p->high) * 1e-3;
    p->low = fmax(p->low - margin, floor);
    p->high = fmin(p->high + margin, ceiling);
}

static double y_of(const struct panel *p, double v) {
    double part = p->high > p->low ? (v - p->low) / (p->high - p->low) : 0.5;
    return p->top + PANEL * (1 - part);
}

static double x_of(const struct eval_stats *s, double position) {
    return LEFT + (WIDTH - LEFT - RIGHT) * position / s->positions;
}

static void axes(struct buf *out, const struct eval_stats *s, const struct panel *p) {
    buf_addf(out, "<text x='%.0f' y='%.1f' font-weight='bold'>%s</text>\n", LEFT, p->top - 8,
             p->name);
    buf_addf(out, "<rect x='%.0f' y='%.1f' width='%.1f' height='%.0f' fill='none' "
                  "stroke='#888'/>\n", LEFT, p->top, WIDTH - LEFT - RIGHT, PANEL);
    for (int t = 0; t <= TICKS; t++) {
        double v = p->low + (p->high - p->low) * t / TICKS, y = y_of(p, v);
        double at = (double)s->positions * t / TICKS;
        buf_addf(out, "<line x1='%.0f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#ddd'/>\n", LEFT,
                 WIDTH - RIGHT, y, y);
        buf_addf(out, "<text x='%.0f' y='%.1f' text-anchor='end'>%.4g</text>\n", LEFT - 6, y + 4,
                 v);
        buf_addf(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>%.0f</text>\n", x_of(s, at),
                 p->top + PANEL + 16, at);
    }
}

static void curve(struct buf *out, const struct eval_stats *s, const struct panel *p) {
    buf_adds(out, "<polyline fill='none' stroke='#06c' stroke-width='2' points='");
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        double v = p->value(s, i), at = (i + 0.5) * s->positions / EVAL_BUCKETS;
        if (isfinite(v))
            buf_addf(out, "%.1f,%.1f ", x_of(s, at), y_of(p, v));
    }
    buf_adds(out, "'/>\n");
}

static void escaped(struct buf *out, const char *text) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c < 0x20)
            buf_addf(out, "&#%u;", c < 0x20 ? '?' : c);
        else
            buf_addc(out, *text);
    }
}

void eval_plot_svg(struct buf *out, const struct eval_stats *s, const char *title) {
    struct panel first = {s->two ? "KL(B || A), nats per token" : "nats per token", drift_value, 0,
                          0, TOP + 20};
    struct panel second = {"top-1 agreement, %", agreement_value, 0, 0, TOP + 20 + PANEL + GAP};
    double height = s->two ? second.top + PANEL + 40 : first.top + PANEL + 40;
    buf_addf(out, "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
                  "font-family='sans-serif' font-size='12'>\n<rect width='100%%' height='100%%' "
                  "fill='white'/>\n<text x='%.0f' y='24' font-size='14'>", WIDTH, height, LEFT);
    escaped(out, title);
    buf_adds(out, "</text>\n");
    range(&first, s, 0, INFINITY);
    axes(out, s, &first);
    curve(out, s, &first);
    if (s->two) {
        range(&second, s, 0, 100);
        axes(out, s, &second);
        curve(out, s, &second);
    }
    buf_addf(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>position in the text</text>\n"
                  "</svg>\n", (WIDTH + LEFT) / 2, height - 6);
}

void eval_plot_line(char out[EVAL_BUCKETS + 1], const struct eval_stats *s) {
    static const char levels[] = ".:-=+*#%@";
    double low = INFINITY, high = -INFINITY;
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        double v = drift_value(s, i);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        double v = drift_value(s, i);
        double part = high > low ? (v - low) / (high - low) : 0;
        out[i] = isfinite(v) ? levels[(int)(part * (sizeof(levels) - 2) + 0.5)] : ' ';
    }
    out[EVAL_BUCKETS] = '\0';
}
