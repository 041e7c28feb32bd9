#include "gateway/dispatch_priv.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

#define TICK_MAX_MS 100
#define ROUTE_ENTRIES 65536 /* 1.5 MB: the prefixes of about 10,000 prompts */

static void slot_give_back(struct dispatch *d, uint32_t slot)
{
    assert(d->n_free < d->max_slots);
    d->slots[slot] = NULL;
    d->free_slots[d->n_free++] = slot;
}

/* ---- actions */

static int append_ids(struct sequence *s, const struct msg_record *r, uint32_t index, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (index + i < s->n_prompt) continue; /* a prompt score, no new id */
        if (s->n_out == s->cap_out) {
            uint32_t cap = s->cap_out ? s->cap_out * 2 : 64;
            int32_t *grown = mem_realloc(s->out, cap * sizeof *grown);
            if (grown == NULL) return -1;
            s->out = grown;
            s->cap_out = cap;
        }
        s->out[s->n_out++] = r[i].id;
    }
    return 0;
}

/* At most two a slot: a SUBMIT that could not be sent, then a cancel or a release. */
static void later(struct dispatch *d, struct dispatch_later l)
{
    assert(d->n_later < 2 * d->max_slots);
    d->later[(d->later_head + d->n_later++) % (2 * d->max_slots)] = l;
}

/* Since it was sent last: what the worker booked, and the rest, which is the way there and back. */
static void book_worker(struct sequence *s, const struct msg_tokens_entry *t)
{
    uint64_t now = gateway_now_ns(), left = now - s->last_sent_ns;
    s->finished_ns = now;
    for (uint32_t i = 0; i < LEDGER_WORKER_N && i < t->n_booked; i++) {
        uint64_t n = t->booked_ns[i] < left ? t->booked_ns[i] : left;
        s->ledger[LEDGER_WORKER + i] += n;
        left -= n;
    }
    s->ledger[LEDGER_NETWORK] += left;
}

/* Before it was queued this time it was with a worker that did not finish it. */
static void book_queue(struct sequence *s, const struct gateway_action *a)
{
    uint64_t now = gateway_now_ns(), queued = 0;
    for (uint32_t i = 0; i < LEDGER_QUEUE_N; i++) {
        s->ledger[LEDGER_QUEUE + i] += a->queued_ns[i];
        queued += a->queued_ns[i];
    }
    if (s->last_sent_ns != 0 && now - s->last_sent_ns > queued)
        s->ledger[LEDGER_LOST] += now - s->last_sent_ns - queued;
    s->last_sent_ns = now;
}

/* It ends without a finish of a worker's: in the queue, or with a worker, whose report does not come. */
static void book_end(struct sequence *s, bool queued, const struct gateway_action *a)
{
    uint64_t now = gateway_now_ns();
    if (queued) book_queue(s, a);
    else if (s->last_sent_ns != 0) s->ledger[LEDGER_LEFT] += now - s->last_sent_ns;
    s->finished_ns = now;
}

static void perform_deliver(struct dispatch *d, const struct gateway_action *a)
{
    struct sequence *s = d->slots[a->slot];
    const struct msg_tokens_entry *t = d->entry;
    assert(t != NULL && a->skip + a->n <= t->n);
    if (a->finish != FINISH_NONE) {
        /* nothing more will come: the slot is released at once, a slow client costs no seat in the
         * queue */
        d->slots[a->slot] = NULL;
        later(d, (struct dispatch_later){.kind = GE_RELEASE, .slot = a->slot});
    }
    if (s == NULL) return;
    s->preemptions = t->preemptions;
    if (s->n_out == 0) /* moved later: what it takes then was computed for it */
        s->cached = t->cached < s->n_prompt ? t->cached : s->n_prompt - 1;
    if (a->finish != FINISH_NONE) {
        s->slot = UINT32_MAX;
        book_worker(s, t);
    }
    if (append_ids(s, t->records + a->skip, t->index + a->skip, a->n) != 0) {
        if (a->finish == FINISH_NONE) dispatch_leave(d, s);
        s->ops->fail(s, ERR_NO_MEMORY);
        return;
    }
    s->ops->deliver(s, t->index + a->skip, t->records + a->skip, a->n, t->logprobs, a->finish,
                    t->visible_bytes);
}

