#include "model/bpe.h"

#include "model/bpe_table.h"
#include "model/byte_map.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

#define MERGES_MAX (1 << 22)
#define MERGE_BYTES_MAX 8192
#define NO_RANK INT32_MAX
#define WORK_MIN 256u

struct bpe {
    struct pair_table pairs;
    int32_t byte_id[256]; /* -1 = the vocabulary has no token for this byte */
};

/* One line of the merges, "left right" in the byte alphabet. */
static int add_merge(struct bpe *b, const struct byte_index *x, struct gguf_str s, int32_t rank,
                     struct err *e)
{
    uint8_t bytes[MERGE_BYTES_MAX];
    const char *space = s.n ? memchr(s.p + 1, ' ', s.n - 1) : NULL;
    if (!space || s.n > MERGE_BYTES_MAX)
        return err_set(e, ERR_BAD_FILE, "key 'tokenizer.ggml.merges': entry %d ('%s') is no pair",
                       rank, gguf_show(s).s);
    size_t n_left = (size_t)(space - s.p);
    long n0 = byte_map_decode(s.p, n_left, bytes);
    long n1 = n0 < 0 ? -1 : byte_map_decode(space + 1, s.n - n_left - 1, bytes + n0);
    if (n0 <= 0 || n1 <= 0)
        return err_set(e, ERR_BAD_FILE,
                       "key 'tokenizer.ggml.merges': entry %d ('%s') is not spelled in the "
                       "byte alphabet",
                       rank, gguf_show(s).s);
    int32_t left = byte_index_find(x, bytes, (size_t)n0);
    int32_t right = byte_index_find(x, bytes + n0, (size_t)n1);
    int32_t merged = byte_index_find(x, bytes, (size_t)(n0 + n1));
    if (left < 0 || right < 0 || merged < 0)
        return err_set(e, ERR_BAD_FILE,
                       "key 'tokenizer.ggml.merges': entry %d ('%s') names a token that "
                       "'tokenizer.ggml.tokens' does not have",
                       rank, gguf_show(s).s);
    pair_table_put(&b->pairs, left, right, rank, merged);
    return 0;
}

static int read_merges(struct bpe *b, const struct gguf *g, const struct byte_index *x,
                       struct err *e)
{
    int64_t n = gguf_array_count(g, "tokenizer.ggml.merges");
    if (n < 0 || n > MERGES_MAX)
        return err_set(e, ERR_BAD_FILE,
                       "key 'tokenizer.ggml.merges' is missing, or has %lld entries, more "
                       "than %d",
                       (long long)n, MERGES_MAX);
    if (pair_table_init(&b->pairs, (uint32_t)n) != 0)
        return err_set(e, ERR_NO_MEMORY, "no memory for %lld merges", (long long)n);
    for (int64_t i = 0; i < n; i++) {
        struct gguf_str s;
        if (gguf_array_str(g, "tokenizer.ggml.merges", (uint64_t)i, &s) != 0)
            return err_set(e, ERR_BAD_FILE, "key 'tokenizer.ggml.merges' is no array of strings");
        if (add_merge(b, x, s, (int32_t)i, e) != 0)
            return -1;
    }
    return 0;
}

int bpe_create(struct bpe **out, const struct gguf *g, const struct vocab *v, struct err *e)
{
    struct byte_index x = {0};
    int rc = -1;
    *out = NULL;
    struct bpe *b = mem_zalloc(sizeof *b);
    if (!b || byte_index_init(&x, v) != 0) {
        err_set(e, ERR_NO_MEMORY, "no memory for the tokenizer");
        goto out;
    }
    for (unsigned i = 0; i < 256; i++)
        b->byte_id[i] = byte_index_find(&x, &(uint8_t){(uint8_t)i}, 1);
    if (read_merges(b, g, &x, e) != 0)
        goto out;
    *out = b;
    b = NULL;
    rc = 0;
out:
    byte_index_deinit(&x);
    bpe_destroy(&b);
    return rc;
}

void bpe_destroy(struct bpe **bp)
{
    struct bpe *b = *bp;
    *bp = NULL;
    if (!b)
        return;
    pair_table_deinit(&b->pairs);
    mem_free(b);
}

void bpe_work_deinit(struct bpe_work *w)
{
    mem_free(w->symbols);
    mem_free(w->heap);
    memset(w, 0, sizeof *w);
}

