/* Steps and blocks of the virtual device; its copies are in sim_copy.c. */
#include "cli/sim_device_impl.h"

#include "base/hash.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

#define SIM_PAUSE_NS 5000000u /* after a longer one a step is cold, as step_cost.h has it */

void sim_chain_add(struct sim_chain *c, int32_t id, uint32_t block_tokens)
{
    c->h = sim_chain_step(c->h, id, c->n);
    c->n++;
    if (c->n % block_tokens == 0) c->fold = sim_chain_fold(c->fold, c->h);
}

int32_t sim_chain_next(const struct sim_chain *c, uint64_t seed)
{
    return (int32_t)(rand_at(seed ^ c->h, c->fold ^ c->n) % SIM_VOCAB);
}

void sim_device_blame(struct sim_device *d, const char *what)
{
    if (d->bad == NULL) d->bad = what;
}

static bool make_memory(struct sim_device *d)
{
    const struct sim_device_config *c = &d->cfg;
    bool ok = true, hollow = c->model != NULL;
    d->content = mem_array(hollow ? 1 : (size_t)c->n_blocks * c->block_tokens, sizeof *d->content);
    d->host = mem_array(hollow ? 1 : (size_t)c->n_host * c->block_tokens + 1, sizeof *d->host);
    ok = d->content != NULL && d->host != NULL;
    for (int i = 0; i < SIM_STEPS; i++) {
        struct sim_step *s = &d->steps[i];
        s->spans = mem_array(c->max_spans, sizeof *s->spans);
        s->results = mem_array(c->max_spans, sizeof *s->results);
        s->tables = mem_array(hollow ? 1 : (size_t)c->max_spans * c->max_seq_blocks, sizeof *s->tables);
        ok = ok && s->spans != NULL && s->results != NULL && s->tables != NULL;
    }
    return ok;
}

struct sim_device *sim_device_create(const struct sim_device_config *cfg)
{
    assert(cfg->n_segments > 0 && cfg->block_tokens > 0 && cfg->n_blocks > 1);
    struct sim_device *d = mem_zalloc(sizeof *d);
    if (d == NULL) return NULL;
    d->cfg = *cfg;
    if (!make_memory(d)) sim_device_destroy(&d);
    return d;
}

void sim_device_destroy(struct sim_device **dp)
{
    struct sim_device *d = *dp;
    if (d == NULL) return;
    for (int i = 0; i < SIM_STEPS; i++) {
        mem_free(d->steps[i].spans);
        mem_free(d->steps[i].results);
        mem_free(d->steps[i].tables);
    }
    mem_free(d->content);
    mem_free(d->host);
    mem_free(d);
    *dp = NULL;
}

static struct sim_step *step_in(const struct sim_device *d, enum sim_step_state state)
{
    for (int i = 0; i < SIM_STEPS; i++)
        if (d->steps[i].state == state) return (struct sim_step *)(uintptr_t)&d->steps[i];
    return NULL;
}

struct sim_step *sim_step_find(const struct sim_device *d, uint64_t id)
{
    for (int i = 0; i < SIM_STEPS; i++)
        if (d->steps[i].state != SIM_FREE && d->steps[i].id == id)
            return (struct sim_step *)(uintptr_t)&d->steps[i];
    return NULL;
}

static uint64_t *cell(struct sim_device *d, const struct sim_step_span *sp, uint32_t pos)
{
    uint32_t k = pos / d->cfg.block_tokens;
    if (k >= sp->n_blocks || sp->blocks[k] == 0 || sp->blocks[k] >= d->cfg.n_blocks) {
        sim_device_blame(d, "a span's table does not cover its positions");
        return &d->content[0];
    }
    return &d->content[(size_t)sp->blocks[k] * d->cfg.block_tokens + pos % d->cfg.block_tokens];
}

