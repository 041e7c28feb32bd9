/* The whole worker over the fake transport: link thread, step loop, engine, one scripted gateway
 * that keeps the rules of the link. Twenty sequences with preemption, parks, drops, chaos, cancels
 * and a link cut again and again give what each gives alone, nothing twice and nothing missing.
 */
#include "tests/unit/worker/event_replay.h"
#include "tests/unit/worker/gateway_book.h"
#include "worker/worker.h"

#include "base/hash.h"
#include "base/mem.h"
#include "tests/common/testpaths.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S 1000000000ull
#define SEED BOOK_SEED
#define N_SEQS BOOK_LINES

static struct rig_model rig;

static void setup(void) {
    rig_model_open(&rig);
}
static void teardown(void) {
    rig_model_close(&rig);
}

/* ---- a running worker ---- */

struct running {
    struct worker *w;
    struct rig_gateway gw;
    pthread_t thread;
    enum step_loop_end end;
};

static void *run_worker(void *arg) {
    struct running *r = arg;
    struct err e = {0};
    r->end = worker_run(r->w, &e);
    return NULL;
}

static void base_config(struct worker_config *c, struct running *r, const char *backend) {
    worker_config_default(c);
    c->model = &rig.m;
    c->engine.backend = backend;
    c->max_seqs = 4;
    c->prefill_chunk = 16;
    c->kv_tokens = 1024;
    strcpy(c->name, "w0");
    c->incarnation = 3;
    c->dial = rig_dial;
    c->dial_ctx = &r->gw;
    c->silence_ns = 600 * S; /* rig_cut: only the test cuts */
    c->audit = true;
}

static void launch_again(struct running *r, const struct worker_config *c) {
    struct err e = {0};
    ck_assert_msg(worker_open(&r->w, c, &e) == 0, "%s", e.msg);
    ck_assert_int_eq(pthread_create(&r->thread, NULL, run_worker, r), 0);
}

static void launch(struct running *r, const struct worker_config *c) {
    rig_gateway_open(&r->gw);
    launch_again(r, c);
}

static void join(struct running *r) {
    pthread_join(r->thread, NULL);
    worker_close(&r->w);
    rig_gateway_close(&r->gw);
}

/* Each line alone in a worker that is never disturbed. */
static void run_alone(struct book *b, const char *backend) {
    struct running r;
    struct worker_config c;
    struct book one = {.n = 1};
    base_config(&c, &r, backend);
    launch(&r, &c);
    for (uint32_t i = 0; i < b->n; i++) {
        one.lines[0] = b->lines[i];
        if (one.live)
            book_send(&r.gw, &one, &one.lines[0]);
        book_run(&r.gw, &one, 0);
        b->lines[i] = one.lines[0];
    }
    worker_stop(r.w);
    join(&r);
    ck_assert_int_eq(r.end, LOOP_STOPPED);
}

