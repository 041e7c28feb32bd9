/* event_text.c - see event_text.h and, for the format, event_log.h. */
#include "worker/event_text.h"

#include <inttypes.h>

static const char *event_name(enum worker_event_kind k) {
    static const char *const names[] = {[WE_SESSION_UP] = "session_up",
                                        [WE_SESSION_DOWN] = "session_down",
                                        [WE_SUBMIT] = "submit",
                                        [WE_CANCEL] = "cancel",
                                        [WE_GAP] = "gap",
                                        [WE_ACK] = "ack",
                                        [WE_STEP_END] = "step_end",
                                        [WE_STEP_PARKED] = "step_parked",
                                        [WE_SPAN_DROPPED] = "span_dropped",
                                        [WE_COPY_END] = "copy_end",
                                        [WE_DRAIN] = "drain",
                                        [WE_TICK] = "tick"};
    return names[k];
}

static const char *action_name(enum worker_action_kind k) {
    static const char *const names[] = {[WA_STEP_SUBMIT] = "step_submit",
                                        [WA_STEP_PARK] = "step_park",
                                        [WA_STEP_CONTINUE] = "step_continue",
                                        [WA_SPAN_DROP] = "span_drop",
                                        [WA_STEP_RELEASE] = "step_release",
                                        [WA_COPY] = "copy",
                                        [WA_TOKENS] = "tokens",
                                        [WA_FINISH] = "finish",
                                        [WA_SYNC] = "sync",
                                        [WA_FREE] = "free",
                                        [WA_EXIT] = "exit"};
    return names[k];
}

/* What the cache, the host tier and the planner start from; 17 digits bring a double back as it was.
 */
static void config_pool(struct buf *out, const struct worker_core_config *c) {
    buf_addf(out, ",\"n_host\":%u,\"max_copies\":%u,\"max_accounts\":%u,\"prefix_cache\":%s",
             c->pool.n_host, c->pool.max_copies, c->pool.max_accounts,
             c->pool.prefix_cache ? "true" : "false");
    buf_addf(out, ",\"debug_resume\":%u", c->debug_resume);
    buf_addf(out, ",\"n_segments\":%u,\"interference_permille\":%u,\"copy_ns\":%" PRIu64,
             c->n_segments, c->interference_permille, c->copy_ns);
    buf_adds(out, ",\"cost\":[");
    for (uint32_t i = 0; i < COST_FEATURES; i++)
        buf_addf(out, "%s%.17g", i > 0 ? "," : "", c->cost.start[i]);
    buf_addc(out, ']');
}

void event_text_config(struct buf *out, const struct worker_core_config *c) {
    buf_addf(out,
             "{\"config\":{\"max_slots\":%u,\"max_seqs\":%u,\"max_spans\":%u,\"max_tokens\":%u,"
             "\"max_rows\":%u,",
             c->max_slots, c->max_seqs, c->max_spans, c->max_tokens, c->max_rows);
    buf_addf(out,
             "\"prefill_chunk\":%u,\"n_ctx\":%u,\"n_blocks\":%u,\"block_tokens\":%u,\"max_seq_"
             "blocks\":%u,",
             c->prefill_chunk, c->n_ctx, c->pool.n_blocks, c->pool.block_tokens,
             c->pool.max_seq_blocks);
    buf_addf(out, "\"min_run\":%u,\"park_max_ns\":%" PRIu64 ",\"lost_realtime_ns\":%" PRIu64,
             c->min_run, c->park_max_ns, c->lost_realtime_ns);
    buf_addf(out, ",\"lost_batch_ns\":%" PRIu64 ",\"finish_repeat_ns\":%" PRIu64, c->lost_batch_ns,
             c->finish_repeat_ns);
    buf_addf(out, ",\"max_refs\":%u", c->max_refs);
    buf_addf(out, ",\"debug\":[%u,%u,%u,%u]", c->debug_preempt_every, c->debug_park_every,
             c->debug_drop_every, c->debug_pool_blocks);
    config_pool(out, c);
    buf_adds(out, ",\"classes\":[");
    for (uint32_t i = 0; i < c->classes.n; i++) {
        const struct class_row *r = &c->classes.rows[i];
        buf_addf(out, "%s[\"%s\",%u,%u,%d,%u,%u,%u]", i > 0 ? "," : "", r->name, r->rank, r->order,
                 r->preemptible, r->ttft_ms, r->tpot_ms, r->floor_permille);
    }
    buf_adds(out, "]}}\n");
}

