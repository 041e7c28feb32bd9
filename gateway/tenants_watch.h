/* tenants_watch.h - follows the files of tenants and keys: a change of either, or SIGHUP, reads both again.
 *
 * The files are looked at twice a second and read on libuv's thread pool; the loop only swaps the table. A
 * bad file is one error in the log, and the table in force stays. Changes while a reading is under way cause
 * one more. Without a tenants file there is nothing to watch (SIGHUP is then ignored, with a word).
 * Thread: the loop. Order: after tenants_create, before tenants_destroy.
 */
#ifndef SLUICE_GATEWAY_TENANTS_WATCH_H
#define SLUICE_GATEWAY_TENANTS_WATCH_H

#include "gateway/tenants.h"

struct tenants_watch;

int tenants_watch_create(struct tenants_watch **out, struct gateway *g, struct err *e);
void tenants_watch_destroy(struct tenants_watch **w); /* waits for a reading under way */

#endif
