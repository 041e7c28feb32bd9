/* bench_mixed_kill.c - `kill -9` of worker and gateway, once each, while both classes run.
 *
 * The driver sends again what a dead connection, or a refusal worth another try, left without an
 * answer; it goes on until every request of the phase, batch too, is answered. Lost: never
 * answered. Doubled: more than one whole answer, or one with more tokens than were asked for. A
 * kill waits for the mixed state: real-time and batch requests both in flight, and both processes
 * up (the worker has answered since the kill before). */
#include "cli/bench_mixed.h"
#include "cli/clock.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#define KILL_LEAST_S 5.0 /* of arrivals */
#define KILL_MOST_S 15.0
#define FIRST_S 1.0   /* before the first kill */
#define BETWEEN_S 1.0 /* served again before the second */
#define GIVE_UP_S 40.0
#define ARRIVALS_LEAST 24

struct killing {
    struct mixed *m;
    int step; /* 0: worker next, 1: worker is coming back, 2: gateway next, 3: coming back, 4: done
               */
    double killed_ms, back_ms;
    bool missed;
};

static uint32_t in_flight(const struct arm *a, bool batch) {
    uint32_t n = 0;
    for (uint32_t i = 0; !batch && i < a->plan->n; i++)
        n += a->rt[i].call.running;
    for (uint32_t i = 0; batch && i < a->n_batch; i++)
        n += a->batch[i]->call.running;
    return n;
}

/* The first whole answer of a request whose last try began after the kill; 0 = none yet. */
static double answered_since(const struct arm *a, double since_ms) {
    for (uint32_t i = 0; i < a->plan->n; i++)
        if (a->rt[i].answers > 0 && a->rt[i].call.sent_ms > since_ms)
            return a->rt[i].call.ended_ms;
    return 0;
}

static void kill_one(struct killing *k, struct arm *a, bool gateway) {
    struct bench_server *s = &k->m->server;
    if (bench_server_find(s) != 0 || in_flight(a, true) == 0 || in_flight(a, false) == 0)
        return;
    kill(gateway ? s->gateway : s->worker, SIGKILL);
    k->killed_ms = clock_ms();
    k->step++;
    mixed_progress(k->m, "kill -9 of the %s, %u real-time and %u batch requests in flight",
                   gateway ? "gateway" : "worker", in_flight(a, false), in_flight(a, true));
}

static void look(struct killing *k, struct arm *a, bool gateway) {
    double at = answered_since(a, k->killed_ms);
    if (at == 0)
        return;
    k->back_ms = clock_ms();
    k->m->kill.back_s[gateway] = (at - k->killed_ms) / 1e3;
    k->step++;
}

static int watch(struct arm *a, double at_s, struct err *e) {
    struct killing *k = a->ctx;
    (void)e;
    if (at_s > GIVE_UP_S)
        k->missed = k->step < 4;
    else if (k->step == 0 && at_s >= FIRST_S)
        kill_one(k, a, false);
    else if (k->step == 2 && clock_ms() - k->back_ms >= BETWEEN_S * 1e3)
        kill_one(k, a, true);
    else if (k->step == 1 || k->step == 3)
        look(k, a, k->step == 3);
    return 0;
}

static void account(struct mixed_kill *k, const struct arm_request *r) {
    bool whole = r->answer.whole;
    k->lost += !whole;
    k->doubled += r->answers > 1 || (whole && r->answer.tokens > r->ask.n_out);
    k->sent_again += r->sends > 0 ? r->sends - 1 : 0;
    k->cut += r->broken;
    k->refused += r->refused;
}

int mixed_kill_phase(struct mixed *m, struct err *e) {
    struct killing state = {.m = m};
    struct mixed_kill *k = &m->kill;
    double list_s = load_plan_length_s(&m->plan);
    list_s = list_s < KILL_LEAST_S ? KILL_LEAST_S : list_s > KILL_MOST_S ? KILL_MOST_S : list_s;
    uint32_t n = (uint32_t)ceil(m->plan.rate * list_s);
    n = n < ARRIVALS_LEAST ? ARRIVALS_LEAST : n;
    if (m->server.up == 0)
        return err_set(e, ERR_BAD_VALUE, "--kill needs a server of its own: no --url");
    if (load_plan_make(&m->kill_plan, m->o.seed ^ 0x1c11u, n, n / list_s, e) != 0)
        return -1;
    k->arm = (struct arm){.client = m->client,
                          .style = &m->style,
                          .plan = &m->kill_plan,
                          .worker = m->server.worker,
                          .keep = m->o.seats + 4,
                          .batch_in = m->o.batch_in,
                          .batch_out = m->o.batch_out,
                          .warm_s = m->o.warm_s < 1 ? m->o.warm_s : 1,
                          .seed = m->o.seed ^ 0x1c12u,
                          .length_seed = m->o.seed,
                          .again = true,
                          .watch = watch,
                          .ctx = &state,
                          .stop = m->o.stop};
    if (arm_run(&k->arm, e) != 0)
        return -1;
    k->realtime = k->arm.plan->n;
    k->batch = k->arm.n_batch;
    for (uint32_t i = 0; i < k->realtime; i++)
        account(k, &k->arm.rt[i]);
    for (uint32_t i = 0; i < k->batch; i++)
        account(k, k->arm.batch[i]);
    k->arm.ctx = NULL;
    k->arm.watch = NULL;
    if (state.step < 4)
        return err_set(e, ERR_TIMEOUT,
                       "the kill phase ended before both processes were killed and "
                       "back (step %d of 4)",
                       state.step);
    k->done = true;
    mixed_progress(m,
                   "kill phase: %u lost, %u doubled of %u requests; %u sent again, %u connections "
                   "cut, %u refusals; back after %.2f and %.2f s",
                   k->lost, k->doubled, k->realtime + k->batch, k->sent_again, k->cut, k->refused,
                   k->back_s[0], k->back_s[1]);
    return 0;
}
