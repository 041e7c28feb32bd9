/* sim_hardware.h - what a simulated worker is: device, model and limits; from a file, or from a measured worker.
 *
 * Hardware file: one `key: value` a line (YAML), or one JSON object with the same keys; `#` comments. Keys:
 *   device   bandwidth_gb_s, tflops, launch_us, memory_gb (all needed), copy_gb_s (0 = no host tier), host_gb
 *   model    layers, hidden, heads, kv_heads, head_dim, ffn, vocab (all needed), weight_bytes (of one weight, 2),
 *            kv_bytes (of one number, 2)
 *   worker   max_seqs, max_slots, n_ctx, block_tokens, prefill_chunk, segments, kv_blocks (default: what memory_gb
 *            leaves beside the weights, less a tenth)
 * Arithmetic: a decode step moves the weights and its contexts' K and V (2 x layers x kv_heads x head_dim x kv_bytes a
 * position) through bandwidth; a prompt takes 2 flops a weight and position, and 4 x heads x head_dim x layers a
 * query x key; the larger of the two counts.
 *
 * Measured worker (sim_hardware_from_worker), one JSON object, either
 *   what `sluice bench engine --json` prints (its decode and prefill rates are fitted), or
 *   {"cost": [8 numbers]} or {"cost": {"one": ns, "first": ...}}: coefficients as in scheduler/step_cost.h and STATUS
 * and beside them any of the worker's keys above, copy_us (of a block) and host_blocks; and, as
 * `sluice bench mixed --save-hardware` writes them, "noise": [32 lists of ratios] and
 * "path": {"first_us": [65 quantiles], "end_us": [65]} (sim_live.h).
 *
 * Thread: any. Failure: -1, one sentence; with a line's number where there is one.
 */
#ifndef SLUICE_CLI_SIM_HARDWARE_H
#define SLUICE_CLI_SIM_HARDWARE_H

#include "base/err.h"
#include "cli/sim_live.h"
#include "cli/sim_model.h"
#include "scheduler/worker_core.h"

#define SIM_HARDWARE_FILE_MAX (1u << 20)

struct sim_hardware {
    char name[64];
    struct sim_model model;
    uint64_t copy_ns; /* a block, either way */
    uint32_t n_blocks, n_host; /* blocks that can be used */
    uint32_t block_tokens, max_seqs, max_slots, prefill_chunk, n_ctx, n_segments;
    struct sim_live live; /* of a measured worker; else nothing */
    double weights_bytes, kv_bytes; /* of the model; of a position. 0 = not known */
};

/* A stand-in for trying: 8B model in 16 bits on a 24 GB card of 300 GB/s and 120 TFLOP/s. */
void sim_hardware_default(struct sim_hardware *h);
int sim_hardware_read(struct sim_hardware *h, const char *path, struct err *e);
int sim_hardware_from_worker(struct sim_hardware *h, const char *path, struct err *e);
/* A file that sim_hardware_from_worker reads: LINEAR hardware with what a live run showed. */
int sim_hardware_write(const struct sim_hardware *h, const char *path, struct err *e);
/* The worker_core of it. */
void sim_hardware_core(const struct sim_hardware *h, const struct class_table *classes, bool prefix_cache,
                       struct worker_core_config *out);

#endif
