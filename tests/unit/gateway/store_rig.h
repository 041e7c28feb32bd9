/* store_rig.h - a store in an empty folder, driven one op at a time. */
#ifndef SLUICE_TESTS_STORE_RIG_H
#define SLUICE_TESTS_STORE_RIG_H

#include "gateway/store.h"
#include "tests/common/testpaths.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

static uv_loop_t rig_loop;

static inline void rig_done(struct store_op *op) { *(bool *)op->user = true; }

/* Pushes, runs the loop until it is answered; op->rc. */
static inline int rig_run(struct store *s, struct store_op *op)
{
    bool done = false;
    op->done = rig_done;
    op->user = &done;
    ck_assert_int_eq(store_push(s, op), 0);
    while (!done) uv_run(&rig_loop, UV_RUN_ONCE);
    return op->rc;
}

static inline int rig_job(struct store *s, const char *tenant, const char *id, const char *key, bool *known)
{
    struct store_op op = {.kind = STORE_JOB_CREATE};
    snprintf(op.job.id, sizeof op.job.id, "%s", id);
    snprintf(op.job.tenant, sizeof op.job.tenant, "%s", tenant);
    snprintf(op.job.submission_key, sizeof op.job.submission_key, "%s", key);
    snprintf(op.job.status, sizeof op.job.status, "in_progress");
    op.job.metadata = (char *)"{\"a\":1}";
    int rc = rig_run(s, &op);
    if (known) *known = op.known;
    if (op.known) store_op_deinit(&op);
    return rc;
}

/* Lines first..first+n-1, each line's body its number; every fifth failed. How many were new. */
static inline int rig_results(struct store *s, const char *tenant, const char *id, int64_t first, size_t n)
{
    struct store_result r[64] = {0};
    char body[64][16];
    struct store_op op = {.kind = STORE_RESULTS_PUT, .results = r, .n_results = n};
    int fresh = 0;
    snprintf(op.tenant, sizeof op.tenant, "%s", tenant);
    snprintf(op.id, sizeof op.id, "%s", id);
    for (size_t i = 0; i < n; i++) {
        r[i].line = first + (int64_t)i;
        r[i].ok = r[i].line % 5 != 0;
        r[i].body = body[i];
        r[i].bytes = (size_t)snprintf(body[i], sizeof body[i], "%lld", (long long)r[i].line);
        r[i].usage.output = 2;
    }
    if (rig_run(s, &op) != 0) return -1;
    for (size_t i = 0; i < n; i++) fresh += !r[i].duplicate;
    ck_assert_int_eq(op.job.completed + op.job.failed, fresh);
    return fresh;
}

/* The job as it is, its counts equal to its results. -1 = not found. */
static inline int64_t rig_counted(struct store *s, const char *tenant, const char *id)
{
    struct store_op op = {.kind = STORE_JOB_GET}, done = {.kind = STORE_RESULTS_DONE};
    uint8_t bits[64] = {0};
    snprintf(op.tenant, sizeof op.tenant, "%s", tenant);
    snprintf(op.id, sizeof op.id, "%s", id);
    memcpy(done.tenant, op.tenant, sizeof op.tenant);
    memcpy(done.id, op.id, sizeof op.id);
    done.bitmap = bits;
    done.n_lines = sizeof bits * 8;
    if (rig_run(s, &op) != 0) return -1;
    ck_assert_int_eq(rig_run(s, &done), 0);
    ck_assert_int_eq(op.job.completed, done.job.completed);
    ck_assert_int_eq(op.job.failed, done.job.failed);
    ck_assert_int_eq(op.job.usage.output, done.job.usage.output);
    const int64_t n = op.job.completed + op.job.failed;
    store_op_deinit(&op);
    return n;
}

#endif
