#include "gateway/request.h"

#include "base/hash.h"
#include "base/mem.h"
#include "gateway/class_choice.h"
#include "gateway/explain.h"
#include "gateway/reply.h"
#include "gateway/request_priv.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>

static const struct sequence_ops ops;

static uint64_t random_u64(void)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v)
        v = gateway_now_ns(); /* ids only, no secret */
    return v;
}

/* May end the request (a door that has nothing more to send closes it): nothing of it is touched
 * afterwards. */
static void wake(struct request *r)
{
    if (!r->starting) r->wake(r->door);
}

static void charge(struct request *r, uint64_t bytes)
{
    r->charged += bytes;
    r->g->queue_bytes += bytes;
}

/* Into the metrics, once. */
static void count_end(struct request *r, struct choice *c, enum finish finish)
{
    if (c->counted) return;
    c->counted = true;
    const struct metrics_choice m = {.cls = r->job.params.cls,
                                     .finish = finish,
                                     .arrived_ns = c->seq.arrived_ns,
                                     .sent_ns = c->seq.sent_ns,
                                     .first_ns = c->first_ns,
                                     .last_ns = c->last_ns,
                                     .prompt_tokens = c->seq.n_prompt,
                                     .output_tokens = c->seq.n_out,
                                     .max_tokens = (uint32_t)r->job.params.max_tokens};
    metrics_choice_end(&r->g->metrics, &m);
}

/* Into the day's usage of its tenant. */
static void count(const struct request *r, const struct usage_counts *c)
{
    const char *name = r->tenant ? r->tenant->line.name : TENANT_OPEN_NAME;
    usage_add(r->g->usage, gateway_wall_s(), name, c);
}

static void count_refusal(const struct request *r, enum err_code code)
{
    int status = err_http_status(code);
    struct usage_counts c = {.refused_limits = status == 429, .refused_server = status >= 500};
    if (c.refused_limits + c.refused_server > 0) count(r, &c);
}

/* Nothing more will be made for it: the tenant's room is free again. */
static void leave_budget(struct request *r)
{
    tenant_settle(r->g, r->tenant, &r->share);
}

static void fail(struct request *r, const struct err *e)
{
    if (r->state == REQUEST_FAILED || r->state == REQUEST_ENDED || r->err.code != ERR_OK) return;
    r->err = *e;
    r->retry_ms = err_retryable(e->code) ? 1000 : 0;
    if (!r->pulled) r->state = REQUEST_FAILED;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        dispatch_leave(r->g->dispatch, &r->choices[i].seq);
        count_end(r, &r->choices[i], FINISH_FAILED);
    }
    leave_budget(r);
    count_refusal(r, e->code);
    r->g->metrics.errors[e->code]++;
}

static void set_no_memory(struct err *e)
{
    err_set(e, ERR_NO_MEMORY, "The server is out of memory; try again.");
}

/* The name roots the prefix cache, so no tenant finds another's blocks. */
static void fill_tenant(const struct request *r, struct sequence *q)
{
    struct msg_submit *s = &q->submit;
    if (r->tenant == NULL) return;
    _Static_assert(TENANT_NAME_BYTES <= MSG_NAME_MAX, "a tenant's name fits the link");
    memcpy(s->tenant, r->tenant->line.name, sizeof r->tenant->line.name);
    q->tenant = r->tenant->index;
    s->kv_quota = (uint32_t)r->tenant->line.kv_quota;
}

static int make_choices(struct request *r, struct err *e)
{
    const struct api_params *p = &r->job.params;
    struct stop_text stops[STOP_MAX];
    for (uint32_t i = 0; i < p->n_stops; i++)
        stops[i] = (struct stop_text){p->stops[i].p, p->stops[i].n};
    r->stops = stop_set_create(stops, p->n_stops);
    uint32_t n = r->job.n_prompts * p->n;
    r->choices = mem_array(n, sizeof *r->choices);
    if (r->stops == NULL || r->choices == NULL) {
        set_no_memory(e);
        return -1;
    }
    /* E5: without a seed of the client's the seed is fixed here; choice k draws with (seed, k) */
    uint64_t seed = p->has_seed ? p->seed : random_u64();
    r->n_choices = n;
    for (uint32_t i = 0; i < n; i++) {
        const struct api_prompt *prompt = &r->job.prompts[i / p->n];
        choice_init(&r->choices[i], r, i, p, prompt, rand_at(seed, i % p->n), r->g->limits.n_ctx);
        r->choices[i].seq.ops = &ops;
        r->choices[i].seq.deadline_ns = r->deadline_ns;
        fill_tenant(r, &r->choices[i].seq);
    }
    return 0;
}

