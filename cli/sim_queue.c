/* sim_queue.c - see sim_queue.h. */
#include "cli/sim_queue.h"

#include "base/mem.h"

#include <string.h>

static bool before(const struct sim_mail *a, const struct sim_mail *b) {
    if (a->at_ns != b->at_ns)
        return a->at_ns < b->at_ns;
    if (a->phase != b->phase)
        return a->phase < b->phase;
    return a->node != b->node ? a->node < b->node : a->order < b->order;
}

static void sift_up(struct sim_mail_heap *h, uint32_t at) {
    struct sim_mail m = h->list[at];
    while (at > 0 && before(&m, &h->list[(at - 1) / 2])) {
        h->list[at] = h->list[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    h->list[at] = m;
}

static void sift_down(struct sim_mail_heap *h, uint32_t at) {
    struct sim_mail m = h->list[at];
    for (;;) {
        uint32_t kid = 2 * at + 1;
        if (kid >= h->n)
            break;
        if (kid + 1 < h->n && before(&h->list[kid + 1], &h->list[kid]))
            kid++;
        if (!before(&h->list[kid], &m))
            break;
        h->list[at] = h->list[kid];
        at = kid;
    }
    h->list[at] = m;
}

void sim_mail_put(struct sim_mail_heap *h, const struct sim_mail *m) {
    if (h->n == h->cap) {
        uint32_t cap = h->cap == 0 ? 1024 : 2 * h->cap;
        struct sim_mail *p = mem_realloc(h->list, cap * sizeof(*p));
        if (p == NULL) {
            h->bad = true;
            return;
        }
        h->list = p;
        h->cap = cap;
    }
    h->list[h->n] = *m;
    h->list[h->n].order = h->next++;
    sift_up(h, h->n++);
}

bool sim_mail_take(struct sim_mail_heap *h, struct sim_mail *out) {
    if (h->n == 0)
        return false;
    *out = h->list[0];
    h->list[0] = h->list[--h->n];
    if (h->n > 0)
        sift_down(h, 0);
    return true;
}

void sim_mail_free(struct sim_mail_heap *h) {
    mem_free(h->list);
    memset(h, 0, sizeof(*h));
}

static bool ring_grow(struct sim_wire_ring *r) {
    uint32_t cap = r->cap == 0 ? 1024 : 2 * r->cap;
    struct sim_wire *list = mem_array(cap, sizeof(*list));
    uint64_t *at_ns = mem_array(cap, sizeof(*at_ns));
    if (list == NULL || at_ns == NULL) {
        mem_free(list);
        mem_free(at_ns);
        r->bad = true;
        return false;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        list[i] = r->list[(r->head + i) % r->cap];
        at_ns[i] = r->at_ns[(r->head + i) % r->cap];
    }
    mem_free(r->list);
    mem_free(r->at_ns);
    r->list = list;
    r->at_ns = at_ns;
    r->head = 0;
    r->cap = cap;
    return true;
}

void sim_wire_put(struct sim_wire_ring *r, const struct sim_wire *w, uint64_t at_ns) {
    if (r->n == r->cap && !ring_grow(r))
        return;
    uint32_t at = (r->head + r->n++) % r->cap;
    r->list[at] = *w;
    r->at_ns[at] = at_ns;
}

bool sim_wire_take(struct sim_wire_ring *r, struct sim_wire *out) {
    if (r->n == 0)
        return false;
    *out = r->list[r->head];
    r->head = (r->head + 1) % r->cap;
    r->n--;
    return true;
}

void sim_wire_free(struct sim_wire_ring *r) {
    mem_free(r->list);
    mem_free(r->at_ns);
    memset(r, 0, sizeof(*r));
}
