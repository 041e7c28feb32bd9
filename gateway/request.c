#include "gateway/request.h"

#include "base/hash.h"
#include "base/mem.h"
#include "gateway/reply.h"
#include "gateway/request_priv.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

static const struct sequence_ops ops;

static uint64_t random_u64(void)
{
    uint64_t v = 0;
    if (getrandom(&v, sizeof v, 0) != (ssize_t)sizeof v) v = gateway_now_ns(); /* ids only, no secret */
    return v;
}

static void fail(struct request *r, const struct err *e)
{
    if (r->state == REQUEST_FAILED || r->state == REQUEST_ENDED || r->err.code != ERR_OK) return;
    r->err = *e;
    r->retry_after_s = err_retryable(e->code) ? 1 : 0;
    if (!r->pulled) r->state = REQUEST_FAILED;
    for (uint32_t i = 0; i < r->n_choices; i++) dispatch_leave(r->g->dispatch, &r->choices[i].seq);
    r->g->metrics.http_errors[e->code]++;
}

static void set_no_memory(struct err *e)
{
    err_set(e, ERR_NO_MEMORY, "The server is out of memory; try again.");
}

static int make_choices(struct request *r, struct err *e)
{
    const struct api_params *p = &r->job.params;
    struct stop_text stops[STOP_MAX];
    for (uint32_t i = 0; i < p->n_stops; i++) stops[i] = (struct stop_text){p->stops[i].p, p->stops[i].n};
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
        choice_init(&r->choices[i], r, i, p, &r->job.prompts[i / p->n], rand_at(seed, i % p->n));
        r->choices[i].seq.ops = &ops;
        uint64_t total = (uint64_t)r->choices[i].seq.n_prompt + (uint64_t)p->max_tokens;
        r->choices[i].seq.submit.max_total = total > r->g->model->hp.n_ctx ? r->g->model->hp.n_ctx : (uint32_t)total;
    }
    return 0;
}

static void start(struct request *r)
{
    struct err e = {0};
    snprintf(r->id, sizeof r->id, "%s-%016" PRIx64 "%08" PRIx32, r->job.endpoint == ENDPOINT_CHAT ? "chatcmpl" : "cmpl",
             random_u64(), (uint32_t)random_u64());
    r->created_s = gateway_wall_s();
    reply_head(r);
    int bad = make_choices(r, &e);
    for (uint32_t i = 0; bad == 0 && i < r->n_choices; i++) bad = dispatch_arrive(r->g->dispatch, &r->choices[i].seq, &e);
    if (bad) fail(r, &e);
}

static void destroy(struct request *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++) {
        dispatch_leave(r->g->dispatch, &r->choices[i].seq);
        choice_deinit(&r->choices[i]);
    }
    mem_free(r->choices);
    stop_set_destroy(&r->stops);
    api_job_deinit(&r->job);
    buf_deinit(&r->head);
    buf_deinit(&r->body);
    r->g->live_requests--;
    mem_free(r);
}

static void lane_work(struct lane_job *j, struct tokenizer_scratch *scratch)
{
    api_job_work(&((struct request *)j)->job, scratch);
}

static void lane_done(struct lane_job *j)
{
    struct request *r = (struct request *)j;
    r->on_lane = false;
    if (r->closed) {
        destroy(r);
        return;
    }
    if (r->job.failed) {
        fail(r, &r->job.err);
    } else if (r->job.endpoint == ENDPOINT_TOKENIZE || r->job.endpoint == ENDPOINT_DETOKENIZE) {
        r->state = REQUEST_REPLY;
    } else {
        start(r);
    }
    if (r->state != REQUEST_PENDING) r->wake(r->door);
}

struct request *request_submit(struct gateway *g, const struct request_in *in)
{
    static struct api_limits limits; /* the same for the whole process, filled once from settings and model */
    if (limits.model_name == NULL) {
        limits = (struct api_limits){.model_name = g->model->name, .n_vocab = (int32_t)g->model->hp.n_vocab,
                                     .n_ctx = g->model->hp.n_ctx, .max_choices = (uint32_t)g->settings->max_choices,
                                     .default_max_tokens_chat = (uint32_t)g->settings->default_max_tokens_chat};
        class_table_default(&limits.classes);
    }
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
    api_job_init(&r->job, g->model, &limits, in);
    g->live_requests++;
    /* bulk work never stands before a chat's text */
    bool bulk = in->n_body > LANE_BULK_BYTES || strcmp(in->cls, "batch") == 0;
    struct err e;
    if (g->draining) {
        err_set(&e, ERR_DRAINING, "The server is shutting down; try another one.");
        fail(r, &e);
    } else if (lane_push(g->lanes, bulk ? LANE_BULK : LANE_CHAT, &r->lane) != 0) {
        err_set(&e, ERR_QUEUE_FULL, "Too many requests are waiting to be read; try again.");
        fail(r, &e);
    } else {
        r->on_lane = true;
    }
    return r;
}

