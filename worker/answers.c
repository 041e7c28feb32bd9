/* answers.c - see answers.h. */
#include "worker/answers.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* Far below MSG_NODES_MAX and MSG_ENTRIES_MAX: a larger answer goes out as several messages. */
#define MESSAGE_RECORDS_MAX 32768u
#define MESSAGE_TOPS_MAX 131072u
#define MESSAGE_ENTRIES_MAX 8192u

int answers_init(struct answers *a, struct mail *mail, const struct worker_core *core,
                 const struct seq_store *store, uint32_t n_classes) {
    *a = (struct answers){.mail = mail,
                          .core = core,
                          .store = store,
                          .n_classes = n_classes,
                          .max_slots = store->n_slots};
    a->sync = mem_array(a->max_slots, sizeof(*a->sync));
    a->shown = mem_alloc(sizeof(*a->shown));
    if (a->shown != NULL)
        shown_init(a->shown, core, store, n_classes);
    return a->sync != NULL && a->shown != NULL ? 0 : -1;
}

void answers_deinit(struct answers *a) {
    for (uint32_t i = 0; i < WORKER_GATEWAYS_MAX; i++)
        mail_out_destroy(&a->gw[i].tokens);
    mem_free(a->sync);
    mem_free(a->shown);
    a->sync = NULL;
    a->shown = NULL;
}

void answers_up(struct answers *a, uint32_t gw, uint32_t epoch) {
    assert(gw < WORKER_GATEWAYS_MAX && a->gw[gw].tokens == NULL);
    a->gw[gw].epoch = epoch;
    shown_up(a->shown, gw);
}

void answers_down(struct answers *a, uint32_t gw) {
    assert(gw < WORKER_GATEWAYS_MAX);
    mail_out_destroy(&a->gw[gw].tokens);
    a->gw[gw].epoch = 0;
}

bool answers_any_up(const struct answers *a) {
    for (uint32_t i = 0; i < WORKER_GATEWAYS_MAX; i++)
        if (a->gw[i].epoch != 0)
            return true;
    return false;
}

static void attach_accounts(const struct answers *a, struct mail_out *o) {
    struct worker_stats st;
    worker_core_stats(a->core, &st);
    for (uint32_t i = 0; i < a->n_classes; i++) {
        const struct worker_account *w = &st.account[i];
        o->accounts[i] = (struct msg_account){.cls = (uint8_t)i,
                                              .prompt_first = w->prompt_first,
                                              .output = w->output,
                                              .recomputed = w->recomputed,
                                              .dropped = w->dropped};
    }
    o->n_accounts = a->n_classes;
}

/* Without memory they come with the next message. */
static void attach_tenants(struct answers *a, uint32_t gw, struct mail_out *o) {
    if (!shown_news(a->shown, gw))
        return;
    uint32_t most = a->store->n_accounts * a->n_classes;
    if (most > MSG_TENANTS_MAX)
        most = MSG_TENANTS_MAX;
    if (mail_out_reserve_tenants(o, most) == 0)
        o->n_tenants = shown_rows(a->shown, gw, o->tenants, most, &o->tenants_all);
}

static void push(struct answers *a, uint32_t gw) {
    if (a->gw[gw].tokens == NULL)
        return;
    attach_accounts(a, a->gw[gw].tokens);
    attach_tenants(a, gw, a->gw[gw].tokens);
    mail_out_push(a->mail, &a->gw[gw].tokens);
}

void answers_flush(struct answers *a) {
    shown_look(a->shown);
    for (uint32_t i = 0; i < WORKER_GATEWAYS_MAX; i++)
        push(a, i);
}

/* The message being collected for `gw`, with room for one more entry of so many records; NULL =
 * cut. */
static struct mail_out *room(struct answers *a, uint32_t gw, uint32_t records, uint32_t tops) {
    struct mail_out *o = a->gw[gw].tokens;
    if (o != NULL
        && (o->n_records + records > MESSAGE_RECORDS_MAX || o->n_tops + tops > MESSAGE_TOPS_MAX
            || o->n_entries + 1 > MESSAGE_ENTRIES_MAX))
        push(a, gw);
    if (a->gw[gw].tokens == NULL)
        a->gw[gw].tokens = mail_out_new(a->mail, MAIL_TOKENS, gw, a->gw[gw].epoch);
    o = a->gw[gw].tokens;
    if (o != NULL && mail_out_reserve(o, 1, records, tops, 0) == 0)
        return o;
    mail_cut(a->mail, gw);
    return NULL;
}

