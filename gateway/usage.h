/* usage.h - who used what today: counts by tenant and UTC day, in memory, written behind the loop's back.
 *
 * Counts live in the day's table; each USAGE_WRITE_MS a copy goes to the state folder on a libuv worker
 * thread (config/usage_file.h), and once more at the end. A process killed loses at most what came since the
 * last write. At start the day's file is read back; one that is broken is put aside with a warning
 * and the day counts from 0. At midnight the old day is written a last time and a new table begins.
 *
 * Who calls what, all on the loop thread, and nowhere else (one call a cause, whatever the door):
 *   request.c, admitted (all its choices are in the dispatcher):      requests = 1
 *   request.c, refused by its tenant's limits (also: waited in vain):  refused_limits = 1
 *   request.c fail(), when its code's HTTP status is 500 or above:     refused_server = 1
 *   request.c deliver(): usage_mark_deliver, then usage_add with its counts; the same counts are what
 *       tenant_charge is given (prompt + cached, output): one place decides what was made for the first time
 *   request.c restart(): nothing; the mark stays, and what comes again becomes wasted_again
 *   link.c, records under a submission that is nobody's:               wasted_surplus = n
 *   link.c, with each TOKENS message: usage_engine with the worker's counters
 * A prompt counts in each choice that computes it; what a tenant pays counts it once a request (n > 1), so
 * token_budget_spent(prompt + cached, output) after a restart is never too little.
 * A client that goes away needs no call: what was delivered until then is counted (and charged) already.
 *
 * Limits: USAGE_ROWS_MAX tenants a day, later ones share the row USAGE_OTHER; USAGE_DAYS_MAX days on
 * disk. Memory about 0.6 MB a day's table, two tables. Failure of a write: a warning a minute, tried again.
 */
#ifndef SLUICE_GATEWAY_USAGE_H
#define SLUICE_GATEWAY_USAGE_H

#include "config/usage_file.h"
#include "proto/message.h"

#include <uv.h>

#define USAGE_WRITE_MS 5000

struct usage;

/* `dir`: the state folder, must exist. 0, or -1 and nothing is left. */
int usage_create(struct usage **out, uv_loop_t *loop, const char *dir, int64_t wall_s,
                 struct err *e);
void usage_destroy(struct usage **u); /* waits for a write, writes, closes its handles */

/* NULL (a gateway without a state folder, in tests): nothing. */
void usage_add(struct usage *u, int64_t wall_s, const char *tenant, const struct usage_counts *n);
/* Today's counts of a tenant: token_budget_spent at start. All 0 when there are none. */
void usage_find(const struct usage *u, const char *tenant, struct usage_counts *out);

/* How far one choice was ever delivered; zeroed with it, kept over restarts and resubmissions. */
struct usage_mark { uint32_t output; bool prompt; };
/* `n_out`: output ids after this delivery, `fresh` of them new in it. Only positions beyond the mark are
 * prompt, cached or output; the rest is wasted_again. Not called without new ids, but for an answer that ends
 * without any (scores of the prompt). */
void usage_mark_deliver(struct usage_mark *m, uint32_t n_prompt, uint32_t cached, uint32_t n_out,
                        uint32_t fresh, struct usage_counts *out);

/* Counters of one worker process, per class, since its start. The difference to those seen last of this
 * incarnation is booked to USAGE_ENGINE. `young`: the worker started after this gateway (its STATUS says a
 * shorter uptime), so its first counters count from 0; an older one's from what it first shows. With several
 * gateways on one pool each shows the whole pool's. */
void usage_engine(struct usage *u, int64_t wall_s, uint64_t incarnation, bool young,
                  const struct msg_account *accounts, uint32_t n);

/* What the timer does: begins a write, if something changed and none is under way. */
void usage_write(struct usage *u);
bool usage_writing(const struct usage *u);

#endif