static void shape_of(const struct sim_step *s, struct sim_shape *shape)
{
    memset(shape, 0, sizeof *shape);
    shape->s.cold = s->cold;
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const struct sim_step_span *sp = &s->spans[i];
        if (!sp->dropped) sim_shape_add(shape, sp->pos, sp->n, sp->sample ? 1 : 0);
    }
}

/* Cost of the live spans; a step without any costs nothing more. */
static uint64_t step_ns(const struct sim_device *d, const struct sim_step *s)
{
    if (d->cfg.model != NULL) {
        struct sim_shape shape;
        shape_of(s, &shape);
        uint64_t ns = s->n_live == 0 ? 0 : sim_model_ns(d->cfg.model, &shape);
        return d->cfg.live == NULL ? ns : (uint64_t)((double)ns * s->noise);
    }
    const struct sim_cost *c = &d->cfg.cost;
    uint64_t ns = c->step_ns, reads = 0, pairs = 0;
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const struct sim_step_span *sp = &s->spans[i];
        if (sp->dropped) continue;
        ns += c->token_ns * sp->n + (sp->sample ? c->row_ns : 0);
        reads += (uint64_t)sp->pos * ((sp->n + SIM_TILE - 1) / SIM_TILE);
        pairs += (uint64_t)sp->n * sp->pos + (uint64_t)sp->n * (sp->n + 1) / 2;
    }
    ns += reads * c->read_ns / 1000 + pairs * c->pair_ns / 1000;
    return s->n_live == 0 ? 0 : ns;
}

/* From `at` on the step runs at the cost of what is live now. */
static void leg_begin(const struct sim_device *d, struct sim_step *s, uint64_t at)
{
    s->leg_ns = at;
    s->leg_from = s->done;
    s->cost = step_ns(d, s);
}

static uint64_t boundary_ns(const struct sim_device *d, const struct sim_step *s, uint32_t k)
{
    return s->leg_ns + s->cost * (k - s->leg_from) / d->cfg.n_segments;
}

/* The segment that runs at `now`. */
static uint32_t segment_at(const struct sim_device *d, const struct sim_step *s, uint64_t now_ns)
{
    uint32_t k = s->leg_from;
    if (s->cost > 0) k += (uint32_t)((now_ns - s->leg_ns) * d->cfg.n_segments / s->cost);
    while (k > s->leg_from && boundary_ns(d, s, k) > now_ns) k--;
    while (k < d->cfg.n_segments && boundary_ns(d, s, k + 1) <= now_ns) k++;
    return k;
}

static void take_span(struct sim_device *d, struct sim_step *s, uint32_t i,
                      const struct worker_span *w, const struct sim_input *in)
{
    struct sim_step_span *sp = &s->spans[i];
    *sp = (struct sim_step_span){.slot = w->slot, .pos = w->pos, .n = w->n, .sample = w->sample};
    sp->drop_at = SIM_NO_SEGMENT;
    if (w->n == 0) sim_device_blame(d, "a span without positions");
    if (d->cfg.model != NULL) return;
    uint32_t *table = s->tables + (size_t)i * d->cfg.max_seq_blocks;
    sp->n_blocks = w->n_blocks;
    if (w->n_blocks > d->cfg.max_seq_blocks) {
        sim_device_blame(d, "a table is too long");
        sp->n_blocks = 0;
    }
    memcpy(table, w->blocks, sp->n_blocks * sizeof *table);
    sp->blocks = table;
    sp->ids = in->ids;
    sp->seed = in->seed;
    for (uint32_t p = w->pos; p < w->pos + w->n; p++) *cell(d, sp, p) = 0;
}

