/* wfix.h - the fixture of worker_core's tests: one virtual worker, one gateway, time by hand. */
#ifndef SLUICE_TESTS_WFIX_H
#define SLUICE_TESTS_WFIX_H

#include "base/mem.h"
#include "tests/common/test_run.h"
#include "tests/unit/scheduler/vworker.h"

#include <string.h>

#define GW 1u
#define SECOND 1000000000ull

static struct vworker *w;
static struct worker_core_config cfg;
static uint64_t now;
static uint64_t next_counter;

static inline void wfix_config(void)
{
    memset(&cfg, 0, sizeof cfg);
    cfg = (struct worker_core_config){
        .max_slots = 40,
        .max_seqs = 16,
        .max_spans = 16,
        .max_tokens = 64,
        .max_rows = 64,
        .prefill_chunk = 32,
        .n_ctx = 128,
        .min_run = 16,
        .park_max_ns = 2 * SECOND,
        .lost_realtime_ns = 2 * SECOND,
        .lost_batch_ns = 30 * SECOND,
        .finish_repeat_ns = SECOND,
        .pool = {.n_blocks = 129, .block_tokens = VW_BT, .max_seq_blocks = 32}};
    class_table_default(&cfg.classes);
}

static inline void wfix_start(void)
{
    w = mem_zalloc(sizeof *w);
    vw_init(w, worker_core_init(mem_zalloc(worker_core_bytes(&cfg)), &cfg), &cfg, 6);
    now = SECOND;
    next_counter = 1;
    vw_up(w, GW, 77, now, NULL);
    w->n_out = 0; /* the first SYNC */
}

static inline void wfix_stop(void)
{
    const char *bad = vw_check(w);
    ck_assert_msg(bad == NULL, "%s", bad);
    mem_free(w->core);
    mem_free(w);
}

static inline struct worker_stats wfix_stats(void)
{
    struct worker_stats st;
    worker_core_stats(w->core, &st);
    return st;
}

/* A request of class cls; the key names it. */
static inline struct sub_id wfix_submit(uint8_t cls, uint64_t key, uint32_t n_prompt,
                                        uint32_t max_tokens)
{
    struct sub_id sub = {9, next_counter++};
    struct vw_submit s = {.key = key,
                          .n_prompt = n_prompt,
                          .n_tokens = n_prompt,
                          .from = n_prompt,
                          .max_total = n_prompt + max_tokens,
                          .cls = cls,
                          .tag = sub.counter};
    vw_submit(w, GW, sub, &s, now, NULL);
    return sub;
}

/* A request whose prompt begins with n_shared ids of shared_key; its prefixes are of `scope`. */
static inline struct sub_id wfix_shared(uint8_t cls, uint64_t key, uint64_t shared_key,
                                        uint32_t n_shared, uint32_t n_prompt, uint32_t max_tokens,
                                        uint64_t scope)
{
    struct sub_id sub = {9, next_counter++};
    struct vw_submit s = {.key = key,
                          .n_prompt = n_prompt,
                          .n_tokens = n_prompt,
                          .from = n_prompt,
                          .max_total = n_prompt + max_tokens,
                          .cls = cls,
                          .tag = sub.counter,
                          .shared_key = shared_key,
                          .n_shared = n_shared,
                          .scope = scope};
    vw_submit(w, GW, sub, &s, now, NULL);
    return sub;
}

/* The same of a tenant's account. */
static inline struct sub_id wfix_account(uint8_t cls, uint64_t key, uint32_t n_prompt,
                                         uint32_t max_tokens, uint32_t account, uint32_t quota,
                                         uint64_t tag)
{
    struct sub_id sub = {9, next_counter++};
    struct vw_submit s = {.key = key,
                          .n_prompt = n_prompt,
                          .n_tokens = n_prompt,
                          .from = n_prompt,
                          .max_total = n_prompt + max_tokens,
                          .cls = cls,
                          .tag = tag,
                          .account = account,
                          .quota = quota};
    vw_submit(w, GW, sub, &s, now, NULL);
    return sub;
}

static inline void wfix_link(enum worker_event_kind kind, struct sub_id sub, uint32_t from)
{
    vw_link(w, kind, GW, sub, from, now, NULL);
}

static inline bool wfix_segment(void)
{
    now += 1000000;
    bool more = vw_advance(w, now, NULL);
    ck_assert_msg(vw_check(w) == NULL, "%s", vw_check(w));
    return more;
}

/* Runs until the engine has nothing to do; at most `limit` segments. */
static inline uint32_t wfix_run(uint32_t limit)
{
    uint32_t n = 0;
    while (n < limit && wfix_segment()) n++;
    return n;
}

/* Last message about a submission; NULL: none. */
static inline const struct vw_msg *wfix_last(struct sub_id sub)
{
    for (uint32_t i = w->n_out; i-- > 0;) {
        if (w->out[i].kind == VW_TOKENS && sub_id_equal(w->out[i].sub, sub)) return &w->out[i];
    }
    return NULL;
}

static inline enum finish wfix_finish(struct sub_id sub)
{
    const struct vw_msg *m = wfix_last(sub);
    return m == NULL ? FINISH_NONE : m->finish;
}

/* Indexes sent for a submission must be [from, to) without a hole or repeat. */
static inline void wfix_expect_indexes(struct sub_id sub, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < w->n_out; i++) {
        const struct vw_msg *m = &w->out[i];
        if (m->kind != VW_TOKENS || !sub_id_equal(m->sub, sub) || m->n == 0) continue;
        ck_assert_uint_eq(m->from, from);
        from += m->n;
    }
    ck_assert_uint_eq(from, to);
}

static inline int wfix_main(const char *name, TCase *tc)
{
    Suite *s = suite_create(name);
    suite_add_tcase(s, tc);
    return test_run(s);
}

#endif
