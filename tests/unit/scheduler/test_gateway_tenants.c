/* gateway_core's tenants, event by event: caps, room, charges, tags, the floor share. */
#include "tests/unit/scheduler/gfix.h"

static void begin(uint32_t tenants, uint32_t batch_floor)
{
    setup();
    teardown();
    cfg.max_tenants = tenants;
    cfg.classes.rows[CLASS_BATCH].floor_permille = batch_floor;
    start();
}

static void told(uint32_t tenant, uint32_t weight_permille, uint32_t in_flight, uint32_t queued)
{
    struct gateway_event ev = {.kind = GE_TENANT};
    ev.tenant.index = tenant;
    ev.tenant.weight_permille = weight_permille;
    ev.tenant.max_in_flight = in_flight;
    ev.tenant.max_queued = queued;
    give(&ev);
}

static void arrive_of(uint32_t slot, uint32_t tenant, int8_t priority, uint64_t deadline_ns)
{
    struct gateway_event ev = {.kind = GE_ARRIVED, .slot = slot};
    ev.arrived.cls = CLASS_BATCH;
    ev.arrived.tenant = tenant;
    ev.arrived.priority = priority;
    ev.arrived.deadline_ns = deadline_ns;
    ev.arrived.n_prompt = ev.arrived.n_ids = ev.arrived.from = 4;
    ev.arrived.max_total = 8;
    give(&ev);
}

static struct gateway_tenant_stats of(uint32_t tenant)
{
    struct gateway_tenant_stats st;
    gateway_core_tenant_stats(g, tenant, &st);
    return st;
}

START_TEST(test_in_flight_cap)
{
    begin(2, 0);
    told(1, 1000, 1, 0);
    live(0);
    arrive_of(0, 1, 0, 0);
    struct sub_id s = submitted(0);
    arrive_of(1, 1, 0, 0);
    ck_assert_uint_eq(n_acts, 0);
    ck_assert(of(1).held);
    arrive_of(2, 0, 0, 0); /* passed over, blocks nobody */
    (void)submitted(2);
    told(1, 1000, 2, 0);
    (void)submitted(1);
    tokens(0, s, 4, 4, FINISH_LENGTH);
    ck_assert_uint_eq(of(1).sent[CLASS_BATCH], 1);
    teardown();
}
END_TEST

/* As many as it may have; the next one is refused, and only it. */
static uint32_t fill(uint32_t tenant, uint32_t slot)
{
    uint32_t n = 0;
    for (; gateway_core_room(g, tenant); n++) {
        arrive_of(slot + n, tenant, 0, 0);
        ck_assert_uint_eq(n_acts, 0);
    }
    if (slot + n == cfg.max_slots) return n;
    arrive_of(slot + n, tenant, 0, 0);
    ck_assert_int_eq(one(GA_FAIL)->code, ERR_QUEUE_FULL);
    ck_assert_uint_eq(of(tenant).refused, 1);
    return n;
}

START_TEST(test_room)
{
    begin(4, 0);
    for (uint32_t i = 0; i < 4; i++) told(i, 1000, 0, i == 3 ? 2 : 0);
    uint32_t a = fill(0, 0);
    ck_assert_uint_eq(a, 16); /* half, alone */
    uint32_t b = fill(1, a);
    ck_assert_uint_eq(b, 32 / 4);
    uint32_t c = fill(2, a + b);
    ck_assert_uint_ge(c, 32 / 6);
    uint32_t d = fill(3, a + b + c);
    ck_assert_uint_eq(d, 2); /* its own cap */
    teardown();
    begin(4, 0);
    told(2, 1000, 0, 0);
    ck_assert_uint_eq(fill(2, 0), 32); /* the only one known: all of it */
    teardown();
}
END_TEST

