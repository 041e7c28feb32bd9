/* kv_shape.h - where the K and V of a position lie inside a KV block.
 *
 * A block holds KV_BLOCK_TOKENS positions of all layers, F16 or INT8, in one contiguous run:
 *
 *   [layer][kv_head][ K: head_dim rows of 16 positions | V: 16 positions of head_dim values ]
 *   INT8, behind these: [ 16 scales of K | 16 scales of V ], floats; value ~ scale * int8
 *
 * K lies transposed: a score's chain runs over head_dim with positions in the lanes, so no sum
 * across lanes is ever needed, and a load of 32 bytes is one value of 16 positions. V lies by
 * position: its chain runs over positions with values in the lanes. One (layer, kv_head) is a
 * contiguous run of head_bytes. A position's slot is position % 16. Bytes of positions not yet
 * written may hold anything.
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_KV_SHAPE_H
#define SLUICE_WORKER_ENGINE_CPU_KV_SHAPE_H

#include "base/err.h"
#include "model/hparams.h"
#include "worker/engine/engine.h"

#include <stddef.h>
#include <stdint.h>

#define KV_BLOCK_TOKENS 16
#define KV_HEAD_DIM_MAX 256 /* bounds the stack of the attention kernels */

struct kv_shape {
    enum engine_kv_type type;
    uint32_t n_layers, n_kv_heads, head_dim;
    size_t head_bytes;   /* K and V of one layer and head */
    size_t block_bytes;  /* all layers and heads */
    size_t block_stride; /* block_bytes rounded up to 4096 */
};

/* Refuses (ERR_BAD_FILE) a head_dim that is no multiple of 8 or above KV_HEAD_DIM_MAX, an odd
 * n_rot or one above head_dim. */
int kv_shape_init(struct kv_shape *kv, const struct hparams *hp, enum engine_kv_type type,
                  struct err *e);
/* "f16", "int8": part of the numerics id. */
const char *kv_type_name(enum engine_kv_type type);

/* First half of a block's (layer, kv_head) run: K as [head_dim][16]. */
static inline size_t kv_offset_k(const struct kv_shape *kv, uint32_t layer, uint32_t kv_head) {
    return ((size_t)layer * kv->n_kv_heads + kv_head) * kv->head_bytes;
}

/* Bytes of all K of a run; those of V are as many. */
static inline size_t kv_half_bytes(const struct kv_shape *kv) {
    size_t each = kv->type == ENGINE_KV_INT8 ? sizeof(int8_t) : sizeof(uint16_t);
    return KV_BLOCK_TOKENS * kv->head_dim * each;
}

/* Behind K: V as [16][head_dim]. */
static inline size_t kv_offset_v(const struct kv_shape *kv, uint32_t layer, uint32_t kv_head) {
    return kv_offset_k(kv, layer, kv_head) + kv_half_bytes(kv);
}

/* INT8, behind V: 16 scales of K, then 16 of V. */
static inline size_t kv_offset_scales(const struct kv_shape *kv, uint32_t layer, uint32_t kv_head) {
    return kv_offset_k(kv, layer, kv_head) + 2 * kv_half_bytes(kv);
}

#endif