void sim_device_submit(struct sim_device *d, uint64_t now_ns, const struct worker_plan *plan,
                       const struct sim_input *in)
{
    struct sim_step *s = step_in(d, SIM_FREE);
    if (s == NULL || step_in(d, SIM_RUNNING) != NULL || plan->n_spans > d->cfg.max_spans ||
        plan->n_spans == 0) {
        sim_device_blame(d, "a step is submitted that the engine cannot take");
        return;
    }
    s->state = SIM_RUNNING;
    s->id = plan->step;
    s->rank = plan->rank != 0;
    s->n_spans = s->n_live = plan->n_spans;
    s->done = s->n_results = s->positions = 0;
    s->park_at = SIM_NO_SEGMENT;
    s->device_ns = 0;
    s->noise = 1;
    s->cold = now_ns - d->last_end_ns > SIM_PAUSE_NS;
    for (uint32_t i = 0; i < plan->n_spans; i++) {
        take_span(d, s, i, &plan->spans[i], in == NULL ? NULL : &in[i]);
        s->positions += plan->spans[i].n;
    }
    if (d->cfg.live != NULL) {
        uint32_t kind = sim_live_kind(&d->place, s->rank, s->positions, now_ns);
        s->noise = sim_live_ratio(d->cfg.live, d->cfg.seed, kind, d->n_steps[kind]++);
    }
    leg_begin(d, s, now_ns);
    s->first_cost = s->cost;
    d->stats.steps++;
}

void sim_device_park(struct sim_device *d, uint64_t now_ns, uint64_t step)
{
    struct sim_step *s = sim_step_find(d, step);
    if (s == NULL || s->state != SIM_RUNNING || step_in(d, SIM_PARKED) != NULL) {
        sim_device_blame(d, "a park of a step that does not run");
        return;
    }
    uint32_t k = segment_at(d, s, now_ns);
    if (s->park_at == SIM_NO_SEGMENT && k + 1 < d->cfg.n_segments) s->park_at = k + 1;
}

void sim_device_continue(struct sim_device *d, uint64_t now_ns, uint64_t step)
{
    struct sim_step *s = sim_step_find(d, step);
    if (s == NULL || s->state != SIM_PARKED || step_in(d, SIM_RUNNING) != NULL) {
        sim_device_blame(d, "a continue of a step that is not parked");
        return;
    }
    s->state = SIM_RUNNING;
    sim_live_continue(&d->place, s->rank);
    leg_begin(d, s, now_ns);
}

void sim_device_drop(struct sim_device *d, uint64_t now_ns, uint64_t step, uint32_t span)
{
    struct sim_step *s = sim_step_find(d, step);
    if (s == NULL || span >= s->n_spans || s->state == SIM_ENDED) {
        sim_device_blame(d, "a drop of a span that is not there");
        return;
    }
    struct sim_step_span *sp = &s->spans[span];
    if (sp->dropped || sp->drop_at != SIM_NO_SEGMENT) return;
    if (s->state == SIM_PARKED) {
        sp->drop_at = s->done;
        sp->drop_segment = s->done;
        s->leg_ns = now_ns;
        return;
    }
    uint32_t k = segment_at(d, s, now_ns);
    if (s->park_at <= k) k = s->park_at - 1; /* it is parked by now, who asks has not heard of it */
    if (k + 1 >= d->cfg.n_segments) return;
    sp->drop_at = k + 1;
    sp->drop_segment = k;
}

void sim_device_release(struct sim_device *d, uint64_t step)
{
    struct sim_step *s = sim_step_find(d, step);
    if (s == NULL || s->state != SIM_ENDED)
        sim_device_blame(d, "a release of a step that did not end");
    else
        s->state = SIM_FREE;
}

/* The next boundary at which a request takes effect, or the end. */
static uint32_t next_stop(const struct sim_device *d, const struct sim_step *s)
{
    uint32_t at = s->n_live == 0 ? s->done : d->cfg.n_segments;
    if (s->park_at < at) at = s->park_at;
    for (uint32_t i = 0; i < s->n_spans; i++)
        if (!s->spans[i].dropped && s->spans[i].drop_at < at) at = s->spans[i].drop_at;
    return at;
}

