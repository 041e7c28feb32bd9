/* The files of classes, tenants and keys: what is taken, what each mistake is called, hostile bytes, and
 * that a key file survives being written. */
#include "base/mem.h"
#include "config/config.h"
#include "config/keys_file.h"
#include "tests/common/test_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64], path[128];
static struct classes_file standard;

static void setup(void) {
    strcpy(dir, "/tmp/sluice-tenants-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f.yaml", dir);
    classes_file_default(&standard);
}

static void teardown(void) {
    static const char *const names[] = {"f.yaml", "f.yaml.lock", "f.yaml.new", "keys.yaml"};
    for (int i = 0; i < 4; i++) {
        char p[160];
        snprintf(p, sizeof p, "%s/%s", dir, names[i]);
        unlink(p);
    }
    ck_assert_int_eq(rmdir(dir), 0);
}

static void put_bytes(const char *text, size_t n) {
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void put(const char *text) {
    put_bytes(text, strlen(text));
}

static void bad_classes(const char *text, const char *want) {
    struct classes_file f;
    struct err e;
    put(text);
    ck_assert_msg(classes_file_load(&f, path, &e) == -1, "taken: %s", text);
    ck_assert_msg(strstr(e.msg, want) != NULL, "'%s' instead of '%s'", e.msg, want);
    ck_assert_msg(strstr(e.msg, path) != NULL, "%s", e.msg);
}

static void bad_tenants(const char *text, const char *want) {
    struct tenants_file f;
    struct err e;
    put(text);
    ck_assert_msg(tenants_file_load(&f, path, &standard, &e) == -1, "taken: %s", text);
    ck_assert_msg(strstr(e.msg, want) != NULL, "'%s' instead of '%s'", e.msg, want);
}

static void bad_keys(const char *text, const char *want) {
    struct keys_file f;
    struct err e;
    put(text);
    ck_assert_msg(keys_file_load(&f, path, &e) == -1, "taken: %s", text);
    ck_assert_msg(strstr(e.msg, want) != NULL, "'%s' instead of '%s'", e.msg, want);
}

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

START_TEST(classes_are_read_and_sorted) {
    struct classes_file f;
    struct err e;
    put("classes:\n"
        "  - {name: bulk, rank: 1, order: 9, preemptible: true, floor: 2.5, longest-wait-s: 1500ms}\n"
        "  - {name: chat, rank: 0, order: 1, ttft-ms: 500, tpot-ms: 50}\n"
        "  - name: agent\n    rank: 0\n    order: 3\n");
    ck_assert_msg(classes_file_load(&f, path, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(f.n, 3);
    ck_assert_str_eq(f.rows[0].name, "chat");
    ck_assert_uint_eq(f.rows[0].ttft_ms, 500);
    ck_assert_uint_eq(f.rows[0].tpot_ms, 50);
    ck_assert_str_eq(f.rows[1].name, "agent");
    ck_assert_str_eq(f.rows[2].name, "bulk");
    ck_assert_uint_eq(f.rows[2].floor_permille, 25);
    ck_assert_uint_eq(f.rows[2].longest_wait_s, 2);
    ck_assert(f.rows[2].preemptible && f.rows[2].rank == 1);
    ck_assert_int_eq(classes_file_find(&f, "bulk"), 2);
    ck_assert_int_eq(classes_file_find(&f, "bul"), -1);
}
END_TEST

START_TEST(mistakes_in_classes_are_named) {
    bad_classes("", "no classes in it");
    bad_classes("classes: []\n", "");
    bad_classes("classes:\n  - {name: a, rank: 1}\n", "'a' is the most urgent, so its rank must be 0");
    bad_classes("classes:\n  - {name: a, rank: 0}\n  - {name: a, rank: 0, order: 1}\n", "'a' is there twice");
    bad_classes("classes:\n  - {name: a, rank: 0}\n  - {name: b, rank: 0}\n", "both have order 0");
    bad_classes("classes:\n  - {name: a, rank: 0}\n  - {name: b, rank: 1, order: 1}\n"
                "  - {name: c, rank: 0, order: 2}\n", "'c' has rank 0");
    bad_classes("classes:\n  - {name: a, rank: 0, floor: 60}\n  - {name: b, order: 1, floor: 60}\n",
                "120.0 %, more than 100");
    bad_classes("classes:\n  - {name: 'a b', rank: 0}\n", "class 'a b': the name");
    bad_classes("classes:\n  - {name: abcdefghijklmnopqrstuvwx, rank: 0}\n", "1 to 23 letters");
    bad_classes("classes:\n  - {name: a, rank: 2}\n", "class 'a': rank: '2' is not valid, expected 0 to 1");
    bad_classes("classes:\n  - {name: a, rank: 0, order: -1}\n", "order: '-1'");
    bad_classes("classes:\n  - {name: a, rank: 0, preemptible: maybe}\n", "preemptible: 'maybe'");
    bad_classes("classes:\n  - {name: a, rank: 0, speed: 1}\n", "unknown key 'speed'");
    bad_classes("classes:\n  - {rank: 0}\n", "name");
    bad_classes("klasses: 1\n", "unknown key 'klasses'");
}
END_TEST

START_TEST(at_most_eight_classes) {
    char text[1024] = "classes:\n";
    struct classes_file f;
    struct err e;
    for (int i = 0; i < 8; i++)
        sprintf(text + strlen(text), "  - {name: c%d, rank: %d, order: %d}\n", i, i > 3, i);
    put(text);
    ck_assert_msg(classes_file_load(&f, path, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(f.n, 8);
    strcat(text, "  - {name: c9, order: 9}\n");
    bad_classes(text, path);
}
END_TEST

START_TEST(tenants_are_read) {
    struct tenants_file f;
    struct err e;
    put("tenants:\n"
        "  - name: zoe\n"
        "  - {name: alice, weight: 4, classes: [batch], models: [m1, m2], requests-per-minute: 60,\n"
        "     tokens-per-minute: 100k, budget-wait-s: 2m, max-in-flight: 8, queue-room: 5, kv-quota: 4096,\n"
        "     default-output-tokens: 100, max-output-tokens: 200, money-per-day: 2.5, prompt-price: 0.15,\n"
        "     output-price: 0.6}\n");
    ck_assert_msg(tenants_file_load(&f, path, &standard, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(f.n, 2);
    const struct tenant_line *a = tenants_file_find(&f, "alice"), *z = tenants_file_find(&f, "zoe");
    ck_assert(a == &f.rows[0] && z == &f.rows[1]);
    ck_assert(a->weight == 4 && a->classes == 2 && a->n_models == 2);
    ck_assert(a->requests_per_minute == 60 && a->tokens_per_minute == 102400);
    ck_assert(a->budget_wait_s == 120 && a->max_in_flight == 8 && a->queue_room == 5);
    ck_assert(a->kv_quota == 4096 && a->default_output_tokens == 100 && a->max_output_tokens == 200);
    ck_assert(a->money_per_day == 2.5 && a->prompt_price == 0.15 && a->output_price == 0.6);
    ck_assert(tenant_line_model(a, "m2") && !tenant_line_model(a, "m3") && tenant_line_model(z, "m3"));
    ck_assert(z->weight == 1 && z->classes == 0xFF && z->tokens_per_minute == 0 && z->kv_quota == 0);
    ck_assert_ptr_null(tenants_file_find(&f, "bob"));
    tenants_file_deinit(&f);
}
END_TEST

START_TEST(mistakes_in_tenants_are_named) {
    bad_tenants("", "no tenants in it");
    bad_tenants("# only words\n", "no tenants in it");
    bad_tenants("tenants: []\n", path);
    bad_tenants("tenants:\n  - weight: 1\n", "name");
    bad_tenants("tenants:\n  - {name: a, weight: 0}\n", "tenant 'a': weight: '0' is not valid");
    bad_tenants("tenants:\n  - {name: a, weight: 1e3}\n", "weight: '1e3'");
    bad_tenants("tenants:\n  - {name: a, wieght: 1}\n", "unknown key 'wieght'");
    bad_tenants("tenants:\n  - {name: a, weight: 1, weight: 2}\n", "given twice");
    bad_tenants("tenants:\n  - {name: a}\n  - {name: a}\n", "tenant 'a' is there twice");
    bad_tenants("tenants:\n  - {name: a, classes: [urgent]}\n", "there is no class 'urgent'");
    bad_tenants("tenants:\n  - {name: a, classes: []}\n", path);
    bad_tenants("tenants:\n  - {name: ../x}\n", "is not a word");
    bad_tenants("tenants:\n  - {name: \"a\\x01b\"}\n", "is not a word");
    bad_tenants("tenants:\n  - {name: a, models: ['']}\n", "models: a name has 1 to 127 bytes");
    bad_tenants("tenants:\n  - {name: a, tokens-per-minute: 4294967296}\n", "tokens-per-minute");
    bad_tenants("tenants:\n  - {name: a, tokens-per-minute: -5}\n", "tokens-per-minute: '-5'");
    bad_tenants("tenants:\n  - {name: a, default-output-tokens: 9, max-output-tokens: 8}\n",
                "default-output-tokens is above");
    bad_tenants("tenants:\n  - {name: a, money-per-day: 1}\n", "would never be spent");
    bad_tenants("tenants: {name: a}\n", path);
    bad_tenants("tenants:\n  - [name, a]\n", path);
    bad_tenants("tenants:\n  - name: [a]\n", path);
    bad_tenants("tenants:\n  - &x {name: a}\n  - *x\n", path);
    bad_tenants("tenants:\n  - {name: a}\n---\ntenants:\n  - {name: b}\n", "more than one document");
    bad_tenants("tenants:\n  - {name: \"a\\0b\"}\n", "NUL");
    bad_tenants("tenants:\n  - {name: a", path);
    struct tenants_file f;
    struct err e;
    ck_assert_int_eq(tenants_file_load(&f, "/nowhere/at-all.yaml", &standard, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "/nowhere/at-all.yaml"));
}
END_TEST

static char *many(const char *head, const char *line, int n) {
    char *text = malloc((size_t)n * 128 + 64), *at = text + sprintf(text, "%s", head);
    for (int i = 0; i < n; i++)
        at += sprintf(at, line, i);
    return text;
}

START_TEST(the_number_of_tenants_is_bounded) {
    struct tenants_file f;
    struct err e;
    char *text = many("tenants:\n", "  - {name: t%d}\n", TENANTS_FILE_MAX);
    put(text);
    free(text);
    ck_assert_msg(tenants_file_load(&f, path, &standard, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(f.n, TENANTS_FILE_MAX);
    tenants_file_deinit(&f);
    text = many("tenants:\n", "  - {name: t%d}\n", TENANTS_FILE_MAX + 1);
    bad_tenants(text, path);
    free(text);
    text = malloc(TENANTS_FILE_BYTES + 2);
    memset(text, '#', TENANTS_FILE_BYTES + 1);
    text[TENANTS_FILE_BYTES + 1] = '\0';
    bad_tenants(text, "larger than");
    free(text);
}
END_TEST

/* Cut anywhere and with any byte changed: an error or a table, never a crash; nothing leaks. */
START_TEST(hostile_bytes) {
    static const char good[] = "tenants:\n  - {name: alice, weight: 2.5, classes: [batch, realtime]}\n"
                               "  - name: bob\n    max-in-flight: 3\n    models: [a, b]\n";
    size_t before = mem_used();
    unsigned seed = 7;
    printf("seed %u\n", seed);
    for (int i = 0; i < 1500; i++) {
        char text[sizeof good];
        struct tenants_file f;
        struct keys_file k;
        struct err e;
        memcpy(text, good, sizeof good);
        size_t n = i < (int)sizeof good ? (size_t)i : sizeof good - 1;
        for (int c = 0; c < i % 4; c++)
            text[(size_t)rand_r(&seed) % (sizeof good - 1)] = (char)rand_r(&seed);
        put_bytes(text, n);
        if (tenants_file_load(&f, path, &standard, &e) == 0)
            tenants_file_deinit(&f);
        if (keys_file_load(&k, path, &e) == 0)
            keys_file_deinit(&k);
    }
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

START_TEST(keys_are_written_and_read_back) {
    struct keys_file f, g;
    struct err e;
    struct key_line k = {.tenant = "alice", .created = "2026-01-31T12:00:00Z", .note = "it's # a: note"};
    ck_assert_int_eq(keys_file_load(&f, path, &e), 0); /* no file: no keys */
    ck_assert_uint_eq(f.n, 0);
    int lock = keys_file_lock(path, &e);
    ck_assert_int_ge(lock, 0);
    for (int i = 0; i < 3; i++) {
        k.hash[0] = (uint8_t)(i + 0xA0);
        k.n_classes = (uint32_t)i;
        strcpy(k.classes[0], "batch");
        strcpy(k.classes[1], "realtime");
        ck_assert_int_eq(keys_file_add(&f, &k, &e), 0);
    }
    ck_assert_msg(keys_file_save(&f, path, &e) == 0, "%s", e.msg);
    struct stat st;
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
    ck_assert_msg(keys_file_load(&g, path, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(g.n, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_mem_eq(g.rows[i].hash, f.rows[i].hash, KEY_HASH_BYTES);
        ck_assert_str_eq(g.rows[i].note, "it's # a: note");
        ck_assert_str_eq(g.rows[i].created, "2026-01-31T12:00:00Z");
        ck_assert_uint_eq(g.rows[i].n_classes, (uint32_t)i);
    }
    ck_assert_str_eq(g.rows[2].classes[1], "realtime");
    keys_file_remove(&g, 0);
    keys_file_remove(&g, 1);
    ck_assert_uint_eq(g.n, 1);
    ck_assert_uint_eq(g.rows[0].hash[0], 0xA1);
    keys_file_remove(&g, 0);
    ck_assert_int_eq(keys_file_save(&g, path, &e), 0);
    keys_file_deinit(&g);
    ck_assert_msg(keys_file_load(&g, path, &e) == 0, "%s", e.msg);
    ck_assert_uint_eq(g.n, 0);
    keys_file_unlock(lock);
    keys_file_deinit(&f);
    keys_file_deinit(&g);
}
END_TEST

START_TEST(mistakes_in_keys_are_named) {
    bad_keys("", "is empty");
    bad_keys("keys:\n  - {hash: abc, tenant: a}\n", "key 1: hash: not 64");
    bad_keys("keys:\n  - {hash: " HASH "}\n", "tenant");
    bad_keys("keys:\n  - {tenant: a}\n", "hash");
    bad_keys("keys:\n  - {hash: " HASH ", tenant: 'a b'}\n", "key 1: tenant");
    bad_keys("keys:\n  - {hash: " HASH ", tenant: a}\n  - {hash: " HASH ", tenant: a, classes: ['!']}\n",
             "key 2: classes");
    bad_keys("keys:\n  - {hash: " HASH ", tenant: a, key: sk-1}\n", "unknown key 'key'");
    bad_keys("keys:\n  - {hash: 0123456789ABCDEF" HASH ", tenant: a}\n", "hash");
    ck_assert(key_note_ok("a b'c") && !key_note_ok("a\"b") && !key_note_ok("a\nb") && !key_note_ok("\xff"));
}
END_TEST

START_TEST(settings_take_the_files) {
    struct settings s;
    struct err e;
    char keys[160];
    put("tenants:\n  - {name: a}\n");
    settings_defaults(&s);
    strcpy(s.model, "m.gguf");
    strcpy(s.http, "0.0.0.0:80");
    ck_assert_int_eq(settings_validate(&s, SETTINGS_GATEWAY, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "--tenants"));
    strcpy(s.tenants, path);
    ck_assert_msg(settings_validate(&s, SETTINGS_GATEWAY, &e) == 0, "%s", e.msg);
    snprintf(keys, sizeof keys, "%s/keys.yaml", dir);
    ck_assert_str_eq(s.keys, keys);
    strcpy(s.workers_endpoint, "tcp://0.0.0.0:1");
    ck_assert_int_eq(settings_validate(&s, SETTINGS_GATEWAY, &e), -1);
    strcpy(s.workers_endpoint, "tcp://127.0.0.1:1");
    put("tenants:\n  - {name: a, weight: x}\n");
    ck_assert_int_eq(settings_validate(&s, SETTINGS_UP, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "tenant 'a': weight"));
}
END_TEST

int main(void) {
    Suite *s = suite_create("tenants_file");
    TCase *tc = tcase_create("tenants_file");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, classes_are_read_and_sorted);
    tcase_add_test(tc, mistakes_in_classes_are_named);
    tcase_add_test(tc, at_most_eight_classes);
    tcase_add_test(tc, tenants_are_read);
    tcase_add_test(tc, mistakes_in_tenants_are_named);
    tcase_add_test(tc, the_number_of_tenants_is_bounded);
    tcase_add_test(tc, hostile_bytes);
    tcase_add_test(tc, keys_are_written_and_read_back);
    tcase_add_test(tc, mistakes_in_keys_are_named);
    tcase_add_test(tc, settings_take_the_files);
    suite_add_tcase(s, tc);
    return test_run(s);
}
