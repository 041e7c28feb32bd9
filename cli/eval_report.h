/* eval_report.h - the results of `sluice eval` as a table for people and as one JSON object.
 * Thread: any; reads only.
 */
#ifndef SLUICE_CLI_EVAL_REPORT_H
#define SLUICE_CLI_EVAL_REPORT_H

#include "cli/eval_run.h"

#include <jansson.h>
#include <stdio.h>

/* "NAME (f16 KV)" */
void eval_report_side(const struct eval_side *s, char *out, size_t cap);
void eval_report_table(const struct eval_run *r, bool self, FILE *f);
/* A new reference; NULL = no memory. */
json_t *eval_report_json(const struct eval_run *r, bool self);

#endif
