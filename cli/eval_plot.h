/* eval_plot.h - the drift of an evaluation over the position, as SVG and as one line of text.
 * Thread: any; reads only.
 */
#ifndef SLUICE_CLI_EVAL_PLOT_H
#define SLUICE_CLI_EVAL_PLOT_H

#include "base/buf.h"
#include "cli/eval_stats.h"

/* Two panels: mean KL (or nats per token when there is no B) and agreement, over the position.
 * `title`
 * is plain text, escaped here. */
void eval_plot_svg(struct buf *out, const struct eval_stats *s, const char *title);
/* One character a bucket, low '.' to high '@', a space where nothing was scored. */
void eval_plot_line(char out[EVAL_BUCKETS + 1], const struct eval_stats *s);

#endif