static void perform_fail(struct dispatch *d, const struct gateway_action *a)
{
    struct sequence *s = d->slots[a->slot];
    slot_give_back(d, a->slot);
    if (s == NULL) return; /* its owner left: this is the answer to the cancel */
    s->slot = UINT32_MAX;
    bool queued = false;
    for (uint32_t i = 0; i < LEDGER_QUEUE_N; i++) queued |= a->queued_ns[i] > 0;
    book_end(s, queued, a);
    s->ops->fail(s, a->code);
}

static void perform_submit(struct dispatch *d, const struct gateway_action *a)
{
    struct sequence *s = d->slots[a->slot];
    if (s) s->submit.tag = a->tag;
    if (s) book_queue(s, a);
    if (s && link_submit(d, a, s) == 0) {
        s->worker = d->sessions[a->worker].name;
        if (s->sent_ns == 0) s->sent_ns = gateway_now_ns();
        return;
    }
    /* full, gone, no memory, or its owner left in this very batch: back to the queue, a cancel
     * follows by itself */
    later(d, (struct dispatch_later){GE_SEND_FULL, a->slot, a->worker, a->sub});
}

static void perform_simple(struct dispatch *d, const struct gateway_action *a)
{
    struct msg m = {.u.sub = {a->sub, a->from}};
    m.kind = a->kind == GA_CANCEL ? MSG_CANCEL : a->kind == GA_GAP ? MSG_GAP : MSG_ACK;
    link_send(d, a->worker, &m); /* a lost one needs nothing: its cause repeats */
}

static void perform_hello_reply(struct dispatch *d, const struct gateway_action *a)
{
    struct link_session *s = &d->sessions[a->worker];
    struct msg m = {.kind = MSG_HELLO_REPLY};
    m.u.hello_reply.accepted = a->code == ERR_OK;
    m.u.hello_reply.version = a->version;
    m.u.hello_reply.code = a->code;
    snprintf(m.u.hello_reply.reason, sizeof m.u.hello_reply.reason, "%s",
             a->reason ? a->reason : "");
    snprintf(m.u.hello_reply.gateway, sizeof m.u.hello_reply.gateway, "%.*s", MSG_NAME_MAX - 1,
             d->g->settings->gateway_name);
    m.u.hello_reply.incarnation = d->g->incarnation;
    link_send(d, a->worker, &m);
    if (a->code != ERR_OK)
        log_warn("worker %s refused: %s", s->hello.name, a->reason ? a->reason : "?");
    else if (!s->accepted)
        log_info("worker %s joined (%s, %u seats, %u blocks)", s->hello.name, s->hello.family,
                 s->hello.max_seqs, s->hello.n_blocks);
    s->accepted = a->code == ERR_OK;
}

static void perform(struct dispatch *d, const struct gateway_action *a)
{
    struct sequence *s;
    switch (a->kind) {
    case GA_HELLO_REPLY: perform_hello_reply(d, a); break;
    case GA_SUBMIT: perform_submit(d, a); break;
    case GA_CANCEL:
    case GA_GAP:
    case GA_ACK: perform_simple(d, a); break;
    case GA_DELIVER: perform_deliver(d, a); break;
    case GA_FAIL: perform_fail(d, a); break;
    case GA_DRAINED: break; /* the process asks dispatch_idle */
    case GA_RESTART:
        s = d->slots[a->slot];
        if (s == NULL) break;
        s->n_out = 0;
        s->ops->restart(s);
        break;
    }
}

static void handle(struct dispatch *d, const struct gateway_event *ev)
{
    uint32_t n = gateway_core_handle(d->core, ev, gateway_now_ns(), d->actions);
    for (uint32_t i = 0; i < n; i++) perform(d, &d->actions[i]);
    /* a finished slot is free for new arrivals once the core released it */
    if (ev->kind == GE_RELEASE) slot_give_back(d, ev->slot);
}

