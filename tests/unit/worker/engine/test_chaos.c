/* The chaos layer alone: nothing lost, nothing twice, a step's end last, a wakeup for all that is
 * held. */
#include "worker/engine/chaos.h"

#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STEPS 40
#define PER_STEP 4 /* dropped, dropped, parked, end */
#define TOTAL (STEPS * PER_STEP)

static struct engine_completion item(uint32_t i)
{
    enum engine_completion_kind kinds[PER_STEP] = {
        ENGINE_SPAN_DROPPED,
        ENGINE_STEP_PARKED,
        ENGINE_SPAN_DROPPED,
        ENGINE_STEP_END,
    };
    return (struct engine_completion){
        .kind = kinds[i % PER_STEP], .id = 1 + i / PER_STEP, .span = i};
}

/* Takes all, waiting on the descriptor only; the order in which they came, by `span`. */
static uint32_t take_all(struct chaos *c, uint32_t *order, uint32_t want, uint32_t *polls)
{
    uint32_t n = 0;
    for (*polls = 0; n < want; ++*polls) {
        struct pollfd p = {.fd = chaos_fd(c), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 60000), 1); /* a lost wakeup would wait here */
        struct engine_completion out[3];
        int got = chaos_take(c, out, 3);
        for (int i = 0; i < got; i++) {
            ck_assert_uint_lt(n, want);
            order[n++] = out[i].span;
        }
    }
    return n;
}

static void run(uint64_t seed, uint32_t *order, uint32_t *polls)
{
    struct chaos *c;
    int fd = eventfd(0, EFD_NONBLOCK);
    ck_assert_int_eq(chaos_create(&c, seed, TOTAL, fd, NULL), 0);
    ck_assert_uint_eq(chaos_room(c), TOTAL);
    struct pollfd p = {.fd = chaos_fd(c), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 0), 0);
    uint64_t one = 1;
    ck_assert_int_eq(write(fd, &one, 8), 8); /* the backend's side wakes the same descriptor */
    ck_assert_int_eq(poll(&p, 1, 60000), 1);
    ck_assert_int_eq(read(fd, &one, 8), 8);
    for (uint32_t i = 0; i < TOTAL; i++) {
        struct engine_completion done = item(i);
        chaos_push(c, &done);
    }
    ck_assert_uint_eq(chaos_room(c), 0);
    struct engine_completion none;
    chaos_take(c, &none, 0); /* the owner's poll that pulled them arms the timer */
    take_all(c, order, TOTAL, polls);
    ck_assert_uint_eq(chaos_room(c), TOTAL);
    ck_assert_int_eq(chaos_take(c, &none, 1), 0);
    ck_assert_int_eq(poll(&p, 1, 20), 0); /* empty: the timer is off */
    chaos_destroy(&c);
    ck_assert_ptr_null(c);
    close(fd);
}

START_TEST(keeps_its_promises)
{
    uint32_t order[TOTAL], seen[TOTAL] = {0}, polls, at[TOTAL], moved = 0;
    run(1 + (uint64_t)_i, order, &polls);
    for (uint32_t k = 0; k < TOTAL; k++) {
        seen[order[k]]++;
        at[order[k]] = k;
        moved += order[k] != k;
    }
    for (uint32_t i = 0; i < TOTAL; i++)
        ck_assert_uint_eq(seen[i], 1);
    for (uint32_t i = 0; i < TOTAL; i++)
        ck_assert_uint_le(at[i], at[i / PER_STEP * PER_STEP + PER_STEP - 1]); /* the end is last */
    ck_assert_uint_gt(moved, TOTAL / 2);
    ck_assert_uint_ge(polls, TOTAL / 3);
}
END_TEST

START_TEST(seed_decides)
{
    uint32_t a[TOTAL], b[TOTAL], c[TOTAL], polls;
    run(5, a, &polls);
    run(5, b, &polls);
    run(6, c, &polls);
    ck_assert_mem_eq(a, b, sizeof a);
    ck_assert_mem_ne(a, c, sizeof a);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("chaos");
    TCase *t = tcase_create("chaos");
    tcase_add_loop_test(t, keeps_its_promises, 0, 5);
    tcase_add_test(t, seed_decides);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    SRunner *run_all = srunner_create(s);
    srunner_set_fork_status(run_all, CK_NOFORK);
    srunner_run_all(run_all, CK_NORMAL);
    int failed = srunner_ntests_failed(run_all);
    srunner_free(run_all);
    return failed != 0;
}
