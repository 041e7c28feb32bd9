/* bench_link_orphan.c - the gateway is gone in the middle of a batch and comes back under its name,
 * once as the same process and once as another: all sequences are adopted through SYNC, every
 * answer is complete and what it is alone, and nothing was computed twice (account counters). */
#include "tests/bench/bench_link.h"

#include "base/hash.h"
#include "base/mem.h"

struct orphan {
    struct bench_options o;
    struct bench_report *r;
    struct link_driver d;
    struct driver_request *all;
    uint32_t n, left;
    uint64_t ids;
};

static void ended(void *ctx, struct driver_request *r) {
    (void)r;
    ((struct orphan *)ctx)->left--;
}

static uint64_t have(const struct orphan *s) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        n += s->all[i].n - s->all[i].n_prompt;
    return n;
}

static int make(struct orphan *s, uint64_t seed, struct err *e) {
    s->ids = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t n_in = 8 + (uint32_t)(rand_at(seed, 2 * i) % s->o.batch_in);
        uint32_t n_out = 8 + (uint32_t)(rand_at(seed, 2 * i + 1) % s->o.batch_out);
        if (driver_request_init(&s->all[i], CLASS_BATCH, seed, i, n_in, n_out, s->d.hello.n_vocab)
            != 0)
            return err_set(e, ERR_NO_MEMORY, "no memory");
        s->ids += n_out;
    }
    s->left = s->n;
    return 0;
}

static int follow(struct orphan *s, uint64_t until_ids, struct err *e) {
    while (s->left > 0 && have(s) < until_ids)
        if (driver_turn(&s->d, driver_clock_ns() + BENCH_NS, e) != 0)
            return -1;
    return 0;
}

static int stay_away(struct orphan *s, uint64_t incarnation, struct err *e) {
    uint64_t until = driver_clock_ns() + (uint64_t)(s->o.away_s * 1e9);
    driver_cut(&s->d);
    while (driver_clock_ns() < until)
        if (driver_turn(&s->d, until, e) != 0)
            return -1;
    return driver_back(&s->d, incarnation, e);
}

static int play(struct orphan *s, uint64_t incarnation, struct err *e) {
    s->d.ended = ended;
    s->d.ctx = s;
    for (uint32_t i = 0; i < s->n; i++)
        if (driver_submit(&s->d, &s->all[i]) != 0)
            return err_set(e, ERR_WORKER_LOST, "a sequence could not be submitted");
    if (follow(s, s->ids / 2, e) != 0)
        return -1;
    uint32_t open = s->left;
    uint64_t entries = s->d.sync_entries;
    if (stay_away(s, incarnation, e) != 0)
        return -1;
    bench_figure(s->r, "open_when_cut", open);
    bench_figure(s->r, "named_by_sync", (double)(s->d.sync_entries - entries));
    return follow(s, UINT64_MAX, e);
}

static int judge(struct orphan *s, const struct msg_account *before, struct err *e) {
    const struct msg_account *a = &s->d.accounts[CLASS_BATCH];
    struct link_driver fresh;
    struct driver_config c = bench_worker(&s->o);
    uint64_t prompts = 0, answered = 0;
    uint32_t same = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        prompts += s->all[i].n_prompt;
        answered += driver_request_answered(&s->all[i]);
    }
    bench_verdict(s->r, "answered_share", (double)answered / s->n, 1, false);
    bench_verdict(s->r, "submitted_again", (double)s->d.resubmitted, 0, true);
    bench_verdict(s->r, "prompt_positions_over_prompts",
                  (double)(a->prompt_first - before->prompt_first) / (double)prompts, 1, true);
    bench_verdict(s->r, "ids_made_over_ids", (double)(a->output - before->output) / (double)s->ids,
                  1, true);
    bench_verdict(s->r, "recomputed_positions",
                  (double)(a->recomputed + a->dropped - before->recomputed - before->dropped), 0,
                  true);
    int rc = driver_open(&fresh, &c, e);
    for (uint32_t i = 0; rc >= 0 && i < s->n; i++) {
        rc = alone_compare(&fresh, &s->all[i], e);
        same += rc > 0;
    }
    driver_close(&fresh);
    if (rc >= 0)
        bench_verdict(s->r, "identical_share", (double)same / s->n, 1, false);
    return rc < 0 ? -1 : 0;
}

/* Each round has a worker of its own, so that the counters are its alone. */
static int one_round(struct orphan *s, bool new_process, struct err *e) {
    struct driver_config c = bench_worker(&s->o);
    struct msg_account before = {0};
    int rc = driver_open(&s->d, &c, e);
    bench_figure(s->r, "another_process", new_process);
    if (rc == 0)
        rc = make(s, rand_at(s->o.seed, new_process), e);
    if (rc == 0)
        rc = play(s, s->d.incarnation + new_process, e);
    if (rc == 0)
        rc = judge(s, &before, e);
    driver_close(&s->d);
    for (uint32_t i = 0; i < s->n; i++)
        driver_request_deinit(&s->all[i]);
    return rc;
}

int bench_orphan(const struct bench_options *o, struct bench_report *r, struct err *e) {
    struct orphan *s = mem_zalloc(sizeof(*s));
    if (s == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory");
    s->o = *o;
    s->r = r;
    s->o.seats = o->seats != 0 ? o->seats : 8;
    s->o.prefill_chunk = o->prefill_chunk != 0 ? o->prefill_chunk : 64;
    s->o.batch_in = o->batch_in != 0 ? o->batch_in : 100;
    s->o.batch_out = o->batch_out != 0 ? o->batch_out : o->quick ? 40 : 120;
    s->o.kv_tokens =
        o->kv_tokens != 0 ? o->kv_tokens : s->o.seats * (s->o.batch_in + s->o.batch_out + 32);
    s->n = 3 * s->o.seats; /* some run, some wait */
    s->all = mem_array(s->n, sizeof(*s->all));
    int rc = s->all != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory");
    for (int other = 0; rc == 0 && other < 2; other++)
        rc = one_round(s, other, e);
    mem_free(s->all);
    mem_free(s);
    return rc;
}
