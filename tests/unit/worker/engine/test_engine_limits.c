/* Rows of every kind, sampling parameters, descriptor, limits and memory, on the virtual engine. */
#include "tests/unit/worker/engine/engine_rig.h"

#include "base/mem.h"

#include <check.h>
#include <poll.h>
#include <string.h>

static struct rig rig;
static struct rig_step st, st2;
static struct rig_seq seqs[16];

static void open_null(uint32_t segments)
{
    struct engine_config cfg = rig_config("null");
    cfg.null_segments = segments;
    rig_open(&rig, NULL, &cfg);
}

static int fd_ready(void)
{
    struct pollfd p = {.fd = engine_fd(rig.eng), .events = POLLIN};
    return poll(&p, 1, 0);
}

START_TEST(rows_of_every_kind)
{
    open_null(4);
    rig_seq_random(&rig, &seqs[0], 7, 12);
    rig_step_init(&rig, &st);
    uint32_t span = rig_span(&rig, &st, &seqs[0], 12);
    for (uint32_t i = 0; i + 1 < 12; i++) {
        struct engine_row *row = rig_row(&st, span, i, ENGINE_ROW_SCORE);
        row->target = seqs[0].ids[i + 1];
        row->n_top = 5;
    }
    for (uint64_t seed = 0; seed < 8; seed++) { /* forks: one row, many parameters */
        struct engine_row *row = rig_row(&st, span, 11, ENGINE_ROW_SAMPLE);
        row->params = rig_params(1, seed, 12);
        row->logprob = true;
    }
    rig_row(&st, span, 11, ENGINE_ROW_LOGITS);
    rig_row(&st, span, 3, ENGINE_ROW_HIDDEN);
    rig_run(&rig, &st);
    int differ = 0;
    for (uint32_t i = 0; i < 11; i++) {
        const struct sample_result *res = engine_step_result(rig.eng, st.step.id, i);
        ck_assert_int_eq(res->id, seqs[0].ids[i + 1]);
        ck_assert(res->logprob < 0 && res->logprob > -100);
        ck_assert_uint_eq(res->n_top, 5);
        for (uint32_t k = 1; k < 5; k++)
            ck_assert(res->top[k].logprob <= res->top[k - 1].logprob);
    }
    for (uint32_t i = 1; i < 8; i++)
        differ += engine_step_result(rig.eng, st.step.id, 11)->id !=
                  engine_step_result(rig.eng, st.step.id, 11 + i)->id;
    ck_assert_int_gt(differ, 3);
    ck_assert_ptr_nonnull(engine_step_row_data(rig.eng, st.step.id, 19));
    ck_assert_ptr_nonnull(engine_step_row_data(rig.eng, st.step.id, 20));
    ck_assert_ptr_null(engine_step_result(rig.eng, st.step.id, 21));
    rig_release(&rig, &st);
    rig_close(&rig);
}
END_TEST

static int32_t one_draw(const struct sample_params *p)
{
    rig_step_init(&rig, &st);
    seqs[0].n_done = 0;
    rig_row(&st, rig_span(&rig, &st, &seqs[0], 12), 11, ENGINE_ROW_SAMPLE)->params = *p;
    rig_run(&rig, &st);
    int32_t id = engine_step_result(rig.eng, st.step.id, 0)->id;
    rig_release(&rig, &st);
    return id;
}

START_TEST(parameters_that_matter)
{
    open_null(4);
    rig_seq_random(&rig, &seqs[0], 7, 12);
    struct sample_params p = rig_params(0, 1, 12), q = p;
    q.seed = 2;
    int32_t id = one_draw(&p);
    ck_assert_int_eq(one_draw(&q), id); /* greedy ignores the seed */
    q.banned = &id;
    q.n_banned = 1;
    ck_assert_int_ne(one_draw(&q), id);
    uint64_t mask[(300 + 63) / 64] = {0, 1ull << 9};
    q = p;
    q.mask = mask;
    ck_assert_int_eq(one_draw(&q), 64 + 9);
    int32_t history[12];
    memcpy(history, seqs[0].ids, sizeof history);
    q = p;
    q.presence_penalty = 1;
    q.history = history;
    q.n_history = 12;
    q.n_prompt = 12;
    int32_t a = one_draw(&q);
    q.n_prompt = 11; /* the boundary is part of the request (E7) */
    int32_t b = one_draw(&q);
    ck_assert(a != id || b != id);
    ck_assert_int_ne(a, b);
    rig_close(&rig);
}
END_TEST

