/* class_table.h - the classes of service: rank, objectives, whether they may be preempted.
 *
 * Pure data. Row 0 `realtime` and row 1 `batch` exist by default; up to CLASSES_MAX rows come from the
 * config later. Inside the machine only two ranks exist: 0 = real-time, 1 = below it.
 */
#ifndef SLUICE_SCHEDULER_CLASS_TABLE_H
#define SLUICE_SCHEDULER_CLASS_TABLE_H

#include "base/submission.h"

#include <stdbool.h>
#include <stdint.h>

struct class_row {
    char name[24];
    uint8_t rank;                  /* 0 = real-time, 1 = below */
    uint8_t order;                 /* smaller = more urgent, unique */
    bool preemptible;
    uint32_t ttft_ms, tpot_ms;     /* objectives; 0 = none */
    uint32_t floor_permille;       /* share kept under saturation */
    uint32_t longest_wait_s;       /* 0 = none */
    uint32_t age_s;                /* waiting that is worth one step of priority; 0 = CLASS_AGE_S */
};
#define CLASS_AGE_S 30

struct class_table { struct class_row rows[CLASSES_MAX]; uint32_t n; };

void class_table_default(struct class_table *t);
int class_table_find(const struct class_table *t, const char *name); /* index or -1 */

#endif
