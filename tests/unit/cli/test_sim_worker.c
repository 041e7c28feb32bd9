/* The virtual device's segments, drops, fences and copies; the virtual worker's answers; the rows
 * of bench_virtual, shortened (counted in virtual time, so a threshold means the same on every
 * machine). */
#include "cli/sim_device.h"
#include "tests/bench/virtual/vload.h"
#include "tests/bench/virtual/vrows.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEG 1000 /* ns */
#define SEGMENTS 10
#define COPY 500

static const int32_t ids_a[64] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
static const int32_t ids_b[64] = {25, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};

/* Blocks of 4 positions; each span of a step costs a tenth of it a segment. */
static struct sim_device *device_new(void)
{
    struct sim_device_config c = {.n_segments = SEGMENTS,
                                  .n_blocks = 32,
                                  .block_tokens = 4,
                                  .n_host = 8,
                                  .max_spans = 4,
                                  .max_seq_blocks = 8};
    c.cost.row_ns = SEG * SEGMENTS;
    c.cost.copy_ns = COPY;
    struct sim_device *d = sim_device_create(&c);
    ck_assert_ptr_nonnull(d);
    return d;
}

static struct worker_span span(uint32_t slot, uint32_t pos, uint32_t n, const uint32_t *blocks)
{
    struct worker_span s = {.slot = slot, .pos = pos, .n = n, .blocks = blocks, .sample = true};
    s.n_blocks = (pos + n + 3) / 4;
    return s;
}

static void submit(struct sim_device *d, uint64_t now, uint64_t id, const struct worker_span *spans,
                   uint32_t n, const int32_t *ids)
{
    struct sim_input in[4];
    for (uint32_t i = 0; i < n; i++) in[i] = (struct sim_input){.ids = ids, .seed = 1};
    struct worker_plan plan = {.step = id, .rank = 1, .spans = spans, .n_spans = n};
    sim_device_submit(d, now, &plan, in);
    ck_assert_ptr_null(sim_device_bad(d));
}

static void copy(struct sim_device *d, uint64_t now, uint64_t id, bool to_host, uint32_t block,
                 uint32_t host, uint8_t priority, uint64_t after)
{
    struct worker_action a = {.kind = WA_COPY};
    a.copy.id = id;
    a.copy.to_host = to_host;
    a.copy.block = block;
    a.copy.host = host;
    a.copy.priority = priority;
    a.copy.after_step = after;
    sim_device_copy(d, now, &a);
    ck_assert_ptr_null(sim_device_bad(d));
}

static struct sim_event expect(struct sim_device *d, enum sim_event_kind kind, uint64_t id,
                               uint64_t at)
{
    struct sim_event e = {.id = 0};
    ck_assert_uint_eq(sim_device_next_ns(d), at);
    ck_assert(!sim_device_take(d, at - 1, &e));
    ck_assert(sim_device_take(d, at, &e));
    ck_assert_int_eq(e.kind, kind);
    ck_assert_uint_eq(e.id, id);
    ck_assert_uint_eq(e.at_ns, at);
    return e;
}

static int32_t answer(const int32_t *ids, uint32_t n)
{
    struct sim_chain c = {.n = 0};
    for (uint32_t i = 0; i < n; i++) sim_chain_add(&c, ids[i], 4);
    return sim_chain_next(&c, 1);
}

START_TEST(test_park_takes_effect_at_the_boundary_and_costs_nothing)
{
    const uint32_t t[] = {1, 2};
    struct sim_device *d = device_new();
    struct worker_span s = span(0, 0, 6, t);
    submit(d, 0, 1, &s, 1, ids_a);
    ck_assert_uint_eq(sim_device_next_ns(d), SEGMENTS * SEG);
    sim_device_park(d, 2500, 1);
    struct sim_event e = expect(d, SIM_STEP_PARKED, 1, 3000);
    ck_assert_uint_eq(e.segments_done, 3);
    ck_assert_uint_eq(e.segment_at_request, 2);
    ck_assert_uint_eq(sim_device_next_ns(d), SIM_NEVER);
    sim_device_continue(d, 90000, 1);
    sim_device_park(d, 90000, 1); /* at once again: one segment is computed all the same */
    e = expect(d, SIM_STEP_PARKED, 1, 91000);
    ck_assert_uint_eq(e.segments_done, 4);
    sim_device_continue(d, 100000, 1);
    e = expect(d, SIM_STEP_END, 1, 106000);
    ck_assert_uint_eq(e.device_ns, SEGMENTS * SEG);
    ck_assert_uint_eq(e.n_results, 1);
    ck_assert_int_eq(e.results[0].id, answer(ids_a, 6));
    sim_device_release(d, 1);
    ck_assert_ptr_null(sim_device_bad(d));
    sim_device_destroy(&d);
}
END_TEST