static void twenty(const char *backend, struct worker_stats *stats) {
    static struct book alone, crowd;
    struct running r;
    struct worker_config c;
    char path[4300];
    size_t n_text;
    alone = (struct book){.n = N_SEQS};
    for (uint32_t i = 0; i < N_SEQS; i++)
        book_line(&alone.lines[i], i);
    crowd = alone;
    for (uint32_t i = 0; i < N_SEQS; i += 7)
        crowd.lines[i].cancel_at = 3;
    run_alone(&alone, backend);
    base_config(&c, &r, backend);
    c.kv_tokens = 256; /* less than the four seats need */
    c.engine.host_slots = 24;
    c.engine.null_copy_ns = 20000;
    c.prefix_cache = strcmp(backend, "cpu") == 0; /* without it what is kept on the host comes back */
    c.prefill_chunk = 7;
    c.engine.chaos_seed = SEED;
    c.engine.null_step_ns = 1000000; /* a step that costs nothing is over before a park reaches it */
    snprintf(path, sizeof(path), "%s/crowd", rig.dir);
    c.event_log = path;
    c.debug_park_every = 5;
    c.debug_drop_every = 7;
    c.debug_preempt_every = 37; /* steps: more than a longest sequence needs to be computed again */
    launch(&r, &c);
    book_run(&r.gw, &crowd, 120);
    worker_stop(r.w);
    pthread_join(r.thread, NULL);
    worker_stats(r.w, stats);
    worker_close(&r.w);
    rig_gateway_close(&r.gw);
    for (uint32_t i = 0; i < N_SEQS; i++)
        book_compare(&alone.lines[i], &crowd.lines[i], i);
    printf("%s: %llu submits, %llu syncs, %llu ids, %llu preemptions, %llu parks, %llu drops\n",
           backend, (unsigned long long)crowd.submits, (unsigned long long)crowd.syncs,
           (unsigned long long)crowd.tokens, (unsigned long long)stats->preemptions,
           (unsigned long long)stats->parks, (unsigned long long)stats->drops);
    printf("%llu checkpoints, %llu swap-ins, %llu recomputes, %llu cache hits, %llu faults\n",
           (unsigned long long)stats->pool.checkpoints, (unsigned long long)stats->resumed_swap,
           (unsigned long long)stats->resumed_recompute, (unsigned long long)stats->pool.hits,
           (unsigned long long)stats->faults);
    ck_assert_uint_gt(stats->pool.checkpoints, 0);
    ck_assert_uint_eq(stats->faults, 0);
    ck_assert_uint_gt(crowd.syncs, 2);
    char *text = test_read_file(path, &n_text);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_gt(event_replay(text), 100); /* the same decisions from the same events */
    free(text);
}

START_TEST(twenty_on_null) {
    struct worker_stats st;
    twenty("null", &st);
    ck_assert_uint_gt(st.preemptions, 3);
    ck_assert_uint_gt(st.parks, 10);
    ck_assert_uint_gt(st.drops, 5);
}
END_TEST

START_TEST(twenty_on_cpu) {
    struct worker_stats st;
    twenty("cpu", &st);
    ck_assert_uint_gt(st.preemptions, 3);
}
END_TEST

/* The worker is gone in the middle of everything; another one takes the ids there are and goes on.
 */
START_TEST(another_worker_goes_on) {
    static struct book alone, b;
    struct running r;
    struct worker_config c;
    alone = (struct book){.n = 8};
    for (uint32_t i = 0; i < alone.n; i++)
        book_line(&alone.lines[i], i);
    b = alone;
    run_alone(&alone, "cpu");
    base_config(&c, &r, "cpu");
    launch(&r, &c);
    for (uint64_t until = 40; until <= 120; until += 40) {
        while (b.tokens < until) {
            struct msg m;
            rig_wait(&r.gw, &m);
            book_message(&r.gw, &b, &m);
            msg_deinit(&m);
        }
        worker_stop(r.w);
        pthread_join(r.thread, NULL);
        worker_close(&r.w);
        for (struct msg m; rig_recv(&r.gw, &m); msg_deinit(&m)) /* died with its connection */
            ;
        c.incarnation++;
        launch_again(&r, &c);
    }
    book_run(&r.gw, &b, 0);
    worker_stop(r.w);
    join(&r);
    for (uint32_t i = 0; i < b.n; i++)
        book_compare(&alone.lines[i], &b.lines[i], i);
    ck_assert_uint_gt(b.submits, 16);
}
END_TEST

/* ---- single matters ---- */

static void come_up(struct running *r) {
    struct msg m;
    for (bool synced = false; !synced; msg_deinit(&m)) {
        rig_wait(&r->gw, &m);
        if (m.kind == MSG_HELLO)
            rig_accept(&r->gw);
        synced = m.kind == MSG_SYNC;
    }
}

