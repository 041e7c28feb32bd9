/* Copies through engine.h, both backends, with and without chaos: what is refused, and that sequences
 * whose blocks wander through the host tier go on with the ids they make alone. */
#include "tests/common/testpaths.h"
#include "tests/unit/worker/engine/engine_rig.h"
#include "worker/engine/cpu/copy_stream.h"

#include <check.h>
#include <string.h>

#define SLOTS 64u
#define SEQS 4u
#define N_NEW 24

static struct rig rig;
static struct rig_step st;
static struct rig_seq want[SEQS], seqs[SEQS];
static uint64_t last_copy, seed = 5, draws;

struct backend_case {
    const char *name;
    enum engine_kv_type kv;
    uint64_t chaos;
};
static const struct backend_case cases[] = {{"null", ENGINE_KV_F16, 0}, {"null", ENGINE_KV_F16, 9},
                                            {"cpu", ENGINE_KV_F16, 0},  {"cpu", ENGINE_KV_F16, 10},
                                            {"cpu", ENGINE_KV_INT8, 11}};
#define N_CASES (int)(sizeof cases / sizeof cases[0])

static void open_case(int i, struct engine_config more)
{
    struct engine_config cfg = rig_config(cases[i].name);
    bool cpu = strcmp(cases[i].name, "cpu") == 0;
    cfg.kv_type = cases[i].kv;
    cfg.chaos_seed = cases[i].chaos;
    cfg.host_slots = SLOTS;
    cfg.copy_gb_s = more.copy_gb_s;
    cfg.null_copy_ns = more.null_copy_ns;
    cfg.null_step_ns = more.null_step_ns;
    cfg.null_segments = more.null_segments;
    rig_open(&rig, cpu ? test_tiny_path() : NULL, &cfg);
    ck_assert(rig.limits->copies);
    ck_assert_uint_eq(rig.limits->host_slots, SLOTS);
}

static uint64_t draw(uint64_t below)
{
    return rand_at(seed, draws++) % below;
}

static int try_copy(int kind, uint32_t from, uint32_t to, uint8_t priority, uint64_t after)
{
    struct engine_copy c = {
        .id = ++last_copy, .from = from, .to = to, .priority = priority, .after_step = after};
    c.kind = kind;
    return engine_copy_submit(rig.eng, &c);
}

static enum engine_step_status copy_now(int kind, uint32_t from, uint32_t to)
{
    ck_assert_int_eq(try_copy(kind, from, to, (uint8_t)draw(2), 0), 0);
    return rig_await(&rig, ENGINE_COPY_END, last_copy)->status;
}

/* ---- what is refused ---- */

START_TEST(none_without_a_host_tier)
{
    struct engine_config cfg = rig_config("null");
    rig_open(&rig, NULL, &cfg);
    ck_assert(!rig.limits->copies);
    ck_assert_uint_eq(rig.limits->host_slots, 0);
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_BLOCK, 1, 2, 0, 0), -1);
    ck_assert_ptr_null(engine_host_bytes(rig.eng, 0));
    rig_close(&rig);
}
END_TEST

START_TEST(bad_arguments)
{
    open_case(0, (struct engine_config){0});
    uint32_t n = rig.limits->n_blocks;
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, n, 0, 0, 0), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, 1, SLOTS, 0, 0), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_HOST_TO_BLOCK, SLOTS, 1, 0, 0), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_HOST_TO_BLOCK, 0, n, 0, 0), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_HOST_TO_BLOCK, 0, 0, 0, 0), -1); /* the trash block */
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, 0, 0, 0, 0), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_BLOCK, 3, 3, 0, 0), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_BLOCK, 3, 4, 2, 0), -1);
    ck_assert_int_eq(try_copy(3, 3, 4, 1, 0), -1);
    struct engine_copy c = {.from = 1, .to = 2};
    ck_assert_int_eq(engine_copy_submit(rig.eng, &c), -1); /* no id */
    ck_assert_ptr_null(engine_host_bytes(rig.eng, SLOTS));
    rig_close(&rig);
    struct engine_config cfg = rig_config("null");
    struct engine *eng;
    struct model m = {.hp = {.n_layers = 1, .n_vocab = 300, .n_ctx = 64}};
    cfg.model = &m;
    cfg.copy_gb_s = -1;
    struct err e;
    ck_assert_int_eq(engine_open(&eng, &cfg, &e), -1);
    ck_assert_int_eq(e.code, ERR_BAD_VALUE);
}
END_TEST

/* While a copy is live nothing else may touch its ends; a chaos layer that holds its end back makes
 * that longer, never shorter. */
