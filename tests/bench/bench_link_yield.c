/* bench_link_yield.c - how long a real-time request waits for the device: from the sender's stamp
 * to its first computed segment, as a part of the lower step it interrupts.
 *
 * What is measured, exactly. The sender stamps before it sends. The worker's event log says when
 * worker_core submitted the first step with a span of the request (nothing computes before), when
 * that step's end was heard, its computing time and its number of segments. Both stamps are
 * CLOCK_MONOTONIC of one machine. So the first segment
 *   began after  submit_ns                 and before  end_ns - device_ns,
 *   was computed before  end_ns - device_ns + device_ns / segments (segments take equal parts).
 * The verdict takes the last of the three, the latest moment it can be: link, decoding, the
 * decision, the wait for the segment boundary, every wake-up on the way and that segment itself.
 * The step's length is its own device_ns (parked time excluded). A try counts if a lower step of
 * the wanted shape ran when worker_core heard of the request, and both ends are in the log.
 *
 * Shapes: (a) a lower step of >= 256 positions of prompts, whatever it is cut into; (b) 16 spans of
 * one position, each behind >= --context. The planner lets a lower step last no longer than
 * segments / 10 of the median real-time TTFT (so that a segment is at most a tenth of it), and
 * --batch-interference cannot lift that; on one core 256 positions last longer than that beside
 * short requests. So the real-time requests of (a) have prompts of 96 to 128 ids, those of (b) 32
 * to 48; --batch-interference is 5, the default. A longer prompt makes its first segment, which is
 * part of what is judged, longer, not shorter. */
#include "tests/bench/bench_link.h"
#include "tests/bench/bench_link_log.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define WARM_TRIES 16 /* until the planner's median TTFT is that of these requests */

struct yield {
    struct bench_options o;
    struct bench_report *r;
    struct link_driver d;
    bool decode; /* (b) */
    struct driver_request *tries, *batch;
    uint32_t n_tries, n_batch, live_batch, cap_batch;
    bool answered;
    char log[4300];
};

static void ended(void *ctx, struct driver_request *r) {
    struct yield *y = ctx;
    if (r->cls == CLASS_REALTIME)
        y->answered = true;
    else
        y->live_batch--;
}

/* (a) long prompts that make one id, always some waiting; (b) as many long sequences as wanted. */
static int top_up(struct yield *y, struct err *e) {
    uint32_t keep = y->decode ? 16 : 6;
    while (y->live_batch < keep && y->n_batch < y->cap_batch) {
        struct driver_request *r = &y->batch[y->n_batch];
        uint32_t n_in = y->decode ? y->o.context + 8 : 4 * 256;
        if (driver_request_init(r, CLASS_BATCH, y->o.seed ^ 0xba7u, y->n_batch, n_in,
                              y->decode ? 4000 : 1, y->d.hello.n_vocab)
            != 0)
            return err_set(e, ERR_NO_MEMORY, "no memory");
        y->n_batch++;
        int rc = driver_submit(&y->d, r);
        if (rc != 0)
            return err_set(e, ERR_WORKER_LOST, "a batch sequence could not be sent");
        y->live_batch++;
    }
    return 0;
}

static bool decoding(const struct yield *y) {
    for (uint32_t i = 0; i < y->n_batch; i++)
        if (y->batch[i].n < y->batch[i].n_prompt + 4)
            return false;
    return true;
}

static int wait_until(struct yield *y, uint64_t until, struct err *e) {
    while (driver_clock_ns() < until)
        if (top_up(y, e) != 0 || driver_turn(&y->d, until, e) != 0)
            return -1;
    return 0;
}

static int one_try(struct yield *y, uint64_t step_ns, struct err *e) {
    uint32_t i = y->n_tries;
    struct driver_request *r = &y->tries[i];
    uint32_t n_in = y->decode ? 32 : 96;
    n_in += (uint32_t)(rand_at(y->o.seed, i) % (y->decode ? 17 : 33));
    uint64_t pause = rand_at(y->o.seed ^ 0x9a05eu, i) % (step_ns + step_ns / 4) + 2000000;
    if (driver_request_init(r, CLASS_REALTIME, y->o.seed, i, n_in, 1, y->d.hello.n_vocab) != 0
        || wait_until(y, driver_clock_ns() + pause, e) != 0)
        return -1;
    y->answered = false;
    y->n_tries++;
    if (driver_submit(&y->d, r) != 0)
        return err_set(e, ERR_WORKER_LOST, "a request could not be sent");
    while (!y->answered)
        if (top_up(y, e) != 0 || driver_turn(&y->d, driver_clock_ns() + BENCH_NS, e) != 0)
            return -1;
    return 0;
}

