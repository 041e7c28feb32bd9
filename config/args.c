/* args.c - the command line: two passes, because --config must be laid under every other flag
 * wherever it stands.
 */
#include "config/config.h"
#include "config/table.h"

#include <string.h>

struct flag {
    const char *name; /* after the dashes, `len` bytes */
    size_t len;
    const char *value; /* NULL when none is given */
    bool inline_value; /* --name=value */
};

static const char *program_name(unsigned program) {
    return program == SETTINGS_GATEWAY  ? "sluice-gateway"
           : program == SETTINGS_WORKER ? "sluice-worker"
                                        : "sluice up";
}

static bool is(const struct flag *f, const char *name) {
    return f->len == strlen(name) && memcmp(f->name, name, f->len) == 0;
}

/* Does the flag consist of its name alone, unless "=value" follows? */
static bool stands_alone(const struct flag *f) {
    const struct setting *row = setting_find(f->name, f->len);
    return row != NULL ? row->kind == SETTING_BOOL : is(f, "check-config");
}

/* Reads the flag at argv[*i] and moves *i to the last word used. */
static int next_flag(struct flag *f, int argc, char *const argv[], int *i, struct err *e) {
    const char *word = argv[*i];
    if (strncmp(word, "--", 2) != 0 || word[2] == '\0')
        return err_set(e, ERR_BAD_VALUE, "unexpected argument '%.80s'; flags are --name VALUE",
                       word);
    f->name = word + 2;
    f->len = strcspn(f->name, "=");
    f->inline_value = f->name[f->len] == '=';
    f->value = f->inline_value ? f->name + f->len + 1 : NULL;
    bool more = *i + 1 < argc && strncmp(argv[*i + 1], "--", 2) != 0;
    if (!f->inline_value && !stands_alone(f) && more)
        f->value = argv[++*i];
    return 0;
}

static int unknown_flag(const struct flag *f, enum settings_program program, struct err *e) {
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)(f->len < 63 ? f->len : 63), f->name);
    const struct setting *row = setting_find(f->name, f->len);
    if (row != NULL)
        return err_set_param(e, ERR_BAD_VALUE, row->name, "--%s is not a flag of %s", name,
                             program_name(program));
    const char *near = setting_nearest(name, program);
    if (near == NULL)
        return err_set(e, ERR_BAD_VALUE, "unknown flag --%s; --help lists them all", name);
    return err_set(e, ERR_BAD_VALUE, "unknown flag --%s, did you mean --%s?", name, near);
}

static int apply(struct settings *s, enum settings_program program, const struct flag *f,
                 struct err *e) {
    const struct setting *row = setting_find(f->name, f->len);
    if (row == NULL || (row->programs & program) == 0)
        return unknown_flag(f, program, e);
    if (f->value == NULL && row->kind != SETTING_BOOL)
        return err_set_param(e, ERR_MISSING, row->name, "--%s needs a value", row->name);
    struct err why;
    if (setting_parse(row, s, f->value != NULL ? f->value : "true", &why) != 0)
        return err_set_param(e, why.code, row->name, "--%s", why.msg);
    return 0;
}

/* --help and --version count wherever they stand as a word of their own. */
static enum settings_action asked(int argc, char *const argv[]) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return SETTINGS_HELP;
        if (strcmp(argv[i], "--version") == 0)
            return SETTINGS_VERSION;
    }
    return SETTINGS_RUN;
}

/* One pass over the line. First pass (files): loads --config files; second: applies the flags. */
static int pass(struct settings *s, enum settings_program program, int argc, char *const argv[],
                bool files, bool *check, struct err *e) {
    for (int i = 1; i < argc; i++) {
        struct flag f;
        if (next_flag(&f, argc, argv, &i, e) != 0)
            return -1;
        if (is(&f, "check-config")) {
            if (f.inline_value)
                return err_set(e, ERR_BAD_VALUE, "--check-config takes no value");
            *check = true;
        } else if (is(&f, "config")) {
            if (f.value == NULL || f.value[0] == '\0')
                return err_set(e, ERR_MISSING, "--config needs a file");
            if (files && settings_load_yaml(s, f.value, e) != 0)
                return -1;
        } else if (!files && apply(s, program, &f, e) != 0) {
            return -1;
        }
    }
    return 0;
}

enum settings_action settings_parse_args(struct settings *s, enum settings_program program,
                                         int argc, char *const argv[], struct err *e) {
    bool check = false;
    settings_defaults(s);
    enum settings_action action = asked(argc, argv);
    if (action != SETTINGS_RUN)
        return action;
    if (pass(s, program, argc, argv, true, &check, e) != 0 ||
        pass(s, program, argc, argv, false, &check, e) != 0 ||
        settings_validate(s, program, e) != 0)
        return SETTINGS_BAD;
    return check ? SETTINGS_CHECK : SETTINGS_RUN;
}
