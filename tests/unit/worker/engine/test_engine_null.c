/* The life of a step, on the virtual engine: park, continue, drop, references, descriptor, limits,
 * and that what is said about a sequence never depends on its company, chunks, parks or chaos. */
#include "tests/unit/worker/engine/engine_rig.h"

#include <check.h>
#include <string.h>

static struct rig rig;
static struct rig_step st, st2, st3;
static struct rig_seq seqs[16];

static void open_null(uint32_t segments, uint64_t chaos_seed)
{
    struct engine_config cfg = rig_config("null");
    cfg.null_segments = segments;
    cfg.chaos_seed = chaos_seed;
    rig_open(&rig, NULL, &cfg);
}

/* The ids that a prompt of `n` ids makes when it is alone: what every other run must repeat. */
static void alone(struct rig_seq *q, uint64_t seed, uint32_t n, uint32_t n_new, float temperature)
{
    rig_seq_random(&rig, q, seed, n);
    rig_generate(&rig, q, n_new, RIG_CTX, temperature, seed, false);
    rig_seq_free(&rig, q);
}

START_TEST(chunks_and_parks_do_not_matter)
{
    open_null((uint32_t)_i, 0);
    static struct rig_seq want;
    alone(&want, 11, 300, 20, 1);
    for (uint32_t chunk = 1; chunk <= 512; chunk = chunk * 8 - 1) {
        rig_seq_random(&rig, &seqs[0], 11, 300);
        rig_generate(&rig, &seqs[0], 20, chunk, 1, 11, chunk != 1);
        ck_assert_mem_eq(seqs[0].ids, want.ids, 320 * sizeof(int32_t));
        rig_seq_free(&rig, &seqs[0]);
    }
    rig_close(&rig);
}
END_TEST

START_TEST(segments_do_not_matter)
{
    static struct rig_seq want;
    for (uint32_t segments = 1; segments < 12; segments++) {
        open_null(segments, 0);
        alone(segments == 1 ? &want : &seqs[0], 5, 40, 6, 0);
        if (segments > 1)
            ck_assert_mem_eq(seqs[0].ids, want.ids, 46 * sizeof(int32_t));
        rig_close(&rig);
    }
}
END_TEST

/* 16 sequences of different lengths, one step a token, against each alone. */
static void in_company(bool parking)
{
    static struct rig_seq want[16];
    for (uint32_t i = 0; i < 16; i++) {
        alone(&want[i], 100 + i, 5 + 3 * i, 8, i % 2 ? 0.7f : 0);
        rig_seq_random(&rig, &seqs[i], 100 + i, 5 + 3 * i);
    }
    for (uint32_t round = 0; round < 8; round++) {
        rig_step_init(&rig, &st);
        for (uint32_t i = 0; i < 16; i++) {
            uint32_t n = seqs[i].n_ids - seqs[i].n_done, span = rig_span(&rig, &st, &seqs[i], n);
            rig_row(&st, span, n - 1, ENGINE_ROW_SAMPLE)->params =
                rig_params(i % 2 ? 0.7f : 0, 100 + i, seqs[i].n_ids);
        }
        if (parking)
            rig_run_parking(&rig, &st);
        else
            rig_run(&rig, &st);
        for (uint32_t i = 0; i < 16; i++)
            seqs[i].ids[seqs[i].n_ids++] = engine_step_result(rig.eng, st.step.id, i)->id;
        rig_release(&rig, &st);
    }
    for (uint32_t i = 0; i < 16; i++)
        ck_assert_mem_eq(seqs[i].ids, want[i].ids, want[i].n_ids * sizeof(int32_t));
}

START_TEST(company_does_not_matter)
{
    open_null(7, 0);
    in_company(false);
    rig_close(&rig);
}
END_TEST

START_TEST(chaos_does_not_matter)
{
    open_null(5, 1000 + (uint64_t)_i);
    in_company(true);
    rig_close(&rig);
}
END_TEST

/* The oracle must notice: a block of other bytes, a table in another order, a wrong position. */
START_TEST(oracle_sees_wrong_blocks)
{
    open_null(4, 0);
    static struct rig_seq want;
    alone(&want, 3, 100, 1, 0);
    for (int fault = 0; fault < 3; fault++) {
        rig_seq_random(&rig, &seqs[0], 3, 100);
        rig_step_init(&rig, &st);
        rig_span(&rig, &st, &seqs[0], 99);
        rig_run(&rig, &st);
        rig_release(&rig, &st);
        if (fault == 0)
            seqs[0].blocks[1] = 0;
        if (fault == 1) {
            uint32_t b = seqs[0].blocks[2];
            seqs[0].blocks[2] = seqs[0].blocks[4];
            seqs[0].blocks[4] = b;
        }
        rig_step_init(&rig, &st);
        rig_row(&st, rig_span(&rig, &st, &seqs[0], 1), 0, ENGINE_ROW_SAMPLE);
        if (fault == 2)
            st.spans[0].pos--;
        rig_run(&rig, &st);
        ck_assert_int_ne(engine_step_result(rig.eng, st.step.id, 0)->id, want.ids[100]);
        rig_release(&rig, &st);
        seqs[0].n_blocks = 0;
    }
    rig_close(&rig);
}
END_TEST

