/* The copy engine with moves and segments that wait for the test's word: order, lanes, fences, checksums,
 * throttle, closing. Nothing here is left to the clock but lower bounds. */
#include "worker/engine/step/copier.h"

#include "base/hash.h"
#include "base/mem.h"

#include <check.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define BLOCKS 32u
#define SLOTS ENGINE_COPIES_MAX /* a slot of its own for each copy that may be live: engine.c sees to that */
#define STRIDE_MAX (20u * 4096u)
#define SEGMENTS 3

static _Alignas(4096) uint8_t blocks[BLOCKS * STRIDE_MAX];
static struct runner run;
static struct copier *cop;
static int fd;
static uint64_t last_id;
static sem_t seg_begun, seg_go;
static struct copier_config cfg;
static struct engine_completion ends[256]; /* of copies, in the order they came */
static uint32_t n_ends, n_step_ends, n_parked;

/* Moves that wait: the block or host slot whose copy begins is told by its address. */
static sem_t begun[BLOCKS], go[BLOCKS];
static _Atomic uint32_t n_begun;
static _Atomic bool step_over;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void await(sem_t *s)
{
    while (sem_wait(s) != 0) {
    }
}

static void gated_move(void *to, const void *from, size_t n)
{
    uint32_t b = (uint32_t)(((const uint8_t *)from - blocks) / cfg.stride);
    atomic_fetch_add(&n_begun, 1);
    sem_post(&begun[b]);
    await(&go[b]);
    memcpy(to, from, n);
}

static uint32_t segments(void *b, const struct plan *p)
{
    (void)b;
    (void)p;
    return SEGMENTS;
}

static int segment(void *b, struct step_slot *s, uint32_t k)
{
    (void)b;
    (void)s;
    sem_post(&seg_begun);
    await(&seg_go);
    atomic_store(&step_over, k + 1 == SEGMENTS);
    return 0;
}

static void step_ended(void *b)
{
    (void)b;
    if (cop != NULL)
        copier_step_ended(cop);
}

static const struct runner_ops ops = {.segments = segments, .segment = segment, .step_ended = step_ended};

/* `c` says stride, throttle and so on; the rest is filled in. */
static void start(const struct copier_config *c)
{
    struct plan_caps caps = {.max_spans = 2, .max_tokens = 4, .max_rows = 1, .n_ctx = 64,
                             .n_vocab = 100, .block_tokens = 16};
    fd = eventfd(0, EFD_NONBLOCK);
    sem_init(&seg_begun, 0, 0);
    sem_init(&seg_go, 0, 0);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        sem_init(&begun[i], 0, 0);
        sem_init(&go[i], 0, 0);
    }
    n_ends = n_step_ends = n_parked = 0;
    atomic_store(&n_begun, 0);
    atomic_store(&step_over, false);
    ck_assert_int_eq(runner_init(&run, &ops, NULL, fd, &caps, 0, NULL), 0);
    cfg = *c;
    cfg.blocks = blocks;
    cfg.host_slots = SLOTS;
    cfg.runner = &run;
    cfg.fd = fd;
    for (size_t i = 0; i < BLOCKS * cfg.stride; i += 8) {
        uint64_t x = rand_at(cfg.stride, i);
        memcpy(blocks + i, &x, 8);
    }
    ck_assert_int_eq(copier_create(&cop, &cfg, NULL), 0);
    ck_assert_int_eq(runner_start(&run, NULL), 0);
}

static void stop(void)
{
    for (int i = 0; i < SEGMENTS; i++)
        sem_post(&seg_go);
    for (uint32_t i = 0; i < BLOCKS; i++)
        for (int k = 0; k < 4; k++)
            sem_post(&go[i]);
    runner_stop(&run);
    copier_destroy(&cop);
    ck_assert_ptr_null(cop);
    runner_deinit(&run);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        sem_destroy(&begun[i]);
        sem_destroy(&go[i]);
    }
    sem_destroy(&seg_begun);
    sem_destroy(&seg_go);
    close(fd);
}

static uint64_t submit(int kind, uint32_t from, uint32_t to, uint8_t priority, uint64_t after)
{
    struct engine_copy c = {.id = ++last_id, .from = from, .to = to, .priority = priority, .after_step = after};
    c.kind = kind;
    ck_assert_int_eq(copier_submit(cop, &c), 0);
    return c.id;
}

