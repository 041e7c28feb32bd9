/* batch_run.c - see batch_run.h. */
#include "cli/batch_run.h"
#include "base/mem.h"
#include "cli/clock.h"
#include "cli/json_value.h"
#include "cli/server.h"

#include <assert.h>
#include <string.h>
#include <sys/random.h>

#define PAUSE_FIRST_MS 100.0
#define PAUSE_MAX_MS 10000.0
#define FULL_MS 20        /* the socket took no more: try again */
#define STOP_WAIT_MS 1000 /* after Ctrl-C, for answers that are nearly there */

int batch_run_init(struct batch_run *r, uint32_t concurrency) {
    r->concurrency = concurrency;
    r->slots = mem_array(concurrency, sizeof(*r->slots));
    if (getrandom(&r->tag_seed, sizeof(r->tag_seed), 0) != sizeof(r->tag_seed))
        r->tag_seed = (uint64_t)(clock_ms() * 1e6);
    return r->slots != NULL ? 0 : -1;
}

void batch_run_deinit(struct batch_run *r) {
    mem_free(r->slots);
    r->slots = NULL;
}

double batch_pause_ms(uint32_t tries, uint32_t retry_after_ms) {
    double pause = PAUSE_FIRST_MS;
    for (uint32_t i = 1; i < tries && pause < PAUSE_MAX_MS; i++)
        pause *= 2;
    if (retry_after_ms > pause)
        pause = retry_after_ms;
    return pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

static void slot_free(struct batch_run *r, struct batch_slot *s) {
    assert(s->state != SLOT_FREE && r->n_busy > 0);
    r->n_sent -= s->state == SLOT_SENT;
    r->n_busy--;
    s->state = SLOT_FREE;
}

static void slot_wait(struct batch_run *r, struct batch_slot *s, double due_ms) {
    r->n_sent -= s->state == SLOT_SENT;
    s->state = SLOT_WAITING;
    s->due_ms = due_ms;
}

/* Ids carry the slot's number, so that no table is needed to find it again. */
static struct batch_slot *slot_of(struct batch_run *r, uint64_t rpc_id) {
    struct batch_slot *s = &r->slots[rpc_id % r->concurrency];
    return s->state == SLOT_SENT && s->rpc_id == rpc_id ? s : NULL;
}

/* TRANSPORT_OK, _FULL, _DOWN; or 1 = the line cannot be read any more (`e`). */
static int send_line(struct batch_run *r, struct batch_slot *s, struct err *e) {
    struct buf body = {0}, frame = {0};
    struct batch_line l;
    if (batch_input_line(r->in, s->offset, s->n, &l, e) != 0)
        return 1;
    int rc = 1;
    s->rpc_id = server_new_id(r->server) * r->concurrency + (uint64_t)(s - r->slots);
    if (json_value_put(&body, l.body, e) == 0) {
        server_put_request(&frame, s->rpc_id, l.url, r->cls, &body);
        if (frame.bad)
            err_set(e, ERR_NO_MEMORY, "out of memory");
        else
            rc = server_send(r->server, &frame);
    }
    if (rc == TRANSPORT_OK) {
        s->state = SLOT_SENT;
        r->n_sent++;
    }
    batch_line_deinit(&l);
    buf_deinit(&body);
    buf_deinit(&frame);
    return rc;
}

/* Puts the next open line of the input into a free slot. 1 = done, 0 = the input has ended, -1. */
static int take_line(struct batch_run *r, struct batch_slot *s, struct err *e) {
    struct line at;
    int rc = r->input_ended ? 0 : batch_input_next(r->in, &at, e);
    r->input_ended = rc == 0;
    if (rc != 1)
        return rc;
    *s = (struct batch_slot){.state = SLOT_WAITING, .offset = at.offset, .n = at.n,
                             .number = at.number};
    r->n_busy++;
    return 1;
}

/* Fills free slots and sends what is due. 0, or 1 with `e` = stop; *full: the socket takes no more. */
static int send_due(struct batch_run *r, double now_ms, bool *full, struct err *e) {
    *full = false;
    for (uint32_t i = 0; i < r->concurrency && !*full; i++) {
        struct batch_slot *s = &r->slots[i];
        if (s->state == SLOT_FREE && !r->input_ended && take_line(r, s, e) < 0)
            return 1;
        if (s->state != SLOT_WAITING || s->due_ms > now_ms)
            continue;
        int rc = send_line(r, s, e);
        if (rc > 0)
            return 1;
        *full = rc != TRANSPORT_OK; /* a lost connection is told by the next receive */
    }
    return 0;
}

/* Appends a result; -1 = the disk refuses. */
static int put_result(struct batch_run *r, struct batch_slot *s, uint32_t status, json_t *body,
                      struct err *e) {
    struct batch_line l;
    struct buf line = {0};
    char tag[64];
    if (batch_input_line(r->in, s->offset, s->n, &l, e) != 0)
        return -1;
    uint64_t a = rand_at(r->tag_seed, r->tag_count++);
    snprintf(tag, sizeof(tag), "batch_req_%016llx%08x", (unsigned long long)a,
             (unsigned)r->tag_count);
    int rc = batch_result_put(&line, tag, l.custom_id, l.n_custom_id, status, body);
    if (rc != 0)
        err_set(e, ERR_NO_MEMORY, "out of memory for a result");
    else
        rc = batch_journal_append(r->journal, line.p, line.len, clock_ms(), e);
    struct id_entry *at = id_table_find(&r->in->ids, l.custom_id, l.n_custom_id);
    if (rc == 0 && at != NULL)
        at->state = status < 300 ? ID_DONE : ID_FAILED;
    batch_line_deinit(&l);
    buf_deinit(&line);
    return rc;
}

static void count_tokens(struct batch_run *r, const json_t *body) {
    const json_t *usage = json_object_get(body, "usage");
    json_int_t out = json_integer_value(json_object_get(usage, "completion_tokens"));
    json_int_t in = json_integer_value(json_object_get(usage, "prompt_tokens"));
    r->progress.tokens += out > 0 ? (uint64_t)out : 0;
    r->progress.prompt_tokens += in > 0 ? (uint64_t)in : 0;
}

/* A final answer. -1 = stop. */
static int finish_line(struct batch_run *r, struct batch_slot *s, uint32_t status,
                       const struct value *value, struct err *e) {
    json_t *body = value != NULL ? json_value_make(value) : json_null();
    if (body == NULL)
        return err_set(e, ERR_PROTOCOL, "the answer to line %llu cannot be written as JSON",
                       (unsigned long long)s->number);
    int rc = put_result(r, s, status, body, e);
    if (rc == 0) {
        count_tokens(r, body);
        r->progress.done++;
        r->progress.failed += status >= 300;
        slot_free(r, s);
    }
    json_decref(body);
    return rc;
}

static bool out_of_tries(const struct batch_run *r, const struct batch_slot *s, uint32_t status,
                         double now_ms) {
    if (status == 429 || status == 503) /* a matter of time, not of the line */
        return now_ms - s->first_failed_ms > r->patience_s * 1e3;
    return s->tries >= BATCH_TRIES;
}

static void retry_line(struct batch_run *r, struct batch_slot *s, const struct rpc_msg *m) {
    double now_ms = clock_ms();
    char text[ERR_MSG_MAX];
    s->tries++;
    if (s->first_failed_ms == 0)
        s->first_failed_ms = now_ms;
    if (!out_of_tries(r, s, m->status, now_ms)) {
        r->progress.retries++;
        slot_wait(r, s, now_ms + batch_pause_ms(s->tries, m->retry_after_ms));
        return;
    }
    server_error_text(m, text, sizeof(text));
    batch_progress_note(&r->progress, "line %llu given up after %u tries: %s (%u)",
                        (unsigned long long)s->number, s->tries, text, m->status);
    r->given_up++;
    slot_free(r, s);
}

/* One message of the server. -1 = stop. */
static int take_message(struct batch_run *r, const struct rpc_msg *m, struct err *e) {
    struct batch_slot *s = slot_of(r, m->id);
    if (s == NULL) /* an answer to a try that we have written off */
        return 0;
    if (m->kind == RPC_DONE)
        return finish_line(r, s, 200, m->body, e);
    if (m->kind != RPC_ERROR)
        return 0;
    if (!batch_status_retryable(m->status) && m->status >= 300)
        return finish_line(r, s, m->status, m->body, e);
    retry_line(r, s, m);
    return 0;
}

static void connection_lost(struct batch_run *r, const struct err *e) {
    double now_ms = clock_ms();
    for (uint32_t i = 0; i < r->concurrency; i++)
        if (r->slots[i].state == SLOT_SENT)
            slot_wait(r, &r->slots[i], now_ms);
    r->lost_ms = r->reopen_ms = now_ms;
    r->reopen_tries = 0;
    batch_progress_note(&r->progress, "connection lost (%s); waiting for the server", e->msg);
}

/* Tries to reach the server again when it is time to. 0 = go on, -1 = patience has ended. */
static int reopen(struct batch_run *r) {
    struct err e;
    double now_ms = clock_ms();
    if (now_ms < r->reopen_ms)
        return 0;
    if (server_open(r->server, &e) == 0) {
        batch_progress_note(&r->progress, "connected again, going on");
        r->lost_ms = 0;
        return 0;
    }
    now_ms = clock_ms();
    if (now_ms - r->lost_ms > r->patience_s * 1e3)
        return -1;
    double pause = batch_pause_ms(++r->reopen_tries, 0);
    r->reopen_ms = now_ms + (pause < 2000 ? pause : 2000);
    return 0;
}

static void sooner(int *timeout_ms, double other_ms) {
    if (other_ms >= 0 && other_ms < *timeout_ms)
        *timeout_ms = (int)other_ms;
}

static int next_timeout(const struct batch_run *r, bool full, double now_ms) {
    int timeout = 1000;
    sooner(&timeout, batch_journal_due(r->journal, now_ms));
    sooner(&timeout, batch_progress_due(&r->progress, now_ms));
    if (r->server->rpc == NULL) {
        sooner(&timeout, r->reopen_ms > now_ms ? r->reopen_ms - now_ms + 1 : 0);
        return timeout;
    }
    for (uint32_t i = 0; i < r->concurrency; i++) {
        const struct batch_slot *s = &r->slots[i];
        if (s->state == SLOT_WAITING)
            sooner(&timeout, s->due_ms > now_ms ? s->due_ms - now_ms + 1 : FULL_MS);
    }
    if (full)
        sooner(&timeout, FULL_MS);
    return timeout;
}

/* Cancels what is with the server and takes the answers that were on their way. */
static void stop(struct batch_run *r) {
    struct err e;
    struct rpc_msg m;
    double deadline = clock_ms() + STOP_WAIT_MS;
    for (uint32_t i = 0; i < r->concurrency; i++) {
        struct buf frame = {0};
        if (r->slots[i].state != SLOT_SENT)
            continue;
        rpc_put_cancel(&frame, r->slots[i].rpc_id);
        server_send(r->server, &frame);
        buf_deinit(&frame);
    }
    while (r->n_sent > 0 && r->server->rpc != NULL && clock_ms() < deadline) {
        enum server_event event = server_next(r->server, &m, STOP_WAIT_MS, &e);
        if (event == SERVER_INTERRUPT)
            break;
        if (event != SERVER_MESSAGE)
            continue;
        struct batch_slot *s = slot_of(r, m.id);
        if (s != NULL && m.kind == RPC_DONE && finish_line(r, s, 200, m.body, &e) != 0)
            deadline = 0;
        else if (s != NULL && m.kind == RPC_ERROR)
            slot_free(r, s);
        rpc_msg_deinit(&m);
    }
}

static enum cli_exit fail(struct batch_run *r, const struct err *e) {
    batch_progress_note(&r->progress, "%s", e->msg);
    stop(r);
    return CLI_FAILED;
}

/* One turn: send, wait, take. -1 = go on, else the exit code. */
static int turn(struct batch_run *r) {
    struct err e;
    struct rpc_msg m;
    bool full = false;
    if (r->server->rpc == NULL && reopen(r) != 0)
        return CLI_NO_SERVER;
    double now_ms = clock_ms();
    if (r->server->rpc != NULL && send_due(r, now_ms, &full, &e) != 0)
        return fail(r, &e);
    if (r->n_busy == 0 && r->input_ended)
        return CLI_OK;
    batch_progress_show(&r->progress, now_ms);
    if (batch_journal_due(r->journal, now_ms) == 0 && batch_journal_sync(r->journal, &e) != 0)
        return fail(r, &e);
    enum server_event event = server_next(r->server, &m, next_timeout(r, full, now_ms), &e);
    if (event == SERVER_INTERRUPT) {
        stop(r);
        return CLI_INTERRUPTED;
    }
    if (event == SERVER_LOST)
        connection_lost(r, &e);
    if (event != SERVER_MESSAGE)
        return -1;
    int rc = take_message(r, &m, &e);
    rpc_msg_deinit(&m);
    return rc == 0 ? -1 : (int)fail(r, &e);
}

enum cli_exit batch_run_all(struct batch_run *r) {
    int code;
    do
        code = turn(r);
    while (code < 0);
    batch_progress_clear(&r->progress);
    return (enum cli_exit)code;
}
