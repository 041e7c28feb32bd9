/* bench_queue - what a gateway's queue costs, through gateway_core:
 *
 *   bench_queue [REQUESTS [TENANTS]]       default 1,000,000 requests of 1,000 tenants
 *
 * Fills the queue (no worker has room), cancels and adds some at random, then one worker ends a request again and
 * again, each end taking the next from the queue. ns per call of gateway_core_handle, mean:
 *   enqueue   GE_ARRIVED
 *   pick      GE_TOKENS that ends one and GE_STATUS with a window of one, which SUBMITs the next
 *   remove    GE_CANCEL of a queued one anywhere
 *   status, tick, stats   the events that come by themselves, with the queue full
 * and bytes per request: the whole region and the list of actions over the requests.
 * A third of the requests have a priority, a third a deadline. Exit 1: over 2 us or 400 B, or the queue is wrong.
 */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/gateway_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND 1000000000ull

static struct gateway_core *g;
static struct gateway_action *acts;
static uint32_t n_acts, n_requests = 1000000, n_tenants = 1000;
static uint64_t now = SECOND, draws, submits;
static struct sub_id *current;

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND + (uint64_t)t.tv_nsec;
}

static void give(const struct gateway_event *ev)
{
    n_acts = gateway_core_handle(g, ev, now, acts);
    for (uint32_t i = 0; i < n_acts; i++) {
        if (acts[i].kind != GA_SUBMIT) continue;
        current[acts[i].slot] = acts[i].sub;
        submits++;
    }
}

static void arrive(uint32_t slot)
{
    uint64_t r = rand_at(5, draws++);
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = slot};
    ev.arrived.cls = CLASS_BATCH;
    ev.arrived.tenant = (uint32_t)(r % n_tenants);
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = 16 + (uint32_t)(r >> 32) % 256;
    ev.arrived.max_total = ev.arrived.n_ids + 8;
    if (r % 3 == 1) ev.arrived.priority = (int8_t)(r >> 40 & 3);
    if (r % 3 == 2) ev.arrived.deadline_ns = now + 3600 * SECOND + (r >> 44) * 1000;
    now += 1000;
    give(&ev);
}

static void worker_joins(void)
{
    struct gateway_event ev = {.kind = GE_HELLO};
    ev.hello.name = ev.hello.incarnation = 1;
    ev.hello.version_min = ev.hello.version_max = 1;
    ev.hello.n_ctx = 4096;
    ev.hello.block_tokens = 16;
    ev.hello.n_blocks = 4096;
    ev.hello.max_seqs = 32;
    ev.hello.max_slots = 128;
    give(&ev);
    give(&(struct gateway_event){.kind = GE_SYNC});
    ev = (struct gateway_event){.kind = GE_STATUS};
    ev.status.number = 1;
    give(&ev); /* no window */
}

static void start(void)
{
    struct gateway_core_config cfg = {.max_slots = n_requests + 1024,
                                      .max_workers = GATEWAY_WORKERS_MAX,
                                      .incarnation = 7,
                                      .no_worker_ns = 5 * SECOND,
                                      .lost_ns = 5 * SECOND,
                                      .max_tenants = n_tenants,
                                      .max_tickets = 4096,
                                      .route_entries = 65536};
    class_table_default(&cfg.classes);
    size_t bytes = gateway_core_bytes(&cfg), list = gateway_core_actions_max(&cfg) * sizeof *acts;
    void *region = mem_map(bytes);
    acts = mem_zalloc(list);
    current = mem_array(cfg.max_slots, sizeof *current);
    if (region == NULL || acts == NULL || current == NULL) exit(2);
    memset(region, 0, bytes); /* pages are no part of the figures */
    g = gateway_core_init(region, &cfg);
    printf("%u requests, %u tenants: %.1f B a request (region %zu, actions %zu)\n", n_requests,
           n_tenants, (double)(bytes + list) / n_requests, bytes, list);
    if (bytes + list > 400u * (size_t)n_requests) exit(1);
}

static double ends(uint32_t n)
{
    static struct { uint32_t slot; } ring[64];
    uint32_t head = 0, count = 0;
    struct gateway_event ev = {.kind = GE_STATUS};
    ev.status.number = 2;
    ev.status.window[CLASS_BATCH] = 32;
    give(&ev);
    for (uint32_t i = 0; i < n_acts; i++) {
        if (acts[i].kind == GA_SUBMIT) ring[count++].slot = acts[i].slot;
    }
    uint64_t began = clock_ns(), before = submits;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = ring[head % 64].slot;
        head++;
        ev = (struct gateway_event){.kind = GE_TOKENS, .sub = current[slot]};
        ev.tokens.finish = FINISH_REFUSED; /* one that needs no index: ACK and FAIL, the slot is free */
        now += 1000;
        give(&ev);
        struct gateway_event st = {.kind = GE_STATUS};
        st.status.number = 3 + i;
        st.status.window[CLASS_BATCH] = 1;
        give(&st);
        for (uint32_t k = 0; k < n_acts; k++) {
            if (acts[k].kind == GA_SUBMIT) ring[(head + count - 1) % 64].slot = acts[k].slot;
        }
    }
    if (submits - before != n) exit(1);
    return (double)(clock_ns() - began) / n;
}

int main(int argc, char **argv)
{
    if (argc > 1) n_requests = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2) n_tenants = (uint32_t)strtoul(argv[2], NULL, 10);
    if (n_requests < 1000 || n_tenants == 0) return 2;
    start();
    worker_joins();
    uint64_t t = clock_ns();
    for (uint32_t i = 0; i < n_requests; i++) arrive(i);
    double enqueue = (double)(clock_ns() - t) / n_requests, removed = 0, other[3];
    uint32_t some = n_requests / 10;
    t = clock_ns();
    for (uint32_t i = 0; i < some; i++) {
        struct gateway_event ev = {.kind = GE_CANCEL, .slot = (uint32_t)(rand_at(9, i) % n_requests)};
        give(&ev);
        removed += n_acts > 0;
    }
    double cancel = (double)(clock_ns() - t) / some;
    double pick = ends(n_requests / 2);
    for (int k = 0; k < 3; k++) {
        struct gateway_stats st;
        struct gateway_event ev = {.kind = k == 0 ? GE_STATUS : GE_TICK};
        t = clock_ns();
        for (uint32_t i = 0; i < 1000; i++) {
            ev.status.number = n_requests * 4ull + i;
            now += 1000000;
            if (k < 2)
                give(&ev);
            else
                gateway_core_stats(g, &st);
        }
        other[k] = (double)(clock_ns() - t) / 1000;
    }
    printf("enqueue %.0f ns, pick (end, STATUS, SUBMIT) %.0f ns, remove %.0f ns (%.0f were there)\n",
           enqueue, pick, cancel, removed);
    printf("with the queue full: STATUS %.0f ns, tick %.0f ns, stats %.0f ns\n", other[0], other[1],
           other[2]);
    return enqueue < 2000 && pick < 2000 ? 0 : 1;
}
