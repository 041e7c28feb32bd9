/* Figures, checks and reports of a measurement made by hand, and the list of arrivals. */
#include "base/mem.h"
#include "cli/bench_mixed_report.h"
#include "tests/common/test_run.h"
#include "tests/unit/cli/cli_file.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#define N 50
#define WALL_MS 10000.0

static struct mixed *m;

static void piece(struct answer *a, double at_ms) {
    a->pieces = mem_realloc(a->pieces, (a->n_pieces + 1) * sizeof(*a->pieces));
    ck_assert_ptr_nonnull(a->pieces);
    a->n_pieces++;
    a->pieces[a->n_pieces - 1] = (struct answer_piece){at_ms, a->n_pieces};
    a->tokens = a->n_pieces;
}

static void finish(struct answer *a, double at_ms) {
    a->whole = true;
    a->finish_ms = at_ms;
    snprintf(a->finish, sizeof(a->finish), "length");
}

/* Each arrival: first token after ttft, then four gaps. */
static void realtime(struct arm *a, double ttft, double gap) {
    a->plan = &m->plan;
    a->rt = mem_array(N + 1, sizeof(*a->rt));
    for (uint32_t i = 0; i < N; i++) {
        struct arm_request *r = &a->rt[i];
        r->first_sent_ms = a->from_ms + m->plan.rows[i].at_s * 1e3;
        for (int k = 0; k < 5; k++)
            piece(&r->answer, r->first_sent_ms + ttft + gap * k);
        finish(&r->answer, r->first_sent_ms + ttft + gap * 4);
    }
}

/* One stream of `n` tokens spread over the arm. */
static void batch(struct arm *a, uint32_t n) {
    a->batch = mem_array(1, sizeof(*a->batch));
    a->batch[0] = mem_zalloc(sizeof(**a->batch));
    a->n_batch = a->cap_batch = 1;
    for (uint32_t i = 0; i < n; i++)
        piece(&a->batch[0]->answer, a->from_ms + WALL_MS * (i + 0.5) / n);
    finish(&a->batch[0]->answer, a->to_ms);
}

static void setup(void) {
    cli_setup();
    m = mem_zalloc(sizeof(*m));
    m->o = (struct mixed_options){.engine = "cpu",
                                  .seats = 4,
                                  .keep = 32,
                                  .batch_in = 24,
                                  .batch_out = 24,
                                  .threads = 1,
                                  .slo_ttft_ms = 200,
                                  .slo_gap_ms = 50,
                                  .seed = 1};
    m->kv_tokens = 128;
    m->idle_busy = 0.001;
    m->n_runs = 1;
    snprintf(m->model, sizeof(m->model), "a<b>");
    snprintf(m->engine_note, sizeof(m->engine_note), "not checked: by hand");
    ck_assert_int_eq(load_plan_make(&m->plan, 1, N, N / (WALL_MS / 1e3), NULL), 0);
    for (int k = 0; k < MIXED_ARMS; k++) {
        struct arm *a = &m->runs[0].arms[k];
        bool alone = k == MIXED_A1 || k == MIXED_A2, mixed = k == MIXED_M1 || k == MIXED_M2;
        a->from_ms = 1e6 * (k + 1);
        a->to_ms = a->from_ms + WALL_MS;
        a->cpu_s = 4;
        a->shortest = 30;
        if (alone || mixed)
            realtime(a, alone ? 10 : 10.4, alone ? 5 : 5.1);
        if (!alone)
            batch(a, mixed ? 580 : 1000);
    }
}

static void teardown(void) {
    mixed_deinit(m);
    mem_free(m);
    cli_teardown();
}

static const struct mixed_check *check_of(const char *name) {
    for (uint32_t i = 0; i < m->runs[0].n_checks; i++)
        if (strcmp(m->runs[0].checks[i].name, name) == 0)
            return &m->runs[0].checks[i];
    ck_abort_msg("no check %s", name);
    return NULL;
}

