/* flags.c - see flags.h. */
#include "cli/flags.h"
#include "cli/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FLAGS_MAX 32
#define HELP_COLUMN 26

static const struct flag *find(const struct flags *f, const char *name, size_t len) {
    for (size_t i = 0; i < f->n; i++)
        if (strlen(f->table[i].name) == len && memcmp(f->table[i].name, name, len) == 0)
            return &f->table[i];
    return NULL;
}

static int unknown(const struct flags *f, const char *word, size_t len, struct err *e) {
    const char *names[FLAGS_MAX];
    char typed[NEAREST_WORD_MAX + 1];
    size_t n = f->n < FLAGS_MAX ? f->n : FLAGS_MAX;
    for (size_t i = 0; i < n; i++)
        names[i] = f->table[i].name;
    snprintf(typed, sizeof(typed), "%.*s", (int)(len < 40 ? len : 40), word);
    const char *near = nearest_word(typed, names, n);
    if (near != NULL)
        return err_set(e, ERR_BAD_VALUE, "unknown flag --%s, did you mean --%s?", typed, near);
    return err_set(e, ERR_BAD_VALUE, "unknown flag --%s; --help lists them all", typed);
}

static int set_int(const struct flag *row, const char *value, struct err *e) {
    char *end;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || (double)v < row->min || (double)v > row->max)
        return err_set(e, ERR_BAD_VALUE, "--%s takes a whole number from %.0f to %.0f, not '%.40s'",
                       row->name, row->min, row->max, value);
    *(int64_t *)row->out = v;
    return 0;
}

static int set_real(const struct flag *row, const char *value, struct err *e) {
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(v) || v < row->min || v > row->max)
        return err_set(e, ERR_BAD_VALUE, "--%s takes a number from %g to %g, not '%.40s'", row->name,
                       row->min, row->max, value);
    *(double *)row->out = v;
    return 0;
}

static int set(const struct flag *row, const char *value, struct err *e) {
    if (row->kind == FLAG_BOOL) {
        if (value != NULL)
            return err_set(e, ERR_BAD_VALUE, "--%s takes no value", row->name);
        *(bool *)row->out = true;
        return 0;
    }
    if (value == NULL)
        return err_set(e, ERR_MISSING, "--%s needs a value", row->name);
    if (row->kind == FLAG_INT)
        return set_int(row, value, e);
    if (row->kind == FLAG_REAL)
        return set_real(row, value, e);
    *(const char **)row->out = value;
    return 0;
}

static bool asks_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* The flag at argv[*i]; *i moves to the last word used. */
static int one_flag(struct flags *f, int argc, char **argv, int *i, struct err *e) {
    const char *word = argv[*i] + 2;
    size_t len = strcspn(word, "=");
    const struct flag *row = argv[*i][1] == '-' ? find(f, word, len) : NULL;
    if (row == NULL)
        return unknown(f, argv[*i][1] == '-' ? word : argv[*i] + 1, argv[*i][1] == '-' ? len : 40,
                       e);
    const char *value = word[len] == '=' ? word + len + 1 : NULL;
    if (value == NULL && row->kind != FLAG_BOOL && *i + 1 < argc &&
        strncmp(argv[*i + 1], "--", 2) != 0)
        value = argv[++*i];
    return set(row, value, e);
}

int flags_parse(struct flags *f, int argc, char **argv, struct err *e) {
    bool words_only = false;
    f->n_words = 0;
    f->help = asks_help(argc, argv);
    for (int i = 1; i < argc && !f->help; i++) {
        if (!words_only && strcmp(argv[i], "--") == 0) {
            words_only = true;
        } else if (!words_only && argv[i][0] == '-' && argv[i][1] != '\0') {
            if (one_flag(f, argc, argv, &i, e) != 0)
                return -1;
        } else if (f->n_words == f->words_max) {
            return err_set(e, ERR_BAD_VALUE, "unexpected argument '%.60s'; a text with spaces needs "
                                             "quotes", argv[i]);
        } else {
            f->words[f->n_words++] = argv[i];
        }
    }
    return 0;
}

void flags_help(FILE *out, const struct flag *table, size_t n) {
    fprintf(out, "\nFlags:\n");
    for (size_t i = 0; i < n; i++) {
        int w = fprintf(out, "  --%s %s", table[i].name, table[i].unit);
        fprintf(out, "%*s%s\n", w < HELP_COLUMN ? HELP_COLUMN - w : 1, "", table[i].help);
    }
    fprintf(out, "  --help\n");
}