/* ---- descriptor, limits, life ---- */

START_TEST(descriptor_tells_the_truth)
{
    open_null(2);
    ck_assert_int_eq(fd_ready(), 0);
    rig_seq_random(&rig, &seqs[0], 1, 4);
    rig_step_init(&rig, &st);
    rig_span(&rig, &st, &seqs[0], 4);
    rig_submit(&rig, &st);
    struct pollfd p = {.fd = engine_fd(rig.eng), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, RIG_WAIT_S * 1000), 1);
    ck_assert_int_eq(fd_ready(), 1); /* until it is polled empty */
    struct engine_completion c;
    ck_assert_int_eq(engine_poll(rig.eng, &c, 0), 0);
    ck_assert_int_eq(fd_ready(), 1);
    ck_assert_int_eq(engine_poll(rig.eng, &c, 1), 1);
    ck_assert_int_eq(c.kind, ENGINE_STEP_END);
    ck_assert_int_eq(fd_ready(), 0);
    ck_assert_int_eq(engine_poll(rig.eng, &c, 1), 0);
    ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), -1); /* seen to have ended */
    ck_assert_uint_eq(engine_positions_computed(rig.eng), 4);
    engine_step_release(rig.eng, st.step.id);
    rig_close(&rig);
}
END_TEST

/* What a submit must refuse, one fault at a time. */
static int submit_fault(int fault)
{
    static uint32_t far_blocks[RIG_CTX / 16];
    rig_seq_random(&rig, &seqs[0], 1, 20);
    seqs[0].n_blocks = 0;
    rig_step_init(&rig, &st);
    struct engine_row *row = rig_row(&st, rig_span(&rig, &st, &seqs[0], 20), 19, ENGINE_ROW_SAMPLE);
    struct engine_span *s = &st.spans[0];
    switch (fault) {
    case 0: return engine_step_submit(rig.eng, &st.step); /* none: must be taken */
    case 1: st.step.id = 0; break;
    case 2: s->n = 0; break;
    case 3: s->n_blocks = 1; break;
    case 4: s->pos = RIG_CTX - 19; break;
    case 5: seqs[0].ids[3] = -1; break;
    case 6: seqs[0].ids[3] = (int32_t)rig.limits->n_vocab; break;
    case 7:
        far_blocks[0] = rig.limits->n_blocks;
        s->blocks = far_blocks;
        break;
    case 8: row->index = 20; break;
    case 9: row->span = 1; break;
    case 10: row->n_top = SAMPLE_TOP_MAX + 1; break;
    case 11:
        row->kind = ENGINE_ROW_SCORE;
        row->target = -1;
        break;
    case 12: row->params.temperature = -1; break;
    case 13: row->params.top_p = 0; break;
    case 14: st.step.n_spans = 0; break;
    case 15: st.step.n_rows = rig.limits->max_rows + 1; break;
    case 16: s->n = rig.limits->max_tokens + 1; break;
    case 17: s->ref_step = 12345; break;
    case 18: row->params.n_bias = SAMPLE_BIAS_MAX + 1; break;
    case 19:
        st.spans[1] = st.spans[0];
        st.step.n_spans = 2;
        break;                                /* two writers of one block */
    case 20: st.step.id = st2.step.id; break; /* lives */
    default: ck_abort_msg("no such fault");
    }
    return engine_step_submit(rig.eng, &st.step);
}

START_TEST(submit_refuses)
{
    open_null(2);
    rig_seq_random(&rig, &seqs[1], 2, 4);
    rig_step_init(&rig, &st2);
    rig_span(&rig, &st2, &seqs[1], 4);
    rig_run(&rig, &st2);
    for (int fault = 1; fault <= 20; fault++)
        ck_assert_msg(submit_fault(fault) == -1, "fault %d was taken", fault);
    ck_assert_int_eq(submit_fault(0), 0);
    rig_await(&rig, ENGINE_STEP_END, st.step.id);
    struct engine_copy copy = {.id = 1};
    ck_assert(!rig.limits->copies);
    ck_assert_int_eq(engine_copy_submit(rig.eng, &copy), -1);
    rig_release(&rig, &st);
    rig_release(&rig, &st2);
    rig_close(&rig);
}
END_TEST

