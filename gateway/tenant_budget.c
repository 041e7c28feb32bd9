/* tenant_budget.c - a tenant's limits in the gateway: reserve, charge, settle, wait, and what is said when
 * they are reached. The arithmetic is scheduler/token_budget.h. */
#include "gateway/tenants_priv.h"

#include "gateway/budget_file.h"
#include "gateway/class_choice.h"
#include "gateway/dispatch.h"
#include "gateway/usage.h"

#include <math.h>
#include <string.h>

#define LOOK_MS 100              /* the grain of the budget's window */
#define WAITERS_DEFAULT 1000u    /* where the tenant gives no queue-room */

static struct budget_time now(void)
{
    return (struct budget_time){gateway_now_ns(), gateway_wall_s()};
}

void tenant_set_limits(struct tenant *t, bool fresh)
{
    const struct tenant_line *l = &t->line;
    const struct token_limits limits = {
        .tokens_per_minute = (uint32_t)l->tokens_per_minute,
        .requests_per_minute = (uint32_t)l->requests_per_minute,
        .in_flight = (uint32_t)l->max_in_flight,
        .wait_ns = (uint64_t)(l->budget_wait_s * 1e9),
        .money_per_day_micro = (uint64_t)llround(l->money_per_day * 1e6),
        .prompt_price = (uint32_t)llround(l->prompt_price * 1e6),
        .output_price = (uint32_t)llround(l->output_price * 1e6),
    };
    if (fresh) token_budget_init(&t->budget, &limits);
    else token_budget_limits(&t->budget, &limits);
}

/* After each change, so that a death at any point leaves no less than is true. */
static void note(struct tenant *t, struct budget_time at)
{
    budget_file_note(t->noted, t->index, t->line.name, at, &t->budget);
}

void tenant_restore(struct gateway *g, struct tenant *t)
{
    struct budget_time at = now();
    struct usage_counts used;
    t->noted = g->budgets;
    usage_find(g->usage, t->line.name, &used);
    token_budget_spent(&t->budget, at, used.prompt + used.cached, used.output);
    /* a minute after the start nothing of the last process counts any more, least of all again */
    if (at.wall_s - g->started_wall_s <= 60)
        budget_file_restore(g->budgets, t->line.name, at, &t->budget);
    note(t, at);
}

/* ---- those who wait */

