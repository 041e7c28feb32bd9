/* Two gateways on one pool: shares hold across them, by the workers' counters and start tags alone.
 *
 * Made-up workers as in test_fairness (a few seats; a busy one makes a chunk of prompt or one id a step; the unstarted
 * sequence with the smallest tag takes a free seat, whichever gateway sent it). What a worker says is what
 * worker_core and worker/shown say: after each step the counters that changed (a prompt with its first id),
 * to every gateway, before the ids; with each STATUS the tag started last. Each tenant keeps a backlog at its own
 * gateway. Measured: tokens served over windows in which each tenant ends WINDOW requests, against the weights.
 * A gateway that restarts forgets all and its sequences are gone from the workers. */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/gateway_core.h"
#include "tests/common/test_run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { GATEWAYS = 2, WORKERS = 3, SEATS = 8, UNSTARTED = 8, SLOTS = 1024, TENANTS = 100, CHUNK = 32, WINDOW = 150 };
#define SECOND 1000000000ull

struct request {
    uint32_t tenant, n_prompt, n_out, computed, made, worker;
    uint64_t tag;
    struct sub_id sub;
    bool live, sent, began;
};

struct tenant {
    uint32_t home, weight, prompt_lo, prompt_hi, out_lo, out_hi, backlog, live, ended;
    uint64_t served;
};

struct gateway {
    struct gateway_core *core;
    void *region;
    struct request req[SLOTS];
    uint32_t free_slots[SLOTS], n_free;
    uint64_t incarnation;
};

struct worker {
    uint32_t busy;
    uint64_t prompt_first[TENANTS], output[TENANTS], started_tag, status_number;
};

static struct gateway gws[GATEWAYS];
static struct worker workers[WORKERS];
static struct tenant who[TENANTS];
static struct gateway_core_config cfg;
static struct gateway_action *acts;
static uint32_t n_tenants, n_workers;
static uint64_t now, draws, steps, seed = 17;
static bool mute; /* workers show neither counters nor tags: what it would be without */

static uint32_t between(uint32_t lo, uint32_t hi)
{
    return lo + (uint32_t)(rand_at(seed, draws++) % (hi - lo + 1));
}

static void act(uint32_t gw, const struct gateway_event *ev)
{
    struct gateway *g = &gws[gw];
    uint32_t n = gateway_core_handle(g->core, ev, now, acts);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert(acts[i].kind != GA_FAIL);
        if (acts[i].kind != GA_SUBMIT) continue;
        struct request *r = &g->req[acts[i].slot];
        r->sent = true;
        r->sub = acts[i].sub;
        r->tag = acts[i].tag;
        r->worker = acts[i].worker;
    }
}

static void comes(uint32_t tenant)
{
    struct tenant *t = &who[tenant];
    struct gateway *g = &gws[t->home];
    uint32_t slot = g->free_slots[--g->n_free];
    struct request *r = &g->req[slot];
    *r = (struct request){.tenant = tenant,
                          .n_prompt = between(t->prompt_lo, t->prompt_hi),
                          .n_out = between(t->out_lo, t->out_hi),
                          .live = true};
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = slot};
    ev.arrived.cls = CLASS_BATCH;
    ev.arrived.tenant = tenant;
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = r->n_prompt;
    ev.arrived.max_total = r->n_prompt + r->n_out;
    t->live++;
    act(t->home, &ev);
}

static void joins(uint32_t gw, uint32_t worker)
{
    struct gateway_event ev = {.kind = GE_HELLO, .worker = worker};
    ev.hello.name = worker + 1;
    ev.hello.incarnation = 100 + worker;
    ev.hello.version_min = ev.hello.version_max = 1;
    ev.hello.n_ctx = ev.hello.n_blocks = 100000;
    ev.hello.block_tokens = 16;
    ev.hello.max_seqs = SEATS;
    ev.hello.max_slots = 64;
    act(gw, &ev);
    act(gw, &(struct gateway_event){.kind = GE_SYNC, .worker = worker});
}

/* All that had anything, then that this was all. */
static void shows(uint32_t gw, uint32_t worker)
{
    const struct worker *w = &workers[worker];
    for (uint32_t i = 0; i < n_tenants && !mute; i++) {
        struct gateway_event ev = {.kind = GE_ACCOUNT, .worker = worker};
        if (w->prompt_first[i] + w->output[i] == 0) continue;
        ev.account.tenant = i;
        ev.account.cls = CLASS_BATCH;
        ev.account.prompt_first = w->prompt_first[i];
        ev.account.output = w->output[i];
        act(gw, &ev);
    }
    struct gateway_event ev = {.kind = GE_ACCOUNT, .worker = worker, .account.all = true};
    if (!mute) act(gw, &ev);
}

