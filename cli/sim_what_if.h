/* sim_what_if.h - changes to a simulated pool, as words: what `--what-if` and the other flags of `sluice sim` take.
 *
 *   workers=+1, workers=-2, workers=8        more, fewer, so many workers
 *   weight:TENANT=2                          the tenant's weight, 0.001 to 65; 1 where nothing is said
 *   floor:CLASS=5%                           the class's floor share, 0 to 90 %
 *   deadline:CLASS=900                       seconds from arrival to the end (counted as a promise)
 *   ttft:CLASS=500, tpot:CLASS=50            objectives, ms; 0 = none
 * Several with commas are one change; the list given to sim_what_if_next separates changes with semicolons.
 * Thread: any. Failure: -1 and a sentence that names the word.
 */
#ifndef SLUICE_CLI_SIM_WHAT_IF_H
#define SLUICE_CLI_SIM_WHAT_IF_H

#include "cli/sim_cluster.h"

#define SIM_WHAT_IF_MAX 16

/* Applies one change, all its words, to the plan. */
int sim_what_if_apply(struct sim_plan *p, const struct sim_trace *t, const char *text, struct err *e);
/* Copies the next change of a list to `out`; NULL when there is none; else what is left. */
const char *sim_what_if_next(const char *list, char *out, size_t cap);

#endif