START_TEST(test_a_park_in_the_last_segment_is_answered_by_the_end)
{
    const uint32_t t[] = {1, 2};
    struct sim_device *d = device_new();
    struct worker_span s = span(0, 0, 6, t);
    submit(d, 0, 1, &s, 1, ids_a);
    sim_device_park(d, 9000, 1);
    sim_device_drop(d, 9500, 1, 0);
    struct sim_event e = expect(d, SIM_STEP_END, 1, 10000);
    ck_assert_uint_eq(e.n_results, 1);
    ck_assert_uint_eq(sim_device_next_ns(d), SIM_NEVER);
    sim_device_destroy(&d);
}
END_TEST

START_TEST(test_a_dropped_span_costs_nothing_more_and_the_other_keeps_its_answer)
{
    const uint32_t t[2][2] = {{1, 2}, {3, 4}};
    struct sim_device *d = device_new();
    struct worker_span s[2] = {span(0, 0, 6, t[0]), span(1, 0, 7, t[1])};
    submit(d, 0, 1, s, 2, ids_a); /* 2,000 a segment */
    sim_device_drop(d, 4100, 1, 0);
    struct sim_event e = expect(d, SIM_SPAN_DROPPED, 1, 6000);
    ck_assert_uint_eq(e.span, 0);
    ck_assert_uint_eq(e.segments_done, 3);
    e = expect(d, SIM_STEP_END, 1, 6000 + 7 * SEG);
    ck_assert_uint_eq(e.n_results, 1);
    ck_assert_uint_eq(e.results[0].slot, 1);
    ck_assert_int_eq(e.results[0].id, answer(ids_a, 7));
    sim_device_destroy(&d);
}
END_TEST

START_TEST(test_a_drop_at_the_boundary_of_a_park_is_confirmed_there_and_the_last_one_ends_the_step)
{
    const uint32_t t[2][2] = {{1, 2}, {3, 4}};
    struct sim_device *d = device_new();
    struct sim_event e;
    struct worker_span s[2] = {span(0, 0, 6, t[0]), span(1, 0, 7, t[1])};
    submit(d, 0, 1, s, 2, ids_a);
    sim_device_park(d, 100, 1);
    sim_device_drop(d, 100, 1, 0);
    ck_assert(sim_device_take(d, 2000, &e));
    ck_assert_int_eq(e.kind, SIM_SPAN_DROPPED);
    /* Asked between the confirmations of one boundary: the step is parked by then, so it must not
     * wait for a segment that never comes. */
    sim_device_drop(d, 2000, 1, 1);
    expect(d, SIM_SPAN_DROPPED, 1, 2000);
    e = expect(d, SIM_STEP_END, 1, 2000);
    ck_assert_uint_eq(e.n_results, 0);
    sim_device_destroy(&d);
}
END_TEST

START_TEST(test_a_drop_of_a_parked_step_is_confirmed_at_once)
{
    const uint32_t t[2][2] = {{1, 2}, {3, 4}};
    struct sim_device *d = device_new();
    struct worker_span s[2] = {span(0, 0, 6, t[0]), span(1, 0, 7, t[1])};
    submit(d, 0, 1, s, 2, ids_a);
    sim_device_park(d, 100, 1);
    expect(d, SIM_STEP_PARKED, 1, 2000);
    sim_device_drop(d, 7777, 1, 0);
    expect(d, SIM_SPAN_DROPPED, 1, 7777);
    ck_assert_uint_eq(sim_device_next_ns(d), SIM_NEVER);
    sim_device_continue(d, 8000, 1);
    struct sim_event e = expect(d, SIM_STEP_END, 1, 8000 + 9 * SEG);
    ck_assert_int_eq(e.results[0].id, answer(ids_a, 7));
    sim_device_destroy(&d);
}
END_TEST

