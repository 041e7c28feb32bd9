/* The table itself, every kind of value, the rules between settings, and children's command lines.
 */
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/table.h"
#include "tests/common/test_run.h"

#include <stdlib.h>
#include <string.h>

static struct settings s;
static struct err e;

static int set(const char *name, const char *value) {
    err_clear(&e);
    return settings_set(&s, name, value, &e);
}

static const char *get(const char *name) {
    static char out[SETTINGS_TEXT_MAX];
    ck_assert_int_eq(settings_get(&s, name, out, sizeof(out)), 0);
    return out;
}

START_TEST(the_table_is_well_formed) {
    static const char *const fields[] = {
#define SETTING(field, name, kind, def, min, max, unit, programs, group, help) #field,
#include "config/settings.def"
    };
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        char name[64];
        snprintf(name, sizeof(name), "%s", fields[i]);
        for (char *p = name; *p != '\0'; p++)
            if (*p == '_')
                *p = '-';
        ck_assert_str_eq(row->name, name);
        ck_assert(row->programs > 0 && row->programs < 8);
        ck_assert_ptr_eq(setting_find(name, strlen(name)), row);
        ck_assert(strlen(row->help) > 10 && strlen(row->help) <= 90);
        ck_assert(row->min <= row->max);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(row->name, settings_table[j].name);
        /* The units are last in a name, as in every name of the project. */
        if (row->kind == SETTING_SECONDS)
            ck_assert_str_eq(row->name + strlen(row->name) - 2, "-s");
    }
}
END_TEST

START_TEST(defaults_are_the_documented_ones) {
    settings_defaults(&s);
    ck_assert_str_eq(s.http, "127.0.0.1:8000");
    ck_assert_str_eq(s.rpc, "tcp://127.0.0.1:5570");
    ck_assert_str_eq(s.workers_endpoint, "tcp://127.0.0.1:5571");
    ck_assert_int_eq(s.max_seqs, 16);
    ck_assert_int_eq(s.threads, 0);
    ck_assert_int_eq(s.kv_tokens, 0);
    ck_assert_int_eq(s.max_body_bytes, 32 << 20);
    ck_assert_int_eq(s.engine, SETTINGS_ENGINE_CPU);
    ck_assert_int_eq(s.kernel, SETTINGS_KERNEL_AUTO);
    ck_assert_int_eq(s.log_level, LOG_INFO);
    ck_assert(s.link_heartbeat_s == 0.5);
    const char *home = getenv("HOME");
    if (home != NULL && home[0] == '/')
        ck_assert_int_eq(strncmp(s.state, home, strlen(home)), 0);
    ck_assert_ptr_nonnull(strstr(s.state, "/.local/state/sluice"));
}
END_TEST

START_TEST(integers_take_suffixes_and_bounds) {
    settings_defaults(&s);
    ck_assert_int_eq(set("max-body-bytes", "64K"), 0);
    ck_assert_int_eq(s.max_body_bytes, 65536);
    ck_assert_int_eq(set("max-body-bytes", "1g"), 0);
    ck_assert_int_eq(s.max_body_bytes, 1 << 30);
    static const char *const bad[] = {"",
                                      "0",
                                      "257",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "0x10",
                                      "1e1",
                                      "1.5",
                                      "k",
                                      "1kk",
                                      "m1",
                                      "１",
                                      "1t",
                                      "--",
                                      "-",
                                      "nan",
                                      "9223372036854775808",
                                      "99999999999999999999999999",
                                      "9007199254740993g"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_int_eq(set("max-seqs", bad[i]), -1);
        ck_assert_str_eq(e.param, "max-seqs");
        ck_assert_ptr_nonnull(strstr(e.msg, "1 to 256"));
        ck_assert_int_eq(s.max_seqs, 16);
    }
    ck_assert_int_eq(set("max-seqs", "256"), 0);
    ck_assert_int_eq(set("supervisor-fd", "-1"), 0);
    ck_assert_int_eq(s.supervisor_fd, -1);
    ck_assert_int_eq(set("supervisor-fd", "-2"), -1);
}
END_TEST

START_TEST(auto_is_a_word_and_zero) {
    settings_defaults(&s);
    ck_assert_int_eq(set("kv-tokens", "1k"), 0);
    ck_assert_int_eq(s.kv_tokens, 1024);
    ck_assert_str_eq(get("kv-tokens"), "1024");
    ck_assert_int_eq(set("kv-tokens", "auto"), 0);
    ck_assert_int_eq(s.kv_tokens, 0);
    ck_assert_str_eq(get("kv-tokens"), "auto");
    ck_assert_int_eq(set("kv-tokens", "0"), 0);
    ck_assert_int_eq(set("kv-tokens", "15"), -1);
    ck_assert_int_eq(set("kv-tokens", "AUTO"), -1);
    ck_assert_int_eq(set("max-seqs", "auto"), -1);
}
END_TEST

