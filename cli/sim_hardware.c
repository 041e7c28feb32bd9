/* sim_hardware.c - files that describe a simulated worker; the arithmetic is in sim_roofline.c. */
#include "cli/sim_hardware_impl.h"

#include "base/buf.h"
#include "base/mem.h"
#include "cli/json_value.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sim_key keys[SIM_KEYS] = {
    [KEY_BANDWIDTH] = {"bandwidth_gb_s", 0.001, 1e7, true},
    [KEY_TFLOPS] = {"tflops", 0.0001, 1e7, true},
    [KEY_LAUNCH] = {"launch_us", 0, 1e7, true},
    [KEY_MEMORY] = {"memory_gb", 0.001, 1e6, true},
    [KEY_COPY] = {"copy_gb_s", 0, 1e6, false},
    [KEY_HOST] = {"host_gb", 0, 1e6, false},
    [KEY_LAYERS] = {"layers", 1, 4096, true},
    [KEY_HIDDEN] = {"hidden", 1, 1e6, true},
    [KEY_HEADS] = {"heads", 1, 1e5, true},
    [KEY_KV_HEADS] = {"kv_heads", 1, 1e5, true},
    [KEY_HEAD_DIM] = {"head_dim", 1, 1e5, true},
    [KEY_FFN] = {"ffn", 1, 1e7, true},
    [KEY_VOCAB] = {"vocab", 1, 1e8, true},
    [KEY_WEIGHT_BYTES] = {"weight_bytes", 0.05, 8, false},
    [KEY_KV_BYTES] = {"kv_bytes", 0.05, 8, false},
    [KEY_MAX_SEQS] = {"max_seqs", 1, 1024, false},
    [KEY_MAX_SLOTS] = {"max_slots", 1, 65536, false},
    [KEY_N_CTX] = {"n_ctx", 16, 1048576, false},
    [KEY_BLOCK_TOKENS] = {"block_tokens", 1, 1024, false},
    [KEY_CHUNK] = {"prefill_chunk", 1, 65536, false},
    [KEY_SEGMENTS] = {"segments", 1, 4096, false},
    [KEY_KV_BLOCKS] = {"kv_blocks", 1, 5e7, false},
    [KEY_COPY_US] = {"copy_us", 0, 1e9, false},
    [KEY_HOST_BLOCKS] = {"host_blocks", 0, 5e7, false},
};

static int set_key(struct sim_values *v, const char *name, size_t n, double value, uint64_t line,
                   struct err *e) {
    char where[32] = "";
    if (line != 0)
        (void)snprintf(where, sizeof(where), "line %llu: ", (unsigned long long)line);
    for (int k = 0; k < SIM_KEYS; k++) {
        if (strlen(keys[k].name) != n || memcmp(keys[k].name, name, n) != 0)
            continue;
        if (v->given[k])
            return err_set(e, ERR_BAD_FILE, "%s%s comes twice", where, keys[k].name);
        if (!(value >= keys[k].min && value <= keys[k].max))
            return err_set(e, ERR_BAD_FILE, "%s%s is not within %g to %g", where, keys[k].name,
                           keys[k].min, keys[k].max);
        v->given[k] = true;
        v->v[k] = value;
        return 0;
    }
    return err_set(e, ERR_BAD_FILE, "%sunknown key '%.*s'", where, (int)(n < 40 ? n : 40), name);
}

static const char *skip(const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/* "key: value  # comment". The file is NUL-terminated. */
static int take_line(struct sim_values *v, const char *p, const char *end, uint64_t line,
                     struct err *e) {
    p = skip(p, end);
    if (p == end || *p == '#' || *p == '\r' || (end - p >= 3 && memcmp(p, "---", 3) == 0))
        return 0;
    const char *colon = memchr(p, ':', (size_t)(end - p)), *name_end = colon;
    if (colon == NULL)
        return err_set(e, ERR_BAD_FILE, "line %llu: no 'key: value'", (unsigned long long)line);
    while (name_end > p && (name_end[-1] == ' ' || name_end[-1] == '\t'))
        name_end--;
    const char *text = skip(colon + 1, end);
    if (name_end - p == 4 && memcmp(p, "name", 4) == 0)
        return 0;
    char *stop = NULL;
    double value = text < end ? strtod(text, &stop) : NAN;
    stop = stop == NULL ? (char *)(uintptr_t)text : stop;
    const char *rest = skip(stop, end);
    if (stop == text || stop > end || !(rest == end || *rest == '#' || *rest == '\r'))
        return err_set(e, ERR_BAD_FILE, "line %llu: no number after '%.*s:'",
                       (unsigned long long)line, (int)(name_end - p < 40 ? name_end - p : 40), p);
    return set_key(v, p, (size_t)(name_end - p), value, line, e);
}

static int take_lines(struct sim_values *v, const char *p, size_t n, struct err *e) {
    const char *end = p + n;
    for (uint64_t line = 1; p < end; line++) {
        const char *lf = memchr(p, '\n', (size_t)(end - p)), *stop = lf != NULL ? lf : end;
        if (take_line(v, p, stop, line, e) != 0)
            return -1;
        p = lf != NULL ? lf + 1 : end;
    }
    return 0;
}

static int take_json(struct sim_values *v, const json_t *j, bool strict, struct err *e) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)j, name, value) {
        bool known = false;
        for (int k = 0; k < SIM_KEYS; k++)
            known |= strcmp(keys[k].name, name) == 0;
        if ((!known && !strict) || strcmp(name, "name") == 0)
            continue;
        if (known && !json_is_number(value))
            return err_set(e, ERR_BAD_FILE, "%s is no number", name);
        if (set_key(v, name, strlen(name), json_number_value(value), 0, e) != 0)
            return -1;
    }
    return 0;
}