static uint64_t step_next_ns(const struct sim_device *d, const struct sim_step *s)
{
    if (s->state == SIM_RUNNING) return boundary_ns(d, s, next_stop(d, s));
    if (s->state != SIM_PARKED) return SIM_NEVER;
    return s->n_live == 0 || next_stop(d, s) <= s->done ? s->leg_ns : SIM_NEVER;
}

uint64_t sim_device_next_ns(const struct sim_device *d)
{
    uint64_t at = sim_copy_next_ns(d);
    for (int i = 0; i < SIM_STEPS; i++) {
        uint64_t t = step_next_ns(d, &d->steps[i]);
        if (t < at) at = t;
    }
    return at;
}

static int32_t sample(struct sim_device *d, const struct sim_step_span *sp, uint64_t h)
{
    struct sim_chain c = {.h = h, .n = sp->pos + sp->n};
    for (uint32_t end = d->cfg.block_tokens; end <= c.n; end += d->cfg.block_tokens) {
        uint64_t word = *cell(d, sp, end - 1);
        d->stats.stale_reads += word == 0;
        c.fold = sim_chain_fold(c.fold, word);
    }
    return sim_chain_next(&c, sp->seed);
}

static void compute(struct sim_device *d, struct sim_step *s)
{
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const struct sim_step_span *sp = &s->spans[i];
        if (sp->dropped) continue;
        if (d->cfg.model != NULL) {
            d->stats.positions += sp->n;
            s->results[s->n_results++] = (struct sim_result){
                .slot = sp->slot, .pos = sp->pos, .n = sp->n, .sampled = sp->sample};
            continue;
        }
        uint64_t h = sp->pos > 0 ? *cell(d, sp, sp->pos - 1) : 0;
        d->stats.stale_reads += sp->pos > 0 && h == 0;
        for (uint32_t p = sp->pos; p < sp->pos + sp->n; p++) {
            h = sim_chain_step(h, sp->ids[p], p);
            *cell(d, sp, p) = h;
        }
        d->stats.positions += sp->n;
        struct sim_result *r = &s->results[s->n_results++];
        *r = (struct sim_result){.slot = sp->slot, .pos = sp->pos, .n = sp->n};
        r->sampled = sp->sample;
        if (sp->sample) r->id = sample(d, sp, h);
    }
}

/* Time of the running step goes on to boundary k; what it took is booked. */
static void run_to(struct sim_device *d, struct sim_step *s, uint32_t k)
{
    uint64_t at = boundary_ns(d, s, k);
    s->device_ns += at - s->leg_ns;
    d->stats.rank_ns[s->rank] += at - s->leg_ns;
    s->done = k;
    leg_begin(d, s, at);
}

static void step_event(struct sim_device *d, struct sim_step *s, struct sim_event *out)
{
    uint32_t stop = next_stop(d, s);
    if (s->state == SIM_RUNNING) run_to(d, s, stop);
    *out = (struct sim_event){
        .at_ns = s->leg_ns, .id = s->id, .segments_done = s->done, .device_ns = s->device_ns};
    for (uint32_t i = 0; i < s->n_spans && s->n_live > 0; i++) {
        struct sim_step_span *sp = &s->spans[i];
        if (sp->dropped || sp->drop_at > s->done) continue;
        sp->dropped = true;
        s->n_live--;
        if (s->done > 0) d->stats.positions += sp->n;
        d->stats.drops++;
        out->kind = SIM_SPAN_DROPPED;
        out->span = i;
        out->segment_at_request = sp->drop_segment;
        leg_begin(d, s, s->leg_ns);
        return;
    }
    if (s->n_live > 0 && s->park_at <= s->done && s->done < d->cfg.n_segments) {
        out->kind = SIM_STEP_PARKED;
        out->segment_at_request = s->park_at - 1;
        s->state = SIM_PARKED;
        s->park_at = SIM_NO_SEGMENT;
        d->stats.parks++;
        return;
    }
    compute(d, s);
    s->state = SIM_ENDED;
    d->last_end_ns = d->place.end_ns = s->leg_ns;
    out->kind = SIM_STEP_END;
    out->results = s->results;
    out->n_results = s->n_results;
    sim_copy_kick(d, s->leg_ns);
}

