/* admit.h on a made-up server: a worker with a few seats, steps that cost what a step costs, arrivals at one to three
 * times what it can do. Refused ones come back once, at the whole second after their promise, as clients do that
 * read Retry-After. Measured: promises kept, waits of those taken, how busy the server is while somebody is told to wait.
 * The model that admit is given is wrong by a factor on purpose. */
#include "base/hash.h"
#include "base/mem.h"
#include "scheduler/admit.h"
#include "tests/common/test_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define SECOND 1000000000ull
enum { SEATS = 16, WAITING = 4096, RETURNS = 65536, TENANTS = 4 };
#define PROMPT_NS (0.1 * MS) /* of a position */
#define STEP_NS (8.0 * MS)
#define SEQ_NS (0.5 * MS) /* a full step: 16 ms for 16 ids */

struct request {
    uint32_t tenant, n_prompt, n_out, computed, made, expected; /* expected: ids left in admit's book */
    uint64_t came_ns, key;
};

static struct admit *a;
static struct admit_config cfg;
static struct request queue[WAITING], seat[SEATS];
static uint32_t n_queue, n_seats, tenant_seqs[TENANTS], fair;
static struct { uint64_t at_ns; struct request r; } back[RETURNS];
static uint32_t n_back;
static uint64_t now, draws, keys, seed = 41;
static uint64_t taken, refused, unpromised, returned, kept, in_time, late, busy_ns, wait_ns;

static double drawn(void)
{
    return (double)(rand_at(seed, draws++) >> 11) / 9007199254740992.0;
}

static void begin(double model, uint32_t share_of_seats)
{
    cfg = (struct admit_config){.max_tickets = 4096, .max_tenants = TENANTS, .urgent = 1};
    a = admit_init(mem_map(admit_bytes(&cfg)), &cfg);
    now = SECOND;
    n_queue = n_seats = n_back = 0;
    taken = refused = unpromised = returned = kept = in_time = late = busy_ns = wait_ns = 0;
    memset(tenant_seqs, 0, sizeof tenant_seqs);
    fair = share_of_seats;
    struct admit_pool p = {1, SEATS, PROMPT_NS * model, (STEP_NS / SEATS + SEQ_NS) * model};
    admit_set_pool(a, &p, now);
}

static void end(void)
{
    ck_assert_ptr_null(admit_check(a));
    mem_unmap(a, admit_bytes(&cfg));
}

static void comes(struct request r, bool again)
{
    struct admit_verdict v;
    struct admit_ask ask = {.key = {r.key, 1},
                            .tenant = r.tenant,
                            .tenant_seqs = tenant_seqs[r.tenant],
                            .fair_seqs = fair,
                            .n_seqs = 1,
                            .n_prompt = r.n_prompt,
                            .n_out = 8,
                            .ahead = 1,
                            .objective_ns = SECOND};
    admit_decide(a, &ask, now, &v);
    returned += again;
    kept += again && v.taken;
    if (v.taken) {
        ck_assert_uint_lt(n_queue, WAITING);
        r.came_ns = now;
        r.expected = 8;
        queue[n_queue++] = r;
        tenant_seqs[r.tenant]++;
        admit_enter(a, 0, r.n_prompt, r.expected);
        taken++;
        return;
    }
    refused++;
    unpromised += v.retry_ns == 0;
    if (again || v.retry_ns == 0) return;
    ck_assert_uint_lt(n_back, RETURNS);
    back[n_back].at_ns = now + (v.retry_ns + SECOND - 1) / SECOND * SECOND + (uint64_t)(drawn() * 20 * MS);
    back[n_back++].r = r;
}

static void leaves(uint32_t i)
{
    admit_leave(a, 0, 0, seat[i].expected);
    tenant_seqs[seat[i].tenant]--;
    seat[i] = seat[--n_seats];
}

