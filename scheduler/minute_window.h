/* minute_window.h - how much of something happened in the last 60 seconds, never too little.
 *
 * Why: a limit a minute that holds at every instant. A bucket that refills lets twice its size through
 * in one minute; a list of every event has no bound. Here amounts are gathered in cells of 100 ms, and
 * a cell counts until the *youngest* instant it may hold is 60 s old. So the sum is at least what
 * happened in (now - 60 s, now], at every `now`, and at most what happened in the last 60.1 s: a
 * limit kept through it is never passed and can be used to 60/60.1 = 99.8 %.
 *
 * Time: ns of any clock that does not go back; an earlier time counts as the latest seen. Limits: the
 * sum of a window fits a cell (2^32 - 1; asserted). Memory: 2.4 KB, fixed. Cost: add and sum O(1) amortised,
 * minute_window_frees_ns O(cells). Thread: one owner. Pure.
 */
#ifndef SLUICE_SCHEDULER_MINUTE_WINDOW_H
#define SLUICE_SCHEDULER_MINUTE_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define MINUTE_WINDOW_NS 60000000000ull
#define MINUTE_WINDOW_CELL_NS 100000000ull
/* 600 whole ones and the one that is being filled. */
#define MINUTE_WINDOW_CELLS (MINUTE_WINDOW_NS / MINUTE_WINDOW_CELL_NS + 1)

struct minute_window {
    uint32_t cells[MINUTE_WINDOW_CELLS]; /* by cell number modulo their count */
    uint64_t last;                       /* number of the youngest cell */
    uint64_t sum;                        /* of all cells */
};

void minute_window_init(struct minute_window *w);
void minute_window_add(struct minute_window *w, uint64_t now_ns, uint64_t n);
/* The same for what happened `age_ns` ago; older than the window: nothing. */
void minute_window_add_past(struct minute_window *w, uint64_t now_ns, uint64_t age_ns, uint64_t n);
/* `n` of what was added last did not happen after all; n <= sum. */
void minute_window_take_back(struct minute_window *w, uint64_t n);
uint64_t minute_window_sum(struct minute_window *w, uint64_t now_ns);
/* The first instant at which at least `n` of what counts now counts no more; n <= sum. `now_ns` for 0. */
uint64_t minute_window_frees_ns(struct minute_window *w, uint64_t now_ns, uint64_t n);
/* The instant at which nothing of what counts now is left; `now_ns` when nothing is. */
uint64_t minute_window_empty_ns(struct minute_window *w, uint64_t now_ns);
bool minute_window_check(const struct minute_window *w); /* auditor */

#endif
