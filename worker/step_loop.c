/* step_loop.c - see step_loop.h. */
#include "worker/step_loop.h"

#include "base/log.h"
#include "base/mem.h"
#include "worker/pools.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000ull
#define ALONE_NS (NS_PER_S / 2) /* draining without a gateway: nobody takes the answers */
#define COMPLETIONS 32
#define MAIL_BATCH 256 /* then the engine is looked at again */

enum { WANT_DRAIN = 1, WANT_STOP = 2 };

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

int step_loop_init(struct step_loop *l, const struct step_loop_config *cfg, struct err *e) {
    *l = (struct step_loop){.cfg = *cfg, .control_fd = -1};
    atomic_init(&l->wanted, 0);
    uint32_t n_actions = worker_core_actions_max(cfg->core_config);
    bool ok =
        seq_store_init(&l->store, cfg->core_config->max_slots) == 0
        && steps_init(&l->steps, cfg->engine, &l->store, cfg->vocab) == 0
        && answers_init(&l->answers, cfg->mail, cfg->core, &l->store, cfg->core_config->classes.n)
               == 0;
    l->actions = ok ? mem_array(n_actions, sizeof(*l->actions)) : NULL;
    if (l->actions == NULL) {
        step_loop_deinit(l);
        return err_set(e, ERR_NO_MEMORY, "no memory for the step loop");
    }
    l->control_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->control_fd < 0) {
        step_loop_deinit(l);
        return err_set(e, ERR_IO, "eventfd of the step loop: %s", strerror(errno));
    }
    l->started_ns = l->last_up_ns = clock_ns();
    return 0;
}

void step_loop_deinit(struct step_loop *l) {
    answers_deinit(&l->answers);
    steps_deinit(&l->steps);
    seq_store_deinit(&l->store);
    mem_free(l->actions);
    l->actions = NULL;
    if (l->control_fd >= 0)
        close(l->control_fd);
    l->control_fd = -1;
}

static void fail(struct step_loop *l, const char *what) {
    log_error("%s; the worker ends", what);
    l->end = LOOP_FAILED;
}

static uint32_t index_of_event(const struct worker_event *ev) {
    return ev->kind == WE_SUBMIT ? ev->submit.from : ev->kind == WE_GAP ? ev->from : 0;
}

static void copy(struct step_loop *l, const struct worker_action *a) {
    struct engine_copy c = {.id = a->copy.id,
                            .kind = a->copy.to_host ? ENGINE_COPY_BLOCK_TO_HOST
                                                    : ENGINE_COPY_HOST_TO_BLOCK,
                            .from = a->copy.to_host ? a->copy.block : a->copy.host,
                            .to = a->copy.to_host ? a->copy.host : a->copy.block,
                            .priority = a->copy.priority,
                            .after_step = a->copy.after_step};
    if (engine_copy_submit(l->cfg.engine, &c) != 0)
        fail(l, "the engine refuses a copy");
}

static void perform(struct step_loop *l, const struct worker_action *a,
                    const struct worker_event *ev) {
    switch (a->kind) {
    case WA_STEP_SUBMIT:
        if (steps_submit(&l->steps, &a->plan) != 0)
            fail(l, "the engine refuses a step");
        break;
    case WA_STEP_PARK:
        engine_step_park(l->cfg.engine,
                         a->step); /* -1: it has ended, its completion is on the way */
        break;
    case WA_STEP_CONTINUE:
        if (engine_step_continue(l->cfg.engine, a->step) != 0)
            fail(l, "the engine does not continue a parked step");
        break;
    case WA_SPAN_DROP:
        steps_drop_span(&l->steps, a->step, a->span);
        break;
    case WA_STEP_RELEASE: steps_release(&l->steps, a->step); break;
    case WA_COPY: copy(l, a); break;
    case WA_TOKENS: answers_tokens(&l->answers, a); break;
    case WA_FINISH: answers_finish(&l->answers, a, index_of_event(ev)); break;
    case WA_SYNC: answers_sync(&l->answers, a->gw); break;
    case WA_FREE: seq_store_free(&l->store, a->slot); break;
    case WA_EXIT: l->end = LOOP_DRAINED; break;
    }
}

static void feed(struct step_loop *l, const struct worker_event *ev) {
    uint64_t now = clock_ns();
    if (l->end != LOOP_RUNS)
        return;
    event_log_event(l->cfg.log, ev, now);
    uint32_t n = worker_core_handle(l->cfg.core, ev, now, l->actions);
    event_log_actions(l->cfg.log, l->actions, n, now);
    for (uint32_t i = 0; i < n && l->end != LOOP_FAILED; i++)
        perform(l, &l->actions[i], ev);
    answers_flush(&l->answers);
    const char *broken = l->cfg.audit ? worker_core_check(l->cfg.core) : NULL;
    if (broken != NULL)
        fail(l, broken);
}

