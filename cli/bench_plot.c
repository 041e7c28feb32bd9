/* bench_plot.c - see bench_plot.h. */
#include "cli/bench_plot.h"

#include <math.h>
#include <string.h>

#define W 460.0
#define H 260.0
#define LEFT 62.0
#define RIGHT 16.0
#define TOP 34.0
#define BOTTOM 42.0
#define TICKS 4
#define ROW 24.0
#define NAMES 110.0

struct axis {
    double low, high, step;
};

void plot_text(struct buf *out, const char *text) {
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"' || c == '\'' || c < 0x20)
            buf_addf(out, "&#%u;", c < 0x20 ? '?' : c);
        else
            buf_addc(out, *text);
    }
}

static void open_svg(struct buf *out, double w, double h, const char *title) {
    buf_addf(out,
             "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' height='%.0f' "
             "viewBox='0 0 %.0f %.0f' font-family='sans-serif' font-size='11'>\n"
             "<text x='%.0f' y='18' font-size='13' font-weight='bold'>",
             w, h, w, h, 8.0);
    plot_text(out, title);
    buf_adds(out, "</text>\n");
}

/* 1, 2 or 5 times a power of ten: labels a person can read. */
static void make_axis(struct axis *a, double low, double high) {
    if (!(high > low))
        high = low + 1;
    if (low > 0 && low < 0.5 * high)
        low = 0;
    double power = pow(10, floor(log10((high - low) / TICKS)));
    double digits = (high - low) / TICKS / power;
    a->step = power * (digits > 5 ? 10 : digits > 2 ? 5 : digits > 1 ? 2 : 1);
    a->low = a->step * floor(low / a->step + 1e-9);
    a->high = a->step * ceil(high / a->step - 1e-9);
}

static double x_of(const struct axis *a, double v) {
    return LEFT + (W - LEFT - RIGHT) * (v - a->low) / (a->high - a->low);
}

static double y_of(const struct axis *a, double v) {
    return H - BOTTOM - (H - TOP - BOTTOM) * (v - a->low) / (a->high - a->low);
}

static void frame(struct buf *out, const struct axis *x, const struct axis *y, const char *x_name,
                  const char *y_name) {
    buf_addf(out,
             "<rect x='%.0f' y='%.0f' width='%.0f' height='%.0f' fill='none' stroke='#888'/>\n",
             LEFT, TOP, W - LEFT - RIGHT, H - TOP - BOTTOM);
    for (double v = x->low; v <= x->high + x->step / 2; v += x->step)
        buf_addf(out, "<text x='%.1f' y='%.1f' text-anchor='middle'>%.4g</text>\n", x_of(x, v),
                 H - BOTTOM + 14, fabs(v) < x->step / 2 ? 0 : v);
    for (double v = y->low; v <= y->high + y->step / 2; v += y->step)
        buf_addf(out,
                 "<line x1='%.0f' x2='%.0f' y1='%.1f' y2='%.1f' stroke='#ddd'/>"
                 "<text x='%.0f' y='%.1f' text-anchor='end'>%.4g</text>\n",
                 LEFT, W - RIGHT, y_of(y, v), y_of(y, v), LEFT - 5, y_of(y, v) + 4,
                 fabs(v) < y->step / 2 ? 0 : v);
    buf_addf(out, "<text x='%.0f' y='%.0f' text-anchor='end'>", W - RIGHT, H - 8);
    plot_text(out, x_name);
    buf_addf(out, "</text><text x='%.0f' y='%.0f'>", LEFT, TOP - 4);
    plot_text(out, y_name);
    buf_adds(out, "</text>\n");
}

static void one_line(struct buf *out, const struct plot_line *l, const struct axis *x,
                     const struct axis *y, uint32_t at) {
    buf_addf(out, "<polyline fill='none' stroke='%s' stroke-width='1.8' points='", l->colour);
    for (uint32_t i = 0; i < l->n; i++)
        if (isfinite(l->x[i]) && isfinite(l->y[i]))
            buf_addf(out, "%.1f,%.1f ", x_of(x, l->x[i]), y_of(y, l->y[i]));
    buf_adds(out, "'/>\n");
    for (uint32_t i = 0; l->points && i < l->n; i++)
        if (isfinite(l->x[i]) && isfinite(l->y[i]))
            buf_addf(out, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>", x_of(x, l->x[i]),
                     y_of(y, l->y[i]), l->colour);
    buf_addf(out, "<text x='%.0f' y='%.0f' fill='%s' text-anchor='end'>", W - RIGHT - 6,
             TOP + 16 + 15.0 * at, l->colour);
    plot_text(out, l->name);
    buf_adds(out, "</text>\n");
}

