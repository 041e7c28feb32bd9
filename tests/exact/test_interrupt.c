/* A thousand forced preemptions, parks and drops each, inside one process: the whole worker over the transport of
 * memory, without a gateway program, so that the sanitizers see all of it. Each sequence gives what it gives alone,
 * and the auditor looks after every event.
 */
#include "tests/common/test_run.h"
#include "tests/unit/worker/gateway_book.h"
#include "worker/worker.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define S 1000000000ull
#define LEAST 1000
#define ROUNDS_MAX 400

struct running {
    struct worker *w;
    struct rig_gateway gw;
    pthread_t thread;
    enum step_loop_end end;
};

static struct rig_model rig;
static struct book alone;

static void setup(void) {
    rig_model_open(&rig);
}
static void teardown(void) {
    rig_model_close(&rig);
}

static void *run_worker(void *arg) {
    struct running *r = arg;
    struct err e = {0};
    r->end = worker_run(r->w, &e);
    return NULL;
}

static void configure(struct worker_config *c, struct running *r, const char *backend) {
    worker_config_default(c);
    c->model = &rig.m;
    c->engine.backend = backend;
    c->engine.null_token_ns = c->engine.null_step_ns = 1000; /* nothing to wait for */
    c->max_seqs = 8;
    c->prefill_chunk = BOOK_PROMPT_MAX + BOOK_OUT_MAX; /* computed again in one step, or the last one starves */
    c->kv_tokens = 2048;
    strcpy(c->name, "w0");
    c->incarnation = 3;
    c->dial = rig_dial;
    c->dial_ctx = &r->gw;
    c->silence_ns = 600 * S;
    c->audit = true;
}

/* Runs the book on a worker of its own and adds what the worker counted. */
static void run_book(struct book *b, const struct worker_config *cfg, struct running *r,
                     struct worker_stats *sum) {
    struct err e = {0};
    struct worker_stats st;
    rig_gateway_open(&r->gw);
    ck_assert_msg(worker_open(&r->w, cfg, &e) == 0, "%s", e.msg);
    ck_assert_int_eq(pthread_create(&r->thread, NULL, run_worker, r), 0);
    book_run(&r->gw, b, 0);
    worker_stop(r->w);
    pthread_join(r->thread, NULL);
    ck_assert_int_eq(r->end, LOOP_STOPPED);
    worker_stats(r->w, &st);
    worker_close(&r->w);
    rig_gateway_close(&r->gw);
    sum->preemptions += st.preemptions;
    sum->parks += st.parks;
    sum->drops += st.drops;
}

static void learn_alone(const char *backend) {
    struct running r;
    struct worker_config c;
    struct worker_stats none = {0};
    configure(&c, &r, backend);
    alone = (struct book){.n = BOOK_LINES};
    for (uint32_t i = 0; i < BOOK_LINES; i++) {
        struct book one = {.n = 1};
        book_line(&one.lines[0], i);
        run_book(&one, &c, &r, &none);
        alone.lines[i] = one.lines[0];
    }
    ck_assert_uint_eq(none.preemptions + none.parks + none.drops, 0);
}

static void a_thousand_each(const char *backend) {
    struct running r;
    struct worker_config c;
    struct worker_stats sum = {0};
    uint32_t rounds = 0;
    learn_alone(backend);
    configure(&c, &r, backend);
    while ((sum.preemptions < LEAST || sum.parks < LEAST || sum.drops < LEAST) && rounds++ < ROUNDS_MAX) {
        struct book b = {.n = BOOK_LINES};
        for (uint32_t i = 0; i < BOOK_LINES; i++)
            book_line(&b.lines[i], i);
        c.debug_preempt_every = 5 + rounds % 3; /* in another order each round */
        c.debug_park_every = 2 + rounds % 2;
        c.debug_drop_every = 3 + rounds % 2;
        c.kv_tokens = rounds % 4 == 0 ? 320 : 2048;
        c.engine.chaos_seed = rounds % 8 == 1 ? rounds : 0;
        run_book(&b, &c, &r, &sum);
        for (uint32_t i = 0; i < BOOK_LINES; i++)
            book_compare(&alone.lines[i], &b.lines[i], i);
    }
    printf("%s: %u rounds of %u sequences, %llu preemptions, %llu parks, %llu drops\n", backend, rounds, BOOK_LINES,
           (unsigned long long)sum.preemptions, (unsigned long long)sum.parks, (unsigned long long)sum.drops);
    ck_assert_uint_ge(sum.preemptions, LEAST);
    ck_assert_uint_ge(sum.parks, LEAST);
    ck_assert_uint_ge(sum.drops, LEAST);
}

START_TEST(on_cpu) {
    a_thousand_each("cpu");
}
END_TEST

START_TEST(on_null) {
    a_thousand_each("null");
}
END_TEST

int main(void) {
    TCase *tc = tcase_create("interrupt");
    tcase_add_unchecked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 600);
    tcase_add_test(tc, on_cpu);
    tcase_add_test(tc, on_null);
    Suite *suite = suite_create("interrupt");
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
