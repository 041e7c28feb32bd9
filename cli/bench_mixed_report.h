/* bench_mixed_report.h - a finished measurement as a table, as JSON, as one HTML page without
 * anything outside it.
 *
 * Thread: any; reads only. What is infinite or was not measured is null in JSON and "-" elsewhere.
 * Failure: NULL or -1 = no memory.
 */
#ifndef SLUICE_CLI_BENCH_MIXED_REPORT_H
#define SLUICE_CLI_BENCH_MIXED_REPORT_H

#include "cli/bench_mixed.h"

#include <jansson.h>

void mixed_report_table(const struct mixed *m, FILE *f);
json_t *mixed_report_json(const struct mixed *m);
int mixed_report_html(struct buf *out, const struct mixed *m);

/* What these runs can claim, and what not: one sentence or two. */
void mixed_scope(const struct mixed *m, char *out, size_t cap);
/* "2026-01-31, CPU, 2 cores, ..." */
void mixed_heading(const struct mixed *m, char *out, size_t cap);
const char *mixed_state_word(enum mixed_state s);       /* "held", "MISSED", "not checked" */
extern const char *const mixed_what_names[MIXED_WHATS]; /* "TTFT", "gap", "E2E" */
extern const char *const mixed_kind_names[STATS_KINDS]; /* "p50", "p90", "p99", "mean" */

void mixed_sim_table(const struct mixed *m, FILE *f);
json_t *mixed_sim_json(const struct mixed *m);

#endif
