/* segments.h - facts about a model that every backend derives in the same way: how the output head
 * is cut, and the numerics id. Pure; segments_numerics_id reads the whole file once.
 */
#ifndef SLUICE_WORKER_ENGINE_STEP_SEGMENTS_H
#define SLUICE_WORKER_ENGINE_STEP_SEGMENTS_H

#include "base/hash.h"
#include "model/model.h"

#define SEGMENT_ROWS 16 /* head rows are cut at multiples of this (a packed row group) */

/* Vocabulary rows of one head slice: as many as fit in 1/32 of the model's tensor bytes, at least
 * SEGMENT_ROWS. The last slice may be shorter. */
uint32_t segments_slice_rows(const struct model *m);
uint32_t segments_slices(const struct model *m);

/* Rule E10: hash(tensors of the model, KV type, family). */
struct hash128 segments_numerics_id(const struct model *m, const char *kv_type, const char *family);

#endif