/* Would it wait longer than its class allows? */
static int ask_for_room(struct request *r, uint32_t *retry_ms, struct err *e)
{
    struct sequence *few[16], **seqs = few;
    *retry_ms = 0;
    if (r->n_choices > 16) seqs = mem_array(r->n_choices, sizeof *seqs);
    if (seqs == NULL) {
        set_no_memory(e);
        return -1;
    }
    for (uint32_t i = 0; i < r->n_choices; i++) seqs[i] = &r->choices[i].seq;
    int bad = dispatch_admit(r->g->dispatch, seqs, r->n_choices, retry_ms, e);
    if (seqs != few) mem_free(seqs);
    return bad;
}

/* All of it at once: no part of a request is queued without the others. */
static void arrive(struct request *r)
{
    struct err e;
    int bad = 0;
    uint32_t retry_ms = 0;
    if (tenant_queue_full(r->g, r->tenant, r->n_choices))
        bad = err_set(&e, ERR_RATE_REQUESTS, "%lld requests of this key's tenant wait already.",
                      (long long)r->tenant->line.queue_room);
    if (bad == 0) bad = ask_for_room(r, &retry_ms, &e);
    r->let_in_ns = gateway_now_ns();
    r->starting = true;
    for (uint32_t i = 0; bad == 0 && i < r->n_choices; i++) {
        bad = dispatch_arrive(r->g->dispatch, &r->choices[i].seq, &e);
    }
    r->starting = false;
    if (bad) {
        if (err_http_status(e.code) >= 500) tenant_take_back(r->g, r->tenant, &r->share); /* nothing of it ran */
        fail(r, &e);
        if (e.code == ERR_OVERLOADED) r->retry_ms = retry_ms;
        return;
    }
    metrics_request(&r->g->metrics, r->job.params.cls, r->job.params.n);
    count(r, &(struct usage_counts){.requests = 1});
}

static void refuse_budget(struct request *r, const struct budget_verdict *v)
{
    struct err e;
    uint32_t retry_ms;
    tenant_refusal(r->tenant, v, &retry_ms, &e);
    fail(r, &e);
    r->retry_ms = retry_ms;
}

static void on_budget(struct tenant_share *s, const struct budget_verdict *v)
{
    struct request *r = (struct request *)((char *)s - offsetof(struct request, share));
    if (v->why == BUDGET_OK) arrive(r);
    else refuse_budget(r, v);
    if (r->state != REQUEST_PENDING) wake(r);
}

/* What it may take at most: each prompt once, each choice to its end. */
static void ask_budget(struct request *r)
{
    struct budget_verdict v;
    uint64_t prompt = 0, output = 0;
    for (uint32_t i = 0; i < r->job.n_prompts; i++) prompt += r->job.prompts[i].ids.n;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        output += r->choices[i].seq.submit.max_total - r->choices[i].seq.n_prompt;
    }
    r->share.ready = on_budget;
    switch (tenant_reserve(r->g, r->tenant, &r->share, prompt, output, &v)) {
    case TENANT_GO: arrive(r); break;
    case TENANT_WAIT: break;
    case TENANT_REFUSED: refuse_budget(r, &v); break;
    }
}

static void start(struct request *r)
{
    struct err e = {0};
    snprintf(r->id, sizeof r->id, "%s-%016" PRIx64 "%08" PRIx32,
             r->job.endpoint == ENDPOINT_CHAT ? "chatcmpl" : "cmpl", random_u64(),
             (uint32_t)random_u64());
    r->created_s = gateway_wall_s();
    reply_head(r);
    int bad = make_choices(r, &e);
    charge(r, r->n_choices * sizeof *r->choices);
    if (bad) fail(r, &e);
    else ask_budget(r);
}

static void destroy(struct request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++) {
        dispatch_leave(r->g->dispatch, &r->choices[i].seq);
        choice_deinit(&r->choices[i]);
    }
    leave_budget(r);
    if (r->tenant) tenant_release(r->g->tenants, &r->tenant);
    mem_free(r->choices);
    stop_set_destroy(&r->stops);
    api_job_deinit(&r->job);
    buf_deinit(&r->head);
    buf_deinit(&r->body);
    gateway_uncharge(r->g, r->charged);
    r->g->live_requests--;
    mem_free(r);
}

