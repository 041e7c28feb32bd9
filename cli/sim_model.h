/* sim_model.h - what a step costs on a simulated device.
 *
 * Two kinds. LINEAR: the coefficients of a measured worker (scheduler/step_cost.h), as its STATUS or a
 * bench give them. ROOFLINE: from a data sheet: launch + the larger of moving bytes (the weights
 * once, K and V of each span's context once, the head's weights when there are rows) and of
 * computing (matrices for each position, attention for each query x key, the head for each row).
 *
 * Pure arithmetic in doubles, in a fixed order: same shape, same ns. Thread: any, plain storage.
 */
#ifndef SLUICE_CLI_SIM_MODEL_H
#define SLUICE_CLI_SIM_MODEL_H

#include "scheduler/step_cost.h"

enum sim_model_kind { SIM_MODEL_LINEAR, SIM_MODEL_ROOFLINE };

struct sim_model {
    enum sim_model_kind kind;
    double coef[COST_FEATURES];              /* LINEAR; ns a unit, as in step_cost.h */
    double launch_ns, weights_ns, head_ns;   /* ROOFLINE: a step; its reads */
    double context_ns;                       /* reading K and V of one position */
    double token_ns, pair_ns, row_ns;        /* computing: a position, a query x key, a row */
};

struct sim_shape { /* zero it, then add spans */
    struct step_shape s;
    uint64_t context; /* positions of K and V that the spans read, each once */
};

void sim_shape_add(struct sim_shape *s, uint32_t pos, uint32_t n, uint32_t rows);
/* The same decode step one position on: every span of it has n = 1. */
void sim_shape_next(struct sim_shape *s);
uint64_t sim_model_ns(const struct sim_model *m, const struct sim_shape *s); /* >= 1 */
/* The planner's table for this device. LINEAR: the same; ROOFLINE: the sum instead of the larger of
 * the two, so a plan may be up to twice too careful, never too bold. */
void sim_model_cost(const struct sim_model *m, struct step_cost *out);

#endif
