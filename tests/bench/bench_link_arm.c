/* bench_link_arm.c - one arm of load on one worker. */
#include "tests/bench/bench_link.h"

#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

#define LONG_IDS 128

int arrivals_make(struct arrivals *a, uint64_t seed, uint32_t n, double rate) {
    double at = 0;
    *a = (struct arrivals){.v = mem_array(n, sizeof(*a->v)), .n = n};
    for (uint32_t i = 0; a->v != NULL && i < n; i++) {
        at += -log(1.0 - (double)(rand_at(seed, 3 * i) >> 11) * 0x1p-53) / rate;
        a->v[i] = (struct arrival){.at_ns = (uint64_t)(at * 1e9),
                                   .n_in = 16 + (uint32_t)(rand_at(seed, 3 * i + 1) % 17),
                                   .n_out = 4 + (uint32_t)(rand_at(seed, 3 * i + 2) % 9)};
    }
    return a->v != NULL ? 0 : -1;
}

void arrivals_free(struct arrivals *a) {
    mem_free(a->v);
    a->v = NULL;
}

static uint32_t spread(const struct arm *a, uint32_t mean, uint64_t i) {
    uint32_t width = a->open_ended ? mean / 2 : mean;
    uint32_t low = mean - width / 2;
    return (low > 0 ? low : 1) + (uint32_t)(rand_at(a->length_seed, i) % (width + 1));
}

static struct driver_request *new_batch(struct arm *a) {
    uint64_t i = a->n_batch;
    if (a->n_batch == a->cap_batch) {
        uint32_t cap = a->cap_batch == 0 ? 256 : a->cap_batch * 2;
        struct driver_request **p = mem_realloc(a->batch, cap * sizeof(*p));
        if (p == NULL)
            return NULL;
        a->batch = p;
        a->cap_batch = cap;
    }
    struct driver_request *r = mem_zalloc(sizeof(*r));
    if (r == NULL
        || driver_request_init(r, CLASS_BATCH, a->seed ^ 0xba7c4u, i,
                             spread(a, a->batch_in, 2 * i), spread(a, a->batch_out, 2 * i + 1),
                             a->d->hello.n_vocab)
               != 0
        || (a->open_ended && driver_request_open_ended(r) != 0)) {
        if (r != NULL)
            driver_request_deinit(r);
        mem_free(r);
        return NULL;
    }
    a->batch[a->n_batch++] = r;
    return r;
}

static void ended(void *ctx, struct driver_request *r) {
    struct arm *a = ctx;
    if (r->cls == CLASS_REALTIME)
        a->rt_left--;
    else
        a->live_batch--;
}

static int top_up(struct arm *a, struct err *e) {
    if (a->live_batch < a->shortest)
        a->shortest = a->live_batch;
    while (a->live_batch < a->keep) {
        struct driver_request *r = new_batch(a);
        if (r == NULL)
            return err_set(e, ERR_NO_MEMORY, "no memory for batch sequences");
        int rc = driver_submit(a->d, r);
        if (rc < 0)
            return err_set(e, ERR_WORKER_LOST, "the session ended");
        if (rc > 0) { /* full: the next turn */
            a->n_batch--;
            driver_request_deinit(r);
            mem_free(r);
            break;
        }
        a->live_batch++;
    }
    return 0;
}

static void count(struct arm *a, uint64_t *ids, uint64_t *long_preempted) {
    *ids = *long_preempted = 0;
    for (uint32_t i = 0; i < a->n_batch; i++) {
        const struct driver_request *r = a->batch[i];
        *ids += r->n - r->n_prompt;
        *long_preempted += r->n >= LONG_IDS ? r->preemptions : 0;
    }
}

static void snapshot(struct arm *a, int end) {
    a->status[end] = a->d->status;
    memcpy(a->accounts[end], a->d->accounts, sizeof(a->accounts[end]));
}