void plot_lines(struct buf *out, const char *title, const char *x_name, const char *y_name,
                const struct plot_line *lines, uint32_t n) {
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < lines[k].n; i++) {
            const double v[2] = {lines[k].x[i], lines[k].y[i]};
            for (int d = 0; d < 2 && isfinite(v[0]) && isfinite(v[1]); d++) {
                low[d] = fmin(low[d], v[d]);
                high[d] = fmax(high[d], v[d]);
            }
        }
    open_svg(out, W, H, title);
    if (isfinite(low[0])) {
        struct axis x, y;
        make_axis(&x, low[0], high[0]);
        make_axis(&y, low[1], high[1]);
        frame(out, &x, &y, x_name, y_name);
        for (uint32_t k = 0; k < n; k++)
            one_line(out, &lines[k], &x, &y, k);
    }
    buf_adds(out, "</svg>\n");
}

static double row_x(const struct axis *a, double v) {
    v = v < a->low ? a->low : v > a->high ? a->high : v; /* what is outside stands at the edge */
    return NAMES + (W - NAMES - 70) * (v - a->low) / (a->high - a->low);
}

static void ratio_row(struct buf *out, const struct plot_ratio *p, const struct axis *a, double y) {
    buf_addf(out, "<text x='%.0f' y='%.1f' text-anchor='end'>", NAMES - 8, y + 4);
    plot_text(out, p->name);
    buf_adds(out, "</text>\n");
    if (p->bar > 0)
        buf_addf(out,
                 "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#c60' "
                 "stroke-width='2'/>\n",
                 row_x(a, p->bar), row_x(a, p->bar), y - 9, y + 9);
    if (!isfinite(p->r.ratio)) {
        buf_addf(out, "<text x='%.0f' y='%.1f'>infinite</text>\n", W - 62, y + 4);
        return;
    }
    if (isfinite(p->r.low) && isfinite(p->r.high))
        buf_addf(out, "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' stroke='#06c'/>\n",
                 row_x(a, p->r.low), row_x(a, p->r.high), y, y);
    buf_addf(out,
             "<circle cx='%.1f' cy='%.1f' r='4' fill='#06c'/>"
             "<text x='%.0f' y='%.1f'>%.3f</text>\n",
             row_x(a, p->r.ratio), y, W - 54, y + 4, p->r.ratio);
}

void plot_ratios(struct buf *out, const char *title, const struct plot_ratio *rows, uint32_t n) {
    struct axis a = {0.8, 1.2, 0.1};
    double h = TOP + ROW * n + 30;
    open_svg(out, W, h, title);
    for (int i = 0; i <= 4; i++) {
        double v = a.low + a.step * i, x = row_x(&a, v);
        buf_addf(out,
                 "<line x1='%.1f' x2='%.1f' y1='%.0f' y2='%.1f' stroke='%s'/>"
                 "<text x='%.1f' y='%.1f' text-anchor='middle'>%.1f</text>\n",
                 x, x, TOP - 6, h - 24, i == 2 ? "#888" : "#ddd", x, h - 8, v);
    }
    for (uint32_t i = 0; i < n; i++)
        ratio_row(out, &rows[i], &a, TOP + ROW * (i + 0.5));
    buf_adds(out, "</svg>\n");
}

void plot_bars(struct buf *out, const char *title, const char *unit, const char *const *names,
               const double *values, uint32_t n) {
    double most = 0, h = TOP + ROW * n + 10;
    for (uint32_t i = 0; i < n; i++)
        most = isfinite(values[i]) && values[i] > most ? values[i] : most;
    open_svg(out, W, h, title);
    for (uint32_t i = 0; i < n; i++) {
        double y = TOP + ROW * i, w = most > 0 ? (W - NAMES - 90) * values[i] / most : 0;
        buf_addf(out, "<text x='%.0f' y='%.1f' text-anchor='end'>", NAMES - 8, y + 16);
        plot_text(out, names[i]);
        buf_addf(out,
                 "</text><rect x='%.0f' y='%.1f' width='%.1f' height='%.0f' fill='#06c'/>"
                 "<text x='%.1f' y='%.1f'>%.1f ",
                 NAMES, y + 4, w, ROW - 8, NAMES + w + 5, y + 16, values[i]);
        plot_text(out, unit);
        buf_adds(out, "</text>\n");
    }
    buf_adds(out, "</svg>\n");
}
