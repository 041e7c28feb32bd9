#include "worker/engine/cpu/pool.h"

#include "base/mem.h"
#include "worker/engine/step/clock.h"

#include <assert.h>
#include <fenv.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>

#include <unistd.h>

/* A phase in one word, so that a claim can never mix two phases: a thread that slept through the
 * end of a phase and woke in the next fails its compare-and-swap. 28 bits epoch | 18 tiles | 18
 * next tile. */
#define TILE_BITS 18
#define TILE_MASK ((1ull << TILE_BITS) - 1)
#define WORD_TILES(w) (((w) >> TILE_BITS) & TILE_MASK)
#define WORD_NEXT(w) ((w)&TILE_MASK)

struct pool {
    _Alignas(64) _Atomic uint64_t word;
    /* Written before the release store of `word`, read after an acquire load of it, and trusted
     * only once the claim succeeded: then the phase was still open, and its fields could not have
     * changed. Relaxed is enough. */
    _Atomic(pool_fn *) fn;
    _Atomic(void *) ctx;
    _Alignas(64) _Atomic uint32_t done; /* finished tiles of this phase */
    _Atomic uint32_t owner_sleeps;
    _Alignas(64) _Atomic uint32_t phase; /* what idle threads sleep on */
    _Atomic uint32_t n_asleep;
    _Atomic uint32_t stop;
    uint32_t n_threads, n_started;
    cpu_set_t allowed; /* where threads without a core of their own may run */
    struct pool_thread {
        struct pool *pool;
        uint32_t index;
        int cpu; /* pinned to; -1 = spread_out keeps it off the others' cores */
        pthread_t id;
        _Atomic int seen_on; /* core at the last phase */
    } threads[POOL_THREADS_MAX];
};

