/* link.c - see link.h.
 *
 * Order inside a round: receive (so that silence is judged after looking), time, tell the loop who
 * is up or down, send what the loop said, receive again (the transport's descriptor is
 * edge-triggered: after a send it must be read until it is empty).
 */
#include "worker/link.h"

#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define RETRY_NS (10 * MS) /* the step loop's ring was full */
#define RING_RESERVE 16    /* room kept for sessions up and down */

void link_init(struct link *l, const struct link_config *cfg, struct mail *mail) {
    assert(cfg->n_gateways >= 1 && cfg->n_gateways <= WORKER_GATEWAYS_MAX);
    memset(l, 0, sizeof(*l));
    l->cfg = *cfg;
    l->mail = mail;
    buf_init(&l->encoded, MSG_BYTES_MAX);
    atomic_init(&l->stop, false);
    for (uint32_t i = 0; i < cfg->n_gateways; i++)
        session_init(&l->peers[i].session, &l->cfg.session, i);
}

void link_deinit(struct link *l) {
    assert(!l->started);
    for (uint32_t i = 0; i < l->cfg.n_gateways; i++)
        session_deinit(&l->peers[i].session);
    buf_deinit(&l->encoded);
}

static bool ring_has_room(const struct link *l) {
    return ring_count(&l->mail->in) + RING_RESERVE < l->mail->in.mask + 1;
}

/* The loop must hear of every end before it hears of the next beginning. */
static void tell(struct link *l, uint32_t gw) {
    struct link_peer *p = &l->peers[gw];
    const struct session *s = &p->session;
    bool up = s->state == SESSION_UP;
    if (p->told_epoch != 0 && (!up || p->told_epoch != s->epoch)) {
        struct mail_in down = {.kind = MAIL_DOWN, .gw = gw, .epoch = p->told_epoch};
        if (mail_in_push(l->mail, &down) != 0)
            return;
        p->told_epoch = 0;
    }
    if (up && p->told_epoch == 0) {
        struct mail_in in = {.kind = MAIL_UP, .gw = gw, .epoch = s->epoch, .gateway = s->gateway};
        if (mail_in_push(l->mail, &in) == 0)
            p->told_epoch = s->epoch;
    }
}

static enum mail_in_kind in_kind(enum msg_kind k) {
    switch (k) {
    case MSG_SUBMIT: return MAIL_SUBMIT;
    case MSG_CANCEL: return MAIL_CANCEL;
    case MSG_GAP: return MAIL_GAP;
    case MSG_ACK: return MAIL_ACK;
    default: assert(k == MSG_DRAIN); return MAIL_DRAIN;
    }
}

static void pass_on(struct link *l, uint32_t gw, const struct msg *m, uint64_t now_ns) {
    struct session *s = &l->peers[gw].session;
    struct mail_in in = {.kind = in_kind(m->kind), .gw = gw, .epoch = s->epoch};
    if (m->kind == MSG_SUBMIT) {
        in.sub = m->u.submit.sub;
        in.from = m->u.submit.from;
        in.seq = seq_create(&m->u.submit, &l->cfg.limits);
        if (in.seq != NULL && in.seq->refused != NULL)
            log_warn("gateway %u: a submission is refused: %s", gw, in.seq->refused);
    } else if (m->kind != MSG_DRAIN) {
        in.sub = m->u.sub.sub;
        in.from = m->u.sub.from;
    }
    if (mail_in_push(l->mail, &in) != 0) {
        /* Room was checked: no memory. A SUBMIT must not vanish, so the session goes. */
        seq_destroy(&in.seq);
        session_end(s, now_ns, "no memory for a message to the step loop");
    }
}

static void receive(struct link *l, uint32_t gw, uint64_t now_ns) {
    struct link_peer *p = &l->peers[gw];
    struct msg m;
    p->session.blocked = false;
    for (;;) {
        tell(l, gw);
        bool behind = p->session.state == SESSION_UP && p->told_epoch != p->session.epoch;
        if (behind || !ring_has_room(l)) {
            p->session.blocked = true;
            return;
        }
        if (!session_recv(&p->session, now_ns, &m)) {
            if (p->session.state == SESSION_UP && p->told_epoch != p->session.epoch)
                continue;
            break;
        }
        pass_on(l, gw, &m, now_ns);
        msg_deinit(&m);
    }
    tell(l, gw);
}

