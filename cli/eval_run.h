/* eval_run.h - reads a text with one or two models and collects what they think of it.
 *
 * Order: fill in the settings, eval_open, then eval_text or eval_self, eval_close (legal after a
 * failed
 * open). eval_text cuts the ids into windows of `ctx` positions, each read from its beginning, and
 * scores
 * every position that has a next one. eval_self lets A continue the ids greedily by n tokens and
 * then
 * scores those: B (or A again, in one go) is forced along them, and agreement says whether it
 * would have
 * written the same. B may be A's own file with another KV type.
 * Thread: one. Failure: -1 and a sentence. Both models must have the same vocabulary.
 */
#ifndef SLUICE_CLI_EVAL_RUN_H
#define SLUICE_CLI_EVAL_RUN_H

#include "cli/engine_drive.h"
#include "cli/eval_stats.h"

struct eval_side {
    const char *path;
    enum engine_kv_type kv_type;
    bool precise;
    struct model model;
    struct drive drive;
};

struct eval_run {
    /* settings */
    struct eval_side a, b; /* b.path NULL = A alone */
    enum engine_kernel kernel;
    uint32_t threads, ctx; /* ctx 0: the smaller of the models' contexts and 2,048 */
    bool quiet;
    /* results */
    struct eval_stats stats;
    uint32_t n_windows;
    uint32_t n_made;       /* eval_self: tokens written before an end, or all */
};

int eval_open(struct eval_run *r, struct err *e);
int eval_text(struct eval_run *r, const int32_t *ids, size_t n, struct err *e);
/* Appends what A wrote to `ids`. `past_end`: end-of-generation tokens do not stop it. */
int eval_self(struct eval_run *r, struct id_list *ids, uint32_t n, bool past_end, struct err *e);
void eval_close(struct eval_run *r);

#endif
