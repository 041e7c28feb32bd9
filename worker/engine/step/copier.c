#include "worker/engine/step/copier.h"

#include "base/fault.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/priority.h"
#include "worker/engine/step/clock.h"
#include "worker/engine/step/event_fd.h"

#include <assert.h>
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define LANES 2
#define PIECE 16384          /* moved, then hashed from L1 or L2 */
#define SLICE 1024           /* hashed while the next piece's lines come in */
#define LINE 64
#define LATE_NS 2000000u     /* how much late waking a lane in a row makes good */
#define SLEEP_NS_MAX 20000000u /* a throttled copy looks this often whether the engine closes */

struct finished {
    uint64_t id, ns;
    enum engine_step_status status;
};

struct waiting {
    struct engine_copy copy;
    bool counted; /* in copier.urgent */
};

struct lane {
    struct copier *c;
    bool urgent; /* priority 0 */
    pthread_t thread;
    bool started;
    sem_t wake;
    /* owner -> thread */
    struct engine_copy in[ENGINE_COPIES_MAX];
    _Atomic uint32_t in_tail;
    /* thread only */
    uint32_t in_head, n_waiting;
    struct waiting waiting[ENGINE_COPIES_MAX];
    /* thread -> whoever ends a step: some fence was found closed, or is being looked at */
    _Atomic bool fenced;
    /* thread -> owner */
    struct finished out[ENGINE_COPIES_MAX];
    _Atomic uint32_t out_tail;
    /* owner only */
    uint32_t out_head;
};

struct copier {
    struct copier_config cfg;
    uint8_t *host;
    uint64_t *sums;   /* [slot]; of one thread at a time, as the slot is */
    uint8_t *sum_set; /* [slot] */
    uint64_t cost_ns; /* a block's time on the imitated link; 0 = no link */
    _Atomic uint64_t link_free;
    _Atomic uint32_t urgent; /* copies of lane 0 that could start and did not */
    _Atomic bool stop;
    uint32_t n_live; /* owner: submitted, end not polled */
    struct lane lanes[LANES];
};

/* ---- moving bytes ---- */

static void move(const struct copier *c, uint8_t *to, const uint8_t *from, size_t n)
{
    if (fault_on(FAULT_COPY_SHORT))
        n /= 2;
    if (c->cfg.move != NULL)
        c->cfg.move(to, from, n);
    else
        memcpy(to, from, n);
}

/* Folds the hash of [at, at + n) into `sum`. For a fixed rest the product is one to one in each
 * slice's hash, so a slice that changed cannot be hidden by the others. */
static uint64_t sum_piece(uint64_t sum, const uint8_t *from, size_t at, size_t n, size_t end)
{
    for (size_t i = at; i < at + n; i += SLICE) {
        for (size_t k = i + n; k < i + n + SLICE && k < end; k += LINE)
            __builtin_prefetch(from + k, 0, 2);
        sum = (sum ^ hash64_bulk(from + i, SLICE)) * 0x9E3779B97F4A7C15u;
    }
    return sum;
}

static uint64_t move_summed(const struct copier *c, uint8_t *to, const uint8_t *from)
{
    uint64_t sum = 0;
    size_t end = c->cfg.stride;
    for (size_t at = 0; at < end; at += PIECE) {
        size_t n = end - at < PIECE ? end - at : PIECE;
        move(c, to + at, from + at, n);
        sum = sum_piece(sum, from, at, n, end);
    }
    return sum;
}

static enum engine_step_status perform(struct copier *c, const struct engine_copy *copy)
{
    bool out = copy->kind == ENGINE_COPY_BLOCK_TO_HOST, in = copy->kind == ENGINE_COPY_HOST_TO_BLOCK;
    const uint8_t *from = (in ? c->host : c->cfg.blocks) + copy->from * c->cfg.stride;
    uint8_t *to = (out ? c->host : c->cfg.blocks) + copy->to * c->cfg.stride;
    enum engine_step_status status = ENGINE_STEP_OK;
    if (c->cfg.no_checksum || (!out && !in)) {
        move(c, to, from, c->cfg.stride);
    } else {
        uint64_t sum = move_summed(c, to, from);
        if (out) {
            c->sums[copy->to] = sum;
            c->sum_set[copy->to] = 1;
        } else if (!c->sum_set[copy->from] || c->sums[copy->from] != sum) {
            status = ENGINE_COPY_CORRUPT;
        }
    }
    if (c->cfg.drain != NULL)
        c->cfg.drain();
    return status;
}

/* ---- the imitated link ---- */

