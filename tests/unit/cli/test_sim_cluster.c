/* A simulated pool: times worked out by hand, steps and runs the same to the byte, determinism, a thousand workers,
 * changes, hardware files. */
#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "cli/json_value.h"
#include "cli/sim_node.h"
#include "cli/sim_report.h"
#include "cli/sim_what_if.h"
#include "scheduler/gateway_core.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS 1000000ull

static struct sim_hardware hardware;
static struct sim_plan plan;

/* 1 ms a step and 0.1 ms a position. */
static void simple_plan(void)
{
    memset(&hardware, 0, sizeof hardware);
    memset(&plan, 0, sizeof plan);
    (void)snprintf(hardware.name, sizeof hardware.name, "simple");
    hardware.model.kind = SIM_MODEL_LINEAR;
    hardware.model.coef[COST_ONE] = MS;
    hardware.model.coef[COST_FIRST] = hardware.model.coef[COST_SPILL] = MS / 10;
    hardware.n_blocks = 256;
    hardware.block_tokens = 16;
    hardware.max_seqs = 8;
    hardware.max_slots = 32;
    hardware.prefill_chunk = 64;
    hardware.n_ctx = 1024;
    hardware.n_segments = 10;
    plan.hardware = &hardware;
    class_table_default(&plan.classes);
    plan.workers = 1;
    plan.queue = 256;
    plan.net_ns = MS;
    plan.seed = 1;
    plan.runs = true;
    plan.check = true;
}

static void row(struct sim_trace *t, uint64_t at_ns, uint32_t n_prompt, uint32_t n_out, uint8_t cls,
                uint16_t tenant)
{
    t->rows[t->n++] = (struct sim_trace_row){
        .at_ns = at_ns, .n_prompt = n_prompt, .n_out = n_out, .cls = cls, .tenant = tenant};
}

static void trace_new(struct sim_trace *t, uint32_t rows, uint32_t tenants)
{
    memset(t, 0, sizeof *t);
    t->rows = mem_array(rows, sizeof *t->rows);
    t->tenants = mem_array(SIM_TRACE_TENANTS_MAX, sizeof *t->tenants);
    t->n_tenants = tenants;
    for (uint32_t i = 0; i < tenants; i++)
        (void)snprintf(t->tenants[i], SIM_TRACE_NAME_MAX, "t%u", i);
}

/* Bursts with pauses, of both classes where `mixed`; with `prefixes` some share their beginning. */
static void trace_random(struct sim_trace *t, uint64_t seed, uint32_t n, uint32_t tenants, bool mixed,
                         bool prefixes)
{
    uint64_t at = 0;
    trace_new(t, n, tenants);
    t->ranges = mem_array(n, sizeof *t->ranges);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t r = rand_at(seed, i);
        at += r % 7 == 0 ? r % (300 * MS) : r % (3 * MS);
        row(t, at, 1 + (uint32_t)(r >> 8) % 200, 1 + (uint32_t)(r >> 20) % 90,
            mixed && (r >> 40) % 3 == 0 ? CLASS_BATCH : CLASS_REALTIME, (uint16_t)((r >> 44) % tenants));
        if (!prefixes) continue;
        struct sim_trace_row *p = &t->rows[i];
        p->block_tokens = 16;
        p->range_at = t->n_ranges;
        p->n_ranges = 1;
        uint64_t from = (r >> 50) % 3 * 100;
        t->ranges[t->n_ranges++] = (struct sim_range){from, from + (p->n_prompt + 15) / 16 - 1};
    }
}

/* The report as JSON, everything in it. */
static void report(struct buf *out, const struct sim_trace *t, struct sim_totals *totals)
{
    struct sim_meter m;
    struct err e;
    ck_assert_int_eq(sim_meter_init(&m, t, &plan.classes), 0);
    ck_assert_msg(sim_cluster_run(&plan, t, &m, totals, &e) == 0, "%s", e.msg);
    struct sim_report r = {"as given", &plan, t, &m, totals};
    json_t *j = sim_report_json(&r);
    ck_assert_ptr_nonnull(j);
    ck_assert_int_eq(json_value_text(out, j), 0);
    json_decref(j);
    ck_assert_int_eq(sim_report_table(out, &r), 0);
    sim_meter_deinit(&m);
}

/* A (10 in, 3 out) comes at 0, B (20 in, 2 out) at 3 ms; a message takes 1 ms.
 *   worker: 1.0 to 3.0 A's prompt; to 4.1 A's second; B is there at 4.0; to 7.2 A's third and B's prompt; to 8.3 B. */