START_TEST(test_a_wrong_or_uncommitted_block_changes_the_answer)
{
    const uint32_t own[] = {1, 2, 3}, foreign[] = {4, 5, 6}, mixed[] = {4, 2, 3},
                   fresh[] = {1, 9, 3};
    struct sim_device_stats st;
    struct sim_device *d = device_new();
    struct worker_span s[2] = {span(0, 0, 9, own), span(1, 0, 9, foreign)};
    submit(d, 0, 1, &s[0], 1, ids_a);
    expect(d, SIM_STEP_END, 1, 10000);
    sim_device_release(d, 1);
    submit(d, 10000, 2, &s[1], 1, ids_b);
    expect(d, SIM_STEP_END, 2, 20000);
    sim_device_release(d, 2);
    const uint32_t *tables[] = {own, mixed, fresh};
    for (uint64_t i = 0; i < 3; i++) {
        struct worker_span next = span(0, 9, 1, tables[i]);
        submit(d, 20000 + i * 10000, 3 + i, &next, 1, ids_a);
        struct sim_event e = expect(d, SIM_STEP_END, 3 + i, 30000 + i * 10000);
        ck_assert_int_eq(e.results[0].id == answer(ids_a, 10), i == 0);
        sim_device_release(d, 3 + i);
    }
    sim_device_stats(d, &st);
    ck_assert_uint_eq(st.stale_reads, 1);
    sim_device_destroy(&d);
}
END_TEST

START_TEST(test_copies_go_one_by_one_swap_in_first_and_carry_the_blocks)
{
    const uint32_t t[] = {1, 2, 3}, back[] = {11, 12, 3};
    struct sim_device *d = device_new();
    struct worker_span s = span(0, 0, 9, t), next = span(0, 9, 1, back);
    submit(d, 0, 1, &s, 1, ids_a);
    copy(d, 100, 1, true, 1, 0, 1, 1); /* not before its step ended */
    copy(d, 100, 2, true, 2, 1, 1, 0);
    ck_assert_uint_eq(sim_device_next_ns(d), 10000);
    expect(d, SIM_STEP_END, 1, 10000);
    sim_device_release(d, 1);
    copy(d, 10100, 3, false, 11, 0, 0, 0); /* overtakes the second, not the running one */
    expect(d, SIM_COPY_END, 1, 10000 + COPY);
    expect(d, SIM_COPY_END, 3, 10000 + 2 * COPY);
    expect(d, SIM_COPY_END, 2, 10000 + 3 * COPY);
    copy(d, 20000, 4, false, 12, 1, 0, 0);
    expect(d, SIM_COPY_END, 4, 20000 + COPY);
    submit(d, 30000, 2, &next, 1, ids_a);
    struct sim_event e = expect(d, SIM_STEP_END, 2, 40000);
    ck_assert_int_eq(e.results[0].id, answer(ids_a, 10));
    sim_device_destroy(&d);
}
END_TEST

static struct vload_arm mixed_arm(struct vload_list *list, uint64_t seed, bool host)
{
    static const uint32_t in[2] = {4, 60}, out[2] = {1, 20};
    struct vload_arm arm = {.seed = seed, .list = list};
    arm.worker = vload_worker(6, 100, host ? 200 : 0, 40);
    arm.worker.check_every = 1;
    ck_assert_int_eq(vload_list_poisson(list, seed, 120, 150 * VLOAD_MS, in, out), 0);
    arm.batch = (struct vload_batch){20, 30, 300, 20, 300, 512};
    arm.duration_ns = list->a[list->n - 1].at_ns;
    return arm;
}

START_TEST(test_every_answer_is_its_requests_own_and_runs_repeat)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct vload_list list;
        struct vload_result a, b;
        struct vload_arm arm = mixed_arm(&list, seed, false);
        ck_assert_int_eq(vload_run(&arm, &a), 0);
        ck_assert_int_eq(vload_run(&arm, &b), 0);
        ck_assert_msg(a.bad == NULL, "seed %d: %s", (int)seed, a.bad);
        ck_assert_uint_eq(a.stats.wrong + a.stats.device.stale_reads + a.rt_missing, 0);
        ck_assert_uint_gt(a.stats.core.preemptions, 20);
        ck_assert_uint_gt(a.stats.core.parks, 20);
        ck_assert_mem_eq(&a.stats.device, &b.stats.device, sizeof a.stats.device);
        ck_assert_uint_eq(a.stats.events, b.stats.events);
        ck_assert(a.ttft.mean == b.ttft.mean && a.batch_out == b.batch_out);
        vload_list_free(&list);
    }
}
END_TEST