static void lane_work(struct lane_job *j, struct tokenizer_scratch *scratch)
{
    api_job_work(&((struct request *)j)->job, scratch);
}

/* The body is gone, its ids (and the echoed text) are there instead. */
static void recharge(struct request *r)
{
    uint64_t bytes = r->job.reply.cap;
    for (uint32_t i = 0; i < r->job.n_prompts; i++) {
        bytes += r->job.prompts[i].ids.n * sizeof(int32_t) + r->job.prompts[i].n_text;
    }
    gateway_uncharge(r->g, r->charged);
    r->charged = 0;
    charge(r, bytes);
}

static void lane_done(struct lane_job *j)
{
    struct request *r = (struct request *)j;
    r->on_lane = false;
    r->read_ns = gateway_now_ns();
    if (r->closed) {
        destroy(r);
        return;
    }
    recharge(r);
    if (r->job.failed) {
        fail(r, &r->job.err);
    } else if (r->job.endpoint == ENDPOINT_TOKENIZE || r->job.endpoint == ENDPOINT_DETOKENIZE) {
        r->state = REQUEST_REPLY;
    } else {
        start(r);
    }
    if (r->state != REQUEST_PENDING) wake(r);
}

/* Bulk work never stands before a chat's text. The body's own service_tier is not known yet. */
static bool is_bulk(const struct request *r, const struct request_in *in)
{
    const struct class_table *t = &r->g->limits.classes;
    uint8_t cls;
    if (in->n_body > LANE_BULK_BYTES) return true;
    return class_choose(t, r->job.rules.classes, in->cls, false, &cls, NULL) == 0 &&
           t->rows[cls].rank > 0;
}

/* Why it cannot even be read now. */
static int refuse(struct request *r, const struct request_in *in, struct err *e)
{
    struct gateway *g = r->g;
    bool bulk = is_bulk(r, in);
    if (g->draining)
        return err_set(e, ERR_DRAINING, "The server is shutting down; try another one.");
    if (gateway_charge(g, in->n_body) != 0) {
        return err_set(e, ERR_QUEUE_FULL, "The requests here fill their memory; try again later.");
    }
    r->charged = in->n_body;
    if (lane_push(g->lanes, bulk ? LANE_BULK : LANE_CHAT, &r->lane) != 0) {
        return err_set(e, ERR_QUEUE_FULL, "Too many requests are waiting to be read; try again.");
    }
    r->on_lane = true;
    return 0;
}

struct request *request_submit(struct gateway *g, const struct request_in *in)
{
    struct request *r = mem_zalloc(sizeof *r);
    if (r == NULL) {
        mem_free(in->body);
        return NULL;
    }
    r->g = g;
    r->lane = (struct lane_job){lane_work, lane_done};
    r->wake = in->wake;
    r->door = in->door;
    memcpy(r->label, in->label, sizeof r->label);
    buf_init(&r->body, 1u << 30);
    api_job_init(&r->job, g->model, &g->limits, in);
    r->tenant = tenant_hold(in->who.tenant);
    tenant_rules(g, &in->who, &r->job.rules);
    g->live_requests++;
    r->came_ns = gateway_now_ns();
    if (in->deadline_ms != 0) r->deadline_ns = r->came_ns + in->deadline_ms * 1000000;
    struct err e;
    if (refuse(r, in, &e) != 0) fail(r, &e);
    return r;
}

/* ---- from the dispatcher */

static void note_times(struct request *r, struct choice *c, uint32_t n)
{
    uint64_t now = gateway_now_ns();
    if (n == 0) return;
    if (c->first_ns == 0) c->first_ns = now;
    else metrics_itl(&r->g->metrics, r->job.params.cls, now - c->last_ns);
    c->last_ns = now;
}

static void fail_no_memory(struct request *r)
{
    struct err e;
    set_no_memory(&e);
    fail(r, &e);
}

/* The prompts with the first answer of any of them. */
static void charge_tokens(struct request *r, struct choice *c)
{
    uint64_t prompt = 0, output = 0;
    for (uint32_t i = 0; !r->prompt_charged && i < r->job.n_prompts; i++)
        prompt += r->job.prompts[i].ids.n;
    if (c->seq.n_out > c->charged) output = c->seq.n_out - c->charged;
    r->prompt_charged = true;
    c->charged += (uint32_t)output;
    tenant_charge(r->tenant, &r->share, prompt, output);
}

