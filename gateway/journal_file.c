#include "gateway/journal_file.h"

#include "base/hash.h"
#include "base/mem.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_MAX (64u << 20)

uint64_t record_check(const struct record_head *h, const void *payload, uint64_t segment)
{
    return hash64(payload, h->bytes, segment ^ ((uint64_t)h->kind << 56) ^ ((uint64_t)h->bytes << 24));
}

/* ---- writing */

static int head(struct buf *b, enum record_kind kind, const char *job, int64_t line, size_t rest)
{
    const unsigned char n = (unsigned char)strnlen(job, JOURNAL_ID_MAX - 1);
    const struct record_head h = {(uint32_t)(1 + n + sizeof line + rest), (uint32_t)kind, 0};
    const size_t all = sizeof h + h.bytes;
    if (b->bad || all > RECORD_MAX || (b->limit && b->len + all > b->limit)) return -1;
    if (buf_reserve(b, all) != 0) {
        b->bad = false; /* what is in it stays good */
        return -1;
    }
    buf_add(b, &h, sizeof h);
    buf_add(b, &n, 1);
    buf_add(b, job, n);
    buf_add(b, &line, sizeof line);
    return 0;
}

int record_state(struct buf *b, const struct journal_line *l, bool with_out)
{
    const uint64_t wide[5] = {l->submission_hi, l->submission_lo, l->seed, l->numerics_hi, l->numerics_lo};
    const uint32_t n_out = with_out ? l->n_out : 0;
    const uint32_t small[4] = {l->boundary, l->max_total, l->n_prompt, n_out};
    const size_t ids = ((size_t)l->n_prompt + n_out) * sizeof(int32_t);
    if (head(b, REC_STATE, l->job, l->line, sizeof wide + sizeof small + ids) != 0) return -1;
    buf_add(b, wide, sizeof wide);
    buf_add(b, small, sizeof small);
    if (l->n_prompt) buf_add(b, l->prompt, l->n_prompt * sizeof(int32_t));
    if (n_out) buf_add(b, l->out, n_out * sizeof(int32_t));
    return 0;
}

int record_sub(struct buf *b, const char *job, int64_t line, const uint64_t v[4])
{
    if (head(b, REC_SUB, job, line, 4 * sizeof v[0]) != 0) return -1;
    buf_add(b, v, 4 * sizeof v[0]);
    return 0;
}

int record_ids(struct buf *b, const char *job, int64_t line, uint32_t index, const int32_t *ids, uint32_t n)
{
    const uint32_t small[2] = {index, n};
    if (n > JOURNAL_IDS_MAX || head(b, REC_IDS, job, line, sizeof small + n * sizeof ids[0]) != 0) return -1;
    buf_add(b, small, sizeof small);
    buf_add(b, ids, n * sizeof ids[0]);
    return 0;
}

int record_bare(struct buf *b, enum record_kind kind, const char *job, int64_t line)
{
    return head(b, kind, job, line, 0);
}

/* ---- the live lines: an array, and an index of 1 + place by hash, rebuilt when it is half full */

static void line_free(struct live_line *l)
{
    if (l == NULL) return;
    mem_free(l->l.prompt);
    mem_free(l->l.out);
    mem_free(l);
}

void live_deinit(struct live *t)
{
    for (size_t i = 0; i < t->n; i++) line_free(t->rows[i]);
    mem_free(t->rows);
    mem_free(t->index);
    *t = (struct live){0};
}

/* The index's slot of a line: where it is, or where it would go. */
static size_t slot_of(const struct live *t, const char *job, int64_t line)
{
    size_t i = hash64(job, strlen(job), (uint64_t)line) & (t->n_index - 1);
    while (t->index[i] != 0) {
        const struct journal_line *l = &t->rows[t->index[i] - 1]->l;
        if (l->line == line && strcmp(l->job, job) == 0) break;
        i = (i + 1) & (t->n_index - 1);
    }
    return i;
}