static int read_file(struct buf *b, const char *path, struct err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    char part[4096];
    ssize_t n;
    buf_init(b, SIM_HARDWARE_FILE_MAX);
    while ((n = read(fd, part, sizeof(part))) > 0 && !b->bad)
        buf_add(b, part, (size_t)n);
    close(fd);
    if (n < 0 || b->bad)
        return err_set(e, ERR_BAD_FILE, "%s: %s", path,
                       b->bad ? "larger than 1 MiB" : strerror(errno));
    (void)buf_str(b);
    return b->bad ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
}

static int need_all(const struct sim_values *v, struct err *e) {
    for (int k = 0; k < SIM_KEYS; k++)
        if (keys[k].needed && !v->given[k])
            return err_set(e, ERR_BAD_FILE, "%s is missing", keys[k].name);
    return 0;
}

int sim_hardware_read(struct sim_hardware *h, const char *path, struct err *e) {
    struct sim_values v = {{0}, {false}};
    struct buf b = {0};
    json_t *j = NULL;
    memset(h, 0, sizeof(*h));
    int rc = read_file(&b, path, e);
    size_t at = 0;
    while (rc == 0 && at < b.len && strchr(" \t\r\n", b.p[at]) != NULL && b.p[at] != '\0')
        at++;
    if (rc == 0 && at < b.len && b.p[at] == '{') {
        j = json_value_parse(b.p, b.len, e);
        rc = j == NULL ? -1 : !json_is_object(j) ? err_set(e, ERR_BAD_FILE, "no JSON object") : 0;
        if (rc == 0)
            rc = take_json(&v, j, true, e);
    } else if (rc == 0) {
        rc = take_lines(&v, b.p, b.len, e);
    }
    if (rc == 0)
        rc = need_all(&v, e);
    if (rc == 0)
        rc = sim_roofline(h, &v, e);
    json_decref(j);
    buf_deinit(&b);
    return rc;
}

int sim_hardware_from_worker(struct sim_hardware *h, const char *path, struct err *e) {
    struct sim_values v = {{0}, {false}};
    struct buf b = {0};
    json_t *j = NULL;
    memset(h, 0, sizeof(*h));
    int rc = read_file(&b, path, e);
    if (rc == 0) {
        j = json_value_parse(b.p, b.len, e);
        rc = j == NULL ? -1 : !json_is_object(j) ? err_set(e, ERR_BAD_FILE, "no JSON object") : 0;
    }
    if (rc == 0)
        rc = take_json(&v, j, false, e);
    if (rc == 0)
        rc = sim_measured(h, &v, j, e);
    json_decref(j);
    buf_deinit(&b);
    return rc;
}

void sim_hardware_default(struct sim_hardware *h) {
    static const double values[SIM_KEYS] = {
        [KEY_BANDWIDTH] = 300, [KEY_TFLOPS] = 120, [KEY_LAUNCH] = 500,  [KEY_MEMORY] = 24,
        [KEY_LAYERS] = 32,     [KEY_HIDDEN] = 4096, [KEY_HEADS] = 32,   [KEY_KV_HEADS] = 8,
        [KEY_HEAD_DIM] = 128,  [KEY_FFN] = 14336,  [KEY_VOCAB] = 128256};
    struct sim_values v = {{0}, {false}};
    struct err e;
    memset(h, 0, sizeof(*h));
    for (int k = 0; k < SIM_KEYS; k++) {
        v.v[k] = values[k];
        v.given[k] = values[k] > 0;
    }
    (void)sim_roofline(h, &v, &e);
    (void)snprintf(h->name, sizeof(h->name), "an 8B model on a 24 GB card (built in)");
}
