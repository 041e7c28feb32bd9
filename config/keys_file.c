/* keys_file.c - see keys_file.h. */
#include "config/keys_file.h"

#include "base/buf.h"
#include "base/mem.h"
#include "config/file_sync.h"
#include "config/file_words.h"
#include "config/yaml_doc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct key_text {
    char *hash, *tenant, *created, *note;
    char **classes; unsigned classes_count;
};

struct keys_text { struct key_text *keys; unsigned keys_count; };

static const cyaml_schema_value_t word = {CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, 255)};

#define TEXT_FIELD(key, field, flags)                                                              \
    CYAML_FIELD_STRING_PTR(key, CYAML_FLAG_POINTER | (flags), struct key_text, field, 0, 255)
static const cyaml_schema_field_t key_fields[] = {
    TEXT_FIELD("hash", hash, 0),
    TEXT_FIELD("tenant", tenant, 0),
    TEXT_FIELD("created", created, CYAML_FLAG_OPTIONAL),
    TEXT_FIELD("note", note, CYAML_FLAG_OPTIONAL),
    CYAML_FIELD_SEQUENCE("classes", CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL, struct key_text,
                         classes, &word, 1, CLASS_LINES_MAX),
    CYAML_FIELD_END};

static const cyaml_schema_value_t key_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct key_text, key_fields)};

static const cyaml_schema_field_t fields[] = {
    CYAML_FIELD_SEQUENCE("keys", CYAML_FLAG_POINTER, struct keys_text, keys, &key_schema, 0,
                         KEYS_FILE_MAX),
    CYAML_FIELD_END};

static const cyaml_schema_value_t top = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct keys_text, fields)};

