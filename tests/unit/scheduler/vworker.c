#include "tests/unit/scheduler/vworker.h"

#include "base/hash.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define VW_IDS (VW_TABLE * VW_BT)
#define VW_STEPS 3
#define BAD(w, text) ((w)->bad = (w)->bad != NULL ? (w)->bad : (text))

uint64_t vw_token(uint64_t key, uint32_t index)
{
    return rand_at(key, index) | 1u;
}

/* What is stored at a position depends on the ids up to there: on the shared key within the shared
 * part, behind it on the request's own. */
static uint64_t vw_content(const struct vw_span *sp, uint32_t pos)
{
    uint64_t key = pos < sp->n_shared ? sp->shared_key : sp->key;
    return rand_at(key ^ 0x5bd1e995u, pos) | 1u;
}

static int32_t vw_id(const struct vw_seq *q, uint32_t index)
{
    return (int32_t)(vw_token(index < q->n_shared ? q->shared_key : q->key, index) & 0x7fffffffu);
}

void vw_init(struct vworker *w, struct worker_core *core, const struct worker_core_config *cfg,
             uint32_t n_segments)
{
    memset(w, 0, sizeof *w);
    w->core = core;
    w->max_slots = cfg->max_slots;
    w->max_tokens = cfg->max_tokens;
    w->max_rows = cfg->max_rows;
    w->n_segments = n_segments;
    w->n_host = cfg->pool.n_host;
    if (cfg->pool.n_host > VW_HOST || cfg->pool.max_copies > VW_COPIES) abort();
    if (cfg->max_slots > VW_SLOTS || cfg->max_spans > VW_SPANS || cfg->pool.n_blocks > VW_BLOCKS ||
        cfg->pool.max_seq_blocks > VW_TABLE || cfg->pool.block_tokens != VW_BT)
        abort();
}

static struct vw_step *vw_step(struct vworker *w, uint64_t id)
{
    for (int i = 0; i < VW_STEPS; i++) {
        if (w->steps[i].id == id && id != 0) return &w->steps[i];
    }
    BAD(w, "an action names a step that is not there");
    return NULL;
}

static struct vw_step *vw_running(const struct vworker *w)
{
    for (int i = 0; i < VW_STEPS; i++) {
        if (w->steps[i].id != 0 && !w->steps[i].parked && w->steps[i].behind == 0)
            return (struct vw_step *)(uintptr_t)&w->steps[i];
    }
    return NULL;
}

static struct vw_step *vw_parked(const struct vworker *w)
{
    for (int i = 0; i < VW_STEPS; i++) {
        if (w->steps[i].id != 0 && w->steps[i].parked)
            return (struct vw_step *)(uintptr_t)&w->steps[i];
    }
    return NULL;
}

static uint64_t *vw_cell(struct vworker *w, const struct vw_span *sp, uint32_t pos)
{
    uint32_t k = pos / VW_BT;
    if (k >= sp->n_blocks || sp->blocks[k] == 0 || sp->blocks[k] >= VW_BLOCKS) {
        BAD(w, "a span's table does not cover its positions");
        return &w->content[0][0];
    }
    return &w->content[sp->blocks[k]][pos % VW_BT];
}

/* A block that is being filled is nobody's yet; one that is being read must not change. */
static void vw_check_copies(struct vworker *w, const struct vw_span *sp)
{
    for (uint32_t i = 0; i < w->n_copies; i++) {
        const struct vw_copy *k = &w->copies[i];
        for (uint32_t b = 0; b < sp->n_blocks; b++) {
            if (sp->blocks[b] != k->block) continue;
            if (!k->to_host) BAD(w, "a span reads a block that a copy is filling");
            if ((b + 1) * VW_BT > sp->pos && b * VW_BT < sp->pos + sp->n)
                BAD(w, "a span writes a block that a copy is reading");
        }
    }
}

