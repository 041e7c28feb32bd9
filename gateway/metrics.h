/* metrics.h - what /metrics exports; vLLM's names where they mean the same, `sluice_` for our own.
 *
 * Plain counters of the loop thread, no locks, no labels made of client text (cardinality is
 * bounded). Durations are monotonic differences in seconds.
 */
#ifndef SLUICE_GATEWAY_METRICS_H
#define SLUICE_GATEWAY_METRICS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/hist.h"
#include "base/submission.h"
#include "scheduler/ledger.h"

#include <stdint.h>

struct metrics_class {
    struct hist ttft, itl, tpot, e2e, queue, inference, prefill, decode; /* seconds */
    struct hist prompt_tokens, generation_tokens, max_tokens, n_choices;
    uint64_t prompt_tokens_total, generation_tokens_total;
    uint64_t finished[FINISH_COUNT];  /* choices by finish */
    uint64_t aborted;
    uint64_t ledger_ns[LEDGER_CAUSES]; /* of requests that were answered */
};

struct metrics {
    struct metrics_class cls[CLASSES_MAX];
    uint64_t http_requests[6];        /* by status class: [2] = 2xx ... */
    uint64_t errors[ERR_COUNT];       /* requests that failed, by code */
    uint64_t rpc_requests, link_bad_messages, link_messages_in, link_messages_out;
    uint64_t slow_readers_cut;
    uint64_t tenant_reloads, tenant_reload_errors;
};

/* One finished choice, all times monotonic ns (0 = never happened). */
struct metrics_choice {
    uint8_t cls;
    enum finish finish;
    uint64_t arrived_ns, sent_ns, first_ns, last_ns;
    uint32_t prompt_tokens, output_tokens, max_tokens;
};

struct gateway;
void metrics_init(struct metrics *m);
/* A request of `n` choices a prompt was admitted. */
void metrics_request(struct metrics *m, uint8_t cls, uint32_t n);
void metrics_itl(struct metrics *m, uint8_t cls, uint64_t gap_ns);
void metrics_choice_end(struct metrics *m, const struct metrics_choice *c);
void metrics_ledger(struct metrics *m, uint8_t cls, const uint64_t ns[LEDGER_CAUSES]);
void metrics_render(struct gateway *g, struct buf *out);  /* text/plain; version=0.0.4 */

#endif
