/* From settings to a worker's sizes: the pool, threads, names, durations. */
#include "tests/unit/worker/worker_rig.h"
#include "worker/worker_settings.h"

#include <string.h>

static struct rig_model rig;

static void setup(void) {
    rig_model_open(&rig);
}
static void teardown(void) {
    rig_model_close(&rig);
}

START_TEST(pool_size) {
    struct settings s;
    settings_defaults(&s);
    uint64_t block = (hparams_kv_bytes_per_token(&rig.m.hp) * 16 + 4095) / 4096 * 4096;
    uint64_t all = (uint64_t)s.max_seqs * TINY_CTX;
    ck_assert_int_eq(worker_settings_kv_tokens(&s, &rig.m.hp, 1ull << 40), (int64_t)all);
    ck_assert_int_eq(worker_settings_kv_tokens(&s, &rig.m.hp, 4 * 10 * block),
                     160); /* a quarter is ten blocks */
    ck_assert_int_eq(worker_settings_kv_tokens(&s, &rig.m.hp, 4 * block - 1), -1);
    struct hparams wide = {.n_layers = 30, .n_kv_heads = 3, .head_dim = 64, .n_ctx = 8192};
    s.kv_type = SETTINGS_KV_INT8;
    ck_assert_uint_eq(hparams_kv_bytes_per_token_int8(&wide), 2 * 30 * 3 * 68);
    block = (2 * 30 * 3 * 68 * 16 + 4095) / 4096 * 4096;
    ck_assert_int_eq(worker_settings_kv_tokens(&s, &wide, 4 * 10 * block), 160);
    s.kv_type = SETTINGS_KV_F16; /* 23,040 bytes a position, 12,240 before */
    ck_assert_int_eq(worker_settings_kv_tokens(&s, &wide, 4 * 10 * block), 5 * 16);
    s.kv_tokens = 1000;
    ck_assert_int_eq(worker_settings_kv_tokens(&s, &rig.m.hp, 0),
                     1000); /* asked for is asked for */
    ck_assert_uint_gt(worker_settings_free_bytes(), 0);
}
END_TEST

START_TEST(host_tier_size) {
    struct settings s;
    settings_defaults(&s);
    uint64_t block = (hparams_kv_bytes_per_token(&rig.m.hp) * 16 + 4095) / 4096 * 4096;
    ck_assert_uint_eq(worker_settings_host_slots(&s, &rig.m.hp, 320, 1ull << 40), 20);
    ck_assert_int_eq(settings_set(&s, "host-kv-tokens", "0", NULL), 0);
    ck_assert_uint_eq(worker_settings_host_slots(&s, &rig.m.hp, 320, 1ull << 40), 0);
    ck_assert_int_eq(settings_set(&s, "host-kv-tokens", "100", NULL), 0);
    ck_assert_uint_eq(worker_settings_host_slots(&s, &rig.m.hp, 320, 0), 7);
    ck_assert_int_eq(settings_set(&s, "host-kv-tokens", "auto", NULL), 0);
    ck_assert_uint_eq(worker_settings_host_slots(&s, &rig.m.hp, 320, 1ull << 40), 20);
    ck_assert_uint_eq(worker_settings_host_slots(&s, &rig.m.hp, 320, 4 * 10 * block), 10);
    ck_assert_uint_eq(worker_settings_host_slots(&s, &rig.m.hp, 320, block), 0);
}
END_TEST

START_TEST(applied) {
    struct settings s;
    struct worker_config c;
    struct link_door door;
    struct err e = {0};
    settings_defaults(&s);
    ck_assert_int_eq(settings_set(&s, "engine", "null", &e), 0);
    ck_assert_int_eq(settings_set(&s, "threads", "3", &e), 0);
    ck_assert_int_eq(settings_set(&s, "max-seqs", "5", &e), 0);
    ck_assert_int_eq(settings_set(&s, "kv-tokens", "320", &e), 0);
    ck_assert_int_eq(settings_set(&s, "worker-name", "w7", &e), 0);
    ck_assert_int_eq(settings_set(&s, "host-kv-tokens", "640", &e), 0);
    ck_assert_int_eq(settings_set(&s, "copy-gbps", "2.5", &e), 0);
    ck_assert_int_eq(settings_set(&s, "null-copy-us", "7", &e), 0);
    ck_assert_int_eq(settings_set(&s, "link-silence-s", "1.5", &e), 0);
    ck_assert_int_eq(settings_set(&s, "debug-stall-worker-ms", "20", &e), 0);
    ck_assert_msg(worker_settings_apply(&c, &door, &s, &rig.m, &e) == 0, "%s", e.msg);
    ck_assert_str_eq(c.engine.backend, "null");
    ck_assert_uint_eq(c.engine.n_threads, 3);
    ck_assert_uint_eq(c.engine.n_cpus, 0);
    ck_assert_uint_eq(c.max_seqs, 5);
    ck_assert_uint_eq(c.kv_tokens, 320);
    ck_assert_uint_eq(c.engine.host_slots, 40);
    ck_assert(c.engine.copy_gb_s == 2.5);
    ck_assert_uint_eq(c.engine.null_copy_ns, 7000);
    ck_assert_str_eq(c.name, "w7");
    ck_assert_uint_eq(c.silence_ns, 1500000000);
    ck_assert_uint_eq(c.debug_stall_ns, 20000000);
    ck_assert_str_eq(door.endpoint, s.workers_endpoint);
    ck_assert(!door.keys.on);
    struct worker_config other;
    ck_assert_int_eq(worker_settings_apply(&other, &door, &s, &rig.m, &e), 0);
    ck_assert_uint_ne(c.incarnation, other.incarnation);
}
END_TEST

START_TEST(missing_keys_are_told) {
    struct settings s;
    struct worker_config c;
    struct link_door door;
    struct err e = {0};
    settings_defaults(&s);
    strcpy(s.link_keys, "/nonexistent/keys");
    ck_assert_int_eq(worker_settings_apply(&c, &door, &s, &rig.m, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "/nonexistent/keys"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker_settings");
    TCase *t = tcase_create("worker_settings");
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_test(t, pool_size);
    tcase_add_test(t, host_tier_size);
    tcase_add_test(t, applied);
    tcase_add_test(t, missing_keys_are_told);
    suite_add_tcase(s, t);
    return test_run(s);
}