static int room_for_one(struct live *t)
{
    if (t->n < t->cap) return 0;
    const size_t cap = t->cap ? 2 * t->cap : 64;
    uint32_t *index = mem_array(4 * cap, sizeof *index);
    struct live_line **rows = mem_realloc(t->rows, cap * sizeof *rows);
    if (rows) t->rows = rows;
    if (index == NULL || rows == NULL) {
        mem_free(index);
        return -1;
    }
    mem_free(t->index);
    t->index = index;
    t->n_index = 4 * cap;
    t->cap = cap;
    for (size_t i = 0; i < t->n; i++) index[slot_of(t, rows[i]->l.job, rows[i]->l.line)] = (uint32_t)i + 1;
    return 0;
}

static struct live_line *find(const struct live *t, const char *job, int64_t line)
{
    if (t->n_index == 0) return NULL;
    const uint32_t at = t->index[slot_of(t, job, line)];
    return at ? t->rows[at - 1] : NULL;
}

/* Open addressing without tombstones: what stands behind the freed slot is put in anew. */
static void unindex(struct live *t, size_t i)
{
    t->index[i] = 0;
    for (size_t k = (i + 1) & (t->n_index - 1); t->index[k] != 0; k = (k + 1) & (t->n_index - 1)) {
        const uint32_t at = t->index[k];
        t->index[k] = 0;
        t->index[slot_of(t, t->rows[at - 1]->l.job, t->rows[at - 1]->l.line)] = at;
    }
}

static void drop(struct live *t, struct live_line *l)
{
    const size_t i = slot_of(t, l->l.job, l->l.line);
    const uint32_t at = t->index[i];
    unindex(t, i);
    t->n--;
    if (at - 1 != t->n) {
        struct live_line *last = t->rows[t->n];
        t->index[slot_of(t, last->l.job, last->l.line)] = at;
        t->rows[at - 1] = last;
    }
    line_free(l);
}

static void add(struct live *t, struct live_line *l)
{
    if (room_for_one(t) != 0) {
        line_free(l);
        return;
    }
    t->rows[t->n++] = l;
    t->index[slot_of(t, l->l.job, l->l.line)] = (uint32_t)t->n;
}

/* ---- applying a record */

static int32_t *ids_copy(const unsigned char *p, uint32_t n)
{
    int32_t *ids = mem_alloc(n ? n * sizeof *ids : 1);
    if (ids && n) memcpy(ids, p, n * sizeof *ids);
    return ids;
}

static int apply_state(struct live *t, const struct journal_line *key, const unsigned char *p, size_t n,
                       uint64_t segment)
{
    uint64_t wide[5];
    uint32_t small[4];
    if (n < sizeof wide + sizeof small) return -1;
    memcpy(wide, p, sizeof wide);
    memcpy(small, p + sizeof wide, sizeof small);
    p += sizeof wide + sizeof small;
    if (n != sizeof wide + sizeof small + ((size_t)small[2] + small[3]) * sizeof(int32_t)) return -1;
    struct live_line *l = find(t, key->job, key->line);
    if (l) drop(t, l);
    l = mem_zalloc(sizeof *l);
    if (l == NULL) return 0;
    l->segment = segment;
    l->l = *key;
    l->l.submission_hi = wide[0];
    l->l.submission_lo = wide[1];
    l->l.seed = wide[2];
    l->l.numerics_hi = wide[3];
    l->l.numerics_lo = wide[4];
    l->l.boundary = small[0];
    l->l.max_total = small[1];
    l->l.n_prompt = small[2];
    l->l.n_out = l->l.cap_out = small[3];
    l->l.prompt = ids_copy(p, small[2]);
    l->l.out = ids_copy(p + small[2] * sizeof(int32_t), small[3]);
    if (l->l.prompt == NULL || l->l.out == NULL) line_free(l);
    else add(t, l);
    return 0;
}

static int apply_sub(struct live_line *l, const unsigned char *p, size_t n)
{
    uint64_t v[4];
    if (n != sizeof v) return -1;
    memcpy(v, p, sizeof v);
    if (l == NULL) return 0;
    l->l.submission_hi = v[0];
    l->l.submission_lo = v[1];
    l->l.numerics_hi = v[2];
    l->l.numerics_lo = v[3];
    return 0;
}

