/* The whole worker over the fake transport: link thread, step loop, engine, one scripted gateway
 * that keeps the rules of the link. Twenty sequences with preemption, parks, drops, chaos, cancels
 * and a link cut again and again give what each gives alone, nothing twice and nothing missing.
 */
#include "tests/unit/worker/worker_rig.h"
#include "worker/worker.h"

#include "base/hash.h"
#include "base/mem.h"
#include "tests/common/testpaths.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S 1000000000ull
#define SEED 4242
#define N_SEQS 20
#define PROMPT_MAX 70
#define OUT_MAX 60

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

/* ---- sequences as their gateway sees them ---- */

enum line_state { LINE_WAITS, LINE_SENT, LINE_DONE };

struct line {
    int32_t ids[PROMPT_MAX + OUT_MAX];
    uint32_t n_prompt, n, max_total;
    uint8_t cls;
    float temperature;
    enum line_state state;
    struct sub_id sub;
    enum finish finish;
    uint32_t visible, cancel_at; /* cancel once so many ids are there; 0 = never */
};

struct book { /* the gateway's */
    struct line lines[N_SEQS];
    uint32_t n;
    uint64_t counter, submits, tokens, syncs;
    bool live; /* SYNC answered */
};

static void make_line(struct line *l, uint32_t i) {
    *l = (struct line){.n_prompt = 1 + (uint32_t)(rand_at(SEED, i) % PROMPT_MAX),
                       .cls = i % 5 == 4 ? CLASS_REALTIME : CLASS_BATCH,
                       .temperature = i % 2 != 0 ? 1.0f : 0.0f};
    for (uint32_t k = 0; k < l->n_prompt; k++)
        l->ids[k] = RIG_BYTE('a' + rand_at(SEED + 1 + i, k) % 26);
    l->n = l->n_prompt;
    l->max_total = l->n_prompt + 5 + (uint32_t)(rand_at(SEED, 1000 + i) % (OUT_MAX - 5));
}

static void send_line(struct running *r, struct book *b, struct line *l) {
    struct msg_stop stops[] = {{"qu", 2}};
    l->sub = (struct sub_id){r->gw.incarnation, ++b->counter};
    l->state = LINE_SENT;
    b->submits++;
    struct msg m = {.kind = MSG_SUBMIT, .u.submit = rig_submit(l->sub, l->ids, l->n, l->max_total)};
    struct msg_submit *s = &m.u.submit;
    s->cls = l->cls;
    s->rank = l->cls != CLASS_REALTIME;
    s->n_prompt = l->n_prompt;
    s->tag = b->counter;
    s->temperature = l->temperature;
    s->seed = 1000 + l->n_prompt;
    s->stops = stops;
    s->n_stops = 1;
    s->min_total = l->n_prompt + 2;
    rig_send(&r->gw, &m);
}

static struct line *find_line(struct book *b, struct sub_id sub) {
    for (uint32_t i = 0; i < b->n; i++)
        if (b->lines[i].state == LINE_SENT && sub_id_equal(b->lines[i].sub, sub))
            return &b->lines[i];
    return NULL;
}

static void on_sync(struct running *r, struct book *b, const struct msg_sync *s) {
    bool there[N_SEQS] = {false};
    b->syncs++;
    for (uint32_t k = 0; k < s->n; k++) {
        struct line *l = find_line(b, s->entries[k].sub);
        if (l == NULL) {
            rig_send_sub(&r->gw, MSG_CANCEL, s->entries[k].sub, 0);
            continue;
        }
        there[l - b->lines] = true;
        rig_send_sub(&r->gw, MSG_GAP, l->sub, l->n);
    }
    for (uint32_t i = 0; !b->live && i < b->n; i++)
        if (b->lines[i].state == LINE_WAITS || (b->lines[i].state == LINE_SENT && !there[i]))
            send_line(r, b, &b->lines[i]);
    b->live = true;
}

static void on_entry(struct running *r, struct book *b, const struct msg_tokens_entry *t) {
    struct line *l = find_line(b, t->sub);
    if (l == NULL) {
        if (t->finish != FINISH_CANCELLED && t->finish != FINISH_UNKNOWN)
            rig_send_sub(&r->gw, MSG_CANCEL, t->sub, 0);
        return;
    }
    if (t->finish == FINISH_HANDED_BACK || t->finish == FINISH_UNKNOWN) {
        rig_send_sub(&r->gw, MSG_ACK, t->sub, 0);
        send_line(r, b, l);
        return;
    }
    if (t->index > l->n) {
        rig_send_sub(&r->gw, MSG_GAP, l->sub, l->n);
        return;
    }
    for (uint32_t k = 0; k < t->n; k++) {
        uint32_t at = t->index + k;
        ck_assert_uint_lt(at, l->max_total);
        if (at < l->n)
            ck_assert_int_eq(l->ids[at], t->records[k].id); /* said twice, never changed */
        l->ids[at] = t->records[k].id;
        if (at == l->n)
            l->n++;
        b->tokens++;
    }
    if (t->finish != FINISH_NONE && t->index + t->n == l->n) {
        l->finish = t->finish;
        l->visible = t->visible_bytes;
        l->state = LINE_DONE;
        rig_send_sub(&r->gw, MSG_ACK, l->sub, 0);
    } else if (l->cancel_at != 0 && l->n >= l->n_prompt + l->cancel_at) {
        rig_send_sub(&r->gw, MSG_CANCEL, l->sub, 0);
        l->state = LINE_DONE;
    }
}