static void add_link(struct buf *out, uint32_t gw, struct sub_id sub) {
    buf_addf(out, ",\"gw\":%u,\"sub\":[%" PRIu64 ",%" PRIu64 "]", gw, sub.incarnation, sub.counter);
}

static void add_submit(struct buf *out, const struct worker_event *ev,
                       const struct class_table *classes) {
    uint32_t rank = ev->submit.cls < classes->n ? classes->rows[ev->submit.cls].rank : 1;
    add_link(out, ev->gw, ev->sub);
    buf_addf(out, ",\"slot\":%" PRId64 ",\"class\":%u,\"rank\":%u,\"tag\":%" PRIu64,
             ev->submit.slot == WORKER_SLOT_NONE ? -1 : (int64_t)ev->submit.slot, ev->submit.cls,
             rank, ev->submit.tag);
    buf_addf(out, ",\"n_prompt\":%u,\"n_tokens\":%u,\"from\":%u,\"max_total\":%u,\"refused\":%s",
             ev->submit.n_prompt, ev->submit.n_tokens, ev->submit.from, ev->submit.max_total,
             ev->submit.refused ? "true" : "false");
    buf_addf(out, ",\"account\":%u,\"quota\":%u,\"ttft_ms\":%u,\"tpot_ms\":%u", ev->submit.account,
             ev->submit.quota, ev->submit.ttft_ms, ev->submit.tpot_ms);
    if (ev->submit.host_choice)
        buf_adds(out, ",\"host_choice\":true");
    if (ev->submit.ids == NULL)
        return;
    buf_addf(out, ",\"root\":[%" PRIu64 ",%" PRIu64 "],\"ids\":[", ev->submit.root.lo,
             ev->submit.root.hi);
    for (uint32_t i = 0; i < ev->submit.n_tokens; i++)
        buf_addf(out, "%s%d", i > 0 ? "," : "", (int)ev->submit.ids[i]);
    buf_addc(out, ']');
}

static void add_step(struct buf *out, const struct worker_event *ev) {
    buf_addf(out,
             ",\"step\":%" PRIu64
             ",\"segments_done\":%u,\"segment_at_request\":%u,\"device_ns\":%" PRIu64,
             ev->step.step, ev->step.segments_done, ev->step.segment_at_request,
             ev->step.device_ns);
    if (ev->kind == WE_SPAN_DROPPED)
        buf_addf(out, ",\"span\":%u", ev->step.span);
    if (ev->kind != WE_STEP_END)
        return;
    buf_addf(out, ",\"failed\":%s,\"tokens\":[", ev->step.failed ? "true" : "false");
    for (uint32_t i = 0; i < ev->step.n_tokens; i++) {
        const struct worker_token *t = &ev->step.tokens[i];
        buf_addf(out, "%s[%u,%d,\"%s\",%d]", i > 0 ? "," : "", t->slot, t->made,
                 finish_text(t->finish), (int)t->id);
    }
    buf_addc(out, ']');
}

