/* sim_scale.c - what is done to a trace after it was read: more or fewer, faster; and its ids. */
#include "cli/sim_trace.h"

#include "base/hash.h"
#include "base/mem.h"
#include "cli/sim_device.h"

#include <stdlib.h>

#define JITTER_NS 5000000000ull

static double unit(uint64_t key, uint64_t k) {
    return (double)(rand_at(key, k) >> 11) * 0x1p-53;
}

static uint32_t copies_of(uint32_t row, double factor, uint64_t seed) {
    double whole = (double)(uint32_t)factor;
    return (uint32_t)factor + (unit(seed, 2ull * row) < factor - whole);
}

/* By time; of one time the row that was first, so that sorting is no matter of the library. */
static int by_time(const void *a, const void *b) {
    const struct sim_trace_row *x = a, *y = b;
    if (x->at_ns != y->at_ns)
        return x->at_ns < y->at_ns ? -1 : 1;
    if (x->copy != y->copy)
        return x->copy < y->copy ? -1 : 1;
    if (x->range_at != y->range_at)
        return x->range_at < y->range_at ? -1 : 1;
    if (x->n_prompt != y->n_prompt)
        return x->n_prompt < y->n_prompt ? -1 : 1;
    if (x->n_out != y->n_out)
        return x->n_out < y->n_out ? -1 : 1;
    return x->tenant < y->tenant ? -1 : x->tenant > y->tenant;
}

static void put_copies(const struct sim_trace *t, struct sim_trace_row *to, double factor,
                       uint64_t seed) {
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t n = copies_of(i, factor, seed);
        for (uint32_t k = 0; k < n; k++) {
            struct sim_trace_row *r = to++;
            *r = t->rows[i];
            r->copy = k;
            if (k == 0)
                continue;
            uint64_t shift = (uint64_t)(unit(seed ^ 0x5ca1eull, ((uint64_t)k << 32) + i) *
                                        (double)(2 * JITTER_NS));
            uint64_t at = r->at_ns + shift;
            r->at_ns = at > JITTER_NS ? at - JITTER_NS : 0;
        }
    }
}

int sim_trace_scale(struct sim_trace *t, double factor, uint64_t seed, struct err *e) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < t->n && n <= SIM_TRACE_ROWS_MAX; i++)
        n += copies_of(i, factor, seed);
    if (n == 0 || n > SIM_TRACE_ROWS_MAX)
        return err_set(e, ERR_BAD_FILE, "scaled by %g the trace has %s requests", factor,
                       n == 0 ? "no" : "too many");
    struct sim_trace_row *rows = mem_array(n, sizeof(*rows));
    if (rows == NULL)
        return err_set(e, ERR_NO_MEMORY, "out of memory for %llu requests", (unsigned long long)n);
    put_copies(t, rows, factor, seed);
    qsort(rows, n, sizeof(*rows), by_time);
    mem_free(t->rows);
    t->rows = rows;
    t->n = t->cap = (uint32_t)n;
    return 0;
}

void sim_trace_speed(struct sim_trace *t, double factor) {
    for (uint32_t i = 0; i < t->n; i++)
        t->rows[i].at_ns = (uint64_t)((double)t->rows[i].at_ns / factor);
}

uint32_t sim_trace_longest(const struct sim_trace *t) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t n = t->rows[i].n_prompt + t->rows[i].n_out;
        most = n > most ? n : most;
    }
    return most;
}

bool sim_trace_has_prefixes(const struct sim_trace *t) {
    return t->n_ranges > 0;
}

/* Each block's ids are a function of its id and copy, so two prompts share exactly the leading
 * blocks on which their lists agree. */
void sim_trace_ids(const struct sim_trace *t, const struct sim_trace_row *r, int32_t *ids) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < r->n_ranges; i++) {
        const struct sim_range *g = &t->ranges[r->range_at + i];
        for (uint64_t id = g->from; id <= g->to; id++) {
            uint64_t key = (id + 1) ^ (uint64_t)r->copy << 40;
            for (uint32_t k = 0; k < r->block_tokens && at < r->n_prompt; k++)
                ids[at++] = (int32_t)(rand_at(key, k) % SIM_VOCAB);
        }
    }
}