/* Sleeps until `at`, or until the engine closes. */
static void sleep_until(const struct copier *c, uint64_t at)
{
    for (uint64_t now; !atomic_load(&c->stop) && (now = clock_ns()) < at;) {
        uint64_t next = at - now > SLEEP_NS_MAX ? now + SLEEP_NS_MAX : at;
        struct timespec t = {.tv_sec = (time_t)(next / 1000000000u),
                             .tv_nsec = (long)(next % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
}

/* Books the link for one block; when the booking begins. */
static uint64_t book(struct copier *c, bool straight)
{
    uint64_t now = clock_ns(), earliest = straight ? now - LATE_NS : now;
    uint64_t free_at = atomic_load(&c->link_free), start;
    do {
        start = free_at > earliest ? free_at : earliest;
    } while (!atomic_compare_exchange_weak(&c->link_free, &free_at, start + c->cost_ns));
    return start;
}

/* ---- a lane's thread ---- */

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void finish(struct lane *l, const struct finished *f)
{
    uint32_t tail = atomic_load_explicit(&l->out_tail, memory_order_relaxed);
    l->out[tail % ENGINE_COPIES_MAX] = *f;
    atomic_store_explicit(&l->out_tail, tail + 1, memory_order_release);
    event_fd_signal(l->c->cfg.fd);
}

static void run(struct lane *l, const struct engine_copy *copy, bool straight)
{
    struct copier *c = l->c;
    uint64_t start = 0, t0;
    if (c->cost_ns != 0) {
        start = book(c, straight);
        sleep_until(c, start);
    }
    t0 = cpu_ns();
    struct finished f = {.id = copy->id, .status = perform(c, copy)};
    f.ns = cpu_ns() - t0;
    if (c->cost_ns != 0) {
        sleep_until(c, start + c->cost_ns);
        f.ns = f.ns > c->cost_ns ? f.ns : c->cost_ns;
    }
    finish(l, &f);
}

/* Lane 1 waits while lane 0 has something to start; this many of it are started, or cannot be. */
static void less_urgent(struct copier *c, uint32_t n)
{
    if (n > 0 && atomic_fetch_sub(&c->urgent, n) == n)
        sem_post(&c->lanes[1].wake);
}

static void take_in(struct lane *l)
{
    uint32_t tail = atomic_load_explicit(&l->in_tail, memory_order_acquire);
    for (; l->in_head != tail; l->in_head++) {
        assert(l->n_waiting < ENGINE_COPIES_MAX);
        l->waiting[l->n_waiting++] = (struct waiting){
            .copy = l->in[l->in_head % ENGINE_COPIES_MAX], .counted = l->urgent};
    }
}

/* The first waiting copy whose fence is open; -1 = none. `fenced` is raised before a fence is looked
 * at and the end of a step clears its id before it looks at `fenced`, so one of the two sees the
 * other: no fence opens unnoticed. */
static int choose(struct lane *l)
{
    bool raised = false;
    for (uint32_t i = 0; i < l->n_waiting; i++) {
        uint64_t step = l->waiting[i].copy.after_step;
        if (step == 0)
            return (int)i;
        if (!raised)
            atomic_store(&l->fenced, true);
        raised = true;
        if (!runner_live(l->c->cfg.runner, step))
            return (int)i;
    }
    if (!raised)
        atomic_store(&l->fenced, false);
    return -1;
}

/* Nothing can start: what waits behind a fence does not hold up lane 1. */
static void uncount(struct lane *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_waiting; i++) {
        n += l->waiting[i].counted;
        l->waiting[i].counted = false;
    }
    less_urgent(l->c, n);
}

static struct engine_copy start(struct lane *l, uint32_t i)
{
    struct waiting w = l->waiting[i];
    l->n_waiting--;
    memmove(&l->waiting[i], &l->waiting[i + 1], (l->n_waiting - i) * sizeof l->waiting[0]);
    if (w.counted)
        less_urgent(l->c, 1);
    return w.copy;
}

static void *lane_main(void *arg)
{
    struct lane *l = arg;
    struct copier *c = l->c;
    prctl(PR_SET_TIMERSLACK, 1000); /* the default of 50 us is as long as a block takes */
    if (!l->urgent)
        priority_lower(PRIORITY_COPY);
    bool straight = false;
    while (!atomic_load(&c->stop)) {
        take_in(l);
        int i = choose(l);
        if (i >= 0 && (l->urgent || atomic_load(&c->urgent) == 0)) {
            struct engine_copy copy = start(l, (uint32_t)i);
            run(l, &copy, straight);
            straight = true;
            continue;
        }
        uncount(l);
        straight = false;
        while (sem_wait(&l->wake) < 0 && errno == EINTR) {
        }
    }
    return NULL;
}

/* ---- owner thread ---- */

static int start_lane(struct copier *c, uint32_t i, struct err *e)
{
    struct lane *l = &c->lanes[i];
    l->c = c;
    l->urgent = i == 0;
    int rc = pthread_create(&l->thread, NULL, lane_main, l);
    if (rc != 0)
        return err_set(e, ERR_INTERNAL, "cannot start a copy thread: %s", strerror(rc));
    l->started = true;
    return 0;
}

int copier_create(struct copier **out, const struct copier_config *cfg, struct err *e)
{
    assert(cfg->host_slots > 0 && cfg->stride % 4096 == 0 && cfg->gb_s >= 0);
    *out = NULL;
    struct copier *c = mem_zalloc(sizeof *c);
    if (c == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the copy engine");
    c->cfg = *cfg;
    c->cost_ns = cfg->block_ns;
    if (cfg->gb_s > 0)
        c->cost_ns += (uint64_t)((double)cfg->stride / cfg->gb_s); /* bytes / (1e9/s) = ns */
    for (int i = 0; i < LANES; i++)
        sem_init(&c->lanes[i].wake, 0, 0);
    size_t bytes = cfg->host_slots * cfg->stride;
    c->host = mem_map(bytes);
    c->sums = mem_array(cfg->host_slots, sizeof *c->sums);
    c->sum_set = mem_array(cfg->host_slots, 1);
    int rc = 0;
    if (c->host == NULL || c->sums == NULL || c->sum_set == NULL)
        rc = err_set_param(e, ERR_NO_MEMORY, "host-kv-tokens",
                           "no memory for a host tier of %u blocks (%zu bytes)", cfg->host_slots,
                           bytes);
    else
        madvise(c->host, bytes, MADV_HUGEPAGE);
    for (uint32_t i = 0; rc == 0 && i < LANES; i++)
        rc = start_lane(c, i, e);
    if (rc < 0)
        copier_destroy(&c);
    *out = c;
    return rc;
}

void copier_destroy(struct copier **cp)
{
    struct copier *c = *cp;
    if (c == NULL)
        return;
    atomic_store(&c->stop, true);
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &c->lanes[i];
        struct sched_param p = {0};
        sem_post(&l->wake);
        if (!l->started)
            continue;
        /* where allowed: or a busy machine makes closing wait for an idle lane's last block */
        (void)pthread_setschedparam(l->thread, SCHED_OTHER, &p);
        pthread_join(l->thread, NULL);
    }
    for (int i = 0; i < LANES; i++)
        sem_destroy(&c->lanes[i].wake);
    mem_unmap(c->host, c->cfg.host_slots * c->cfg.stride);
    mem_free(c->sums);
    mem_free(c->sum_set);
    mem_free(c);
    *cp = NULL;
}

int copier_submit(struct copier *c, const struct engine_copy *copy)
{
    assert(copy->priority < LANES);
    if (c->n_live == ENGINE_COPIES_MAX)
        return -1;
    c->n_live++;
    struct lane *l = &c->lanes[copy->priority];
    if (l->urgent)
        atomic_fetch_add(&c->urgent, 1);
    uint32_t tail = atomic_load_explicit(&l->in_tail, memory_order_relaxed);
    l->in[tail % ENGINE_COPIES_MAX] = *copy;
    atomic_store_explicit(&l->in_tail, tail + 1, memory_order_release);
    sem_post(&l->wake);
    return 0;
}

void copier_step_ended(struct copier *c)
{
    for (int i = 0; i < LANES; i++)
        if (atomic_load(&c->lanes[i].fenced))
            sem_post(&c->lanes[i].wake);
}

static int take_finished(struct copier *c, struct engine_completion *out, int max)
{
    int n = 0;
    for (int i = 0; i < LANES; i++) {
        struct lane *l = &c->lanes[i];
        uint32_t tail = atomic_load_explicit(&l->out_tail, memory_order_acquire);
        for (; n < max && l->out_head != tail; l->out_head++, c->n_live--) {
            const struct finished *f = &l->out[l->out_head % ENGINE_COPIES_MAX];
            out[n++] = (struct engine_completion){
                .kind = ENGINE_COPY_END, .id = f->id, .status = f->status, .device_ns = f->ns};
        }
    }
    return n;
}

/* The descriptor is reset first: whatever is published later signals again. The runner resets it
 * when its own queue gets empty and may so swallow a lane's signal, but a lane publishes before it
 * signals, so what that signal meant is found below. */
int copier_poll(struct copier *c, struct engine_completion *out, int max)
{
    int n = 0;
    if (c->n_live == 0 && (n = runner_poll(c->cfg.runner, out, max)) > 0)
        return n; /* a lane's late signal, if any, is reset by the poll it causes */
    event_fd_reset(c->cfg.fd);
    n = runner_poll(c->cfg.runner, out, max);
    n += take_finished(c, out + n, max - n);
    if (n == max)
        event_fd_signal(c->cfg.fd);
    return n;
}

void *copier_host(const struct copier *c, uint32_t slot)
{
    return slot < c->cfg.host_slots ? c->host + slot * c->cfg.stride : NULL;
}
