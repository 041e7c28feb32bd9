/* What a request costs its tenant, through the whole gateway: budget and usage agree with what was delivered,
 * however it ends, and a process that is killed leaves both. */
#include "base/mem.h"
#include "gateway/budget_file.h"
#include "gateway/tenants.h"
#include "gateway/usage.h"
#include "tests/common/testpaths.h"
#include "tests/unit/gateway/gateway_rig.h"

#include <stdlib.h>
#include <string.h>

static struct rig r;
static struct tenant *t;
static char dir[TEST_PATH_MAX];

static void limit(uint32_t tokens, uint32_t requests)
{
    const struct token_limits l = {.tokens_per_minute = tokens, .requests_per_minute = requests};
    token_budget_limits(&t->budget, &l);
}

static void open_books(void)
{
    struct err e;
    r.g.started_wall_s = gateway_wall_s();
    ck_assert_int_eq(usage_create(&r.g.usage, &r.loop, dir, gateway_wall_s(), &e), 0);
    ck_assert_int_eq(budget_file_open(&r.g.budgets, dir, &e), 0);
    ck_assert_int_eq(tenants_create(&r.g.tenants, &r.g, &e), 0);
    t = tenants_at(r.g.tenants, 0);
}

static void close_books(void)
{
    tenants_destroy(&r.g.tenants);
    budget_file_close(&r.g.budgets);
    usage_destroy(&r.g.usage);
}

static void setup(void)
{
    ck_assert_int_eq(test_tmpdir_make(dir, "usage"), 0);
    rig_open(&r, NULL);
    open_books();
    rig_join(&r, 512);
}

static void teardown(void)
{
    rig_idle(&r);
    close_books();
    rig_close(&r);
    test_tmpdir_remove(dir);
}

static void on_wake(void *door)
{
    ((struct rig_door *)door)->wakes++;
}

static void post(struct rig_door *d, const char *body)
{
    struct request_in in = {.endpoint = ENDPOINT_COMPLETION, .wake = on_wake, .door = d};
    in.who = (struct key_grant){t, UINT8_MAX};
    memset(d, 0, sizeof *d);
    in.n_body = strlen(body);
    in.body = mem_memdup(body, in.n_body + 1);
    d->request = request_submit(&r.g, &in);
    ck_assert_ptr_nonnull(d->request);
}

#define BODY(max, more) "{\"model\":\"tiny\",\"prompt\":\"abcdef\",\"max_tokens\":" max more "}"

static struct usage_counts counts(void)
{
    struct usage_counts c;
    usage_find(r.g.usage, TENANT_OPEN_NAME, &c);
    return c;
}

static uint64_t used(void)
{
    return minute_window_sum(&t->budget.tokens, gateway_now_ns());
}

static void nothing_reserved(void)
{
    ck_assert_uint_eq(t->budget.reserved_prompt + t->budget.reserved_output, 0);
    ck_assert_uint_eq(t->budget.in_flight, 0);
}

START_TEST(test_whole_answer)
{
    struct rig_door d;
    struct msg keep;
    post(&d, BODY("20", ""));
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert_uint_eq(t->budget.reserved_prompt + t->budget.reserved_output, s.n_prompt + 20);
    rig_answer(&r, &s, "hello", FINISH_EOS);
    ck_assert_int_eq(rig_settle(&r, &d), REQUEST_REPLY);
    struct usage_counts c = counts();
    ck_assert(c.requests == 1 && c.prompt == s.n_prompt && c.output == 5);
    ck_assert_uint_eq(used(), s.n_prompt + 5);
    nothing_reserved(); /* at the finish, not when the client has read it all */
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
    rig_drop(&d);
    ck_assert_uint_eq(counts().refused_server + counts().refused_limits, 0);
}
END_TEST

