/* table.h - rows of settings.def as data, and text to value and back. Internal to config/.
 *
 * A row knows its place in struct settings (offset), so that one loop serves every setting.
 */
#ifndef SLUICE_CONFIG_TABLE_H
#define SLUICE_CONFIG_TABLE_H

#include "config/config.h"

enum setting_kind {
    SETTING_TEXT,
    SETTING_PATH,
    SETTING_INT,
    SETTING_AUTO_INT,
    SETTING_BOOL,
    SETTING_CHOICE,
    SETTING_NUMBER,
    SETTING_SECONDS
};

enum setting_index {
#define SETTING(field, name, kind, def, min, max, unit, programs, group, help) SETTING_AT_##field,
#include "config/settings.def"
    SETTING_COUNT
};

struct setting {
    const char *name;
    enum setting_kind kind;
    const char *def;
    double min, max;
    const char *unit;
    unsigned programs;
    const char *group, *help;
    size_t offset; /* of the field in struct settings */
};

extern const struct setting settings_table[SETTING_COUNT];

const struct setting *setting_find(const char *name, size_t len); /* NULL when unknown */
/* The known name most like `name` among the rows of `programs`; NULL when none is near. */
const char *setting_nearest(const char *name, unsigned programs);

/* Parses `value` into the field of `row`; errors name the setting, the value and what is allowed. */
int setting_parse(const struct setting *row, struct settings *s, const char *value, struct err *e);
/* Writes the field as setting_parse takes it; -1 when cap is too small. */
int setting_format(const struct setting *row, const struct settings *s, char *out, size_t cap);

/* Range as people read it: "1 to 256", "1 KiB to 1 GiB", "a|b"; "" where nothing is to be said. */
void setting_range(const struct setting *row, char *out, size_t cap);

#endif
