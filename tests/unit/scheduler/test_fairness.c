/* Fairness of gateway_core on a made-up server: one worker with a few seats, each busy seat makes a
 * chunk of prompt or one token a step, the unstarted sequence with the smallest tag takes a free seat, as
 * worker_core does. All tenants keep a backlog. Measured: tokens served (prompt positions and ids, as they
 * are made) over windows in which each tenant ends WINDOW requests or more, against the weights.
 * And: a light tenant beside a flooder. */
#include "base/hash.h"
#include "tests/unit/scheduler/gfix.h"

#include <stdlib.h>

enum { SEATS = 8, UNSTARTED = 8, SLOTS = 1024, TENANTS = 128, CHUNK = 32, WINDOW = 150 };

struct request {
    uint32_t tenant, n_prompt, n_out, computed, made;
    uint64_t tag, number, began; /* number: of arrival; began: 0 = unstarted */
    struct sub_id sub;
    bool live, sent;
};

struct tenant {
    uint32_t weight, prompt_lo, prompt_hi, out_lo, out_hi, backlog; /* as many live requests it keeps */
    uint32_t live, ended;
    uint64_t served;
};

static struct request req[SLOTS];
static struct tenant who[TENANTS];
static uint32_t n_tenants, busy, n_free, free_slots[SLOTS];
static uint64_t draws, arrivals, starts, status_number, idle, steps, seed = 31;
static uint8_t the_class;

static uint32_t between(uint32_t lo, uint32_t hi)
{
    return lo + (uint32_t)(rand_at(seed, draws++) % (hi - lo + 1));
}

static void act(const struct gateway_event *ev)
{
    n_acts = gateway_core_handle(g, ev, now, acts);
    for (uint32_t i = 0; i < n_acts; i++) {
        struct request *r = acts[i].slot < SLOTS ? &req[acts[i].slot] : NULL;
        ck_assert(acts[i].kind != GA_FAIL);
        if (acts[i].kind != GA_SUBMIT) continue;
        r->sent = true;
        r->sub = acts[i].sub;
        r->tag = acts[i].tag;
    }
}

static void comes(uint32_t tenant)
{
    const struct tenant *t = &who[tenant];
    uint32_t slot = free_slots[--n_free];
    req[slot] = (struct request){.tenant = tenant,
                                 .n_prompt = between(t->prompt_lo, t->prompt_hi),
                                 .n_out = between(t->out_lo, t->out_hi),
                                 .number = ++arrivals,
                                 .live = true};
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = slot};
    ev.arrived.cls = the_class;
    ev.arrived.tenant = tenant;
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = req[slot].n_prompt;
    ev.arrived.max_total = req[slot].n_prompt + req[slot].n_out;
    who[tenant].live++;
    act(&ev);
}

static void told(uint32_t i)
{
    struct gateway_event ev = {.kind = GE_TENANT};
    ev.tenant.index = i;
    ev.tenant.weight_permille = who[i].weight * 1000;
    act(&ev);
}

static void begin(uint32_t tenants)
{
    memset(&cfg, 0, sizeof cfg);
    cfg = (struct gateway_core_config){.max_slots = SLOTS,
                                       .max_workers = 2,
                                       .incarnation = INCARNATION,
                                       .no_worker_ns = 5 * SECOND,
                                       .lost_ns = 5 * SECOND,
                                       .max_tenants = tenants};
    class_table_default(&cfg.classes);
    start();
    memset(req, 0, sizeof req);
    memset(who, 0, sizeof who);
    n_tenants = tenants;
    busy = n_free = 0;
    arrivals = starts = status_number = idle = steps = 0;
    the_class = CLASS_BATCH;
    for (uint32_t i = 0; i < SLOTS; i++) free_slots[n_free++] = i;
    struct gateway_event ev = hello_of(0, 1, 1, 1);
    ev.hello.n_ctx = 100000;
    ev.hello.n_blocks = 100000;
    ev.hello.max_seqs = SEATS;
    ev.hello.max_slots = 64;
    act(&ev);
    act(&(struct gateway_event){.kind = GE_SYNC});
}

static void ends(uint32_t slot)
{
    struct request *r = &req[slot];
    struct tenant *t = &who[r->tenant];
    t->ended++;
    t->live--;
    r->live = r->sent = false;
    busy--;
    act(&(struct gateway_event){.kind = GE_RELEASE, .slot = slot});
    free_slots[n_free++] = slot;
}

static void runs(uint32_t slot)
{
    struct request *r = &req[slot];
    uint32_t left = r->n_prompt - r->computed, n = left < CHUNK ? left : CHUNK;
    if (left > 0) {
        r->computed += n;
        who[r->tenant].served += n;
        return;
    }
    struct gateway_event ev = {.kind = GE_TOKENS, .sub = r->sub};
    ev.tokens.index = r->n_prompt + r->made;
    ev.tokens.n = 1;
    ev.tokens.finish = r->made + 1 == r->n_out ? FINISH_LENGTH : FINISH_NONE;
    r->made++;
    who[r->tenant].served++;
    act(&ev);
    if (ev.tokens.finish != FINISH_NONE) ends(slot);
}

static void seat_the_smallest(void)
{
    while (busy < SEATS) {
        uint32_t best = SLOTS;
        for (uint32_t i = 0; i < SLOTS; i++) {
            if (!req[i].sent || req[i].began != 0) continue;
            if (best == SLOTS || req[i].tag < req[best].tag ||
                (req[i].tag == req[best].tag && req[i].sub.counter / SLOTS < req[best].sub.counter / SLOTS))
                best = i;
        }
        if (best == SLOTS) return;
        req[best].began = ++starts;
        busy++;
    }
}

