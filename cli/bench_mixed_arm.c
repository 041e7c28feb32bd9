/* bench_mixed_arm.c - see bench_mixed_arm.h. */
#include "cli/bench_mixed_arm.h"
#include "base/mem.h"
#include "cli/bench_stats.h"
#include "cli/clock.h"

#include <math.h>
#include <string.h>

#define REFUSED_MS 200.0
#define BROKEN_MS 100.0
#define IDLE_MS 20e3
#define PATH "/v1/completions"

static void on_done(struct http_call *call);

static int request_init(struct arm_request *r, struct arm *a, const struct ask *ask) {
    *r = (struct arm_request){.arm = a, .ask = *ask};
    if (ask_body(&r->body, a->style, ask) != 0)
        return -1;
    r->call = (struct http_call){
        .path = PATH, .body = r->body.p, .n_body = r->body.len, .done = on_done, .ctx = r};
    return 0;
}

static void request_deinit(struct arm_request *r) {
    buf_deinit(&r->body);
    http_call_deinit(&r->call);
    answer_deinit(&r->answer);
}

static int send(struct arm_request *r, struct err *e) {
    r->sends++;
    r->due_ms = 0;
    if (http_client_send(r->arm->client, &r->call, e) != 0)
        return -1;
    if (r->first_sent_ms == 0)
        r->first_sent_ms = r->call.sent_ms;
    return 0;
}

static void over(struct arm_request *r) {
    if (r->over)
        return;
    r->over = true;
    r->due_ms = 0;
    if (r->ask.batch)
        r->arm->batch_out_now--;
    else
        r->arm->rt_left--;
}

/* Did the stream come to its end? Looks at its last bytes only: reading it is for later. */
static bool ended_well(const struct http_call *c) {
    static const char end[] = "data: [DONE]\n\n";
    size_t n = sizeof(end) - 1;
    return c->status == 200 && c->complete && c->reply.len >= n &&
           memcmp(c->reply.p + c->reply.len - n, end, n) == 0;
}

static void on_done(struct http_call *call) {
    struct arm_request *r = call->ctx;
    double pause;
    if (ended_well(call)) {
        r->answers++;
        over(r);
        return;
    }
    bool refusal = call->status >= 400;
    if (refusal)
        r->refused++;
    else
        r->broken++;
    bool final = refusal && call->status < 500 && call->status != 429 && call->status != 408;
    bool returns = r->arm->return_once && r->sends == 1 && call->retry_after_s >= 0;
    if ((!r->ask.batch && !r->arm->again && !returns) || final) {
        over(r);
        return;
    }
    r->arm->rt_away += returns && !r->ask.batch;
    pause = !refusal                   ? BROKEN_MS
            : call->retry_after_s >= 0 ? call->retry_after_s * 1e3
                                       : REFUSED_MS;
    r->due_ms = clock_ms() + (pause < BROKEN_MS ? BROKEN_MS : pause);
}

static struct arm_request *new_batch(struct arm *a) {
    uint64_t i = a->n_batch;
    if (a->n_batch == a->cap_batch) {
        uint32_t cap = a->cap_batch == 0 ? 256 : a->cap_batch * 2;
        struct arm_request **p = mem_realloc(a->batch, cap * sizeof(*p));
        if (p == NULL)
            return NULL;
        a->batch = p;
        a->cap_batch = cap;
    }
    struct ask ask = {true, a->seed, i, a->batch_in, a->batch_out};
    if (!a->fixed) {
        ask.n_in = ask_length(a->length_seed, 2 * i, a->batch_in);
        ask.n_out = ask_length(a->length_seed, 2 * i + 1, a->batch_out);
    }
    struct arm_request *r = mem_zalloc(sizeof(*r));
    if (r == NULL || request_init(r, a, &ask) != 0) {
        if (r != NULL)
            request_deinit(r);
        mem_free(r);
        return NULL;
    }
    a->batch[a->n_batch++] = r;
    return r;
}

static int top_up(struct arm *a, struct err *e) {
    double now = clock_ms();
    if (a->batch_out_now < a->shortest)
        a->shortest = a->batch_out_now;
    while (a->batch_out_now < a->keep) {
        struct arm_request *r = new_batch(a);
        if (r == NULL)
            return err_set(e, ERR_NO_MEMORY, "no memory for batch requests");
        a->batch_out_now++;
        if (send(r, e) != 0)
            return -1;
    }
    /* Requests that are out are among the youngest; what is refused or broken is sent again. */
    uint32_t left = a->batch_out_now;
    for (uint32_t i = a->n_batch; i-- > 0 && left > 0;) {
        struct arm_request *r = a->batch[i];
        left -= !r->over;
        if (!r->over && r->due_ms > 0 && r->due_ms <= now && send(r, e) != 0)
            return -1;
    }
    return 0;
}

