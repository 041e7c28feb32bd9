#include "tests/bench/virtual/vrecord.h"

#include "base/mem.h"

#include <string.h>

static void put32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, sizeof v);
}

static void put64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof v);
}

/* Field by field: pointers and padding say nothing. */
static void put_action(struct buf *b, const struct worker_action *a)
{
    put32(b, a->kind);
    put32(b, a->gw);
    put64(b, a->sub.incarnation);
    put64(b, a->sub.counter);
    put32(b, a->slot);
    put32(b, a->from);
    put32(b, a->to);
    put32(b, a->finish);
    put64(b, a->step);
    put32(b, a->span);
    put64(b, a->copy.id);
    put32(b, a->copy.to_host);
    put32(b, a->copy.block);
    put32(b, a->copy.host);
    put32(b, a->copy.priority);
    put64(b, a->copy.after_step);
    put64(b, a->plan.step);
    put32(b, a->plan.rank);
    put32(b, a->plan.n_spans);
    for (uint32_t i = 0; i < a->plan.n_spans; i++) {
        const struct worker_span *s = &a->plan.spans[i];
        put32(b, s->slot);
        put32(b, s->pos);
        put32(b, s->n);
        put32(b, s->score_from);
        put32(b, s->score_to);
        put32(b, s->sample);
        put32(b, s->n_blocks);
        buf_add(b, s->blocks, s->n_blocks * sizeof *s->blocks);
    }
}

void vrecord_event(void *ctx, const struct worker_event *ev, uint64_t now_ns,
                   const struct worker_action *actions, uint32_t n)
{
    struct vrecord *r = ctx;
    if (r->n == r->cap) {
        uint32_t cap = r->cap == 0 ? 4096 : 2 * r->cap;
        struct vrecord_event *more = mem_realloc(r->events, cap * sizeof *more);
        r->failed = r->failed || more == NULL;
        if (more == NULL) return;
        r->events = more;
        r->cap = cap;
    }
    struct vrecord_event *e = &r->events[r->n++];
    *e = (struct vrecord_event){.ev = *ev, .now_ns = now_ns, .actions_from = r->actions.len};
    e->ev.submit.ids = NULL;
    e->ev.step.tokens = NULL;
    if (ev->kind == WE_SUBMIT && ev->submit.ids != NULL) {
        e->ev.submit.ids = mem_memdup(ev->submit.ids, ev->submit.n_tokens * sizeof(int32_t));
        r->failed = r->failed || e->ev.submit.ids == NULL;
    }
    if (ev->kind == WE_STEP_END && ev->step.n_tokens > 0) {
        e->ev.step.tokens =
            mem_memdup(ev->step.tokens, ev->step.n_tokens * sizeof *ev->step.tokens);
        r->failed = r->failed || e->ev.step.tokens == NULL;
    }
    for (uint32_t i = 0; i < n; i++) put_action(&r->actions, &actions[i]);
    e->actions_to = r->actions.len;
}

static uint32_t feed(const struct vrecord *r, struct worker_core *core, struct worker_action *out,
                     struct buf *b)
{
    for (uint32_t i = 0; i < r->n; i++) {
        const struct vrecord_event *e = &r->events[i];
        uint32_t n = worker_core_handle(core, &e->ev, e->now_ns, out);
        buf_clear(b);
        for (uint32_t k = 0; k < n; k++) put_action(b, &out[k]);
        if (b->bad) return UINT32_MAX;
        size_t bytes = e->actions_to - e->actions_from;
        if (b->len != bytes ||
            (bytes > 0 && memcmp(b->p, r->actions.p + e->actions_from, bytes) != 0))
            return i;
    }
    return r->n;
}

uint32_t vrecord_replay(const struct vrecord *r, const struct worker_core_config *cfg)
{
    void *region = mem_zalloc(worker_core_bytes(cfg));
    struct worker_action *out = mem_array(worker_core_actions_max(cfg), sizeof *out);
    struct buf b;
    uint32_t at = UINT32_MAX;
    buf_init(&b, (size_t)1 << 40);
    if (region != NULL && out != NULL && !r->failed && !r->actions.bad)
        at = feed(r, worker_core_init(region, cfg), out, &b);
    buf_deinit(&b);
    mem_free(region);
    mem_free(out);
    return at;
}

void vrecord_deinit(struct vrecord *r)
{
    for (uint32_t i = 0; i < r->n; i++) {
        mem_free((void *)(uintptr_t)r->events[i].ev.submit.ids);
        mem_free((void *)(uintptr_t)r->events[i].ev.step.tokens);
    }
    mem_free(r->events);
    buf_deinit(&r->actions);
    memset(r, 0, sizeof *r);
}
