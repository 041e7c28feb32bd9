/* forward.h - the segments of a llama-family forward pass on a CPU: one call is one layer, or one
 * slice of the output head, over the live rows of a step slot.
 *
 * A layer is nine phases over the thread pool (norm, q/k/v, rope and store, attention, quantise,
 * output product, norm, gate/up to quantised inner rows, down product); phases cut work into tiles, and a value's
 * chain of float operations is fixed by ops.h whatever the tile, so results do not depend on rows,
 * chunks, threads or drops (rules E1, E2). K and V of all spans are stored before any attention of
 * the layer reads them (E1). Thread: the runner's. No allocation, no failure.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_FORWARD_H
#define SLUICE_WORKER_ENGINE_CPU_FORWARD_H

#include "worker/engine/cpu/sampler.h"
#include "worker/engine/cpu/step_slot.h"
#include "worker/engine/cpu/weights.h"

struct forward {
    const struct cpu_ops *ops;
    struct hparams hp;
    struct kv_shape kv;
    struct weights weights;
    struct pool *pool;
    uint8_t *blocks; /* the KV pool's bytes */
    struct scratch scratch;
    struct sampler *samplers; /* [thread] */
    uint32_t slice_rows;
    bool precise; /* engine_config.precise */
};

/* s->own is a struct slot_work. Layer 0 looks the ids up; the last one leaves the outputs' final
 * norm. */
void forward_layer(struct forward *f, struct step_slot *s, uint32_t layer);
/* Logits of the slice's rows; the last slice also makes the results. */
void forward_slice(struct forward *f, struct step_slot *s, uint32_t slice, bool last);

#endif
