/* tenants_file.c - see tenants_file.h. */
#include "config/tenants_file.h"

#include "base/mem.h"
#include "config/file_words.h"
#include "config/yaml_doc.h"

#include <stdlib.h>
#include <string.h>

struct tenant_text {
    char *name;
    char **classes; unsigned classes_count;
    char **models; unsigned models_count;
#define TENANT_TEXT(field, type, key, kind, def, min, max, unit, help) char *field;
    TENANT_FIELDS(TENANT_TEXT)
#undef TENANT_TEXT
};

struct tenants_text { struct tenant_text *tenants; unsigned tenants_count; };

static const cyaml_schema_value_t word = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, 255)};

static const cyaml_schema_field_t tenant_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct tenant_text, name, 0, 255),
    CYAML_FIELD_SEQUENCE("classes", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct tenant_text,
                         classes, &word, 1, CLASS_LINES_MAX),
    CYAML_FIELD_SEQUENCE("models", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct tenant_text,
                         models, &word, 1, TENANT_MODELS_MAX),
#define TENANT_YAML(field, type, key, kind, def, min, max, unit, help)                             \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct tenant_text,      \
                           field, 0, 63),
    TENANT_FIELDS(TENANT_YAML)
#undef TENANT_YAML
    CYAML_FIELD_END};

static const cyaml_schema_value_t tenant_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct tenant_text, tenant_fields)};

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_SEQUENCE("tenants", CYAML_FLAG_POINTER, struct tenants_text, tenants,
                         &tenant_schema, 1, TENANTS_FILE_MAX),
    CYAML_FIELD_END};

static const cyaml_schema_value_t top = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct tenants_text, fields)};

static const struct setting rows[] = {
#define TENANT_ROW(field, type, key, kind, def, min, max, unit, help)                              \
    {key, SETTING_##kind, def, min, max, unit, 0, "", help, offsetof(struct tenant_line, field)},
    TENANT_FIELDS(TENANT_ROW)
#undef TENANT_ROW
};
#define N_ROWS (sizeof rows / sizeof rows[0])

int class_names_mask(const struct classes_file *classes, char *const *names, unsigned n,
                     const char **bad) {
    int mask = 0;
    for (unsigned i = 0; i < n; i++) {
        int at = classes_file_find(classes, names[i]);
        if (at < 0) {
            *bad = names[i];
            return -1;
        }
        mask |= 1 << at;
    }
    return mask;
}

void tenant_line_default(struct tenant_line *line, const char *name) {
    static char *const none[N_ROWS];
    struct err e;
    memset(line, 0, sizeof *line);
    if (file_values(rows, N_ROWS, none, line, "", name, &e) != 0)
        abort(); /* a default that does not parse: a mistake in the table */
    snprintf(line->name, sizeof line->name, "%s", name);
    line->classes = 0xFF;
}

static int read_models(struct tenant_line *out, const struct tenant_text *t, const char *path,
                       struct err *e) {
    for (unsigned i = 0; i < t->models_count; i++) {
        size_t n = strlen(t->models[i]);
        if (n == 0 || n >= TENANT_MODEL_BYTES)
            return err_set_param(e, ERR_BAD_FILE, "models", "%s: tenant '%s': models: a name has 1 "
                                 "to %d bytes", path, out->name, TENANT_MODEL_BYTES - 1);
        memcpy(out->models[i], t->models[i], n + 1);
    }
    out->n_models = t->models_count;
    return 0;
}

/* Rules between the values of one line. */
static int check(const struct tenant_line *t, const char *path, struct err *e) {
    if (t->max_output_tokens > 0 && t->default_output_tokens > t->max_output_tokens)
        return err_set_param(e, ERR_BAD_FILE, "default-output-tokens",
                             "%s: tenant '%s': default-output-tokens is above max-output-tokens",
                             path, t->name);
    if (t->money_per_day > 0 && t->prompt_price == 0 && t->output_price == 0)
        return err_set_param(e, ERR_BAD_FILE, "money-per-day",
                             "%s: tenant '%s': money-per-day without prompt-price or output-price "
                             "would never be spent", path, t->name);
    return 0;
}

static int read_line(struct tenant_line *out, const struct tenant_text *t,
                     const struct classes_file *classes, const char *path, struct err *e) {
    char *const texts[] = {
#define TENANT_GIVEN(field, type, key, kind, def, min, max, unit, help) t->field,
        TENANT_FIELDS(TENANT_GIVEN)
#undef TENANT_GIVEN
    };
    char where[80];
    const char *bad = "";
    if (!file_word_ok(t->name, TENANT_NAME_BYTES - 1))
        return err_set_param(e, ERR_BAD_FILE, "name",
                             "%s: tenant '%.60s': the name is not a word of 1 to %d letters, digits, "
                             "'.', '_', '-'", path, t->name, TENANT_NAME_BYTES - 1);
    snprintf(where, sizeof where, "tenant '%s'", t->name);
    if (file_values(rows, N_ROWS, texts, out, path, where, e) != 0)
        return -1;
    snprintf(out->name, sizeof out->name, "%s", t->name);
    int mask = class_names_mask(classes, t->classes, t->classes_count, &bad);
    if (mask < 0)
        return err_set_param(e, ERR_BAD_FILE, "classes", "%s: %s: classes: there is no class '%.40s'",
                             path, where, bad);
    out->classes = mask > 0 ? (uint8_t)mask : 0xFF;
    return read_models(out, t, path, e) != 0 ? -1 : check(out, path, e);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct tenant_line *)a)->name, ((const struct tenant_line *)b)->name);
}

static int read_all(struct tenants_file *f, const struct tenants_text *t,
                    const struct classes_file *classes, const char *path, struct err *e) {
    f->rows = mem_array(t->tenants_count, sizeof *f->rows);
    if (f->rows == NULL)
        return err_set(e, ERR_NO_MEMORY, "%s: no memory to read it", path);
    for (unsigned i = 0; i < t->tenants_count; i++) {
        if (read_line(&f->rows[f->n], &t->tenants[i], classes, path, e) != 0)
            return -1;
        f->n++;
    }
    qsort(f->rows, f->n, sizeof *f->rows, by_name);
    for (uint32_t i = 1; i < f->n; i++)
        if (by_name(&f->rows[i - 1], &f->rows[i]) == 0)
            return err_set_param(e, ERR_BAD_FILE, "name", "%s: tenant '%s' is there twice", path,
                                 f->rows[i].name);
    return 0;
}

int tenants_file_load(struct tenants_file *f, const char *path, const struct classes_file *classes,
                      struct err *e) {
    void *data;
    memset(f, 0, sizeof *f);
    if (yaml_doc_load(&data, &top, path, TENANTS_FILE_BYTES, NULL, e) != 0)
        return -1;
    if (data == NULL)
        return err_set(e, ERR_BAD_FILE, "%s: no tenants in it", path);
    int rc = read_all(f, data, classes, path, e);
    yaml_doc_free(&top, data);
    if (rc != 0)
        tenants_file_deinit(f);
    return rc;
}

void tenants_file_deinit(struct tenants_file *f) {
    mem_free(f->rows);
    memset(f, 0, sizeof *f);
}

const struct tenant_line *tenants_file_find(const struct tenants_file *f, const char *name) {
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->rows[i].name, name) == 0)
            return &f->rows[i];
    return NULL;
}

bool tenant_line_model(const struct tenant_line *line, const char *model) {
    for (uint32_t i = 0; i < line->n_models; i++)
        if (strcmp(line->models[i], model) == 0)
            return true;
    return line->n_models == 0;
}