START_TEST(figures_are_what_the_arms_say) {
    struct mixed_run *r = &m->runs[0];
    ck_assert_int_eq(mixed_figures(m, r, NULL), 0);
    for (int k = 0; k < STATS_KINDS; k++) {
        ck_assert_double_eq_tol(r->ratios[MIXED_TTFT][k].ratio, 1.04, 1e-6);
        ck_assert_double_eq_tol(r->ratios[MIXED_GAP][k].ratio, 1.02, 1e-6);
        ck_assert_double_eq_tol(r->ratios[MIXED_E2E][k].alone, 30, 1e-6);
    }
    ck_assert_double_eq_tol(r->u, 0.4, 1e-9);
    ck_assert_double_eq_tol(r->harvest.alone, 100, 1e-9);
    ck_assert_double_eq_tol(r->harvest.ratio, 0.58 / 0.6, 1e-9);
    ck_assert_double_eq(r->attained[0].ratio, 1);
    ck_assert_double_eq_tol(r->goodput[1], 2 * N / (2 * WALL_MS / 1e3), 1e-9);
    mixed_check_all(m, r);
    ck_assert(r->valid && r->held);
    ck_assert_int_eq(check_of("TTFT p99")->state, MIXED_HELD);
    ck_assert_int_eq(check_of("baseline TTFT")->state, MIXED_NOT_CHECKED);
}
END_TEST

START_TEST(an_answer_that_never_came_is_an_infinite_wait) {
    struct mixed_run *r = &m->runs[0];
    r->arms[MIXED_M1].rt[7].answer.whole = false;
    ck_assert_int_eq(mixed_figures(m, r, NULL), 0);
    mixed_check_all(m, r);
    ck_assert(!r->held);
    ck_assert_int_eq(check_of("TTFT mean")->state, MIXED_MISSED);
    ck_assert_int_eq(check_of("TTFT p50")->state, MIXED_HELD);
    ck_assert_int_eq(check_of("alone arms answered")->state, MIXED_HELD);
    ck_assert_uint_eq(r->rows[MIXED_M1].answered, N - 1);
    ck_assert_double_eq_tol(r->attained[1].ratio, 1 - 1.0 / (2 * N), 1e-9);
}
END_TEST