static void futex_wait(_Atomic uint32_t *at, uint32_t seen)
{
    syscall(SYS_futex, (uint32_t *)at, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *at, int n)
{
    syscall(SYS_futex, (uint32_t *)at, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Spins until *at differs from `seen` or POOL_SPIN_NS passed; returns the last value. */
static uint32_t spin_while(_Atomic uint32_t *at, uint32_t seen)
{
    uint64_t end_ns = clock_ns() + POOL_SPIN_NS;
    do {
        for (int i = 0; i < 16; i++) {
            uint32_t v = atomic_load_explicit(at, memory_order_acquire);
            if (v != seen)
                return v;
            relax();
        }
    } while (clock_ns() < end_ns);
    return atomic_load_explicit(at, memory_order_acquire);
}

static void run_tiles(struct pool *p, uint32_t thread)
{
    uint64_t w = atomic_load_explicit(&p->word, memory_order_acquire);
    while (WORD_NEXT(w) < WORD_TILES(w)) {
        pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_relaxed);
        void *ctx = atomic_load_explicit(&p->ctx, memory_order_relaxed);
        /* acq_rel: a failed claim must see the newer phase's fields on its next turn. */
        if (!atomic_compare_exchange_weak_explicit(&p->word, &w, w + 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        uint32_t n = (uint32_t)WORD_TILES(w);
        fn(ctx, (uint32_t)WORD_NEXT(w), thread);
        /* release: the owner's acquire load of the full count sees this tile's bytes. seq_cst
         * against owner_sleeps: either it sees the full count, or we see that it sleeps. */
        if (atomic_fetch_add_explicit(&p->done, 1, memory_order_seq_cst) + 1 == n &&
            atomic_load_explicit(&p->owner_sleeps, memory_order_seq_cst))
            futex_wake(&p->done, 1);
        w = atomic_load_explicit(&p->word, memory_order_acquire);
    }
}

/* A woken thread is often put on the core of the one that woke it, and stays there: two compute
 * threads then take turns on one core while another idles (measured: a phase of two halves takes
 * as long as on one thread, for seconds). So a thread that finds itself on the core of one before
 * it leaves that core out from now on, as long as that leaves it one. */
static void spread_out(struct pool_thread *t)
{
    struct pool *p = t->pool;
    int cpu = sched_getcpu();
    bool shared = false;
    cpu_set_t set = p->allowed;
    atomic_store_explicit(&t->seen_on, cpu, memory_order_relaxed);
    for (uint32_t i = 0; i < t->index; i++) {
        int other = atomic_load_explicit(&p->threads[i].seen_on, memory_order_relaxed);
        shared = shared || other == cpu;
        if (other >= 0 && other < CPU_SETSIZE)
            CPU_CLR(other, &set);
    }
    if (shared && CPU_COUNT(&set) > 0)
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *thread_main(void *arg)
{
    struct pool_thread *t = arg;
    struct pool *p = t->pool;
    if (t->cpu >= 0)
        pool_pin((uint32_t)t->cpu);
    pool_fp_env();
    uint32_t seen = 0;
    while (!atomic_load_explicit(&p->stop, memory_order_acquire)) {
        uint32_t now = spin_while(&p->phase, seen);
        if (now == seen) {
            atomic_fetch_add_explicit(&p->n_asleep, 1, memory_order_seq_cst);
            futex_wait(&p->phase, seen); /* returns at once if the phase moved on meanwhile */
            atomic_fetch_sub_explicit(&p->n_asleep, 1, memory_order_seq_cst);
            continue;
        }
        seen = now;
        if (t->cpu < 0)
            spread_out(t);
        run_tiles(p, t->index);
    }
    return NULL;
}

static void next_phase(struct pool *p)
{
    atomic_fetch_add_explicit(&p->phase, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&p->n_asleep, memory_order_seq_cst) > 0)
        futex_wake(&p->phase, POOL_THREADS_MAX);
}

static void await_tiles(struct pool *p, uint32_t n)
{
    uint32_t seen = atomic_load_explicit(&p->done, memory_order_acquire);
    while (seen != n) {
        uint32_t now = spin_while(&p->done, seen);
        if (now == seen) {
            atomic_store_explicit(&p->owner_sleeps, 1, memory_order_seq_cst);
            while ((now = atomic_load_explicit(&p->done, memory_order_seq_cst)) != n)
                futex_wait(&p->done, now);
            atomic_store_explicit(&p->owner_sleeps, 0, memory_order_relaxed);
        }
        seen = now;
    }
}

void pool_run(struct pool *p, pool_fn *fn, void *ctx, uint32_t n_tiles)
{
    assert(n_tiles <= POOL_TILES_MAX);
    if (n_tiles <= 1 || p->n_threads == 1) { /* not worth waking anybody */
        for (uint32_t i = 0; i < n_tiles; i++)
            fn(ctx, i, 0);
        return;
    }
    uint64_t w = atomic_load_explicit(&p->word, memory_order_relaxed);
    uint64_t epoch = (w >> (2 * TILE_BITS)) + 1;
    atomic_store_explicit(&p->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&p->ctx, ctx, memory_order_relaxed);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->word, epoch << (2 * TILE_BITS) | (uint64_t)n_tiles << TILE_BITS,
                          memory_order_release);
    atomic_store_explicit(&p->threads[0].seen_on, sched_getcpu(), memory_order_relaxed);
    next_phase(p);
    run_tiles(p, 0);
    await_tiles(p, n_tiles);
}

int pool_create(struct pool **out, uint32_t n_threads, const uint32_t *cpus, uint32_t n_cpus,
                struct err *e)
{
    *out = NULL;
    if (n_threads < 1 || n_threads > POOL_THREADS_MAX)
        return err_set(e, ERR_BAD_VALUE, "compute threads must be 1 to %d, not %u",
                       POOL_THREADS_MAX, n_threads);
    struct pool *p = mem_zalloc(sizeof *p);
    if (p == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the thread pool");
    p->n_threads = n_threads;
    p->n_started = 1;
    pthread_getaffinity_np(pthread_self(), sizeof p->allowed, &p->allowed); /* else none: as it is */
    for (uint32_t i = 0; i < n_threads; i++)
        atomic_store_explicit(&p->threads[i].seen_on, -1, memory_order_relaxed);
    for (uint32_t i = 1; i < n_threads; i++) {
        struct pool_thread *t = &p->threads[i];
        t->pool = p;
        t->index = i;
        t->cpu = n_cpus > 0 ? (int)cpus[i % n_cpus] : -1;
        int rc = pthread_create(&t->id, NULL, thread_main, t);
        if (rc != 0) {
            pool_destroy(&p);
            return err_set(e, ERR_INTERNAL, "cannot start compute thread %u: %s", i, strerror(rc));
        }
        p->n_started++;
    }
    *out = p;
    return 0;
}

void pool_destroy(struct pool **pp)
{
    struct pool *p = *pp;
    if (p == NULL)
        return;
    atomic_store_explicit(&p->stop, 1, memory_order_release);
    next_phase(p);
    for (uint32_t i = 1; i < p->n_started; i++)
        pthread_join(p->threads[i].id, NULL);
    mem_free(p);
    *pp = NULL;
}

uint32_t pool_threads(const struct pool *p)
{
    return p->n_threads;
}

void pool_fp_env(void)
{
    fesetround(FE_TONEAREST);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(0x1f80); /* all exceptions masked, nearest even, no FTZ, no DAZ */
#endif
}

void pool_pin(uint32_t cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE) {
        CPU_SET(cpu, &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    }
}