void event_text_event(struct buf *out, const struct worker_event *ev,
                      const struct class_table *classes, uint64_t ns) {
    buf_addf(out, "{\"ns\":%" PRIu64 ",\"event\":\"%s\"", ns, event_name(ev->kind));
    switch (ev->kind) {
    case WE_SESSION_UP:
        buf_addf(out, ",\"gw\":%u,\"gateway\":%" PRIu64, ev->gw, ev->gateway);
        break;
    case WE_SESSION_DOWN: buf_addf(out, ",\"gw\":%u", ev->gw); break;
    case WE_SUBMIT: add_submit(out, ev, classes); break;
    case WE_CANCEL:
    case WE_ACK: add_link(out, ev->gw, ev->sub); break;
    case WE_GAP:
        add_link(out, ev->gw, ev->sub);
        buf_addf(out, ",\"from\":%u", ev->from);
        break;
    case WE_STEP_END:
    case WE_STEP_PARKED:
    case WE_SPAN_DROPPED: add_step(out, ev); break;
    case WE_COPY_END:
        buf_addf(out, ",\"copy\":%" PRIu64 ",\"ok\":%s,\"device_ns\":%" PRIu64, ev->copy.id,
                 ev->copy.ok ? "true" : "false", ev->copy.device_ns);
        break;
    case WE_DRAIN:
    case WE_TICK: break;
    }
    buf_adds(out, "}\n");
}

static void add_plan(struct buf *out, const struct worker_plan *p) {
    buf_addf(out, ",\"step\":%" PRIu64 ",\"rank\":%u,\"spans\":[", p->step, p->rank);
    for (uint32_t i = 0; i < p->n_spans; i++) {
        const struct worker_span *s = &p->spans[i];
        buf_addf(out, "%s[%u,%u,%u,%u,%u,%d", i > 0 ? "," : "", s->slot, s->pos, s->n,
                 s->score_from, s->score_to, s->sample);
        if (s->ref_step != 0) /* behind which step's span */
            buf_addf(out, ",%" PRIu64 ",%u", s->ref_step, s->ref_span);
        buf_addc(out, ']');
    }
    buf_addc(out, ']');
}

static void put_booked(struct buf *out, const struct worker_action *a) {
    buf_adds(out, ",\"booked_ns\":[");
    for (uint32_t i = 0; i < LEDGER_WORKER_N; i++)
        buf_addf(out, "%s%llu", i != 0 ? "," : "", (unsigned long long)a->booked_ns[i]);
    buf_adds(out, "]");
}

void event_text_action(struct buf *out, const struct worker_action *a, uint64_t ns) {
    buf_addf(out, "{\"ns\":%" PRIu64 ",\"action\":\"%s\"", ns, action_name(a->kind));
    switch (a->kind) {
    case WA_STEP_SUBMIT: add_plan(out, &a->plan); break;
    case WA_STEP_PARK:
    case WA_STEP_CONTINUE:
    case WA_STEP_RELEASE: buf_addf(out, ",\"step\":%" PRIu64, a->step); break;
    case WA_SPAN_DROP: buf_addf(out, ",\"step\":%" PRIu64 ",\"span\":%u", a->step, a->span); break;
    case WA_COPY:
        buf_addf(out, ",\"copy\":%" PRIu64 ",\"slot\":%u,\"to_host\":%d,\"block\":%u,\"host\":%u",
                 a->copy.id, a->slot, a->copy.to_host, a->copy.block, a->copy.host);
        break;
    case WA_TOKENS:
        add_link(out, a->gw, a->sub);
        buf_addf(out, ",\"slot\":%u,\"from\":%u,\"to\":%u,\"cached\":%u,\"preemptions\":%u,\"finish\":\"%s\"",
                 a->slot, a->from, a->to, a->cached, a->preemptions, finish_text(a->finish));
        if (a->finish != FINISH_NONE) put_booked(out, a);
        break;
    case WA_FINISH:
        add_link(out, a->gw, a->sub);
        buf_addf(out, ",\"finish\":\"%s\"", finish_text(a->finish));
        break;
    case WA_SYNC: buf_addf(out, ",\"gw\":%u", a->gw); break;
    case WA_FREE: buf_addf(out, ",\"slot\":%u", a->slot); break;
    case WA_EXIT: break;
    }
    buf_adds(out, "}\n");
}