static uint64_t out(uint32_t block, uint8_t priority, uint64_t after)
{
    return submit(ENGINE_COPY_BLOCK_TO_HOST, block, block, priority, after);
}

/* One poll, after a wait for the descriptor of at most `ms`. */
static int pump(int ms, int max)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct engine_completion got[64];
    if (poll(&p, 1, ms) <= 0)
        return 0;
    int n = copier_poll(cop, got, max);
    for (int i = 0; i < n; i++) {
        n_step_ends += got[i].kind == ENGINE_STEP_END;
        n_parked += got[i].kind == ENGINE_STEP_PARKED;
        if (got[i].kind == ENGINE_COPY_END)
            ends[n_ends++ % 256] = got[i];
    }
    return n;
}

static void await_ends(uint32_t n)
{
    uint64_t limit = now_ns() + 120000000000u;
    while (n_ends < n) {
        ck_assert_uint_lt(now_ns(), limit);
        pump(1000, 64);
    }
}

/* Runs one copy alone and returns how it ended. */
static struct engine_completion one(int kind, uint32_t from, uint32_t to)
{
    uint64_t id = submit(kind, from, to, 0, 0);
    uint32_t n = n_ends;
    await_ends(n + 1);
    ck_assert_uint_eq(ends[n % 256].id, id);
    return ends[n % 256];
}

/* ---- order ---- */

START_TEST(order_within_a_priority)
{
    struct copier_config c = {.stride = 4096, .move = gated_move, .no_checksum = true};
    start(&c);
    uint8_t priority = (uint8_t)_i;
    for (uint32_t b = 1; b <= 20; b++)
        out(b, priority, 0);
    for (uint32_t b = 1; b <= 20; b++) {
        await(&begun[b]);
        ck_assert_uint_eq(atomic_load(&n_begun), b); /* one at a time */
        sem_post(&go[b]);
    }
    await_ends(20);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert_uint_eq(ends[i].id, last_id - 19 + i);
    stop();
}
END_TEST

START_TEST(priority_0_first)
{
    struct copier_config c = {.stride = 4096, .move = gated_move, .no_checksum = true};
    start(&c);
    out(1, 1, 0);
    await(&begun[1]);
    out(2, 0, 0); /* its own thread takes it, though the other is held */
    await(&begun[2]);
    out(3, 0, 0);
    out(4, 1, 0);
    sem_post(&go[1]);
    await_ends(1);
    pump(20, 64);
    ck_assert_int_ne(sem_trywait(&begun[4]), 0); /* block 3 waits: 4 must not begin */
    sem_post(&go[2]);
    await(&begun[3]);
    await(&begun[4]); /* nothing of priority 0 waits any more */
    sem_post(&go[3]);
    sem_post(&go[4]);
    await_ends(4);
    stop();
}
END_TEST

/* ---- fences ---- */

static void submit_step(uint64_t id)
{
    static const uint32_t block[1] = {1};
    static const int32_t ids[1] = {1};
    struct engine_span span = {.seq = id, .ids = ids, .n = 1, .blocks = block, .n_blocks = 1};
    struct engine_step step = {.id = id, .spans = &span, .n_spans = 1};
    ck_assert_int_eq(runner_submit(&run, &step), 0);
}

/* A copy behind a step that runs, is parked and continued; one submitted later, without a fence,
 * passes it. */
START_TEST(fence_waits_for_the_end)
{
    struct copier_config c = {.stride = 4096, .move = gated_move, .no_checksum = true};
    start(&c);
    uint8_t priority = (uint8_t)_i;
    submit_step(7);
    await(&seg_begun);
    out(1, priority, 7);
    out(2, priority, 0);
    out(3, priority, 99); /* a step that is not live has ended */
    out(4, 1, 0); /* and what waits behind a fence does not hold up the lower priority */
    for (uint32_t b = 2; b <= 4; b++)
        sem_post(&go[b]);
    await_ends(3);
    ck_assert_int_eq(runner_park(&run, 7), 0);
    sem_post(&seg_go);
    while (n_parked == 0)
        pump(1000, 64);
    ck_assert_uint_eq(n_ends, 3);
    pump(20, 64);
    ck_assert_int_ne(sem_trywait(&begun[1]), 0);
    ck_assert_int_eq(runner_continue(&run, 7), 0);
    sem_post(&seg_go);
    pump(20, 64);
    ck_assert_int_ne(sem_trywait(&begun[1]), 0);
    sem_post(&seg_go);
    await(&begun[1]);
    ck_assert(atomic_load(&step_over));
    sem_post(&go[1]);
    await_ends(4);
    while (n_step_ends == 0)
        pump(1000, 64);
    runner_release(&run, 7);
    stop();
}
END_TEST

