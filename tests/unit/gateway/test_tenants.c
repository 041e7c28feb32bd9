/* Tenants without sockets: the rule of classes, the index of keys, files put in force and taken out while
 * requests run, what the worker is told; and the RPC door with keys. */
#include "base/mem.h"
#include "gateway/auth.h"
#include "gateway/class_choice.h"
#include "gateway/json_value.h"
#include "gateway/rpc_door.h"
#include "gateway/tenants.h"
#include "proto/rpc.h"
#include "tests/unit/gateway/gateway_rig.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BODY "{\"model\":\"tiny\",\"prompt\":\"abcd\",\"max_tokens\":8"

static struct rig r;
static char dir[64], tenants_path[128], keys_path[128];

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void paths(struct settings *s)
{
    snprintf(s->tenants, sizeof s->tenants, "%s", tenants_path);
    snprintf(s->keys, sizeof s->keys, "%s", keys_path);
    snprintf(s->rpc, sizeof s->rpc, "tcp://127.0.0.1:0");
}

static void put_key(struct keys_file *f, const char *key, const char *tenant, const char *cls)
{
    struct err e;
    struct key_line k = {.n_classes = cls != NULL};
    api_key_hash(k.hash, key, strlen(key));
    snprintf(k.tenant, sizeof k.tenant, "%s", tenant);
    if (cls) snprintf(k.classes[0], sizeof k.classes[0], "%s", cls);
    ck_assert_int_eq(keys_file_add(f, &k, &e), 0);
}