/* The next TOKENS entry (each message has one in these tests); the rest is left out. */
static void wait_tokens(struct running *r, struct msg *m) {
    for (;;) {
        rig_wait(&r->gw, m);
        if (m->kind == MSG_TOKENS && m->u.tokens.n > 0) /* none: only what tenants had */
            break;
        msg_deinit(m);
    }
    ck_assert_uint_eq(m->u.tokens.n, 1);
    ck_assert_uint_eq(m->u.tokens.n_accounts, 2);
}

START_TEST(prompt_scores_without_a_token) {
    struct running r;
    struct worker_config c;
    struct msg m, s = {.kind = MSG_SUBMIT};
    int32_t ids[40];
    for (int i = 0; i < 40; i++)
        ids[i] = RIG_BYTE('a' + i % 9);
    base_config(&c, &r, "cpu");
    launch(&r, &c);
    come_up(&r);
    s.u.submit = rig_submit((struct sub_id){11, 1}, ids, 40, 40);
    s.u.submit.from = 1;
    s.u.submit.logprobs = true;
    s.u.submit.n_top = 2;
    rig_send(&r.gw, &s);
    uint32_t next = 1;
    enum finish f = FINISH_NONE;
    while (f == FINISH_NONE) {
        wait_tokens(&r, &m);
        const struct msg_tokens_entry *t = &m.u.tokens.entries[0];
        ck_assert_uint_eq(t->index, next);
        for (uint32_t i = 0; i < t->n; i++, next++) {
            ck_assert_int_eq(t->records[i].id, ids[next]);
            ck_assert(t->records[i].logprob < 0);
            ck_assert_uint_eq(t->records[i].n_top, 2);
        }
        f = t->finish;
        msg_deinit(&m);
    }
    ck_assert_int_eq(f, FINISH_LENGTH);
    ck_assert_uint_eq(next, 40);
    worker_stop(r.w);
    join(&r);
}
END_TEST

START_TEST(a_finish_is_repeated_until_acknowledged) {
    struct running r;
    struct worker_config c;
    struct msg m, s = {.kind = MSG_SUBMIT};
    int32_t ids[] = {RIG_BYTE('a')};
    base_config(&c, &r, "null");
    launch(&r, &c);
    come_up(&r);
    s.u.submit = rig_submit((struct sub_id){11, 1}, ids, 1, 9);
    s.u.submit.cls = 7;
    rig_send(&r.gw, &s);
    for (int i = 0; i < 2; i++) {
        wait_tokens(&r, &m);
        ck_assert_int_eq(m.u.tokens.entries[0].finish, FINISH_REFUSED);
        ck_assert_uint_eq(m.u.tokens.entries[0].index, 1);
        msg_deinit(&m);
    }
    rig_send_sub(&r.gw, MSG_ACK, s.u.submit.sub, 0);
    rig_send_sub(&r.gw, MSG_GAP, s.u.submit.sub, 1); /* forgotten now */
    wait_tokens(&r, &m);
    ck_assert_int_eq(m.u.tokens.entries[0].finish, FINISH_UNKNOWN);
    msg_deinit(&m);
    worker_stop(r.w);
    join(&r);
}
END_TEST

/* Drain: two run on four... two seats, two wait: those are handed back, these end, then the worker
 * does. */
