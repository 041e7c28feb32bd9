/* docs/CONFIG.md is what the table says, and --help shows each program its own flags, all of them.
 * `test_config_doc --print` writes the page to stdout: that is how docs/CONFIG.md is made. */
#include "config/config.h"
#include "config/table.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1 << 16];

/* Fills `text` with the page (program 0) or with a program's help. */
static void make(unsigned program) {
    FILE *f = fmemopen(text, sizeof(text) - 1, "w");
    ck_assert_ptr_nonnull(f);
    if (program == 0)
        settings_doc(f);
    else
        settings_help(f, (enum settings_program)program);
    long len = ftell(f);
    ck_assert(len >= 0 && (size_t)len < sizeof(text) - 1);
    text[len] = '\0';
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(the_page_in_docs_is_up_to_date) {
    const char *root = getenv("SLUICE_SOURCE_DIR");
    ck_assert_ptr_nonnull(root);
    char path[4096];
    snprintf(path, sizeof(path), "%s/docs/CONFIG.md", root);
    FILE *f = fopen(path, "r");
    ck_assert_msg(f != NULL, "no docs/CONFIG.md; make it with: tests/test_config_doc --print");
    static char have[65536];
    have[fread(have, 1, sizeof(have) - 1, f)] = '\0';
    fclose(f);
    make(0);
    const char *want = text;
    size_t at = 0;
    while (have[at] != '\0' && have[at] == want[at])
        at++;
    ck_assert_msg(
        strcmp(have, want) == 0,
        "docs/CONFIG.md is stale near '%.60s'; make it with: tests/test_config_doc --print",
        want + at);
}
END_TEST

START_TEST(the_page_names_every_setting) {
    make(0);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        char cell[64];
        snprintf(cell, sizeof(cell), "\n| `%s` | ", settings_table[i].name);
        ck_assert_msg(strstr(text, cell) != NULL, "%s", cell);
    }
}
END_TEST

START_TEST(help_shows_a_program_its_own_flags) {
    static const enum settings_program programs[] = {SETTINGS_GATEWAY, SETTINGS_WORKER,
                                                     SETTINGS_UP};
    for (int p = 0; p < 3; p++) {
        make(programs[p]);
        for (size_t i = 0; i < SETTING_COUNT; i++) {
            char flag[64];
            int n = snprintf(flag, sizeof(flag), "\n  --%s", settings_table[i].name);
            const char *at = strstr(text, flag);
            while (at != NULL && at[n] != ' ' && at[n] != '\n')
                at = strstr(at + 1, flag);
            bool takes = (settings_table[i].programs & (unsigned)programs[p]) != 0;
            ck_assert_msg((at != NULL) == takes, "%s", flag);
        }
        ck_assert_ptr_nonnull(strstr(text, "--check-config"));
        for (const char *line = text; *line != '\0';) {
            size_t n = strcspn(line, "\n");
            ck_assert_msg(n <= 130, "%.*s", (int)n, line);
            line += n + (line[n] == '\n');
        }
    }
    make(SETTINGS_UP);
    ck_assert_ptr_nonnull(strstr(text, "(1 to 256 sequences; default 16)"));
    ck_assert_ptr_nonnull(strstr(text, "(1k to 1g bytes; default 32m)"));
    ck_assert_ptr_nonnull(strstr(text, "--engine cpu|null "));
}
END_TEST

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--print") == 0) {
        settings_doc(stdout);
        return 0;
    }
    Suite *suite = suite_create("config_doc");
    TCase *tc = tcase_create("config_doc");
    tcase_add_test(tc, the_page_in_docs_is_up_to_date);
    tcase_add_test(tc, the_page_names_every_setting);
    tcase_add_test(tc, help_shows_a_program_its_own_flags);
    suite_add_tcase(suite, tc);
    return test_run(suite);
}
