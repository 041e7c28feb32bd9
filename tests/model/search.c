#include "tests/model/search.h"

#include "base/mem.h"
#include "scheduler/gateway_core_impl.h"
#include "tests/model/key_set.h"
#include "tests/model/state_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define DEPTH_MAX 4096
#define CHOICES_MAX 64
#define REST_EVENTS_MAX 600 /* a fault-free schedule longer than this never comes to rest */
#define GATEWAY_BYTES 4096  /* checked at start */
#define WORKER_BYTES 8192

/* Everything a state is, at a fixed address so that the pointers in it stay right. */
struct live {
    _Alignas(64) char gateway[GATEWAY_BYTES];
    _Alignas(64) char worker[WORLD_WORKERS][WORKER_BYTES];
    struct world x;
    uint32_t faults_left, clients_left;
};

struct frame {
    struct live *saved;
    struct world_choice choices[CHOICES_MAX];
    uint32_t n, next;
};

struct search {
    const struct search_variant *v;
    struct live live;
    struct live scratch; /* the live state while a schedule to rest is followed */
    struct worker_core_config wcfg;
    struct gateway_core_config gcfg;
    struct key_set seen, good;
    struct frame frames[DEPTH_MAX];
    uint32_t depth;
    struct hash128 chain[REST_EVENTS_MAX];
    bool at_rest; /* the violation lies on such a schedule */
    struct search_result r;
};

static void search_configs(struct search *s)
{
    s->gcfg = (struct gateway_core_config){.max_slots = 1,
                                           .max_workers = 4,
                                           .incarnation = 3,
                                           .no_worker_ns = 5 * SECOND,
                                           .lost_ns = 5 * SECOND};
    class_table_default(&s->gcfg.classes);
    s->wcfg = (struct worker_core_config){
        .max_slots = 4,
        .max_seqs = 2,
        .max_spans = 2,
        .max_tokens = 8,
        .max_rows = 8,
        .prefill_chunk = 8,
        .n_ctx = 12,
        .min_run = 16,
        .park_max_ns = 2 * SECOND,
        .lost_realtime_ns = 2 * SECOND,
        .lost_batch_ns = 30 * SECOND,
        .finish_repeat_ns = SECOND,
        .pool = {.n_blocks = 9, .block_tokens = VW_BT, .max_seq_blocks = 3}};
    class_table_default(&s->wcfg.classes);
}

static void search_request(struct search *s, uint64_t key)
{
    struct world_request r = {.cls = s->v->cls,
                              .durable = s->v->durable,
                              .key = key,
                              .n_prompt = 2,
                              .from = 2,
                              .max_total = 5};
    world_request(&s->live.x, 0, &r, key, 0);
}

static void search_init(struct search *s)
{
    struct live *l = &s->live;
    void *regions[WORLD_WORKERS] = {l->worker[0], l->worker[1]};
    search_configs(s);
    if (gateway_core_bytes(&s->gcfg) > GATEWAY_BYTES || worker_core_bytes(&s->wcfg) > WORKER_BYTES)
        abort();
    world_init(&l->x, l->gateway, &s->gcfg, regions, &s->wcfg, 1);
    if (s->v->two_numerics) l->x.conn[1].numerics = 2;
    l->x.mutation = s->v->mutation;
    l->faults_left = s->v->faults;
    l->clients_left = s->v->second_client;
    struct world_choice list[CHOICES_MAX];
    while (s->v->up && world_choices(&l->x, list, CHOICES_MAX) > 0) world_apply(&l->x, list[0]);
    search_request(s, 1);
}

static void search_apply(struct search *s, struct world_choice c)
{
    if (c.kind == WC_KILL) {
        world_restart_worker(&s->live.x, c.who, &s->wcfg);
    } else if (c.kind == WC_CLIENT) {
        s->live.clients_left--;
        search_request(s, 2);
    } else {
        world_apply(&s->live.x, c);
    }
    if (c.kind >= WC_BREAK && c.kind != WC_CLIENT) s->live.faults_left--;
}