static int nibble(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_hash(uint8_t out[KEY_HASH_BYTES], const char *hex) {
    if (strlen(hex) != 2 * KEY_HASH_BYTES)
        return -1;
    for (size_t i = 0; i < KEY_HASH_BYTES; i++) {
        int hi = nibble(hex[2 * i]), lo = nibble(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -1;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}

bool key_note_ok(const char *text) {
    size_t n = strlen(text);
    for (const char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7E || *p == '"' || *p == '\\')
            return false;
    return n < KEY_NOTE_BYTES;
}

/* `number` counts from 1: what a person sees in the file. */
static int bad(const char *path, uint32_t number, const char *key, const char *what, struct err *e) {
    return err_set_param(e, ERR_BAD_FILE, key, "%s: key %u: %s: %s", path, number, key, what);
}

static int read_line(struct key_line *out, const struct key_text *t, const char *path,
                     uint32_t number, struct err *e) {
    if (read_hash(out->hash, t->hash) != 0)
        return bad(path, number, "hash", "not 64 lower-case hex digits", e);
    if (!file_word_ok(t->tenant, TENANT_NAME_BYTES - 1))
        return bad(path, number, "tenant", "not a tenant's name", e);
    if (t->created != NULL && (!key_note_ok(t->created) || strlen(t->created) >= KEY_CREATED_BYTES))
        return bad(path, number, "created", "not a time", e);
    if (t->note != NULL && !key_note_ok(t->note))
        return bad(path, number, "note", "longer than 64 bytes or not plain text", e);
    memcpy(out->tenant, t->tenant, strlen(t->tenant) + 1);
    snprintf(out->created, sizeof out->created, "%s", t->created != NULL ? t->created : "");
    snprintf(out->note, sizeof out->note, "%s", t->note != NULL ? t->note : "");
    for (unsigned i = 0; i < t->classes_count; i++) {
        if (!file_word_ok(t->classes[i], CLASS_NAME_BYTES - 1))
            return bad(path, number, "classes", "not a class's name", e);
        memcpy(out->classes[i], t->classes[i], strlen(t->classes[i]) + 1);
    }
    out->n_classes = t->classes_count;
    return 0;
}

static int read_all(struct keys_file *f, const struct keys_text *t, const char *path,
                    struct err *e) {
    f->rows = mem_array(t->keys_count, sizeof *f->rows);
    if (f->rows == NULL)
        return err_set(e, ERR_NO_MEMORY, "%s: no memory to read it", path);
    for (unsigned i = 0; i < t->keys_count; i++) {
        if (read_line(&f->rows[f->n], &t->keys[i], path, i + 1, e) != 0)
            return -1;
        f->n++;
    }
    return 0;
}

int keys_file_load(struct keys_file *f, const char *path, struct err *e) {
    void *data;
    struct stat st;
    memset(f, 0, sizeof *f);
    if (stat(path, &st) != 0 && errno == ENOENT)
        return 0;
    if (yaml_doc_load(&data, &top, path, KEYS_FILE_BYTES, NULL, e) != 0)
        return -1;
    if (data == NULL)
        return err_set(e, ERR_BAD_FILE, "%s: is empty; without keys it says `keys: []`", path);
    int rc = read_all(f, data, path, e);
    yaml_doc_free(&top, data);
    if (rc != 0)
        keys_file_deinit(f);
    return rc;
}

void keys_file_deinit(struct keys_file *f) {
    mem_free(f->rows);
    memset(f, 0, sizeof *f);
}

int keys_file_add(struct keys_file *f, const struct key_line *line, struct err *e) {
    if (f->n == KEYS_FILE_MAX)
        return err_set(e, ERR_BAD_VALUE, "there are %d keys already; revoke some", KEYS_FILE_MAX);
    struct key_line *grown = mem_realloc(f->rows, (f->n + 1) * sizeof *grown);
    if (grown == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    f->rows = grown;
    f->rows[f->n++] = *line;
    return 0;
}

void keys_file_remove(struct keys_file *f, uint32_t at) {
    memmove(&f->rows[at], &f->rows[at + 1], (f->n - at - 1) * sizeof *f->rows);
    f->n--;
}

static void put_line(struct buf *b, const struct key_line *k) {
    buf_adds(b, "  - hash: \"");
    for (size_t i = 0; i < KEY_HASH_BYTES; i++)
        buf_addf(b, "%02x", k->hash[i]);
    buf_addf(b, "\"\n    tenant: \"%s\"\n", k->tenant);
    for (uint32_t i = 0; i < k->n_classes; i++)
        buf_addf(b, "%s\"%s\"%s", i == 0 ? "    classes: [" : ", ", k->classes[i],
                 i + 1 == k->n_classes ? "]\n" : "");
    if (k->created[0] != '\0')
        buf_addf(b, "    created: \"%s\"\n", k->created);
    if (k->note[0] != '\0')
        buf_addf(b, "    note: \"%s\"\n", k->note);
}

/* The name is durable only when the folder is. */
static void sync_folder(const char *path) {
    char folder[SETTINGS_TEXT_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

static int replace(const char *path, const struct buf *b, struct err *e) {
    char temp[SETTINGS_TEXT_MAX + 8];
    snprintf(temp, sizeof temp, "%s.new", path);
    unlink(temp); /* left by a writer that died; the lock is ours */
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(e, ERR_IO, "%s: %s", temp, strerror(errno));
    int rc = file_sync_write(fd, b->p, b->len), saved = errno;
    close(fd);
    if (rc != 0 || rename(temp, path) != 0) {
        saved = rc != 0 ? saved : errno;
        unlink(temp);
        return err_set(e, ERR_IO, "%s: %s", path, strerror(saved));
    }
    sync_folder(path);
    return 0;
}

int keys_file_save(const struct keys_file *f, const char *path, struct err *e) {
    struct buf b = {0};
    buf_adds(&b, "# Written by `sluice keys`: hashes of keys, never keys. A running gateway follows it.\n");
    buf_adds(&b, f->n > 0 ? "keys:\n" : "keys: []\n");
    for (uint32_t i = 0; i < f->n; i++)
        put_line(&b, &f->rows[i]);
    int rc = b.bad ? err_set(e, ERR_NO_MEMORY, "out of memory") : replace(path, &b, e);
    buf_deinit(&b);
    return rc;
}

int keys_file_lock(const char *path, struct err *e) {
    char lock[SETTINGS_TEXT_MAX + 8];
    snprintf(lock, sizeof lock, "%s.lock", path);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_set(e, ERR_IO, "%s: %s", lock, strerror(errno));
    while (flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR)
            continue;
        err_set(e, ERR_IO, "%s: %s", lock, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}

void keys_file_unlock(int fd) {
    close(fd); /* the file stays: removing it would let two writers hold two locks */
}