START_TEST(test_by_hand)
{
    struct sim_trace t;
    struct sim_totals totals;
    struct sim_meter m;
    struct err e;
    simple_plan();
    for (int runs = 0; runs < 2; runs++) {
        plan.runs = runs != 0;
        trace_new(&t, 2, 2);
        row(&t, 0, 10, 3, CLASS_REALTIME, 0);
        row(&t, 3 * MS, 20, 2, CLASS_REALTIME, 1);
        ck_assert_int_eq(sim_meter_init(&m, &t, &plan.classes), 0);
        ck_assert_int_eq(sim_cluster_run(&plan, &t, &m, &totals, &e), 0);
        ck_assert_uint_eq(m.seen[0].first_ns, 4 * MS);
        ck_assert_uint_eq(m.seen[0].done_ns, 82 * MS / 10);
        ck_assert_uint_eq(m.seen[1].first_ns, 82 * MS / 10);
        ck_assert_uint_eq(m.seen[1].done_ns, 93 * MS / 10);
        ck_assert_uint_eq(m.by_tenant[0].gap.sum_ns, 42 * MS / 10);
        ck_assert_uint_eq(m.by_tenant[0].gap.max_ns, 31 * MS / 10);
        ck_assert_uint_eq(m.by_tenant[1].ttft.max_ns, 52 * MS / 10);
        ck_assert_uint_eq(m.by_class[CLASS_REALTIME].kept, 2);
        ck_assert_uint_eq(totals.end_ns, 93 * MS / 10);
        ck_assert_uint_eq(totals.busy_ns[0], 73 * MS / 10);
        ck_assert_uint_eq(totals.steps, 4);
        ck_assert_uint_eq(totals.positions, 33);
        sim_meter_deinit(&m);
        sim_trace_free(&t);
    }
}
END_TEST

static void same_both_ways(const struct sim_trace *t, const char *what, bool expect_runs)
{
    struct buf steps = {0}, runs = {0}, again = {0};
    struct sim_totals totals;
    plan.runs = false;
    report(&steps, t, &totals);
    ck_assert_uint_eq(totals.run_steps, 0);
    plan.runs = true;
    report(&runs, t, &totals);
    if (expect_runs) ck_assert_uint_gt(totals.run_steps, totals.steps / 4);
    report(&again, t, &totals);
    ck_assert_msg(steps.len == runs.len && memcmp(steps.p, runs.p, runs.len) == 0,
                  "%s: steps and runs differ:\n%s\n%s", what, buf_str(&steps), buf_str(&runs));
    ck_assert_msg(again.len == runs.len && memcmp(again.p, runs.p, runs.len) == 0, "%s: twice", what);
    buf_deinit(&steps);
    buf_deinit(&runs);
    buf_deinit(&again);
}

START_TEST(test_steps_and_runs)
{
    struct sim_trace t;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        printf("seed %llu\n", (unsigned long long)seed);
        for (int kind = 0; kind < 8; kind++) {
            simple_plan();
            plan.workers = 1 + (uint32_t)seed % 3;
            plan.net_ns = seed % 2 == 0 ? MS : 1000;
            if ((kind & 1) != 0) plan.classes.rows[CLASS_BATCH].floor_permille = 100;
            if (seed % 3 == 0) hardware.n_blocks = 48; /* tight: sequences push each other out */
            hardware.model.coef[COST_READS] = 12345.678;
            trace_random(&t, seed, 150, (kind & 2) != 0 ? 5 : 1, (kind & 5) != 0, (kind & 4) != 0);
            char what[64];
            (void)snprintf(what, sizeof what, "seed %u kind %d", (unsigned)seed, kind);
            same_both_ways(&t, what, kind == 0 && seed % 3 != 0);
            sim_trace_free(&t);
        }
    }
}
END_TEST

static void roofline_file(const char *text, int rc, const char *says)
{
    char path[] = "/tmp/sim_hw_XXXXXX";
    struct err e;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
    int got = sim_hardware_read(&hardware, path, &e);
    unlink(path);
    ck_assert_msg(got == rc, "%s: %s", text, got == 0 ? "taken" : e.msg);
    if (rc != 0) ck_assert_msg(strstr(e.msg, says) != NULL, "%s", e.msg);
}

#define DEVICE "bandwidth_gb_s: 100\ntflops: 10\nlaunch_us: 50\nmemory_gb: 10\n"
#define MODEL "layers: 2\nhidden: 1000\nheads: 10\nkv_heads: 5\nhead_dim: 100\nffn: 2000\nvocab: 10000\n"

/* Two layers of 2 x 1000 x 1000 + 2 x 1000 x 500 + 3 x 1000 x 2000 = 9 M weights, 36 MB; head 20 MB; K and V of a
 * position 2 x 2 x 500 x 2 = 4000 bytes. */
