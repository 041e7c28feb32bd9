#include "tests/unit/worker/event_replay.h"

#include "base/mem.h"
#include "worker/event_text.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPANS_MAX 64

struct replay {
    struct worker_core_config cfg;
    struct worker_core *core;
    struct worker_action *actions;
    int32_t *ids; /* of the submission at hand */
    struct worker_token tokens[SPANS_MAX];
    struct buf expected; /* the actions of the last event, as lines */
    uint32_t events;
};

/* The value behind "name": in a line of the log; `none` when it is not there. */
static uint64_t value(const char *line, const char *name, uint64_t none) {
    char key[40];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(line, key);
    if (at == NULL)
        return none;
    at += strlen(key);
    return *at == '-' ? none : strncmp(at, "true", 4) == 0 ? 1 : strtoull(at, NULL, 10);
}

static void read_cost(struct worker_core_config *c, const char *line) {
    double start[COST_FEATURES];
    char *at = strstr(line, "\"cost\":[");
    ck_assert_ptr_nonnull(at);
    at += 7;
    for (uint32_t i = 0; i < COST_FEATURES; i++)
        start[i] = strtod(at + 1, &at);
    ck_assert_int_eq(*at, ']');
    step_cost_init(&c->cost, start);
}

static void read_config(struct replay *r, const char *line) {
    struct worker_core_config *c = &r->cfg;
    c->max_slots = (uint32_t)value(line, "max_slots", 0);
    c->max_seqs = (uint32_t)value(line, "max_seqs", 0);
    c->max_spans = (uint32_t)value(line, "max_spans", 0);
    c->max_tokens = (uint32_t)value(line, "max_tokens", 0);
    c->max_rows = (uint32_t)value(line, "max_rows", 0);
    c->prefill_chunk = (uint32_t)value(line, "prefill_chunk", 0);
    c->n_ctx = (uint32_t)value(line, "n_ctx", 0);
    c->pool.n_blocks = (uint32_t)value(line, "n_blocks", 0);
    c->pool.block_tokens = (uint32_t)value(line, "block_tokens", 0);
    c->pool.max_seq_blocks = (uint32_t)value(line, "max_seq_blocks", 0);
    c->min_run = (uint32_t)value(line, "min_run", 0);
    c->park_max_ns = value(line, "park_max_ns", 0);
    c->lost_realtime_ns = value(line, "lost_realtime_ns", 0);
    c->lost_batch_ns = value(line, "lost_batch_ns", 0);
    c->finish_repeat_ns = value(line, "finish_repeat_ns", 0);
    const char *debug = strstr(line, "\"debug\":[");
    ck_assert_ptr_nonnull(debug);
    sscanf(debug, "\"debug\":[%u,%u,%u,%u]", &c->debug_preempt_every, &c->debug_park_every,
           &c->debug_drop_every, &c->debug_pool_blocks);
    c->pool.n_host = (uint32_t)value(line, "n_host", 0);
    c->pool.max_copies = (uint32_t)value(line, "max_copies", 0);
    c->pool.max_accounts = (uint32_t)value(line, "max_accounts", 0);
    c->pool.prefix_cache = value(line, "prefix_cache", 0) != 0;
    c->debug_resume = (uint32_t)value(line, "debug_resume", 0);
    c->n_segments = (uint32_t)value(line, "n_segments", 0);
    c->max_refs = (uint32_t)value(line, "max_refs", 0);
    c->interference_permille = (uint32_t)value(line, "interference_permille", 0);
    c->copy_ns = value(line, "copy_ns", 0);
    read_cost(c, line);
    class_table_default(&c->classes);
    ck_assert_uint_le(c->max_spans, SPANS_MAX);
    r->core = worker_core_init(mem_zalloc(worker_core_bytes(c)), c);
    r->ids = mem_array(c->n_ctx, sizeof(*r->ids));
    r->actions = mem_array(worker_core_actions_max(c), sizeof(*r->actions));
}

static enum worker_event_kind read_kind(const char *line) {
    static const char *const names[] = {"session_up",   "session_down", "submit",   "cancel",
                                        "gap",          "ack",          "step_end", "step_parked",
                                        "span_dropped", "copy_end",     "drain",    "tick"};
    const char *at = strstr(line, "\"event\":\"") + 9;
    for (int i = 0; i < 12; i++)
        if (strncmp(at, names[i], strlen(names[i])) == 0 && at[strlen(names[i])] == '"')
            return (enum worker_event_kind)i;
    ck_abort_msg("unknown event: %s", line);
    return WE_TICK;
}

static void read_tokens(struct replay *r, const char *line, struct worker_event *ev) {
    const char *at = strstr(line, "\"tokens\":[");
    if (at == NULL)
        return;
    unsigned slot, made;
    int id;
    char finish[16];
    for (at += 10; sscanf(at, "[%u,%u,\"%15[a-z_]\",%d]", &slot, &made, finish, &id) == 4;) {
        r->tokens[ev->step.n_tokens++] = (struct worker_token){
            .slot = slot, .made = made != 0, .id = id, .finish = (enum finish)finish_parse(finish)};
        at = strchr(at, ']') + 1;
        at += *at == ',';
    }
    ev->step.tokens = r->tokens;
}

