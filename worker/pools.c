/* pools.c - see pools.h. */
#include "worker/pools.h"

#include "base/mem.h"

void pools_update(const struct engine *eng, const struct seq_store *store) {
    const struct engine_limits *l = engine_limits(eng);
    size_t bytes = (size_t)l->n_blocks * l->block_stride;
    mem_pool_set("kv blocks", bytes, mem_resident(engine_block_bytes(eng, 0), bytes), bytes);
    bytes = (size_t)l->host_slots * l->block_stride;
    if (bytes > 0)
        mem_pool_set("kv host tier", bytes, mem_resident(engine_host_bytes(eng, 0), bytes), bytes);
    mem_pool_used("sequences", store->bytes);
    mem_pool_refresh();
}

void pools_print(const struct engine *eng, const struct seq_store *store, FILE *f) {
    pools_update(eng, store);
    mem_pool_print(f);
}