START_TEST(a_dropped_step_opens_its_fence)
{
    struct copier_config c = {.stride = 4096};
    start(&c);
    submit_step(8);
    await(&seg_begun);
    out(1, (uint8_t)_i, 8);
    ck_assert_int_eq(runner_drop_span(&run, 8, 0), 0);
    sem_post(&seg_go);
    await_ends(1);
    while (n_step_ends == 0)
        pump(1000, 64);
    runner_release(&run, 8);
    stop();
}
END_TEST

/* ---- bytes and checksums ---- */

START_TEST(bytes_arrive)
{
    static const size_t strides[] = {4096, 3 * 4096, 4 * 4096, 17 * 4096, STRIDE_MAX};
    for (size_t k = 0; k < 5; k++)
        for (int sums = 0; sums < 2; sums++) {
            struct copier_config c = {.stride = strides[k], .no_checksum = sums == 0};
            start(&c);
            static uint8_t want[STRIDE_MAX];
            memcpy(want, blocks + 3 * c.stride, c.stride);
            ck_assert_int_eq(one(ENGINE_COPY_BLOCK_TO_HOST, 3, SLOTS - 1).status, ENGINE_STEP_OK);
            ck_assert_mem_eq(copier_host(cop, SLOTS - 1), want, c.stride);
            ck_assert_int_eq(one(ENGINE_COPY_HOST_TO_BLOCK, SLOTS - 1, 9).status, ENGINE_STEP_OK);
            ck_assert_mem_eq(blocks + 9 * c.stride, want, c.stride);
            ck_assert_int_eq(one(ENGINE_COPY_BLOCK_TO_BLOCK, 9, 10).status, ENGINE_STEP_OK);
            ck_assert_mem_eq(blocks + 10 * c.stride, want, c.stride);
            ck_assert_mem_eq(blocks + 3 * c.stride, want, c.stride);
            ck_assert_mem_ne(blocks + 11 * c.stride, want, c.stride);
            ck_assert_ptr_null(copier_host(cop, SLOTS));
            stop();
        }
}
END_TEST

START_TEST(every_flipped_bit_is_seen)
{
    struct copier_config c = {.stride = 5 * 4096};
    start(&c);
    uint64_t seed = 20260101;
    printf("flips: seed %llu\n", (unsigned long long)seed);
    ck_assert_int_eq(one(ENGINE_COPY_HOST_TO_BLOCK, 1, 30).status, ENGINE_COPY_CORRUPT); /* never stored */
    for (uint32_t s = 0; s < SLOTS; s++)
        ck_assert_int_eq(one(ENGINE_COPY_BLOCK_TO_HOST, s % 30, s).status, ENGINE_STEP_OK);
    uint32_t seen = 0, fine = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t slot = (uint32_t)(rand_at(seed, 2 * i) % SLOTS);
        uint64_t bit = rand_at(seed, 2 * i + 1) % (c.stride * 8);
        uint8_t *p = (uint8_t *)copier_host(cop, slot) + bit / 8;
        *p ^= (uint8_t)(1u << bit % 8);
        seen += one(ENGINE_COPY_HOST_TO_BLOCK, slot, 30).status == ENGINE_COPY_CORRUPT;
        *p ^= (uint8_t)(1u << bit % 8);
        fine += one(ENGINE_COPY_HOST_TO_BLOCK, slot, 31).status == ENGINE_STEP_OK;
    }
    ck_assert_uint_eq(seen, 1000);
    ck_assert_uint_eq(fine, 1000);
    stop();
}
END_TEST

