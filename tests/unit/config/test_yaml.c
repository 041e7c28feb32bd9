/* The YAML file: what it may hold, what is refused and how the error names it, and that a dump of
 * the settings reads back as the same settings. */
#include "base/mem.h"
#include "base/hash.h"
#include "config/config.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct settings s;
static struct err e;

static int load_bytes(const void *p, size_t n) {
    char path[] = "yaml-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, p, n), (ssize_t)n);
    close(fd);
    err_clear(&e);
    settings_defaults(&s);
    int rc = settings_load_yaml(&s, path, &e);
    unlink(path);
    return rc;
}

static int load(const char *text) {
    return load_bytes(text, strlen(text));
}

START_TEST(values_of_every_kind) {
    ck_assert_int_eq(load("# a comment\n"
                          "model: \"/m/x.gguf\"\n"
                          "max-seqs: 4   # seats\n"
                          "max-body-bytes: 1m\n"
                          "kv-tokens: auto\n"
                          "log-json: yes\n"
                          "engine: 'null'\n"
                          "http: 127.0.0.1:9000\n"
                          "body-timeout-s: 2.5\n"
                          "cpus: gateway=1,worker=0\n"),
                     0);
    ck_assert_str_eq(s.model, "/m/x.gguf");
    ck_assert_int_eq(s.max_seqs, 4);
    ck_assert_int_eq(s.max_body_bytes, 1 << 20);
    ck_assert_int_eq(s.kv_tokens, 0);
    ck_assert(s.log_json);
    ck_assert_int_eq(s.engine, SETTINGS_ENGINE_NULL);
    ck_assert_str_eq(s.http, "127.0.0.1:9000");
    ck_assert(s.body_timeout_s == 2.5);
    ck_assert_str_eq(s.cpus, "gateway=1,worker=0");
}
END_TEST

START_TEST(files_without_settings_change_nothing) {
    static const char *const empty[] = {"", "\n\n", "# only words\n", "{}\n", "---\n{}\n"};
    static struct settings plain;
    settings_defaults(&plain);
    for (size_t i = 0; i < sizeof(empty) / sizeof(*empty); i++) {
        ck_assert_msg(load(empty[i]) == 0, "%s", e.msg);
        ck_assert_mem_eq(&s, &plain, sizeof(s));
    }
}
END_TEST

START_TEST(mistakes_are_refused_by_name) {
    static const struct {
        const char *text, *says, *param;
    } cases[] = {
        {"max-seq: 3\n", "unknown key 'max-seq', did you mean 'max-seqs'?", "max-seq"},
        {"threads: 1\nzzzzzzzzzzzz: 3\n", "unknown key 'zzzzzzzzzzzz'", "zzzzzzzzzzzz"},
        {"Model: x\n", "unknown key 'Model', did you mean 'model'?", "Model"},
        {"threads: 1\nthreads: 2\n", "key 'threads' is given twice", "threads"},
        {"max-seqs: 999\n", "max-seqs: '999' is not valid, expected 1 to 256", "max-seqs"},
        {"max-seqs:\n", "max-seqs: '' is not valid", "max-seqs"},
        {"log-json: maybe\n", "expected true or false", "log-json"},
        {"model: {path: x}\n", "at key 'model'", "model"},
        {"model: [a, b]\n", "at key 'model'", "model"},
        {"model: &a x\nname: *a\n", "alias", "name"},
        {"model: x\n---\nmodel: y\n", "more than one document", ""},
        {"- model\n", "MAPPING", ""},
        {"just words\n", "MAPPING", ""},
        {"model: 'x\n", "at key 'model'", "model"},
        {"model: x\n\tname: y\n", "tab", "model"},
        {"model: \"a\\0b\"\n", "NUL", ""},
        {"model: \"a\\x00b\"\n", "NUL", ""},
        {"model: \"a\\nb\"\n", "control character", "model"},
        {"model: |\n  a\n  b\n", "control character", "model"},
        {"? [a]\n: b\n", "yaml-", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ck_assert_int_eq(load(cases[i].text), -1);
        ck_assert_msg(strstr(e.msg, cases[i].says) != NULL, "%s gave: %s", cases[i].text, e.msg);
        ck_assert_msg(strncmp(e.msg, "yaml-", 5) == 0, "no file in: %s", e.msg);
        if (cases[i].param[0] != '\0')
            ck_assert_str_eq(e.param, cases[i].param);
    }
    ck_assert_int_eq(load_bytes("model: x\0\n", 10), -1);
    ck_assert_int_eq(load("model: \"a\\\\0b\"\n"), 0); /* an escaped backslash is no escaped NUL */
    ck_assert_str_eq(s.model, "a\\0b");
}
END_TEST

START_TEST(files_that_cannot_be_read) {
    settings_defaults(&s);
    ck_assert_int_eq(settings_load_yaml(&s, "/nonexistent/x", &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "No such file"));
    ck_assert_int_eq(settings_load_yaml(&s, "/", &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "not a file"));
    size_t n = SETTINGS_FILE_MAX + 1;
    char *big = mem_alloc(n);
    ck_assert_ptr_nonnull(big);
    memset(big, '#', n);
    ck_assert_int_eq(load_bytes(big, n), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "larger than"));
    ck_assert_int_eq(load_bytes(big, n - 1), 0);
    mem_free(big);
    char text[700] = "model: ";
    memset(text + 7, 'x', 600);
    ck_assert_int_eq(load(text), -1);
    ck_assert_str_eq(e.param, "model");
}
END_TEST

