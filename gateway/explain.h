/* explain.h - where the time of requests that ended went: a ring of the last ones.
 *
 * A request puts its ledger here when its door closes it; asked for by its id, or by the label its client gave
 * (x-request-id; of several the last one). Only its own tenant finds it. Memory: sizeof(struct explain_entry) each.
 * Thread: the loop.
 */
#ifndef SLUICE_GATEWAY_EXPLAIN_H
#define SLUICE_GATEWAY_EXPLAIN_H

#include "base/buf.h"
#include "base/err.h"
#include "proto/message.h"
#include "scheduler/class_table.h"
#include "scheduler/ledger.h"

struct explain_entry {
    char id[48], label[129], tenant[MSG_NAME_MAX], worker[MSG_NAME_MAX];
    int64_t at_s;               /* when it came, unix time */
    uint64_t wall_ns, ttft_ns;  /* 0: there was no first token */
    uint64_t ns[LEDGER_CAUSES];
    uint32_t choices, n_prompt, n_out, cached, preemptions;
    enum err_code code;
    enum finish finish;
    uint8_t cls;
};

struct explain;

int explain_create(struct explain **out, uint32_t entries, struct err *e); /* 0 entries: *out = NULL */
void explain_destroy(struct explain **x);
void explain_put(struct explain *x, const struct explain_entry *e);
const struct explain_entry *explain_find(const struct explain *x, const char *tenant, const char *id);
void explain_json(struct buf *out, const struct explain_entry *e, const struct class_table *classes);
/* `text;dur=1.234, prefill;dur=...`: causes of 0.05 ms and more; for the Server-Timing header. */
void explain_server_timing(char *out, size_t cap, const uint64_t ns[LEDGER_CAUSES]);

#endif
