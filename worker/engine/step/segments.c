#include "worker/engine/step/segments.h"

#include <string.h>

#define SLICE_PART 32          /* DESIGN section 4: a slice is at most this part of the model */
#define SLICES_WITHOUT_FILE 10 /* a model described by numbers only (simulator) */

static uint64_t tensors_bytes(const struct gguf *g)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++)
        sum += gguf_tensor_at(g, i)->bytes;
    return sum;
}

static uint32_t round_up(uint64_t n)
{
    return (uint32_t)((n + SEGMENT_ROWS - 1) / SEGMENT_ROWS * SEGMENT_ROWS);
}

uint32_t segments_slice_rows(const struct model *m)
{
    const struct gguf_tensor *head = NULL;
    if (m->gguf != NULL) {
        head = gguf_tensor_find(m->gguf, "output.weight");
        if (head == NULL)
            head = gguf_tensor_find(m->gguf, "token_embd.weight");
    }
    if (head == NULL || head->bytes == 0 || m->hp.n_vocab == 0)
        return round_up((m->hp.n_vocab + SLICES_WITHOUT_FILE - 1) / SLICES_WITHOUT_FILE);
    uint64_t rows = tensors_bytes(m->gguf) / SLICE_PART * m->hp.n_vocab / head->bytes;
    rows = rows / SEGMENT_ROWS * SEGMENT_ROWS;
    if (rows < SEGMENT_ROWS)
        rows = SEGMENT_ROWS;
    return rows < m->hp.n_vocab ? (uint32_t)rows : round_up(m->hp.n_vocab);
}

uint32_t segments_slices(const struct model *m)
{
    uint32_t rows = segments_slice_rows(m);
    return rows == 0 ? 1 : (m->hp.n_vocab + rows - 1) / rows;
}

struct hash128 segments_numerics_id(const struct model *m, const char *kv_type, const char *family)
{
    struct {
        struct hash128 tensors;
        char kv_type[16], family[32];
    } id;
    memset(&id, 0, sizeof id);
    if (m->gguf != NULL)
        id.tensors = gguf_tensors_hash(m->gguf);
    strncpy(id.kv_type, kv_type, sizeof id.kv_type - 1);
    strncpy(id.family, family, sizeof id.family - 1);
    return hash128(&id, sizeof id, 0);
}