/* ---- park, continue, drop ---- */

static void open_slow(uint32_t segments, uint64_t segment_ns, uint64_t chaos_seed)
{
    struct engine_config cfg = rig_config("null");
    cfg.null_segments = segments;
    cfg.null_step_ns = segment_ns * segments;
    cfg.chaos_seed = chaos_seed;
    rig_open(&rig, NULL, &cfg);
}

/* Asked right after each continue, a step parks at every boundary; a request that a busy machine
 * makes late loses one, so several tries are allowed. */
START_TEST(parks_at_every_segment)
{
    open_slow(8, 2000000, 0);
    static struct rig_seq want;
    alone(&want, 1, 30, 1, 0);
    uint32_t parks = 0;
    for (int tries = 0; tries < 50 && parks != 8; tries++) {
        rig_seq_random(&rig, &seqs[0], 1, 30);
        rig_step_init(&rig, &st);
        rig_row(&st, rig_span(&rig, &st, &seqs[0], 30), 29, ENGINE_ROW_SAMPLE);
        parks = rig_run_parking(&rig, &st);
        ck_assert_uint_le(parks, 8); /* each continue computes a segment: it cannot park for ever */
        ck_assert_int_eq(engine_step_result(rig.eng, st.step.id, 0)->id, want.ids[30]);
        ck_assert_uint_eq(rig_count(&rig, ENGINE_STEP_END, st.step.id), 1);
        rig_release(&rig, &st);
        rig_seq_free(&rig, &seqs[0]);
    }
    ck_assert_uint_eq(parks, 8);
    rig_close(&rig);
}
END_TEST

/* The drop and the end it brings come in one poll; the owner answers the drop first. */
START_TEST(continue_after_the_last_span_of_a_parked_step_fell)
{
    open_slow(6, 2000000, 0);
    rig_seq_random(&rig, &seqs[0], 1, 30);
    rig_step_init(&rig, &st);
    rig_row(&st, rig_span(&rig, &st, &seqs[0], 30), 29, ENGINE_ROW_SAMPLE);
    rig_submit(&rig, &st);
    ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), 0);
    ck_assert_int_eq(rig_await_stop(&rig, st.step.id)->kind, ENGINE_STEP_PARKED);
    ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, 0), 0);
    rig_await(&rig, ENGINE_STEP_END, st.step.id);
    ck_assert_int_eq(engine_step_continue(rig.eng, st.step.id), 0);
    engine_step_release(rig.eng, st.step.id);
    ck_assert_int_eq(engine_step_continue(rig.eng, st.step.id), -1);
    rig_close(&rig);
}
END_TEST

START_TEST(an_upper_step_runs_while_one_is_parked)
{
    open_slow(6, 2000000, (uint64_t)_i);
    static struct rig_seq want[2];
    alone(&want[0], 1, 30, 1, 0);
    alone(&want[1], 2, 10, 1, 0);
    rig_seq_random(&rig, &seqs[0], 1, 30);
    rig_seq_random(&rig, &seqs[1], 2, 10);
    rig_step_init(&rig, &st);
    rig_row(&st, rig_span(&rig, &st, &seqs[0], 30), 29, ENGINE_ROW_SAMPLE);
    rig_step_init(&rig, &st2);
    rig_row(&st2, rig_span(&rig, &st2, &seqs[1], 10), 9, ENGINE_ROW_SAMPLE);
    rig_submit(&rig, &st);
    ck_assert_int_eq(engine_step_submit(rig.eng, &st2.step), -1); /* one runs */
    ck_assert_int_eq(engine_step_continue(rig.eng, st.step.id), -1);
    ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), 0);
    struct engine_completion c = *rig_await_stop(&rig, st.step.id);
    ck_assert_int_eq(c.kind, ENGINE_STEP_PARKED);
    ck_assert_uint_le(c.segments_done, c.segment_at_request + 1);
    ck_assert_uint_lt(c.segments_done, 6);
    ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), -1); /* parked already */
    ck_assert_ptr_null(engine_step_result(rig.eng, st.step.id, 0));
    rig_run(&rig, &st2);
    ck_assert_ptr_null(rig_event(&rig, ENGINE_STEP_END, st.step.id));
    ck_assert_int_eq(engine_step_result(rig.eng, st2.step.id, 0)->id, want[1].ids[10]);
    rig_release(&rig, &st2);
    ck_assert_int_eq(engine_step_continue(rig.eng, st.step.id), 0);
    rig_end(&rig, &st);
    ck_assert_int_eq(engine_step_result(rig.eng, st.step.id, 0)->id, want[0].ids[30]);
    const struct engine_completion *end = rig_event(&rig, ENGINE_STEP_END, st.step.id);
    ck_assert_uint_ge(end->device_ns, c.device_ns);
    ck_assert_uint_eq(end->segments_done, 6);
    rig_release(&rig, &st);
    rig_close(&rig);
}
END_TEST

