/* carve.h - cuts arrays out of one mapping: sized first, then placed by the same code.
 *
 * Why: workspace is fixed at open, and its size must be known before it is asked for. Run the
 * carving function once with `base` NULL (only `used` grows), map `used` bytes, run it again.
 * Pieces lie on 64 bytes. Pages that no step touches stay untouched, so a generous bound costs
 * address space only.
 */
#ifndef SLUICE_WORKER_ENGINE_STEP_CARVE_H
#define SLUICE_WORKER_ENGINE_STEP_CARVE_H

#include <stddef.h>
#include <stdint.h>

struct carve {
    uint8_t *base;
    size_t used;
};

static inline void *carve_take(struct carve *c, size_t count, size_t bytes)
{
    size_t at = c->used;
    c->used += (count * bytes + 63) & ~(size_t)63;
    return c->base ? c->base + at : NULL;
}

#endif
