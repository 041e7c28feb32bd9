/* eval_plot.c - see eval_plot.h. */
#include "cli/eval_plot.h"

#include <math.h>

#define WIDTH 720.0
#define LEFT 70.0
#define RIGHT 30.0
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
    double mean;
    double low, high, step, top; /* low and high: multiples of the tick's step */
};

/* 1, 2 or 5 times a power of ten, about `wide` / TICKS: labels a person can read. */
static double tick_step(double wide) {
    double power = pow(10, floor(log10(wide / TICKS))), digits = wide / TICKS / power;
    return power * (digits > 5 ? 10 : digits > 2 ? 5 : digits > 1 ? 2 : 1);
}

static void range(struct panel *p, const struct eval_stats *s, double least, double most) {
    p->low = INFINITY;
    p->high = -INFINITY;
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        double v = p->value(s, i);
        p->low = v < p->low ? v : p->low; /* NAN compares false */
        p->high = v > p->high ? v : p->high;
    }
    if (!isfinite(p->low))
        p->low = p->high = 0;
    double margin = (p->high - p->low) * 0.05 + 1e-6 + fabs(p->high) * 1e-3;
    p->low = fmax(p->low - margin, least);
    p->high = fmin(p->high + margin, most);
    p->step = tick_step(p->high - p->low);
    p->low = p->step * floor(p->low / p->step + 1e-9);
    p->high = p->step * ceil(p->high / p->step - 1e-9);
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
    int n = (int)((p->high - p->low) / p->step + 0.5);
    for (int t = 0; t <= n; t++) {
        double v = p->low + p->step * t, y = y_of(p, v);
        buf_addf(out, "<line x1='%.0f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#ddd'/>\n", LEFT,
                 WIDTH - RIGHT, y, y);
        buf_addf(out, "<text x='%.0f' y='%.1f' text-anchor='end'>%.4g</text>\n", LEFT - 6, y + 4,
                 fabs(v) < p->step / 2 ? 0 : v);
    }
    for (int t = 0; t <= TICKS; t++) {
        double at = (double)s->positions * t / TICKS;
        buf_addf(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>%.0f</text>\n", x_of(s, at),
                 p->top + PANEL + 16, at);
    }
    if (isfinite(p->mean)) {
        double y = y_of(p, p->mean);
        buf_addf(out, "<line x1='%.0f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#c60' "
                      "stroke-dasharray='6 4'/>\n", LEFT, WIDTH - RIGHT, y, y);
        buf_addf(out, "<text x='%.1f' y='%.1f' text-anchor='end' fill='#c60'>mean %.4g</text>\n",
                 WIDTH - RIGHT, p->top - 8, p->mean);
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
    for (uint32_t i = 0; i < EVAL_BUCKETS; i++) {
        double v = p->value(s, i), at = (i + 0.5) * s->positions / EVAL_BUCKETS;
        if (isfinite(v))
            buf_addf(out, "<circle cx='%.1f' cy='%.1f' r='3' fill='#06c'/>\n", x_of(s, at),
                     y_of(p, v));
    }
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
    struct panel first = {s->two ? "KL(B || A), nats per token" : "nats per token", drift_value,
                          .mean = eval_mean(s->two ? s->all.kl : s->all.nll_a, s->all.n),
                          .top = TOP + 20};
    struct panel second = {"top-1 agreement, %", agreement_value,
                           .mean = 100 * eval_agreement(&s->all),
                           .top = TOP + 20 + PANEL + GAP};
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
    buf_addf(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>position in the text, tokens</text>\n"
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