/* The mean step of what runs now, from STATUS; tries are spread over it. */
static int step_length(struct yield *y, uint64_t *ns, struct err *e) {
    struct msg_status a = y->d.status;
    if (wait_until(y, driver_clock_ns() + 3 * BENCH_NS, e) != 0)
        return -1;
    uint64_t steps = y->d.status.steps - a.steps;
    *ns = steps > 0 ? (y->d.status.step_ns - a.step_ns) / steps : 200000000;
    return 0;
}

static int drive(struct yield *y, struct err *e) {
    uint64_t step_ns, give_up = driver_clock_ns() + 900 * BENCH_NS;
    uint32_t most = WARM_TRIES + y->o.tries + y->o.tries / 6; /* some do not count */
    y->d.ended = ended;
    y->d.ctx = y;
    if (top_up(y, e) != 0)
        return -1;
    while (y->decode && !decoding(y)) {
        if (driver_clock_ns() > give_up)
            return err_set(e, ERR_TIMEOUT, "the batch does not get to decode");
        if (driver_turn(&y->d, driver_clock_ns() + BENCH_NS, e) != 0)
            return -1;
    }
    for (step_ns = 100000000; y->n_tries < WARM_TRIES;)
        if (one_try(y, step_ns, e) != 0)
            return -1;
    if (step_length(y, &step_ns, e) != 0)
        return -1;
    while (y->n_tries < most && driver_clock_ns() < give_up && (!y->decode || y->live_batch == 16))
        if (one_try(y, step_ns, e) != 0)
            return -1;
    return 0;
}

static const struct driver_request *try_of(const struct yield *y, const struct log_arrival *a) {
    for (uint32_t i = 0; i < y->n_tries; i++)
        if (y->tries[i].sub.counter == a->counter && y->tries[i].sub.incarnation == a->incarnation)
            return &y->tries[i];
    return NULL;
}

static bool counts(const struct yield *y, const struct log_step *beside) {
    if (beside->end_ns == 0 || beside->device_ns == 0)
        return false;
    return y->decode ? beside->spans == 16 && beside->tokens == 16
                           && beside->shortest >= y->o.context
                     : beside->tokens >= 256;
}

static void say(struct yield *y, const char *name, double *v, uint32_t n, bool verdict) {
    char text[80];
    const double bar = y->decode ? 0.15 : 0.10;
    bench_sort(v, n);
    snprintf(text, sizeof(text), "%s_%s_p50", y->decode ? "decode" : "prefill", name);
    bench_figure(y->r, text, bench_quantile(v, n, 0.50));
    snprintf(text, sizeof(text), "%s_%s_p99", y->decode ? "decode" : "prefill", name);
    if (verdict)
        bench_verdict(y->r, text, n > 0 ? bench_quantile(v, n, 0.99) : NAN, bar, true);
    else
        bench_figure(y->r, text, bench_quantile(v, n, 0.99));
}

struct yield_waits { /* one value a counted try */
    double *link, *decided, *began, *computed, *step, *wait, *tokens;
    uint32_t n, none_beside, wrong_shape;
};

static void judge_one(const struct yield *y, const struct link_log *l, const struct log_arrival *a,
                      struct yield_waits *w) {
    const struct driver_request *t = try_of(y, a);
    if (t == NULL || t - y->tries < WARM_TRIES || a->step == 0)
        return;
    if (a->beside == 0) {
        w->none_beside++;
        return;
    }
    const struct log_step *b = &l->steps[a->beside], *s = &l->steps[a->step];
    if (!counts(y, b) || s->end_ns == 0 || s->segments == 0) {
        w->wrong_shape++;
        return;
    }
    double length = (double)b->device_ns, sent = (double)t->sent_ns;
    uint64_t began = s->end_ns - s->device_ns;
    uint32_t k = w->n++;
    w->link[k] = ((double)a->submit_ns - sent) / length;
    w->decided[k] = ((double)s->submit_ns - sent) / length;
    w->began[k] = ((double)began - sent) / length;
    w->computed[k] = ((double)(began + s->device_ns / s->segments) - sent) / length;
    w->step[k] = length * 1e-6;
    w->tokens[k] = b->tokens;
    w->wait[k] = ((double)(began + s->device_ns / s->segments) - sent) * 1e-6;
}

