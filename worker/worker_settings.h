/* worker_settings.h - a worker's configuration from its settings: pool size, threads, cores, link
 * keys.
 *
 * Order: worker_settings_apply after the model is open (the pool's size depends on it). The dial
 * function connects to workers-endpoint; its context is the struct link_door given, which must
 * outlive the worker.
 */
#ifndef SLUICE_WORKER_WORKER_SETTINGS_H
#define SLUICE_WORKER_WORKER_SETTINGS_H

#include "config/config.h"
#include "worker/worker.h"

struct link_door {
    char endpoint[SETTINGS_TEXT_MAX];
    struct transport_keys keys;
};

/* Fills all of *cfg and *door; pins the calling thread (and what it starts) to the worker's cores.
 */
int worker_settings_apply(struct worker_config *cfg, struct link_door *door,
                          const struct settings *s, const struct model *m, struct err *e);
/* Positions of the pool: as asked, or max-seqs x context within a quarter of `free_bytes`. -1: not
 * even one block. */
int64_t worker_settings_kv_tokens(const struct settings *s, const struct hparams *hp,
                                  uint64_t free_bytes);
/* Blocks of the host tier: as asked, or as many as the pool has within a quarter of `free_bytes`. */
uint32_t worker_settings_host_slots(const struct settings *s, const struct hparams *hp,
                                    uint32_t kv_tokens, uint64_t free_bytes);
/* Memory this process could still get: MemAvailable, or less where a control group says so. */
uint64_t worker_settings_free_bytes(void);

#endif
