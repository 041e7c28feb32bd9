/* Random parks, drops, forgotten blocks and steps of an upper rank in between, with and without
 * chaos: every sequence ends with the ids it makes alone. The seed of a failing run is printed;
 * SLUICE_SEED repeats it. */
#include "tests/common/testpaths.h"
#include "tests/unit/worker/engine/engine_rig.h"

#include <check.h>
#include <string.h>

#define LOWER 6 /* sequences of the lower rank; the last ones are of the upper */
#define SEQS 8
#define N_NEW 12
#define TINY_WANTED 1000 /* parks and drops, each engine */

static struct rig rig;
static struct rig_step low, up;
static struct rig_seq want[SEQS], seqs[SEQS];
static uint64_t seed, draws, parks, drops, uppers;

static uint64_t draw(uint64_t below)
{
    return rand_at(seed, draws++) % below;
}

static uint32_t prompt_len(uint32_t i)
{
    return 3 + 13 * i;
}

static float temperature(uint32_t i)
{
    return i % 2 ? 0.8f : 0;
}

static bool finished(uint32_t i)
{
    return seqs[i].n_ids == prompt_len(i) + N_NEW;
}

static void make_want(void)
{
    for (uint32_t i = 0; i < SEQS; i++) {
        rig_seq_random(&rig, &want[i], 40 + i, prompt_len(i));
        rig_generate(&rig, &want[i], N_NEW, 512, temperature(i), 70 + i, false);
        rig_seq_free(&rig, &want[i]);
    }
}

/* Adds the sequence's next chunk, of a random length, with a row when it is the last. */
static void add_span(struct rig_step *st, uint32_t i)
{
    uint32_t left = seqs[i].n_ids - seqs[i].n_done;
    uint32_t n = 1 + (uint32_t)draw(left < 24 ? left : 24);
    if (draw(3) == 0)
        n = left;
    uint32_t span = rig_span(&rig, st, &seqs[i], n);
    if (n == left)
        rig_row(st, span, n - 1, ENGINE_ROW_SAMPLE)->params =
            rig_params(temperature(i), 70 + i, seqs[i].n_ids);
}

static bool was_dropped(const struct rig_step *st, uint32_t span)
{
    for (uint32_t k = 0; k < rig.n_events; k++)
        if (rig.events[k].kind == ENGINE_SPAN_DROPPED && rig.events[k].id == st->step.id &&
            rig.events[k].span == span)
            return true;
    return false;
}

/* Takes what a step made: ids of living spans; a dropped one is computed again, sometimes from the
 * start. */
static void collect(struct rig_step *st)
{
    rig_end(&rig, st);
    for (uint32_t r = 0; r < st->step.n_rows; r++) {
        uint32_t span = st->rows[r].span;
        struct rig_seq *q = st->seqs[span];
        if (was_dropped(st, span))
            continue;
        q->ids[q->n_ids++] = engine_step_result(rig.eng, st->step.id, r)->id;
    }
    for (uint32_t s = 0; s < st->step.n_spans; s++)
        if (was_dropped(st, s)) {
            drops++;
            if (draw(3) == 0)
                rig_seq_free(&rig, st->seqs[s]); /* preempted: its blocks go to others */
        }
    rig_release(&rig, st);
}

static bool build(struct rig_step *st, uint32_t from, uint32_t to)
{
    rig_step_init(&rig, st);
    for (uint32_t i = from; i < to; i++)
        if (!finished(i) && draw(5) > 0)
            add_span(st, i);
    return st->step.n_spans > 0;
}

static void drop_some(void)
{
    uint32_t span = (uint32_t)draw(low.step.n_spans);
    rig_require(engine_step_drop_span(rig.eng, low.step.id, span) == 0);
}

static void while_parked(void)
{
    parks++;
    if (draw(2) == 0 && build(&up, LOWER, SEQS)) {
        rig_submit(&rig, &up);
        collect(&up);
        uppers++;
    }
    if (draw(4) == 0)
        drop_some();
    rig_require(engine_step_continue(rig.eng, low.step.id) == 0);
}