/* Case B90: 30 streams, each left after a few tokens. */
START_TEST(test_clients_that_leave)
{
    uint64_t prompt = 0, output = 0;
    for (uint32_t k = 0; k < 30; k++) {
        struct rig_door d;
        struct msg keep;
        post(&d, k % 2 ? BODY("40", ",\"stream\":true") : BODY("40", ""));
        struct msg_submit s = rig_submitted(&r, &keep);
        const int32_t ids[5] = {TINY_BYTE('a'), TINY_BYTE('b'), TINY_BYTE('c'), TINY_BYTE('d'),
                                TINY_BYTE('e')};
        rig_tokens(&r, s.sub, s.n_prompt, ids, 1 + k % 5, NULL, FINISH_NONE, 0);
        prompt += s.n_prompt;
        output += 1 + k % 5;
        while (counts().output < output) rig_turn(&r);
        rig_drop(&d);
        rig_expect(&r, MSG_CANCEL, s.sub);
        rig_tokens(&r, s.sub, s.n_prompt + 1 + k % 5, ids, 2, NULL, FINISH_CANCELLED, 0);
        msg_deinit(&keep);
        rig_idle(&r);
    }
    ck_assert(counts().prompt == prompt && counts().output == output);
    ck_assert_uint_eq(counts().requests, 30);
    ck_assert_uint_eq(used(), prompt + output);
    nothing_reserved();
}
END_TEST

/* Case B88: what is asked for at once is not let in at once. */
START_TEST(test_parallel_and_refused)
{
    struct rig_door d[8];
    struct msg keep[8];
    uint32_t in = 0;
    limit(60, 0);
    for (int i = 0; i < 8; i++) post(&d[i], BODY("20", ""));
    while (in < 2 || counts().refused_limits < 6) {
        struct msg m;
        rig_turn(&r);
        if (in < 2 && rig_try_recv(&r, &m)) keep[in++] = m;
    }
    ck_assert_uint_le(used() + t->budget.reserved_prompt + t->budget.reserved_output, 60);
    for (uint32_t i = 0; i < in; i++) {
        ck_assert_int_eq(keep[i].kind, MSG_SUBMIT);
        rig_answer(&r, &keep[i].u.submit, "yes", FINISH_EOS);
        rig_expect(&r, MSG_ACK, keep[i].u.submit.sub);
        msg_deinit(&keep[i]);
    }
    uint32_t failed = 0, s;
    for (int i = 0; i < 8; i++) {
        if (rig_settle(&r, &d[i]) == REQUEST_FAILED) {
            failed++;
            ck_assert_int_eq(err_http_status(request_error(d[i].request, &s)->code), 429);
            ck_assert_uint_ge(s, 1);
        }
        rig_drop(&d[i]);
    }
    ck_assert(failed == 6 && counts().requests == 2);
    nothing_reserved();
}
END_TEST

/* The process dies in the middle of an answer: what was used and reserved stands in the next one. */
START_TEST(test_killed_gateway)
{
    struct rig_door d;
    struct msg keep;
    limit(1000, 10);
    post(&d, BODY("20", ",\"stream\":true"));
    struct msg_submit s = rig_submitted(&r, &keep);
    const int32_t ids[2] = {TINY_BYTE('a'), TINY_BYTE('b')};
    rig_tokens(&r, s.sub, s.n_prompt, ids, 2, NULL, FINISH_NONE, 0);
    while (counts().output < 2) rig_turn(&r);
    /* what is on the disk now is what a killed process leaves */
    char path[TEST_PATH_MAX + 16];
    size_t n;
    snprintf(path, sizeof path, "%s/budgets", dir);
    char *image = test_read_file(path, &n);
    ck_assert_ptr_nonnull(image);
    rig_drop(&d);
    rig_expect(&r, MSG_CANCEL, s.sub);
    rig_tokens(&r, s.sub, s.n_prompt + 2, ids, 0, NULL, FINISH_CANCELLED, 0);
    rig_idle(&r);
    close_books();
    ck_assert_int_eq(test_write_file(path, image, n), 0);
    free(image);
    open_books(); /* the tenant has no limit in its file: restored amounts are cut to it */
    ck_assert_uint_eq(used(), 0);
    ck_assert_uint_eq(counts().output, 2);
    limit(1000, 10);
    budget_file_restore(r.g.budgets, TENANT_OPEN_NAME,
                        (struct budget_time){gateway_now_ns(), gateway_wall_s()}, &t->budget);
    ck_assert_uint_eq(used(), s.n_prompt + 20);
    msg_deinit(&keep);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("request_usage");
    TCase *tc = tcase_create("usage");
    tcase_set_timeout(tc, 0);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, test_whole_answer);
    tcase_add_test(tc, test_clients_that_leave);
    tcase_add_test(tc, test_parallel_and_refused);
    tcase_add_test(tc, test_killed_gateway);
    suite_add_tcase(s, tc);
    return test_run(s);
}