static void vw_take_span(struct vworker *w, struct vw_span *sp, const struct worker_span *s)
{
    memset(sp, 0, sizeof *sp);
    if (s->slot >= w->max_slots || !w->seqs[s->slot].used) {
        BAD(w, "a span names a free slot");
        return;
    }
    struct vw_seq *q = &w->seqs[s->slot];
    q->redone += s->pos == 0 && q->high > 0;
    sp->slot = s->slot;
    sp->pos = s->pos;
    sp->n = s->n;
    sp->score_from = s->score_from;
    sp->score_to = s->score_to;
    sp->sample = s->sample;
    sp->key = q->key;
    sp->shared_key = q->shared_key;
    sp->n_shared = q->n_shared;
    sp->n_blocks = s->n_blocks;
    if (s->n_blocks > VW_TABLE) BAD(w, "a table is too long");
    memcpy(sp->blocks, s->blocks, s->n_blocks * sizeof *s->blocks);
    sp->ref = s->ref_step != 0;
    sp->ref_span = s->ref_span;
    uint32_t known = q->n_tokens + sp->ref;
    if (s->n == 0 || s->pos + s->n > known) BAD(w, "a span computes unknown ids");
    if (sp->ref && (s->n != 1 || s->pos + s->n != known || !s->sample))
        BAD(w, "a reference is not the last input");
    if (s->sample && (s->pos + s->n != known || known >= q->max_total))
        BAD(w, "a span samples the wrong row");
    if (s->score_from < s->score_to &&
        (s->score_from != q->made || s->score_from <= s->pos || s->score_to > s->pos + s->n + 1 ||
         s->score_to > q->n_tokens))
        BAD(w, "a span scores the wrong indexes");
    vw_check_copies(w, sp);
    for (uint32_t p = s->pos; p < s->pos + s->n; p++) *vw_cell(w, sp, p) = 0; /* uncommitted */
}

/* Behind a running step: every span names one of it that samples for the same slot and goes on. */
static void vw_check_refs(struct vworker *w, const struct vw_step *src,
                          const struct worker_plan *plan)
{
    for (int i = 0; i < VW_STEPS; i++) {
        if (w->steps[i].id != 0 && w->steps[i].behind != 0) BAD(w, "two steps are queued");
    }
    if (src->rank != plan->rank) BAD(w, "a step is queued behind another rank's");
    for (uint32_t i = 0; i < plan->n_spans; i++) {
        const struct worker_span *s = &plan->spans[i];
        if (s->ref_step != src->id || s->ref_span >= src->n_spans) {
            BAD(w, "a step is submitted while one runs");
            continue;
        }
        const struct vw_span *from = &src->spans[s->ref_span];
        if (from->slot != s->slot || !from->sample || from->drop || from->gone)
            BAD(w, "a reference names what brings nothing");
        if (w->seqs[s->slot].host_choice) BAD(w, "one that the host must choose for is launched");
    }
}

static void vw_do_submit(struct vworker *w, const struct worker_plan *plan)
{
    struct vw_step *src = vw_running(w), *st = w->steps;
    while (st < w->steps + VW_STEPS && st->id != 0) st++;
    if (st == w->steps + VW_STEPS) {
        BAD(w, "a fourth step is submitted");
        return;
    }
    memset(st, 0, sizeof *st);
    if (src != NULL) vw_check_refs(w, src, plan);
    st->behind = src != NULL ? src->id : 0;
    w->launched += src != NULL;
    st->id = plan->step;
    st->rank = plan->rank;
    st->n_spans = plan->n_spans;
    uint32_t tokens = 0, rows = 0;
    if (plan->n_spans == 0 || plan->n_spans > VW_SPANS) {
        BAD(w, "a step without spans");
        return;
    }
    for (uint32_t i = 0; i < plan->n_spans; i++) {
        vw_take_span(w, &st->spans[i], &plan->spans[i]);
        tokens += plan->spans[i].n;
        rows += plan->spans[i].sample + plan->spans[i].score_to - plan->spans[i].score_from;
    }
    if (tokens > w->max_tokens || rows > w->max_rows) BAD(w, "a step is over its limits");
    w->submitted[plan->rank != 0]++;
    w->last_submit_rank = plan->rank;
    w->last_positions = tokens;
    w->last_spans = plan->n_spans;
}

static void vw_do_tokens(struct vworker *w, const struct worker_action *a)
{
    const struct vw_seq *q = &w->seqs[a->slot];
    if (!q->used || !sub_id_equal(q->sub, a->sub)) BAD(w, "tokens of a free slot are sent");
    if (a->from > a->to || (a->from < a->to && a->to > q->made))
        BAD(w, "tokens are sent that were not made");
    if (w->n_out < VW_OUT)
        w->out[w->n_out++] =
            (struct vw_msg){VW_TOKENS, a->gw, a->sub, q->key, a->from, a->to - a->from, a->finish};
    else
        BAD(w, "the test's out queue is too short");
}

