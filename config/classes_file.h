/* classes_file.h - the class table as a YAML file: up to 8 rows under the key `classes`.
 *
 *   classes:
 *     - {name: realtime, rank: 0, order: 0, ttft-ms: 1000, tpot-ms: 100}
 *     - {name: batch, rank: 1, order: 1, preemptible: true, floor: 5, longest-wait-s: 1h}
 *
 * One file for the gateway and every worker (setting `classes`), read once at start. A line is what a
 * row of the scheduler's table is, field by field and by the same names; this room may not know that
 * table, so CLASS_LINES_COPY is used where both are known. Rows come back sorted by `order`, so that a
 * class's number is the same whatever the order of the file. Rules, each an error that names the class:
 * names are unique words of at most 23 bytes; orders are unique; a class of rank 0 comes before every
 * class of rank 1; at least one has rank 0; floors together are at most 100 %.
 * Thread: any. Ownership: plain storage. Failure: -1 and `e`, with the path in the sentence.
 */
#ifndef SLUICE_CONFIG_CLASSES_FILE_H
#define SLUICE_CONFIG_CLASSES_FILE_H

#include "base/err.h"

#include <stdint.h>

#define CLASS_LINES_MAX 8
#define CLASS_NAME_BYTES 24 /* with the NUL */

/* X(field, key, kind, default, min, max, unit, meaning): kinds as in settings.def */
#define CLASS_FIELDS(X)                                                                            \
    X(rank, "rank", INT, "1", 0, 1, "", "0 = real-time, 1 = below it")                             \
    X(order, "order", INT, "0", 0, 255, "", "smaller is more urgent, unique")                      \
    X(preemptible, "preemptible", BOOL, "false", 0, 0, "", "its sequences may give way")           \
    X(ttft_ms, "ttft-ms", INT, "0", 0, 86400000, "ms", "objective, time to first token; 0: none")  \
    X(tpot_ms, "tpot-ms", INT, "0", 0, 3600000, "ms", "objective, time per token; 0: none")        \
    X(floor, "floor", NUMBER, "0", 0, 100, "percent", "share kept while more urgent work waits")   \
    X(longest_wait_s, "longest-wait-s", SECONDS, "0", 0, 31536000, "s",                            \
      "after so long in a queue it goes first in its rank; 0: never")

struct class_line {
    char name[CLASS_NAME_BYTES];
    uint8_t rank, order;
    bool preemptible;
    uint32_t ttft_ms, tpot_ms, floor_permille, longest_wait_s;
};

struct classes_file { struct class_line rows[CLASS_LINES_MAX]; uint32_t n; };

int classes_file_load(struct classes_file *f, const char *path, struct err *e);
/* The two rows that exist without a file. */
void classes_file_default(struct classes_file *f);
/* Index of a name, -1 = no such class. */
int classes_file_find(const struct classes_file *f, const char *name);

/* Fills a class table `t` (rows, n) from a file's lines. */
#define CLASS_LINES_COPY(t, f)                                                                     \
    do {                                                                                           \
        (t)->n = (f)->n;                                                                           \
        for (uint32_t line_ = 0; line_ < (f)->n; line_++) {                                        \
            const struct class_line *from_ = &(f)->rows[line_];                                    \
            memcpy((t)->rows[line_].name, from_->name, sizeof from_->name);                        \
            (t)->rows[line_].rank = from_->rank;                                                   \
            (t)->rows[line_].order = from_->order;                                                 \
            (t)->rows[line_].preemptible = from_->preemptible;                                     \
            (t)->rows[line_].ttft_ms = from_->ttft_ms;                                             \
            (t)->rows[line_].tpot_ms = from_->tpot_ms;                                             \
            (t)->rows[line_].floor_permille = from_->floor_permille;                               \
            (t)->rows[line_].longest_wait_s = from_->longest_wait_s;                               \
        }                                                                                          \
    } while (0)

#endif