static void on_message(struct running *r, struct book *b, const struct msg *m) {
    switch (m->kind) {
    case MSG_HELLO:
        b->live = false;
        rig_accept(&r->gw);
        break;
    case MSG_SYNC: on_sync(r, b, &m->u.sync); break;
    case MSG_TOKENS:
        for (uint32_t i = 0; i < m->u.tokens.n; i++)
            on_entry(r, b, &m->u.tokens.entries[i]);
        break;
    case MSG_STATUS: break;
    default: ck_abort_msg("unexpected message %s", msg_name(m->kind));
    }
}

static bool all_done(const struct book *b) {
    for (uint32_t i = 0; i < b->n; i++)
        if (b->lines[i].state != LINE_DONE)
            return false;
    return true;
}

/* Runs the book to its end; cuts the link after each `cut_every` ids (0 = never). */
static void run_book(struct running *r, struct book *b, uint64_t cut_every) {
    uint64_t cut_at = cut_every;
    while (!all_done(b)) {
        struct msg m;
        rig_wait(&r->gw, &m);
        on_message(r, b, &m);
        msg_deinit(&m);
        if (cut_every != 0 && b->tokens >= cut_at && b->live) {
            cut_at = b->tokens + cut_every;
            b->live = false;
            rig_cut(&r->gw);
        }
    }
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
            send_line(&r, &one, &one.lines[0]);
        run_book(&r, &one, 0);
        b->lines[i] = one.lines[0];
    }
    worker_stop(r.w);
    join(&r);
    ck_assert_int_eq(r.end, LOOP_STOPPED);
}

static void compare(const struct line *alone, const struct line *got, uint32_t i) {
    ck_assert_msg(got->n <= alone->n && (got->cancel_at != 0 || got->n == alone->n),
                  "line %u: %u ids, alone %u", i, got->n, alone->n);
    ck_assert_msg(memcmp(alone->ids, got->ids, got->n * sizeof(int32_t)) == 0, "line %u differs",
                  i);
    if (got->finish == FINISH_NONE)
        return; /* cancelled */
    ck_assert_int_eq(got->finish, alone->finish);
    ck_assert_uint_eq(got->visible, alone->visible);
}

static void twenty(const char *backend, struct worker_stats *stats) {
    static struct book alone, crowd;
    struct running r;
    struct worker_config c;
    alone = (struct book){.n = N_SEQS};
    for (uint32_t i = 0; i < N_SEQS; i++)
        make_line(&alone.lines[i], i);
    crowd = alone;
    for (uint32_t i = 0; i < N_SEQS; i += 7)
        crowd.lines[i].cancel_at = 3;
    run_alone(&alone, backend);
    base_config(&c, &r, backend);
    c.kv_tokens = 256; /* less than the four seats need */
    c.prefill_chunk = 7;
    c.engine.chaos_seed = SEED;
    c.debug_park_every = 5;
    c.debug_drop_every = 7;
    c.debug_preempt_every = 37; /* steps: more than a longest sequence needs to be computed again */
    launch(&r, &c);
    run_book(&r, &crowd, 120);
    worker_stop(r.w);
    pthread_join(r.thread, NULL);
    worker_stats(r.w, stats);
    worker_close(&r.w);
    rig_gateway_close(&r.gw);
    for (uint32_t i = 0; i < N_SEQS; i++)
        compare(&alone.lines[i], &crowd.lines[i], i);
    printf("%s: %llu submits, %llu syncs, %llu ids, %llu preemptions, %llu parks, %llu drops\n",
           backend, (unsigned long long)crowd.submits, (unsigned long long)crowd.syncs,
           (unsigned long long)crowd.tokens, (unsigned long long)stats->preemptions,
           (unsigned long long)stats->parks, (unsigned long long)stats->drops);
    ck_assert_uint_gt(crowd.syncs, 2);
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
        make_line(&alone.lines[i], i);
    b = alone;
    run_alone(&alone, "cpu");
    base_config(&c, &r, "cpu");
    launch(&r, &c);
    for (uint64_t until = 40; until <= 120; until += 40) {
        while (b.tokens < until) {
            struct msg m;
            rig_wait(&r.gw, &m);
            on_message(&r, &b, &m);
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
    run_book(&r, &b, 0);
    worker_stop(r.w);
    join(&r);
    for (uint32_t i = 0; i < b.n; i++)
        compare(&alone.lines[i], &b.lines[i], i);
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
        if (m->kind == MSG_TOKENS)
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
        make_line(&b.lines[i], i);
        b.lines[i].cls = i == 3 ? CLASS_REALTIME : CLASS_BATCH;
    }
    b.lines[3].state = LINE_DONE; /* comes later */
    launch(&r, &c);
    while (b.tokens < 6 || !b.live) {
        struct msg m;
        rig_wait(&r.gw, &m);
        on_message(&r, &b, &m);
        msg_deinit(&m);
    }
    send_line(&r, &b, &b.lines[3]);
    run_book(&r, &b, 0);
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