/* ---- from the dispatcher */

static void choice_ended(struct request *r, struct choice *c)
{
    const struct metrics_choice m = {
        .cls = r->job.params.cls, .finish = c->finish, .arrived_ns = c->seq.arrived_ns, .sent_ns = c->seq.sent_ns,
        .first_ns = c->first_ns, .last_ns = c->last_ns, .prompt_tokens = c->seq.n_prompt,
        .output_tokens = c->seq.n_out, .max_tokens = (uint32_t)r->job.params.max_tokens};
    metrics_choice_end(&r->g->metrics, &m);
    r->n_finished++;
}

static void note_times(struct request *r, struct choice *c, uint32_t n)
{
    uint64_t now = gateway_now_ns();
    if (n == 0) return;
    if (c->first_ns == 0) c->first_ns = now;
    else metrics_itl(&r->g->metrics, r->job.params.cls, now - c->last_ns);
    c->last_ns = now;
}

static void deliver(struct sequence *s, uint32_t index, const struct msg_record *records, uint32_t n, bool logprobs,
                    enum finish finish, uint32_t visible_bytes)
{
    struct choice *c = (struct choice *)s;
    struct request *r = c->request;
    struct err e;
    if (choice_take(c, &r->job.params, index, records, n, logprobs) != 0) {
        set_no_memory(&e);
        fail(r, &e);
        r->wake(r->door);
        return;
    }
    note_times(r, c, n);
    if (finish != FINISH_NONE) {
        c->finish = finish;
        c->visible = visible_bytes;
        choice_ended(r, c);
    }
    if (r->job.params.stream) {
        if (r->state == REQUEST_PENDING) r->state = REQUEST_STREAMING;
    } else if (r->n_finished == r->n_choices) {
        if (reply_whole(r) == 0) {
            r->state = REQUEST_REPLY;
        } else {
            set_no_memory(&e);
            fail(r, &e);
        }
    } else {
        return;
    }
    r->wake(r->door);
}

static void restart(struct sequence *s)
{
    struct choice *c = (struct choice *)s;
    struct request *r = c->request;
    if (c->begun) { /* what was sent cannot be unsaid */
        struct err e;
        err_set(&e, ERR_WORKER_LOST, "The worker was lost and no equal one can go on with this answer.");
        fail(r, &e);
        r->wake(r->door);
        return;
    }
    choice_restart(c);
}

static void sequence_fail(struct sequence *s, enum err_code code)
{
    struct request *r = ((struct choice *)s)->request;
    struct err e;
    const char *text = code == ERR_NO_WORKER     ? "No worker is ready to serve this model; try again."
                       : code == ERR_WORKER_LOST ? "The worker that made this answer was lost and none could go on with it."
                       : code == ERR_DEADLINE    ? "The deadline passed before the answer was complete."
                       : code == ERR_DRAINING    ? "The server is shutting down."
                                                 : "The worker could not run this request.";
    err_set(&e, code, "%s", text);
    fail(r, &e);
    r->wake(r->door);
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
    *retry_after_s = r->retry_after_s;
    return &r->err;
}

const char *request_body(struct request *r, size_t *n)
{
    struct buf *b = r->job.reply.len ? &r->job.reply : &r->body;
    *n = b->len;
    return buf_str(b);
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
    if (r->state != REQUEST_STREAMING) return PULL_NONE;
    if (r->err.code != ERR_OK) {
        r->state = REQUEST_ENDED;
        error_json(out, &r->err);
        return PULL_ERROR;
    }
    r->pulled = true;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        struct choice *c = &r->choices[(r->turn + i) % r->n_choices];
        struct buf text = {0};
        struct piece p;
        bool some = choice_next(c, &r->job.params, r->g->model, r->stops, &text, &p);
        if (some) {
            reply_chunk(r, c, &p, &text, out);
            if (text.bad) out->bad = true;
            r->turn = (r->turn + i + 1) % r->n_choices; /* no choice waits for another's backlog */
        }
        buf_deinit(&text);
        if (some) return PULL_EVENT;
    }
    return pull_end(r, out);
}

void request_close(struct request **pr)
{
    struct request *r = *pr;
    *pr = NULL;
    if (r == NULL) return;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        if (r->choices[i].finish == FINISH_NONE && r->err.code == ERR_OK) {
            r->choices[i].finish = FINISH_CANCELLED;
            choice_ended(r, &r->choices[i]);
        }
    }
    r->closed = true;
    if (!r->on_lane) destroy(r);
}
