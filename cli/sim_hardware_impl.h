/* sim_hardware_impl.h - the keys of a hardware file as values. Internal to sim_hardware*.c. */
#ifndef SLUICE_CLI_SIM_HARDWARE_IMPL_H
#define SLUICE_CLI_SIM_HARDWARE_IMPL_H

#include "cli/sim_hardware.h"

#include <jansson.h>

enum sim_key_index {
    KEY_BANDWIDTH, KEY_TFLOPS, KEY_LAUNCH, KEY_MEMORY, KEY_COPY, KEY_HOST,
    KEY_LAYERS, KEY_HIDDEN, KEY_HEADS, KEY_KV_HEADS, KEY_HEAD_DIM, KEY_FFN, KEY_VOCAB,
    KEY_WEIGHT_BYTES, KEY_KV_BYTES,
    KEY_MAX_SEQS, KEY_MAX_SLOTS, KEY_N_CTX, KEY_BLOCK_TOKENS, KEY_CHUNK, KEY_SEGMENTS, KEY_KV_BLOCKS,
    KEY_COPY_US, KEY_HOST_BLOCKS,
    SIM_KEYS
};

struct sim_key {
    const char *name;
    double min, max;
    bool needed; /* by a hardware file */
};

struct sim_values {
    double v[SIM_KEYS];
    bool given[SIM_KEYS];
};

/* "noise" and "path" of a measured worker. */
int sim_live_read(struct sim_live *l, const json_t *j, struct err *e);
/* From a data sheet; and from a measured worker's JSON. */
int sim_roofline(struct sim_hardware *h, const struct sim_values *v, struct err *e);
int sim_measured(struct sim_hardware *h, const struct sim_values *v, const json_t *j, struct err *e);

#endif
