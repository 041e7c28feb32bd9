/* backend.h - what a backend implements below engine.h: one table of functions, same meanings.
 *
 * engine.c checks arguments, finds the backend by name, owns the descriptor's chaos layer, and
 * forwards. A backend owns its threads and its step slots. It signals completions by calling
 * notify (an eventfd write) after it made them visible to poll. All table functions are called by the owner thread.
 * Entries marked optional may be NULL.
 */
#ifndef SLUICE_WORKER_ENGINE_BACKEND_H
#define SLUICE_WORKER_ENGINE_BACKEND_H

#include "worker/engine/engine.h"

struct backend;                    /* each backend's own struct begins with whatever it likes */

struct backend_ops {
    const char *name;
    /* `fd` is an eventfd the backend writes to when completions wait; the engine owns it. */
    int (*open)(struct backend **out, const struct engine_config *cfg, int fd, struct err *e);
    void (*close)(struct backend **b);
    const struct engine_limits *(*limits)(const struct backend *b);
    int (*step_submit)(struct backend *b, const struct engine_step *step);
    int (*step_park)(struct backend *b, uint64_t step);
    int (*step_continue)(struct backend *b, uint64_t step);
    int (*step_drop_span)(struct backend *b, uint64_t step, uint32_t span);
    int (*copy_submit)(struct backend *b, const struct engine_copy *c);     /* optional; step/copier */
    int (*poll)(struct backend *b, struct engine_completion *out, int max);
    const struct sample_result *(*step_result)(const struct backend *b, uint64_t step, uint32_t row);
    const float *(*step_row_data)(const struct backend *b, uint64_t step, uint32_t row);
    void (*step_release)(struct backend *b, uint64_t step);
    const void *(*block_bytes)(const struct backend *b, uint32_t block);    /* optional */
    void *(*host_bytes)(const struct backend *b, uint32_t slot);            /* optional */
    uint64_t (*positions_computed)(const struct backend *b);
    int (*measure)(const struct engine_config *cfg, struct engine_rates *out, struct err *e); /* optional */
};

extern const struct backend_ops backend_cpu;  /* worker/engine/cpu */
extern const struct backend_ops backend_null; /* worker/engine/null */

#endif