START_TEST(ends_are_held)
{
    open_case(_i, (struct engine_config){.null_copy_ns = 5000000, .copy_gb_s = 0.001});
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, 1, 7, 1, 0), 0);
    uint64_t first = last_copy;
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, 2, 7, 1, 0), -1); /* same slot */
    ck_assert_int_eq(try_copy(ENGINE_COPY_HOST_TO_BLOCK, 7, 3, 0, 0), -1); /* not stored yet */
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_BLOCK, 3, 1, 0, 0), -1); /* over its source */
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_BLOCK, 1, 4, 1, 0), 0); /* read by two: fine */
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_BLOCK, 4, 5, 0, 0), -1); /* not there yet */
    struct engine_copy twin = {.id = first, .kind = ENGINE_COPY_BLOCK_TO_HOST, .from = 9, .to = 9};
    ck_assert_int_eq(engine_copy_submit(rig.eng, &twin), -1); /* the id is live */
    for (uint32_t b = 1; b <= 4; b += 3) { /* a step that writes the source or the target */
        rig_seq_random(&rig, &seqs[0], 3, 10);
        rig_step_init(&rig, &st);
        rig_span(&rig, &st, &seqs[0], 5);
        seqs[0].blocks[0] = b;
        ck_assert_int_eq(engine_step_submit(rig.eng, &st.step), -1);
    }
    rig_await(&rig, ENGINE_COPY_END, first);
    rig_await(&rig, ENGINE_COPY_END, first + 4);
    ck_assert_int_eq(try_copy(ENGINE_COPY_HOST_TO_BLOCK, 7, 3, 0, 0), 0);
    ck_assert_int_eq(engine_step_submit(rig.eng, &st.step), 0);
    rig_end(&rig, &st);
    rig_await(&rig, ENGINE_COPY_END, last_copy);
    rig_close(&rig);
}
END_TEST

START_TEST(a_source_in_use_needs_its_fence)
{
    open_case(_i, (struct engine_config){.null_step_ns = 20000000, .null_segments = 10});
    rig_seq_random(&rig, &seqs[0], 3, 30);
    rig_step_init(&rig, &st);
    rig_row(&st, rig_span(&rig, &st, &seqs[0], 30), 29, ENGINE_ROW_SAMPLE);
    rig_submit(&rig, &st);
    uint32_t b = seqs[0].blocks[0];
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, b, 0, 1, 0), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, b, 0, 1, st.step.id + 1), -1);
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, b, 0, 1, st.step.id), 0);
    uint64_t id = last_copy;
    rig_await(&rig, ENGINE_COPY_END, id);
    rig_end(&rig, &st);
    const void *bytes = engine_block_bytes(rig.eng, b);
    ck_assert_mem_eq(engine_host_bytes(rig.eng, 0), bytes, rig.limits->block_stride);
    ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, b, 1, 1, 0), 0); /* ended: no fence */
    rig_await(&rig, ENGINE_COPY_END, last_copy);
    rig_release(&rig, &st);
    rig_close(&rig);
}
END_TEST

/* ---- bytes ---- */

START_TEST(a_flipped_bit_is_told)
{
    open_case(_i, (struct engine_config){0});
    for (uint32_t s = 0; s < SLOTS; s++)
        ck_assert_int_eq(copy_now(ENGINE_COPY_BLOCK_TO_HOST, 1 + s, s), ENGINE_STEP_OK);
    for (int i = 0; i < 100; i++) {
        uint32_t slot = (uint32_t)draw(SLOTS);
        uint64_t bit = draw(rig.limits->block_stride * 8);
        uint8_t *p = (uint8_t *)engine_host_bytes(rig.eng, slot) + bit / 8;
        *p ^= (uint8_t)(1u << bit % 8);
        ck_assert_int_eq(copy_now(ENGINE_COPY_HOST_TO_BLOCK, slot, 200), ENGINE_COPY_CORRUPT);
        *p ^= (uint8_t)(1u << bit % 8);
        ck_assert_int_eq(copy_now(ENGINE_COPY_HOST_TO_BLOCK, slot, 201), ENGINE_STEP_OK);
    }
    rig_close(&rig);
}
END_TEST

