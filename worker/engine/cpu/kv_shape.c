#include "worker/engine/cpu/kv_shape.h"

const char *kv_type_name(enum engine_kv_type type) {
    return type == ENGINE_KV_INT8 ? "int8" : "f16";
}

int kv_shape_init(struct kv_shape *kv, const struct hparams *hp, enum engine_kv_type type,
                  struct err *e) {
    if (hp->head_dim == 0 || hp->head_dim % 8 != 0 || hp->head_dim > KV_HEAD_DIM_MAX)
        return err_set(e, ERR_BAD_FILE, "head dimension %u: must be a multiple of 8, at most %d",
                       hp->head_dim, KV_HEAD_DIM_MAX);
    if (hp->n_rot == 0 || hp->n_rot % 2 != 0 || hp->n_rot > hp->head_dim)
        return err_set(e, ERR_BAD_FILE,
                       "rotary dimension %u: must be even, at most the head dimension %u",
                       hp->n_rot, hp->head_dim);
    kv->type = type;
    kv->n_layers = hp->n_layers;
    kv->n_kv_heads = hp->n_kv_heads;
    kv->head_dim = hp->head_dim;
    kv->head_bytes = 2 * kv_half_bytes(kv);
    if (type == ENGINE_KV_INT8)
        kv->head_bytes += (size_t)2 * KV_BLOCK_TOKENS * sizeof(float);
    kv->block_bytes = kv->head_bytes * hp->n_kv_heads * hp->n_layers;
    kv->block_stride = (kv->block_bytes + 4095) / 4096 * 4096;
    return 0;
}