/* Where 0 is a value of its own, auto is another. */
START_TEST(auto_beside_zero) {
    settings_defaults(&s);
    ck_assert_int_eq(s.host_kv_tokens, -1);
    ck_assert_str_eq(get("host-kv-tokens"), "auto");
    ck_assert_int_eq(set("host-kv-tokens", "auto"), 0);
    ck_assert_int_eq(s.host_kv_tokens, -1);
    ck_assert_str_eq(get("host-kv-tokens"), "auto");
    ck_assert_int_eq(set("host-kv-tokens", "-1"), -1);
    ck_assert_int_eq(set("host-kv-tokens", "2k"), 0);
    ck_assert_int_eq(s.host_kv_tokens, 2048);
    ck_assert_int_eq(set("host-kv-tokens", "0"), 0);
    ck_assert_str_eq(get("host-kv-tokens"), "0");
}
END_TEST

START_TEST(numbers_have_decimals) {
    static const char *const bad[] = {"", "-1", "1s", "1ms", "1.", ".5", "1e3", "100000.001", "1 "};
    settings_defaults(&s);
    ck_assert(s.copy_gbps == 0);
    ck_assert_int_eq(set("copy-gbps", "2.50"), 0);
    ck_assert(s.copy_gbps == 2.5);
    ck_assert_str_eq(get("copy-gbps"), "2.5");
    ck_assert_int_eq(set("copy-gbps", "0.008"), 0);
    ck_assert_str_eq(get("copy-gbps"), "0.008");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(set("copy-gbps", bad[i]) == -1, "%s", bad[i]);
    ck_assert(s.copy_gbps == 0.008);
}
END_TEST

START_TEST(seconds_are_exact_to_the_millisecond) {
    static const struct {
        const char *text, *back;
        double v;
    } good[] = {{"10", "10", 10},        {"0.5", "0.5", 0.5},         {"0.001", "0.001", 0.001},
                {"1.250", "1.25", 1.25}, {"500ms", "0.5", 0.5},       {"3s", "3", 3},
                {"2m", "120", 120},      {"1h", "3600", 3600},        {"0.5m", "30", 30},
                {"24h", "86400", 86400}, {"60.007", "60.007", 60.007}};
    static const char *const bad[] = {"",    "0",   "0.0001", "1.",  ".5",   "-1",
                                      "1e3", "1,5", "10 s",   "s",   "inf",  "0.5ms",
                                      "1d",  "1S",  "86401",  "25h", "1.2.3"};
    settings_defaults(&s);
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        ck_assert_int_eq(set("body-timeout-s", good[i].text), 0);
        ck_assert(s.body_timeout_s == good[i].v);
        ck_assert_str_eq(get("body-timeout-s"), good[i].back);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        ck_assert_int_eq(set("body-timeout-s", bad[i]), -1);
    ck_assert_int_eq(set("drain-timeout-s", "0"), 0);
}
END_TEST

START_TEST(bools_and_choices_are_words) {
    settings_defaults(&s);
    ck_assert_int_eq(set("log-json", "on"), 0);
    ck_assert(s.log_json);
    ck_assert_int_eq(set("log-json", "no"), 0);
    ck_assert(!s.log_json);
    ck_assert_int_eq(set("log-json", "2"), -1);
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        enum log_level level;
        ck_assert_int_eq(set("log-level", levels[i]), 0);
        ck_assert_int_eq(log_level_parse(levels[i], &level), 0);
        ck_assert_int_eq(s.log_level, (int)level);
        ck_assert_str_eq(get("log-level"), levels[i]);
    }
    ck_assert_int_eq(set("kernel", "scalar"), 0);
    ck_assert_int_eq(s.kernel, SETTINGS_KERNEL_SCALAR);
    ck_assert_int_eq(set("kv-type", "int8"), 0);
    ck_assert_int_eq(s.kv_type, SETTINGS_KV_INT8);
    ck_assert_int_eq(set("kernel", "avx2"), 0);
    ck_assert_int_eq(s.kernel, SETTINGS_KERNEL_AVX2);
    ck_assert_int_eq(set("engine", "null"), 0);
    ck_assert_int_eq(s.engine, SETTINGS_ENGINE_NULL);
    static const char *const bad[] = {"", "CPU", "cpu|null", "nul", "nulll", "|"};
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(set("engine", bad[i]), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "cpu|null"));
}
END_TEST