START_TEST(test_roofline)
{
    simple_plan();
    roofline_file("# a card\n" DEVICE MODEL "max_seqs: 4  # few\n", 0, "");
    struct sim_shape s = {0};
    sim_shape_add(&s, 999, 1, 1);
    ck_assert_uint_eq(sim_model_ns(&hardware.model, &s), 50000 + 360000 + 200000 + 1000 * 40);
    struct sim_shape p = {0};
    sim_shape_add(&p, 0, 500, 0); /* 500 x 36 MFLOP, 125,250 pairs x 4 x 1000 x 2 flops */
    double compute = 500 * 36e6 / 1e4 + 125250 * 8000.0 / 1e4;
    ck_assert_uint_eq(sim_model_ns(&hardware.model, &p), (uint64_t)(50000 + compute));
    ck_assert_uint_eq(hardware.max_seqs, 4);
    ck_assert_uint_eq(hardware.n_blocks, (uint32_t)((9e9 - 36e6 - 40e6) / 64000));
    struct sim_trace t;
    trace_random(&t, 9, 150, 1, false, false);
    same_both_ways(&t, "roofline", true);
    sim_trace_free(&t);
}
END_TEST

START_TEST(test_hardware_hostile)
{
    simple_plan();
    roofline_file(DEVICE, -1, "layers is missing");
    roofline_file(DEVICE MODEL "colour: 3\n", -1, "line 12: unknown key 'colour'");
    roofline_file(DEVICE MODEL "tflops: 3\n", -1, "line 12: tflops comes twice");
    roofline_file(DEVICE MODEL "host_gb:\n", -1, "line 12: no number");
    roofline_file(DEVICE MODEL "host_gb\n", -1, "line 12: no 'key: value'");
    roofline_file(DEVICE MODEL "host_gb: 1e999\n", -1, "line 12: host_gb is not within");
    roofline_file(DEVICE MODEL "host_gb: nan\n", -1, "line 12: host_gb is not within");
    roofline_file("{\"layers\": 3", -1, "");
    roofline_file("{\"layers\": \"x\"}", -1, "layers is no number");
    roofline_file("bandwidth_gb_s: 100\ntflops: 10\nlaunch_us: 50\nmemory_gb: 0.05\n" MODEL, -1, "room for 0");
    roofline_file("", -1, "missing");
}
END_TEST

static int measured(const char *text, struct err *e)
{
    char path[] = "/tmp/sim_hw_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
    int rc = sim_hardware_from_worker(&hardware, path, e);
    unlink(path);
    return rc;
}

/* Rates that 4 ms a step, 0.5 ms a position and 1 ms per 1,000 positions read would give are found again. */
START_TEST(test_measured)
{
    struct err e;
    struct buf b = {0};
    ck_assert_int_eq(measured("{\"cost\": [1, 2, 3, 4, 5, 6, 7, 8], \"max_seqs\": 3}", &e), 0);
    ck_assert_double_eq(hardware.model.coef[COST_HEAD], 8);
    ck_assert_uint_eq(hardware.max_seqs, 3);
    ck_assert_int_eq(measured("{\"cost\": {\"one\": 5e6, \"first\": 2e5}}", &e), 0);
    ck_assert_double_eq(hardware.model.coef[COST_ONE], 5e6);
    ck_assert_int_eq(measured("{\"cost\": [1, 2]}", &e), -1);
    ck_assert_int_eq(measured("{\"cost\": [1, 2, 3, -4, 5, 6, 7, 8]}", &e), -1);
    ck_assert_int_eq(measured("{}", &e), -1);
    ck_assert_int_eq(measured("[]", &e), -1);
    ck_assert_int_eq(measured("{\"cases\": [{\"kind\": 7}]}", &e), -1);
    buf_adds(&b, "{\"cases\": [");
    static const int seqs[] = {1, 2, 4, 8, 16};
    for (int i = 0; i < 5; i++)
        for (int context = 128; context <= 2048; context += 640) {
            double ms = 4 + 0.5 * seqs[i] + 1e-3 * seqs[i] * (context + 1);
            buf_addf(&b, "{\"kind\": \"decode\", \"threads\": 1, \"seqs\": %d, \"context\": %d, "
                         "\"tokens_s\": {\"median\": %.6f}},", seqs[i], context, seqs[i] / ms * 1e3);
        }
    buf_adds(&b, "{\"kind\": \"decode\", \"skipped\": true}]}");
    ck_assert_msg(measured(buf_str(&b), &e) == 0, "%s", e.msg);
    for (int i = 0; i < 5; i++) {
        struct sim_shape s = {0};
        for (int k = 0; k < seqs[i]; k++) sim_shape_add(&s, 1000, 1, 1);
        double want = 4e6 + 0.5e6 * seqs[i] + 1e3 * seqs[i] * 1001;
        double got = (double)sim_model_ns(&hardware.model, &s);
        ck_assert_msg(fabs(got / want - 1) < 0.1, "%d sequences: %g for %g", seqs[i], got, want);
    }
    buf_deinit(&b);
}
END_TEST