START_TEST(test_swaps_and_corrupt_copies_change_no_answer)
{
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct vload_list list;
        struct vload_result a;
        struct vload_arm arm = mixed_arm(&list, seed, true);
        arm.worker.corrupt_every = 23;
        arm.worker.core.pool.prefix_cache = true;
        ck_assert_int_eq(vload_run(&arm, &a), 0);
        ck_assert_msg(a.bad == NULL, "seed %d: %s", (int)seed, a.bad);
        ck_assert_uint_eq(a.stats.wrong + a.stats.device.stale_reads + a.rt_missing, 0);
        ck_assert_uint_gt(a.stats.core.resumed_swap, 10);
        ck_assert_uint_gt(a.stats.core.pool.copy_failures, 3);
        vload_list_free(&list);
    }
}
END_TEST

static void row(void (*run)(struct vreport *, const struct voptions *), struct voptions o)
{
    static struct vreport r;
    memset(&r, 0, sizeof r);
    if (o.seed == 0) o.seed = 1;
    run(&r, &o);
    for (uint32_t i = 0; i < r.n; i++) {
        const struct vline *l = &r.lines[i];
        if (vreport_missed(l)) printf("%s: %s: %g, bar %g\n", r.row, l->name, l->value, l->bar);
    }
    ck_assert_msg(r.error == NULL, "%s: %s", r.row, r.error);
    ck_assert_msg(r.void_because == NULL, "%s: %s", r.row, r.void_because);
    ck_assert_uint_eq(r.failed, 0);
}

START_TEST(test_row_collapse)
{
    row(vrow_collapse, (struct voptions){.scale = 0.05, .host = true});
}
END_TEST

START_TEST(test_row_isolation)
{
    row(vrow_isolation, (struct voptions){.scale = 1, .host = true});
}
END_TEST

START_TEST(test_row_yield)
{
    row(vrow_yield, (struct voptions){.scale = 0.05});
}
END_TEST

/* With the shared trace where it is there, else the equal prompts alone. */
START_TEST(test_row_prefix)
{
    char path[512];
    const char *source = getenv("SLUICE_SOURCE_DIR");
    struct voptions o = {.scale = 0.5};
    snprintf(path, sizeof path, "%s/../shared/traces/derived_prefix_2core_900s.csv",
             source != NULL ? source : ".");
    if (access(path, R_OK) == 0)
        o.trace = path;
    else
        printf("skipped: the trace is not here\n");
    row(vrow_prefix, o);
}
END_TEST

START_TEST(test_row_replay)
{
    row(vrow_replay, (struct voptions){.scale = 0.1, .host = true});
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("sim_worker");
    TCase *t = tcase_create("device");
    tcase_add_test(t, test_park_takes_effect_at_the_boundary_and_costs_nothing);
    tcase_add_test(t, test_a_park_in_the_last_segment_is_answered_by_the_end);
    tcase_add_test(t, test_a_dropped_span_costs_nothing_more_and_the_other_keeps_its_answer);
    tcase_add_test(
        t, test_a_drop_at_the_boundary_of_a_park_is_confirmed_there_and_the_last_one_ends_the_step);
    tcase_add_test(t, test_a_drop_of_a_parked_step_is_confirmed_at_once);
    tcase_add_test(t, test_a_wrong_or_uncommitted_block_changes_the_answer);
    tcase_add_test(t, test_copies_go_one_by_one_swap_in_first_and_carry_the_blocks);
    suite_add_tcase(s, t);
    t = tcase_create("worker");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, test_every_answer_is_its_requests_own_and_runs_repeat);
    tcase_add_test(t, test_swaps_and_corrupt_copies_change_no_answer);
    tcase_add_test(t, test_row_collapse);
    tcase_add_test(t, test_row_isolation);
    tcase_add_test(t, test_row_yield);
    tcase_add_test(t, test_row_prefix);
    tcase_add_test(t, test_row_replay);
    suite_add_tcase(s, t);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