static int apply_ids(struct live *t, struct live_line *l, const unsigned char *p, size_t n)
{
    uint32_t small[2];
    if (n < sizeof small) return -1;
    memcpy(small, p, sizeof small);
    if (n != sizeof small + small[1] * sizeof(int32_t)) return -1;
    if (l == NULL || small[0] > l->l.n_out) return 0; /* after a gap: what is before it stays */
    const uint32_t known = l->l.n_out - small[0];
    if (known >= small[1]) return 0;
    const uint32_t fresh = small[1] - known;
    if (l->l.n_out + fresh > l->l.cap_out) {
        const uint32_t cap = 2 * (l->l.n_out + fresh);
        int32_t *out = mem_realloc(l->l.out, cap * sizeof *out);
        if (out == NULL) {
            drop(t, l);
            return 0;
        }
        l->l.out = out;
        l->l.cap_out = cap;
    }
    memcpy(l->l.out + l->l.n_out, p + sizeof small + known * sizeof(int32_t), fresh * sizeof(int32_t));
    l->l.n_out += fresh;
    return 0;
}

static void complete(struct live *t, uint64_t segment)
{
    for (size_t i = t->n; i-- > 0;)
        if (t->rows[i]->segment != segment) drop(t, t->rows[i]);
}

int live_apply(struct live *t, uint32_t kind, const unsigned char *p, size_t n, uint64_t segment)
{
    struct journal_line key = {0};
    if (n < 1 || p[0] >= JOURNAL_ID_MAX || n < 1u + p[0] + sizeof key.line) return -1;
    memcpy(key.job, p + 1, p[0]);
    memcpy(&key.line, p + 1 + p[0], sizeof key.line);
    const size_t used = 1u + p[0] + sizeof key.line;
    p += used;
    n -= used;
    if (kind == REC_STATE) return apply_state(t, &key, p, n, segment);
    struct live_line *l = find(t, key.job, key.line);
    if (kind == REC_SUB) return apply_sub(l, p, n);
    if (kind == REC_IDS) return apply_ids(t, l, p, n);
    if (kind == REC_END && l) drop(t, l);
    if (kind == REC_COMPLETE) complete(t, segment);
    return kind == REC_END || kind == REC_COMPLETE ? 0 : -1;
}

/* ---- segments */

void segment_path(char *out, size_t cap, const char *dir, uint64_t number)
{
    snprintf(out, cap, "%s/journal-%08llu.log", dir, (unsigned long long)number);
}

static int read_whole(const char *path, unsigned char **out, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    ssize_t rc = 0;
    *out = NULL;
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0) *out = mem_alloc((size_t)st.st_size + 1);
    while (*out && got < (size_t)st.st_size && (rc = read(fd, *out + got, (size_t)st.st_size - got)) > 0)
        got += (size_t)rc;
    close(fd);
    *n = got;
    if (*out == NULL || rc < 0) {
        mem_free(*out);
        return -1;
    }
    return 0;
}

int segment_replay(const char *path, uint64_t number, struct live *t, uint64_t *records, uint64_t *torn)
{
    unsigned char *p;
    size_t n, at = 0;
    if (read_whole(path, &p, &n) != 0) return -1;
    while (n - at >= sizeof(struct record_head)) {
        struct record_head h;
        memcpy(&h, p + at, sizeof h);
        const unsigned char *payload = p + at + sizeof h;
        if (h.bytes > n - at - sizeof h || record_check(&h, payload, number) != h.check ||
            live_apply(t, h.kind, payload, h.bytes, number) != 0)
            break;
        at += sizeof h + h.bytes;
        ++*records;
    }
    *torn += n - at;
    mem_free(p);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int segment_list(const char *dir, uint64_t **numbers, size_t *n)
{
    DIR *d = opendir(dir);
    struct dirent *f;
    struct buf b = {0};
    if (d == NULL) return -1;
    while ((f = readdir(d)) != NULL) {
        unsigned long long v;
        char tail[8];
        if (sscanf(f->d_name, "journal-%8llu.%4s", &v, tail) != 2 || strcmp(tail, "log") != 0) continue;
        const uint64_t number = v;
        buf_add(&b, &number, sizeof number);
    }
    closedir(d);
    *n = b.len / sizeof **numbers;
    *numbers = (uint64_t *)buf_take(&b, NULL);
    if (*numbers == NULL && *n > 0) return -1;
    if (*n > 0) qsort(*numbers, *n, sizeof **numbers, by_number);
    return 0;
}