START_TEST(drain_ends_in_order) {
    struct running r;
    struct worker_config c;
    struct msg m;
    int32_t ids[] = {RIG_BYTE('a'), RIG_BYTE('b')};
    uint32_t handed = 0, ended = 0, first = 0;
    base_config(&c, &r, "null");
    c.max_seqs = 2;
    c.engine.null_step_ns = 2000000;
    launch(&r, &c);
    come_up(&r);
    for (uint64_t i = 1; i <= 4; i++) {
        struct msg s = {.kind = MSG_SUBMIT,
                        .u.submit = rig_submit((struct sub_id){11, i}, ids, 2, 30)};
        s.u.submit.ignore_eos = true;
        s.u.submit.tag = i;
        rig_send(&r.gw, &s);
    }
    while (handed + ended < 4) {
        rig_wait(&r.gw, &m);
        for (uint32_t k = 0; m.kind == MSG_TOKENS && k < m.u.tokens.n; k++) {
            const struct msg_tokens_entry *t = &m.u.tokens.entries[k];
            if (first++ == 3)
                worker_drain(r.w);
            handed += t->finish == FINISH_HANDED_BACK;
            ended += t->finish == FINISH_LENGTH;
            if (t->finish != FINISH_NONE)
                rig_send_sub(&r.gw, MSG_ACK, t->sub, 0);
        }
        msg_deinit(&m);
    }
    join(&r);
    ck_assert_int_eq(r.end, LOOP_DRAINED);
    ck_assert_uint_eq(handed, 2);
    ck_assert_uint_eq(ended, 2);
}
END_TEST

/* ---- the event log ---- */

/* A real-time request among running batch: at most the running segment of the lower rank is
 * computed before it. */
START_TEST(realtime_waits_for_one_segment_at_most) {
    struct running r;
    struct worker_config c;
    struct book b = {.n = 4};
    char path[4300];
    size_t n;
    snprintf(path, sizeof(path), "%s/events", rig.dir);
    base_config(&c, &r, "null");
    c.event_log = path;
    c.engine.null_step_ns = 4000000;
    c.engine.null_segments = 16;
    for (uint32_t i = 0; i < 4; i++) {
        book_line(&b.lines[i], i);
        b.lines[i].cls = i == 3 ? CLASS_REALTIME : CLASS_BATCH;
    }
    b.lines[3].state = LINE_DONE; /* comes later */
    launch(&r, &c);
    while (b.tokens < 6 || !b.live) {
        struct msg m;
        rig_wait(&r.gw, &m);
        book_message(&r.gw, &b, &m);
        msg_deinit(&m);
    }
    book_send(&r.gw, &b, &b.lines[3]);
    book_run(&r.gw, &b, 0);
    worker_stop(r.w);
    join(&r);
    char *text = test_read_file(path, &n), *save = NULL;
    ck_assert_ptr_nonnull(text);
    bool arrived = false, served = false;
    unsigned long long running_rank = 9, done = 0, asked = 0;
    for (char *line = strtok_r(text, "\n", &save); line != NULL && !served;
         line = strtok_r(NULL, "\n", &save)) {
        ck_assert_ptr_null(strstr(line, "{\"dropped\""));
        arrived =
            arrived
            || (strstr(line, "\"event\":\"submit\"") != NULL && strstr(line, "\"rank\":0") != NULL);
        char *parked = arrived ? strstr(line, "\"event\":\"step_parked\"") : NULL;
        if (parked != NULL) {
            sscanf(strstr(line, "segments_done"),
                   "segments_done\":%llu,\"segment_at_request\":%llu", &done, &asked);
            ck_assert_uint_le(done, asked + 1);
        }
        char *submit = arrived ? strstr(line, "\"action\":\"step_submit\"") : NULL;
        if (submit != NULL)
            sscanf(strstr(line, "\"rank\""), "\"rank\":%llu", &running_rank);
        served = submit != NULL;
    }
    free(text);
    ck_assert(arrived);
    ck_assert_uint_eq(running_rank, 0); /* the first step after its arrival is its own */
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker");
    TCase *t = tcase_create("worker");
    printf("seed %d\n", SEED);
    tcase_set_timeout(t, 100);
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_test(t, twenty_on_null);
    tcase_add_test(t, twenty_on_cpu);
    tcase_add_test(t, another_worker_goes_on);
    tcase_add_test(t, prompt_scores_without_a_token);
    tcase_add_test(t, a_finish_is_repeated_until_acknowledged);
    tcase_add_test(t, drain_ends_in_order);
    tcase_add_test(t, realtime_waits_for_one_segment_at_most);
    suite_add_tcase(s, t);
    return test_run(s);
}