static void opens(uint32_t gw)
{
    struct gateway *g = &gws[gw];
    g->incarnation++;
    cfg.incarnation = 1000 * (gw + 1) + g->incarnation;
    memset(g->region, 0, gateway_core_bytes(&cfg));
    g->core = gateway_core_init(g->region, &cfg);
    memset(g->req, 0, sizeof g->req);
    g->n_free = 0;
    for (uint32_t i = 0; i < SLOTS; i++) g->free_slots[g->n_free++] = i;
    for (uint32_t i = 0; i < n_tenants; i++) {
        struct gateway_event ev = {.kind = GE_TENANT};
        ev.tenant.index = i;
        ev.tenant.weight_permille = who[i].weight * 1000;
        act(gw, &ev);
        if (who[i].home == gw) who[i].live = 0;
    }
    for (uint32_t w = 0; w < n_workers; w++) {
        joins(gw, w);
        shows(gw, w);
    }
}

static void restarts(uint32_t gw)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        const struct request *r = &gws[gw].req[i];
        if (r->live && r->began) workers[r->worker].busy--;
    }
    opens(gw);
}

static void ends(uint32_t gw, uint32_t slot)
{
    struct gateway *g = &gws[gw];
    struct request *r = &g->req[slot];
    who[r->tenant].ended++;
    who[r->tenant].live--;
    workers[r->worker].busy--;
    r->live = r->sent = r->began = false;
    act(gw, &(struct gateway_event){.kind = GE_RELEASE, .slot = slot});
    g->free_slots[g->n_free++] = slot;
}

static void runs(uint32_t gw, uint32_t slot)
{
    struct request *r = &gws[gw].req[slot];
    struct worker *w = &workers[r->worker];
    uint32_t left = r->n_prompt - r->computed, n = left < CHUNK ? left : CHUNK;
    if (left > 0) {
        r->computed += n;
        who[r->tenant].served += n;
        return;
    }
    if (r->made == 0) w->prompt_first[r->tenant] += r->n_prompt;
    w->output[r->tenant]++;
    who[r->tenant].served++;
    struct gateway_event ev = {.kind = GE_ACCOUNT, .worker = r->worker};
    ev.account.tenant = r->tenant;
    ev.account.cls = CLASS_BATCH;
    ev.account.prompt_first = w->prompt_first[r->tenant];
    ev.account.output = w->output[r->tenant];
    for (uint32_t k = 0; k < GATEWAYS && !mute; k++) act(k, &ev);
    ev = (struct gateway_event){.kind = GE_TOKENS, .worker = r->worker, .sub = r->sub};
    ev.tokens.index = r->n_prompt + r->made;
    ev.tokens.n = 1;
    ev.tokens.finish = r->made + 1 == r->n_out ? FINISH_LENGTH : FINISH_NONE;
    r->made++;
    act(gw, &ev);
    if (ev.tokens.finish != FINISH_NONE) ends(gw, slot);
}

static struct request *smallest(uint32_t worker)
{
    struct request *best = NULL;
    for (uint32_t k = 0; k < GATEWAYS; k++) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            struct request *r = &gws[k].req[i];
            if (!r->sent || r->began || r->worker != worker) continue;
            if (best == NULL || r->tag < best->tag) best = r;
        }
    }
    return best;
}

static void seats(uint32_t worker)
{
    struct worker *w = &workers[worker];
    for (struct request *r; w->busy < SEATS && (r = smallest(worker)) != NULL;) {
        r->began = true;
        w->started_tag = r->tag;
        w->busy++;
    }
}

static void tells(uint32_t worker)
{
    uint32_t unstarted = 0;
    for (uint32_t k = 0; k < GATEWAYS; k++)
        for (uint32_t i = 0; i < SLOTS; i++)
            unstarted += gws[k].req[i].sent && !gws[k].req[i].began && gws[k].req[i].worker == worker;
    struct gateway_event ev = {.kind = GE_STATUS, .worker = worker};
    ev.status.number = ++workers[worker].status_number;
    ev.status.window[CLASS_BATCH] = unstarted < UNSTARTED ? UNSTARTED - unstarted : 0;
    if (!mute) ev.status.started_tag[CLASS_BATCH] = workers[worker].started_tag;
    for (uint32_t k = 0; k < GATEWAYS; k++) act(k, &ev);
}

static void step(void)
{
    now += 5000000;
    for (uint32_t i = 0; i < n_tenants; i++) {
        while (who[i].live < who[i].backlog) comes(i);
    }
    for (uint32_t w = 0; w < n_workers; w++) {
        if (steps % 16 == 0) tells(w);
        seats(w);
    }
    steps++;
    for (uint32_t k = 0; k < GATEWAYS; k++) {
        for (uint32_t i = 0; i < SLOTS; i++) {
            if (gws[k].req[i].live && gws[k].req[i].began) runs(k, i);
        }
        const char *bad = steps % 512 == 0 ? gateway_core_check(gws[k].core) : NULL;
        ck_assert_msg(bad == NULL, "%s", bad);
    }
}

