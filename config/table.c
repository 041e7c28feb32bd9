/* table.c - the rows, and finding one by its name or by a misspelling of it. */
#include "config/table.h"

#include <assert.h>
#include <string.h>

const struct setting settings_table[SETTING_COUNT] = {
#define SETTING(field, name, kind, def, min, max, unit, programs, group, help)                     \
    {name, SETTING_##kind, def,   min,  max,                                                       \
     unit, programs,       group, help, offsetof(struct settings, field)},
#include "config/settings.def"
};

#define NAME_MAX_LEN 40 /* longer words are no misspelling of a setting */

const struct setting *setting_find(const char *name, size_t len) {
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (strncmp(settings_table[i].name, name, len) == 0 && settings_table[i].name[len] == '\0')
            return &settings_table[i];
    return NULL;
}

/* Edit distance (insert, delete, replace) of two short words, one row at a time. */
static size_t distance(const char *a, const char *b) {
    size_t row[NAME_MAX_LEN + 1], n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[n];
}

const char *setting_nearest(const char *name, unsigned programs) {
    static const char *const extra[] = {"config", "check-config", "help", "version"};
    size_t len = strlen(name), best = 1 + (len < 6 ? 2 : len / 3);
    const char *found = NULL;
    if (len > NAME_MAX_LEN)
        return NULL;
    for (size_t i = 0; i < SETTING_COUNT + 4; i++) {
        if (i < SETTING_COUNT && (settings_table[i].programs & programs) == 0)
            continue;
        const char *known = i < SETTING_COUNT ? settings_table[i].name : extra[i - SETTING_COUNT];
        assert(strlen(known) <= NAME_MAX_LEN);
        size_t d = distance(name, known);
        if (d < best) {
            best = d;
            found = known;
        }
    }
    return found;
}
