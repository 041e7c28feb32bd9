/* budget_file.h - what each tenant has used and reserved, where a death of this process leaves it.
 *
 * Why: a gateway killed and restarted must not give a tenant a second minute's budget. The file
 * DIR/budgets is mapped and shared: a record is written by plain stores, no system call on any path, and
 * what was stored is there after kill -9. After a power cut it may be older; a machine that starts again takes
 * longer than the minute it speaks of.
 *
 * Order: open -> restore for each tenant (also for one that a new tenants file brings) -> note after
 * every call that changed its budget: reserve, next, charge, settle -> close. What the process before had
 * reserved counts as used from now on for 60 s; what it had used, from its last note.
 * Records that are not as this program writes them are taken for empty, whatever they hold; amounts above
 * the tenant's limit are cut to it.
 *
 * Thread: the loop. Limits: TENANTS_LIVE_MAX records of 96 bytes, by tenant index. One process a folder:
 * a second one is refused (-1), and may run without.
 */
#ifndef SLUICE_GATEWAY_BUDGET_FILE_H
#define SLUICE_GATEWAY_BUDGET_FILE_H

#include "base/err.h"
#include "config/tenants_file.h"
#include "scheduler/token_budget.h"

#define BUDGET_FILE_RECORDS (2 * TENANTS_FILE_MAX)

struct budget_file;

int budget_file_open(struct budget_file **out, const char *dir, struct err *e);
void budget_file_close(struct budget_file **f);
/* All take NULL for a gateway without such a file: nothing happens. */
void budget_file_restore(const struct budget_file *f, const char *tenant, struct budget_time t,
                         struct token_budget *b);
void budget_file_note(struct budget_file *f, uint32_t index, const char *tenant,
                      struct budget_time t, struct token_budget *b);

#endif