static void vw_do_copy(struct vworker *w, const struct worker_action *a)
{
    if (w->n_copies == VW_COPIES || a->copy.block == 0 || a->copy.block >= VW_BLOCKS ||
        a->copy.host >= w->n_host) {
        BAD(w, "a copy of nothing, or one too many");
        return;
    }
    for (uint32_t i = 0; i < w->n_copies; i++) {
        const struct vw_copy *k = &w->copies[i];
        if (k->id == a->copy.id) BAD(w, "two copies of one name");
        if (k->host == a->copy.host && (k->to_host || a->copy.to_host))
            BAD(w, "a host slot is written while another copy uses it");
        if (k->block == a->copy.block && !(k->to_host && a->copy.to_host))
            BAD(w, "a block is filled while another copy uses it");
    }
    w->copies[w->n_copies++] = (struct vw_copy){.id = a->copy.id,
                                                .block = a->copy.block,
                                                .host = a->copy.host,
                                                .to_host = a->copy.to_host,
                                                .priority = a->copy.priority};
    for (uint32_t p = 0; p < VW_BT && !a->copy.to_host; p++) w->content[a->copy.block][p] = 0;
}

bool vw_end_copy(struct vworker *w, uint64_t now_ns, struct buf *trace)
{
    uint32_t at = 0;
    if (w->n_copies == 0 || w->hold_copies) return false;
    for (uint32_t i = 1; i < w->n_copies; i++) {
        if (w->copies[i].priority < w->copies[at].priority) at = i;
    }
    struct vw_copy k = w->copies[at];
    struct worker_event ev = {.kind = WE_COPY_END};
    ev.copy.id = k.id;
    ev.copy.ok = k.to_host || !w->fail_next_copy;
    ev.copy.device_ns = w->copy_ns;
    if (!k.to_host) w->fail_next_copy = false;
    memmove(&w->copies[at], &w->copies[at + 1], (w->n_copies - at - 1) * sizeof k);
    memset(&w->copies[--w->n_copies], 0, sizeof k);
    if (k.to_host)
        memcpy(w->host[k.host], w->content[k.block], sizeof w->host[0]);
    else if (ev.copy.ok)
        memcpy(w->content[k.block], w->host[k.host], sizeof w->host[0]);
    w->copied[k.to_host]++;
    vw_event(w, &ev, now_ns, trace);
    return true;
}

static void vw_do(struct vworker *w, const struct worker_action *a)
{
    struct vw_step *st;
    switch (a->kind) {
    case WA_STEP_SUBMIT: vw_do_submit(w, &a->plan); break;
    case WA_STEP_PARK:
        if ((st = vw_step(w, a->step)) == NULL) break;
        if (st->parked || vw_parked(w) != NULL) BAD(w, "a park beside a parked step");
        st->park_asked = 1;
        break;
    case WA_STEP_CONTINUE:
        if (vw_running(w) != NULL) BAD(w, "a step continues while one runs");
        if ((st = vw_step(w, a->step)) == NULL) break;
        if (!st->parked) BAD(w, "a step continues that is not parked");
        st->parked = 0;
        w->continues++;
        break;
    case WA_SPAN_DROP:
        if ((st = vw_step(w, a->step)) == NULL) break;
        if (a->span >= st->n_spans || st->spans[a->span].drop)
            BAD(w, "a drop of no span, or twice");
        st->spans[a->span].drop = 1;
        break;
    case WA_STEP_RELEASE:
        for (int i = 0; i < VW_STEPS; i++) {
            if (w->steps[i].id == a->step) BAD(w, "a step in flight is released");
        }
        break;
    case WA_TOKENS: vw_do_tokens(w, a); break;
    case WA_FINISH:
        w->out[w->n_out++] = (struct vw_msg){VW_TOKENS, a->gw, a->sub, 0, 0, 0, a->finish};
        break;
    case WA_SYNC: w->out[w->n_out++] = (struct vw_msg){.kind = VW_SYNC, .gw = a->gw}; break;
    case WA_FREE:
        if (!w->seqs[a->slot].used) BAD(w, "a free slot is freed");
        for (int i = 0; i < VW_STEPS; i++) {
            for (uint32_t k = 0; w->steps[i].id != 0 && k < w->steps[i].n_spans; k++) {
                if (w->steps[i].spans[k].slot == a->slot && !w->steps[i].spans[k].gone)
                    BAD(w, "a slot in flight is freed");
            }
        }
        memset(&w->seqs[a->slot], 0, sizeof w->seqs[a->slot]);
        break;
    case WA_COPY: vw_do_copy(w, a); break;
    case WA_EXIT: w->exited = true; break;
    }
}