START_TEST(texts_have_a_length_and_no_control_characters) {
    char text[SETTINGS_TEXT_MAX + 8];
    memset(text, 'x', sizeof(text));
    settings_defaults(&s);
    text[SETTINGS_TEXT_MAX - 1] = '\0';
    ck_assert_int_eq(set("model", text), 0);
    ck_assert_str_eq(get("model"), text);
    text[SETTINGS_TEXT_MAX - 1] = 'x';
    text[SETTINGS_TEXT_MAX] = '\0';
    ck_assert_int_eq(set("model", text), -1);
    ck_assert_int_eq(set("name", "a\nb"), -1);
    ck_assert_int_eq(set("name", "na\xC3\xAFve"), 0);
    ck_assert_int_eq(set("model", "~x/y"), 0);
    ck_assert_str_eq(s.model, "~x/y");
    ck_assert_int_eq(set("name", "~/y"), 0); /* a name is no path */
    ck_assert_str_eq(s.name, "~/y");
    char small[4];
    ck_assert_int_eq(settings_get(&s, "http", small, sizeof(small)), -1);
    ck_assert_int_eq(settings_get(&s, "htp", text, sizeof(text)), -1);
    ck_assert_int_eq(set("max-seq", "1"), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "max-seqs"));
}
END_TEST

static int validate(enum settings_program program) {
    err_clear(&e);
    return settings_validate(&s, program, &e);
}

static void fresh(void) {
    settings_defaults(&s);
    ck_assert_int_eq(set("model", "/models/Small-7B.gguf"), 0);
}

START_TEST(the_name_comes_from_the_file) {
    fresh();
    ck_assert_int_eq(validate(SETTINGS_UP), 0);
    ck_assert_str_eq(s.name, "Small-7B");
    ck_assert_int_eq(set("model", "other.gguf"), 0);
    ck_assert_int_eq(validate(SETTINGS_UP), 0);
    ck_assert_str_eq(s.name, "Small-7B");
    settings_defaults(&s);
    ck_assert_int_eq(validate(SETTINGS_UP), -1);
    ck_assert_str_eq(e.param, "model");
    ck_assert_int_eq(set("model", "dir/"), 0);
    ck_assert_int_eq(validate(SETTINGS_GATEWAY), -1);
    ck_assert_int_eq(set("model", ".gguf"), 0);
    ck_assert_int_eq(validate(SETTINGS_GATEWAY), 0);
    ck_assert_str_eq(s.name, ".gguf");
    settings_defaults(&s);
    ck_assert_int_eq(set("engine", "null"), 0);
    ck_assert_int_eq(validate(SETTINGS_WORKER), 0);
    ck_assert_int_eq(validate(SETTINGS_UP), -1);
}
END_TEST

