/* gfix.h - the fixture of gateway_core's tests: events by hand, the actions of the last one. */
#ifndef SLUICE_TESTS_GFIX_H
#define SLUICE_TESTS_GFIX_H

#include "base/mem.h"
#include "scheduler/gateway_core.h"
#include "tests/common/test_run.h"

#include <string.h>

#define SECOND 1000000000ull
#define INCARNATION 5u

static struct gateway_core *g;
static struct gateway_core_config cfg;
static struct gateway_action *acts;
static uint32_t n_acts;
static uint64_t now;

static inline void start(void)
{
    g = gateway_core_init(mem_zalloc(gateway_core_bytes(&cfg)), &cfg);
    acts = mem_array(gateway_core_actions_max(&cfg), sizeof *acts);
    now = SECOND;
}

static inline void setup(void)
{
    memset(&cfg, 0, sizeof cfg);
    cfg = (struct gateway_core_config){.max_slots = 32,
                                       .max_workers = 4,
                                       .incarnation = INCARNATION,
                                       .no_worker_ns = 5 * SECOND,
                                       .lost_ns = 5 * SECOND};
    class_table_default(&cfg.classes);
    start();
}

static inline void teardown(void)
{
    mem_free(g);
    mem_free(acts);
}

static inline void give(const struct gateway_event *ev)
{
    n_acts = gateway_core_handle(g, ev, now, acts);
    const char *bad = gateway_core_check(g);
    ck_assert_msg(bad == NULL, "%s", bad);
}

/* The only action of that kind, or NULL; more than one fails. */
static inline const struct gateway_action *one(enum gateway_action_kind kind)
{
    const struct gateway_action *found = NULL;
    for (uint32_t i = 0; i < n_acts; i++) {
        if (acts[i].kind != kind) continue;
        ck_assert_msg(found == NULL, "two actions of kind %d", (int)kind);
        found = &acts[i];
    }
    return found;
}

static inline uint32_t count(enum gateway_action_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_acts; i++) n += acts[i].kind == kind;
    return n;
}

static inline void arrive_with(uint32_t slot, uint8_t cls, uint64_t tag, uint64_t deadline_ns,
                               bool durable)
{
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = slot};
    ev.arrived.cls = cls;
    ev.arrived.tag = tag;
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = 4;
    ev.arrived.max_total = 8;
    ev.arrived.deadline_ns = deadline_ns;
    ev.arrived.durable = durable;
    give(&ev);
}

static inline void arrive(uint32_t slot, uint8_t cls)
{
    arrive_with(slot, cls, slot, 0, false);
}

static inline struct gateway_event hello_of(uint32_t worker, uint64_t name, uint64_t incarnation,
                                            uint64_t numerics)
{
    struct gateway_event ev = {.kind = GE_HELLO, .worker = worker};
    ev.hello.name = name;
    ev.hello.incarnation = incarnation;
    ev.hello.version_min = ev.hello.version_max = 1;
    ev.hello.numerics = (struct hash128){numerics, 1};
    ev.hello.n_ctx = 100;
    ev.hello.block_tokens = 4;
    ev.hello.n_blocks = 17;
    ev.hello.max_seqs = 4;
    ev.hello.max_slots = 16;
    return ev;
}

static inline void hello(uint32_t worker, uint64_t name, uint64_t incarnation)
{
    struct gateway_event ev = hello_of(worker, name, incarnation, 1);
    give(&ev);
    ck_assert_int_eq(one(GA_HELLO_REPLY)->code, ERR_OK);
}

static inline void sync(uint32_t worker, const struct gateway_sync *list, uint32_t n)
{
    struct gateway_event ev = {.kind = GE_SYNC, .worker = worker, .sync = list, .n_sync = n};
    give(&ev);
}

static inline void live(uint32_t worker)
{
    hello(worker, 100 + worker, 1);
    sync(worker, NULL, 0);
}

static inline void tokens(uint32_t worker, struct sub_id sub, uint32_t index, uint32_t n,
                          enum finish f)
{
    struct gateway_event ev = {.kind = GE_TOKENS, .worker = worker, .sub = sub};
    ev.tokens.index = index;
    ev.tokens.n = n;
    ev.tokens.finish = f;
    give(&ev);
}

static inline void on_slot(enum gateway_event_kind kind, uint32_t slot)
{
    struct gateway_event ev = {.kind = kind, .slot = slot};
    give(&ev);
}

static inline void on_worker(enum gateway_event_kind kind, uint32_t worker)
{
    struct gateway_event ev = {.kind = kind, .worker = worker};
    give(&ev);
}

static inline void status(uint32_t worker, uint64_t number, uint32_t window, bool draining)
{
    struct gateway_event ev = {.kind = GE_STATUS, .worker = worker};
    ev.status.number = number;
    for (int k = 0; k < CLASSES_MAX; k++) ev.status.window[k] = window;
    ev.status.draining = draining;
    give(&ev);
}

static inline void tick(void)
{
    on_worker(GE_TICK, 0);
}

static inline struct sub_id submitted(uint32_t slot)
{
    const struct gateway_action *a = one(GA_SUBMIT);
    ck_assert_ptr_nonnull(a);
    ck_assert_uint_eq(a->slot, slot);
    return a->sub;
}

#endif