static int judge(struct yield *y, struct err *e) {
    struct link_log l;
    double *v = mem_array((size_t)y->n_tries * 7, sizeof(*v));
    uint32_t n = y->n_tries;
    int rc = v == NULL ? err_set(e, ERR_NO_MEMORY, "no memory") : link_log_read(&l, y->log, NULL, 0, e);
    if (rc == 0) {
        struct yield_waits w = {v, v + n, v + 2 * n, v + 3 * n, v + 4 * n, v + 5 * n, v + 6 * n,
                                0, 0, 0};
        for (uint32_t i = 0; i < l.n_arrivals; i++)
            judge_one(y, &l, &l.arrivals[i], &w);
        bench_figure(y->r, y->decode ? "decode_counted" : "prefill_counted", w.n);
        bench_figure(y->r, y->decode ? "decode_tries" : "prefill_tries", y->n_tries - WARM_TRIES);
        bench_figure(y->r, y->decode ? "decode_no_batch_step" : "prefill_no_batch_step",
                     w.none_beside);
        bench_figure(y->r, y->decode ? "decode_other_shape" : "prefill_other_shape",
                     w.wrong_shape);
        say(y, "step_positions", w.tokens, w.n, false);
        say(y, "step_ms", w.step, w.n, false);
        say(y, "wait_ms", w.wait, w.n, false);
        say(y, "heard_over_step", w.link, w.n, false);
        say(y, "submitted_over_step", w.decided, w.n, false);
        say(y, "began_over_step", w.began, w.n, false);
        say(y, "computed_over_step", w.computed, w.n, true);
        if (w.n < 1 || (!y->o.quick && w.n < y->o.tries * 2 / 3))
            bench_void(y->r, "fewer counted tries than wanted");
        if (l.dropped > 0)
            bench_void(y->r, "the event log lost records");
        link_log_free(&l);
    }
    mem_free(v);
    return rc;
}

static int one_kind(struct yield *y, struct err *e) {
    struct driver_config c = bench_worker(&y->o);
    uint32_t context = y->o.context + 8;
    c.event_log = y->log;
    c.prefill_chunk = y->o.prefill_chunk != 0 ? y->o.prefill_chunk : 256;
    c.seats = y->decode ? 18 : 4;
    c.kv_tokens = y->decode ? 16 * (context + 1500) + 512 : 6 * 1040;
    if (y->o.kv_tokens != 0)
        c.kv_tokens = y->o.kv_tokens;
    y->cap_batch = y->decode ? 16 : 4096;
    y->tries = mem_array(y->o.tries * 2 + WARM_TRIES, sizeof(*y->tries));
    y->batch = mem_array(y->cap_batch, sizeof(*y->batch));
    bench_first_flag(&c, "--host-kv-tokens=0"); /* nothing is swapped here, and (b) is large */
    int rc = y->tries != NULL && y->batch != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory");
    if (rc == 0)
        rc = driver_open(&y->d, &c, e);
    if (rc == 0)
        rc = drive(y, e);
    for (uint32_t i = 0; rc == 0 && i < y->n_batch; i++)
        driver_cancel(&y->d, &y->batch[i]);
    driver_close(&y->d); /* the log is whole after this */
    if (rc == 0)
        rc = judge(y, e);
    if (y->o.log == NULL)
        unlink(y->log);
    for (uint32_t i = 0; y->tries != NULL && i < y->n_tries; i++)
        driver_request_deinit(&y->tries[i]);
    for (uint32_t i = 0; y->batch != NULL && i < y->n_batch; i++)
        driver_request_deinit(&y->batch[i]);
    mem_free(y->tries);
    mem_free(y->batch);
    return rc;
}

int bench_yield(const struct bench_options *o, struct bench_report *r, struct err *e) {
    int rc = 0;
    for (int decode = 0; rc == 0 && decode < 2; decode++) {
        struct yield *y = mem_zalloc(sizeof(*y));
        if (y == NULL)
            return err_set(e, ERR_NO_MEMORY, "no memory");
        if (o->only != NULL && (strcmp(o->only, "decode") == 0) != (decode != 0)) {
            mem_free(y);
            continue;
        }
        y->o = *o;
        y->r = r;
        y->decode = decode != 0;
        y->o.tries = o->tries != 0 ? o->tries : o->quick ? 20 : 300;
        y->o.context = o->context != 0 ? o->context : o->quick ? 256 : 2048;
        if (o->log != NULL)
            snprintf(y->log, sizeof(y->log), "%s.%s", o->log, decode ? "decode" : "prefill");
        else
            snprintf(y->log, sizeof(y->log), "/tmp/bench_link.%d.jsonl", (int)getpid());
        rc = one_kind(y, e);
        mem_free(y);
    }
    return rc;
}