/* Swaps out all blocks of `q`, gives them back and swaps in to others; some go by another block. */
static void wander(struct rig_seq *q)
{
    uint32_t n = q->n_blocks;
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, q->blocks[i], i, (uint8_t)draw(2), 0), 0);
    for (uint32_t i = 0; i < n; i++)
        rig_await(&rig, ENGINE_COPY_END, last_copy - i);
    uint32_t done = q->n_done;
    rig_seq_free(&rig, q);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (uint32_t)draw(rig.n_free), b = rig.free_blocks[k];
        rig.free_blocks[k] = rig.free_blocks[--rig.n_free];
        ck_assert_int_eq(try_copy(ENGINE_COPY_HOST_TO_BLOCK, i, b, (uint8_t)draw(2), 0), 0);
        q->blocks[i] = b;
    }
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(rig_await(&rig, ENGINE_COPY_END, last_copy - i)->status, ENGINE_STEP_OK);
    q->n_blocks = n;
    q->n_done = done;
    if (draw(2) == 0) {
        uint32_t last = q->blocks[n - 1], b = rig.free_blocks[rig.n_free - 1];
        ck_assert_int_eq(copy_now(ENGINE_COPY_BLOCK_TO_BLOCK, last, b), ENGINE_STEP_OK);
        rig.free_blocks[rig.n_free - 1] = last;
        q->blocks[n - 1] = b;
    }
}

/* One sequence runs a step while the blocks of another wander. */
START_TEST(wandering_blocks_change_nothing)
{
    open_case(_i, (struct engine_config){.null_copy_ns = 1000});
    for (uint32_t i = 0; i < SEQS; i++) {
        rig_seq_random(&rig, &want[i], 30 + i, 20 + 40 * i);
        rig_generate(&rig, &want[i], N_NEW, 64, i % 2 ? 0.9f : 0, 50 + i, false);
        rig_seq_free(&rig, &want[i]);
        rig_seq_random(&rig, &seqs[i], 30 + i, 20 + 40 * i);
    }
    for (uint32_t round = 0; round < N_NEW; round++)
        for (uint32_t i = 0; i < SEQS; i++) {
            struct rig_seq *q = &seqs[i], *other = &seqs[(i + 1 + draw(SEQS - 1)) % SEQS];
            uint32_t n = q->n_ids - q->n_done;
            rig_step_init(&rig, &st);
            rig_row(&st, rig_span(&rig, &st, q, n), n - 1, ENGINE_ROW_SAMPLE)->params =
                rig_params(i % 2 ? 0.9f : 0, 50 + i, q->n_ids);
            rig_submit(&rig, &st);
            if (other->n_blocks > 0)
                wander(other);
            rig_end(&rig, &st);
            q->ids[q->n_ids++] = engine_step_result(rig.eng, st.step.id, 0)->id;
            rig_release(&rig, &st);
        }
    for (uint32_t i = 0; i < SEQS; i++) {
        ck_assert_uint_eq(seqs[i].n_ids, want[i].n_ids);
        ck_assert_mem_eq(seqs[i].ids, want[i].ids, want[i].n_ids * sizeof(int32_t));
    }
    rig_close(&rig);
}
END_TEST

/* Closed with copies in every state: running, waiting, fenced, ended unseen. */
START_TEST(closing)
{
    for (int k = 0; k < 3; k++) {
        open_case(_i, (struct engine_config){.null_copy_ns = k == 1 ? 60000000000u : 0,
                                             .null_step_ns = 30000000,
                                             .null_segments = 10});
        rig_seq_random(&rig, &seqs[0], 3, 30);
        rig_step_init(&rig, &st);
        rig_span(&rig, &st, &seqs[0], 30);
        if (k == 2)
            rig_submit(&rig, &st);
        for (uint32_t i = 0; i < ENGINE_COPIES_MAX; i++)
            ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_HOST, 100 + i, i, i % 2,
                                      k == 2 && i % 3 == 0 ? st.step.id : 0), 0);
        ck_assert_int_eq(try_copy(ENGINE_COPY_BLOCK_TO_BLOCK, 300, 301, 0, 0), -1); /* full */
        rig_close(&rig);
    }
}
END_TEST

START_TEST(streaming_copy)
{
    static _Alignas(64) uint8_t from[70 * 1024], to[70 * 1024], before[70 * 1024];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)rand_at(8, i);
    for (size_t n = 0; n <= 68 * 1024; n += n < 1024 ? 64 : 64 * (1 + draw(40))) {
        memset(to, 0xA5, sizeof to);
        memset(before, 0xA5, sizeof before);
        copy_stream(to + 64, from + 128, n);
        copy_stream_drain();
        memcpy(before + 64, from + 128, n);
        ck_assert_mem_eq(to, before, sizeof to);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine copies");
    TCase *t = tcase_create("copies");
    tcase_add_test(t, none_without_a_host_tier);
    tcase_add_test(t, bad_arguments);
    tcase_add_loop_test(t, ends_are_held, 0, N_CASES);
    tcase_add_loop_test(t, a_source_in_use_needs_its_fence, 0, N_CASES);
    tcase_add_loop_test(t, a_flipped_bit_is_told, 0, N_CASES);
    tcase_add_loop_test(t, wandering_blocks_change_nothing, 0, N_CASES);
    tcase_add_loop_test(t, closing, 0, N_CASES);
    tcase_add_test(t, streaming_copy);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
