/* The runner with a backend whose segments wait for the test's word: every interleaving of requests
 * and segment boundaries is chosen here, none is left to the clock. */
#include "worker/engine/step/runner.h"

#include <check.h>
#include <poll.h>
#include <semaphore.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define SEGMENTS 5

static struct runner run;
static int fd;
static sem_t begun, go; /* a segment began; it may end */
static uint32_t ran[64],
    n_ran; /* step id * 100 + segment, in order; read only while the runner waits */
static uint64_t fail_step;

static uint32_t segments(void *b, const struct plan *p)
{
    (void)b;
    (void)p;
    return SEGMENTS;
}

static int segment(void *b, struct step_slot *s, uint32_t k)
{
    (void)b;
    ran[n_ran++ % 64] = (uint32_t)s->plan.id * 100 + k;
    sem_post(&begun);
    while (sem_wait(&go) != 0) {
    }
    if (k + 1 == SEGMENTS)
        for (uint32_t r = 0; r < s->plan.n_rows; r++)
            s->results[r].id = (int32_t)(s->plan.ids[s->plan.first[s->plan.rows[r].span]] + 1);
    return s->plan.id == fail_step && k == 2 ? -1 : 0;
}

static const struct runner_ops ops = {.segments = segments, .segment = segment};

static void start(uint32_t max_refs)
{
    struct plan_caps caps = {
        .max_spans = 4,
        .max_tokens = 16,
        .max_rows = 4,
        .n_ctx = 64,
        .n_vocab = 100,
        .block_tokens = 16,
    };
    fd = eventfd(0, EFD_NONBLOCK);
    sem_init(&begun, 0, 0);
    sem_init(&go, 0, 0);
    n_ran = 0;
    fail_step = 0;
    ck_assert_int_eq(runner_init(&run, &ops, NULL, fd, &caps, max_refs, NULL), 0);
    ck_assert_int_eq(runner_start(&run, NULL), 0);
}

static void stop(void)
{
    for (int i = 0; i < SEGMENTS; i++)
        sem_post(&go); /* whatever still runs may end */
    runner_deinit(&run);
    sem_destroy(&begun);
    sem_destroy(&go);
    close(fd);
}

static void await_begin(void)
{
    while (sem_wait(&begun) != 0) {
    }
}

/* Lets the running segment end and waits for the next one to begin. */
static void next_segment(void)
{
    sem_post(&go);
    await_begin();
}

/* The next completion, waited for on the descriptor. */
static struct engine_completion next_done(void)
{
    struct engine_completion c;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 60000), 1);
    ck_assert_int_eq(runner_poll(&run, &c, 1), 1);
    return c;
}

static void expect(enum engine_completion_kind kind, uint64_t id, uint32_t segments_done)
{
    struct engine_completion c = next_done();
    ck_assert_int_eq(c.kind, kind);
    ck_assert_uint_eq(c.id, id);
    ck_assert_uint_eq(c.segments_done, segments_done);
    if (kind == ENGINE_STEP_PARKED || kind == ENGINE_SPAN_DROPPED)
        ck_assert_uint_le(c.segments_done, c.segment_at_request + 1);
}

static void expect_nothing(void)
{
    struct engine_completion c;
    ck_assert_int_eq(runner_poll(&run, &c, 1), 0);
}

/* A step of n_spans spans of one id; span i of step s starts with id 10 * s + i. The last may refer
 * to `ref`. */
static int submit(uint64_t id, uint32_t n_spans, uint64_t ref)
{
    static const uint32_t block[1] = {1};
    int32_t ids[4];
    struct engine_span spans[4];
    struct engine_row rows[4];
    memset(spans, 0, sizeof spans);
    memset(rows, 0, sizeof rows);
    for (uint32_t i = 0; i < n_spans; i++) {
        ids[i] = (int32_t)(10 * id + i);
        spans[i] = (struct engine_span){.ids = &ids[i], .n = 1, .blocks = block, .n_blocks = 1};
        rows[i] = (struct engine_row){.span = i, .kind = ENGINE_ROW_SAMPLE};
    }
    spans[n_spans - 1].ref_step = ref;
    struct engine_step step = {
        .id = id, .spans = spans, .n_spans = n_spans, .rows = rows, .n_rows = n_spans};
    return runner_submit(&run, &step);
}

START_TEST(park_takes_the_next_boundary)
{
    start(0);
    for (uint32_t at = 0; at < SEGMENTS; at++) {
        uint64_t id = at + 1;
        n_ran = 0;
        ck_assert_int_eq(submit(id, 1, 0), 0);
        await_begin();
        for (uint32_t k = 0; k < at; k++)
            next_segment();
        ck_assert_int_eq(runner_park(&run, id), 0);
        ck_assert_int_eq(runner_park(&run, id), 0);
        expect_nothing(); /* the segment still runs */
        sem_post(&go);
        if (at + 1 == SEGMENTS) { /* too late: the end is the answer */
            expect(ENGINE_STEP_END, id, SEGMENTS);
        } else {
            expect(ENGINE_STEP_PARKED, id, at + 1);
            ck_assert_int_eq(runner_continue(&run, id), 0);
            ck_assert_int_eq(runner_continue(&run, id), -1);
            await_begin();
            for (uint32_t k = at + 2; k < SEGMENTS; k++)
                next_segment();
            sem_post(&go);
            expect(ENGINE_STEP_END, id, SEGMENTS);
        }
        for (uint32_t k = 0; k < SEGMENTS; k++) /* each segment once, in order */
            ck_assert_uint_eq(ran[k], id * 100 + k);
        expect_nothing();
        ck_assert_int_eq(runner_ended(&run, id)->results[0].id, (int32_t)(10 * id + 1));
        runner_release(&run, id);
        ck_assert_ptr_null(runner_ended(&run, id));
    }
    stop();
}
END_TEST