static void setup(void)
{
    struct err e = {0};
    struct keys_file f = {0};
    strcpy(dir, "/tmp/sluice-gwten-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(tenants_path, sizeof tenants_path, "%s/t.yaml", dir);
    snprintf(keys_path, sizeof keys_path, "%s/k.yaml", dir);
    put(tenants_path, "tenants:\n  - {name: a, kv-quota: 320}\n  - {name: b, classes: [batch]}\n");
    put_key(&f, "key-a", "a", NULL);
    put_key(&f, "key-a-batch", "a", "batch");
    put_key(&f, "key-b", "b", NULL);
    put_key(&f, "key-b-none", "b", "realtime");
    put_key(&f, "key-c", "c", NULL);
    ck_assert_int_eq(keys_file_save(&f, keys_path, &e), 0);
    keys_file_deinit(&f);
    rig_open(&r, paths);
    rig_join(&r, 512);
    ck_assert_msg(tenants_create(&r.g.tenants, &r.g, &e) == 0, "%s", e.msg);
    tenants_meet_dispatch(r.g.tenants);
}

static void teardown(void)
{
    rig_idle(&r);
    tenants_destroy(&r.g.tenants);
    rig_close(&r);
    unlink(tenants_path);
    unlink(keys_path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static int reload(struct err *e)
{
    static struct tenants_load l;
    tenants_load_init(r.g.tenants, &l);
    tenants_read(&l);
    return tenants_apply(r.g.tenants, &l, e);
}

static bool grant_of(const char *key, struct key_grant *g)
{
    return tenants_find(r.g.tenants, key, key ? strlen(key) : 0, g);
}

static void post(struct rig_door *d, const char *key, const char *cls, const char *body,
                 void (*wake)(void *))
{
    struct request_in in = {.endpoint = ENDPOINT_COMPLETION, .wake = wake, .door = d};
    memset(d, 0, sizeof *d);
    ck_assert(grant_of(key, &in.who));
    snprintf(in.cls, sizeof in.cls, "%s", cls);
    in.n_body = strlen(body);
    in.body = mem_memdup(body, in.n_body + 1);
    d->request = request_submit(&r.g, &in);
    ck_assert_ptr_nonnull(d->request);
}

static void on_wake(void *door)
{
    ((struct rig_door *)door)->wakes++;
}

/* ---- the rule of classes */

static struct class_table table(uint32_t n, uint32_t n_first)
{
    struct class_table t = {.n = n};
    for (uint32_t i = 0; i < n; i++) {
        snprintf(t.rows[i].name, sizeof t.rows[i].name, "c%u", i);
        t.rows[i].order = (uint8_t)i;
        t.rows[i].rank = i >= n_first;
    }
    return t;
}

/* Over all tables, masks and questions: the answer is allowed and never above the most urgent allowed;
 * what is allowed is taken as asked; what is not never becomes more urgent while something below is. */
START_TEST(classes_are_clamped)
{
    struct err e;
    for (uint32_t n = 1; n <= 8; n++) {
        struct class_table t = table(n, 1 + n / 3);
        for (unsigned allowed = 1; allowed < 1u << n; allowed++) {
            for (uint32_t asked = 0; asked < n; asked++) {
                uint8_t got;
                ck_assert_int_eq(
                    class_choose(&t, (uint8_t)allowed, t.rows[asked].name, true, &got, &e), 0);
                ck_assert(allowed >> got & 1);
                if (allowed >> asked & 1) ck_assert_uint_eq(got, asked);
                if (got < asked) ck_assert_uint_eq(allowed >> asked, 0);
            }
            uint8_t none, flex;
            ck_assert_int_eq(class_choose(&t, (uint8_t)allowed, "", false, &none, &e), 0);
            ck_assert_uint_eq(none, (unsigned)__builtin_ctz(allowed));
            ck_assert_int_eq(class_choose(&t, (uint8_t)allowed, "", true, &flex, &e), 0);
            ck_assert(allowed >> flex & 1 && flex >= none);
        }
    }
    struct class_table t = table(2, 1);
    uint8_t got;
    ck_assert_int_eq(class_choose(&t, 3, "c2", false, &got, &e), -1);
    ck_assert_int_eq(e.code, ERR_BAD_VALUE);
    ck_assert_int_eq(class_choose(&t, 3, "C1", false, &got, &e), -1);
}
END_TEST

/* ---- keys */

START_TEST(keys_are_random_and_hashed)
{
    char a[API_KEY_TEXT_BYTES], b[API_KEY_TEXT_BYTES], id[API_KEY_ID_BYTES];
    uint8_t ha[API_KEY_HASH_BYTES], hb[API_KEY_HASH_BYTES];
    api_key_make(a);
    api_key_make(b);
    ck_assert_uint_eq(strlen(a), API_KEY_TEXT_BYTES - 1);
    ck_assert_int_eq(strncmp(a, "sk-sluice-", 10), 0);
    ck_assert_str_ne(a, b);
    api_key_hash(ha, a, strlen(a));
    api_key_hash(hb, b, strlen(b));
    ck_assert(api_key_equal(ha, ha) && !api_key_equal(ha, hb));
    hb[31] = ha[31];
    memcpy(hb, ha, 31);
    hb[31] ^= 1;
    ck_assert(!api_key_equal(ha, hb)); /* the last bit counts */
    api_key_id(id, ha);
    ck_assert_uint_eq(strlen(id), API_KEY_ID_BYTES - 1);
    ck_assert_ptr_null(strstr(a, id + 4));
}
END_TEST

START_TEST(the_index_finds_all_and_nothing_else)
{
    enum { N = 3000 };
    static struct tenant owners[7];
    struct key_index *x;
    struct err e;
    char key[32];
    struct key_grant g;
    ck_assert_int_eq(key_index_create(&x, N, &e), 0);
    for (int i = 0; i < N; i++) {
        uint8_t hash[API_KEY_HASH_BYTES];
        int n = snprintf(key, sizeof key, "key-%d", i);
        api_key_hash(hash, key, (size_t)n);
        key_index_add(x, hash, (struct key_grant){&owners[i % 7], (uint8_t)(1 + i % 3)});
        key_index_add(x, hash, (struct key_grant){&owners[0], 7}); /* the first stays */
    }
    for (int i = 0; i < 2 * N; i++) {
        int n = snprintf(key, sizeof key, "key-%d", i);
        bool found = key_index_find(x, key, (size_t)n, &g);
        ck_assert(found == (i < N));
        if (found) ck_assert(g.tenant == &owners[i % 7] && g.classes == 1 + i % 3);
        ck_assert(!key_index_find(x, key, (size_t)n + 1, &g)); /* with its NUL */
    }
    ck_assert(!key_index_find(x, "", 0, &g));
    key_index_destroy(&x);
}
END_TEST

START_TEST(headers_are_read_strictly)
{
    static const struct { const char *value, *key; } rows[] = {
        {"Bearer abc", "abc"}, {"bearer abc", "abc"}, {"  BEARER \t abc \t", "abc"},
        {"Bearer", NULL}, {"Bearer ", NULL}, {"Bearerabc", NULL}, {"Basic abc", NULL}, {"", NULL},
        {"abc", NULL}, {"Bearer a b", NULL}, {"Bearer a\x01", NULL}, {"Bearer \xc3\xa9", NULL},
        {"Bearer Bearer abc", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *key;
        size_t n;
        ck_assert_msg(auth_bearer(rows[i].value, &key, &n) == (rows[i].key != NULL), "%s",
                      rows[i].value);
        if (rows[i].key) ck_assert(n == strlen(rows[i].key) && memcmp(key, rows[i].key, n) == 0);
    }
}
END_TEST

START_TEST(grants)
{
    struct key_grant g;
    struct err e;
    ck_assert(grant_of("key-a", &g) && g.classes == 3);
    ck_assert_str_eq(g.tenant->line.name, "a");
    ck_assert(grant_of("key-a-batch", &g) && g.classes == 2);
    ck_assert(grant_of("key-b", &g) && g.classes == 2);
    ck_assert(!grant_of("key-b-none", &g) && !grant_of("key-c", &g) && !grant_of("key", &g));
    ck_assert(!grant_of(NULL, &g) && !grant_of("", &g));
    ck_assert_uint_eq(tenants_keys(r.g.tenants), 3);
    ck_assert_int_eq(auth_key(&r.g, "key-x", 5, &g, &e), -1);
    ck_assert_int_eq(e.code, ERR_UNAUTHORIZED);
}
END_TEST

/* ---- requests */

START_TEST(the_worker_is_told_whose_it_is)
{
    struct msg keep;
    struct rig_door d;
    static const struct { const char *key, *name; uint32_t quota; uint8_t rank; } rows[] = {
        {"key-a", "a", 320, 0}, {"key-a-batch", "a", 320, 1}, {"key-b", "b", 0, 1}};
    for (int i = 0; i < 3; i++) {
        post(&d, rows[i].key, "realtime", BODY "}", on_wake);
        struct msg_submit s = rig_submitted(&r, &keep);
        ck_assert_str_eq(s.tenant, rows[i].name);
        ck_assert_uint_eq(s.kv_quota, rows[i].quota);
        ck_assert_uint_eq(s.rank, rows[i].rank);
        rig_answer(&r, &s, "xyz", FINISH_EOS);
        json_decref(rig_body(&r, &d));
        rig_expect(&r, MSG_ACK, s.sub);
        msg_deinit(&keep);
        rig_drop(&d);
    }
}
END_TEST

START_TEST(a_tenant_outlives_its_row_until_its_last_request)
{
    struct msg keep;
    struct rig_door d;
    struct err e;
    struct key_grant g;
    post(&d, "key-b", "", BODY "}", on_wake);
    struct msg_submit s = rig_submitted(&r, &keep);
    put(tenants_path, "tenants:\n  - {name: a}\n  - {name: c, weight: 2}\n");
    ck_assert_msg(reload(&e) == 0, "%s", e.msg);
    ck_assert(!grant_of("key-b", &g) && grant_of("key-c", &g)); /* c's key was there already */
    ck_assert_ptr_nonnull(tenants_by_name(r.g.tenants, "b"));
    rig_answer(&r, &s, "xyz", FINISH_EOS);
    json_decref(rig_body(&r, &d));
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
    rig_drop(&d);
    ck_assert_ptr_null(tenants_by_name(r.g.tenants, "b"));
    put(tenants_path, "tenants:\n  - {name: a}\n  - {name: b}\n");
    ck_assert_msg(reload(&e) == 0, "%s", e.msg);
    ck_assert(grant_of("key-b", &g) && g.classes == 3); /* as its new row says */
    ck_assert(!grant_of("key-c", &g));
}
END_TEST

START_TEST(bad_files_change_nothing)
{
    static const char *const bad[] = {"", "tenants: [", "tenants:\n  - {name: a, weight: 0}\n",
                                      "tenants:\n  - {name: a, classes: [x]}\n"};
    struct err e;
    struct key_grant g;
    size_t before = mem_used();
    for (size_t i = 0; i < 4; i++) {
        put(tenants_path, bad[i]);
        ck_assert_int_eq(reload(&e), -1);
        ck_assert_ptr_nonnull(strstr(e.msg, tenants_path));
        ck_assert(grant_of("key-b", &g) && grant_of("key-a", &g) && g.tenant->line.kv_quota == 320);
    }
    put(tenants_path, "tenants:\n  - {name: a}\n");
    put(keys_path, "keys:\n  - {hash: x, tenant: a}\n");
    ck_assert_int_eq(reload(&e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, keys_path));
    ck_assert(grant_of("key-a", &g) && grant_of("key-b", &g));
    ck_assert_uint_eq(mem_used(), before);
    unlink(keys_path); /* no keys: nobody comes in, which is what was said */
    ck_assert_int_eq(reload(&e), 0);
    ck_assert(!grant_of("key-a", &g));
}
END_TEST

/* Each allocation of a reload fails once: the old table stays whole. */
START_TEST(no_memory_changes_nothing)
{
    struct err e;
    struct key_grant g;
    put(tenants_path, "tenants:\n  - {name: a}\n  - {name: c}\n  - {name: d}\n");
    int failed = 0;
    for (uint64_t n = 1; n < 2000; n++) {
        mem_fail_nth(n);
        int rc = reload(&e);
        mem_fail_nth(0);
        if (rc == 0) break;
        failed++;
        ck_assert(grant_of("key-a", &g) && grant_of("key-b", &g) && g.tenant->line.classes == 2);
    }
    ck_assert_int_gt(failed, 5);
    ck_assert(grant_of("key-a", &g) && !grant_of("key-b", &g) && grant_of("key-c", &g));
}
END_TEST

START_TEST(limits_at_once_and_in_turn)
{
    struct msg keep;
    struct rig_door d[3];
    struct err e;
    uint32_t retry;
    bool never;
    put(tenants_path, "tenants:\n  - {name: a, max-in-flight: 1}\n  - {name: b}\n");
    ck_assert_int_eq(reload(&e), 0);
    post(&d[0], "key-a", "", BODY "}", on_wake);
    struct msg_submit s = rig_submitted(&r, &keep);
    post(&d[1], "key-a", "", BODY "}", on_wake);
    ck_assert_int_eq(rig_settle(&r, &d[1]), REQUEST_FAILED);
    ck_assert_int_eq(request_error(d[1].request, &retry)->code, ERR_RATE_REQUESTS);
    ck_assert(request_retry_ms(d[1].request, &never) > 0 && !never && retry >= 1);
    rig_drop(&d[1]);
    put(tenants_path, "tenants:\n  - {name: a, max-in-flight: 1, budget-wait-s: 60}\n  - {name: b}\n");
    ck_assert_int_eq(reload(&e), 0);
    post(&d[1], "key-a", "", BODY "}", on_wake);
    post(&d[2], "key-a", "", BODY "}", on_wake);
    for (int i = 0; i < 20; i++) rig_turn(&r);
    ck_assert_int_eq(request_state(d[1].request), REQUEST_PENDING);
    rig_drop(&d[1]); /* a waiter that leaves holds nothing */
    rig_answer(&r, &s, "xyz", FINISH_EOS);
    json_decref(rig_body(&r, &d[0]));
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
    rig_drop(&d[0]);
    s = rig_submitted(&r, &keep); /* the place went to the one that waited */
    rig_answer(&r, &s, "abc", FINISH_EOS);
    json_decref(rig_body(&r, &d[2]));
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
    rig_drop(&d[2]);
}
END_TEST

/* ---- the RPC door */

static void send_request(struct rpc_client *c, uint64_t id, const char *key)
{
    static const char json[] = BODY "}";
    struct buf body = {0}, out = {0};
    ck_assert_int_eq(json_to_value(json, strlen(json), &body), 0);
    rpc_put_request_as(&out, id, "/v1/completions", "realtime", key, &body);
    while (rpc_client_send(c, &out) != 0) rig_turn(&r);
    buf_deinit(&body);
    buf_deinit(&out);
}

static uint32_t answer(struct rpc_client *c, uint64_t id, enum rpc_kind kind)
{
    struct rpc_msg m;
    struct err e;
    uint64_t end = gateway_now_ns() + 10000000000ull;
    int got;
    while ((got = rpc_client_recv(c, &m, 0, &e)) == 0) {
        ck_assert_msg(gateway_now_ns() < end, "no answer at the RPC door");
        rig_turn(&r);
    }
    ck_assert_int_eq(got, 1);
    ck_assert_uint_eq(m.id, id);
    ck_assert_int_eq(m.kind, kind);
    uint32_t status = m.status;
    rpc_msg_deinit(&m);
    return status;
}

/* B76: a stranger gets nothing, and ends nobody's request. */
START_TEST(strangers_at_the_rpc_door)
{
    struct rpc_client *known, *stranger;
    struct msg keep;
    struct err e;
    struct buf out = {0};
    ck_assert_msg(rpc_door_create(&r.g.rpc, &r.g, &e) == 0, "%s", e.msg);
    ck_assert_int_eq(rpc_client_open(&known, rpc_door_endpoint(r.g.rpc), &e), 0);
    ck_assert_int_eq(rpc_client_open(&stranger, rpc_door_endpoint(r.g.rpc), &e), 0);
    send_request(known, 7, "key-b");
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert_uint_eq(s.rank, 1); /* asked for realtime, may use batch */
    static const char *const keys[] = {NULL, "key-x", "key-b-none"};
    for (uint64_t i = 0; i < 3; i++) {
        send_request(stranger, 20 + i, keys[i]);
        ck_assert_uint_eq(answer(stranger, 20 + i, RPC_ERROR), 401);
    }
    rpc_put_cancel(&out, 7); /* another connection's label */
    while (rpc_client_send(stranger, &out) != 0) rig_turn(&r);
    struct msg hello = {.kind = MSG_PING};
    buf_clear(&out);
    msg_encode(&out, &hello); /* a worker's word */
    while (rpc_client_send(stranger, &out) != 0) rig_turn(&r);
    ck_assert_uint_eq(answer(stranger, 0, RPC_ERROR), 400);
    rig_answer(&r, &s, "xyz", FINISH_EOS);
    answer(known, 7, RPC_DONE);
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
    buf_deinit(&out);
    rpc_client_close(&known);
    rpc_client_close(&stranger);
    rpc_door_destroy(&r.g.rpc);
}
END_TEST

int main(void)
{
    struct err e;
    Suite *s = suite_create("tenants");
    TCase *plain = tcase_create("plain"), *t = tcase_create("tenants");
    if (api_key_init(&e) != 0) return 1;
    tcase_add_test(plain, classes_are_clamped);
    tcase_add_test(plain, keys_are_random_and_hashed);
    tcase_add_test(plain, the_index_finds_all_and_nothing_else);
    tcase_add_test(plain, headers_are_read_strictly);
    suite_add_tcase(s, plain);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, grants);
    tcase_add_test(t, the_worker_is_told_whose_it_is);
    tcase_add_test(t, a_tenant_outlives_its_row_until_its_last_request);
    tcase_add_test(t, bad_files_change_nothing);
    tcase_add_test(t, no_memory_changes_nothing);
    tcase_add_test(t, limits_at_once_and_in_turn);
    tcase_add_test(t, strangers_at_the_rpc_door);
    suite_add_tcase(s, t);
    return test_run(s);
}
