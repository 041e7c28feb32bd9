/* help.c - the table as people read it: --help, docs/CONFIG.md, and a dump as a YAML file. */
#include "config/config.h"
#include "config/table.h"

#include <string.h>

#define HELP_COLUMN 34

static bool is_number(const struct setting *row) {
    return row->kind == SETTING_INT || row->kind == SETTING_AUTO_INT ||
           row->kind == SETTING_NUMBER || row->kind == SETTING_SECONDS;
}

/* What stands for the value behind a flag. */
static const char *placeholder(const struct setting *row) {
    switch (row->kind) {
    case SETTING_PATH:
        return "PATH";
    case SETTING_BOOL:
        return "";
    case SETTING_INT:
        return "N";
    case SETTING_AUTO_INT:
        return "N|auto";
    case SETTING_NUMBER:
        return "NUMBER";
    case SETTING_SECONDS:
        return "SECONDS";
    case SETTING_CHOICE:
        return row->unit;
    case SETTING_TEXT:
        break;
    }
    return row->unit[0] != '\0' ? row->unit : "TEXT";
}

static void help_row(FILE *f, const struct setting *row) {
    char range[128];
    int n =
        fprintf(f, "  --%s%s%s", row->name, row->kind == SETTING_BOOL ? "" : " ", placeholder(row));
    fprintf(f, "%*s%s\n", n < HELP_COLUMN ? HELP_COLUMN - n : 2, "", row->help);
    bool has_default = row->def[0] != '\0';
    if (!has_default && !is_number(row))
        return;
    fprintf(f, "%*s(", HELP_COLUMN, "");
    if (is_number(row)) {
        setting_range(row, range, sizeof(range));
        fprintf(f, "%s; ", range);
    }
    fprintf(f, "default %s)\n", row->def);
}

void settings_help(FILE *f, enum settings_program program) {
    const char *group = "";
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        if ((row->programs & (unsigned)program) == 0)
            continue;
        if (strcmp(group, row->group) != 0)
            fprintf(f, "%s%s:\n", i > 0 ? "\n" : "", row->group);
        group = row->group;
        help_row(f, row);
    }
    fprintf(
        f,
        "\nGeneral:\n"
        "  --config PATH                   read settings from this YAML file; flags win over it\n"
        "  --check-config                  read and check everything, print it, and exit\n"
        "  --help, --version\n"
        "\nN takes the suffixes k, m, g (x 1024); NUMBER takes decimals; SECONDS too, and ms, s, m, h.\n");
}

/* Text inside a cell of a Markdown table: a bar would end the cell. */
static void cell(FILE *f, const char *text) {
    for (; *text != '\0'; text++)
        fprintf(f, *text == '|' ? "\\%c" : "%c", *text);
}

static void doc_row(FILE *f, const struct setting *row) {
    char range[128];
    setting_range(row, range, sizeof(range));
    fprintf(f, "| `%s` | ", row->name);
    if (row->def[0] != '\0')
        fprintf(f, "`%s`", row->def);
    fprintf(f, " | ");
    cell(f, range);
    fprintf(f, " |%s%s%s | ", row->programs & SETTINGS_UP ? " up" : "",
            row->programs & SETTINGS_GATEWAY ? " gateway" : "",
            row->programs & SETTINGS_WORKER ? " worker" : "");
    cell(f, row->help);
    fprintf(f, " |\n");
}

void settings_doc(FILE *f) {
    const char *group = "";
    fprintf(
        f,
        "# Settings\n\n"
        "Every setting is a flag (`--max-seqs 16`, `--max-seqs=16`) and a key of the YAML file "
        "given "
        "by\n`--config` (`max-seqs: 16`). Flags win over the file, the file over the defaults. One "
        "file "
        "may serve\nall programs: each reads what is its own. `sluice up` hands its settings on to "
        "the "
        "gateway and the\nworker. `--check-config` reads and checks everything and prints what "
        "would "
        "hold.\n\n"
        "Numbers take the suffixes `k`, `m`, `g` (x 1024). Seconds take up to three decimals, or a "
        "suffix\n`ms`, `s`, `m`, `h`. A leading `~/` of a path is the home directory. Unknown and "
        "repeated keys are\nerrors.\n\n"
        "This page is made from `config/settings.def` by `tests/test_config_doc --print`; a test "
        "compares them.\n");
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        if (strcmp(group, row->group) != 0)
            fprintf(f,
                    "\n## %s\n\n| setting | default | values | programs | what it is |\n"
                    "|---|---|---|---|---|\n",
                    row->group);
        group = row->group;
        doc_row(f, row);
    }
}

/* Double quotes always, so that no value is taken for another type or for a comment. */
static void dump_text(FILE *f, const char *value) {
    fputc('"', f);
    for (; *value != '\0'; value++)
        fprintf(f, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    fputc('"', f);
}

void settings_dump(FILE *f, const struct settings *s, enum settings_program program) {
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        char value[SETTINGS_TEXT_MAX];
        if ((row->programs & (unsigned)program) == 0 ||
            setting_format(row, s, value, sizeof(value)) != 0)
            continue;
        fprintf(f, "%s: ", row->name);
        if (row->kind == SETTING_TEXT || row->kind == SETTING_PATH)
            dump_text(f, value);
        else
            fputs(value, f);
        fputc('\n', f);
    }
}