static bool add_entry(struct answers *a, const struct worker_action *act, const struct seq *s,
                      uint32_t from, uint32_t to) {
    struct mail_out *o = room(a, act->gw, to - from, (to - from) * s->n_top);
    if (o == NULL)
        return false;
    struct msg_tokens_entry *e = &o->entries[o->n_entries++];
    *e = (struct msg_tokens_entry){.sub = act->sub,
                                   .index = from,
                                   .n = to - from,
                                   .logprobs = s->logprobs,
                                   .preemptions = act->preemptions,
                                   .cached = act->cached};
    if (to == act->to && act->finish != FINISH_NONE) {
        e->finish = act->finish;
        e->visible_bytes = (uint32_t)s->stop.visible;
        e->n_booked = LEDGER_WORKER_N;
        memcpy(e->booked_ns, act->booked_ns, sizeof(act->booked_ns));
    }
    for (uint32_t i = from; i < to; i++) {
        struct msg_record *r = &o->records[o->n_records++];
        seq_record(s, i, r, o->tops != NULL ? o->tops + o->n_tops : NULL);
        o->n_tops += r->n_top;
    }
    return true;
}

void answers_tokens(struct answers *a, const struct worker_action *act) {
    const struct seq *s = seq_store_get(a->store, act->slot);
    assert(act->from <= act->to);
    if (a->gw[act->gw].epoch == 0)
        return;
    uint32_t most = s->n_top == 0 ? MESSAGE_RECORDS_MAX / 4 : MESSAGE_TOPS_MAX / 4 / s->n_top;
    uint32_t from = act->from;
    do {
        uint32_t to = act->to - from > most ? from + most : act->to;
        if (!add_entry(a, act, s, from, to))
            return;
        from = to;
    } while (from < act->to);
}

void answers_finish(struct answers *a, const struct worker_action *act, uint32_t index) {
    if (a->gw[act->gw].epoch == 0)
        return;
    struct mail_out *o = room(a, act->gw, 0, 0);
    if (o != NULL)
        o->entries[o->n_entries++] =
            (struct msg_tokens_entry){.sub = act->sub, .index = index, .finish = act->finish};
}

void answers_sync(struct answers *a, uint32_t gw) {
    if (a->gw[gw].epoch == 0)
        return;
    uint32_t n = worker_core_sync(a->core, gw, a->sync, a->max_slots);
    struct mail_out *o = mail_out_new(a->mail, MAIL_SYNC, gw, a->gw[gw].epoch);
    if (o == NULL || mail_out_reserve(o, 0, 0, 0, n) != 0) {
        mail_out_destroy(&o);
        mail_cut(a->mail, gw);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        o->sync[i] = (struct msg_sync_entry){
            .sub = a->sync[i].sub, .have = a->sync[i].have, .finished = a->sync[i].finished};
    o->n_sync = n;
    mail_out_push(a->mail, &o);
}

_Static_assert(2 * COST_FEATURES <= MSG_COST_MAX, "two tables of coefficients go into STATUS");

static void add_cost(struct msg_status *m, const struct worker_stats *st) {
    for (uint32_t rank = 0; rank < 2; rank++)
        for (uint32_t i = 0; i < COST_FEATURES; i++)
            m->cost[m->n_cost++] = (float)st->cost[rank].coef[i];
}

void answers_status(struct answers *a, uint64_t busy_ns, uint64_t uptime_ns) {
    struct worker_stats st;
    worker_core_stats(a->core, &st);
    struct msg_status m = {.number = ++a->status_number,
                           .n_classes = a->n_classes,
                           .blocks_total = st.pool.total,
                           .blocks_free = st.pool.free,
                           .steps = st.steps[0] + st.steps[1],
                           .preemptions = st.preemptions,
                           .parks = st.parks,
                           .drops = st.drops,
                           .step_ns = st.step_device_ns,
                           .busy_ns = busy_ns,
                           .uptime_ns = uptime_ns,
                           .draining = st.draining};
    m.blocks_cached = st.pool.cached;
    m.host_total = st.pool.host_total;
    m.host_free = st.pool.host_free;
    m.cache_hits = st.pool.hits;
    m.cache_misses = st.pool.misses;
    m.swap_ins = st.resumed_swap;
    m.recomputes = st.resumed_recompute;
    m.copy_ns = st.copy_ns;
    m.faults = st.faults;
    m.evictions = st.pool.evictions;
    add_cost(&m, &st);
    memcpy(m.waiting, st.waiting, sizeof(m.waiting));
    memcpy(m.active, st.active, sizeof(m.active));
    memcpy(m.window, st.window, sizeof(m.window));
    memcpy(m.started_tag, st.started_tag, sizeof(m.started_tag));
    for (uint32_t i = 0; i < WORKER_GATEWAYS_MAX; i++) {
        if (a->gw[i].epoch == 0)
            continue;
        struct mail_out *o = mail_out_new(a->mail, MAIL_STATUS, i, a->gw[i].epoch);
        if (o == NULL)
            continue; /* the next one says it */
        o->status = m;
        mail_out_push(a->mail, &o);
        if (a->gw[i].tokens == NULL && shown_news(a->shown, i))
            a->gw[i].tokens = mail_out_new(a->mail, MAIL_TOKENS, i, a->gw[i].epoch);
        push(a, i);
    }
}
