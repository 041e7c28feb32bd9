/* bench_mixed_verify.c - every answer of the mixed arms against the same request alone. */
#include "base/hash.h"
#include "base/mem.h"
#include "cli/bench_mixed.h"
#include "cli/clock.h"

#include <string.h>

#define ALONE_MS 120e3

/* 1 = the same, 0 = not, -1 = stop. */
static int same_alone(struct mixed *m, const struct arm_request *r, struct err *e) {
    struct http_call call = {.path = "/v1/completions"};
    struct answer a = {0};
    struct buf body = {0};
    struct err why;
    int rc = ask_body(&body, &m->style, &r->ask);
    call.body = body.p;
    call.n_body = body.len;
    if (rc != 0)
        rc = err_set(e, ERR_NO_MEMORY, "no memory for a comparison");
    else if (m->o.stop != NULL && *m->o.stop)
        rc = err_set(e, ERR_CANCELLED, "interrupted");
    else if (http_client_wait(m->client, &call, ALONE_MS, &why) != 0)
        rc = 0; /* no answer alone: not identical */
    else if (answer_read(&a, &call) != 0)
        rc = err_set(e, ERR_NO_MEMORY, "no memory for a comparison");
    else
        rc = answer_same(&a, &r->answer);
    answer_deinit(&a);
    http_call_deinit(&call);
    buf_deinit(&body);
    return rc;
}

static int compare(struct mixed *m, struct mixed_counts *n, const struct arm_request *r,
                   struct err *e) {
    if (!r->answer.whole) {
        n->unanswered++;
        return 0;
    }
    int rc = same_alone(m, r, e);
    n->compared++;
    n->same += rc > 0;
    return rc < 0 ? -1 : 0;
}

/* `most` of the whole batch answers, spread over all of them. */
static int compare_batch(struct mixed *m, struct mixed_counts *n, const struct arm *a,
                         uint32_t most, struct err *e) {
    uint32_t whole = 0, seen = 0;
    for (uint32_t i = 0; i < a->n_batch; i++)
        whole += a->batch[i]->answer.whole;
    uint32_t take = whole < most ? whole : most;
    for (uint32_t i = 0; i < a->n_batch; i++) {
        if (!a->batch[i]->answer.whole)
            continue;
        bool due = (uint64_t)(seen + 1) * take / whole > (uint64_t)seen * take / whole;
        seen++;
        if (due && compare(m, n, a->batch[i], e) != 0)
            return -1;
    }
    return 0;
}

static int verify_run(struct mixed *m, struct mixed_run *r, struct err *e) {
    for (int k = MIXED_M1; k <= MIXED_M2; k++) {
        const struct arm *a = &r->arms[k];
        for (uint32_t i = 0; i < a->plan->n; i++)
            if (compare(m, &r->rt, &a->rt[i], e) != 0)
                return -1;
        if (compare_batch(m, &r->batch, a, m->o.verify / 2, e) != 0)
            return -1;
    }
    mixed_progress(
        m,
        "compared with the same request alone: real-time %u of %u identical, batch %u of "
        "%u",
        r->rt.same, r->rt.compared, r->batch.same, r->batch.compared);
    return 0;
}

int mixed_verify(struct mixed *m, struct err *e) {
    if (m->o.verify == 0)
        return 0;
    for (uint32_t i = 0; i < m->n_runs; i++)
        if (verify_run(m, &m->runs[i], e) != 0)
            return -1;
    struct arm *a = &m->kill.arm;
    if (!m->kill.done)
        return 0;
    for (uint32_t i = 0; i < a->plan->n; i++)
        if (compare(m, &m->kill.answers, &a->rt[i], e) != 0)
            return -1;
    if (compare_batch(m, &m->kill.answers, a, m->o.verify, e) != 0)
        return -1;
    mixed_progress(m, "answers of the kill phase: %u of %u identical", m->kill.answers.same,
                   m->kill.answers.compared);
    return 0;
}