/* One step: prompts of newcomers whole, an id for each of the others. Returns what it took. */
static uint64_t step(void)
{
    double ns = STEP_NS;
    while (n_seats < SEATS && n_queue > 0) {
        seat[n_seats++] = queue[0];
        memmove(queue, queue + 1, --n_queue * sizeof *queue);
    }
    if (n_seats == 0) return 0;
    for (uint32_t i = 0; i < n_seats; i++)
        ns += seat[i].computed == 0 ? seat[i].n_prompt * PROMPT_NS : SEQ_NS;
    uint64_t end = now + (uint64_t)ns;
    for (uint32_t i = 0; i < n_seats; i++) {
        struct request *r = &seat[i];
        uint32_t n_prompt = r->computed == 0 ? r->n_prompt : 0, expected = r->expected > 0;
        if (n_prompt > 0) (end - r->came_ns <= SECOND) ? in_time++ : late++;
        r->computed = r->n_prompt;
        r->made++;
        r->expected -= expected;
        admit_work(a, 0, n_prompt, 1, expected, end);
    }
    for (uint32_t i = n_seats; i-- > 0;) {
        if (seat[i].made >= seat[i].n_out) leaves(i);
    }
    return (uint64_t)ns;
}

/* About 90 requests a second are what it can do: 32 positions and 8 ids each take 3.2 and 8 ms. */
static struct request drawn_request(uint32_t tenant)
{
    return (struct request){.tenant = tenant,
                            .n_prompt = 16 + (uint32_t)(drawn() * 33),
                            .n_out = 4 + (uint32_t)(drawn() * 9),
                            .key = ++keys};
}

static void returns(void)
{
    for (uint32_t i = 0; i < n_back;) {
        if (back[i].at_ns > now) {
            i++;
            continue;
        }
        struct request r = back[i].r;
        back[i] = back[--n_back];
        comes(r, true);
    }
}

static void run(double per_s, double seconds, bool drain)
{
    uint64_t until = now + (uint64_t)(seconds * SECOND), next = now;
    while (now < until || (drain && (n_back > 0 || n_seats + n_queue > 0))) {
        while (next <= now && now < until) {
            comes(drawn_request(0), false);
            next += (uint64_t)(-log(1 - drawn()) / per_s * SECOND);
        }
        returns();
        uint64_t ns = step(), idle = ns == 0 ? MS : 0;
        struct admit_stats st;
        admit_stats(a, &st);
        if (st.promised_ns > 0) {
            busy_ns += ns;
            wait_ns += ns + idle;
        }
        now += ns + idle;
        const char *bad = draws % 64 == 0 ? admit_check(a) : NULL;
        ck_assert_msg(bad == NULL, "%s", bad);
    }
}

static void three_times(double model)
{
    begin(model, 0);
    run(80, 10, false); /* below what it can do */
    uint64_t before = refused;
    run(240, 25, false); /* far over it */
    double share = (double)kept / (double)(returned > 0 ? returned : 1);
    run(10, 1, true);
    struct admit_stats st;
    for (int i = 0; i < 80; i++, now += 100 * MS) { /* those who came back in time, and those who did not */
        comes(drawn_request(0), false);
        (void)step();
    }
    admit_stats(a, &st);
    printf("model x %.2f: refused %llu below capacity, %llu over it; %llu came back, %.1f %% taken; "
           "waits kept %.1f %%; busy %.1f %% while somebody waits; ratio %.2f; never promised %llu\n",
           model, (unsigned long long)before, (unsigned long long)refused, (unsigned long long)returned,
           share * 100, 100.0 * (double)in_time / (double)(in_time + late),
           100.0 * (double)busy_ns / (double)wait_ns, st.ratio, (unsigned long long)unpromised);
    ck_assert_uint_gt(returned, 500);
    ck_assert(share >= 0.95);
    ck_assert(in_time >= 19 * late);
    ck_assert(busy_ns >= wait_ns / 100 * 93); /* to its end, when nobody comes anew to fill what is left over */
    ck_assert_uint_eq(st.tickets, 0);
    ck_assert_uint_eq(st.promised_ns, 0);
    end();
}

START_TEST(test_three_times_what_it_can_do)
{
    three_times(1);
    three_times(0.6); /* it is slower than the model says */
    three_times(1.6);
}
END_TEST

/* Who has less than its share of the seats is taken, whatever a flood was promised. */
START_TEST(test_a_flood_refuses_nobody_else)
{
    begin(1, SEATS / 2);
    uint32_t light = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        comes(drawn_request(0), false);
        if (i % 40 == 0) {
            uint64_t before = taken;
            comes(drawn_request(1), false);
            light++;
            ck_assert_uint_eq(taken, before + 1);
        }
        now += 4 * MS;
        if (i % 4 == 0) (void)step();
    }
    ck_assert_uint_gt(refused, 1000);
    ck_assert_uint_eq(light, 100);
    end();
}
END_TEST

