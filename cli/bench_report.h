/* bench_report.h - the results of `sluice bench engine` as a table for people and as one JSON
 * object.
 * Thread: any; reads only.
 */
#ifndef SLUICE_CLI_BENCH_REPORT_H
#define SLUICE_CLI_BENCH_REPORT_H

#include "cli/bench_engine.h"

#include <jansson.h>
#include <stdio.h>

void bench_report_table(const struct bench_engine *b, FILE *f);
json_t *bench_report_json(const struct bench_engine *b); /* a new reference; NULL = no memory */

#endif
