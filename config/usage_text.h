/* usage_text.h - what each tenant used on one UTC day, and the text of the file that keeps it.
 *
 *   sluice-usage 1 2026-12-01 seq 12 rows 2
 *   tenant<TAB>requests<TAB>...          the columns of USAGE_FIELDS, by name
 *   alice<TAB>3<TAB>...
 *   end 0123456789abcdef                 hash of every byte before this line
 *
 * A file cut anywhere, or with one byte changed, is refused as a whole: half a count is a wrong count. A column
 * that is missing is 0, one that this program does not know is skipped, so that old and new files can be read.
 * Two names are no tenants: USAGE_ENGINE holds the counters that workers showed (prompt, output,
 * recomputed, dropped), to be compared with the sum of all others; USAGE_OTHER what came when the table was full.
 * Thread: any. Ownership: usage_text_deinit frees the rows. Failure: -1 and `e`, nothing to free.
 */
#ifndef SLUICE_CONFIG_USAGE_TEXT_H
#define SLUICE_CONFIG_USAGE_TEXT_H

#include "base/buf.h"
#include "config/tenants_file.h"

#include <stdint.h>

#define USAGE_ROWS_MAX 4096
#define USAGE_TEXT_BYTES (4u << 20)
#define USAGE_ENGINE "*"
#define USAGE_OTHER "(other)"
#define USAGE_DAY_BYTES 11           /* "2026-12-01" and the NUL */

/* X(field, column, meaning). Tokens but for the first three; each position of an answer is counted once
 * in prompt, cached or output, whatever happened to its workers. */
#define USAGE_FIELDS(X)                                                                            \
    X(requests, "requests", "requests admitted")                                                   \
    X(refused_limits, "refused-limits", "refused for the tenant's own limits (429)")               \
    X(refused_server, "refused-server", "refused or failed for the server's reasons (5xx)")        \
    X(prompt, "prompt", "prompt tokens computed")                                                  \
    X(cached, "cached", "prompt tokens taken from the prefix cache")                               \
    X(output, "output", "tokens made and accepted")                                                \
    X(wasted_again, "wasted-again", "computed again from the prompt after a worker was lost")      \
    X(wasted_recomputed, "wasted-recomputed", "computed again after a preemption")                 \
    X(wasted_dropped, "wasted-dropped", "in steps that were dropped")                              \
    X(wasted_surplus, "wasted-surplus", "made after the end, or for a request that was gone")

struct usage_counts {
#define USAGE_MEMBER(field, column, meaning) uint64_t field;
    USAGE_FIELDS(USAGE_MEMBER)
#undef USAGE_MEMBER
};

struct usage_row { char tenant[TENANT_NAME_BYTES]; struct usage_counts counts; };

struct usage_day { int32_t day; uint64_t seq; struct usage_row *rows; uint32_t n; };

void usage_counts_add(struct usage_counts *to, const struct usage_counts *n); /* ends at 2^64 - 1 */
uint64_t usage_useful(const struct usage_counts *c);  /* prompt + output */
uint64_t usage_wasted(const struct usage_counts *c);
/* A tenant's name as config/tenants_file.h allows it, or one of the two above. */
bool usage_name_ok(const char *name);

void usage_text_print(struct buf *out, int32_t day, uint64_t seq, const struct usage_row *rows,
                      uint32_t n);
int usage_text_parse(struct usage_day *out, const char *text, size_t n_bytes, struct err *e);
void usage_text_deinit(struct usage_day *d);

/* Days since 1970-01-01, UTC; 0001-01-01 to 9999-12-31. */
int32_t usage_day_of(int64_t wall_s);
void usage_day_text(char out[USAGE_DAY_BYTES], int32_t day);
bool usage_day_parse(const char *text, int32_t *day); /* false: no such day */

#endif