static void rearm(struct dispatch *d);

void dispatch_event(struct dispatch *d, const struct gateway_event *ev)
{
    assert(!d->performing);
    d->performing = true;
    handle(d, ev);
    d->entry = NULL;
    while (d->n_later > 0) {
        struct dispatch_later l = d->later[d->later_head];
        d->later_head = (d->later_head + 1) % (2 * d->max_slots);
        d->n_later--;
        struct gateway_event next = {
            .kind = l.kind, .slot = l.slot, .worker = l.worker, .sub = l.sub};
        handle(d, &next);
    }
    d->performing = false;
    rearm(d);
}

/* ---- for requests */

int dispatch_too_large(const struct dispatch *d, const struct sequence *s, struct err *e)
{
    return err_set_param(
        e, ERR_POOL_TOO_SMALL, "prompt",
        "The prompt has %u tokens, but the KV pool of the largest worker holds %u, one to "
        "make included; shorten the prompt or give the worker more memory (--kv-tokens).",
        s->n_prompt, gateway_core_capacity(d->core));
}

static int refuse(const struct dispatch *d, const struct sequence *s, struct err *e)
{
    if (d->g->draining)
        return err_set(e, ERR_DRAINING, "The server is shutting down; try another one.");
    if (d->n_free == 0) {
        return err_set(e, ERR_QUEUE_FULL, "%u requests are waiting or running; try again later.",
                       d->max_slots);
    }
    if (!gateway_core_room(d->core, s->tenant)) {
        return err_set(e, ERR_QUEUE_FULL,
                       "This tenant's requests fill its share of the %u that may wait or run; try "
                       "again later.",
                       d->max_slots);
    }
    uint32_t capacity = gateway_core_capacity(d->core);
    uint32_t need = s->submit.max_total > s->n_prompt ? s->n_prompt + 1 : s->n_prompt;
    return capacity == 0 || need <= capacity ? 0 : dispatch_too_large(d, s, e);
}

/* The same request, sent again, has the same key: who, and all that is asked for but a seed made here. */
static struct hash128 ask_key(struct sequence *const *seqs, uint32_t n)
{
    const struct sequence *s = seqs[0];
    struct { uint32_t tenant, n, max_total, min_total; int32_t top_k; uint8_t cls, logprobs, n_top, pad;
             float temperature, top_p, min_p, repetition, presence, frequency; uint32_t n_stops, n_bias; } head;
    memset(&head, 0, sizeof head);
    head.tenant = s->tenant;
    head.n = n;
    head.max_total = s->submit.max_total;
    head.cls = s->submit.cls;
    head.temperature = s->submit.temperature;
    head.top_p = s->submit.top_p;
    head.min_total = s->submit.min_total;
    head.top_k = s->submit.top_k;
    head.logprobs = s->submit.logprobs;
    head.n_top = s->submit.n_top;
    head.min_p = s->submit.min_p;
    head.repetition = s->submit.repetition_penalty;
    head.presence = s->submit.presence_penalty;
    head.frequency = s->submit.frequency_penalty;
    head.n_stops = s->submit.n_stops;
    head.n_bias = s->submit.n_bias;
    struct { struct hash128 before, prompt; } both = {.before = hash128(&head, sizeof head, 0)};
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && seqs[i]->prompt == seqs[i - 1]->prompt) continue; /* choices of one prompt */
        both.prompt = hash128(seqs[i]->prompt, seqs[i]->n_prompt * sizeof *seqs[i]->prompt, 0);
        both.before = hash128(&both, sizeof both, 0);
    }
    return both.before;
}

