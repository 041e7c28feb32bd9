/* sim_meter.c - see sim_meter.h. */
#include "cli/sim_meter.h"

#include "base/mem.h"

#include <string.h>

#define NS_PER_MS 1000000ull

int sim_meter_init(struct sim_meter *m, const struct sim_trace *t, const struct class_table *classes) {
    memset(m, 0, sizeof(*m));
    m->trace = t;
    m->classes = classes;
    m->by_class = mem_array(CLASSES_MAX, sizeof(*m->by_class));
    m->by_tenant = mem_array(t->n_tenants, sizeof(*m->by_tenant));
    m->seen = mem_array(t->n, sizeof(*m->seen));
    if (m->by_class != NULL && m->by_tenant != NULL && m->seen != NULL)
        return 0;
    sim_meter_deinit(m);
    return -1;
}

void sim_meter_deinit(struct sim_meter *m) {
    mem_free(m->by_class);
    mem_free(m->by_tenant);
    mem_free(m->seen);
    memset(m, 0, sizeof(*m));
}

/* What the client sees of a time at the gateway's door. */
static uint64_t seen_ns(const struct sim_meter *m, uint32_t request, uint32_t end, uint64_t now_ns) {
    if (m->live == NULL)
        return now_ns;
    return now_ns + sim_live_path_ns(m->live, m->seed, request, end, m->known_ns);
}

void sim_meter_first(struct sim_meter *m, uint32_t request, uint64_t now_ns) {
    const struct sim_trace_row *r = &m->trace->rows[request];
    now_ns = seen_ns(m, request, 0, now_ns);
    uint64_t ttft = now_ns - r->at_ns;
    m->seen[request].first_ns = now_ns;
    sim_hist_add(&m->by_class[r->cls].ttft, ttft);
    sim_hist_add(&m->by_tenant[r->tenant].ttft, ttft);
}

static bool kept(const struct sim_meter *m, const struct sim_trace_row *r,
                 const struct sim_request_seen *s) {
    const struct class_row *c = &m->classes->rows[r->cls];
    uint64_t streaming = s->done_ns - s->first_ns, later = s->n_out > 1 ? s->n_out - 1 : 0;
    if (c->ttft_ms != 0 && s->first_ns - r->at_ns > c->ttft_ms * NS_PER_MS)
        return false;
    if (c->tpot_ms != 0 && streaming > later * c->tpot_ms * NS_PER_MS)
        return false;
    return m->deadline_ns[r->cls] == 0 || s->done_ns - r->at_ns <= m->deadline_ns[r->cls];
}

static void row_done(struct sim_row *row, const struct sim_trace_row *r,
                     const struct sim_request_seen *s, bool is_kept) {
    row->requests++;
    row->finished++;
    row->prompt_tokens += r->n_prompt;
    row->output_tokens += s->n_out;
    sim_hist_add(&row->end, s->done_ns - r->at_ns);
    row->kept += is_kept;
    row->kept_tokens += is_kept ? s->n_out : 0;
    if (s->done_ns > row->last_ns)
        row->last_ns = s->done_ns;
}

void sim_meter_done(struct sim_meter *m, uint32_t request, uint32_t n_out, uint64_t now_ns) {
    const struct sim_trace_row *r = &m->trace->rows[request];
    struct sim_request_seen *s = &m->seen[request];
    now_ns = seen_ns(m, request, 1, now_ns);
    s->done_ns = now_ns > s->first_ns ? now_ns : s->first_ns;
    s->n_out = n_out;
    bool is_kept = kept(m, r, s);
    row_done(&m->by_class[r->cls], r, s, is_kept);
    row_done(&m->by_tenant[r->tenant], r, s, is_kept);
}

static void row_failed(struct sim_row *row, bool begun) {
    row->requests++;
    row->failed++;
    sim_hist_endless(&row->end);
    if (!begun)
        sim_hist_endless(&row->ttft);
}

void sim_meter_failed(struct sim_meter *m, uint32_t request) {
    const struct sim_trace_row *r = &m->trace->rows[request];
    struct sim_request_seen *s = &m->seen[request];
    if (s->done_ns != 0)
        return;
    s->done_ns = UINT64_MAX;
    row_failed(&m->by_class[r->cls], s->first_ns != 0);
    row_failed(&m->by_tenant[r->tenant], s->first_ns != 0);
}

void sim_meter_end(struct sim_meter *m) {
    for (uint32_t i = 0; i < m->trace->n; i++)
        sim_meter_failed(m, i);
}