/* ---- what the engine reports ---- */

static void completion(struct step_loop *l, const struct engine_completion *c) {
    struct worker_event ev = {.kind = WE_STEP_END};
    ev.step.step = c->id;
    ev.step.device_ns = c->device_ns;
    ev.step.segments_done = c->segments_done;
    ev.step.segment_at_request = c->segment_at_request;
    switch (c->kind) {
    case ENGINE_STEP_END:
        ev.step.failed = c->status != ENGINE_STEP_OK;
        ev.step.tokens = steps_collect(&l->steps, c->id, ev.step.failed, &ev.step.n_tokens);
        l->busy_ns += c->device_ns;
        break;
    case ENGINE_STEP_PARKED: ev.kind = WE_STEP_PARKED; break;
    case ENGINE_SPAN_DROPPED:
        ev.kind = WE_SPAN_DROPPED;
        ev.step.span = c->span;
        steps_span_dropped(&l->steps, c->id, c->span);
        break;
    case ENGINE_COPY_END:
        ev = (struct worker_event){.kind = WE_COPY_END};
        ev.copy.id = c->id;
        ev.copy.ok = c->status == ENGINE_STEP_OK;
        ev.copy.device_ns = c->device_ns;
        break;
    case ENGINE_DEVICE_LOST: fail(l, "the device is lost"); return;
    }
    feed(l, &ev);
}

static void take_completions(struct step_loop *l) {
    struct engine_completion done[COMPLETIONS];
    int n;
    while (l->end == LOOP_RUNS && (n = engine_poll(l->cfg.engine, done, COMPLETIONS)) > 0)
        for (int i = 0; i < n && l->end == LOOP_RUNS; i++)
            completion(l, &done[i]);
}

/* ---- what the link brings ---- */

static void describe(const struct step_loop *l, const struct seq *s, struct worker_event *ev) {
    uint32_t bt = l->cfg.core_config->pool.block_tokens;
    ev->submit.n_prompt = s->n_prompt;
    ev->submit.n_tokens = s->n_ids;
    ev->submit.max_total = s->rules.max_total;
    ev->submit.ttft_ms = s->ttft_ms;
    ev->submit.tpot_ms = s->tpot_ms;
    ev->submit.quota = s->kv_quota / bt + (s->kv_quota % bt != 0);
    ev->submit.root = s->root;
    ev->submit.host_choice = seq_host_choice(s);
    if (l->cfg.core_config->pool.prefix_cache)
        ev->submit.ids = s->ids;
}

static void submit(struct step_loop *l, struct mail_in *in) {
    struct worker_event ev = {.kind = WE_SUBMIT, .gw = in->gw, .sub = in->sub};
    const struct seq *s = in->seq;
    ev.submit.slot = WORKER_SLOT_NONE;
    ev.submit.from = ev.submit.n_tokens = ev.submit.n_prompt = ev.submit.max_total = in->from;
    if (s != NULL) {
        ev.submit.cls = s->cls;
        ev.submit.tag = s->tag;
        ev.submit.refused = s->refused != NULL;
    }
    if (s != NULL && s->refused == NULL)
        describe(l, s, &ev);
    if (s != NULL)
        ev.submit.slot = seq_store_put(&l->store, &in->seq);
    if (ev.submit.slot == WORKER_SLOT_NONE)
        ev.submit.ids = NULL; /* they are gone */
    else
        ev.submit.account = s->account;
    if (ev.submit.account == 0)
        ev.submit.quota = 0;
    feed(l, &ev);
}

static void drain(struct step_loop *l) {
    if (l->draining)
        return;
    log_info("draining: what runs may end, the rest is handed back");
    l->draining = true;
    l->drain_by_ns = clock_ns() + l->cfg.drain_timeout_ns;
    l->status_at_ns = 0;
    feed(l, &(struct worker_event){.kind = WE_DRAIN});
}

static void mail(struct step_loop *l, struct mail_in *in) {
    struct worker_event ev = {
        .gw = in->gw, .sub = in->sub, .from = in->from, .gateway = in->gateway};
    if (in->kind != MAIL_UP && in->epoch != l->answers.gw[in->gw].epoch)
        return; /* of a session whose end was told before */
    switch (in->kind) {
    case MAIL_UP:
        answers_up(&l->answers, in->gw, in->epoch);
        l->status_at_ns = 0;
        ev.kind = WE_SESSION_UP;
        break;
    case MAIL_DOWN:
        answers_down(&l->answers, in->gw);
        l->last_up_ns = clock_ns();
        ev.kind = WE_SESSION_DOWN;
        break;
    case MAIL_CANCEL: ev.kind = WE_CANCEL; break;
    case MAIL_GAP: ev.kind = WE_GAP; break;
    case MAIL_ACK: ev.kind = WE_ACK; break;
    case MAIL_SUBMIT: submit(l, in); return;
    case MAIL_DRAIN: drain(l); return;
    }
    feed(l, &ev);
}

