/* step_loop.h - the thread that owns worker_core and the engine: events in, actions performed.
 *
 * Waits for completions of the engine, mail of the link, the core's next tick, signals and the
 * supervisor's end; turns each into an event; performs the core's actions in order before the next
 * one. It decides nothing: which step, which victim, which finish at the door is worker_core's;
 * where an answer ends is the stopper's. It never blocks but in poll, reads the clock, and is the
 * engine's only caller.
 *
 * SIGUSR1 prints the table of pools. Ends: SIGTERM or SIGINT (or step_loop_drain) drains: what runs ends, the rest is handed back,
 * then LOOP_DRAINED; so does drain_timeout, or half a second without any session. The same signal a
 * second time, the end of the supervisor, or step_loop_stop: LOOP_STOPPED at once. A lost device or
 * a step the engine refuses: LOOP_FAILED. Thread: one; step_loop_drain and step_loop_stop from any.
 */
#ifndef SLUICE_WORKER_STEP_LOOP_H
#define SLUICE_WORKER_STEP_LOOP_H

#include "worker/answers.h"
#include "worker/event_log.h"
#include "worker/steps.h"

enum step_loop_end { LOOP_RUNS, LOOP_DRAINED, LOOP_STOPPED, LOOP_FAILED };

struct step_loop_config {
    struct engine *engine;
    struct worker_core *core;
    const struct worker_core_config *core_config;
    const struct vocab *vocab;
    struct mail *mail;
    struct event_log *log; /* NULL = none */
    int signal_fd;         /* signalfd, -1 = none */
    int supervisor_fd;     /* -1 = none */
    uint64_t drain_timeout_ns;
    uint64_t status_every_ns; /* 250 ms */
    bool audit;               /* run worker_core_check after every event (tests) */
};

struct step_loop {
    struct step_loop_config cfg;
    struct seq_store store;
    struct steps steps;
    struct answers answers;
    struct worker_action *actions;
    enum step_loop_end end;
    uint64_t started_ns, busy_ns, status_at_ns;
    bool draining;
    uint64_t drain_by_ns, last_up_ns;
    uint32_t signals[2]; /* SIGTERM, SIGINT seen */
    int control_fd;      /* eventfd of step_loop_drain and _stop */
    _Atomic uint32_t wanted;
};

int step_loop_init(struct step_loop *l, const struct step_loop_config *cfg, struct err *e);
void step_loop_deinit(struct step_loop *l);
enum step_loop_end step_loop_run(struct step_loop *l);
void step_loop_drain(struct step_loop *l);
void step_loop_stop(struct step_loop *l);

#endif