int dispatch_admit(struct dispatch *d, struct sequence *const *seqs, uint32_t n, uint32_t *retry_ms,
                   struct err *e)
{
    struct admit_verdict v;
    const struct sequence *s = seqs[0];
    *retry_ms = 0;
    if (d->g->settings->max_promises == 0) return 0; /* admission is off: no key of the prompts either */
    struct gateway_ask ask = {.key = ask_key(seqs, n),
                              .tenant = s->tenant,
                              .n_seqs = n,
                              .hint_out = s->hint_out,
                              .cls = s->submit.cls,
                              .deadline_ns = s->deadline_ns};
    for (uint32_t i = 0; i < n; i++) {
        ask.n_prompt += seqs[i]->n_prompt;
        ask.max_out += seqs[i]->submit.max_total - seqs[i]->n_prompt;
    }
    switch (gateway_core_admit(d->core, &ask, gateway_now_ns(), &v)) {
    case ERR_OK: return 0;
    case ERR_DEADLINE:
        return err_set(e, ERR_DEADLINE, "The deadline would pass before this request can begin.");
    default: break;
    }
    if (v.retry_ns == 0) {
        return err_set(e, ERR_OVERLOADED,
                       "The server is overloaded and cannot say when it will have room; try another one.");
    }
    *retry_ms = (uint32_t)((v.retry_ns + 999999) / 1000000);
    return err_set(e, ERR_OVERLOADED,
                   "The first token would take about %.1f s. The same request sent again after %.1f s will be taken.",
                   (double)v.wait_ns / 1e9, *retry_ms / 1000.0);
}

int dispatch_arrive(struct dispatch *d, struct sequence *s, struct err *e)
{
    if (refuse(d, s, e) != 0) return -1;
    uint32_t capacity = gateway_core_capacity(d->core);
    if (capacity > 0) sequence_shorten(s, capacity); /* ends as `length` */
    struct gateway_event ev = {.kind = GE_ARRIVED};
    ev.slot = s->slot = d->free_slots[--d->n_free];
    d->slots[ev.slot] = s;
    s->arrived_ns = gateway_now_ns();
    ev.arrived.cls = s->submit.cls;
    ev.arrived.tag = ++d->arrivals;
    ev.arrived.tenant = s->tenant;
    ev.arrived.priority = s->priority;
    ev.arrived.hint_out = s->hint_out;
    ev.arrived.n_prompt = ev.arrived.n_ids = s->n_prompt;
    ev.arrived.from = s->from;
    ev.arrived.max_total = s->submit.max_total;
    ev.arrived.deadline_ns = s->deadline_ns;
    /* as the worker's cache is rooted: another tenant's, or another salt's, blocks are no use */
    uint64_t root = hash64(s->submit.tenant, strnlen(s->submit.tenant, sizeof s->submit.tenant), 0);
    if (s->submit.n_cache_salt > 0) root = hash64(s->submit.cache_salt, s->submit.n_cache_salt, root);
    if (s->from == s->n_prompt) route_keys_make(&ev.arrived.route, root, s->prompt, s->n_prompt);
    assert(!d->performing); /* arrivals come from the lanes, never from a callback of ours */
    dispatch_event(d, &ev);
    return 0;
}

void dispatch_tenant(struct dispatch *d, uint32_t tenant, uint32_t weight_permille,
                     uint32_t max_in_flight, uint32_t max_queued)
{
    struct gateway_event ev = {.kind = GE_TENANT};
    ev.tenant.index = tenant;
    ev.tenant.weight_permille = weight_permille;
    ev.tenant.max_in_flight = max_in_flight;
    ev.tenant.max_queued = max_queued;
    dispatch_event(d, &ev);
}

void dispatch_tenant_stats(const struct dispatch *d, uint32_t tenant,
                           struct gateway_tenant_stats *out)
{
    gateway_core_tenant_stats(d->core, tenant, out);
}

void dispatch_leave(struct dispatch *d, struct sequence *s)
{
    if (s->slot == UINT32_MAX) return;
    uint32_t slot = s->slot;
    assert(d->slots[slot] == s);
    struct gateway_action waited = {.kind = GA_FAIL};
    bool queued = gateway_core_waited(d->core, slot, gateway_now_ns(), waited.queued_ns);
    book_end(s, queued, &waited);
    s->slot = UINT32_MAX;
    d->slots[slot] = NULL;
    if (d->performing) {
        later(d, (struct dispatch_later){.kind = GE_CANCEL, .slot = slot});
        return;
    }
    struct gateway_event ev = {.kind = GE_CANCEL, .slot = slot};
    dispatch_event(d, &ev);
}