/* Submits what is due; returns when the next one is. */
static uint64_t submit_due(struct arm *a, uint64_t t0, uint32_t *next, struct err *e, int *rc) {
    while (*rc == 0 && a->list != NULL && *next < a->list->n) {
        struct driver_request *r = &a->rt[*next];
        r->due_ns = t0 + a->list->v[*next].at_ns;
        if (driver_clock_ns() < r->due_ns)
            return r->due_ns;
        int sent = driver_submit(a->d, r);
        if (sent > 0)
            return driver_clock_ns() + 1000000;
        if (sent < 0)
            *rc = err_set(e, ERR_WORKER_LOST, "the session ended");
        (*next)++;
    }
    return UINT64_MAX;
}

static uint64_t earlier(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static int make_rt(struct arm *a, struct err *e) {
    uint32_t n = a->list != NULL ? a->list->n : 0;
    a->rt = mem_array(n, sizeof(*a->rt));
    for (uint32_t i = 0; a->rt != NULL && i < n; i++)
        if (driver_request_init(&a->rt[i], CLASS_REALTIME, a->seed, i, a->list->v[i].n_in,
                              a->list->v[i].n_out, a->d->hello.n_vocab)
            != 0)
            return err_set(e, ERR_NO_MEMORY, "no memory for real-time requests");
    a->rt_left = n;
    return a->rt != NULL ? 0 : err_set(e, ERR_NO_MEMORY, "no memory for real-time requests");
}

static int hold_until(struct arm *a, uint64_t until, struct err *e) {
    while (driver_clock_ns() < until)
        if (top_up(a, e) != 0 || driver_turn(a->d, until, e) != 0)
            return -1;
    return 0;
}

static void lateness(struct arm *a) {
    uint32_t n = a->list != NULL ? a->list->n : 0;
    double *v = mem_array(n + 1, sizeof(*v));
    for (uint32_t i = 0; v != NULL && i < n; i++)
        v[i] = (double)(a->rt[i].sent_ns - a->rt[i].due_ns) * 1e-9;
    if (v != NULL) {
        bench_sort(v, n);
        a->late_p99_s = bench_quantile(v, n, 0.99);
    }
    mem_free(v);
}

/* Everything is taken back, so that the next arm begins with an idle worker. */
static int clear(struct arm *a, struct err *e) {
    uint64_t quiet, by = driver_clock_ns() + 10 * BENCH_NS;
    a->d->ended = NULL;
    for (uint32_t i = 0; i < a->n_batch; i++)
        if (a->batch[i]->state == DRIVER_SENT || a->batch[i]->state == DRIVER_RETRY) {
            driver_cancel(a->d, a->batch[i]);
            if (i % 64 == 63 && driver_turn(a->d, 0, e) != 0)
                return -1;
        }
    quiet = a->d->n_status + 2;
    while (a->d->n_status < quiet || a->d->status.active[1] + a->d->status.waiting[1] != 0) {
        if (driver_clock_ns() >= by)
            return err_set(e, ERR_TIMEOUT, "the worker does not become idle");
        if (driver_turn(a->d, driver_clock_ns() + BENCH_NS, e) != 0)
            return -1;
    }
    return 0;
}

static int play(struct arm *a, uint64_t t0, struct err *e) {
    uint64_t least = t0 + (uint64_t)(a->seconds * 1e9);
    uint64_t seen = a->d->n_status, active = 0, n_seen = 0;
    uint32_t next = 0;
    int rc = 0;
    while (rc == 0 && (a->rt_left > 0 || driver_clock_ns() < least)) {
        uint64_t at = submit_due(a, t0, &next, e, &rc);
        if (rc == 0)
            rc = top_up(a, e);
        uint64_t now = driver_clock_ns();
        at = earlier(at, least > now ? least : now + BENCH_NS);
        if (rc == 0)
            rc = driver_turn(a->d, at, e);
        if (a->d->n_status != seen) {
            seen = a->d->n_status;
            active += a->d->status.active[CLASS_BATCH];
            n_seen++;
        }
    }
    a->seats_used = n_seen > 0 ? (double)active / (double)n_seen : 0;
    return rc;
}

int arm_run(struct arm *a, struct err *e) {
    uint64_t ids[2], preempted[2];
    a->d->ended = ended;
    a->d->ctx = a;
    if (make_rt(a, e) != 0 || top_up(a, e) != 0
        || hold_until(a, driver_clock_ns() + (uint64_t)(a->warm_s * 1e9), e) != 0)
        return -1;
    a->shortest = a->keep;
    snapshot(a, 0);
    count(a, &ids[0], &preempted[0]);
    double cpu = driver_cpu_s(a->d);
    uint64_t t0 = driver_clock_ns();
    if (play(a, t0, e) != 0)
        return -1;
    a->from_ns = t0;
    a->to_ns = driver_clock_ns();
    a->wall_s = (double)(a->to_ns - t0) * 1e-9;
    a->cpu_s = driver_cpu_s(a->d) - cpu;
    count(a, &ids[1], &preempted[1]);
    a->batch_ids = ids[1] - ids[0];
    a->preempted_long = preempted[1] - preempted[0];
    snapshot(a, 1);
    uint64_t up = a->status[1].uptime_ns - a->status[0].uptime_ns;
    a->busy = up > 0 ? (double)(a->status[1].busy_ns - a->status[0].busy_ns) / (double)up : 0;
    lateness(a);
    return clear(a, e);
}

void arm_free(struct arm *a) {
    for (uint32_t i = 0; a->rt != NULL && a->list != NULL && i < a->list->n; i++)
        driver_request_deinit(&a->rt[i]);
    for (uint32_t i = 0; i < a->n_batch; i++) {
        driver_request_deinit(a->batch[i]);
        mem_free(a->batch[i]);
    }
    mem_free(a->rt);
    mem_free(a->batch);
    a->rt = NULL;
    a->batch = NULL;
    a->n_batch = 0;
}

double arm_batch_rate(const struct arm *a, bool prompts) {
    const struct msg_account *x = a->accounts[0], *y = a->accounts[1];
    uint64_t n = a->batch_ids;
    if (prompts)
        n += y[CLASS_BATCH].prompt_first - x[CLASS_BATCH].prompt_first;
    return (double)n / a->wall_s;
}

double arm_tax(const struct arm *a) {
    uint64_t useful = 0, waste = 0;
    for (int c = 0; c < CLASSES_MAX; c++) {
        const struct msg_account *x = &a->accounts[0][c], *y = &a->accounts[1][c];
        useful += y->prompt_first - x->prompt_first + (y->output - x->output);
        waste += y->recomputed - x->recomputed + (y->dropped - x->dropped);
    }
    return useful > 0 ? (double)waste / (double)useful : 0;
}

int alone_compare(struct link_driver *d, const struct driver_request *r, struct err *e) {
    struct driver_request own = {0};
    uint32_t n_out = r->n - r->n_prompt;
    if (n_out == 0)
        return 1;
    if (driver_request_init(&own, r->cls, 0, 0, r->n_prompt, n_out, d->hello.n_vocab) != 0)
        return err_set(e, ERR_NO_MEMORY, "no memory for a comparison");
    memcpy(own.ids, r->ids, r->n_prompt * sizeof(*r->ids));
    own.temperature = r->temperature;
    own.seed = r->seed;
    d->ended = NULL;
    int rc = driver_submit(d, &own) == 0 ? 0 : err_set(e, ERR_WORKER_LOST, "the session ended");
    while (rc == 0 && own.state != DRIVER_DONE)
        rc = driver_turn(d, driver_clock_ns() + BENCH_NS, e);
    if (rc == 0)
        rc = driver_request_answered(&own) && memcmp(own.ids, r->ids, r->n * sizeof(*r->ids)) == 0;
    d->by_counter[own.sub.counter - 1] = NULL;
    driver_request_deinit(&own);
    return rc;
}
