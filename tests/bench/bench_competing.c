/* Two compute threads alone and beside one busy process of normal priority on each core, arms
 * alternating: what is left of tokens/s, and how far the slowest steps are from the median one.
 *
 * With a pause, both arms rest so long before each step. Beside a busy process a core is away for a
 * tick (4 ms) at a time anyhow; what a shared last-level cache loses meanwhile makes the next step
 * slower without anybody's taking the core. The pause gives the alone arm that loss too, so that
 * the ratio left is what scheduling costs. */
#include "tests/bench/bench_parts.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTEXT 128
#define THREADS 2
#define CORES_MAX 64
#define STEPS_MIN 300 /* of a case in an arm: a p99 of three steps */
#define STEPS_MAX 4096
#define N_CASES 3

static const uint32_t seqs_of[N_CASES] = {1, 16, 1}, new_of[N_CASES] = {1, 1, BENCH_PREFILL};
static const char *const names[N_CASES] = {"decode 1", "decode 16", "prefill 512"};
static const int steps_of[N_CASES] = {60, 30, 6}; /* of a round */

struct arm {
    double step_s[N_CASES][STEPS_MAX];
    int n[N_CASES];
};

static struct bench_rig rig;
static struct arm arms[2]; /* alone, beside the others */
static pid_t busy[CORES_MAX];
static int n_busy;

static void be_busy(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t n = 0;; n++)
        ;
}

/* One process for each core this one may use, stopped until wanted. */
static void start_busy(void)
{
    cpu_set_t mine;
    sched_getaffinity(0, sizeof mine, &mine);
    for (int cpu = 0; cpu < CPU_SETSIZE && n_busy < CORES_MAX; cpu++) {
        if (!CPU_ISSET(cpu, &mine))
            continue;
        pid_t pid = fork();
        if (pid == 0)
            be_busy(cpu);
        if (pid > 0) {
            kill(pid, SIGSTOP);
            busy[n_busy++] = pid;
        }
    }
}

static void signal_busy(int signal)
{
    for (int i = 0; i < n_busy; i++)
        kill(busy[i], signal);
}

static void run_arm(struct arm *a, int round, uint32_t pause_us)
{
    for (int c = 0; c < N_CASES; c++)
        for (int i = 0; i < steps_of[c]; i++) {
            if (pause_us > 0)
                usleep(pause_us);
            double s = bench_rig_step_s(&rig, seqs_of[c], new_of[c] > 1 ? 0 : CONTEXT, new_of[c]);
            if (round >= 0 && a->n[c] < STEPS_MAX)
                a->step_s[c][a->n[c]++] = s;
        }
}

static double tokens_s(const struct arm *a, int c)
{
    double s = 0;
    for (int i = 0; i < a->n[c]; i++)
        s += a->step_s[c][i];
    return a->n[c] * (double)seqs_of[c] * new_of[c] / s;
}

static void print_case(int c, bool json)
{
    struct arm *alone = &arms[0], *beside = &arms[1];
    double share = tokens_s(beside, c) / tokens_s(alone, c);
    double *v = beside->step_s[c], *w = alone->step_s[c];
    double p50 = bench_quantile(v, beside->n[c], 0.5), p99 = bench_quantile(v, beside->n[c], 0.99);
    double q50 = bench_quantile(w, alone->n[c], 0.5), q99 = bench_quantile(w, alone->n[c], 0.99);
    if (json)
        printf("%s\"%s\":{\"steps\":%d,\"tokens_s\":[%.1f,%.1f],\"ratio\":%.3f,\"p50_ms\":%.2f,"
               "\"p99_ms\":%.2f}", c ? "," : "", names[c], beside->n[c], tokens_s(alone, c),
               tokens_s(beside, c), share, p50 * 1e3, p99 * 1e3);
    else
        printf("%-12s %6d %9.1f %9.1f %6.2f %9.2f %7.2f %9.2f %7.2f %8.2f\n", names[c],
               beside->n[c], tokens_s(alone, c), tokens_s(beside, c), share, q50 * 1e3, q99 * 1e3,
               p50 * 1e3, p99 * 1e3, p99 / p50);
}

int bench_competing(const struct bench_options *o)
{
    int rounds = o->rounds;
    while (rounds * steps_of[1] < STEPS_MIN)
        rounds++;
    start_busy(); /* before any thread of ours */
    bench_rig_open(&rig, &o->model, o->kernel, THREADS, BENCH_PREFILL);
    for (int k = -1; k < rounds; k++)
        for (int half = 0; half < 2; half++) {
            int a = (k & 1) ^ half; /* A-B-B-A */
            signal_busy(a ? SIGCONT : SIGSTOP);
            usleep(20000); /* they run, or have stopped */
            run_arm(&arms[a], k, o->pause_us);
        }
    signal_busy(SIGKILL);
    for (int i = 0; i < n_busy; i++)
        waitpid(busy[i], NULL, 0);
    if (o->json)
        printf("{\"threads\":%d,\"busy\":%d,\"cases\":{", THREADS, n_busy);
    else
        printf("%d threads, %d busy processes\n%-12s %6s %9s %9s %6s %17s %17s %8s\n", THREADS,
               n_busy, "", "steps", "alone t/s", "beside", "ratio", "alone p50, p99 ms",
               "beside p50, p99", "p99/p50");
    for (int c = 0; c < N_CASES; c++)
        print_case(c, o->json);
    printf("%s", o->json ? "}}\n" : "");
    bench_rig_close(&rig);
    return 0;
}
