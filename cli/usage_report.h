/* usage_report.h - the days' usage as table, CSV or JSON, read day by day, so that three years of a thousand
 * tenants take the memory of one day.
 *
 * Several folders are several gateways: rows of one tenant and day are added up. What the workers counted (the
 * row USAGE_ENGINE) is compared with the tenants' sum only for one folder: gateways of one pool each show
 * the whole pool.
 *   useful     = prompt + output, each position once, exact
 *   engine     = the same as the workers counted it; difference = engine - useful - wasted-again - surplus: what
 *                was under way when a process died (at most one step a worker) or runs now
 * Thread: any. Failure: -1 and `e`; what was written until then stands.
 */
#ifndef SLUICE_CLI_USAGE_REPORT_H
#define SLUICE_CLI_USAGE_REPORT_H

#include "config/usage_file.h"

#include <stdio.h>

#define USAGE_FOLDERS_MAX 16

enum usage_form { USAGE_TABLE, USAGE_CSV, USAGE_JSON };

struct usage_report {
    const char *folders[USAGE_FOLDERS_MAX];
    int n_folders;
    const char *tenant;            /* NULL = all */
    int32_t from, to;
    enum usage_form form;
    FILE *out, *warn;
    /* filled */
    uint32_t n_rows, n_bad;        /* n_bad: files that could not be read, a line on `warn` each */
    struct usage_counts total, engine;
    bool has_engine;
};

int usage_report_run(struct usage_report *r, struct err *e);

#endif
