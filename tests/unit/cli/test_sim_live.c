/* A measured worker: the model and the scatter that come out of a made-up log are those that went in, the file says what
 * was written, and what is drawn follows it. */
#include "base/hash.h"
#include "cli/sim_cluster.h"
#include "cli/sim_fit.h"
#include "tests/common/test_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEPS 600

static char path[32];

static FILE *make(void)
{
    strcpy(path, "/tmp/sim_live_XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    return fdopen(fd, "w");
}

static const char config[] =
    "{\"config\":{\"max_slots\":8,\"max_seqs\":4,\"n_ctx\":512,\"n_blocks\":65,\"block_tokens\":16,"
    "\"n_host\":0,\"prefill_chunk\":64,\"n_segments\":10,\"copy_ns\":1000}}\n";

/* 2 ms a step, 0.5 ms a position up to the knee, 0.1 ms behind it. */
static uint64_t true_ns(uint32_t n)
{
    uint32_t first = n < COST_KNEE ? n : COST_KNEE;
    return 2000000u + 500000u * first + 100000u * (n - first);
}

/* One request a step: submitted, computed, ended. Every tenth step is a third slower. */
static void write_log(bool park)
{
    FILE *f = make();
    uint64_t now = 1000000000u;
    fputs(config, f);
    fprintf(f, "{\"ns\":1,\"event\":\"session_up\",\"gateway\":15430389036859079202}\n");
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t n = 1 + (uint32_t)(rand_at(7, i) % 40);
        uint64_t ns = i % 10 == 4 ? true_ns(n) * 4 / 3 : true_ns(n);
        bool bad = park && i % 2 == 1;
        fprintf(f, "{\"ns\":%llu,\"event\":\"submit\",\"slot\":1,\"rank\":0,\"refused\":false}\n",
                (unsigned long long)now);
        fprintf(f, "{\"ns\":%llu,\"action\":\"step_submit\",\"step\":%u,\"rank\":0,\"spans\":[[1,0,%u,0,0,0]]}\n",
                (unsigned long long)now, i + 1, n);
        if (bad) fprintf(f, "{\"ns\":%llu,\"action\":\"step_park\",\"step\":%u}\n", (unsigned long long)now, i + 1);
        now += bad ? 50 * ns : ns;
        fprintf(f, "{\"ns\":%llu,\"event\":\"step_end\",\"step\":%u,\"failed\":false}\n", (unsigned long long)now,
                i + 1);
        fprintf(f, "{\"ns\":%llu,\"action\":\"tokens\",\"slot\":1,\"finish\":\"length\"}\n", (unsigned long long)now);
        now += 1000;
    }
    fprintf(f, "{\"ns\":1,\"ev"); /* a worker that was still writing */
    fclose(f);
}

static double modelled(const struct sim_model *m, uint32_t n)
{
    struct sim_shape s = {0};
    sim_shape_add(&s, 0, n, 0);
    s.s.pairs = 0;
    return (double)sim_model_ns(m, &s);
}

static void check_fit(bool park, uint32_t steps)
{
    struct sim_fit *f = calloc(1, sizeof *f);
    struct err e;
    write_log(park);
    ck_assert_msg(sim_fit_read(f, path, &e) == 0, "%s", e.msg);
    unlink(path);
    ck_assert_uint_eq(f->n_steps, steps);
    ck_assert_uint_eq(f->n_requests, STEPS);
    ck_assert(f->requests[5].first_ns > f->requests[5].at_ns && f->requests[5].end_ns != 0);
    ck_assert_uint_eq(f->hardware.n_blocks, 64);
    for (uint32_t n = 1; n < 40; n += 6) {
        double off = modelled(&f->hardware.model, n) / (double)true_ns(n) - 1;
        ck_assert_msg(fabs(off) < 0.05, "%u positions: %g off", n, off);
    }
    const struct sim_live *l = &f->hardware.live;
    uint32_t all = 0, slow = 0;
    for (int k = 0; k < SIM_LIVE_KINDS; k++)
        for (uint32_t i = 0; i < l->n_ratios[k]; i++, all++) slow += l->ratios[k][i] > 1.2f;
    ck_assert_uint_eq(all, steps);
    ck_assert_uint_eq(slow, STEPS / 10); /* the slow ones are even, the parked ones odd */
    sim_fit_deinit(f);
    free(f);
}