START_TEST(test_order_inside_a_tenant)
{
    begin(1, 0);
    arrive_of(0, 0, 0, 0);
    arrive_of(1, 0, 1, 0);
    now += 31 * SECOND;
    arrive_of(2, 0, 1, 0); /* a step of priority is worth 30 s */
    arrive_of(3, 0, 0, now + 60 * SECOND);
    live(0);
    ck_assert_uint_eq(count(GA_SUBMIT), 4);
    static const uint32_t want[] = {3, 1, 0, 2};
    for (uint32_t i = 0; i < 4; i++) ck_assert_uint_eq(acts[i].slot, want[i]);
    teardown();
}
END_TEST

START_TEST(test_charges_and_tags)
{
    begin(3, 0);
    told(1, 4000, 0, 0);
    live(0);
    arrive_of(0, 1, 0, 0);
    struct sub_id s = submitted(0);
    arrive_of(1, 1, 0, 0);
    uint64_t tag = one(GA_SUBMIT)->tag;
    ck_assert_uint_eq(tag, 8 * 65536 / 4); /* behind its own first one */
    arrive_of(2, 2, 0, 0);
    ck_assert_uint_le(one(GA_SUBMIT)->tag, tag);
    struct gateway_event ev = {.kind = GE_TOKENS, .worker = 0, .sub = s};
    ev.tokens.index = 4;
    ev.tokens.n = 2;
    ev.tokens.cached = 3;
    give(&ev);
    struct tenant_usage u = of(1).usage[CLASS_BATCH];
    ck_assert_uint_eq(u.prompt_first, 1);
    ck_assert_uint_eq(u.output, 2);
    ck_assert_uint_eq(u.in_flight, 2 + 8);
    on_worker(GE_DOWN, 0);
    ck_assert_uint_eq(of(1).usage[CLASS_BATCH].in_flight, 0);
    live(1);
    ck_assert_uint_eq(count(GA_SUBMIT), 3);
    for (uint32_t i = 0; i < n_acts; i++) { /* sent again: the tag it had */
        if (acts[i].kind == GA_SUBMIT && acts[i].slot == 1) ck_assert_uint_eq(acts[i].tag, tag);
    }
    ev = (struct gateway_event){.kind = GE_ACCOUNT, .worker = 1}; /* from here on that worker counts */
    ev.account.tenant = 1;
    ev.account.cls = CLASS_BATCH;
    ev.account.prompt_first = 100;
    give(&ev);
    uint64_t before = of(1).usage[CLASS_BATCH].virtual_time;
    ev.account.prompt_first = 104;
    give(&ev);
    ck_assert_uint_eq(of(1).usage[CLASS_BATCH].virtual_time, before + 65536);
    ev.account.tenant = 99; /* of nobody */
    give(&ev);
    teardown();
}
END_TEST

/* Both classes always have somebody queued; one slot gets free again and again. */
static uint32_t batch_of_400(uint32_t floor)
{
    struct sub_id subs[32];
    uint32_t batch = 0, at[4], head = 0, n = 0;
    begin(1, floor);
    for (uint32_t i = 0; i < 24; i++) arrive(i, i % 2 == 0 ? CLASS_REALTIME : CLASS_BATCH);
    struct gateway_event ev = hello_of(0, 1, 1, 1);
    ev.hello.max_slots = 4;
    give(&ev);
    sync(0, NULL, 0);
    for (uint32_t k = 0; k < 400; k++) {
        for (uint32_t i = 0; i < n_acts; i++) {
            if (acts[i].kind != GA_SUBMIT) continue;
            subs[acts[i].slot] = acts[i].sub;
            at[(head + n++) % 4] = acts[i].slot;
            batch += acts[i].slot % 2;
        }
        ck_assert_uint_eq(n, 4);
        uint32_t slot = at[head++ % 4];
        n--;
        status(0, k + 1, 4, false); /* no window is in the way, the slots are */
        ck_assert_uint_eq(count(GA_SUBMIT), 0);
        tokens(0, subs[slot], 4, 4, FINISH_LENGTH);
        uint32_t next = one(GA_SUBMIT)->slot;
        struct sub_id sub = one(GA_SUBMIT)->sub;
        on_slot(GE_RELEASE, slot);
        arrive(slot, slot % 2 == 0 ? CLASS_REALTIME : CLASS_BATCH);
        ck_assert_uint_eq(count(GA_SUBMIT), 0);
        acts[0] = (struct gateway_action){.kind = GA_SUBMIT, .slot = next, .sub = sub};
        n_acts = 1;
    }
    teardown();
    return batch;
}