/* Two gateways' workers: what one of them hears is the same both ways, too. */
START_TEST(test_two_cells)
{
    struct sim_trace t;
    simple_plan();
    plan.workers = GATEWAY_WORKERS_MAX + 6;
    plan.check = false;
    hardware.max_seqs = 2;
    trace_random(&t, 11, 2500, 7, true, false);
    same_both_ways(&t, "two cells", true);
    sim_trace_free(&t);
}
END_TEST

START_TEST(test_thousand_workers)
{
    struct sim_trace t;
    struct sim_totals totals;
    struct sim_meter m;
    struct err e;
    simple_plan();
    hardware.n_blocks = 64;
    plan.workers = 1000; /* 16 gateways */
    plan.check = false;
    trace_random(&t, 3, 3000, 1, false, false);
    ck_assert_int_eq(sim_meter_init(&m, &t, &plan.classes), 0);
    ck_assert_msg(sim_cluster_run(&plan, &t, &m, &totals, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(m.by_class[CLASS_REALTIME].finished, 3000);
    ck_assert_uint_eq(m.by_class[CLASS_REALTIME].kept, 3000);
    sim_meter_deinit(&m);
    sim_trace_free(&t);
}
END_TEST

START_TEST(test_what_if)
{
    struct sim_trace t;
    struct err e;
    char one[64];
    simple_plan();
    trace_new(&t, 1, 2);
    ck_assert_int_eq(sim_what_if_apply(&plan, &t, "workers=+2,weight:t1=4,floor:batch=5%", &e), 0);
    ck_assert_uint_eq(plan.workers, 3);
    ck_assert_uint_eq(plan.weights[1], 4000);
    ck_assert_uint_eq(plan.classes.rows[CLASS_BATCH].floor_permille, 50);
    ck_assert_int_eq(sim_what_if_apply(&plan, &t, "deadline:batch=1.5,ttft:realtime=200", &e), 0);
    ck_assert_uint_eq(plan.deadline_ns[CLASS_BATCH], 1500000000u);
    ck_assert_uint_eq(plan.classes.rows[CLASS_REALTIME].ttft_ms, 200);
    static const char *const wrong[] = {"",           "workers",       "workers=x",        "workers=-9",
                                        "workers=1.5", "weight:zz=2",  "weight:t1=0",      "floor:batch=99",
                                        "floor:realtime=5%", "floor:x=5", "speed=2",       "workers=2%",
                                        "workers=1,", "workers=1001"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(sim_what_if_apply(&plan, &t, wrong[i], &e) == -1, "%s was taken", wrong[i]);
    const char *left = "workers=1;floor:batch=2%";
    left = sim_what_if_next(left, one, sizeof one);
    ck_assert_str_eq(one, "workers=1");
    left = sim_what_if_next(left, one, sizeof one);
    ck_assert_str_eq(one, "floor:batch=2%");
    ck_assert_ptr_null(sim_what_if_next(left, one, sizeof one));
    sim_trace_free(&t);
}
END_TEST

START_TEST(test_hist)
{
    struct sim_hist *h = mem_zalloc(sizeof *h);
    ck_assert_double_eq(sim_hist_quantile(h, 0.5), 0);
    for (uint64_t i = 1; i <= 100000; i++) sim_hist_add(h, i * 1000);
    ck_assert_double_eq_tol(sim_hist_quantile(h, 0.5) / 50e6, 1, 0.008);
    ck_assert_double_eq_tol(sim_hist_quantile(h, 0.99) / 99e6, 1, 0.008);
    ck_assert_double_eq(sim_hist_mean(h), 50000500);
    uint32_t last = 0;
    for (uint64_t ns = 1; ns < 1ull << 60; ns += 1 + ns / 100) {
        ck_assert_uint_ge(sim_hist_bucket(ns), last);
        last = sim_hist_bucket(ns);
    }
    ck_assert_uint_lt(last, SIM_HIST_BUCKETS);
    for (int i = 0; i < 2000; i++) sim_hist_endless(h);
    ck_assert(isinf(sim_hist_quantile(h, 0.99)) && isfinite(sim_hist_quantile(h, 0.95)));
    mem_free(h);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sim_cluster");
    TCase *c = tcase_create("all");
    tcase_add_test(c, test_by_hand);
    tcase_add_test(c, test_steps_and_runs);
    tcase_add_test(c, test_roofline);
    tcase_add_test(c, test_hardware_hostile);
    tcase_add_test(c, test_measured);
    tcase_add_test(c, test_two_cells);
    tcase_add_test(c, test_thousand_workers);
    tcase_add_test(c, test_what_if);
    tcase_add_test(c, test_hist);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