static void vw_trace(struct buf *trace, const struct worker_action *a)
{
    struct worker_action copy;
    memcpy(&copy, a, sizeof copy);
    copy.plan.spans = NULL;
    buf_add(trace, &copy, sizeof copy);
    for (uint32_t i = 0; a->kind == WA_STEP_SUBMIT && i < a->plan.n_spans; i++) {
        struct worker_span sp;
        memcpy(&sp, &a->plan.spans[i], sizeof sp);
        buf_add(trace, sp.blocks, sp.n_blocks * sizeof *sp.blocks);
        sp.blocks = NULL;
        buf_add(trace, &sp, sizeof sp);
    }
}

/* [now][event without pointers][tokens][n ids][ids]([n actions][actions]) */
static void vw_trace_event(struct buf *trace, const struct worker_event *ev, uint64_t now_ns)
{
    struct worker_event copy;
    memcpy(&copy, ev, sizeof copy);
    uint32_t n_ids = ev->submit.ids != NULL ? ev->submit.n_tokens : 0;
    copy.step.tokens = NULL;
    copy.submit.ids = NULL;
    buf_add(trace, &now_ns, sizeof now_ns);
    buf_add(trace, &copy, sizeof copy);
    buf_add(trace, ev->step.tokens, ev->step.n_tokens * sizeof *ev->step.tokens);
    buf_add(trace, &n_ids, sizeof n_ids);
    buf_add(trace, ev->submit.ids, n_ids * sizeof *ev->submit.ids);
}

static void vw_take(const char **at, void *out, size_t n)
{
    memcpy(out, *at, n);
    *at += n;
}

bool vw_replay(struct worker_core *core, const struct buf *trace, size_t from, uint32_t *events)
{
    static struct worker_action acts[6 * VW_SLOTS + 64];
    const char *at = trace->p + from, *end = trace->p + trace->len;
    struct buf again;
    bool same = true;
    buf_init(&again, 0);
    for (*events = 0; at < end && same; (*events)++) {
        struct worker_event ev;
        struct worker_token tokens[VW_SPANS];
        int32_t ids[VW_IDS];
        uint64_t now_ns;
        uint32_t n_recorded, n_ids;
        vw_take(&at, &now_ns, sizeof now_ns);
        vw_take(&at, &ev, sizeof ev);
        vw_take(&at, tokens, ev.step.n_tokens * sizeof *tokens);
        vw_take(&at, &n_ids, sizeof n_ids);
        vw_take(&at, ids, n_ids * sizeof *ids);
        vw_take(&at, &n_recorded, sizeof n_recorded);
        ev.submit.ids = n_ids > 0 ? ids : NULL;
        ev.step.tokens = tokens;
        uint32_t n = worker_core_handle(core, &ev, now_ns, acts);
        buf_clear(&again);
        for (uint32_t i = 0; i < n; i++) vw_trace(&again, &acts[i]);
        same = n == n_recorded && (size_t)(end - at) >= again.len &&
               (again.len == 0 || memcmp(at, again.p, again.len) == 0);
        at += again.len;
    }
    buf_deinit(&again);
    return same;
}

void vw_event(struct vworker *w, const struct worker_event *ev, uint64_t now_ns, struct buf *trace)
{
    static struct worker_action acts[6 * VW_SLOTS + 64];
    if (trace != NULL) vw_trace_event(trace, ev, now_ns);
    uint32_t n = worker_core_handle(w->core, ev, now_ns, acts);
    if (trace != NULL) buf_add(trace, &n, sizeof n);
    for (uint32_t i = 0; i < n; i++) {
        if (trace != NULL) vw_trace(trace, &acts[i]);
        vw_do(w, &acts[i]);
    }
    const char *bad = worker_core_check(w->core);
    if (bad != NULL) BAD(w, bad);
}