START_TEST(test_floor_share)
{
    ck_assert_uint_eq(batch_of_400(0), 0);
    uint32_t got = batch_of_400(200);
    printf("batch got %u of 400\n", got);
    ck_assert_uint_ge(got, 80);
    ck_assert_uint_le(got, 84);
}
END_TEST

/* STATUS with a step model: 1 ms a step and 0.1 ms a position, times `slow`. */
static void status_cost(uint32_t worker, float slow)
{
    float cost[2 * COST_FEATURES] = {0};
    struct gateway_event ev = {.kind = GE_STATUS, .worker = worker};
    cost[COST_ONE] = 1e6f * slow;
    cost[COST_FIRST] = cost[COST_SPILL] = 1e5f * slow;
    ev.status.number = 1;
    ev.status.free_blocks = 16;
    ev.status.window[CLASS_BATCH] = 4;
    ev.status.cost = cost;
    ev.status.n_cost = 2 * COST_FEATURES;
    give(&ev);
}

static void begin_with_waits(uint32_t workers)
{
    setup();
    teardown();
    cfg.max_tenants = 3;
    cfg.max_slots = 2048;
    cfg.max_tickets = 64;
    start();
    for (uint32_t i = 0; i < 3; i++) told(i, 1000, 0, 0);
    for (uint32_t i = 0; i < workers; i++) {
        live(i);
        status_cost(i, i == 0 ? 1 : 16);
    }
    for (uint32_t i = 0; i < 1000; i++) arrive_of(i, 1, 0, 0);
}

static enum err_code admit_batch(uint32_t tenant, uint32_t n_prompt, uint64_t in_ns, uint64_t *wait_ns)
{
    struct gateway_ask ask = {
        .tenant = tenant, .n_seqs = 1, .n_prompt = n_prompt, .max_out = 4, .cls = CLASS_BATCH};
    struct admit_verdict v;
    ask.deadline_ns = in_ns != 0 ? now + in_ns : 0;
    enum err_code code = gateway_core_admit(g, &ask, now, &v);
    if (wait_ns != NULL) *wait_ns = v.wait_ns;
    return code;
}

/* A backlog refuses nobody for a deadline: another's does not stand before it, its own goes behind it. */
START_TEST(test_deadlines_at_the_door)
{
    begin_with_waits(1);
    ck_assert_int_eq(admit_batch(2, 4, SECOND / 10, NULL), ERR_OK);
    ck_assert_int_eq(admit_batch(1, 4, SECOND / 10, NULL), ERR_OK);
    ck_assert_int_eq(admit_batch(2, 80, SECOND / 1000, NULL), ERR_DEADLINE); /* 8 ms of prompt */
    teardown();
}
END_TEST

/* Rates of workers add up: a slow one more is no loss. */
START_TEST(test_a_slow_worker_more)
{
    uint64_t fast, both;
    begin_with_waits(1);
    ck_assert_int_eq(admit_batch(2, 4, 0, &fast), ERR_OK);
    teardown();
    begin_with_waits(2);
    ck_assert_int_eq(admit_batch(2, 4, 0, &both), ERR_OK);
    ck_assert_uint_gt(fast, 0);
    ck_assert_uint_le(both, fast);
    teardown();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gateway_tenants");
    TCase *tc = tcase_create("events");
    tcase_add_test(tc, test_in_flight_cap);
    tcase_add_test(tc, test_room);
    tcase_add_test(tc, test_order_inside_a_tenant);
    tcase_add_test(tc, test_charges_and_tags);
    tcase_add_test(tc, test_floor_share);
    tcase_add_test(tc, test_deadlines_at_the_door);
    tcase_add_test(tc, test_a_slow_worker_more);
    suite_add_tcase(s, tc);
    return test_run(s);
}