START_TEST(each_condition_can_void_a_run) {
    struct mixed_run *r = &m->runs[0];
    r->arms[MIXED_A1].rt[3].answer.whole = false;
    r->arms[MIXED_M2].shortest = 15;
    r->arms[MIXED_B1].late_p99_ms = 3;
    r->arms[MIXED_A1].cpu_s = r->arms[MIXED_A2].cpu_s = 6;
    m->idle_busy = 0.03;
    m->kv_tokens = 144;
    r->engine = (struct mixed_engine){1e4, {1e3, 1e3, 1e3, 1e3}, 1e4, 1e3, 4};
    ck_assert_int_eq(mixed_figures(m, r, NULL), 0);
    r->u_engine = mixed_engine_busy(r);
    mixed_check_all(m, r);
    ck_assert(!r->valid);
    static const char *const names[] = {"A arms agree",
                                        "alone arms answered",
                                        "backlog never empty",
                                        "driver on time",
                                        "U in range",
                                        "idle worker",
                                        "KV pool",
                                        "baseline TTFT",
                                        "baseline batch",
                                        "U against the engine"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        ck_assert_msg(check_of(names[i])->state == MIXED_MISSED, "%s", names[i]);
}
END_TEST

/* Steps of one sequence at 200 tokens/s, prompts at 1,000: each arrival costs its prompt and four
 * decodes. */
START_TEST(the_engines_cost_of_the_same_requests) {
    struct mixed_run *r = &m->runs[0];
    double cost = 0;
    r->engine = (struct mixed_engine){1000, {200, 400, 800, 1600}, 1, 1, 1};
    for (int k = MIXED_A1; k <= MIXED_A2; k += MIXED_A2 - MIXED_A1)
        for (uint32_t i = 0; i < N; i++) {
            r->arms[k].rt[i].ask.n_in = 20;
            r->arms[k].rt[i].first_sent_ms = r->arms[k].from_ms + 100.0 * i;
            for (int p = 0; p < 5; p++) /* none beside another */
                r->arms[k].rt[i].answer.pieces[p].at_ms = r->arms[k].rt[i].first_sent_ms + 10 + p;
            r->arms[k].rt[i].answer.finish_ms = r->arms[k].rt[i].first_sent_ms + 14;
            cost += 20 / 1000.0 + 4 / 200.0;
        }
    ck_assert_double_eq_tol(mixed_engine_busy(r), cost / (2 * WALL_MS / 1e3), 1e-9);
}
END_TEST

START_TEST(reports_say_the_same) {
    struct mixed_run *r = &m->runs[0];
    struct buf page = {0};
    char *text = NULL;
    size_t n = 0;
    m->kill.done = true;
    m->kill.realtime = 3;
    m->kill.batch = 4;
    m->kill.lost = 1;
    r->rt = (struct mixed_counts){100, 100, 0};
    ck_assert_int_eq(mixed_figures(m, r, NULL), 0);
    mixed_check_all(m, r);
    json_t *j = mixed_report_json(m);
    const json_t *run = json_array_get(json_object_get(j, "runs"), 0);
    ck_assert_double_eq_tol(
        json_real_value(json_object_get(json_object_get(run, "harvest"), "ratio")),
        r->harvest.ratio, 1e-12);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(j, "kill"), "lost")), 1);
    ck_assert(json_is_false(json_object_get(run, "held"))); /* one lost */
    ck_assert(json_is_true(json_object_get(run, "valid")));
    json_decref(j);
    FILE *f = open_memstream(&text, &n);
    mixed_report_table(m, f);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "1.040"));
    ck_assert_ptr_nonnull(strstr(text, "1 lost, 0 doubled of 3 real-time and 4 batch"));
    ck_assert_ptr_nonnull(strstr(text, "claims nothing below 2000"));
    free(text); /* the library's block */
    ck_assert_int_eq(mixed_report_html(&page, m), 0);
    ck_assert_ptr_nonnull(strstr(buf_str(&page), "<svg"));
    ck_assert_ptr_nonnull(strstr(buf_str(&page), "a&#60;b&#62;"));
    ck_assert_ptr_null(strstr(buf_str(&page), "a<b>"));
    ck_assert_ptr_null(strstr(buf_str(&page), "src="));
    ck_assert_ptr_null(strstr(buf_str(&page), "nan"));
    buf_deinit(&page);
}
END_TEST

START_TEST(a_list_is_written_and_read_back) {
    struct load_plan p, back;
    struct err e;
    const char *path = cli_path("list.csv");
    ck_assert_int_eq(load_plan_make(&p, 9, 100, 5, &e), 0);
    for (uint32_t i = 0; i < p.n; i++) {
        ck_assert(p.rows[i].n_in >= 16 && p.rows[i].n_in <= 32);
        ck_assert(p.rows[i].n_out >= 4 && p.rows[i].n_out <= 12);
    }
    double length = load_plan_length_s(&p);
    load_plan_set_rate(&p, 10);
    ck_assert_double_eq_tol(load_plan_length_s(&p), length / 2, 1e-9);
    ck_assert_int_eq(load_plan_write(&p, path, &e), 0);
    ck_assert_int_eq(load_plan_read(&back, path, 60, &e), 0);
    ck_assert_uint_eq(back.n, 60);
    for (uint32_t i = 0; i < back.n; i++) {
        ck_assert_double_eq_tol(back.rows[i].at_s, p.rows[i].at_s - p.rows[0].at_s, 2e-3);
        ck_assert_uint_eq(back.rows[i].n_in, p.rows[i].n_in);
        ck_assert_uint_eq(back.rows[i].n_out, p.rows[i].n_out);
    }
    load_plan_deinit(&back);
    load_plan_deinit(&p);
}
END_TEST