START_TEST(test_fit)
{
    check_fit(false, STEPS);
    check_fit(true, STEPS / 2); /* what was parked says nothing */
}
END_TEST

static void refused(const char *text, const char *says)
{
    struct sim_fit *f = calloc(1, sizeof *f);
    struct err e;
    FILE *o = make();
    fputs(text, o);
    fclose(o);
    ck_assert_int_eq(sim_fit_read(f, path, &e), -1);
    ck_assert_msg(strstr(e.msg, says) != NULL, "%s", e.msg);
    unlink(path);
    free(f);
}

START_TEST(test_refused)
{
    char two[2 * sizeof config];
    (void)snprintf(two, sizeof two, "%s%s", config, config);
    refused("{\"a\":1}\n", "no event log");
    refused("nonsense\n", "line 1");
    refused(two, "another worker");
    refused(config, "0 undisturbed steps");
    refused("{\"config\":{\"max_seqs\":4}}\n", "configuration");
}
END_TEST

START_TEST(test_file_and_draws)
{
    struct sim_hardware *h = calloc(1, sizeof *h), *g = calloc(1, sizeof *g);
    struct err e;
    FILE *f = make();
    fclose(f);
    sim_hardware_default(h);
    h->model = (struct sim_model){.kind = SIM_MODEL_LINEAR, .coef = {2e6, 3e5, 1e5}};
    h->copy_ns = 70000;
    h->n_host = 12;
    h->live.n_ratios[9] = 2;
    h->live.ratios[9][0] = 0.5f;
    h->live.ratios[9][1] = 1.5f;
    h->live.has_path = true;
    for (uint32_t i = 0; i < SIM_LIVE_PATH; i++) {
        h->live.path_ns[0][i] = 1000 * i;
        h->live.path_ns[1][i] = 500000;
    }
    ck_assert_msg(sim_hardware_write(h, path, &e) == 0, "%s", e.msg);
    ck_assert_msg(sim_hardware_from_worker(g, path, &e) == 0, "%s", e.msg);
    unlink(path);
    ck_assert_int_eq(memcmp(&g->live, &h->live, sizeof g->live), 0);
    ck_assert_int_eq(memcmp(&g->model, &h->model, sizeof g->model), 0);
    ck_assert(g->n_blocks == h->n_blocks && g->n_host == 12 && g->copy_ns == 70000);
    double sum = 0, low = 0;
    for (uint64_t i = 0; i < 100; i++) sum += sim_live_ratio(&g->live, 1, 3, i); /* a kind of which there are none */
    ck_assert_double_eq_tol(sum, 100, 1e-9);
    for (uint32_t i = 0; i < 4000; i++) {
        uint64_t ns = sim_live_path_ns(&g->live, 1, i, 0, 0);
        ck_assert_uint_le(ns, 64000);
        low += ns <= 16000;
    }
    ck_assert_double_eq_tol(low / 4000, 0.25, 0.03);
    ck_assert_uint_eq(sim_live_path_ns(&g->live, 1, 5, 1, 200000), 300000); /* what is known is not counted twice */
    ck_assert_uint_eq(sim_live_path_ns(&g->live, 1, 5, 1, 600000), 0);
    free(h);
    free(g);
}
END_TEST

START_TEST(test_kinds)
{
    struct sim_live_place p = {0};
    uint32_t first = sim_live_kind(&p, 0, 30, 1000000000u);
    p.end_ns = 1030000000u;
    uint32_t second = sim_live_kind(&p, 0, 1, 1030000000u), same, other;
    ck_assert_uint_ne(first, second);
    for (int i = 0; i < 5; i++) same = sim_live_kind(&p, 0, 1, 1030000000u);
    ck_assert_uint_eq(same, sim_live_kind(&p, 0, 1, 1030000000u));
    other = sim_live_kind(&p, 1, 1, 1030000000u);
    ck_assert_uint_lt(other, SIM_LIVE_KINDS);
    ck_assert_uint_ne(sim_live_kind(&p, 0, 30, 1030000000u), first); /* behind the other rank, not behind a pause */
    ck_assert_uint_eq(sim_live_kind(&p, 0, 30, 1100000000u), first);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sim_live");
    TCase *c = tcase_create("all");
    tcase_add_test(c, test_fit);
    tcase_add_test(c, test_refused);
    tcase_add_test(c, test_file_and_draws);
    tcase_add_test(c, test_kinds);
    suite_add_tcase(s, c);
    return test_run(s);
}