/* One step of the lower rank, disturbed until it ends. */
static void lower_step(void)
{
    rig_submit(&rig, &low);
    while (rig_event(&rig, ENGINE_STEP_END, low.step.id) == NULL) {
        switch (draw(4)) {
        case 0: rig_pump(&rig, (int)draw(2)); break;
        case 1:
            if (draw(3) == 0)
                drop_some();
            break;
        default:
            rig_require(engine_step_park(rig.eng, low.step.id) == 0);
            if (rig_await_stop(&rig, low.step.id)->kind == ENGINE_STEP_PARKED)
                while_parked();
        }
    }
    collect(&low);
}

static void round_of(void)
{
    bool open = true;
    for (uint32_t i = 0; i < SEQS; i++)
        rig_seq_random(&rig, &seqs[i], 40 + i, prompt_len(i));
    while (open) {
        if (build(&low, 0, LOWER))
            lower_step();
        if (build(&up, LOWER, SEQS)) { /* the upper ones must end too */
            rig_submit(&rig, &up);
            collect(&up);
        }
        open = false;
        for (uint32_t i = 0; i < SEQS; i++)
            open |= !finished(i);
    }
    for (uint32_t i = 0; i < SEQS; i++) {
        ck_assert_msg(memcmp(seqs[i].ids, want[i].ids, seqs[i].n_ids * sizeof(int32_t)) == 0,
                      "sequence %u differs from itself alone; SLUICE_SEED=%llu", i,
                      (unsigned long long)seed);
        rig_seq_free(&rig, &seqs[i]);
    }
}

static void churn(const char *backend, uint64_t chaos, uint64_t wanted)
{
    struct engine_config cfg = rig_config(backend);
    cfg.n_threads = 2;
    cfg.n_blocks = 128; /* few: blocks change hands all the time */
    cfg.max_rows = 64;
    cfg.chaos_seed = chaos;
    cfg.null_step_ns = 50000;
    rig_open(&rig, test_tiny_path(), &cfg);
    make_want();
    parks = drops = uppers = 0;
    for (uint32_t rounds = 0; rounds < 500 && parks + drops < wanted; rounds++)
        round_of();
    printf("%s%s, seed %llu: %llu parks, %llu drops, %llu upper steps between\n", backend,
           chaos ? " with chaos" : "", (unsigned long long)seed, (unsigned long long)parks,
           (unsigned long long)drops, (unsigned long long)uppers);
    ck_assert_uint_ge(parks + drops, wanted);
    ck_assert_uint_gt(drops, 0);
    ck_assert_uint_gt(uppers, 0);
    rig_close(&rig);
}

#ifdef SLUICE_TSAN
#define PART 10 /* the scalar kernels are 20 times slower there */
#else
#define PART 1
#endif

START_TEST(null_engine)
{
    churn("null", (uint64_t)_i, TINY_WANTED / (_i ? 2 : 1));
}
END_TEST

START_TEST(cpu_engine)
{
    churn("cpu", (uint64_t)_i, TINY_WANTED / PART / (_i ? 5 : 1));
}
END_TEST

int main(void)
{
    if (test_tiny_path() == NULL)
        return test_skip("the tiny model was not built");
    const char *s = getenv("SLUICE_SEED");
    seed = s != NULL ? strtoull(s, NULL, 10) : 20260101;
    Suite *suite = suite_create("engine_churn");
    TCase *t = tcase_create("churn");
    tcase_add_loop_test(t, null_engine, 0, 2);
    tcase_add_loop_test(t, cpu_engine, 0, 2);
    tcase_set_timeout(t, 0);
    suite_add_tcase(suite, t);
    SRunner *run = srunner_create(suite);
    srunner_set_fork_status(run, CK_NOFORK);
    srunner_run_all(run, CK_NORMAL);
    int failed = srunner_ntests_failed(run);
    srunner_free(run);
    return failed != 0;
}
