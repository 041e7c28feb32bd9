/* event_log.h - worker_core's events and actions as JSON lines, for proofs and replay
 * (--event-log).
 *
 * First line: the core's configuration. Then one line an event, with all its fields, and one line
 * each of its actions; `ns` is the monotonic time the core was given, the same for an event and its
 * actions. Block ids are left out but in copies (they follow from the events). A submission's ids and
 * the root of its prefixes are in it when the worker has a prefix cache; the key of the root is not. Names of fields are those of
 * worker_core.h.
 *     {"ns":1,"event":"submit","gw":0,"sub":[7,1],"slot":0,"class":1,"rank":1,...}
 *     {"ns":1,"action":"step_submit","step":1,"rank":1,"spans":[[S],...]}
 *     {"ns":9,"event":"step_end","step":1,...,"tokens":[[slot,made,"finish",id],...]}
 * where S = slot,pos,n,score_from,score_to,sample.
 * The step loop copies a record into a ring and goes on; a thread at PRIORITY_LOG writes. A full ring
 * drops records, counts them, and the next line written says {"dropped":n}: a log with such a line
 * proves nothing. Thread: event_log_event / _actions from one thread. NULL as the log is legal
 * everywhere and does nothing.
 */
#ifndef SLUICE_WORKER_EVENT_LOG_H
#define SLUICE_WORKER_EVENT_LOG_H

#include "base/err.h"
#include "scheduler/worker_core.h"

struct event_log;

/* The file is made anew. `records` = length of the ring. */
int event_log_open(struct event_log **out, const char *path, const struct worker_core_config *core,
                   uint32_t records, struct err *e);
void event_log_close(struct event_log **log); /* writes what waits */
void event_log_event(struct event_log *log, const struct worker_event *ev, uint64_t now_ns);
void event_log_actions(struct event_log *log, const struct worker_action *a, uint32_t n,
                       uint64_t now_ns);

#endif