/* `n` records from `index` on, ids of the prompt's scores among them. */
static void count_tokens(struct request *r, struct choice *c, uint32_t index, uint32_t n, bool end)
{
    struct usage_counts counts;
    uint32_t scores = index < c->seq.n_prompt ? c->seq.n_prompt - index : 0;
    uint32_t fresh = n > scores ? n - scores : 0;
    if (fresh == 0 && (!end || c->seq.n_out > 0)) return;
    usage_mark_deliver(&c->used, c->seq.n_prompt, c->seq.cached, c->seq.n_out, fresh, &counts);
    count(r, &counts);
}

static void deliver(struct sequence *s, uint32_t index, const struct msg_record *records,
                    uint32_t n, bool logprobs, enum finish finish, uint32_t visible_bytes)
{
    struct choice *c = (struct choice *)s;
    struct request *r = c->request;
    const struct api_params *p = &r->job.params;
    charge(r, n * (sizeof(int32_t) + (p->logprobs ? 5 + p->n_top * sizeof(struct msg_top) : 0)));
    if (choice_take(c, p, index, records, n, logprobs) != 0) {
        fail_no_memory(r);
        wake(r);
        return;
    }
    note_times(r, c, n);
    charge_tokens(r, c);
    count_tokens(r, c, index, n, finish != FINISH_NONE);
    if (finish != FINISH_NONE) {
        c->finish = finish;
        c->visible = visible_bytes;
        r->n_finished++;
        count_end(r, c, finish);
        if (r->n_finished == r->n_choices) leave_budget(r);
    }
    if (p->stream) {
        if (r->state == REQUEST_PENDING) r->state = REQUEST_STREAMING;
    } else if (r->n_finished < r->n_choices) {
        return;
    } else if (reply_whole(r) == 0) {
        charge(r, r->body.len);
        r->state = REQUEST_REPLY;
    } else {
        fail_no_memory(r);
    }
    wake(r);
}

static void restart(struct sequence *s)
{
    struct choice *c = (struct choice *)s;
    struct request *r = c->request;
    if (c->begun) { /* what was sent cannot be unsaid */
        struct err e;
        err_set(&e, ERR_WORKER_LOST,
                "The worker was lost and no equal one can go on with this answer.");
        fail(r, &e);
        wake(r);
        return;
    }
    choice_restart(c);
}

static const char *why_failed(enum err_code code)
{
    switch (code) {
    case ERR_NO_WORKER: return "No worker is ready to serve this model; try again.";
    case ERR_WORKER_LOST: return "The worker of this answer was lost and none could go on with it.";
    case ERR_DEADLINE: return "The deadline passed before the answer was complete.";
    case ERR_DRAINING: return "The server is shutting down.";
    case ERR_NO_MEMORY: return "The server is out of memory; try again.";
    default: return "The worker could not run this request.";
    }
}

static void sequence_fail(struct sequence *s, enum err_code code)
{
    struct request *r = ((struct choice *)s)->request;
    struct err e;
    if (code == ERR_POOL_TOO_SMALL) dispatch_too_large(r->g->dispatch, s, &e);
    else err_set(&e, code, "%s", why_failed(code));
    fail(r, &e);
    wake(r);
}

static const struct sequence_ops ops = {deliver, restart, sequence_fail};

/* ---- for the door */

enum request_state request_state(const struct request *r)
{
    return r->state;
}

bool request_streams(const struct request *r)
{
    return r->job.params.stream;
}

const struct err *request_error(const struct request *r, uint32_t *retry_after_s)
{
    *retry_after_s = r->retry_ms / 1000 + (r->retry_ms % 1000 != 0);
    return &r->err;
}

uint32_t request_retry_ms(const struct request *r, bool *never)
{
    *never = r->retry_ms == 0 && (err_http_status(r->err.code) == 429 || r->err.code == ERR_OVERLOADED);
    return r->retry_ms;
}

struct tenant *request_tenant(const struct request *r)
{
    return r->tenant;
}

const char *request_body(struct request *r, size_t *n)
{
    struct buf *b = r->job.reply.len ? &r->job.reply : &r->body;
    *n = b->len;
    return b->p;
}

static enum pull pull_error(struct request *r, struct buf *out)
{
    r->state = REQUEST_ENDED;
    error_json(out, &r->err);
    return PULL_ERROR;
}

static enum pull pull_end(struct request *r, struct buf *out)
{
    for (uint32_t i = 0; i < r->n_choices; i++) {
        if (!r->choices[i].finish_sent) return PULL_NONE;
    }
    if (r->job.params.include_usage && !r->usage_sent) {
        r->usage_sent = true;
        reply_usage_chunk(r, out);
        return PULL_EVENT;
    }
    r->state = REQUEST_ENDED;
    return PULL_DONE;
}

