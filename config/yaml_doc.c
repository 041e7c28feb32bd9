/* yaml_doc.c - see yaml_doc.h. */
#include "config/yaml_doc.h"

#include "base/buf.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static int explain(const char *path, const struct said *said, cyaml_err_t rc,
                   const char *(*near)(const char *), struct err *e) {
    static const char unknown[] = "Unexpected key: ", twice[] = "Mapping field already seen: ";
    if (strncmp(said->what, unknown, sizeof(unknown) - 1) == 0) {
        const char *key = said->what + sizeof(unknown) - 1, *like = near != NULL ? near(key) : NULL;
        return err_set_param(e, ERR_BAD_FILE, key, "%s: unknown key '%s'%s%s%s", path, key,
                             like ? ", did you mean '" : "", like ? like : "", like ? "'?" : "");
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
            rc = err_set(e, ERR_BAD_FILE, "%s: larger than %zu bytes", path, b->limit);
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

static const cyaml_config_t settings_of_library = {.log_fn = listen,
                                                   .log_level = CYAML_LOG_WARNING,
                                                   .mem_fn = memory,
                                                   .flags = CYAML_CFG_NO_ALIAS};

static int load_text(void **out, const cyaml_schema_value_t *top, struct buf *b, const char *path,
                     const char *(*near)(const char *), struct err *e) {
    struct said said = {0};
    cyaml_config_t config = settings_of_library;
    cyaml_data_t *data = NULL;
    config.log_ctx = &said;
    if (memchr(b->p, '\0', b->len) != NULL || escapes_nul(buf_str(b)))
        return err_set(e, ERR_BAD_FILE, "%s: holds a NUL character", path);
    cyaml_err_t rc = cyaml_load_data((const uint8_t *)b->p, b->len, &config, top, &data, NULL);
    if (rc != CYAML_OK)
        return explain(path, &said, rc, near, e);
    if (said.ignored_document) {
        yaml_doc_free(top, data);
        return err_set(e, ERR_BAD_FILE, "%s: holds more than one document", path);
    }
    *out = data;
    return 0;
}

int yaml_doc_load(void **out, const cyaml_schema_value_t *top, const char *path, size_t bytes_max,
                  const char *(*near)(const char *key), struct err *e) {
    struct buf b;
    *out = NULL;
    buf_init(&b, bytes_max);
    int rc = read_file(&b, path, e);
    if (rc == 0 && b.len > 0)
        rc = load_text(out, top, &b, path, near, e);
    buf_deinit(&b);
    return rc;
}

void yaml_doc_free(const cyaml_schema_value_t *top, void *data) {
    cyaml_config_t config = settings_of_library;
    struct said said = {0};
    config.log_ctx = &said;
    cyaml_free(&config, top, data, 0);
}
