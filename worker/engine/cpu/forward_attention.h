/* forward_attention.h - the attention phase of a layer: which tile of query rows, KV head and splits
 * is computed when, over the thread pool.
 *
 * Many spans or a long one give enough tiles: a piece of query rows times a KV head each. Few rows
 * over a long context (one sequence decoding) would leave threads idle, so there a tile is some
 * splits of the context, and a second phase joins them; the bytes are the same (rule E2).
 * Q, K and V of all rows must be in the scratch, K and V of the layer in the store. Thread: the
 * runner's. No allocation, no failure.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_FORWARD_ATTENTION_H
#define SLUICE_WORKER_ENGINE_CPU_FORWARD_ATTENTION_H

#include "worker/engine/cpu/forward.h"

void forward_attention(const struct forward *f, const struct step_slot *s, uint32_t layer);

#endif
