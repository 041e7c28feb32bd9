/* steps.c - see steps.h. */
#include "worker/steps.h"

#include "base/fault.h"
#include "base/mem.h"

#include <assert.h>

int steps_init(struct steps *s, struct engine *engine, struct seq_store *store,
               const struct vocab *vocab) {
    const struct engine_limits *l = engine_limits(engine);
    *s = (struct steps){.engine = engine,
                        .store = store,
                        .vocab = vocab,
                        .max_spans = l->max_spans,
                        .max_rows = l->max_rows};
    bool ok = true;
    for (int i = 0; i < ENGINE_STEPS_MAX; i++) {
        s->live[i].spans = mem_array(l->max_spans, sizeof(*s->live[i].spans));
        ok = ok && s->live[i].spans != NULL;
    }
    s->spans = mem_array(l->max_spans, sizeof(*s->spans));
    s->rows = mem_array(l->max_rows, sizeof(*s->rows));
    s->tokens = mem_array(l->max_spans, sizeof(*s->tokens));
    if (ok && s->spans != NULL && s->rows != NULL && s->tokens != NULL)
        return 0;
    steps_deinit(s);
    return -1;
}

void steps_deinit(struct steps *s) {
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        mem_free(s->live[i].spans);
    mem_free(s->spans);
    mem_free(s->rows);
    mem_free(s->tokens);
    *s = (struct steps){0};
}

static struct steps_live *find(struct steps *s, uint64_t id) {
    for (int i = 0; i < ENGINE_STEPS_MAX; i++)
        if (s->live[i].id == id)
            return &s->live[i];
    assert(!"no such step");
    return NULL;
}

/* Rows of one span, appended at `n_rows`; the row for index i is computed at input position i - 1.
 */
static uint32_t add_rows(struct steps *s, uint32_t span, struct steps_span *at, uint32_t n_rows) {
    const struct seq *seq = seq_store_get(s->store, at->slot);
    at->first_row = n_rows;
    if (!seq->logprobs)
        at->score_to = at->score_from;
    for (uint32_t i = at->score_from; i < at->score_to; i++) {
        assert(i > at->pos && i <= at->pos + at->n && i < seq->n_ids && n_rows < s->max_rows);
        s->rows[n_rows++] = (struct engine_row){.span = span,
                                                .index = i - 1 - at->pos,
                                                .kind = ENGINE_ROW_SCORE,
                                                .logprob = true,
                                                .n_top = seq->n_top,
                                                .target = seq->ids[i]};
    }
    if (at->sample) {
        assert(n_rows < s->max_rows);
        struct engine_row *r = &s->rows[n_rows++];
        *r = (struct engine_row){.span = span,
                                 .index = at->n - 1,
                                 .kind = ENGINE_ROW_SAMPLE,
                                 .logprob = seq->logprobs,
                                 .n_top = seq->n_top};
        seq_params(seq, at->pos + at->n, &r->params);
    }
    return n_rows;
}

/* Row of the span that makes this one's input: behind its scores. */
static uint32_t sample_row(struct steps *s, const struct worker_span *plan) {
    const struct steps_live *live = find(s, plan->ref_step);
    const struct steps_span *from = &live->spans[plan->ref_span];
    assert(plan->ref_span < live->n_spans && from->slot == plan->slot && from->sample);
    return from->first_row + (from->score_to - from->score_from);
}

static void add_span(struct steps *s, struct engine_span *out, struct steps_span *at,
                     const struct worker_span *plan) {
    struct seq *seq = seq_store_get(s->store, plan->slot);
    bool ref = plan->ref_step != 0; /* then the last id is a placeholder */
    assert(plan->n >= 1 && plan->pos + plan->n <= seq->n_ids + ref);
    assert(plan->pos + plan->n < seq->rules.max_total || !ref);
    *at = (struct steps_span){.slot = plan->slot,
                              .pos = plan->pos,
                              .n = plan->n,
                              .score_from = plan->score_from,
                              .score_to = plan->score_to,
                              .sample = plan->sample,
                              .ref = ref};
    *out = (struct engine_span){.seq = plan->slot,
                                .ids = seq->ids + plan->pos,
                                .n = plan->n,
                                .pos = plan->pos,
                                .blocks = plan->blocks,
                                .n_blocks = plan->n_blocks,
                                .ref_step = plan->ref_step,
                                .ref_row = ref ? sample_row(s, plan) : 0};
    if (plan->pos < seq->computed) {
        seq->preemptions++;
        if (fault_on(FAULT_STOP_LOST))
            seq->stop = seq->stop_before = (struct stopper){0};
        seq->computed = plan->pos; /* count a loss once, not for each chunk that makes it good */
    }
}

int steps_submit(struct steps *s, const struct worker_plan *plan) {
    struct steps_live *live = find(s, 0);
    assert(plan->step != 0 && plan->n_spans >= 1 && plan->n_spans <= s->max_spans);
    uint32_t n_rows = 0;
    live->id = plan->step;
    live->n_spans = plan->n_spans;
    for (uint32_t i = 0; i < plan->n_spans; i++) {
        add_span(s, &s->spans[i], &live->spans[i], &plan->spans[i]);
        n_rows = add_rows(s, i, &live->spans[i], n_rows);
    }
    struct engine_step step = {.id = plan->step,
                               .rank = plan->rank,
                               .spans = s->spans,
                               .n_spans = plan->n_spans,
                               .rows = s->rows,
                               .n_rows = n_rows};
    return engine_step_submit(s->engine, &step);
}

void steps_span_dropped(struct steps *s, uint64_t id, uint32_t span) {
    struct steps_live *live = find(s, id);
    assert(span < live->n_spans && !live->spans[span].dropped);
    live->spans[span].dropped = true;
}

void steps_drop_span(struct steps *s, uint64_t id, uint32_t span) {
    struct steps_live *live = find(s, id);
    assert(span < live->n_spans);
    live->spans[span].surplus = live->spans[span].ref;
    engine_step_drop_span(s->engine, id, span); /* -1: it has ended, its completion is on the way */
}

static struct worker_token collect_span(struct steps *s, uint64_t id, const struct steps_span *at) {
    struct seq *seq = seq_store_get(s->store, at->slot);
    struct worker_token t = {.slot = at->slot};
    uint32_t row = at->first_row;
    if (at->surplus)
        return t;
    for (uint32_t i = at->score_from; i < at->score_to; i++)
        seq_score(seq, i, engine_step_result(s->engine, id, row++));
    seq->computed = at->pos + at->n;
    if (at->sample) {
        t.made = true;
        t.id = engine_step_result(s->engine, id, row)->id;
        t.finish = seq_push(seq, s->vocab, at->pos + at->n, engine_step_result(s->engine, id, row));
    }
    return t;
}

const struct worker_token *steps_collect(struct steps *s, uint64_t id, bool failed, uint32_t *n) {
    const struct steps_live *live = find(s, id);
    *n = 0;
    for (uint32_t i = 0; !failed && i < live->n_spans; i++)
        if (!live->spans[i].dropped)
            s->tokens[(*n)++] = collect_span(s, id, &live->spans[i]);
    return s->tokens;
}

void steps_release(struct steps *s, uint64_t id) {
    struct steps_live *live = find(s, id);
    live->id = 0;
    live->n_spans = 0;
    engine_step_release(s->engine, id);
}