START_TEST(slots_run_out)
{
    open_null(2);
    static struct rig_step s[ENGINE_STEPS_MAX + 1];
    for (uint32_t i = 0; i <= ENGINE_STEPS_MAX; i++) {
        rig_seq_random(&rig, &seqs[i], i + 1, 4);
        rig_step_init(&rig, &s[i]);
        rig_span(&rig, &s[i], &seqs[i], 4);
        if (i < ENGINE_STEPS_MAX)
            rig_run(&rig, &s[i]);
    }
    ck_assert_int_eq(engine_step_submit(rig.eng, &s[ENGINE_STEPS_MAX].step), -1);
    rig_release(&rig, &s[1]);
    rig_run(&rig, &s[ENGINE_STEPS_MAX]);
    rig_close(&rig); /* with ended steps not released: close frees all */
}
END_TEST

START_TEST(close_in_the_middle)
{
    struct engine_config cfg = rig_config("null");
    cfg.null_segments = 50;
    cfg.null_step_ns = 5000000;
    cfg.chaos_seed = (uint64_t)_i;
    rig_open(&rig, NULL, &cfg);
    rig_seq_random(&rig, &seqs[0], 1, 20);
    rig_step_init(&rig, &st);
    rig_span(&rig, &st, &seqs[0], 20);
    rig_submit(&rig, &st);
    rig_close(&rig);
}
END_TEST

START_TEST(open_refuses)
{
    struct err e;
    struct engine *eng;
    struct engine_config cfg = rig_config("abacus");
    struct model m = {.hp = {.n_vocab = 300, .n_ctx = 64}};
    cfg.model = &m;
    ck_assert_int_eq(engine_open(&eng, &cfg, &e), -1);
    ck_assert_ptr_null(eng);
    ck_assert_ptr_nonnull(strstr(e.msg, "abacus"));
    cfg.backend = "null";
    cfg.n_threads = 0;
    ck_assert_int_eq(engine_open(&eng, &cfg, &e), -1);
    cfg.n_threads = 1;
    cfg.max_spans = ENGINE_SPANS_MAX + 1;
    ck_assert_int_eq(engine_open(&eng, &cfg, &e), -1);
    cfg = rig_config("cpu");
    cfg.model = &m;
    ck_assert_int_eq(engine_open(&eng, &cfg, &e), -1); /* needs a file */
}
END_TEST

/* Every allocation of open fails once: an error, nothing kept, and the next open works. */
START_TEST(open_survives_lack_of_memory)
{
    struct model m = {.hp = {.n_vocab = 300, .n_ctx = 64, .n_embd = 32}};
    struct engine_config cfg = rig_config("null");
    cfg.model = &m;
    cfg.chaos_seed = 1;
    size_t before = mem_used();
    int rc = -1;
    for (uint64_t n = 1; rc < 0; n++) {
        struct err e;
        struct engine *eng;
        err_clear(&e);
        mem_fail_nth(n);
        rc = engine_open(&eng, &cfg, &e);
        mem_fail_nth(0);
        if (rc < 0)
            ck_assert_int_eq(e.code, ERR_NO_MEMORY);
        else
            ck_assert_uint_gt(n, 5);
        engine_close(&eng);
        ck_assert_uint_eq(mem_used(), before);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine_limits");
    TCase *t = tcase_create("limits");
    tcase_add_test(t, rows_of_every_kind);
    tcase_add_test(t, parameters_that_matter);
    tcase_add_test(t, descriptor_tells_the_truth);
    tcase_add_test(t, submit_refuses);
    tcase_add_test(t, slots_run_out);
    tcase_add_loop_test(t, close_in_the_middle, 0, 2);
    tcase_add_test(t, open_refuses);
    tcase_add_test(t, open_survives_lack_of_memory);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    SRunner *run = srunner_create(s);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed != 0;
}