enum pull request_pull(struct request *r, struct buf *out)
{
    if (r->state == REQUEST_ENDED) return PULL_DONE;
    if (r->state == REQUEST_FAILED)
        return pull_error(r, out); /* between the reply's head and its first event */
    if (r->state != REQUEST_STREAMING) return PULL_NONE;
    r->pulled = true;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        struct choice *c = &r->choices[(r->turn + i) % r->n_choices];
        struct buf text = {0};
        struct piece p;
        bool some = choice_next(c, &r->job.params, r->g->model, r->stops, &text, &p);
        if (text.bad) out->bad = true; /* the door gives the stream up: it would have a hole */
        if (some) {
            reply_chunk(r, c, &p, &text, out);
            r->turn = (r->turn + i + 1) % r->n_choices; /* no choice waits for another's backlog */
        }
        buf_deinit(&text);
        if (some || out->bad) return PULL_EVENT;
    }
    return r->err.code != ERR_OK ? pull_error(r, out) : pull_end(r, out);
}

static const struct choice *last_choice(const struct request *r)
{
    const struct choice *last = r->n_choices > 0 ? &r->choices[0] : NULL;
    for (uint32_t i = 1; i < r->n_choices; i++) {
        uint64_t end = r->choices[i].seq.finished_ns;
        if (last->seq.finished_ns != 0 && (end == 0 || end > last->seq.finished_ns)) last = &r->choices[i];
    }
    return last;
}

uint64_t request_ledger(const struct request *r, uint64_t out[LEDGER_CAUSES])
{
    uint64_t now = gateway_now_ns(), sum = 0;
    const struct choice *c = last_choice(r);
    memset(out, 0, LEDGER_CAUSES * sizeof *out);
    if (c != NULL) memcpy(out, c->seq.ledger, sizeof c->seq.ledger);
    out[LEDGER_TEXT] += (r->read_ns != 0 ? r->read_ns : now) - r->came_ns;
    if (r->read_ns != 0) out[LEDGER_BUDGET] += (r->let_in_ns != 0 ? r->let_in_ns : now) - r->read_ns;
    if (c != NULL && c->seq.finished_ns != 0) out[LEDGER_READER] += now - c->seq.finished_ns;
    for (uint32_t i = 0; i < LEDGER_CAUSES; i++) sum += out[i];
    if (now - r->came_ns > sum) out[LEDGER_OTHER] += now - r->came_ns - sum;
    return now - r->came_ns;
}

static void explain(const struct request *r)
{
    struct explain_entry e = {.at_s = r->created_s, .choices = r->n_choices, .code = r->err.code};
    const struct choice *c = last_choice(r);
    if (c == NULL || r->g->explain == NULL) return;
    snprintf(e.id, sizeof e.id, "%s", r->id);
    snprintf(e.label, sizeof e.label, "%s", r->label);
    snprintf(e.tenant, sizeof e.tenant, "%s", r->tenant ? r->tenant->line.name : "");
    e.wall_ns = request_ledger(r, e.ns);
    e.ttft_ns = c->first_ns > r->came_ns ? c->first_ns - r->came_ns : 0;
    e.cls = r->job.params.cls;
    e.finish = c->finish == FINISH_NONE ? FINISH_CANCELLED : c->finish; /* its client left */
    e.n_prompt = c->seq.n_prompt;
    e.n_out = c->seq.n_out;
    e.cached = c->seq.cached;
    e.preemptions = c->seq.preemptions;
    dispatch_worker_name(r->g->dispatch, c->seq.worker, e.worker);
    explain_put(r->g->explain, &e);
    if (r->err.code == ERR_OK) metrics_ledger(&r->g->metrics, e.cls, e.ns);
}

void request_close(struct request **pr)
{
    struct request *r = *pr;
    *pr = NULL;
    if (r == NULL) return;
    for (uint32_t i = 0; i < r->n_choices; i++) dispatch_leave(r->g->dispatch, &r->choices[i].seq); /* books their time */
    explain(r);
    for (uint32_t i = 0; i < r->n_choices; i++) count_end(r, &r->choices[i], FINISH_CANCELLED);
    leave_budget(r); /* a lane that still reads it holds nobody's room */
    r->closed = true;
    if (!r->on_lane) destroy(r);
}
