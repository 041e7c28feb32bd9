/* The command line: forms, order, precedence over the file, and errors that help. */
#include "config/config.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct settings s;
static struct err e;
static enum settings_program program = SETTINGS_UP;

/* Parses the words of `line`, which are separated by single spaces. */
static enum settings_action parse(const char *line) {
    char text[512], *argv[32] = {"prog"};
    int argc = 1;
    snprintf(text, sizeof(text), "%s", line);
    for (char *p = strtok(text, " "); p != NULL; p = strtok(NULL, " "))
        argv[argc++] = p;
    err_clear(&e);
    return settings_parse_args(&s, program, argc, argv, &e);
}

START_TEST(both_forms_and_the_last_one_wins) {
    ck_assert_int_eq(parse("--model m.gguf --max-seqs=4 --max-seqs 8 --log-json"), SETTINGS_RUN);
    ck_assert_str_eq(s.model, "m.gguf");
    ck_assert_str_eq(s.name, "m");
    ck_assert_int_eq(s.max_seqs, 8);
    ck_assert(s.log_json);
    ck_assert_int_eq(parse("--model=a=b --log-json=false --name="), SETTINGS_RUN);
    ck_assert_str_eq(s.model, "a=b");
    ck_assert(!s.log_json);
    ck_assert_int_eq(parse("--log-json --model m --check-config"), SETTINGS_CHECK);
    ck_assert(s.log_json);
    program = SETTINGS_WORKER;
    ck_assert_int_eq(parse("--model m --supervisor-fd -1"), SETTINGS_RUN);
    program = SETTINGS_UP;
}
END_TEST

START_TEST(help_and_version_win) {
    ck_assert_int_eq(parse("--help"), SETTINGS_HELP);
    ck_assert_int_eq(parse("--nonsense -h"), SETTINGS_HELP);
    ck_assert_int_eq(parse("--version --max-seqs x"), SETTINGS_VERSION);
}
END_TEST

START_TEST(errors_say_what_to_type) {
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"--modle m", "did you mean --model?"},
        {"--max_seqs 3", "did you mean --max-seqs?"},
        {"--kv-token 3", "did you mean --kv-tokens?"},
        {"--chekc-config", "did you mean --check-config?"},
        {"--supervisor-fd 3", "not a flag of sluice up"},
        {"--frobnicate-the-thing 3", "--help lists them all"},
        {"--model", "--model needs a value"},
        {"--model --max-seqs 3", "--model needs a value"},
        {"--max-seqs 0 --model m", "--max-seqs: '0' is not valid, expected 1 to 256 sequences"},
        {"--log-json maybe", "unexpected argument 'maybe'"},
        {"serve", "unexpected argument 'serve'"},
        {"--", "unexpected argument '--'"},
        {"-m x", "unexpected argument '-m'"},
        {"--config", "--config needs a file"},
        {"--config= --model m", "--config needs a file"},
        {"--config /nonexistent/f.yaml --model m", "/nonexistent/f.yaml: No such file"},
        {"--check-config=1 --model m", "takes no value"},
        {"", "give --model FILE"},
        {"--model m --workers 2", "use 1"},
        {"--model m --http 0.0.0.0:80", "not loopback"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        ck_assert_int_eq(parse(cases[i].line), SETTINGS_BAD);
        ck_assert_msg(strstr(e.msg, cases[i].says) != NULL, "'%s' gave: %s", cases[i].line, e.msg);
        ck_assert_ptr_null(strchr(e.msg, '\n'));
    }
    program = SETTINGS_GATEWAY;
    ck_assert_int_eq(parse("--max-seqs 3"), SETTINGS_BAD);
    ck_assert_ptr_nonnull(strstr(e.msg, "not a flag of sluice-gateway"));
    ck_assert_str_eq(e.param, "max-seqs");
    program = SETTINGS_UP;
}
END_TEST

START_TEST(flags_win_over_the_file_wherever_it_stands) {
    char path[] = "config-XXXXXX", line[256];
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(dprintf(fd, "model: file.gguf\nmax-seqs: 3\nthreads: 2\n"), 0);
    close(fd);
    snprintf(line, sizeof(line), "--max-seqs 5 --config %s", path);
    ck_assert_int_eq(parse(line), SETTINGS_RUN);
    ck_assert_int_eq(s.max_seqs, 5);
    ck_assert_int_eq(s.threads, 2);
    ck_assert_str_eq(s.model, "file.gguf");
    ck_assert_int_eq(s.prefill_chunk, 128);
    snprintf(line, sizeof(line), "--config=%s --threads auto", path);
    ck_assert_int_eq(parse(line), SETTINGS_RUN);
    ck_assert_int_eq(s.max_seqs, 3);
    ck_assert_int_eq(s.threads, 0);
    unlink(path);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("args");
    TCase *tc = tcase_create("args");
    tcase_add_test(tc, both_forms_and_the_last_one_wins);
    tcase_add_test(tc, help_and_version_win);
    tcase_add_test(tc, errors_say_what_to_type);
    tcase_add_test(tc, flags_win_over_the_file_wherever_it_stands);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