/* Half of the book at most for one tenant while others hold some; early returns are told the rest. */
START_TEST(test_the_book_is_shared)
{
    begin(1, 0);
    cfg.max_tickets = 8;
    mem_unmap(a, admit_bytes(&(struct admit_config){.max_tickets = 4096, .max_tenants = TENANTS}));
    a = admit_init(mem_map(admit_bytes(&cfg)), &cfg);
    struct admit_pool p = {1, 1, PROMPT_NS, SEQ_NS};
    admit_set_pool(a, &p, now);
    admit_enter(a, 0, 20000, 8); /* 2 s of prompt stand before everybody */
    struct admit_ask ask = {.tenant = 1, .n_seqs = 1, .n_prompt = 10, .n_out = 8, .ahead = 1, .objective_ns = SECOND};
    struct admit_verdict v, early;
    ask.key = (struct hash128){1, 9};
    admit_decide(a, &ask, now, &v);
    ck_assert(!v.taken && v.retry_ns > SECOND);
    struct admit_stats two;
    admit_decide(a, &ask, now + 100 * MS, &early); /* so soon it is another one that asks for the same */
    ck_assert(!early.taken && early.retry_ns != 0);
    admit_stats(a, &two);
    ck_assert_uint_eq(two.tickets, 2);
    admit_decide(a, &ask, now + SECOND, &early); /* it comes back too early */
    ck_assert(!early.taken);
    ck_assert_uint_eq(early.retry_ns, v.retry_ns - SECOND);
    uint32_t promised = 0;
    ask.tenant = 0;
    for (uint64_t i = 0; i < 8; i++) {
        ask.key = (struct hash128){100 + i, 9};
        admit_decide(a, &ask, now + SECOND, &v);
        ck_assert(!v.taken);
        promised += v.retry_ns != 0;
    }
    ck_assert_uint_eq(promised, 4);
    ask.key = (struct hash128){1, 9};
    admit_decide(a, &ask, now + SECOND + early.retry_ns, &v);
    ck_assert(v.taken); /* though all stands there as before */
    ask.key = (struct hash128){100, 9};
    admit_decide(a, &ask, now + 60 * SECOND, &v); /* forgotten, and promised anew */
    ck_assert(!v.taken && v.retry_ns != 0);
    end();
}
END_TEST

/* Without a model, or an objective, nobody is refused; nor for what stands behind. */
START_TEST(test_nobody_is_refused_without_reason)
{
    begin(1, 0);
    struct admit_ask ask = {.key = {1, 1}, .n_seqs = 1, .n_prompt = 10, .n_out = 8, .ahead = 1, .objective_ns = SECOND};
    struct admit_verdict v;
    admit_enter(a, 1, 1000000, 8); /* a class below */
    admit_decide(a, &ask, now, &v);
    ck_assert(v.taken);
    admit_enter(a, 0, 1000000, 8);
    ask.objective_ns = 0;
    admit_decide(a, &ask, now, &v);
    ck_assert(v.taken);
    ask.objective_ns = SECOND;
    admit_set_pool(a, &(struct admit_pool){.workers = 1, .seats = 4}, now);
    admit_decide(a, &ask, now, &v);
    ck_assert(v.taken);
    admit_set_pool(a, &(struct admit_pool){1, 4, PROMPT_NS, SEQ_NS}, now);
    admit_decide(a, &ask, now, &v);
    ck_assert(!v.taken);
    ck_assert_uint_eq(v.retry_ns, 0); /* 100 s of work: that cannot be promised */
    end();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("admit");
    TCase *tc = tcase_create("admit");
    const char *env = getenv("TEST_SEED");
    if (env != NULL) seed = strtoull(env, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, test_three_times_what_it_can_do);
    tcase_add_test(tc, test_a_flood_refuses_nobody_else);
    tcase_add_test(tc, test_the_book_is_shared);
    tcase_add_test(tc, test_nobody_is_refused_without_reason);
    suite_add_tcase(s, tc);
    return test_run(s);
}