START_TEST(a_dump_reads_back) {
    static struct settings first;
    settings_defaults(&first);
    ck_assert_int_eq(settings_set(&first, "model", "a \"quoted\" \\0 path: # no comment", &e), 0);
    ck_assert_int_eq(settings_set(&first, "name", "- 'x' &a *b", &e), 0);
    ck_assert_int_eq(settings_set(&first, "threads", "2", &e), 0);
    ck_assert_int_eq(settings_set(&first, "slow-reader-s", "0.125", &e), 0);
    ck_assert_int_eq(settings_set(&first, "engine", "null", &e), 0);
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    settings_dump(f, &first, SETTINGS_UP);
    fclose(f);
    ck_assert_msg(load_bytes(text, len) == 0, "%s", e.msg);
    ck_assert_mem_eq(&s, &first, sizeof(s));
    free(text);
}
END_TEST

/* Seeded damage to a good file: never a crash, and every refusal is one whole sentence. */
START_TEST(damaged_files_are_refused_or_read) {
    static const char good[] = "model: \"m.gguf\"\nmax-seqs: 4\nengine: 'cpu'\nlog-json: true\n";
    uint64_t seed = 3;
    size_t used = mem_used();
    int refused = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint64_t i = 0; i < 1500; i++) {
        char text[sizeof(good)];
        memcpy(text, good, sizeof(good));
        for (uint64_t k = 0; k < 1 + i % 4; k++) {
            uint64_t r = rand_at(seed, i * 8 + k);
            text[r % (sizeof(good) - 1)] = (char)(r >> 32);
        }
        if (load_bytes(text, sizeof(good) - 1) != 0) {
            refused++;
            ck_assert(e.code != ERR_OK && e.msg[0] != '\0');
        }
        ck_assert_uint_eq(mem_used(), used);
    }
    ck_assert(refused > 300 && refused < 1500);
}
END_TEST

START_TEST(no_memory_is_an_error_and_leaks_nothing) {
    size_t used = mem_used();
    int failures = 0;
    for (uint64_t n = 1; n < 400; n++) {
        mem_fail_nth(n);
        int rc = load("model: m.gguf\nmax-seqs: 4\n");
        mem_fail_nth(0);
        ck_assert_uint_eq(mem_used(), used);
        ck_assert(rc == 0 || e.msg[0] != '\0');
        failures += rc != 0;
        if (rc == 0)
            break;
    }
    ck_assert_int_ge(failures, 3);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("yaml");
    TCase *tc = tcase_create("yaml");
    tcase_add_test(tc, values_of_every_kind);
    tcase_add_test(tc, files_without_settings_change_nothing);
    tcase_add_test(tc, mistakes_are_refused_by_name);
    tcase_add_test(tc, files_that_cannot_be_read);
    tcase_add_test(tc, a_dump_reads_back);
    tcase_add_test(tc, damaged_files_are_refused_or_read);
    tcase_add_test(tc, no_memory_is_an_error_and_leaks_nothing);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
