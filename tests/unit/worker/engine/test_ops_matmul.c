/* Packing and products: the twins by memcmp whatever the tile, and against a double reference. */
#include "tests/unit/worker/engine/ops_testing.h"

#include "base/mem.h"
#include "worker/engine/cpu/cpu_math.h"
#include "worker/engine/cpu/f16.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 70   /* more than one batch of 64 */
#define COLS 1600   /* more than two chunks of a panel */
#define ROWS 80

static struct rnd rnd = {.seed = 23};
static float x[TOKENS * COLS], a[TOKENS * ROWS], b[TOKENS * ROWS];
static struct act_block act[TOKENS * ACT_BLOCKS(COLS)];

static const enum gguf_type types[] = {GGUF_Q4_1, GGUF_Q8_0, GGUF_F32,
                                       GGUF_Q4_0, GGUF_F16,  GGUF_BF16};
#define TYPES 6

struct fixture {
    struct gguf_tensor t;
    struct packed_matrix m;
};

static void fixture_make(struct fixture *f, enum gguf_type type, uint32_t rows, uint32_t cols) {
    tensor_make(&f->t, &rnd, type, rows, cols);
    matrix_make(&f->m, &f->t);
}

static void fixture_drop(struct fixture *f) {
    mem_free(f->m.data);
    mem_free((void *)(uintptr_t)f->t.data);
}

static void make_acts(uint32_t n_tokens, uint32_t cols, bool odd) {
    rnd_fill(&rnd, x, n_tokens * cols, 2, odd);
    for (uint32_t t = 0; t < n_tokens; t++)
        cpu_ops_scalar.quantise(act + t * ACT_BLOCKS(cols), x + t * cols, cols);
}

static uint32_t random_cols(enum gguf_type type, uint32_t max) {
    return gguf_type_bytes(type, 1) > 0 ? 1 + rnd_below(&rnd, max) : 32 * (1 + rnd_below(&rnd, max / 32));
}

START_TEST(rows_come_back) {
    for (int round = 0; round < 60; round++) {
        enum gguf_type type = types[round % TYPES];
        uint32_t rows = 1 + rnd_below(&rnd, 50), cols = random_cols(type, 200);
        struct fixture f;
        fixture_make(&f, type, rows, cols);
        for (uint32_t r = 0; r < rows; r++) {
            packed_matrix_row(&f.m, r, a);
            for (uint32_t c = 0; c < cols; c++)
                ck_assert(fabs(a[c] - tensor_at(&f.t, r, c)) <= 1.2e-7 * fabs((double)a[c]) + 1e-9);
        }
        fixture_drop(&f);
    }
}
END_TEST

START_TEST(twins_equal_for_all_token_counts) {
    for (int kind = 0; kind < TYPES; kind++) {
        for (uint32_t n = 1; n <= 33; n++) {
            uint32_t rows = 1 + rnd_below(&rnd, ROWS), cols = random_cols(types[kind], 1024);
            struct fixture f;
            fixture_make(&f, types[kind], rows, cols);
            make_acts(n, cols, n % 2);
            rnd_fill(&rnd, a, n * ROWS, 1, true);
            memcpy(b, a, sizeof a);
            bool add = n % 3 == 0;
            cpu_ops_scalar.matmul(&f.m, 0, f.m.n_groups, act, n, a, ROWS, add);
            ops_twin()->matmul(&f.m, 0, f.m.n_groups, act, n, b, ROWS, add);
            ck_assert_mem_eq(a, b, sizeof a); /* the gaps behind the rows are untouched as well */
            fixture_drop(&f);
        }
    }
}
END_TEST

/* Every remainder of a row group, both sides of each kernel's change of path, one block and a few,
 * stored and added. */
START_TEST(twins_equal_at_the_edges) {
    static const uint32_t tokens[] = {1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 17};
    for (int kind = 0; kind < TYPES; kind++) {
        for (uint32_t rows = 1; rows <= 34; rows++) {
            uint32_t blocks = 1 + rows % 3, cols = 32 * blocks;
            struct fixture f;
            fixture_make(&f, types[kind], rows, cols);
            for (uint32_t add = 0; add < 2; add++) {
                uint32_t n = tokens[(rows + 5 * add) % 11];
                make_acts(n, cols, add != 0);
                rnd_fill(&rnd, a, n * ROWS, 1, true);
                memcpy(b, a, sizeof a);
                cpu_ops_scalar.matmul(&f.m, 0, f.m.n_groups, act, n, a, ROWS, add != 0);
                ops_twin()->matmul(&f.m, 0, f.m.n_groups, act, n, b, ROWS, add != 0);
                ck_assert_mem_eq(a, b, sizeof a);
            }
            fixture_drop(&f);
        }
    }
}
END_TEST