/* Three spans, one dropped while the step runs, one while it is parked: the third's id is what it
 * is alone. */
START_TEST(drops_leave_neighbours_alone)
{
    open_slow(6, 1000000, (uint64_t)_i);
    static struct rig_seq want;
    alone(&want, 22, 25, 1, 0);
    rig_step_init(&rig, &st);
    for (uint32_t i = 0; i < 3; i++) {
        rig_seq_random(&rig, &seqs[i], 21 + i, 25);
        rig_row(&st, rig_span(&rig, &st, &seqs[i], 25), 24, ENGINE_ROW_SAMPLE);
    }
    rig_submit(&rig, &st);
    ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, 3), -1);
    ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, 0), 0);
    ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, 0),
                     0); /* twice asks for the same */
    ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), 0);
    const struct engine_completion *c = rig_await_stop(&rig, st.step.id);
    ck_assert_int_eq(c->kind, ENGINE_STEP_PARKED);
    ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, 2), 0);
    c = rig_await(&rig, ENGINE_SPAN_DROPPED, st.step.id);
    ck_assert_uint_le(c->segments_done, c->segment_at_request + 1);
    ck_assert_int_eq(engine_step_continue(rig.eng, st.step.id), 0);
    rig_end(&rig, &st);
    ck_assert_uint_eq(rig_count(&rig, ENGINE_SPAN_DROPPED, st.step.id), 2);
    ck_assert_uint_eq(seqs[1].n_done, 25);
    ck_assert_uint_eq(seqs[0].n_done + seqs[2].n_done, 0);
    ck_assert_int_eq(engine_step_result(rig.eng, st.step.id, 1)->id, want.ids[25]);
    rig_release(&rig, &st);
    rig_close(&rig);
}
END_TEST

START_TEST(a_step_without_spans_left_ends)
{
    open_slow(6, 1000000, (uint64_t)_i);
    for (int parked = 0; parked < 2; parked++) {
        rig_seq_random(&rig, &seqs[0], 1, 5);
        rig_step_init(&rig, &st);
        rig_row(&st, rig_span(&rig, &st, &seqs[0], 5), 4, ENGINE_ROW_SAMPLE);
        rig_submit(&rig, &st);
        if (parked) {
            ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), 0);
            ck_assert_int_eq(rig_await_stop(&rig, st.step.id)->kind, ENGINE_STEP_PARKED);
        }
        ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, 0), 0);
        rig_end(&rig, &st);
        ck_assert_uint_lt(rig_event(&rig, ENGINE_STEP_END, st.step.id)->segments_done, 6);
        ck_assert_uint_eq(rig_count(&rig, ENGINE_SPAN_DROPPED, st.step.id), 1);
        rig_release(&rig, &st);
        rig_seq_free(&rig, &seqs[0]);
    }
    rig_close(&rig);
}
END_TEST

/* ---- references ---- */

/* A decode of `q` whose input is what row 0 of step `src` samples. */
static void referring(struct rig_step *s, struct rig_seq *q, const struct rig_step *src)
{
    q->ids[q->n_ids++] = -1; /* not known yet, and not looked at */
    rig_step_init(&rig, s);
    uint32_t span = rig_span(&rig, s, q, 1);
    s->spans[span].ref_step = src->step.id;
    s->spans[span].ref_row = 0;
    rig_row(s, span, 0, ENGINE_ROW_SAMPLE)->params = rig_params(0, 0, q->n_ids);
}