void vw_submit(struct vworker *w, uint32_t gw, struct sub_id sub, const struct vw_submit *s,
               uint64_t now_ns, struct buf *trace)
{
    struct worker_event ev = {.kind = WE_SUBMIT, .gw = gw, .sub = sub};
    ev.submit.slot = WORKER_SLOT_NONE;
    for (uint32_t i = 0; i < w->max_slots && ev.submit.slot == WORKER_SLOT_NONE; i++) {
        if (!w->seqs[i].used) ev.submit.slot = i;
    }
    int32_t ids[VW_IDS];
    struct vw_seq q = {.used = true,
                       .sub = sub,
                       .key = s->key,
                       .n_tokens = s->n_tokens,
                       .made = s->from,
                       .max_total = s->max_total,
                       .stop_at = s->stop_at,
                       .shared_key = s->shared_key,
                       .n_shared = s->n_shared,
                       .host_choice = s->host_choice};
    if (ev.submit.slot != WORKER_SLOT_NONE) w->seqs[ev.submit.slot] = q;
    if (s->scope != 0 && s->n_tokens <= VW_IDS) {
        for (uint32_t i = 0; i < s->n_tokens; i++) ids[i] = vw_id(&q, i);
        ev.submit.ids = ids;
        ev.submit.root = (struct hash128){s->scope, 1};
    }
    ev.submit.account = s->account;
    ev.submit.quota = s->quota;
    ev.submit.tpot_ms = s->tpot_ms;
    ev.submit.n_prompt = s->n_prompt;
    ev.submit.n_tokens = s->n_tokens;
    ev.submit.from = s->from;
    ev.submit.max_total = s->max_total;
    ev.submit.cls = s->cls;
    ev.submit.tag = s->tag;
    ev.submit.refused = s->refused;
    ev.submit.host_choice = s->host_choice;
    vw_event(w, &ev, now_ns, trace);
}

void vw_link(struct vworker *w, enum worker_event_kind kind, uint32_t gw, struct sub_id sub,
             uint32_t from, uint64_t now_ns, struct buf *trace)
{
    struct worker_event ev = {.kind = kind, .gw = gw, .sub = sub, .from = from};
    vw_event(w, &ev, now_ns, trace);
}

void vw_up(struct vworker *w, uint32_t gw, uint64_t gateway, uint64_t now_ns, struct buf *trace)
{
    struct worker_event ev = {.kind = WE_SESSION_UP, .gw = gw, .gateway = gateway};
    vw_event(w, &ev, now_ns, trace);
}

/* One span's end: it must have read what earlier steps wrote, and now its own positions are good.
 */
static struct worker_token vw_span_end(struct vworker *w, struct vw_span *sp)
{
    struct worker_token t = {.slot = sp->slot};
    struct vw_seq *q = &w->seqs[sp->slot];
    if (sp->ref && sp->drop) { /* the drop came too late, but what it made is ignored */
        w->surplus++;
        w->computed += sp->n;
        return t;
    }
    for (uint32_t p = 0; p < sp->pos; p++) {
        if (*vw_cell(w, sp, p) != vw_content(sp, p))
            BAD(w, "a span read a position that is not there");
    }
    for (uint32_t p = sp->pos; p < sp->pos + sp->n; p++) *vw_cell(w, sp, p) = vw_content(sp, p);
    w->computed += sp->n;
    if (sp->pos + sp->n > q->high) q->high = sp->pos + sp->n;
    if (sp->score_to > q->made) q->made = sp->score_to;
    if (!sp->sample) return t;
    t.made = true;
    t.id = vw_id(q, q->n_tokens);
    q->n_tokens++;
    q->made = q->n_tokens;
    if (q->stop_at != 0 && q->n_tokens == q->stop_at + 1)
        t.finish = FINISH_EOS;
    else if (q->n_tokens == q->max_total)
        t.finish = FINISH_LENGTH;
    return t;
}

static struct vw_step *vw_behind(struct vworker *w, uint64_t id)
{
    for (int i = 0; i < VW_STEPS; i++) {
        if (w->steps[i].id != 0 && w->steps[i].behind == id) return &w->steps[i];
    }
    return NULL;
}

static void vw_dropped(struct vworker *w, uint64_t step, uint32_t span, uint64_t now_ns,
                       struct buf *trace)
{
    struct worker_event ev = {.kind = WE_SPAN_DROPPED};
    ev.step.step = step;
    ev.step.span = span;
    vw_event(w, &ev, now_ns, trace);
}

static void vw_end(struct vworker *w, struct vw_step *st, uint64_t now_ns, struct buf *trace);

static void vw_drop_behind(struct vworker *w, uint64_t id, uint64_t now_ns, struct buf *trace)
{
    struct vw_step *st = vw_behind(w, id);
    for (uint32_t i = 0; st != NULL && i < st->n_spans; i++) {
        if (st->spans[i].gone) continue;
        st->spans[i].gone = 1;
        vw_dropped(w, st->id, i, now_ns, trace);
    }
    if (st != NULL) vw_end(w, st, now_ns, trace);
}