/* Until each tenant has ended `most` requests, and at least 20 s. */
static double window_error(uint32_t most)
{
    uint64_t before[TENANTS], all = 0, weights = 0, from = now;
    uint32_t ended[TENANTS];
    for (uint32_t i = 0; i < n_tenants; i++) before[i] = who[i].served;
    for (uint32_t i = 0; i < n_tenants; i++) ended[i] = who[i].ended;
    for (uint32_t i = 0; i < n_tenants; i++) {
        while (who[i].ended < ended[i] + most || now < from + 20 * SECOND) step();
    }
    double worst = 0;
    for (uint32_t i = 0; i < n_tenants; i++) {
        all += who[i].served - before[i];
        weights += who[i].weight;
    }
    for (uint32_t i = 0; i < n_tenants; i++) {
        double fair = (double)all * who[i].weight / (double)weights;
        double off = ((double)(who[i].served - before[i]) - fair) / fair;
        if (off < 0) off = -off;
        if (off > worst) worst = off;
    }
    return worst;
}

static void begin(uint32_t tenants, uint32_t n_work, bool silent)
{
    memset(&cfg, 0, sizeof cfg);
    cfg = (struct gateway_core_config){.max_slots = SLOTS,
                                       .max_workers = WORKERS,
                                       .incarnation = 1,
                                       .no_worker_ns = 5 * SECOND,
                                       .lost_ns = 5 * SECOND,
                                       .max_tenants = tenants};
    class_table_default(&cfg.classes);
    now = SECOND;
    steps = 0;
    mute = silent;
    n_tenants = tenants;
    n_workers = n_work;
    memset(workers, 0, sizeof workers);
    memset(who, 0, sizeof who);
    acts = mem_array(gateway_core_actions_max(&cfg), sizeof *acts);
    for (uint32_t k = 0; k < GATEWAYS; k++)
        gws[k] = (struct gateway){.region = mem_map(gateway_core_bytes(&cfg))};
}

static void end(void)
{
    for (uint32_t k = 0; k < GATEWAYS; k++) mem_unmap(gws[k].region, gateway_core_bytes(&cfg));
    mem_free(acts);
}

static void is_like(uint32_t tenant, uint32_t home, uint32_t weight, bool is_long, uint32_t backlog)
{
    who[tenant] = (struct tenant){.home = home,
                                  .weight = weight,
                                  .prompt_lo = is_long ? 96 : 16,
                                  .prompt_hi = is_long ? 160 : 48,
                                  .out_lo = is_long ? 24 : 4,
                                  .out_hi = is_long ? 48 : 16,
                                  .backlog = backlog};
}

static double two(uint32_t weight, bool is_long, bool silent, const char *name)
{
    begin(2, 1, silent);
    is_like(0, 0, weight, false, 60);
    is_like(1, 1, 1, is_long, 60);
    for (uint32_t k = 0; k < GATEWAYS; k++) opens(k);
    while (who[0].ended < 100 || who[1].ended < 100) step();
    double worst = 0;
    for (int i = 0; i < 3; i++) {
        double off = window_error(WINDOW);
        worst = off > worst ? off : worst;
    }
    printf("%s: worst window %.2f %%\n", name, worst * 100);
    end();
    return worst;
}

START_TEST(test_each_tenant_on_its_own_gateway)
{
    ck_assert(two(4, false, false, "4:1") <= 0.05);
    ck_assert(two(1, true, false, "1:1, short against long") <= 0.05);
    ck_assert(two(4, true, false, "4:1, short against long") <= 0.05);
}
END_TEST

/* 90 on one gateway, 10 on the other, which is restarted in the middle; weights differ. */
static double hundred(bool silent, bool restart, const char *name)
{
    begin(100, 3, silent);
    for (uint32_t i = 0; i < 100; i++) is_like(i, i >= 90, 1 + (i % 3 == 0), i % 7 == 0, 8);
    for (uint32_t k = 0; k < GATEWAYS; k++) opens(k);
    double worst = 0;
    for (uint32_t i = 0; i < 100; i++) {
        while (who[i].ended < 20) step();
    }
    if (restart) { /* in the middle of the window, and it counts */
        for (uint32_t i = 0; i < 4000; i++) step();
    }
    for (int i = 0; i < 2; i++) {
        if (restart && i == 1) restarts(1);
        double off = window_error(WINDOW);
        worst = off > worst ? off : worst;
    }
    printf("%s: worst window %.2f %%\n", name, worst * 100);
    end();
    return worst;
}

START_TEST(test_hundred_tenants_and_a_restart)
{
    ck_assert(hundred(false, true, "100 tenants, one gateway restarted") <= 0.05);
}
END_TEST

/* The check can fail: without what workers show, each gateway's frame is its own. */
START_TEST(test_without_what_workers_show)
{
    ck_assert(hundred(true, true, "the same, workers that show nothing") > 0.05);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("two_gateways");
    TCase *tc = tcase_create("shares");
    const char *env = getenv("TEST_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, test_each_tenant_on_its_own_gateway);
    tcase_add_test(tc, test_hundred_tenants_and_a_restart);
    tcase_add_test(tc, test_without_what_workers_show);
    suite_add_tcase(s, tc);
    return test_run(s);
}