static void look_at(struct tenant *t)
{
    struct budget_waiter *w;
    struct budget_verdict v;
    while ((w = token_budget_next(&t->budget, now(), &v)) != NULL) {
        struct tenant_share *s = list_item(w, struct tenant_share, waiter);
        note(t, now());
        s->ready(s, &v);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct tenants *ts = timer->data;
    bool more = false;
    tenants_tell(ts);
    for (uint32_t i = 0; i < ts->high; i++) {
        struct tenant *t = ts->list[i];
        if (t == NULL || t->budget.n_waiters == 0) continue;
        tenant_hold(t); /* the last waiter's request may be its last reference */
        look_at(t);
        more = more || t->budget.n_waiters > 0;
        tenant_release(ts, &t);
    }
    if (more && !uv_is_active((uv_handle_t *)timer)) uv_timer_start(timer, on_timer, LOOK_MS, 0);
}

void tenants_look_soon(struct tenants *ts)
{
    if (ts->has_timer) uv_timer_start(&ts->timer, on_timer, 0, 0);
}

int tenants_timer_open(struct tenants *ts, struct err *e)
{
    if (uv_timer_init(ts->g->loop, &ts->timer) != 0)
        return err_set(e, ERR_IO, "cannot make a timer");
    ts->timer.data = ts;
    ts->has_timer = true;
    ts->open_handles = 1;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    ((struct tenants *)h->data)->open_handles--;
}

void tenants_timer_close(struct tenants *ts)
{
    if (!ts->has_timer) return;
    ts->has_timer = false;
    uv_close((uv_handle_t *)&ts->timer, on_closed);
    while (ts->open_handles > 0) uv_run(ts->g->loop, UV_RUN_ONCE);
}

void tenants_drain(struct tenants *ts)
{
    for (uint32_t i = 0; ts && i < ts->high; i++) {
        struct tenant *t = tenant_hold(ts->list[i]);
        while (t && t->budget.n_waiters > 0) {
            struct list *first = list_first(&t->budget.waiters);
            struct budget_waiter *w = list_item(first, struct budget_waiter, link);
            struct tenant_share *s = list_item(w, struct tenant_share, waiter);
            struct budget_verdict v = {BUDGET_OK, true, gateway_now_ns()};
            token_budget_unwait(&t->budget, w);
            s->ready(s, &v); /* goes on, and is refused by the dispatcher like any other */
        }
        tenant_release(ts, &t);
    }
}

/* ---- for requests */

void tenant_rules(const struct gateway *g, const struct key_grant *grant, struct api_rules *out)
{
    const struct tenant *t = grant->tenant;
    uint8_t all = class_all(&g->limits.classes);
    *out = (struct api_rules){.classes = all, .model_ok = true};
    if (t == NULL) return;
    out->classes = t->line.classes & grant->classes & all;
    if (out->classes == 0) out->classes = t->line.classes & all; /* the file changed meanwhile */
    out->model_ok = tenant_line_model(&t->line, g->limits.model_name);
    out->default_output = (uint32_t)t->line.default_output_tokens;
    out->max_output = (uint32_t)t->line.max_output_tokens;
}

static bool may_wait(const struct tenant *t, const struct budget_verdict *v)
{
    uint32_t room = t->line.queue_room ? (uint32_t)t->line.queue_room : WAITERS_DEFAULT;
    return t->budget.limits.wait_ns > 0 && v->why != BUDGET_TOO_LARGE && v->why != BUDGET_MONEY &&
           t->budget.n_waiters < room;
}

enum tenant_answer tenant_reserve(struct gateway *g, struct tenant *t, struct tenant_share *s,
                                  uint64_t prompt, uint64_t output, struct budget_verdict *v)
{
    if (t == NULL) return TENANT_GO;
    struct budget_time at = now();
    *v = token_budget_reserve(&t->budget, at, prompt, output, &s->lease);
    if (v->why == BUDGET_OK) {
        note(t, at);
        return TENANT_GO;
    }
    if (!may_wait(t, v)) return TENANT_REFUSED;
    s->waiter.lease = &s->lease;
    s->waiter.prompt = prompt;
    s->waiter.output = output;
    token_budget_wait(&t->budget, at, &s->waiter);
    if (!uv_is_active((uv_handle_t *)&g->tenants->timer))
        uv_timer_start(&g->tenants->timer, on_timer, LOOK_MS, 0);
    return TENANT_WAIT;
}

void tenant_charge(struct tenant *t, struct tenant_share *s, uint64_t prompt, uint64_t output)
{
    if (t == NULL || !s->lease.held) return;
    if (prompt > s->lease.prompt) prompt = s->lease.prompt;
    if (output > s->lease.output) output = s->lease.output;
    if (prompt + output == 0) return;
    struct budget_time at = now();
    token_budget_charge(&t->budget, at, &s->lease, prompt, output);
    note(t, at);
}

void tenant_settle(struct gateway *g, struct tenant *t, struct tenant_share *s)
{
    if (t == NULL) return;
    token_budget_unwait(&t->budget, &s->waiter);
    if (s->lease.held) {
        token_budget_settle(&t->budget, &s->lease);
        note(t, now());
    }
    /* not from here: this may be the middle of the dispatcher's own work */
    if (t->budget.n_waiters > 0) tenants_look_soon(g->tenants);
}

void tenant_take_back(struct gateway *g, struct tenant *t, struct tenant_share *s)
{
    if (t == NULL) return;
    if (s->lease.held) {
        token_budget_take_back(&t->budget, &s->lease);
        note(t, now());
    }
    tenant_settle(g, t, s);
}

void tenant_view(struct tenant *t, struct budget_view *v)
{
    token_budget_view(&t->budget, now(), v);
}

bool tenant_queue_full(const struct gateway *g, const struct tenant *t, uint32_t more)
{
    struct gateway_tenant_stats st;
    uint64_t queued = more;
    if (t == NULL || t->line.queue_room == 0) return false;
    dispatch_tenant_stats(g->dispatch, t->index, &st);
    for (uint32_t c = 0; c < CLASSES_MAX; c++) queued += st.queued[c];
    return queued > (uint64_t)t->line.queue_room;
}

void tenant_refusal(const struct tenant *t, const struct budget_verdict *v, uint32_t *retry_ms,
                    struct err *e)
{
    const struct token_limits *l = &t->budget.limits;
    uint64_t ms = budget_retry_after_ms(v, gateway_now_ns());
    *retry_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    switch (v->why) {
    case BUDGET_REQUESTS:
        err_set(e, ERR_RATE_REQUESTS, "Rate limit reached: %u requests per minute.",
                l->requests_per_minute);
        return;
    case BUDGET_IN_FLIGHT:
        err_set(e, ERR_RATE_REQUESTS, "Rate limit reached: %u requests at the same time.",
                l->in_flight);
        return;
    case BUDGET_MONEY:
        *retry_ms = 0;
        err_set(e, ERR_QUOTA, "The budget of this day is spent.");
        return;
    case BUDGET_TOO_LARGE:
        *retry_ms = 0;
        err_set(e, ERR_RATE_TOKENS,
                "The request may take more tokens than a whole minute allows (%u); make the prompt "
                "or max_tokens smaller.", l->tokens_per_minute);
        return;
    case BUDGET_TOKENS:
    case BUDGET_OK: break;
    }
    err_set(e, ERR_RATE_TOKENS, "Rate limit reached: %u tokens per minute.", l->tokens_per_minute);
}