/* The same bytes whether tokens come alone or 70 at a time, groups one by one or all at once. */
START_TEST(results_do_not_depend_on_tiles) {
    for (int kind = 0; kind < TYPES; kind++) {
        struct fixture f;
        fixture_make(&f, types[kind], ROWS - 3, COLS);
        make_acts(TOKENS, COLS, true);
        memset(a, 0x33, sizeof a);
        memcpy(b, a, sizeof a);
        ops_twin()->matmul(&f.m, 0, f.m.n_groups, act, TOKENS, a, ROWS, false);
        for (uint32_t g = f.m.n_groups; g-- > 0;) {
            for (uint32_t t = 0, n; t < TOKENS; t += n) {
                n = 1 + rnd_below(&rnd, 12);
                n = n < TOKENS - t ? n : TOKENS - t;
                ops_twin()->matmul(&f.m, g, g + 1, act + t * f.m.n_blocks, n, b + t * ROWS, ROWS,
                                   false);
            }
        }
        ck_assert_mem_eq(a, b, sizeof a);
        cpu_ops_scalar.matmul(&f.m, 0, f.m.n_groups, act, TOKENS, b, ROWS, false);
        ck_assert_mem_eq(a, b, sizeof a);
        fixture_drop(&f);
    }
}
END_TEST

START_TEST(close_to_double_reference) {
    for (int round = 0; round < 60; round++) {
        enum gguf_type type = types[round % TYPES];
        uint32_t rows = 1 + rnd_below(&rnd, 40), cols = random_cols(type, 800), n = 3;
        struct fixture f;
        fixture_make(&f, type, rows, cols);
        make_acts(n, cols, false);
        ops_twin()->matmul(&f.m, 0, f.m.n_groups, act, n, a, ROWS, false);
        for (uint32_t t = 0; t < n; t++) {
            for (uint32_t r = 0; r < rows; r++) {
                double want = 0, size = 0, exact = 0;
                for (uint32_t c = 0; c < cols; c++) {
                    struct act_block *k = &act[t * f.m.n_blocks + c / 32];
                    double w = tensor_at(&f.t, r, c);
                    want += w * ((double)k->d * k->q[c % 32]);
                    exact += w * (double)x[t * cols + c];
                    size += fabs(w * (double)x[t * cols + c]);
                }
                ck_assert(fabs(a[t * ROWS + r] - want) <= 2e-6 * size);
                ck_assert(fabs(a[t * ROWS + r] - exact) <= 0.02 * size);
            }
        }
        fixture_drop(&f);
    }
}
END_TEST

/* The largest sums there are: int16 and int32 steps must not overflow or saturate. */
START_TEST(extreme_weights_do_not_saturate) {
    static uint8_t bytes[16 * 34];
    for (int kind = 0; kind < 2; kind++) {
        for (int sign = 0; sign < 4; sign++) {
            bool q4 = kind == 0;
            memset(bytes, q4 ? 0xff : (sign & 1 ? 0x80 : 0x7f), sizeof bytes);
            for (int r = 0; r < 16; r++) {
                uint16_t one = 0x3c00, zero = 0;
                memcpy(bytes + r * (q4 ? 20 : 34), &one, 2);
                if (q4)
                    memcpy(bytes + r * 20 + 2, &zero, 2);
            }
            struct gguf_tensor t = {.n_dims = 2, .dims = {32, 16, 1, 1}, .data = bytes,
                                    .type = q4 ? GGUF_Q4_1 : GGUF_Q8_0, .bytes = q4 ? 320 : 544};
            struct packed_matrix m;
            matrix_make(&m, &t);
            for (int i = 0; i < 32; i++)
                x[i] = sign & 2 ? -127 : 127;
            for (int i = 0; i < 33; i++)
                cpu_ops_scalar.quantise(act + i, x, 32);
            float want = (q4 ? 15.0f : sign & 1 ? -128.0f : 127.0f) * x[0] * 32;
            for (uint32_t n = 1; n <= 33; n += 32) { /* direct and panel */
                ops_twin()->matmul(&m, 0, 1, act, n, a, 16, false);
                for (uint32_t i = 0; i < n * 16; i++)
                    ck_assert(a[i] == want);
            }
            mem_free(m.data);
        }
    }
}
END_TEST

