/* classes_file.c - see classes_file.h. */
#include "config/classes_file.h"

#include "config/file_words.h"
#include "config/yaml_doc.h"

#include <math.h>
#include <string.h>

#define FILE_BYTES_MAX (64u << 10)

struct class_text {
    char *name;
#define CLASS_TEXT(field, key, kind, def, min, max, unit, help) char *field;
    CLASS_FIELDS(CLASS_TEXT)
#undef CLASS_TEXT
};

struct classes_text { struct class_text *classes; unsigned classes_count; };

static const cyaml_schema_field_t class_fields[] = {
    CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct class_text, name, 0, 255),
#define CLASS_YAML(field, key, kind, def, min, max, unit, help)                                    \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct class_text,       \
                           field, 0, 63),
    CLASS_FIELDS(CLASS_YAML)
#undef CLASS_YAML
    CYAML_FIELD_END};

static const cyaml_schema_value_t class_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct class_text, class_fields)};

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_SEQUENCE("classes", CYAML_FLAG_POINTER, struct classes_text, classes, &class_schema,
                         1, CLASS_LINES_MAX),
    CYAML_FIELD_END};

static const cyaml_schema_value_t top = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct classes_text, fields)};

/* What the table's parser fills: its own kinds. */
struct parsed {
    int64_t rank, order, ttft_ms, tpot_ms;
    bool preemptible;
    double floor, longest_wait_s;
};

static const struct setting rows[] = {
#define CLASS_ROW(field, key, kind, def, min, max, unit, help)                                     \
    {key, SETTING_##kind, def, min, max, unit, 0, "", help, offsetof(struct parsed, field)},
    CLASS_FIELDS(CLASS_ROW)
#undef CLASS_ROW
};
#define N_ROWS (sizeof rows / sizeof rows[0])

static int read_line(struct class_line *out, const struct class_text *t, const char *path,
                     struct err *e) {
    char *const texts[] = {
#define CLASS_GIVEN(field, key, kind, def, min, max, unit, help) t->field,
        CLASS_FIELDS(CLASS_GIVEN)
#undef CLASS_GIVEN
    };
    struct parsed v;
    char where[64];
    if (!file_word_ok(t->name, CLASS_NAME_BYTES - 1))
        return err_set_param(e, ERR_BAD_FILE, "name",
                             "%s: class '%.40s': the name is not a word of 1 to %d letters, digits, "
                             "'.', '_', '-'", path, t->name, CLASS_NAME_BYTES - 1);
    snprintf(where, sizeof where, "class '%s'", t->name);
    if (file_values(rows, N_ROWS, texts, &v, path, where, e) != 0)
        return -1;
    snprintf(out->name, sizeof out->name, "%s", t->name);
    out->rank = (uint8_t)v.rank;
    out->order = (uint8_t)v.order;
    out->preemptible = v.preemptible;
    out->ttft_ms = (uint32_t)v.ttft_ms;
    out->tpot_ms = (uint32_t)v.tpot_ms;
    out->floor_permille = (uint32_t)lround(v.floor * 10);
    out->longest_wait_s = (uint32_t)ceil(v.longest_wait_s);
    return 0;
}

static void sort(struct classes_file *f) {
    for (uint32_t i = 1; i < f->n; i++) {
        struct class_line line = f->rows[i];
        uint32_t k = i;
        for (; k > 0 && f->rows[k - 1].order > line.order; k--)
            f->rows[k] = f->rows[k - 1];
        f->rows[k] = line;
    }
}

/* Sorted already. */
static int check(const struct classes_file *f, const char *path, struct err *e) {
    uint32_t floors = 0;
    if (f->rows[0].rank != 0)
        return err_set_param(e, ERR_BAD_FILE, "rank", "%s: class '%s' is the most urgent, so its "
                             "rank must be 0", path, f->rows[0].name);
    for (uint32_t i = 0; i < f->n; i++) {
        const struct class_line *a = &f->rows[i];
        floors += a->floor_permille;
        for (uint32_t k = i + 1; k < f->n; k++) {
            const struct class_line *b = &f->rows[k];
            if (strcmp(a->name, b->name) == 0)
                return err_set_param(e, ERR_BAD_FILE, "name", "%s: class '%s' is there twice", path,
                                     a->name);
            if (a->order == b->order)
                return err_set_param(e, ERR_BAD_FILE, "order", "%s: classes '%s' and '%s' both have "
                                     "order %u", path, a->name, b->name, a->order);
            if (a->rank > b->rank)
                return err_set_param(e, ERR_BAD_FILE, "order", "%s: class '%s' has rank 0, so its "
                                     "order must be below that of '%s' (rank 1)", path, b->name,
                                     a->name);
        }
    }
    if (floors > 1000)
        return err_set_param(e, ERR_BAD_FILE, "floor", "%s: the floors of all classes together are "
                             "%u.%u %%, more than 100", path, floors / 10, floors % 10);
    return 0;
}

int classes_file_load(struct classes_file *f, const char *path, struct err *e) {
    void *data;
    memset(f, 0, sizeof *f);
    if (yaml_doc_load(&data, &top, path, FILE_BYTES_MAX, NULL, e) != 0)
        return -1;
    if (data == NULL)
        return err_set(e, ERR_BAD_FILE, "%s: no classes in it", path);
    const struct classes_text *t = data;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < t->classes_count; i++)
        rc = read_line(&f->rows[f->n++], &t->classes[i], path, e);
    yaml_doc_free(&top, data);
    if (rc != 0)
        return -1;
    sort(f);
    return check(f, path, e);
}

void classes_file_default(struct classes_file *f) {
    *f = (struct classes_file){.n = 2,
                               .rows = {{.name = "realtime", .ttft_ms = 1000, .tpot_ms = 100},
                                        {.name = "batch", .rank = 1, .order = 1,
                                         .preemptible = true}}};
}

int classes_file_find(const struct classes_file *f, const char *name) {
    for (uint32_t i = 0; i < f->n; i++)
        if (strcmp(f->rows[i].name, name) == 0)
            return (int)i;
    return -1;
}
