/* stop_match.c - one Knuth-Morris-Pratt automaton a stop string, all fed byte by byte.
 *
 * fail[k] = length of the longest proper border of the first k bytes. A pattern that completed
 * stays at its full length and falls back through fail[n] with the next byte, so that a caller who
 * ignores a completion (min_tokens) can feed on and still find one that overlaps it.
 */
#include "model/stop_match.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct pattern {
    const uint8_t *p;
    const uint16_t *fail; /* n + 1 entries */
    uint16_t n;
};

struct stop_set {
    uint32_t n;
    struct pattern patterns[STOP_MAX];
};

static void fill_fail(const uint8_t *p, uint16_t n, uint16_t *fail) {
    fail[0] = 0;
    fail[1] = 0;
    uint16_t k = 0;
    for (uint16_t i = 1; i < n; i++) {
        while (k > 0 && p[k] != p[i])
            k = fail[k];
        if (p[k] == p[i])
            k++;
        fail[i + 1] = k;
    }
}

struct stop_set *stop_set_create(const struct stop_text *stops, uint32_t n) {
    assert(n <= STOP_MAX);
    size_t bytes = sizeof(struct stop_set);
    for (uint32_t i = 0; i < n; i++) {
        assert(stops[i].n >= 1 && stops[i].n <= STOP_BYTES_MAX);
        bytes += (stops[i].n + 1) * sizeof(uint16_t) + stops[i].n;
    }
    struct stop_set *s = mem_zalloc(bytes);
    if (s == NULL)
        return NULL;
    s->n = n;
    uint16_t *fail = (uint16_t *)(void *)(s + 1);
    for (uint32_t i = 0; i < n; i++) {
        s->patterns[i].fail = fail;
        fail += stops[i].n + 1;
    }
    uint8_t *text = (uint8_t *)fail;
    for (uint32_t i = 0; i < n; i++) {
        struct pattern *pat = &s->patterns[i];
        memcpy(text, stops[i].p, stops[i].n);
        pat->p = text;
        pat->n = (uint16_t)stops[i].n;
        fill_fail(pat->p, pat->n, (uint16_t *)pat->fail);
        text += stops[i].n;
    }
    return s;
}

void stop_set_destroy(struct stop_set **s) {
    mem_free(*s);
    *s = NULL;
}

/* Next length matched of one pattern; a completed one falls back first. */
static uint16_t advance(const struct pattern *pat, uint16_t k, uint8_t c) {
    if (k == pat->n)
        k = pat->fail[k];
    while (k > 0 && pat->p[k] != c)
        k = pat->fail[k];
    return pat->p[k] == c ? (uint16_t)(k + 1) : k;
}

bool stop_feed(const struct stop_set *s, struct stop_state *st, const uint8_t *p, size_t n,
               uint64_t *start, uint64_t *end) {
    if (s->n == 0) {
        st->fed += n;
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t longest = 0;
        st->fed++;
        for (uint32_t j = 0; j < s->n; j++) {
            const struct pattern *pat = &s->patterns[j];
            st->at[j] = advance(pat, st->at[j], p[i]);
            if (st->at[j] == pat->n && pat->n > longest)
                longest = pat->n;
        }
        if (longest != 0) {
            *end = st->fed;
            *start = st->fed - longest;
            return true;
        }
    }
    return false;
}

uint32_t stop_held(const struct stop_set *s, const struct stop_state *st) {
    uint32_t held = 0;
    for (uint32_t j = 0; j < s->n; j++) {
        const struct pattern *pat = &s->patterns[j];
        uint16_t k = st->at[j] == pat->n ? pat->fail[pat->n] : st->at[j];
        if (k > held)
            held = k;
    }
    return held;
}