START_TEST(only_loopback_is_listened_on) {
    static const struct {
        const char *setting, *value;
        bool ok;
    } cases[] = {
        {"http", "localhost:1", true},
        {"http", "127.8.0.1:80", true},
        {"http", "[::1]:0", true},
        {"http", "0.0.0.0:8000", false},
        {"http", "192.168.0.1:8000", false},
        {"http", "example.org:8000", false},
        {"http", "tcp://127.0.0.1:80", false},
        {"http", "127.0.0.1", false},
        {"rpc", "tcp://*:5570", false},
        {"rpc", "ipc:///run/x.sock", true},
        {"rpc", "127.0.0.1:5570", false},
        {"workers-endpoint", "tcp://[::]:5571", false},
        {"workers-endpoint", "tcp://127.0.0.1:*", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        fresh();
        ck_assert_int_eq(set(cases[i].setting, cases[i].value), 0);
        ck_assert_msg(validate(SETTINGS_UP) == (cases[i].ok ? 0 : -1), "%s %s", cases[i].setting,
                      cases[i].value);
        if (!cases[i].ok) {
            ck_assert_str_eq(e.param, cases[i].setting);
            ck_assert_ptr_nonnull(strstr(e.msg, cases[i].value));
        }
    }
}
END_TEST

START_TEST(debug_switches_need_loopback) {
    fresh();
    ck_assert_int_eq(set("debug-chaos", "7"), 0);
    ck_assert_int_eq(validate(SETTINGS_UP), 0);
    ck_assert_int_eq(set("http", "0.0.0.0:8000"), 0);
    ck_assert_int_eq(validate(SETTINGS_UP), -1);
    ck_assert_str_eq(e.param, "debug-chaos");
    ck_assert_int_eq(validate(SETTINGS_WORKER), 0); /* its link is loopback; it has no listener */
    ck_assert_int_eq(set("workers-endpoint", "tcp://10.0.0.1:1"), 0);
    ck_assert_int_eq(validate(SETTINGS_WORKER), -1);
    ck_assert_str_eq(e.param, "debug-chaos");
}
END_TEST

START_TEST(rules_between_settings) {
    static const struct {
        const char *setting, *value;
    } bad[] = {
        {"workers", "2"},        {"gateway-name", ""},      {"worker-name", "a b"},
        {"gateway-name", "g/w"}, {"cpus", "gateway=x"},     {"cpus", "1-2"},
        {"state", ""},           {"link-silence-s", "0.9"}, {"restart-backoff-max-s", "0.05"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        fresh();
        ck_assert_int_eq(set(bad[i].setting, bad[i].value), 0);
        ck_assert_msg(validate(SETTINGS_UP) == -1, "%s %s", bad[i].setting, bad[i].value);
        ck_assert_str_eq(e.param, bad[i].setting);
    }
    fresh();
    ck_assert_int_eq(set("cpus", "gateway=1,worker=0,2-3"), 0);
    ck_assert_int_eq(validate(SETTINGS_UP), 0);
}
END_TEST

START_TEST(threads_leave_a_core_to_the_gateway) {
    settings_defaults(&s);
    int all = settings_threads(&s, false);
    ck_assert_int_ge(all, 1);
    ck_assert_int_eq(settings_threads(&s, true), all > 1 ? all - 1 : 1);
    ck_assert_int_eq(set("threads", "7"), 0);
    ck_assert_int_eq(settings_threads(&s, true), 7);
}
END_TEST

/* What a parent hands on reads back as the same settings, for each program's own rows. */
START_TEST(a_childs_command_line_carries_everything) {
    static const enum settings_program programs[] = {SETTINGS_GATEWAY, SETTINGS_WORKER};
    fresh();
    ck_assert_int_eq(set("name", "two words = \"x\""), 0);
    ck_assert_int_eq(set("kv-tokens", "1024"), 0);
    ck_assert_int_eq(set("slow-reader-s", "1.5"), 0);
    ck_assert_int_eq(set("log-json", "true"), 0);
    ck_assert_int_eq(set("log-level", "debug"), 0);
    ck_assert_int_eq(set("supervisor-fd", "5"), 0);
    ck_assert_int_eq(set("debug-park-every", "3"), 0);
    for (int p = 0; p < 2; p++) {
        static struct settings back;
        char **argv = settings_to_argv(&s, programs[p], "/bin/child");
        ck_assert_ptr_nonnull(argv);
        ck_assert_str_eq(argv[0], "/bin/child");
        int argc = 0;
        while (argv[argc] != NULL)
            argc++;
        ck_assert_int_lt(argc, 12); /* what stands at its default is not repeated */
        ck_assert_msg(settings_parse_args(&back, programs[p], argc, argv, &e) == SETTINGS_RUN, "%s",
                      e.msg);
        for (size_t i = 0; i < SETTING_COUNT; i++) {
            char a[SETTINGS_TEXT_MAX], b[SETTINGS_TEXT_MAX];
            if ((settings_table[i].programs & programs[p]) == 0)
                continue;
            ck_assert_int_eq(setting_format(&settings_table[i], &s, a, sizeof(a)), 0);
            ck_assert_int_eq(setting_format(&settings_table[i], &back, b, sizeof(b)), 0);
            ck_assert_str_eq(a, b);
        }
        settings_argv_free(&argv);
        ck_assert_ptr_null(argv);
    }
}
END_TEST

START_TEST(a_command_line_survives_every_failing_allocation) {
    fresh();
    size_t used = mem_used();
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        mem_fail_nth(n);
        char **argv = settings_to_argv(&s, SETTINGS_WORKER, "w");
        mem_fail_nth(0);
        if (argv == NULL)
            failures++;
        bool done = argv != NULL;
        settings_argv_free(&argv);
        ck_assert_uint_eq(mem_used(), used);
        if (done)
            break;
    }
    ck_assert_int_ge(failures, 4);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("settings");
    TCase *tc = tcase_create("settings");
    tcase_add_test(tc, the_table_is_well_formed);
    tcase_add_test(tc, defaults_are_the_documented_ones);
    tcase_add_test(tc, integers_take_suffixes_and_bounds);
    tcase_add_test(tc, auto_is_a_word_and_zero);
    tcase_add_test(tc, auto_beside_zero);
    tcase_add_test(tc, numbers_have_decimals);
    tcase_add_test(tc, seconds_are_exact_to_the_millisecond);
    tcase_add_test(tc, bools_and_choices_are_words);
    tcase_add_test(tc, texts_have_a_length_and_no_control_characters);
    tcase_add_test(tc, the_name_comes_from_the_file);
    tcase_add_test(tc, only_loopback_is_listened_on);
    tcase_add_test(tc, debug_switches_need_loopback);
    tcase_add_test(tc, rules_between_settings);
    tcase_add_test(tc, threads_leave_a_core_to_the_gateway);
    tcase_add_test(tc, a_childs_command_line_carries_everything);
    tcase_add_test(tc, a_command_line_survives_every_failing_allocation);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
