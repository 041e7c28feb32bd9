/* event_text.h - one line of the event log as text. Pure. Appends to `out`, sticky failure there.
 */
#ifndef SLUICE_WORKER_EVENT_TEXT_H
#define SLUICE_WORKER_EVENT_TEXT_H

#include "base/buf.h"
#include "scheduler/worker_core.h"

void event_text_config(struct buf *out, const struct worker_core_config *c);
void event_text_event(struct buf *out, const struct worker_event *ev,
                      const struct class_table *classes, uint64_t ns);
void event_text_action(struct buf *out, const struct worker_action *a, uint64_t ns);

#endif
