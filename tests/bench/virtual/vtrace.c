#include "tests/bench/virtual/vtrace.h"

#include "base/mem.h"
#include "tests/bench/virtual/vload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_BITS 18
#define LINE_MAX_BYTES 65536

struct seen { /* open addressing; 0 = empty */
    uint64_t key[1u << SEEN_BITS];
};

static bool seen_before(struct seen *s, uint64_t key, bool add)
{
    uint32_t mask = (1u << SEEN_BITS) - 1, i = (uint32_t)key & mask;
    for (key |= 1; s->key[i] != 0; i = (i + 1) & mask)
        if (s->key[i] == key) return true;
    if (add) s->key[i] = key;
    return false;
}

static void count_infinite(struct vtrace *t, struct seen *s)
{
    for (uint32_t k = 0; k < t->n; k++) {
        const struct vtrace_request *r = &t->r[k];
        struct hash128 h = r->root;
        uint32_t full = r->n_prompt / VLOAD_BLOCK, most = (r->n_prompt - 1) / VLOAD_BLOCK, hit = 0;
        bool chain = true;
        for (uint32_t b = 0; b < full; b++) {
            h = prefix_hash(h, r->ids + b * VLOAD_BLOCK, VLOAD_BLOCK);
            chain = seen_before(s, h.lo, true) && chain;
            hit += chain && b < most;
        }
        t->positions += r->n_prompt;
        t->infinite_cache += r->n_prompt - hit * VLOAD_BLOCK;
    }
}

static void put_block(struct vtrace_request *r, uint32_t *at, uint64_t id, uint32_t block_tokens)
{
    for (uint32_t i = 0; i < block_tokens && *at < r->n_prompt; i++)
        r->ids[(*at)++] = (int32_t)(rand_at(id + 1, i) % SIM_VOCAB);
}

/* "7 9-12 40": single ids and ranges. */
static void put_ids(struct vtrace_request *r, const char *text, uint32_t block_tokens,
                    uint64_t line)
{
    uint32_t at = 0;
    char *p = (char *)(uintptr_t)text;
    while (*p >= '0' && *p <= '9') {
        uint64_t from = strtoull(p, &p, 10), to = from;
        if (*p == '-') to = strtoull(p + 1, &p, 10);
        for (uint64_t id = from; id <= to && at < r->n_prompt; id++)
            put_block(r, &at, id, block_tokens);
        while (*p == ' ') p++;
    }
    put_block(r, &at, (line + 1) << 40, r->n_prompt); /* a list too short: the rest is its own */
}

static int read_line(struct vtrace_request *r, char *line, uint64_t number)
{
    char *field[8], *p = line;
    for (int i = 0; i < 8; i++) {
        field[i] = p;
        p += strcspn(p, ",\n");
        if (*p == '\0' && i < 7) return -1;
        if (*p != '\0') *p++ = '\0';
    }
    r->at_ns = strtoull(field[0], NULL, 10) * VLOAD_MS;
    r->n_prompt = (uint32_t)strtoul(field[1], NULL, 10);
    r->n_out = (uint32_t)strtoul(field[2], NULL, 10);
    r->realtime = strcmp(field[3], "batch") != 0;
    r->root = prefix_root(field[4], strlen(field[4]), 7);
    if (r->n_prompt == 0 || r->n_out == 0) return -1;
    r->ids = mem_array(r->n_prompt, sizeof *r->ids);
    if (r->ids == NULL) return -1;
    put_ids(r, field[7], (uint32_t)strtoul(field[6], NULL, 10), number);
    return 0;
}

static int read_all(struct vtrace *t, FILE *f, char *line, uint64_t until_ms)
{
    uint32_t cap = 0;
    while (fgets(line, LINE_MAX_BYTES, f) != NULL) {
        if (line[0] < '0' || line[0] > '9') continue; /* comments, header */
        if (strtoull(line, NULL, 10) > until_ms) break;
        if (t->n == cap) {
            cap = cap == 0 ? 64 : 2 * cap;
            struct vtrace_request *more = mem_realloc(t->r, cap * sizeof *more);
            if (more == NULL) return -1;
            t->r = more;
        }
        memset(&t->r[t->n], 0, sizeof t->r[t->n]);
        if (read_line(&t->r[t->n], line, t->n) != 0) return -1;
        t->n++;
    }
    return t->n > 0 ? 0 : -1;
}

int vtrace_read(struct vtrace *t, const char *path, uint64_t until_ms)
{
    memset(t, 0, sizeof *t);
    FILE *f = fopen(path, "re");
    char *line = mem_alloc(LINE_MAX_BYTES);
    struct seen *seen = mem_zalloc(sizeof *seen);
    int rc = -1;
    if (f != NULL && line != NULL && seen != NULL) rc = read_all(t, f, line, until_ms);
    if (rc == 0) count_infinite(t, seen);
    if (f != NULL) fclose(f);
    mem_free(line);
    mem_free(seen);
    if (rc != 0) vtrace_free(t);
    return rc;
}

void vtrace_free(struct vtrace *t)
{
    for (uint32_t i = 0; i < t->n; i++) mem_free(t->r[i].ids);
    mem_free(t->r);
    memset(t, 0, sizeof *t);
}
