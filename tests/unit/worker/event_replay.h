/* event_replay.h - reads a worker's event log back and runs a fresh worker_core by it.
 *
 * The log's actions must come out again, byte for byte: then the core's decisions follow from its
 * events alone, and the log says everything that decided.
 */
#ifndef SLUICE_TESTS_EVENT_REPLAY_H
#define SLUICE_TESTS_EVENT_REPLAY_H

#include <stdint.h>

/* Events replayed; fails the running test at the first difference. `text` is changed. */
uint32_t event_replay(char *text);

#endif
