/* settings.c - struct settings as a whole: defaults, single values, and command lines for children.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/table.h"

#include <assert.h>
#include <string.h>

void settings_defaults(struct settings *s) {
    memset(s, 0, sizeof(*s));
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        struct err e;
        int rc = setting_parse(&settings_table[i], s, settings_table[i].def, &e);
        /* Only an absurdly long home directory can make a default fail; the field stays empty and
         * settings_validate names it. */
        assert(rc == 0 || settings_table[i].kind == SETTING_PATH);
        (void)rc;
    }
}

int settings_set(struct settings *s, const char *name, const char *value, struct err *e) {
    const struct setting *row = setting_find(name, strlen(name));
    if (row == NULL) {
        const char *near = setting_nearest(name, ~0u);
        return err_set(e, ERR_BAD_VALUE, "unknown setting '%.80s'%s%s%s", name,
                       near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    return setting_parse(row, s, value, e);
}

int settings_get(const struct settings *s, const char *name, char *out, size_t cap) {
    const struct setting *row = setting_find(name, strlen(name));
    return row != NULL ? setting_format(row, s, out, cap) : -1;
}

/* "--name=value", or NULL when there is no memory. */
static char *flag_text(const struct setting *row, const char *value) {
    struct buf b;
    buf_init(&b, 0);
    buf_addf(&b, "--%s=%s", row->name, value);
    char *text = buf_take(&b, NULL);
    buf_deinit(&b);
    return text;
}

char **settings_to_argv(const struct settings *s, enum settings_program program,
                        const char *argv0) {
    struct settings *plain = mem_alloc(sizeof(*plain));
    char **argv = mem_array(SETTING_COUNT + 2, sizeof(*argv));
    size_t n = 0;
    if (plain == NULL || argv == NULL || (argv[n++] = mem_strdup(argv0)) == NULL)
        goto fail;
    settings_defaults(plain);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *row = &settings_table[i];
        char value[SETTINGS_TEXT_MAX], usual[SETTINGS_TEXT_MAX];
        if ((row->programs & program) == 0)
            continue;
        int rc = setting_format(row, s, value, sizeof(value));
        rc |= setting_format(row, plain, usual, sizeof(usual));
        assert(rc == 0);
        (void)rc;
        if (strcmp(value, usual) != 0 && (argv[n++] = flag_text(row, value)) == NULL)
            goto fail;
    }
    mem_free(plain);
    return argv;
fail:
    mem_free(plain);
    settings_argv_free(&argv);
    return NULL;
}

void settings_argv_free(char ***argv) {
    if (*argv == NULL)
        return;
    for (size_t i = 0; (*argv)[i] != NULL; i++)
        mem_free((*argv)[i]);
    mem_free(*argv);
    *argv = NULL;
}