START_TEST(continue_waits_until_the_park_was_seen)
{
    start(0);
    submit(1, 1, 0);
    await_begin();
    runner_park(&run, 1);
    sem_post(&go);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 60000), 1);
    ck_assert_int_eq(runner_continue(&run, 1),
                     -1); /* else parks could outgrow the queue of completions */
    expect(ENGINE_STEP_PARKED, 1, 1);
    ck_assert_int_eq(runner_continue(&run, 1), 0);
    await_begin();
    sem_post(&go); /* closing waits for the segment that runs */
    stop();
}
END_TEST

START_TEST(a_continued_step_advances_before_it_parks)
{
    start(0);
    submit(1, 1, 0);
    await_begin();
    runner_park(&run, 1);
    sem_post(&go);
    for (uint32_t k = 1; k < SEGMENTS; k++) {
        expect(ENGINE_STEP_PARKED, 1, k);
        ck_assert_int_eq(runner_continue(&run, 1), 0);
        ck_assert_int_eq(runner_park(&run, 1), 0); /* at once, before its thread may have woken */
        sem_post(&go);
        await_begin();
    }
    expect(ENGINE_STEP_END, 1, SEGMENTS);
    runner_release(&run, 1);
    stop();
}
END_TEST

START_TEST(drops_confirm_at_the_boundary)
{
    start(0);
    submit(1, 3, 0);
    await_begin();
    ck_assert_int_eq(runner_drop_span(&run, 1, 1), 0);
    expect_nothing();
    next_segment();
    struct engine_completion c = next_done();
    ck_assert_int_eq(c.kind, ENGINE_SPAN_DROPPED);
    ck_assert_uint_eq(c.span, 1);
    ck_assert_int_eq(runner_drop_span(&run, 1, 1), 0); /* dropped already: no second completion */
    ck_assert_int_eq(runner_drop_span(&run, 1, 7), -1);
    runner_park(&run, 1);
    runner_drop_span(&run, 1, 0);
    sem_post(&go);
    expect(ENGINE_SPAN_DROPPED, 1, 2);
    expect(ENGINE_STEP_PARKED, 1, 2);
    runner_drop_span(&run, 1, 2); /* the last one: nothing is left to continue */
    expect(ENGINE_SPAN_DROPPED, 1, 2);
    expect(ENGINE_STEP_END, 1, 2);
    ck_assert_uint_eq(n_ran, 2);
    ck_assert_uint_eq(runner_positions(&run), 3);
    runner_release(&run, 1);
    expect_nothing();
    stop();
}
END_TEST

START_TEST(a_failed_step_ends_and_fails_what_refers_to_it)
{
    start(1);
    fail_step = 1;
    submit(1, 1, 0);
    await_begin();
    ck_assert_int_eq(submit(2, 2, 1), 0); /* its last span refers to step 1 */
    ck_assert_int_eq(submit(3, 1, 0), -1);
    next_segment();
    next_segment();
    sem_post(&go);
    expect(ENGINE_SPAN_DROPPED, 2, 0);
    struct engine_completion c = next_done();
    ck_assert_int_eq(c.kind, ENGINE_STEP_END);
    ck_assert_uint_eq(c.id, 1);
    ck_assert_int_eq(c.status, ENGINE_STEP_FAILED);
    ck_assert_uint_eq(c.segments_done, 3);
    for (uint32_t k = 0; k < SEGMENTS; k++) { /* its other span goes on */
        await_begin();
        sem_post(&go);
    }
    expect(ENGINE_STEP_END, 2, SEGMENTS);
    ck_assert_int_eq(runner_ended(&run, 2)->results[0].id, 21);
    runner_release(&run, 1);
    runner_release(&run, 2);
    stop();
}
END_TEST

START_TEST(a_reference_takes_the_id)
{
    start(1);
    submit(1, 1, 0);
    await_begin();
    ck_assert_int_eq(submit(2, 1, 1), 0);
    ck_assert_int_eq(runner_park(&run, 2), 0); /* queued: parks at once */
    expect(ENGINE_STEP_PARKED, 2, 0);
    ck_assert_int_eq(runner_continue(&run, 2), 0);
    for (uint32_t k = 1; k < SEGMENTS; k++)
        next_segment();
    sem_post(&go);
    expect(ENGINE_STEP_END, 1, SEGMENTS);
    runner_release(&run, 1);
    for (uint32_t k = 0; k < SEGMENTS; k++) {
        await_begin();
        sem_post(&go);
    }
    expect(ENGINE_STEP_END, 2, SEGMENTS);
    ck_assert_int_eq(runner_ended(&run, 2)->results[0].id, 12); /* 10 + 1 (step 1) + 1 (step 2) */
    runner_release(&run, 2);
    ck_assert_int_eq(submit(3, 1, 1), -1); /* the source is gone */
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runner");
    TCase *t = tcase_create("runner");
    tcase_add_test(t, park_takes_the_next_boundary);
    tcase_add_test(t, continue_waits_until_the_park_was_seen);
    tcase_add_test(t, a_continued_step_advances_before_it_parks);
    tcase_add_test(t, drops_confirm_at_the_boundary);
    tcase_add_test(t, a_failed_step_ends_and_fails_what_refers_to_it);
    tcase_add_test(t, a_reference_takes_the_id);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    SRunner *all = srunner_create(s);
    srunner_set_fork_status(all, CK_NOFORK);
    srunner_run_all(all, CK_NORMAL);
    int failed = srunner_ntests_failed(all);
    srunner_free(all);
    return failed != 0;
}
