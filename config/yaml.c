/* yaml.c - the settings' YAML file: one optional text a row of the table, parsed by the table's own
 * parser, so that files and flags obey one set of rules. */
#include "config/config.h"
#include "config/table.h"
#include "config/yaml_doc.h"

#include <string.h>

struct yaml_text {
#define SETTING(field, name, kind, def, min, max, unit, programs, group, help) char *field;
#include "config/settings.def"
};

static const cyaml_schema_field_t fields[] = {
#define SETTING(field, name, kind, def, min, max, unit, programs, group, help)                     \
    CYAML_FIELD_STRING_PTR(name, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct yaml_text,       \
                           field, 0, SETTINGS_TEXT_MAX - 1),
#include "config/settings.def"
    CYAML_FIELD_END};

static const cyaml_schema_value_t top = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct yaml_text, fields)};

static int apply(struct settings *s, const struct yaml_text *t, const char *path, struct err *e) {
    const struct {
        const char *text;
    } given[] = {
#define SETTING(field, name, kind, def, min, max, unit, programs, group, help) {t->field},
#include "config/settings.def"
    };
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        struct err why;
        if (given[i].text != NULL && setting_parse(&settings_table[i], s, given[i].text, &why) != 0)
            return err_set_param(e, why.code, settings_table[i].name, "%s: %s", path, why.msg);
    }
    return 0;
}

static const char *nearest(const char *key) {
    return setting_nearest(key, ~0u);
}

int settings_load_yaml(struct settings *s, const char *path, struct err *e) {
    void *text;
    if (yaml_doc_load(&text, &top, path, SETTINGS_FILE_MAX, nearest, e) != 0)
        return -1;
    int rc = text != NULL ? apply(s, text, path, e) : 0;
    yaml_doc_free(&top, text);
    return rc;
}