/* Sends the arrivals that are due; *at: when the next one is. */
static int arrivals(struct arm *a, uint32_t *next, double *at, struct err *e) {
    while (*next < a->plan->n) {
        struct arm_request *r = &a->rt[*next];
        double due = a->from_ms + a->plan->rows[*next].at_s * 1e3;
        if (clock_ms() < due) {
            *at = due < *at ? due : *at;
            break;
        }
        if (send(r, e) != 0)
            return -1;
        (*next)++;
    }
    for (uint32_t i = 0; (a->again || a->rt_away > 0) && i < *next; i++) {
        struct arm_request *r = &a->rt[i];
        if (r->over || r->due_ms <= 0 || clock_ms() < r->due_ms)
            continue;
        a->rt_away -= a->return_once;
        if (send(r, e) != 0)
            return -1;
    }
    return 0;
}

static int make_rt(struct arm *a, struct err *e) {
    uint32_t n = a->plan != NULL ? a->plan->n : 0;
    a->rt = mem_array(n + 1, sizeof(*a->rt));
    if (a->rt == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for real-time requests");
    for (uint32_t i = 0; i < n; i++) {
        struct ask ask = {false, a->seed, i, a->plan->rows[i].n_in, a->plan->rows[i].n_out};
        if (request_init(&a->rt[i], a, &ask) != 0)
            return err_set(e, ERR_NO_MEMORY, "no memory for real-time requests");
    }
    a->rt_left = n;
    return 0;
}

static int interrupted(const struct arm *a, struct err *e) {
    return a->stop != NULL && *a->stop ? err_set(e, ERR_CANCELLED, "interrupted") : 0;
}

static int warm(struct arm *a, struct err *e) {
    double until = clock_ms() + a->warm_s * 1e3;
    while (clock_ms() < until) {
        if (interrupted(a, e) != 0 || top_up(a, e) != 0)
            return -1;
        double step = clock_ms() + 20;
        http_client_turn(a->client, step < until ? step : until);
    }
    return 0;
}

static int play(struct arm *a, struct err *e) {
    double least = a->from_ms + a->seconds * 1e3;
    double last = a->from_ms + (a->plan != NULL ? load_plan_length_s(a->plan) * 1e3 : 0);
    uint32_t next = 0;
    while (a->rt_left > 0 || clock_ms() < least) {
        double now = clock_ms(), at = now + 50;
        if (interrupted(a, e) != 0)
            return -1;
        if (now > last + ARM_PATIENCE_S * 1e3 && now > least)
            break;
        if (least > now && least < at)
            at = least;
        if (a->plan != NULL && arrivals(a, &next, &at, e) != 0)
            return -1;
        if (top_up(a, e) != 0)
            return -1;
        if (a->watch != NULL && a->watch(a, (now - a->from_ms) / 1e3, e) != 0)
            return -1;
        http_client_turn(a->client, at);
    }
    return 0;
}

/* `--kill`: no more batch, but every answer of what there is. */
static int finish_batch(struct arm *a, struct err *e) {
    double until = clock_ms() + ARM_PATIENCE_S * 1e3;
    a->keep = 0;
    while (a->batch_out_now > 0 && clock_ms() < until) {
        if (interrupted(a, e) != 0 || top_up(a, e) != 0)
            return -1;
        http_client_turn(a->client, clock_ms() + 20);
    }
    return 0;
}

static void cancel_all(struct arm *a) {
    for (uint32_t i = 0; i < a->n_batch; i++)
        http_client_cancel(a->client, &a->batch[i]->call);
    for (uint32_t i = 0; a->plan != NULL && i < a->plan->n; i++)
        http_client_cancel(a->client, &a->rt[i].call);
}

static int read_answer(struct arm_request *r, struct err *e) {
    if (answer_read(&r->answer, &r->call) != 0)
        return err_set(e, ERR_NO_MEMORY, "cannot keep an answer: no memory");
    buf_deinit(&r->call.reply); /* many of them: only what they say is kept */
    mem_free(r->call.chunks);
    r->call.chunks = NULL;
    r->call.n_chunks = r->call.cap_chunks = 0;
    buf_deinit(&r->body);
    return 0;
}

static int read_all(struct arm *a, struct err *e) {
    for (uint32_t i = 0; i < a->n_batch; i++)
        if (read_answer(a->batch[i], e) != 0)
            return -1;
    for (uint32_t i = 0; a->plan != NULL && i < a->plan->n; i++)
        if (read_answer(&a->rt[i], e) != 0)
            return -1;
    return 0;
}

static void lateness(struct arm *a) {
    uint32_t n = a->plan != NULL ? a->plan->n : 0, sent = 0;
    double *v = mem_array(n + 1, sizeof(*v));
    for (uint32_t i = 0; v != NULL && i < n; i++)
        if (a->rt[i].sends > 0)
            v[sent++] = a->rt[i].first_sent_ms - (a->from_ms + a->plan->rows[i].at_s * 1e3);
    if (v != NULL) {
        stats_sort(v, sent);
        a->late_p99_ms = stats_quantile(v, sent, 0.99);
        a->late_max_ms = sent > 0 ? v[sent - 1] : 0;
    }
    mem_free(v);
}

int arm_run(struct arm *a, struct err *e) {
    int rc = make_rt(a, e) != 0 || warm(a, e) != 0 ||
             bench_counters_get(&a->counters[0], a->client, e) != 0;
    a->shortest = a->keep;
    a->from_ms = clock_ms();
    double cpu = bench_cpu_s(a->worker);
    rc = rc != 0 || play(a, e) != 0;
    a->to_ms = clock_ms();
    a->cpu_s = bench_cpu_s(a->worker) - cpu;
    rc = rc != 0 || (a->again && finish_batch(a, e) != 0) ||
         bench_counters_get(&a->counters[1], a->client, e) != 0;
    cancel_all(a);
    if (rc != 0)
        return -1;
    lateness(a);
    return read_all(a, e) != 0 || bench_server_quiet(a->client, IDLE_MS, e) != 0 ? -1 : 0;
}

void arm_deinit(struct arm *a) {
    if (a->client != NULL)
        cancel_all(a);
    for (uint32_t i = 0; a->rt != NULL && a->plan != NULL && i < a->plan->n; i++)
        request_deinit(&a->rt[i]);
    for (uint32_t i = 0; i < a->n_batch; i++) {
        request_deinit(a->batch[i]);
        mem_free(a->batch[i]);
    }
    mem_free(a->rt);
    mem_free(a->batch);
    a->rt = NULL;
    a->batch = NULL;
    a->n_batch = a->cap_batch = 0;
}

double arm_wall_s(const struct arm *a) {
    return (a->to_ms - a->from_ms) / 1e3;
}

double arm_busy_cpu(const struct arm *a) {
    return a->cpu_s / arm_wall_s(a);
}

double arm_busy_steps(const struct arm *a) {
    return (a->counters[1].busy_s - a->counters[0].busy_s) / arm_wall_s(a);
}

double arm_batch_tokens(const struct arm *a, double from_ms, double to_ms, bool prompts) {
    double sum = 0;
    for (uint32_t i = 0; i < a->n_batch; i++) {
        const struct answer *w = &a->batch[i]->answer;
        uint32_t before = 0, upto = 0;
        for (uint32_t k = 0; k < w->n_pieces && w->pieces[k].at_ms < to_ms; k++) {
            upto = w->pieces[k].tokens;
            if (w->pieces[k].at_ms < from_ms)
                before = upto;
        }
        sum += upto - before;
        if (prompts && upto > 0 && before == 0)
            sum += a->batch[i]->ask.n_in;
    }
    return sum;
}

double arm_batch_streams(const struct arm *a) {
    double sum = 0;
    for (uint32_t i = 0; i < a->n_batch; i++) {
        double first = answer_first_ms(&a->batch[i]->answer);
        double last = answer_last_ms(&a->batch[i]->answer);
        first = first < a->from_ms ? a->from_ms : first;
        last = last > a->to_ms ? a->to_ms : last;
        if (answer_first_ms(&a->batch[i]->answer) >= 0 && last > first)
            sum += last - first;
    }
    return sum / (a->to_ms - a->from_ms);
}

double arm_first_wait_ms(const struct arm_request *r) {
    if (!r->answer.whole)
        return INFINITY;
    return answer_first_ms(&r->answer) - r->first_sent_ms;
}