/* Has this worker, or its connection, anything to do with the request? Breaking one that has not
 * leads to where it had not come up yet, which is tried anyway. */
static bool search_involved(const struct search *s, uint32_t i)
{
    const struct world *x = &s->live.x;
    const struct gc_slot *slot = &gc_slots(x->g)[0];
    if (vw_used(&x->w[i]) > 0 ||
        (slot->state != GC_FREE && slot->worker / 2 == i && slot->worker != GC_NONE))
        return true;
    for (uint32_t m = 0; m < x->conn[i].to_w.n; m++) {
        if (x->conn[i].to_w.at[m].kind == WM_SUBMIT) return true;
    }
    return false;
}

static bool search_full_matters(const struct search *s)
{
    const struct world *x = &s->live.x;
    if (gc_slots(x->g)[0].state == GC_QUEUED) return true;
    for (uint32_t i = 0; i < WORLD_WORKERS; i++) {
        if (x->conn[i].gw_down_pending[0] || x->conn[i].gw_down_pending[1]) return true;
    }
    return false;
}

/* Early ticks are faults too: time passes although messages are under way. */
static uint32_t search_faults(struct search *s, struct world_choice *out, uint32_t n)
{
    static const struct world_choice all[] = {
        {WC_BREAK, 0},   {WC_BREAK, 1},  {WC_KILL, 0},   {WC_KILL, 1}, {WC_LOSE_GW, 0},
        {WC_LOSE_GW, 1}, {WC_LOSE_W, 0}, {WC_LOSE_W, 1}, {WC_FULL, 0}, {WC_CANCEL, 0}};
    if (s->live.faults_left == 0) return n;
    for (uint32_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].kind == WC_FULL && !search_full_matters(s)) continue;
        if ((all[i].kind == WC_BREAK || all[i].kind == WC_KILL) && !search_involved(s, all[i].who))
            continue;
        if (world_can(&s->live.x, all[i])) out[n++] = all[i];
    }
    return n;
}

static uint32_t search_choices(struct search *s, struct world_choice *out)
{
    uint32_t n = world_choices(&s->live.x, out, CHOICES_MAX);
    n = search_faults(s, out, n);
    if (s->live.clients_left > 0 && s->live.x.cancelled > 0 && !s->live.x.req[0].live)
        out[n++] = (struct world_choice){WC_CLIENT, 0};
    return n;
}

/* Early ticks: as WC_TICK choices with a fault taken; kept apart because a tick may also be no
 * fault. */
static uint32_t search_early_ticks(struct search *s, struct world_choice *out)
{
    static const struct world_choice all[] = {{WC_TICK_GW, 0}, {WC_TICK_W, 0}, {WC_TICK_W, 1}};
    struct world_choice busy[CHOICES_MAX];
    uint32_t n = 0;
    if (s->live.faults_left == 0 || world_choices(&s->live.x, busy, CHOICES_MAX) == 0) return 0;
    if (busy[0].kind >= WC_STATUS) return 0; /* nothing is under way: they come anyway */
    for (uint32_t i = 0; i < 3; i++) {
        if (world_can(&s->live.x, all[i])) out[n++] = all[i];
    }
    return n;
}

static const char *choice_name(enum world_choice_kind k)
{
    static const char *names[] = {"gateway gets from",
                                  "worker gets",
                                  "step ends on",
                                  "gateway hears of the end of session",
                                  "worker hears of a loss",
                                  "opens a session:",
                                  "client settles",
                                  "STATUS of",
                                  "gateway tick",
                                  "tick of worker",
                                  "BREAK",
                                  "KILL",
                                  "LOSE to gateway",
                                  "LOSE to worker",
                                  "FULL",
                                  "CANCEL",
                                  "second client"};
    return names[k];
}

static void search_print(const struct search *s, const char *what)
{
    printf("VIOLATION (%s): %s%s\n", s->v->name, what,
           s->at_rest ? ", on the schedule without further faults after this path" : "");
    for (uint32_t d = 0; d < s->depth; d++) {
        const struct frame *f = &s->frames[d];
        struct world_choice c = f->choices[f->next - 1];
        printf("  %2u %s %u\n", d, choice_name(c.kind), c.who);
    }
}

