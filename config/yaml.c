/* yaml.c - the only file that knows libcyaml. The library carries every value as optional text; the
 * table's own parser makes values of it, so that files and flags obey one set of rules.
 *
 * Known traps, each tested: its line numbers are one event late, so errors name key and value and
 * no line; an empty file is a success without a struct; a second document is only a warning; a
 * string is cut at an escaped NUL.
 */
#include "base/buf.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/table.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* What the library says, in its words: the sentence, and the innermost key it was at. */
struct said {
    char what[160], key[64];
    bool ignored_document;
};

static void listen(cyaml_log_t level, void *ctx, const char *fmt, va_list ap) {
    struct said *said = ctx;
    char line[256];
    (void)level;
    vsnprintf(line, sizeof(line), fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    const char *text = strncmp(line, "Load: ", 6) == 0 ? line + 6 : line;
    const char *field = strstr(text, "in mapping field '");
    if (strstr(text, "Ignoring documents") != NULL)
        said->ignored_document = true;
    else if (field != NULL && said->key[0] == '\0')
        snprintf(said->key, sizeof(said->key), "%.*s", (int)strcspn(field + 18, "'"), field + 18);
    else if (field == NULL && said->what[0] == '\0' && strncmp(text, "Backtrace", 9) != 0 &&
             text[0] != ' ')
        snprintf(said->what, sizeof(said->what), "%.150s", text);
}

static void *memory(void *ctx, void *p, size_t bytes) {
    (void)ctx;
    if (bytes > 0)
        return mem_realloc(p, bytes);
    mem_free(p);
    return NULL;
}

static int explain(const char *path, const struct said *said, cyaml_err_t rc, struct err *e) {
    static const char unknown[] = "Unexpected key: ", twice[] = "Mapping field already seen: ";
    if (strncmp(said->what, unknown, sizeof(unknown) - 1) == 0) {
        const char *key = said->what + sizeof(unknown) - 1, *near = setting_nearest(key, ~0u);
        return err_set_param(e, ERR_BAD_FILE, key, "%s: unknown key '%s'%s%s%s", path, key,
                             near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    if (strncmp(said->what, twice, sizeof(twice) - 1) == 0)
        return err_set_param(e, ERR_BAD_FILE, said->key, "%s: key '%s' is given twice", path,
                             said->what + sizeof(twice) - 1);
    if (rc == CYAML_ERR_OOM)
        return err_set(e, ERR_NO_MEMORY, "%s: no memory to read it", path);
    return err_set_param(e, ERR_BAD_FILE, said->key, "%s: %s%s%s%s", path,
                         said->what[0] != '\0' ? said->what : cyaml_strerror(rc),
                         said->key[0] != '\0' ? ", at key '" : "", said->key,
                         said->key[0] != '\0' ? "'" : "");
}

/* Reads the whole file into b. */
static int read_file(struct buf *b, const char *path, struct err *e) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_set(e, ERR_BAD_FILE, "%s: %s", path, strerror(errno));
    int rc = 0;
    if (fstat(fd, &st) != 0 || S_ISDIR(st.st_mode))
        rc = err_set(e, ERR_BAD_FILE, "%s: not a file", path);
    while (rc == 0) {
        char chunk[4096];
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = err_set(e, ERR_BAD_FILE, "%s: %s", path, strerror(errno));
        if (n <= 0)
            break;
        buf_add(b, chunk, (size_t)n);
        if (b->bad)
            rc = err_set(e, ERR_BAD_FILE, "%s: larger than %u bytes", path, SETTINGS_FILE_MAX);
    }
    close(fd);
    return rc;
}

/* The library hands out C strings, so an escaped NUL would silently shorten a value. Pairs are
 * stepped over whole: an escaped backslash before a 0 is none. */
static bool escapes_nul(const char *text) {
    static const char *const escapes[] = {"\\0", "\\x00", "\\u0000", "\\U00000000"};
    for (const char *p = strchr(text, '\\'); p != NULL && p[1] != '\0'; p = strchr(p + 2, '\\'))
        for (int i = 0; i < 4; i++)
            if (strncmp(p, escapes[i], strlen(escapes[i])) == 0)
                return true;
    return false;
}

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

static int load_text(struct settings *s, struct buf *b, const char *path, struct err *e) {
    struct said said = {0};
    cyaml_config_t config = {.log_fn = listen,
                             .log_ctx = &said,
                             .log_level = CYAML_LOG_WARNING,
                             .mem_fn = memory,
                             .flags = CYAML_CFG_NO_ALIAS};
    if (memchr(b->p, '\0', b->len) != NULL || escapes_nul(buf_str(b)))
        return err_set(e, ERR_BAD_FILE, "%s: holds a NUL character", path);
    struct yaml_text *text = NULL;
    cyaml_err_t rc =
        cyaml_load_data((const uint8_t *)b->p, b->len, &config, &top, (cyaml_data_t **)&text, NULL);
    if (rc != CYAML_OK)
        return explain(path, &said, rc, e);
    int result = 0;
    if (said.ignored_document)
        result = err_set(e, ERR_BAD_FILE, "%s: holds more than one document", path);
    else if (text != NULL)
        result = apply(s, text, path, e);
    cyaml_free(&config, &top, text, 0);
    return result;
}

int settings_load_yaml(struct settings *s, const char *path, struct err *e) {
    struct buf b;
    buf_init(&b, SETTINGS_FILE_MAX);
    int rc = read_file(&b, path, e);
    if (rc == 0 && b.len > 0)
        rc = load_text(s, &b, path, e);
    buf_deinit(&b);
    return rc;
}
