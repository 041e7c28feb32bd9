/* sim_fit.h - a measured worker from its event log (`--event-log`, worker/event_log.h): step model, scatter, limits,
 * and what each of its submissions waited.
 *
 * Model: the eight coefficients of scheduler/step_cost.h, none below 0, by least squares on the relative error over
 * all undisturbed steps (neither parked nor dropped from); steps far off count less (Huber), so that the model is
 * what a step usually takes and the scatter keeps the rest. A step's time is the worker's wall time, from the
 * moment its plan was made to the moment its end was heard: hand-over and planning are in it.
 * Order: sim_fit_read, look, sim_fit_deinit. Thread: one. Failure: -1 and a sentence.
 */
#ifndef SLUICE_CLI_SIM_FIT_H
#define SLUICE_CLI_SIM_FIT_H

#include "cli/sim_hardware.h"

struct sim_fit_request { /* as the worker saw it, in order of its coming; monotonic ns, 0 = never */
    uint64_t at_ns, first_ns, end_ns;
    uint8_t rank;
};

struct sim_fit {
    struct sim_hardware hardware; /* without a path: the worker knows none */
    struct sim_fit_request *requests;
    uint32_t n_requests, cap_requests;
    uint32_t n_steps; /* that the model rests on */
    double error;     /* mean |measured / modelled - 1| */
};

int sim_fit_read(struct sim_fit *f, const char *path, struct err *e);
void sim_fit_deinit(struct sim_fit *f);

#endif
