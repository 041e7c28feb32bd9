/* pools.h - the worker's rows of the table of pools (base/mem.h), made true when somebody looks.
 *
 * Nothing is counted on the token path: the KV pool and the host tier are asked of the system page
 * by page (mincore), so that huge pages and blocks not used yet are what they are. About 1 ms a GB.
 * The table is printed at start and on SIGUSR1; its sum is the process's RSS within 10 %, which is
 * printed below it. Thread: the step loop's (the engine's owner).
 */
#ifndef SLUICE_WORKER_POOLS_H
#define SLUICE_WORKER_POOLS_H

#include "worker/engine/engine.h"
#include "worker/seq_store.h"

#include <stdio.h>

void pools_update(const struct engine *eng, const struct seq_store *store);
void pools_print(const struct engine *eng, const struct seq_store *store, FILE *f);

#endif
