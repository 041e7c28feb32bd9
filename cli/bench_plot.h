/* bench_plot.h - small SVG drawings for the benches' HTML reports: no script, nothing from outside.
 *
 * Each call appends one <svg> element. Texts are escaped here. Values that are not finite are left
 * out. Pure.
 */
#ifndef SLUICE_CLI_BENCH_PLOT_H
#define SLUICE_CLI_BENCH_PLOT_H

#include "base/buf.h"
#include "cli/bench_stats.h"

#include <stdbool.h>
#include <stdint.h>

struct plot_line {
    const char *name, *colour;
    const double *x, *y;
    uint32_t n;
    bool points;
};

void plot_text(struct buf *out, const char *text); /* escaped for HTML */
/* Lines in one frame; both axes begin at the least value drawn, or at 0 where that is near. */
void plot_lines(struct buf *out, const char *title, const char *x_name, const char *y_name,
                const struct plot_line *lines, uint32_t n);
/* Rows of a ratio with its interval; a mark at 1 and at each row's bar (0 = none). */
struct plot_ratio {
    const char *name;
    struct stats_ratio r;
    double bar;
};
void plot_ratios(struct buf *out, const char *title, const struct plot_ratio *rows, uint32_t n);
void plot_bars(struct buf *out, const char *title, const char *unit, const char *const *names,
               const double *values, uint32_t n);

#endif