/* Follows the first choice until a state known to come to rest. NULL, or what is wrong. */
static const char *search_rest(struct search *s, uint32_t *events)
{
    struct world_choice list[CHOICES_MAX];
    const char *bad = NULL;
    *events = 0;
    if (key_set_has(&s->good, state_key(&s->live.x, 0))) return NULL;
    memcpy(&s->scratch, &s->live, sizeof s->live);
    for (*events = 0; bad == NULL; (*events)++) {
        struct hash128 k = state_key(&s->live.x, 0);
        if (key_set_has(&s->good, k)) break;
        if (*events == REST_EVENTS_MAX) {
            bad = "it does not come to rest";
            break;
        }
        s->chain[*events] = k;
        if (world_choices(&s->live.x, list, CHOICES_MAX) == 0) {
            bad = world_leak(&s->live.x);
            s->r.rests += bad == NULL;
            if (bad == NULL) (void)key_set_add(&s->good, k);
            break;
        }
        world_apply(&s->live.x, list[0]);
        bad = world_check(&s->live.x);
    }
    for (uint32_t i = 0; bad == NULL && i < *events; i++) (void)key_set_add(&s->good, s->chain[i]);
    memcpy(&s->live, &s->scratch, sizeof s->live);
    return bad;
}

/* A state just reached: checked, and entered if it is new. Returns what is wrong, or NULL. */
static const char *search_visit(struct search *s)
{
    uint32_t events = 0;
    const char *bad = world_check(&s->live.x);
    s->r.transitions++;
    if (bad != NULL) return bad;
    if (!key_set_add(&s->seen,
                     state_key(&s->live.x, s->live.faults_left | s->live.clients_left << 8)))
        return NULL;
    s->r.states++;
    bad = search_rest(s, &events);
    s->at_rest = bad != NULL;
    if (bad != NULL) return bad;
    if (s->depth == DEPTH_MAX || key_set_full(&s->seen) || key_set_full(&s->good))
        return "the search is too small for this model";
    struct frame *f = &s->frames[s->depth];
    f->n = search_choices(s, f->choices);
    uint32_t ordinary = f->n;
    f->n += search_early_ticks(s, f->choices + f->n);
    for (uint32_t i = ordinary; i < f->n; i++)
        f->choices[i].who |= 0x100; /* marks: costs a fault */
    f->next = 0;
    if (f->n == 0) return NULL;
    if (f->saved == NULL) f->saved = mem_alloc(sizeof *f->saved);
    memcpy(f->saved, &s->live, sizeof s->live);
    s->depth++;
    if (s->depth > s->r.depth) s->r.depth = s->depth;
    return NULL;
}

static const char *search_all(struct search *s)
{
    const char *bad = search_visit(s);
    while (bad == NULL && s->depth > 0) {
        struct frame *f = &s->frames[s->depth - 1];
        if (f->next == f->n) {
            s->depth--;
            continue;
        }
        struct world_choice c = f->choices[f->next++];
        memcpy(&s->live, f->saved, sizeof s->live);
        if (c.who & 0x100) s->live.faults_left--;
        c.who &= 0xff;
        search_apply(s, c);
        bad = search_visit(s);
        if (bad == NULL && s->v->states_max != 0 && s->r.states > s->v->states_max)
            bad = "more states than allowed";
    }
    return bad;
}

struct search_result search_run(const struct search_variant *v, bool print)
{
    struct search *s = mem_zalloc(sizeof *s);
    s->v = v;
    if (key_set_init(&s->seen, 23) != 0 || key_set_init(&s->good, 23) != 0) abort();
    search_init(s);
    s->r.violation = search_all(s);
    if (s->r.violation != NULL && print) search_print(s, s->r.violation);
    for (uint32_t d = 0; d < DEPTH_MAX; d++) mem_free(s->frames[d].saved);
    key_set_deinit(&s->seen);
    key_set_deinit(&s->good);
    struct search_result r = s->r;
    mem_free(s);
    return r;
}