static int reserve(struct bpe_work *w, size_t n)
{
    if (n <= w->cap)
        return 0;
    size_t cap = n < WORK_MIN ? WORK_MIN : n;
    bpe_work_deinit(w); /* nothing in it outlives a piece */
    w->symbols = mem_alloc(cap * sizeof *w->symbols);
    w->heap =
        mem_alloc(2 * cap * sizeof *w->heap); /* each merge takes one entry and adds two at most */
    if (!w->symbols || !w->heap) {
        bpe_work_deinit(w);
        return -1;
    }
    w->cap = cap;
    return 0;
}

/* Four children a node: half the levels of a binary heap, and the four lie in one cache line. */
static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t key = h[i];
    for (;;) {
        size_t c = 4 * i + 1, best = c;
        if (c >= n)
            break;
        size_t end = c + 4 < n ? c + 4 : n;
        for (size_t k = c + 1; k < end; k++)
            if (h[k] < h[best])
                best = k;
        if (h[best] >= key)
            break;
        h[i] = h[best];
        i = best;
    }
    h[i] = key;
}

static void heap_push(struct bpe_work *w, uint64_t key)
{
    size_t i = w->n_heap++;
    while (i > 0 && w->heap[(i - 1) / 4] > key) {
        w->heap[i] = w->heap[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    w->heap[i] = key;
}

static uint64_t heap_pop(struct bpe_work *w)
{
    uint64_t top = w->heap[0];
    w->heap[0] = w->heap[--w->n_heap];
    if (w->n_heap > 1)
        sift_down(w->heap, w->n_heap, 0);
    return top;
}

/* Looks the pair (i, its next) up again; true when it can be merged. */
static bool rank_pair(const struct bpe *b, struct bpe_symbol *s, int32_t i)
{
    int32_t next = s[i].next;
    const struct pair_slot *p = NULL;
    if (next >= 0)
        p = pair_table_find(&b->pairs, s[i].id, s[next].id);
    s[i].rank = p ? p->rank : NO_RANK;
    s[i].merged = p ? p->merged : -1;
    return p != NULL;
}

static uint64_t heap_key(const struct bpe_symbol *s, int32_t i)
{
    return (uint64_t)(uint32_t)s[i].rank << 32 | (uint32_t)i;
}

/* Joins symbol i with its next one. The dead one's rank becomes NO_RANK, so that its entry is
 * stale. */
static void merge_at(const struct bpe *b, struct bpe_work *w, int32_t i)
{
    struct bpe_symbol *s = w->symbols;
    int32_t dead = s[i].next;
    s[i].id = s[i].merged;
    s[i].next = s[dead].next;
    s[dead].rank = NO_RANK;
    if (s[i].next >= 0)
        s[s[i].next].prev = i;
    if (rank_pair(b, s, i))
        heap_push(w, heap_key(s, i));
    if (s[i].prev >= 0 && rank_pair(b, s, s[i].prev))
        heap_push(w, heap_key(s, s[i].prev));
}

static void merge_all(const struct bpe *b, struct bpe_work *w, size_t n)
{
    struct bpe_symbol *s = w->symbols;
    w->n_heap = 0;
    for (size_t i = 0; i < n; i++)
        if (rank_pair(b, s, (int32_t)i))
            w->heap[w->n_heap++] = heap_key(s, (int32_t)i);
    for (size_t i = w->n_heap / 4 + 1; i-- > 0;)
        if (i < w->n_heap)
            sift_down(w->heap, w->n_heap, i);
    while (w->n_heap > 0) {
        uint64_t top = heap_pop(w);
        int32_t at = (int32_t)(uint32_t)top;
        if ((uint32_t)s[at].rank == (uint32_t)(top >> 32))
            merge_at(b, w, at);
    }
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, const uint8_t *p, size_t n,
               struct id_list *out)
{
    size_t count = 0;
    if (n == 0)
        return 0;
    if (n > INT32_MAX / 2 || reserve(w, n) != 0)
        return -1;
    struct bpe_symbol *s = w->symbols;
    for (size_t i = 0; i < n; i++) {
        if (b->byte_id[p[i]] < 0)
            continue;
        s[count].id = b->byte_id[p[i]];
        s[count].prev = (int32_t)count - 1;
        s[count].next = (int32_t)count + 1;
        count++;
    }
    if (count == 0)
        return 0;
    s[count - 1].next = -1;
    merge_all(b, w, count);
    for (int32_t i = 0; i >= 0; i = s[i].next)
        if (id_list_add(out, &s[i].id, 1) != 0)
            return -1;
    return 0;
}