bool sim_device_take(struct sim_device *d, uint64_t now_ns, struct sim_event *out)
{
    struct sim_step *first = NULL;
    uint64_t at = SIM_NEVER;
    for (int i = 0; i < SIM_STEPS; i++) {
        uint64_t t = step_next_ns(d, &d->steps[i]);
        if (t >= at) continue;
        at = t;
        first = &d->steps[i];
    }
    uint64_t copy = sim_copy_next_ns(d);
    if (copy <= at && copy <= now_ns) {
        sim_copy_event(d, out);
        return true;
    }
    if (at > now_ns) return false;
    step_event(d, first, out);
    return true;
}

bool sim_device_run_begin(const struct sim_device *d, struct sim_shape *shape, uint64_t *end_ns)
{
    const struct sim_step *s = step_in(d, SIM_RUNNING);
    if (s == NULL || d->cfg.model == NULL || s->n_live != s->n_spans) return false;
    if (d->cfg.live != NULL) return false;
    if (s->leg_from != 0 || s->device_ns != 0 || s->park_at != SIM_NO_SEGMENT) return false;
    for (uint32_t i = 0; i < s->n_spans; i++)
        if (s->spans[i].n != 1 || s->spans[i].drop_at != SIM_NO_SEGMENT) return false;
    shape_of(s, shape);
    *end_ns = s->leg_ns + s->cost;
    return true;
}

void sim_device_run(struct sim_device *d, uint32_t n, uint64_t ns, uint64_t end_ns, uint64_t step,
                    const struct sim_shape *shape)
{
    struct sim_step *s = step_in(d, SIM_RUNNING);
    assert(s != NULL && d->cfg.model != NULL && n > 0);
    d->stats.steps += n;
    d->stats.positions += (uint64_t)n * s->n_spans;
    d->stats.rank_ns[s->rank] += ns;
    d->last_end_ns = end_ns;
    for (uint32_t i = 0; i < s->n_spans; i++) s->spans[i].pos += n;
    s->id = step;
    s->cold = false;
    s->leg_ns = end_ns;
    s->cost = s->first_cost = sim_model_ns(d->cfg.model, shape);
}

uint64_t sim_device_running_ns(const struct sim_device *d, uint32_t *positions, uint8_t *rank)
{
    const struct sim_step *s = step_in(d, SIM_RUNNING);
    if (s == NULL) return 0;
    *positions = s->positions;
    *rank = s->rank;
    return s->first_cost;
}

uint32_t sim_device_segments(const struct sim_device *d)
{
    return d->cfg.n_segments;
}

void sim_device_stats(const struct sim_device *d, struct sim_device_stats *out)
{
    *out = d->stats;
}

const char *sim_device_bad(const struct sim_device *d)
{
    return d->bad;
}

struct worker_event sim_event_told(const struct sim_event *e)
{
    static const enum worker_event_kind kinds[] = {
        [SIM_STEP_END] = WE_STEP_END,
        [SIM_STEP_PARKED] = WE_STEP_PARKED,
        [SIM_SPAN_DROPPED] = WE_SPAN_DROPPED,
    };
    struct worker_event ev = {.kind = WE_COPY_END};
    if (e->kind == SIM_COPY_END) {
        ev.copy.id = e->id;
        ev.copy.ok = e->ok;
        ev.copy.device_ns = e->device_ns;
        return ev;
    }
    ev.kind = kinds[e->kind];
    ev.step.step = e->id;
    ev.step.span = e->span;
    ev.step.device_ns = e->device_ns;
    ev.step.segments_done = e->segments_done;
    ev.step.segment_at_request = e->segment_at_request;
    return ev;
}