static void stall_once(struct link *l, const struct mail_out *o) {
    if (l->cfg.stall_once_ns == 0 || l->stalled || o->n_records == 0)
        return;
    l->stalled = true;
    struct timespec t = {(time_t)(l->cfg.stall_once_ns / 1000000000ull),
                         (long)(l->cfg.stall_once_ns % 1000000000ull)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static void send_one(struct link *l, struct mail_out *o, uint64_t now_ns) {
    struct session *s = &l->peers[o->gw].session;
    struct msg m = {.kind = MSG_STATUS};
    if (s->state != SESSION_UP || s->epoch != o->epoch)
        return; /* of a session that is gone */
    if (o->kind == MAIL_TOKENS) {
        mail_out_seal(o);
        m.kind = MSG_TOKENS;
        m.u.tokens = (struct msg_tokens){.entries = o->entries,
                                         .n = o->n_entries,
                                         .accounts = o->accounts,
                                         .n_accounts = o->n_accounts,
                                         .tenants = o->tenants,
                                         .n_tenants = o->n_tenants,
                                         .tenants_all = o->tenants_all};
    } else if (o->kind == MAIL_SYNC) {
        m.kind = MSG_SYNC;
        m.u.sync = (struct msg_sync){.entries = o->sync, .n = o->n_sync};
    } else {
        m.u.status = o->status;
    }
    buf_clear(&l->encoded);
    msg_encode(&l->encoded, &m);
    if (l->encoded.bad)
        session_end(s, now_ns, "no memory for a message");
    else
        session_send(s, l->encoded.p, l->encoded.len, now_ns);
    stall_once(l, o);
}

static void send_all(struct link *l, uint64_t now_ns) {
    struct mail_out *o;
    uint32_t cut = mail_take_cut(l->mail);
    for (uint32_t i = 0; cut != 0 && i < l->cfg.n_gateways; i++)
        if ((cut >> i & 1) != 0)
            session_end(&l->peers[i].session, now_ns, "the step loop could not say something");
    while ((o = mail_out_pop(l->mail)) != NULL) {
        assert(o->gw < l->cfg.n_gateways);
        send_one(l, o, now_ns);
        mail_out_recycle(l->mail, &o);
    }
}

uint64_t link_turn(struct link *l, uint64_t now_ns) {
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < l->cfg.n_gateways; i++) {
        receive(l, i, now_ns);
        session_turn(&l->peers[i].session, now_ns);
    }
    send_all(l, now_ns);
    for (uint32_t i = 0; i < l->cfg.n_gateways; i++) {
        receive(l, i, now_ns);
        uint64_t at = session_next_ns(&l->peers[i].session, now_ns);
        if (l->peers[i].session.blocked && at > now_ns + RETRY_NS)
            at = now_ns + RETRY_NS;
        next = at < next ? at : next;
    }
    return next;
}

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void wait_until(struct link *l, uint64_t next_ns) {
    struct pollfd fds[1 + 2 * WORKER_GATEWAYS_MAX];
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = l->mail->out_fd, .events = POLLIN};
    for (uint32_t i = 0; i < l->cfg.n_gateways; i++) {
        const struct transport *t = l->peers[i].session.t;
        if (t == NULL || l->peers[i].session.blocked)
            continue;
        fds[n++] = (struct pollfd){.fd = transport_fd(t), .events = POLLIN};
        fds[n++] =
            (struct pollfd){.fd = transport_monitor_fd(t), .events = POLLIN}; /* -1 is ignored */
    }
    uint64_t now = clock_ns();
    uint64_t left = next_ns > now ? next_ns - now : 0;
    struct timespec t = {(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)};
    ppoll(fds, n, next_ns == UINT64_MAX ? NULL : &t, NULL);
    mail_clear(l->mail->out_fd);
}

static void say_bye(struct link *l) {
    send_all(l, clock_ns());
    for (uint32_t i = 0; i < l->cfg.n_gateways; i++) {
        struct session *s = &l->peers[i].session;
        if (s->state == SESSION_UP)
            session_send_msg(s, &(struct msg){.kind = MSG_BYE}, clock_ns());
        session_deinit(s);
    }
}

static void *run(void *arg) {
    struct link *l = arg;
    while (!atomic_load_explicit(&l->stop, memory_order_acquire))
        wait_until(l, link_turn(l, clock_ns()));
    say_bye(l);
    return NULL;
}

int link_start(struct link *l, struct err *e) {
    assert(!l->started);
    int rc = pthread_create(&l->thread, NULL, run, l);
    if (rc != 0)
        return err_set(e, ERR_NO_MEMORY, "thread of the link: %s", strerror(rc));
    l->started = true;
    return 0;
}

void link_stop(struct link *l) {
    if (!l->started)
        return;
    /* release: what the loop pushed before is seen by the link's last round */
    atomic_store_explicit(&l->stop, true, memory_order_release);
    mail_wake(l->mail->out_fd);
    pthread_join(l->thread, NULL);
    l->started = false;
}