START_TEST(a_reference_is_resolved)
{
    open_slow(4, 500000, (uint64_t)_i);
    ck_assert_uint_eq(rig.limits->max_refs, 1);
    static struct rig_seq want;
    alone(&want, 9, 20, 3, 0);
    rig_seq_random(&rig, &seqs[0], 9, 20);
    rig_step_init(&rig, &st);
    rig_row(&st, rig_span(&rig, &st, &seqs[0], 20), 19, ENGINE_ROW_SAMPLE);
    rig_submit(&rig, &st);
    seqs[0].n_done = 20;
    referring(&st2, &seqs[0], &st);
    rig_submit(&rig, &st2);
    seqs[0].n_done = 21;
    referring(&st3, &seqs[0], &st2);
    ck_assert_int_eq(engine_step_submit(rig.eng, &st3.step), -1); /* its source waits itself */
    rig_await(&rig, ENGINE_STEP_END, st.step.id);
    ck_assert_int_eq(engine_step_result(rig.eng, st.step.id, 0)->id, want.ids[20]);
    rig_release(&rig, &st); /* the waiting step has its id by now */
    rig_await(&rig, ENGINE_STEP_END, st2.step.id);
    ck_assert_int_eq(engine_step_result(rig.eng, st2.step.id, 0)->id, want.ids[21]);
    rig_submit(&rig, &st3); /* of an ended source: legal until its release */
    rig_await(&rig, ENGINE_STEP_END, st3.step.id);
    ck_assert_int_eq(engine_step_result(rig.eng, st3.step.id, 0)->id, want.ids[22]);
    rig_release(&rig, &st2);
    rig_release(&rig, &st3);
    rig_close(&rig);
}
END_TEST

START_TEST(parking_or_dropping_a_source_holds_or_drops)
{
    open_slow(6, 1000000, (uint64_t)_i);
    static struct rig_seq want;
    alone(&want, 9, 20, 2, 0);
    for (int drop = 0; drop < 2; drop++) {
        rig_seq_random(&rig, &seqs[0], 9, 20);
        rig_step_init(&rig, &st);
        rig_row(&st, rig_span(&rig, &st, &seqs[0], 20), 19, ENGINE_ROW_SAMPLE);
        rig_submit(&rig, &st);
        seqs[0].n_done = 20;
        referring(&st2, &seqs[0], &st);
        rig_submit(&rig, &st2);
        ck_assert_int_eq(engine_step_park(rig.eng, st.step.id), 0);
        ck_assert_int_eq(rig_await_stop(&rig, st.step.id)->kind, ENGINE_STEP_PARKED);
        /* an upper step fits beside the two */
        rig_seq_random(&rig, &seqs[1], 2, 10);
        rig_step_init(&rig, &st3);
        rig_span(&rig, &st3, &seqs[1], 10);
        rig_run(&rig, &st3);
        ck_assert_ptr_null(rig_event(&rig, ENGINE_STEP_END, st2.step.id));
        rig_release(&rig, &st3);
        if (drop)
            ck_assert_int_eq(engine_step_drop_span(rig.eng, st.step.id, 0), 0);
        else
            ck_assert_int_eq(engine_step_continue(rig.eng, st.step.id), 0);
        rig_await(&rig, ENGINE_STEP_END, st2.step.id);
        rig_await(&rig, ENGINE_STEP_END, st.step.id);
        ck_assert_uint_eq(rig_count(&rig, ENGINE_SPAN_DROPPED, st2.step.id), (unsigned)drop);
        if (!drop)
            ck_assert_int_eq(engine_step_result(rig.eng, st2.step.id, 0)->id, want.ids[21]);
        rig_release(&rig, &st);
        rig_release(&rig, &st2);
        rig_seq_free(&rig, &seqs[0]);
        rig_seq_free(&rig, &seqs[1]);
    }
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("engine_null");
    TCase *t = tcase_create("life");
    tcase_add_loop_test(t, chunks_and_parks_do_not_matter, 3, 6);
    tcase_add_test(t, segments_do_not_matter);
    tcase_add_test(t, company_does_not_matter);
    tcase_add_loop_test(t, chaos_does_not_matter, 0, 6);
    tcase_add_test(t, oracle_sees_wrong_blocks);
    tcase_add_test(t, parks_at_every_segment);
    tcase_add_loop_test(t, an_upper_step_runs_while_one_is_parked, 0, 4);
    tcase_add_test(t, continue_after_the_last_span_of_a_parked_step_fell);
    tcase_add_loop_test(t, drops_leave_neighbours_alone, 0, 4);
    tcase_add_loop_test(t, a_step_without_spans_left_ends, 0, 4);
    tcase_add_loop_test(t, a_reference_is_resolved, 0, 4);
    tcase_add_loop_test(t, parking_or_dropping_a_source_holds_or_drops, 0, 4);
    tcase_set_timeout(t, 0);
    suite_add_tcase(s, t);
    SRunner *run = srunner_create(s);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed != 0;
}
