#include "scheduler/minute_window.h"

#include <assert.h>
#include <string.h>

#define CELLS MINUTE_WINDOW_CELLS

void minute_window_init(struct minute_window *w)
{
    memset(w, 0, sizeof *w);
}

/* When the cell of this number counts no more: its end, plus the window. */
static uint64_t cell_gone_ns(uint64_t number)
{
    return (number + 1) * MINUTE_WINDOW_CELL_NS + MINUTE_WINDOW_NS;
}

/* Forget the cells that are too old at `now_ns`, so that `last` is the cell of now. */
static void advance(struct minute_window *w, uint64_t now_ns)
{
    uint64_t number = now_ns / MINUTE_WINDOW_CELL_NS;
    if (number <= w->last) return;
    if (w->sum == 0) { /* nothing to forget: a tenant that comes once an hour walks no ring */
        w->last = number;
        return;
    }
    uint64_t skipped = number - w->last;
    for (uint64_t i = 1; i <= skipped && i <= CELLS; i++) {
        uint32_t *cell = &w->cells[(w->last + i) % CELLS];
        w->sum -= *cell;
        *cell = 0;
    }
    w->last = number;
}

static void add_at(struct minute_window *w, uint64_t number, uint64_t n)
{
    uint32_t *cell = &w->cells[number % CELLS];
    assert(n <= UINT32_MAX - *cell);
    *cell += (uint32_t)n;
    w->sum += n;
}

void minute_window_add(struct minute_window *w, uint64_t now_ns, uint64_t n)
{
    advance(w, now_ns);
    add_at(w, w->last, n);
}

void minute_window_add_past(struct minute_window *w, uint64_t now_ns, uint64_t age_ns, uint64_t n)
{
    advance(w, now_ns);
    uint64_t back = age_ns / MINUTE_WINDOW_CELL_NS;
    /* now - age lies in this cell or in the one before it: the younger one is the safe side */
    if (back < CELLS && back <= w->last) add_at(w, w->last - back, n);
}

void minute_window_take_back(struct minute_window *w, uint64_t n)
{
    assert(n <= w->sum);
    w->sum -= n;
    for (uint64_t i = 0; n > 0 && i < CELLS; i++) {
        uint32_t *cell = &w->cells[(w->last + CELLS - i) % CELLS];
        uint32_t part = n < *cell ? (uint32_t)n : *cell;
        *cell -= part;
        n -= part;
    }
}

uint64_t minute_window_sum(struct minute_window *w, uint64_t now_ns)
{
    advance(w, now_ns);
    return w->sum;
}

uint64_t minute_window_frees_ns(struct minute_window *w, uint64_t now_ns, uint64_t n)
{
    advance(w, now_ns);
    assert(n <= w->sum);
    if (n == 0) return now_ns;
    uint64_t number = w->last >= CELLS ? w->last - (CELLS - 1) : 0, freed = 0;
    while ((freed += w->cells[number % CELLS]) < n) number++;
    return cell_gone_ns(number);
}

uint64_t minute_window_empty_ns(struct minute_window *w, uint64_t now_ns)
{
    return minute_window_frees_ns(w, now_ns, minute_window_sum(w, now_ns));
}

bool minute_window_check(const struct minute_window *w)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < CELLS; i++) sum += w->cells[i];
    return sum == w->sum;
}