static bool take_mail(struct step_loop *l) {
    struct mail_in *in;
    for (int i = 0; i < MAIL_BATCH && l->end == LOOP_RUNS; i++) {
        if ((in = mail_in_pop(l->cfg.mail)) == NULL)
            return false;
        mail(l, in);
        mail_in_destroy(&in);
    }
    return true;
}

/* ---- time, signals ---- */

static void stop_now(struct step_loop *l, const char *why) {
    if (l->end == LOOP_RUNS) {
        log_info("%s", why);
        l->end = LOOP_STOPPED;
    }
}

static void take_signals(struct step_loop *l) {
    struct signalfd_siginfo info;
    while (l->cfg.signal_fd >= 0
           && read(l->cfg.signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGUSR1) {
            pools_print(l->cfg.engine, &l->store, stderr);
            continue;
        }
        /* Counted apart: Ctrl-C sends SIGINT to the group and the supervisor a SIGTERM on top. */
        uint32_t *seen = &l->signals[info.ssi_signo == SIGINT];
        if (++*seen >= 2)
            stop_now(l, "second signal: the worker ends at once");
        else
            drain(l);
    }
}

static void take_supervisor(struct step_loop *l) {
    char c;
    ssize_t n = read(l->cfg.supervisor_fd, &c, 1);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        stop_now(l, "the supervisor is gone: the worker ends");
}

static void take_control(struct step_loop *l) {
    mail_clear(l->control_fd);
    uint32_t wanted = atomic_load_explicit(&l->wanted, memory_order_acquire);
    if ((wanted & WANT_STOP) != 0)
        stop_now(l, "asked to end");
    else if ((wanted & WANT_DRAIN) != 0)
        drain(l);
}

static void take_time(struct step_loop *l) {
    uint64_t now = clock_ns();
    if (worker_core_next_tick_ns(l->cfg.core, now) <= now)
        feed(l, &(struct worker_event){.kind = WE_TICK});
    bool up = answers_any_up(&l->answers);
    if (up && now >= l->status_at_ns) {
        answers_status(&l->answers, l->busy_ns, now - l->started_ns);
        l->status_at_ns = now + l->cfg.status_every_ns;
    }
    if (!l->draining)
        return;
    if (now >= l->drain_by_ns)
        stop_now(l, "drain timeout: the worker ends with sequences unfinished");
    else if (!up && now - l->last_up_ns >= ALONE_NS)
        stop_now(l, "draining without a gateway: the worker ends");
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t next_ns(const struct step_loop *l, uint64_t now) {
    uint64_t at = worker_core_next_tick_ns(l->cfg.core, now);
    bool up = answers_any_up(&l->answers);
    if (up)
        at = min_u64(at, l->status_at_ns);
    if (l->draining)
        at = min_u64(at, l->drain_by_ns);
    if (l->draining && !up)
        at = min_u64(at, l->last_up_ns + ALONE_NS);
    return at;
}

static void wait_for(struct step_loop *l, bool more) {
    struct pollfd fds[] = {{.fd = engine_fd(l->cfg.engine), .events = POLLIN},
                           {.fd = l->cfg.mail->in_fd, .events = POLLIN},
                           {.fd = l->control_fd, .events = POLLIN},
                           {.fd = l->cfg.signal_fd, .events = POLLIN},
                           {.fd = l->cfg.supervisor_fd, .events = POLLIN}};
    uint64_t now = clock_ns(), at = more ? now : next_ns(l, now);
    uint64_t left = at > now ? at - now : 0;
    struct timespec t = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
    if (ppoll(fds, sizeof(fds) / sizeof(fds[0]), at == UINT64_MAX ? NULL : &t, NULL) <= 0)
        return;
    if (fds[1].revents != 0)
        mail_clear(l->cfg.mail->in_fd);
    if (fds[2].revents != 0)
        take_control(l);
    if (fds[3].revents != 0)
        take_signals(l);
    if (fds[4].revents != 0)
        take_supervisor(l);
}

enum step_loop_end step_loop_run(struct step_loop *l) {
    while (l->end == LOOP_RUNS) {
        take_completions(l);
        bool more = take_mail(l);
        take_time(l);
        if (l->end == LOOP_RUNS)
            wait_for(l, more);
    }
    return l->end;
}

static void want(struct step_loop *l, uint32_t what) {
    atomic_fetch_or_explicit(&l->wanted, what, memory_order_release);
    mail_wake(l->control_fd);
}

void step_loop_drain(struct step_loop *l) {
    want(l, WANT_DRAIN);
}

void step_loop_stop(struct step_loop *l) {
    want(l, WANT_STOP);
}