bool dispatch_ready(const struct dispatch *d)
{
    return gateway_core_capacity(d->core) > 0 && !d->g->draining;
}

const char *dispatch_endpoint(const struct dispatch *d)
{
    return transport_endpoint(d->listener);
}

static void fail_slots(struct dispatch *d, enum err_code code, bool sent_too)
{
    for (uint32_t i = 0; i < d->max_slots; i++) {
        struct sequence *s = d->slots[i];
        if (s == NULL || (s->sent_ns != 0 && !sent_too)) continue;
        dispatch_leave(d, s);
        s->ops->fail(s, code); /* may end its whole request, and others' slots with it */
    }
}

void dispatch_drain(struct dispatch *d)
{
    struct gateway_event ev = {.kind = GE_DRAIN};
    dispatch_event(d, &ev);
    fail_slots(d, ERR_DRAINING, false);
}

void dispatch_fail_all(struct dispatch *d, enum err_code code)
{
    fail_slots(d, code, true);
}

bool dispatch_idle(const struct dispatch *d)
{
    return d->n_free == d->max_slots;
}

void dispatch_stats(const struct dispatch *d, struct gateway_stats *out)
{
    gateway_core_stats(d->core, out);
}

void dispatch_worker_name(const struct dispatch *d, uint64_t worker, char *out)
{
    out[0] = '\0';
    for (uint32_t i = 0; i < GATEWAY_WORKERS_MAX; i++) {
        const struct link_session *s = &d->sessions[i];
        if (s->used && s->name == worker) snprintf(out, MSG_NAME_MAX, "%s", s->hello.name);
    }
}

void dispatch_workers(const struct dispatch *d, struct dispatch_workers *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < GATEWAY_WORKERS_MAX; i++) {
        const struct link_session *s = &d->sessions[i];
        if (!s->used || !s->accepted) continue;
        out->live++;
        out->blocks_total += s->status.blocks_total;
        out->blocks_free += s->status.blocks_free;
        out->blocks_cached += s->status.blocks_cached;
        out->cache_hits += s->status.cache_hits;
        out->cache_misses += s->status.cache_misses;
        out->swap_ins += s->status.swap_ins;
        out->recomputes += s->status.recomputes;
        out->evictions += s->status.evictions;
        out->preemptions += s->status.preemptions;
        out->parks += s->status.parks;
        out->drops += s->status.drops;
        out->steps += s->status.steps;
        out->busy_ns += s->status.busy_ns;
        out->block_tokens = s->hello.block_tokens;
        memcpy(out->family, s->hello.family, sizeof out->family);
        for (uint32_t c = 0; c < CLASSES_MAX; c++) {
            out->active += s->status.active[c];
            out->waiting += s->status.waiting[c];
        }
    }
}

/* ---- time */

static void on_timer(uv_timer_t *t)
{
    struct dispatch *d = t->data;
    struct gateway_event ev = {.kind = GE_TICK};
    d->ticked_ns = gateway_now_ns();
    link_receive(d);
    link_heartbeat(d, gateway_now_ns());
    dispatch_event(d, &ev);
    link_receive(d);
}

/* Once a turn, outside any caller's loop over its own lists: deliveries may end calls. */
static void on_prepare(uv_prepare_t *p)
{
    struct dispatch *d = p->data;
    if (d->sent) link_receive(d);
}

static void rearm(struct dispatch *d)
{
    uint64_t now = gateway_now_ns(), at = gateway_core_next_tick_ns(d->core, now), ms = TICK_MAX_MS;
    if (d->ticked_ns == 0) d->ticked_ns = now;
    uint64_t since_ms = (now - d->ticked_ns) / 1000000;
    ms = since_ms < ms ? ms - since_ms : 0;
    if (at != UINT64_MAX) {
        uint64_t wait = at > now ? (at - now) / 1000000 + 1 : 1;
        if (wait < ms) ms = wait;
    }
    if (!uv_is_closing((uv_handle_t *)&d->timer)) uv_timer_start(&d->timer, on_timer, ms, 0);
}

