#include "gateway/metrics.h"

#include "base/mem.h"
#include "gateway/dispatch.h"
#include "gateway/gateway.h"
#include "gateway/http.h"

#include <inttypes.h>
#include <string.h>

/* vLLM's bucket bounds, so that dashboards made for it read right. */
static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double itl_bounds[] = {.001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                                    .4,   .5,    .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
static const double long_bounds[] = {.01, .03, .1, .3, .5, .8, 1,   1.5, 2,   2.5, 5,    10,
                                     15,  20,  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double token_bounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
static const double n_bounds[] = {1, 2, 5, 10, 20};
#define BOUNDS(b) b, (int)(sizeof b / sizeof *b)

void metrics_init(struct metrics *m)
{
    memset(m, 0, sizeof *m);
    for (int i = 0; i < CLASSES_MAX; i++) {
        struct metrics_class *c = &m->cls[i];
        hist_init(&c->ttft, BOUNDS(ttft_bounds));
        hist_init(&c->itl, BOUNDS(itl_bounds));
        hist_init(&c->tpot, BOUNDS(itl_bounds));
        hist_init(&c->e2e, BOUNDS(long_bounds));
        hist_init(&c->queue, BOUNDS(long_bounds));
        hist_init(&c->inference, BOUNDS(long_bounds));
        hist_init(&c->prefill, BOUNDS(long_bounds));
        hist_init(&c->decode, BOUNDS(long_bounds));
        hist_init(&c->prompt_tokens, BOUNDS(token_bounds));
        hist_init(&c->generation_tokens, BOUNDS(token_bounds));
        hist_init(&c->max_tokens, BOUNDS(token_bounds));
        hist_init(&c->n_choices, BOUNDS(n_bounds));
    }
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

void metrics_request(struct metrics *m, uint8_t cls, uint32_t n)
{
    hist_add(&m->cls[cls].n_choices, n);
}

void metrics_itl(struct metrics *m, uint8_t cls, uint64_t gap_ns)
{
    hist_add(&m->cls[cls].itl, (double)gap_ns * 1e-9);
}

void metrics_choice_end(struct metrics *m, const struct metrics_choice *k)
{
    struct metrics_class *c = &m->cls[k->cls];
    c->finished[k->finish]++;
    c->prompt_tokens_total +=
        k->first_ns ? k->prompt_tokens : 0; /* a prompt nobody computed is not counted */
    c->generation_tokens_total += k->output_tokens;
    if (finish_openai(k->finish) == NULL) {
        c->aborted++;
        return;
    }
    hist_add(&c->prompt_tokens, k->prompt_tokens);
    hist_add(&c->generation_tokens, k->output_tokens);
    hist_add(&c->max_tokens, k->max_tokens);
    if (k->first_ns == 0) return;
    hist_add(&c->ttft, seconds(k->arrived_ns, k->first_ns));
    hist_add(&c->e2e, seconds(k->arrived_ns, k->last_ns));
    hist_add(&c->queue, seconds(k->arrived_ns, k->sent_ns));
    hist_add(&c->inference, seconds(k->sent_ns, k->last_ns));
    hist_add(&c->prefill, seconds(k->sent_ns, k->first_ns));
    hist_add(&c->decode, seconds(k->first_ns, k->last_ns));
    if (k->output_tokens > 1)
        hist_add(&c->tpot, seconds(k->first_ns, k->last_ns) / (k->output_tokens - 1));
}

/* ---- exposition */

struct writer { struct buf *out; char model[300]; const struct class_table *classes; };

static void escape(const char *in, char *out, size_t cap)
{
    size_t n = 0;
    for (; *in && n + 3 < cap; in++) {
        if (*in == '\n') { /* the one control character that the format can write */
            out[n++] = '\\';
            out[n++] = 'n';
            continue;
        }
        if (*in == '"' || *in == '\\') out[n++] = '\\';
        out[n++] = *in;
    }
    out[n] = '\0';
}

static void header(struct writer *w, const char *name, const char *type, const char *help)
{
    buf_addf(w->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void sample(struct writer *w, const char *name, const char *labels, double v)
{
    buf_addf(w->out, "%s{model_name=\"%s\",engine=\"0\"%s} %.17g\n", name, w->model, labels, v);
}

static void add_hist(struct writer *w, const char *name, const char *help, const struct metrics *m,
                     size_t offset)
{
    header(w, name, "histogram", help);
    for (uint32_t c = 0; c < w->classes->n; c++) {
        const struct hist *h =
            (const struct hist *)(const void *)((const char *)&m->cls[c] + offset);
        char line[128], labels[64];
        uint64_t sum = 0;
        snprintf(labels, sizeof labels, ",class=\"%s\"", w->classes->rows[c].name);
        snprintf(line, sizeof line, "%s_bucket", name);
        for (int i = 0; i <= h->n_bounds; i++) {
            char le[128];
            sum += h->counts[i];
            if (i < h->n_bounds) snprintf(le, sizeof le, "%s,le=\"%g\"", labels, h->bounds[i]);
            else snprintf(le, sizeof le, "%s,le=\"+Inf\"", labels);
            sample(w, line, le, (double)sum);
        }
        snprintf(line, sizeof line, "%s_sum", name);
        sample(w, line, labels, h->sum);
        snprintf(line, sizeof line, "%s_count", name);
        sample(w, line, labels, (double)h->count);
    }
}

static void add_histograms(struct writer *w, const struct metrics *m)
{
    static const struct { const char *name, *help; size_t offset;
    } rows[] = {
        {"vllm:time_to_first_token_seconds", "Time to first token.",
         offsetof(struct metrics_class, ttft)},
        {"vllm:inter_token_latency_seconds", "Gap between two tokens.",
         offsetof(struct metrics_class, itl)},
        {"vllm:request_time_per_output_token_seconds", "Mean gap of a request.",
         offsetof(struct metrics_class, tpot)},
        {"vllm:e2e_request_latency_seconds", "Arrival to last token.",
         offsetof(struct metrics_class, e2e)},
        {"vllm:request_queue_time_seconds", "Arrival to dispatch.",
         offsetof(struct metrics_class, queue)},
        {"vllm:request_inference_time_seconds", "Dispatch to last token.",
         offsetof(struct metrics_class, inference)},
        {"vllm:request_prefill_time_seconds", "Dispatch to first token.",
         offsetof(struct metrics_class, prefill)},
        {"vllm:request_decode_time_seconds", "First to last token.",
         offsetof(struct metrics_class, decode)},
        {"vllm:request_prompt_tokens", "Prompt tokens of a request.",
         offsetof(struct metrics_class, prompt_tokens)},
        {"vllm:request_generation_tokens", "Output tokens of a request.",
         offsetof(struct metrics_class, generation_tokens)},
        {"vllm:request_params_n", "n asked for.", offsetof(struct metrics_class, n_choices)},
        {"vllm:request_params_max_tokens", "max_tokens asked for.",
         offsetof(struct metrics_class, max_tokens)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add_hist(w, rows[i].name, rows[i].help, m, rows[i].offset);
}

static void add_counters(struct writer *w, const struct metrics *m)
{
    double prompt = 0, made = 0;
    header(w, "vllm:request_success_total", "counter", "Finished choices by reason.");
    for (int f = 0; f < FINISH_COUNT; f++) {
        char labels[64];
        for (uint32_t c = 0; c < w->classes->n; c++) {
            if (finish_openai((enum finish)f) == NULL) continue;
            snprintf(labels, sizeof labels, ",class=\"%s\",finished_reason=\"%s\"",
                     w->classes->rows[c].name, finish_text((enum finish)f));
            sample(w, "vllm:request_success_total", labels, (double)m->cls[c].finished[f]);
        }
    }
    header(w, "sluice:requests_aborted_total", "counter",
           "Choices that ended without an answer, by class.");
    for (uint32_t c = 0; c < w->classes->n; c++) {
        char labels[64];
        snprintf(labels, sizeof labels, ",class=\"%s\"", w->classes->rows[c].name);
        sample(w, "sluice:requests_aborted_total", labels, (double)m->cls[c].aborted);
        prompt += (double)m->cls[c].prompt_tokens_total;
        made += (double)m->cls[c].generation_tokens_total;
    }
    header(w, "vllm:prompt_tokens_total", "counter", "Prompt tokens of requests that were run.");
    sample(w, "vllm:prompt_tokens_total", "", prompt);
    header(w, "vllm:generation_tokens_total", "counter", "Tokens made and accepted.");
    sample(w, "vllm:generation_tokens_total", "", made);
}

void metrics_ledger(struct metrics *m, uint8_t cls, const uint64_t ns[LEDGER_CAUSES])
{
    for (uint32_t i = 0; i < LEDGER_CAUSES; i++) m->cls[cls].ledger_ns[i] += ns[i];
}

static void add_ledger(struct writer *w, const struct metrics *m)
{
    char labels[96];
    header(w, "sluice:ledger_seconds_total", "counter",
           "Where the time of answered requests went, by class and cause.");
    for (uint32_t c = 0; c < w->classes->n; c++) {
        for (uint32_t i = 0; i < LEDGER_CAUSES; i++) {
            snprintf(labels, sizeof labels, ",class=\"%s\",cause=\"%s\"", w->classes->rows[c].name,
                     ledger_name((enum ledger_cause)i));
            sample(w, "sluice:ledger_seconds_total", labels, (double)m->cls[c].ledger_ns[i] * 1e-9);
        }
    }
}

static void add_cache(struct writer *w, const struct dispatch_workers *k)
{
    header(w, "vllm:prefix_cache_queries_total", "counter",
           "Prompt tokens looked up in the prefix cache.");
    sample(w, "vllm:prefix_cache_queries_total", "",
           (double)(k->cache_hits + k->cache_misses) * k->block_tokens);
    header(w, "vllm:prefix_cache_hits_total", "counter", "Prompt tokens found there.");
    sample(w, "vllm:prefix_cache_hits_total", "", (double)k->cache_hits * k->block_tokens);
    header(w, "sluice:prefix_cache_evictions_total", "counter", "Cached KV blocks that gave way.");
    sample(w, "sluice:prefix_cache_evictions_total", "", (double)k->evictions);
    header(w, "sluice:swap_ins_total", "counter", "Preempted sequences that came back by copies.");
    sample(w, "sluice:swap_ins_total", "", (double)k->swap_ins);
    header(w, "sluice:recomputes_total", "counter", "Preempted sequences that were computed again.");
    sample(w, "sluice:recomputes_total", "", (double)k->recomputes);
}

static void add_classes(struct writer *w, const struct gateway_stats *st)
{
    uint64_t now = gateway_now_ns();
    char labels[64];
    header(w, "sluice:oldest_wait_seconds", "gauge", "How long the oldest sequence in the queue waits, by class.");
    for (uint32_t c = 0; c < w->classes->n; c++) {
        uint64_t at = st->oldest_queued_ns[c];
        snprintf(labels, sizeof labels, ",class=\"%s\"", w->classes->rows[c].name);
        sample(w, "sluice:oldest_wait_seconds", labels, at != 0 && now > at ? (double)(now - at) * 1e-9 : 0);
    }
}

static void add_workers(struct writer *w, const struct gateway *g)
{
    struct dispatch_workers k;
    struct gateway_stats st;
    char labels[160];
    dispatch_workers(g->dispatch, &k);
    dispatch_stats(g->dispatch, &st);
    double queued = 0, sent = 0;
    for (int c = 0; c < CLASSES_MAX; c++) {
        queued += st.queued[c];
        sent += st.sent[c];
    }
    header(w, "vllm:num_requests_running", "gauge", "Sequences with a worker.");
    sample(w, "vllm:num_requests_running", "", sent);
    header(w, "vllm:num_requests_waiting", "gauge", "Sequences waiting in the gateway.");
    sample(w, "vllm:num_requests_waiting", "", queued);
    uint64_t room = k.blocks_free + k.blocks_cached; /* what nobody uses gives way at once */
    header(w, "vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1.");
    sample(w, "vllm:kv_cache_usage_perc", "",
           k.blocks_total > room ? (double)(k.blocks_total - room) / (double)k.blocks_total : 0);
    add_classes(w, &st);
    add_cache(w, &k);
    header(w, "vllm:num_preemptions_total", "counter", "Sequences whose KV was taken for another.");
    sample(w, "vllm:num_preemptions_total", "", (double)k.preemptions);
    header(w, "sluice:steps_parked_total", "counter", "Steps suspended for a more urgent one.");
    sample(w, "sluice:steps_parked_total", "", (double)k.parks);
    header(w, "sluice:spans_dropped_total", "counter", "Spans taken out of a running step.");
    sample(w, "sluice:spans_dropped_total", "", (double)k.drops);
    header(w, "sluice:steps_total", "counter", "Steps ended.");
    sample(w, "sluice:steps_total", "", (double)k.steps);
    header(w, "sluice:worker_busy_seconds_total", "counter", "Time workers had a step running.");
    sample(w, "sluice:worker_busy_seconds_total", "", (double)k.busy_ns * 1e-9);
    header(w, "sluice:workers_live", "gauge", "Workers with a live session.");
    sample(w, "sluice:workers_live", "", st.workers_live);
    header(w, "sluice:admission_refused_total", "counter", "Requests refused for the wait they would have had.");
    sample(w, "sluice:admission_refused_total", "", (double)st.admit.refused);
    header(w, "sluice:admission_promises_total", "counter", "Of these, those told when they will be taken.");
    sample(w, "sluice:admission_promises_total", "", (double)st.admit.promises);
    header(w, "sluice:admission_promises_kept_total", "counter", "Of these, those that came back and were taken.");
    sample(w, "sluice:admission_promises_kept_total", "", (double)st.admit.kept);
    header(w, "sluice:admission_promises_live", "gauge", "Promises that are out.");
    sample(w, "sluice:admission_promises_live", "", st.admit.tickets);
    header(w, "sluice:admission_work_seconds", "gauge", "Predicted: work of classes with an objective that is here.");
    sample(w, "sluice:admission_work_seconds", "", st.admit.backlog_ns * 1e-9);
    header(w, "sluice:admission_rate_ratio", "gauge", "What workers really do, over what their step models say.");
    sample(w, "sluice:admission_rate_ratio", "", st.admit.ratio);
    header(w, "sluice:resubmits_total", "counter",
           "Sequences submitted again after a worker was lost.");
    sample(w, "sluice:resubmits_total", "", (double)st.resubmits);
    header(w, "vllm:cache_config_info", "gauge", "Block size and number of KV blocks.");
    snprintf(labels, sizeof labels, ",block_size=\"%" PRIu32 "\",num_gpu_blocks=\"%" PRIu64 "\"",
             k.block_tokens, k.blocks_total);
    sample(w, "vllm:cache_config_info", labels, 1);
}

static void add_process(struct writer *w, const struct gateway *g)
{
    char labels[64];
    header(w, "sluice:http_responses_total", "counter", "HTTP replies by status class.");
    for (int i = 1; i < 6; i++) {
        snprintf(labels, sizeof labels, ",status=\"%dxx\"", i);
        sample(w, "sluice:http_responses_total", labels, (double)g->metrics.http_requests[i]);
    }
    header(w, "sluice:http_connections", "gauge", "Open HTTP connections.");
    sample(w, "sluice:http_connections", "", http_connections(g->http));
    header(w, "sluice:request_errors_total", "counter", "Requests that failed, by error code.");
    for (int i = 1; i < ERR_COUNT; i++) {
        snprintf(labels, sizeof labels, ",code=\"%s\"", err_name((enum err_code)i));
        sample(w, "sluice:request_errors_total", labels, (double)g->metrics.errors[i]);
    }
    header(w, "sluice:queue_bytes", "gauge",
           "Memory of all requests, as max-queue-bytes counts it.");
    sample(w, "sluice:queue_bytes", "", (double)g->queue_bytes);
    header(w, "sluice:requests_live", "gauge", "Requests in the gateway, being read included.");
    sample(w, "sluice:requests_live", "", g->live_requests);
    header(w, "sluice:link_bad_messages_total", "counter",
           "Messages on the worker link that were dropped.");
    sample(w, "sluice:link_bad_messages_total", "", (double)g->metrics.link_bad_messages);
    header(w, "sluice:slow_readers_cut_total", "counter",
           "Streams ended because their client read nothing.");
    sample(w, "sluice:slow_readers_cut_total", "", (double)g->metrics.slow_readers_cut);
    header(w, "sluice:tenant_reloads_total", "counter", "New files of tenants and keys taken.");
    sample(w, "sluice:tenant_reloads_total", "", (double)g->metrics.tenant_reloads);
    header(w, "sluice:tenant_reload_errors_total", "counter",
           "Files of tenants or keys that were not taken.");
    sample(w, "sluice:tenant_reload_errors_total", "", (double)g->metrics.tenant_reload_errors);
    header(w, "sluice:memory_bytes", "gauge", "Heap and pools of the gateway.");
    sample(w, "sluice:memory_bytes", "", (double)mem_used());
}

static void add_pools(struct writer *w, const struct gateway *g)
{
    struct mem_pool_row rows[MEM_POOLS_MAX];
    dispatch_pools(g->dispatch);
    size_t n = mem_pool_rows(rows, MEM_POOLS_MAX);
    header(w, "sluice:pool_used_bytes", "gauge", "Resident memory of the gateway by pool.");
    for (size_t i = 0; i < n; i++) {
        char labels[96];
        snprintf(labels, sizeof labels, ",pool=\"%s\"", rows[i].name);
        sample(w, "sluice:pool_used_bytes", labels, (double)rows[i].used);
    }
    header(w, "sluice:process_resident_bytes", "gauge", "Resident memory, as the system says.");
    sample(w, "sluice:process_resident_bytes", "", (double)mem_rss());
}

void metrics_render(struct gateway *g, struct buf *out)
{
    struct writer w = {.out = out, .classes = &g->limits.classes};
    escape(g->model->name, w.model, sizeof w.model);
    add_workers(&w, g);
    add_counters(&w, &g->metrics);
    add_histograms(&w, &g->metrics);
    add_ledger(&w, &g->metrics);
    add_process(&w, g);
    add_pools(&w, g);
}