static void tells(void)
{
    struct gateway_event ev = {.kind = GE_STATUS};
    uint32_t unstarted = 0;
    for (uint32_t i = 0; i < SLOTS; i++) unstarted += req[i].sent && req[i].began == 0;
    ev.status.number = ++status_number;
    for (int k = 0; k < CLASSES_MAX; k++)
        ev.status.window[k] = unstarted < UNSTARTED ? UNSTARTED - unstarted : 0;
    act(&ev);
}

static void step(void)
{
    now += 5000000;
    for (uint32_t i = 0; i < n_tenants; i++) {
        while (who[i].live < who[i].backlog) comes(i);
    }
    if (steps++ % 16 == 0) tells();
    seat_the_smallest();
    idle += SEATS - busy;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (req[i].live && req[i].began != 0) runs(i);
    }
    if (steps % 512 == 0) {
        const char *bad = gateway_core_check(g);
        ck_assert_msg(bad == NULL, "%s", bad);
    }
}

/* Greatest distance of any tenant's share from its weight, over one window: until the one that ends fewest
 * requests has ended WINDOW. Shorter, and a single long request at its edge would be more than the bar. */
static double window_error(void)
{
    uint64_t before[TENANTS], all = 0, weights = 0;
    uint32_t ended[TENANTS];
    for (uint32_t i = 0; i < n_tenants; i++) before[i] = who[i].served;
    for (uint32_t i = 0; i < n_tenants; i++) ended[i] = who[i].ended;
    for (uint32_t i = 0; i < n_tenants; i++) {
        while (who[i].ended < ended[i] + WINDOW) step();
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

/* `long_every`: each such tenant has prompts and answers about four times as long. */
static void shares_hold(const char *name, uint32_t tenants, uint32_t weight_0, uint32_t long_every)
{
    begin(tenants);
    for (uint32_t i = 0; i < tenants; i++) {
        bool is_long = long_every != 0 && i % long_every == 0;
        who[i] = (struct tenant){.weight = i == 0 ? weight_0 : 1,
                                 .prompt_lo = is_long ? 96 : 16,
                                 .prompt_hi = is_long ? 160 : 48,
                                 .out_lo = is_long ? 24 : 4,
                                 .out_hi = is_long ? 48 : 16,
                                 .backlog = tenants > 50 ? 6 : 40};
        told(i);
    }
    uint32_t lightest = tenants - 1;
    for (uint32_t i = 1; long_every != 0 && i < tenants; i++) {
        if (i % long_every == 0) lightest = i;
    }
    while (who[lightest].ended < 20) step();
    double worst = 0;
    for (uint32_t k = 0; k < (tenants > 50 ? 2u : 6u); k++) {
        double off = window_error();
        if (off > worst) worst = off;
    }
    printf("%s: worst window %.2f %%, idle %.2f %%\n", name, worst * 100,
           (double)idle * 100 / (double)(steps * SEATS));
    ck_assert(worst <= 0.02);
    ck_assert(idle * 50 < steps * SEATS);
    teardown();
}

START_TEST(test_two_tenants)
{
    shares_hold("2 tenants 1:1", 2, 1, 0);
    shares_hold("2 tenants 1:1, long against short", 2, 1, 2);
    shares_hold("2 tenants 4:1", 2, 4, 0);
    shares_hold("2 tenants 4:1, long against short", 2, 4, 2);
}
END_TEST

START_TEST(test_five_tenants)
{
    shares_hold("5 tenants 1:1", 5, 1, 0);
    shares_hold("5 tenants 4:1, long against short", 5, 4, 2);
}
END_TEST

START_TEST(test_hundred_tenants)
{
    shares_hold("100 tenants 1:1", 100, 1, 0);
    shares_hold("100 tenants 4:1, long against short", 100, 4, 2);
}
END_TEST

/* No request of the flooder that arrived after a light tenant's starts before it. */
START_TEST(test_light_tenant_beside_a_flooder)
{
    begin(2);
    who[0] = (struct tenant){.weight = 1, .prompt_lo = 16, .prompt_hi = 48, .out_lo = 4, .out_hi = 16, .backlog = 400};
    who[1] = (struct tenant){.weight = 1, .prompt_lo = 16, .prompt_hi = 48, .out_lo = 4, .out_hi = 16};
    told(0);
    told(1);
    uint32_t seen = 0;
    for (uint32_t k = 0; k < 300; k++) {
        for (uint32_t i = between(20, 120); i > 0; i--) step();
        uint32_t slot = free_slots[n_free - 1];
        uint64_t number, sent_before = starts;
        comes(1);
        number = req[slot].number;
        while (req[slot].live && req[slot].began == 0) step();
        uint64_t began = req[slot].began;
        for (uint32_t i = 0; i < SLOTS; i++) {
            if (req[i].tenant == 0 && req[i].began != 0 && req[i].number > number)
                ck_assert_uint_gt(req[i].began, began);
        }
        ck_assert_uint_le(began - sent_before, UNSTARTED + SEATS + 1); /* behind what was sent already */
        seen++;
        while (who[1].live > 0) step();
    }
    ck_assert_uint_eq(seen, 300);
    teardown();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("fairness");
    TCase *tc = tcase_create("shares");
    const char *env = getenv("TEST_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    tcase_set_timeout(tc, 100);
    tcase_add_test(tc, test_two_tenants);
    tcase_add_test(tc, test_five_tenants);
    tcase_add_test(tc, test_hundred_tenants);
    tcase_add_test(tc, test_light_tenant_beside_a_flooder);
    suite_add_tcase(s, tc);
    return test_run(s);
}
