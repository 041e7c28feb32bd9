/* bench_mixed.h - `sluice bench mixed`: does batch work disturb chat, and how much of the spare
 * capacity does it use?
 *
 * One measurement on one server: arms B A M M A B (B batch alone, A real-time alone, M both), every
 * real-time arm replaying one list of arrivals with fresh ids; then, if asked, a phase with
 * `kill -9` of each process; then every answer of the mixed arms against the same request alone.
 *
 *   isolation  mixed / alone for p50, mean and p99 of time to first token and of each gap
 *   U          busy share of the worker in the A arms
 *   harvest    batch tokens/s in M / (batch tokens/s in B x (1 - U)), prompt and output
 *
 * Parts: bench_mixed_plan (what is asked), _arm (one phase), _stats (figures), _check (what must
 * hold), _verify (answers), _kill, _engine (what the engine alone does), _report, _json, _html.
 * Thread: one. Failure: -1 and `e`; ERR_CANCELLED = interrupted.
 */
#ifndef SLUICE_CLI_BENCH_MIXED_H
#define SLUICE_CLI_BENCH_MIXED_H

#include "cli/bench_mixed_arm.h"
#include "cli/bench_stats.h"

#define MIXED_RUNS_MAX 3
#define MIXED_CHECKS_MAX 24
#define MIXED_CURVE 101
#define MIXED_CLAIM_REQUESTS 2000 /* an arm, for the promise of 5 % at p99 */

enum mixed_arm_index { MIXED_B1, MIXED_A1, MIXED_M1, MIXED_M2, MIXED_A2, MIXED_B2, MIXED_ARMS };
enum mixed_busy { MIXED_BUSY_CPU, MIXED_BUSY_STEPS, MIXED_BUSY_SEEN };
enum mixed_what { MIXED_TTFT, MIXED_GAP, MIXED_E2E, MIXED_WHATS };

struct mixed_options {
    const char *model, *url, *key, *name, *trace, *save_trace, *save_hardware, *engine, *html, *batch_tier;
    const char *const *up_flags; /* further flags of `sluice up`, after -- */
    uint32_t n_up_flags, requests, seats, keep, batch_in, batch_out, threads, verify, runs, id_low,
        id_high;
    double rate, target, seconds, warm_s, slo_ttft_ms, slo_gap_ms;
    uint64_t seed;
    pid_t worker_pid;
    bool kill, words, quiet, as_recorded, simulate;
    const bool *stop;
};

/* One arm in figures; waits in ms. */
struct mixed_row {
    const char *name;
    double wall_s, busy, late_p99_ms, batch_tok_s, batch_out_tok_s, streams;
    double waits[MIXED_WHATS][STATS_KINDS];
    uint32_t arrivals, answered, refused, broken, batch_done, batch_refused, shortest;
};

enum mixed_state { MIXED_HELD, MIXED_MISSED, MIXED_NOT_CHECKED };
struct mixed_check {
    bool promise; /* else: a condition without which the run proves nothing */
    enum mixed_state state;
    const char *name;
    char text[160]; /* the figure and its bar, or why it was not checked */
};

struct mixed_counts { /* n of n */
    uint32_t compared, same, unanswered;
};

/* What the engine alone does, tokens/s; 0 = not measured. */
struct mixed_engine {
    double rt_prefill, rt_decode[4]; /* of widths 1, 2, 4, 8 */
    double batch_prefill, batch_decode;
    uint32_t batch_width;
};

struct mixed_run {
    struct arm arms[MIXED_ARMS];
    struct mixed_row rows[MIXED_ARMS];
    struct stats_ratio ratios[MIXED_WHATS][STATS_KINDS]; /* ms */
    double u, u_engine;
    struct stats_ratio harvest, harvest_out;
    double batch_alone, batch_mixed; /* tokens/s */
    struct stats_ratio attained[2];  /* alone, mixed: share within the objectives */
    double goodput[2];               /* requests/s within them */
    struct bench_counters mixed;     /* differences over both M arms */
    struct mixed_counts rt, batch;
    struct mixed_engine engine;
    double curves[MIXED_WHATS][2][MIXED_CURVE]; /* quantiles, ms; [1] mixed */
    struct mixed_check checks[MIXED_CHECKS_MAX];
    uint32_t n_checks;
    bool valid, held; /* every condition; every promise */
};

struct mixed_kill {
    bool done;
    struct arm arm;
    uint32_t realtime, batch, lost, doubled, sent_again, cut, refused;
    double back_s[2]; /* worker, gateway: from the kill to the next whole answer */
    struct mixed_counts answers;
};

/* The first run's arms in the simulator (bench_mixed_sim.c); [0] alone, [1] mixed; [0] first token, [1] finish. */
#define MIXED_SIM_QUANTILES 3 /* p50, p90, p99 */
struct mixed_sim_row {
    double live[MIXED_SIM_QUANTILES], sim[MIXED_SIM_QUANTILES]; /* ms, both arms together */
    double spread[MIXED_SIM_QUANTILES]; /* how far the two live arms are apart, as a part of the smaller */
};
struct mixed_sim {
    char log[64]; /* the worker's event log; "" = none */
    bool done;
    uint32_t n_steps;
    double error, path_ms[2];
    struct mixed_sim_row rows[2][2];
};

struct mixed {
    struct mixed_options o;
    struct bench_server server;
    struct http_client *client;
    struct ask_style style;
    struct load_plan plan, kill_plan;
    enum mixed_busy busy_by;
    double idle_busy; /* < 0 = not measured */
    struct mixed_run runs[MIXED_RUNS_MAX];
    uint32_t n_runs;
    struct mixed_kill kill;
    struct mixed_sim sim;
    char model[256], engine_note[160];
    uint32_t kv_tokens;
    double began_ms, took_s;
};

/* The whole measurement; figures are in `m` afterwards, also after mixed_deinit's parts: call that
 * last. */
int mixed_measure(struct mixed *m, struct err *e);
void mixed_deinit(struct mixed *m);

/* ---- parts, in order of use */

/* Flags of `sluice up`; `alone`: for the comparison, all cores and room for everything. */
int mixed_server_start(struct mixed *m, bool alone, struct err *e);
void mixed_server_stop(struct mixed *m);
double mixed_busy(const struct mixed *m, const struct arm *a);
/* Figures of the six arms of a run. */
int mixed_figures(struct mixed *m, struct mixed_run *r, struct err *e);
int mixed_kill_phase(struct mixed *m, struct err *e);
/* `sluice bench engine` as a process on the worker's core. -1: engine_note says why it is missing.
 */
int mixed_engine_measure(struct mixed *m, struct mixed_run *r);
/* Its cost of the A arms' requests / their wall time. */
double mixed_engine_busy(const struct mixed_run *r);
int mixed_verify(struct mixed *m, struct err *e);
/* --simulate, --save-hardware: a log for the worker before it starts; what it says once it has ended. Needs the answers
 * to be read, and no `--kill` (another worker would begin in the log). */
int mixed_sim_prepare(struct mixed *m, struct err *e);
int mixed_simulate(struct mixed *m, struct err *e);
void mixed_sim_cleanup(struct mixed *m);
/* The mixed arm as it was sent, both classes, over what the calibration wrote. */
int mixed_sim_save_trace(const struct mixed *m, struct err *e);
void mixed_check_all(struct mixed *m, struct mixed_run *r);
void mixed_progress(const struct mixed *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
