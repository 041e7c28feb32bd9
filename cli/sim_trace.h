/* sim_trace.h - a recorded list of requests: when each came, how long it is, whose it is.
 *
 * File: CSV without quoting. `#` lines, a header that names the columns in any order, rows sorted by time:
 *   arrival_ms, input_tokens, output_tokens   needed; the first with at most six decimals, the others whole, >= 1
 *   class      a name of the class table, or empty (then `unknown`)
 *   tenant     up to 63 bytes, or empty (then "-")
 *   session    not used
 *   block_tokens, prefix_ids   tokens of a prefix block, 0 = nothing known; ids "7 9-12", one for each block
 *              of the input: requests share exactly the leading blocks on which their lists agree
 * Other columns are not looked at.
 *
 * Order: sim_trace_read, then any of sim_trace_scale and sim_trace_speed, sim_trace_free. Thread: one owner.
 * Failure: -1 and one sentence with the line's number. Limits below.
 */
#ifndef SLUICE_CLI_SIM_TRACE_H
#define SLUICE_CLI_SIM_TRACE_H

#include "base/err.h"
#include "scheduler/class_table.h"

#include <stddef.h>
#include <stdint.h>

#define SIM_TRACE_ROWS_MAX 20000000u
#define SIM_TRACE_TENANTS_MAX 1024u
#define SIM_TRACE_NAME_MAX 64
#define SIM_TRACE_TOKENS_MAX 10000000u
#define SIM_TRACE_MS_MAX 31536000000ull /* a year */
#define SIM_TRACE_LINE_MAX (1u << 20)

struct sim_trace_row {
    uint64_t at_ns;
    uint32_t n_prompt, n_out;
    uint16_t tenant;
    uint8_t cls, pad;
    uint32_t block_tokens; /* 0 = no prefix information */
    uint32_t range_at, n_ranges;
    uint32_t copy; /* sim_trace_scale: which one of its row; its prefixes are its own */
};

struct sim_range {
    uint64_t from, to;
};

struct sim_trace {
    struct sim_trace_row *rows;
    uint32_t n, cap;
    struct sim_range *ranges;
    uint32_t n_ranges, ranges_cap;
    char (*tenants)[SIM_TRACE_NAME_MAX];
    uint32_t n_tenants;
};

struct sim_trace_options {
    const struct class_table *classes;
    uint8_t unknown;         /* class of rows that name none */
    uint32_t limit;          /* rows read at most; 0 = all */
    uint64_t duration_ns;    /* only what comes before; 0 = all */
};

int sim_trace_read(struct sim_trace *t, const char *path, const struct sim_trace_options *o,
                   struct err *e);
void sim_trace_free(struct sim_trace *t);

/* `factor` times as many requests in the same time: each row as often as that, at random (by seed) where it is no
 * whole number; copies come up to 5 s away from their row. -1: no memory, or too many rows. */
int sim_trace_scale(struct sim_trace *t, double factor, uint64_t seed, struct err *e);
/* Leaves out all rows of other classes; how many are left. */
uint32_t sim_trace_keep(struct sim_trace *t, uint8_t cls);
void sim_trace_speed(struct sim_trace *t, double factor); /* the same in 1 / factor of the time */

uint32_t sim_trace_longest(const struct sim_trace *t); /* prompt and output of one */
bool sim_trace_has_prefixes(const struct sim_trace *t);
/* The n_prompt ids of a row with prefix information. */
void sim_trace_ids(const struct sim_trace *t, const struct sim_trace_row *r, int32_t *ids);

#endif