/* Stored anew, a slot has a new sum; without checksums a flip passes. */
START_TEST(sums_belong_to_the_last_store)
{
    for (int sums = 0; sums < 2; sums++) {
        struct copier_config c = {.stride = 4096, .no_checksum = sums == 0};
        start(&c);
        one(ENGINE_COPY_BLOCK_TO_HOST, 1, 5);
        one(ENGINE_COPY_BLOCK_TO_HOST, 2, 5);
        ck_assert_int_eq(one(ENGINE_COPY_HOST_TO_BLOCK, 5, 6).status, ENGINE_STEP_OK);
        memcpy(copier_host(cop, 5), blocks + c.stride, c.stride); /* the bytes of the first store */
        ck_assert_int_eq(one(ENGINE_COPY_HOST_TO_BLOCK, 5, 6).status,
                         sums ? ENGINE_COPY_CORRUPT : ENGINE_STEP_OK);
        stop();
    }
}
END_TEST

/* ---- throttle, limits, closing ---- */

START_TEST(throttle_takes_its_time)
{
    struct copier_config c = {.stride = 4 * 4096, .gb_s = 16384e-9 / 2e-3, .block_ns = (uint64_t)_i * 1000000u};
    start(&c);
    uint64_t each = 2000000u + c.block_ns, t0 = now_ns();
    for (uint32_t b = 0; b < 20; b++)
        out(b, b % 2 == 0, 0); /* both lanes share the link */
    await_ends(20);
    ck_assert_uint_ge(now_ns() - t0 + 20, 20 * each);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert_uint_ge(ends[i].device_ns + 1, each);
    for (uint32_t b = 0; b < 20; b++)
        ck_assert_mem_eq(copier_host(cop, b), blocks + b * c.stride, c.stride);
    stop();
}
END_TEST

START_TEST(bounded_and_polled_piecewise)
{
    struct copier_config c = {.stride = 4096};
    start(&c);
    for (int round = 0; round < 50; round++) {
        uint32_t want = n_ends + ENGINE_COPIES_MAX;
        for (uint32_t i = 0; i < ENGINE_COPIES_MAX; i++)
            submit(ENGINE_COPY_BLOCK_TO_HOST, i % BLOCKS, i % SLOTS, i % 3 == 0, 0);
        struct engine_copy more = {.id = 1u << 30, .priority = 1};
        ck_assert_int_eq(copier_submit(cop, &more), -1); /* ended or not: none was polled */
        while (n_ends < want) {
            /* Readable for as long as one waits; without cause at most as often in a row as copier.h says. */
            int idle = 0;
            while (pump(60000, 1 + round % 7) == 0)
                ck_assert_int_le(++idle, 3);
        }
        ck_assert_uint_eq(n_ends, want);
    }
    stop();
}
END_TEST

static void counted_move(void *to, const void *from, size_t n)
{
    atomic_fetch_add(&n_begun, 1);
    memcpy(to, from, n);
}

START_TEST(closing_drops_what_waits)
{
    struct copier_config c = {.stride = 4096, .gb_s = 4096e-9 / 1000.0, .move = counted_move};
    start(&c); /* a block takes 1,000 seconds */
    submit_step(3);
    await(&seg_begun);
    for (uint32_t i = 0; i < ENGINE_COPIES_MAX; i++)
        out(i % BLOCKS, i % 2 == 0, i % 5 == 0 ? 3 : 0);
    stop();
    ck_assert_uint_le(atomic_load(&n_begun), 2); /* the running one of each lane */
}
END_TEST

START_TEST(no_memory)
{
    struct copier_config c = {.stride = 4096};
    start(&c);
    struct err e;
    for (uint64_t n = 1; n <= 4; n++) {
        struct copier *other;
        mem_fail_nth(n);
        err_clear(&e);
        ck_assert_int_eq(copier_create(&other, &cfg, &e), -1);
        ck_assert_int_eq(e.code, ERR_NO_MEMORY);
        ck_assert_ptr_null(other);
    }
    mem_fail_nth(0);
    stop();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("copier");
    TCase *t = tcase_create("copier");
    tcase_add_loop_test(t, order_within_a_priority, 0, 2);
    tcase_add_test(t, priority_0_first);
    tcase_add_loop_test(t, fence_waits_for_the_end, 0, 2);
    tcase_add_loop_test(t, a_dropped_step_opens_its_fence, 0, 2);
    tcase_add_test(t, bytes_arrive);
    tcase_add_test(t, every_flipped_bit_is_seen);
    tcase_add_test(t, sums_belong_to_the_last_store);
    tcase_add_loop_test(t, throttle_takes_its_time, 0, 2);
    tcase_add_test(t, bounded_and_polled_piecewise);
    tcase_add_test(t, closing_drops_what_waits);
    tcase_add_test(t, no_memory);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