static void vw_end(struct vworker *w, struct vw_step *st, uint64_t now_ns, struct buf *trace)
{
    struct worker_token tokens[VW_SPANS];
    struct worker_event ev = {.kind = WE_STEP_END};
    ev.step.step = st->id;
    ev.step.failed = w->fail_next_step;
    w->fail_next_step = false;
    ev.step.tokens = tokens;
    ev.step.device_ns = w->step_ns;
    for (uint32_t i = 0; i < st->n_spans; i++) {
        ev.step.device_ns += w->token_ns * st->spans[i].n;
        if (st->spans[i].gone) continue;
        w->late_drops += st->spans[i].drop;
        if (!ev.step.failed) tokens[ev.step.n_tokens++] = vw_span_end(w, &st->spans[i]);
    }
    uint64_t id = st->id;
    if (ev.step.failed) vw_drop_behind(w, id, now_ns, trace); /* no input will come */
    memset(st, 0, sizeof *st);
    if (vw_behind(w, id) != NULL && !ev.step.failed) vw_behind(w, id)->behind = 0;
    vw_event(w, &ev, now_ns, trace);
    if (ev.step.failed) vw_drop_behind(w, id, now_ns, trace); /* launched after its source failed */
}

static bool vw_confirm_drop(struct vworker *w, struct vw_step *st, uint64_t now_ns,
                            struct buf *trace)
{
    for (uint32_t i = 0; i < st->n_spans; i++) {
        struct vw_span *sp = &st->spans[i];
        if (!sp->drop || sp->gone) continue;
        sp->gone = 1;
        w->drops++;
        vw_dropped(w, st->id, i, now_ns, trace);
        return true;
    }
    return false;
}

/* What waits for a step loses a span at once, and ends with the last one. */
static bool vw_advance_queued(struct vworker *w, uint64_t now_ns, struct buf *trace)
{
    for (int i = 0; i < VW_STEPS; i++) {
        struct vw_step *st = &w->steps[i];
        uint32_t live = 0;
        if (st->id == 0 || st->behind == 0) continue;
        if (vw_confirm_drop(w, st, now_ns, trace)) return true;
        for (uint32_t k = 0; k < st->n_spans; k++) live += !st->spans[k].gone;
        if (live > 0) continue;
        vw_end(w, st, now_ns, trace);
        return true;
    }
    return false;
}

bool vw_busy(const struct vworker *w)
{
    if (vw_running(w) != NULL || (w->n_copies > 0 && !w->hold_copies)) return true;
    const struct vw_step *st = vw_parked(w);
    for (uint32_t i = 0; st != NULL && i < st->n_spans; i++) {
        if (st->spans[i].drop && !st->spans[i].gone) return true;
    }
    for (int k = 0; k < VW_STEPS; k++) { /* queued behind a parked one: its drops, and its end */
        st = &w->steps[k];
        uint32_t live = 0;
        for (uint32_t i = 0; st->id != 0 && st->behind != 0 && i < st->n_spans; i++) {
            if (st->spans[i].drop && !st->spans[i].gone) return true;
            live += !st->spans[i].gone;
        }
        if (st->id != 0 && st->behind != 0 && live == 0) return true;
    }
    return false;
}

bool vw_advance(struct vworker *w, uint64_t now_ns, struct buf *trace)
{
    struct vw_step *st = vw_parked(w);
    if (st != NULL && vw_confirm_drop(w, st, now_ns, trace)) return true;
    if (vw_advance_queued(w, now_ns, trace)) return true;
    st = vw_running(w);
    if (st == NULL) return vw_end_copy(w, now_ns, trace);
    if (w->n_copies > 0 && ++w->copy_turn % 2 == 0) (void)vw_end_copy(w, now_ns, trace);
    if ((st = vw_running(w)) == NULL) return true;
    if (st->segments + 1 >= w->n_segments) { /* what was asked in the last segment comes too late */
        vw_end(w, st, now_ns, trace);
        return true;
    }
    if (st->segments > 0 && vw_confirm_drop(w, st, now_ns, trace)) return true;
    st->segments++;
    if (st->park_asked) {
        st->park_asked = 0;
        st->parked = 1;
        w->parks++;
        struct worker_event ev = {.kind = WE_STEP_PARKED};
        ev.step.step = st->id;
        ev.step.segments_done = st->segments;
        vw_event(w, &ev, now_ns, trace);
    }
    return true;
}

uint32_t vw_used(const struct vworker *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->max_slots; i++) n += w->seqs[i].used;
    return n;
}

const char *vw_check(const struct vworker *w)
{
    return w->bad != NULL ? w->bad : worker_core_check(w->core);
}