static void read_ids(struct replay *r, const char *line, struct worker_event *ev) {
    unsigned long long lo, hi;
    const char *root = strstr(line, "\"root\":["), *ids = strstr(line, "\"ids\":[");
    if (root == NULL || ids == NULL)
        return;
    ck_assert_int_eq(sscanf(root, "\"root\":[%llu,%llu]", &lo, &hi), 2);
    ev->submit.root = (struct hash128){lo, hi};
    ck_assert_uint_le(ev->submit.n_tokens, r->cfg.n_ctx);
    char *at = (char *)(uintptr_t)ids + 6;
    for (uint32_t i = 0; i < ev->submit.n_tokens; i++)
        r->ids[i] = (int32_t)strtol(at + 1, &at, 10);
    ev->submit.ids = r->ids;
}

static void read_event(struct replay *r, const char *line, struct worker_event *ev) {
    *ev = (struct worker_event){.kind = read_kind(line), .gw = (uint32_t)value(line, "gw", 0)};
    const char *sub = strstr(line, "\"sub\":[");
    unsigned long long incarnation = 0, counter = 0;
    if (sub != NULL)
        sscanf(sub, "\"sub\":[%llu,%llu]", &incarnation, &counter);
    ev->sub = (struct sub_id){incarnation, counter};
    ev->gateway = value(line, "gateway", 0);
    ev->from = (uint32_t)value(line, "from", 0);
    ev->submit.slot = (uint32_t)value(line, "slot", WORKER_SLOT_NONE);
    ev->submit.cls = (uint8_t)value(line, "class", 0);
    ev->submit.tag = value(line, "tag", 0);
    ev->submit.n_prompt = (uint32_t)value(line, "n_prompt", 0);
    ev->submit.n_tokens = (uint32_t)value(line, "n_tokens", 0);
    ev->submit.from = ev->from;
    ev->submit.max_total = (uint32_t)value(line, "max_total", 0);
    ev->submit.refused = value(line, "refused", 0) != 0;
    ev->submit.host_choice = value(line, "host_choice", 0) != 0;
    ev->submit.account = (uint32_t)value(line, "account", 0);
    ev->submit.quota = (uint32_t)value(line, "quota", 0);
    ev->submit.ttft_ms = (uint32_t)value(line, "ttft_ms", 0);
    ev->submit.tpot_ms = (uint32_t)value(line, "tpot_ms", 0);
    read_ids(r, line, ev);
    ev->copy.id = value(line, "copy", 0);
    ev->copy.ok = value(line, "ok", 0) != 0;
    ev->copy.device_ns = value(line, "device_ns", 0);
    ev->step.step = value(line, "step", 0);
    ev->step.failed = value(line, "failed", 0) != 0;
    ev->step.device_ns = value(line, "device_ns", 0);
    ev->step.segments_done = (uint32_t)value(line, "segments_done", 0);
    ev->step.segment_at_request = (uint32_t)value(line, "segment_at_request", 0);
    ev->step.span = (uint32_t)value(line, "span", 0);
    read_tokens(r, line, ev);
}

static void handle(struct replay *r, const char *line) {
    struct worker_event ev;
    ck_assert_msg(r->expected.len == 0, "missing in the log: %s", buf_str(&r->expected));
    uint64_t ns = value(line, "ns", 0);
    read_event(r, line, &ev);
    event_text_event(&r->expected, &ev, &r->cfg.classes, ns);
    ck_assert_msg(strncmp(buf_str(&r->expected), line, strlen(line)) == 0, "read wrong: %s", line);
    buf_clear(&r->expected);
    uint32_t n = worker_core_handle(r->core, &ev, ns, r->actions);
    for (uint32_t i = 0; i < n; i++)
        event_text_action(&r->expected, &r->actions[i], ns);
    r->events++;
}

static void expect(struct replay *r, const char *line) {
    size_t n = strlen(line);
    ck_assert_msg(r->expected.len > n && strncmp(buf_str(&r->expected), line, n) == 0,
                  "event %u: the log says %s, the replay %s", r->events, line,
                  buf_str(&r->expected));
    ck_assert_int_eq(r->expected.p[n], '\n');
    buf_consume(&r->expected, n + 1);
}

uint32_t event_replay(char *text) {
    struct replay r = {.events = 0};
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        ck_assert_ptr_null(strstr(line, "{\"dropped\""));
        if (strstr(line, "{\"config\"") == line)
            read_config(&r, line);
        else if (strstr(line, "\"event\"") != NULL)
            handle(&r, line);
        else
            expect(&r, line);
    }
    ck_assert_uint_eq(r.expected.len, 0);
    mem_free(r.core);
    mem_free(r.actions);
    mem_free(r.ids);
    buf_deinit(&r.expected);
    return r.events;
}