/* ---- life */

static int allocate(struct dispatch *d, const struct gateway_core_config *cfg)
{
    uint32_t n = cfg->max_slots;
    d->region_bytes = (gateway_core_bytes(cfg) + 4095) & ~(size_t)4095;
    d->region = mem_map(d->region_bytes);
    d->actions = mem_array(gateway_core_actions_max(cfg), sizeof *d->actions);
    d->slots = mem_array(n, sizeof *d->slots);
    d->free_slots = mem_array(n, sizeof *d->free_slots);
    d->later = mem_array(2 * (size_t)n, sizeof *d->later);
    if (!d->region || !d->actions || !d->slots || !d->free_slots || !d->later) return -1;
    d->max_slots = n;
    for (uint32_t i = 0; i < n; i++) d->free_slots[d->n_free++] = n - 1 - i;
    d->core = gateway_core_init(d->region, cfg);
    return d->core ? 0 : -1;
}

static void config_of(const struct gateway *g, struct gateway_core_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->max_slots = (uint32_t)g->settings->max_queue_requests;
    cfg->max_workers = GATEWAY_WORKERS_MAX;
    cfg->max_tenants = DISPATCH_TENANTS_MAX;
    cfg->classes = g->limits.classes;
    cfg->incarnation = g->incarnation;
    cfg->no_worker_ns = (uint64_t)(g->settings->no_worker_timeout_s * 1e9);
    cfg->lost_ns = cfg->no_worker_ns;
    cfg->max_tickets = (uint32_t)g->settings->max_promises;
    cfg->route_entries = ROUTE_ENTRIES;
    cfg->horizon_ns = (uint64_t)(g->settings->promise_horizon_s * 1e9);
}

int dispatch_create(struct dispatch **out, struct gateway *g, struct transport *listener,
                    struct err *e)
{
    struct gateway_core_config cfg;
    struct dispatch *d = mem_zalloc(sizeof *d);
    if (d == NULL) {
        transport_close(&listener);
        return err_set(e, ERR_NO_MEMORY, "out of memory");
    }
    d->g = g;
    d->listener = listener;
    config_of(g, &cfg);
    if (allocate(d, &cfg) != 0) {
        dispatch_destroy(&d);
        return err_set(e, ERR_NO_MEMORY, "out of memory for %u sequences", cfg.max_slots);
    }
    struct hash128 any = {0, 0};
    gateway_core_expect(d->core, any, g->model->vocab_hash);
    if (link_open(d, e) != 0) {
        dispatch_destroy(&d);
        return -1;
    }
    d->timer.data = d->prepare.data = d;
    uv_timer_init(g->loop, &d->timer);
    uv_prepare_init(g->loop, &d->prepare);
    uv_prepare_start(&d->prepare, on_prepare);
    d->open_handles += 2;
    d->ticking = true;
    rearm(d);
    *out = d;
    return 0;
}

void dispatch_pools(const struct dispatch *d)
{
    mem_pool_set("gateway: sequences", d->region_bytes, mem_resident(d->region, d->region_bytes),
                 d->region_bytes);
    mem_pool_refresh();
}

static void on_closed(uv_handle_t *h)
{
    ((struct dispatch *)h->data)->open_handles--;
}

void dispatch_destroy(struct dispatch **pd)
{
    struct dispatch *d = *pd;
    *pd = NULL;
    if (d == NULL) return;
    if (d->open_handles > 0) {
        link_close(d);
        uv_close((uv_handle_t *)&d->poll, on_closed);
        if (d->ticking) {
            uv_close((uv_handle_t *)&d->timer, on_closed);
            uv_close((uv_handle_t *)&d->prepare, on_closed);
        }
        while (d->open_handles > 0) uv_run(d->g->loop, UV_RUN_ONCE);
    }
    transport_close(&d->listener);
    if (d->region) mem_unmap(d->region, d->region_bytes);
    mem_free(d->actions);
    mem_free(d->slots);
    mem_free(d->free_slots);
    mem_free(d->later);
    mem_free(d->ids);
    buf_deinit(&d->out);
    mem_free(d);
}