START_TEST(traces_batch_rows_and_nonsense) {
    struct load_plan p;
    struct err e;
    const char *path = cli_write_text(
        "t.csv", "# a comment\nclass,arrival_ms,output_tokens,input_tokens\nrealtime,5,7,9\n"
                 "batch,6,1,1\n,1005,2,3\n");
    ck_assert_int_eq(load_plan_read(&p, path, 10, &e), 0);
    ck_assert_uint_eq(p.n, 2);
    ck_assert_double_eq_tol(p.rows[1].at_s, 1, 1e-9);
    ck_assert_uint_eq(p.rows[0].n_in, 9);
    load_plan_deinit(&p);
    static const char *const bad[] = {"",
                                      "arrival_ms,input_tokens\n1,1\n2,2\n",
                                      "arrival_ms,input_tokens,output_tokens\n1,1,x\n2,2,2\n",
                                      "arrival_ms,input_tokens,output_tokens\n5,1,1\n2,2,2\n",
                                      "arrival_ms,input_tokens,output_tokens\n5,1,0\n6,2,2\n",
                                      "arrival_ms,input_tokens,output_tokens\n5,1,1\n5,1,1\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(load_plan_read(&p, cli_write_text("bad.csv", bad[i]), 10, &e), -1);
    ck_assert_int_eq(load_plan_read(&p, cli_path("none.csv"), 10, &e), -1);
}
END_TEST

START_TEST(a_request_is_a_function_of_its_fields) {
    struct ask_style s = {.model = "m", .id_low = 10, .id_high = 20, .batch_tier = "flex"};
    struct ask a = {.seed = 3, .index = 1, .n_in = 5, .n_out = 7};
    struct buf x = {0}, y = {0};
    ck_assert_int_eq(ask_body(&x, &s, &a), 0);
    ck_assert_int_eq(ask_body(&y, &s, &a), 0);
    ck_assert_str_eq(buf_str(&x), buf_str(&y));
    json_t *j = json_loads(buf_str(&x), 0, NULL);
    const json_t *ids = json_object_get(j, "prompt");
    ck_assert_uint_eq(json_array_size(ids), 5);
    for (size_t i = 0; i < 5; i++) {
        json_int_t id = json_integer_value(json_array_get(ids, i));
        ck_assert(id >= 10 && id < 20);
    }
    ck_assert_int_eq(json_integer_value(json_object_get(j, "max_tokens")), 7);
    ck_assert_ptr_null(json_object_get(j, "service_tier"));
    json_decref(j);
    a.batch = true;
    buf_clear(&y);
    ck_assert_int_eq(ask_body(&y, &s, &a), 0);
    ck_assert_ptr_nonnull(strstr(buf_str(&y), "\"service_tier\":\"flex\""));
    for (uint64_t i = 0; i < 200; i++)
        ck_assert(ask_length(5, i, 160) >= 80 && ask_length(5, i, 160) <= 240);
    ck_assert_uint_ge(ask_length(5, 0, 1), 1);
    buf_deinit(&x);
    buf_deinit(&y);
}
END_TEST

START_TEST(metrics_are_summed_over_labels) {
    struct bench_counters c;
    bench_counters_parse(&c, "# HELP x\nsluice:steps_parked_total{a=\"1\"} 3\n"
                             "sluice:steps_parked_total{a=\"2\"} 4\nsluice:steps_parked_total_x 9\n"
                             "vllm:num_requests_running 2\n");
    ck_assert(c.known);
    ck_assert_double_eq(c.parks, 7);
    ck_assert_double_eq(c.running, 2);
    bench_counters_parse(&c, "vllm:num_requests_running 1\n");
    ck_assert(!c.known);
    bench_counters_parse(&c, "");
    ck_assert(!c.known);
}
END_TEST

int main(void) {
    Suite *s = suite_create("bench_mixed");
    TCase *t = tcase_create("bench_mixed");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, figures_are_what_the_arms_say);
    tcase_add_test(t, an_answer_that_never_came_is_an_infinite_wait);
    tcase_add_test(t, each_condition_can_void_a_run);
    tcase_add_test(t, the_engines_cost_of_the_same_requests);
    tcase_add_test(t, reports_say_the_same);
    tcase_add_test(t, a_list_is_written_and_read_back);
    tcase_add_test(t, traces_batch_rows_and_nonsense);
    tcase_add_test(t, a_request_is_a_function_of_its_fields);
    tcase_add_test(t, metrics_are_summed_over_labels);
    suite_add_tcase(s, t);
    return test_run(s);
}