/* Equal values give equal bytes, whichever float type holds them. */
START_TEST(float_types_agree) {
    for (int kind = 0; kind < 2; kind++) {
        enum gguf_type type = kind == 0 ? GGUF_F16 : GGUF_BF16;
        struct fixture half, full;
        fixture_make(&half, type, 40, 100);
        fixture_make(&full, GGUF_F32, 40, 100);
        for (uint32_t i = 0; i < 40 * 100; i++)
            ((float *)(uintptr_t)full.t.data)[i] = (float)tensor_at(&half.t, i / 100, i % 100);
        packed_matrix_fill(&full.m, &full.t, 0, full.m.n_groups);
        make_acts(9, 100, true);
        memset(a, 0x33, sizeof a);
        memcpy(b, a, sizeof a);
        ops_twin()->matmul(&half.m, 0, half.m.n_groups, act, 9, a, ROWS, false);
        ops_twin()->matmul(&full.m, 0, full.m.n_groups, act, 9, b, ROWS, false);
        ck_assert_mem_eq(a, b, sizeof a);
        fixture_drop(&half);
        fixture_drop(&full);
    }
}
END_TEST

/* Every scale whose eightfold F16 can hold: the folded minimum is exactly -8 d. */
START_TEST(q4_0_folds_exactly) {
    uint8_t bytes[18] = {0};
    struct gguf_tensor t = {
        .n_dims = 2, .dims = {32, 1, 1, 1}, .data = bytes, .type = GGUF_Q4_0, .bytes = 18};
    for (uint32_t h = 0; h < 0x10000; h++) {
        uint16_t d = (uint16_t)h;
        float f = f16_to_f32(d);
        if (!(fabsf(f) <= 8188))
            continue;
        struct packed_matrix m;
        memcpy(bytes, &d, 2);
        matrix_make(&m, &t);
        packed_matrix_row(&m, 0, a);
        ck_assert(a[0] == -8 * f && a[31] == a[0]);
        mem_free(m.data);
    }
}
END_TEST

START_TEST(plan_refuses_what_it_cannot_read) {
    struct packed_matrix m;
    struct err e;
    struct gguf_tensor good = {.n_dims = 2, .dims = {64, 5, 1, 1}, .type = GGUF_Q8_0, .bytes = 340};
    ck_assert_int_eq(packed_matrix_plan(&m, &good, &e), 0);
    ck_assert(m.n_groups == 1 && m.n_blocks == 2 && m.bytes == 2 * PACKED_Q8_0_BYTES);
    struct gguf_tensor t = good;
    t.type = 12; /* Q4_K */
    ck_assert_int_eq(packed_matrix_plan(&m, &t, &e), -1);
    ck_assert_int_eq(e.code, ERR_BAD_FILE);
    t = good;
    t.bytes--;
    ck_assert_int_eq(packed_matrix_plan(&m, &t, &e), -1);
    t = good;
    t.dims[0] = 33;
    ck_assert_int_eq(packed_matrix_plan(&m, &t, &e), -1);
    t = good;
    t.n_dims = 3;
    ck_assert_int_eq(packed_matrix_plan(&m, &t, &e), -1);
    t = good;
    t.dims[1] = UINT64_MAX / 2;
    ck_assert_int_eq(packed_matrix_plan(&m, &t, &e), -1);
}
END_TEST

static int run_suite(void) {
    Suite *suite = suite_create("ops_matmul");
    TCase *c = tcase_create(ops_twin()->name);
    tcase_set_timeout(c, 100);
    tcase_add_test(c, rows_come_back);
    tcase_add_test(c, twins_equal_for_all_token_counts);
    tcase_add_test(c, twins_equal_at_the_edges);
    tcase_add_test(c, results_do_not_depend_on_tiles);
    tcase_add_test(c, close_to_double_reference);
    tcase_add_test(c, extreme_weights_do_not_saturate);
    tcase_add_test(c, float_types_agree);
    tcase_add_test(c, q4_0_folds_exactly);
    tcase_add_test(c, plan_refuses_what_it_cannot_read);
    suite_add_tcase(suite, c);
    SRunner *run = srunner_create(suite);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed;
}

int main(void) {
    int failed = 0;
    printf("seed %llu\n", (unsigned long long)rnd.seed);
    for (uint32_t i = 0; ops_twin_use(i); i++)
        failed += run_suite();
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
