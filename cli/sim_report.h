/* sim_report.h - what came out of a simulated run, as a table, as JSON, and as the difference of two.
 *
 * Only simulated quantities: the same run gives the same bytes on every machine. Times in ms; a time that never
 * came is `inf` in the table and null in JSON. Rows: all classes that had requests, then tenants where there are
 * several (the first SIM_REPORT_TENANTS by tokens; JSON has all).
 * Thread: any. Failure: -1 = no memory.
 */
#ifndef SLUICE_CLI_SIM_REPORT_H
#define SLUICE_CLI_SIM_REPORT_H

#include "base/buf.h"
#include "cli/sim_cluster.h"

#include <jansson.h>

#define SIM_REPORT_TENANTS 20

struct sim_report {
    const char *title; /* "as given", or the change */
    const struct sim_plan *plan;
    const struct sim_trace *trace;
    const struct sim_meter *meter;
    const struct sim_totals *totals;
};

int sim_report_table(struct buf *out, const struct sim_report *r);
json_t *sim_report_json(const struct sim_report *r);
/* One line a figure: base, then each other's and how it differs. */
int sim_report_compare(struct buf *out, const struct sim_report *const *list, uint32_t n);

#endif
