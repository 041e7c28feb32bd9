/* worker.c - see worker.h. */
#include "worker/worker.h"

#include "base/mem.h"
#include "worker/pools.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define MS 1000000ull
#define MAIL_CAPACITY 4096
#define BACKLOG_BYTES (64u << 20)
#define LOG_BYTES (16u << 20) /* records of the event log */
#define SCORE_ROWS 64u        /* prompt scores computed in one step, beside one row a seat */
#define COPY_GB_S 4.0         /* of the host tier, until it is measured */
#define BLOCK_TOKENS 16u      /* what the pool is sized by before the engine says its own */

struct worker {
    struct worker_config cfg;
    struct worker_core_config core_cfg;
    struct engine *engine;
    struct worker_core *core; /* own region */
    size_t core_bytes;
    struct mail mail;
    struct link *link;
    struct step_loop *loop;
    struct event_log *log;
};

void worker_config_default(struct worker_config *cfg) {
    *cfg = (struct worker_config){.max_seqs = 16,
                                  .prefill_chunk = 128,
                                  .kv_tokens = 4096,
                                  .prefix_cache = true,
                                  .min_run = 16,
                                  .interference_permille = 50,
                                  .n_gateways = 1,
                                  .heartbeat_ns = 500 * MS,
                                  .silence_ns = 2000 * MS,
                                  .drain_timeout_ns = 30000 * MS,
                                  .signal_fd = -1,
                                  .supervisor_fd = -1};
    cfg->engine.backend = "cpu";
    cfg->engine.n_threads = 1;
    class_table_default(&cfg->classes);
}

static int open_engine(struct worker *w, struct err *e) {
    struct engine_config c = w->cfg.engine;
    c.model = w->cfg.model;
    c.n_blocks = (w->cfg.kv_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS + 1;
    c.max_spans = w->cfg.max_seqs;
    c.max_tokens = w->cfg.max_seqs + w->cfg.prefill_chunk;
    c.max_rows =
        w->cfg.max_seqs + (w->cfg.prefill_chunk < SCORE_ROWS ? w->cfg.prefill_chunk : SCORE_ROWS);
    if (engine_open(&w->engine, &c, e) != 0)
        return -1;
    const struct engine_limits *l = engine_limits(w->engine);
    size_t bytes = (size_t)l->n_blocks * l->block_stride;
    mem_pool_set("kv blocks", bytes, 0, bytes);
    bytes = (size_t)l->host_slots * l->block_stride;
    if (bytes > 0)
        mem_pool_set("kv host tier", bytes, 0, bytes);
    return 0;
}

/* Cold start of the learned times. */
static void fill_cost(struct worker *w) {
    const struct engine_limits *l = engine_limits(w->engine);
    const struct engine_config *c = &w->cfg.engine;
    double start[COST_FEATURES], gb_s = c->copy_gb_s > 0 ? c->copy_gb_s : COPY_GB_S;
    if (strcmp(c->backend, "null") == 0) {
        step_cost_start_null(start, c->null_step_ns, c->null_token_ns);
        w->core_cfg.copy_ns = c->null_copy_ns;
    } else {
        step_cost_start_cpu(start, gguf_file_bytes(w->cfg.model->gguf),
                            l->block_bytes / l->block_tokens, c->n_threads);
        w->core_cfg.copy_ns = (uint64_t)((double)l->block_bytes / gb_s);
    }
    step_cost_init(&w->core_cfg.cost, start);
}

static void fill_core_config(struct worker *w) {
    const struct engine_limits *l = engine_limits(w->engine);
    const struct worker_config *c = &w->cfg;
    w->core_cfg = (struct worker_core_config){.max_slots = (4 * c->max_seqs + 16) * c->n_gateways,
                                              .max_seqs = c->max_seqs,
                                              .max_spans = l->max_spans,
                                              .max_tokens = l->max_tokens,
                                              .max_rows = l->max_rows,
                                              .prefill_chunk = c->prefill_chunk,
                                              .n_ctx = l->n_ctx,
                                              .classes = c->classes,
                                              .min_run = c->min_run,
                                              .interference_permille = c->interference_permille,
                                              .out_weight = 2,
                                              .n_segments = l->n_segments,
                                              .max_refs = l->max_refs,
                                              .park_max_ns = 2000 * MS,
                                              .lost_realtime_ns = 2000 * MS,
                                              .lost_batch_ns = 30000 * MS,
                                              .finish_repeat_ns = 1000 * MS,
                                              .debug_resume = c->debug_resume,
                                              .debug_preempt_every = c->debug_preempt_every,
                                              .debug_park_every = c->debug_park_every,
                                              .debug_drop_every = c->debug_drop_every,
                                              .debug_pool_blocks = c->debug_pool_blocks};
    w->core_cfg.pool = (struct kvpool_config){.n_blocks = l->n_blocks,
                                              .block_tokens = l->block_tokens,
                                              .max_seq_blocks = (l->n_ctx + l->block_tokens - 1)
                                                                / l->block_tokens,
                                              .n_host = l->host_slots,
                                              .max_accounts = SEQ_ACCOUNTS,
                                              .prefix_cache = c->prefix_cache};
    fill_cost(w);
}

static int open_core(struct worker *w, struct err *e) {
    fill_core_config(w);
    w->core_bytes = worker_core_bytes(&w->core_cfg);
    if (w->core_bytes == 0)
        return err_set(e, ERR_BAD_VALUE, "the scheduler cannot be built with these sizes");
    void *region = mem_map(w->core_bytes); /* zeroed; pages of ids that are not used cost nothing */
    if (region == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the scheduler: %zu bytes", w->core_bytes);
    w->core = worker_core_init(region, &w->core_cfg);
    assert(w->core == region);
    size_t ids = w->cfg.prefix_cache
                     ? (size_t)w->core_cfg.max_slots * w->core_cfg.n_ctx * sizeof(int32_t)
                     : 0;
    mem_pool_set("scheduler", w->core_bytes, w->core_bytes - ids, w->core_bytes);
    return 0;
}

static void fill_hello(const struct worker *w, struct msg_hello *h) {
    const struct engine_limits *l = engine_limits(w->engine);
    const struct model *m = w->cfg.model;
    *h = (struct msg_hello){.version_min = PROTO_VERSION_MIN,
                            .version_max = PROTO_VERSION_MAX,
                            .incarnation = w->cfg.incarnation,
                            .vocab = m->vocab_hash,
                            .chat_template = m->template_hash,
                            .numerics = l->numerics_id,
                            .n_ctx = l->n_ctx,
                            .n_vocab = l->n_vocab,
                            .block_tokens = l->block_tokens,
                            .n_blocks = l->n_blocks,
                            .max_seqs = w->cfg.max_seqs,
                            .max_slots = w->core_cfg.max_slots};
    h->tensors = gguf_tensors_hash(m->gguf);
    gguf_drop_tensor_pages(m->gguf); /* the engine holds its own, packed */
    snprintf(h->name, sizeof(h->name), "%s", w->cfg.name);
    snprintf(h->model, sizeof(h->model), "%s", m->name);
    snprintf(h->family, sizeof(h->family), "%s", l->family);
}

static int open_link(struct worker *w, struct err *e) {
    const struct engine_limits *l = engine_limits(w->engine);
    struct link_config c = {.session = {.dial = w->cfg.dial,
                                        .dial_ctx = w->cfg.dial_ctx,
                                        .heartbeat_ns = w->cfg.heartbeat_ns,
                                        .silence_ns = w->cfg.silence_ns,
                                        .backlog_bytes = BACKLOG_BYTES},
                            .limits = {.vocab = w->cfg.model->vocab,
                                       .n_vocab = l->n_vocab,
                                       .n_ctx = l->n_ctx,
                                       .n_classes = w->cfg.classes.n,
                                       .prefix_cache = w->cfg.prefix_cache,
                                       .cache_key = hash64(&l->numerics_id, sizeof(l->numerics_id),
                                                           w->cfg.cache_secret)},
                            .n_gateways = w->cfg.n_gateways,
                            .stall_once_ns = w->cfg.debug_stall_ns};
    fill_hello(w, &c.session.hello);
    mem_pool_set("sequences", 0, 0, w->core_cfg.max_slots * seq_bytes_max(&c.limits));
    if (mail_init(&w->mail, MAIL_CAPACITY, e) != 0)
        return -1;
    w->link = mem_zalloc(sizeof(*w->link));
    if (w->link == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the link");
    link_init(w->link, &c, &w->mail);
    return 0;
}

static int open_log(struct worker *w, struct err *e) {
    if (w->cfg.event_log == NULL || w->cfg.event_log[0] == '\0')
        return 0;
    uint32_t record = 256 + w->core_cfg.max_spans * (uint32_t)sizeof(struct worker_span);
    uint32_t n = LOG_BYTES / record;
    mem_pool_set("event log", LOG_BYTES, LOG_BYTES, LOG_BYTES);
    return event_log_open(&w->log, w->cfg.event_log, &w->core_cfg, n > 1024 ? n : 1024, e);
}

static int open_loop(struct worker *w, struct err *e) {
    struct step_loop_config c = {.engine = w->engine,
                                 .core = w->core,
                                 .core_config = &w->core_cfg,
                                 .vocab = w->cfg.model->vocab,
                                 .mail = &w->mail,
                                 .log = w->log,
                                 .signal_fd = w->cfg.signal_fd,
                                 .supervisor_fd = w->cfg.supervisor_fd,
                                 .drain_timeout_ns = w->cfg.drain_timeout_ns,
                                 .status_every_ns = 250 * MS,
                                 .audit = w->cfg.audit};
    w->loop = mem_zalloc(sizeof(*w->loop));
    if (w->loop == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the step loop");
    return step_loop_init(w->loop, &c, e);
}

int worker_open(struct worker **out, const struct worker_config *cfg, struct err *e) {
    assert(cfg->model != NULL && cfg->dial != NULL && cfg->name[0] != '\0');
    *out = NULL;
    struct worker *w = mem_zalloc(sizeof(*w));
    if (w == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the worker");
    w->cfg = *cfg;
    w->mail.in_fd = w->mail.out_fd = -1;
    if (open_engine(w, e) != 0 || open_core(w, e) != 0 || open_link(w, e) != 0
        || open_log(w, e) != 0 || open_loop(w, e) != 0) {
        worker_close(&w);
        return -1;
    }
    *out = w;
    return 0;
}

enum step_loop_end worker_run(struct worker *w, struct err *e) {
    if (link_start(w->link, e) != 0)
        return LOOP_FAILED;
    enum step_loop_end end = step_loop_run(w->loop);
    if (end == LOOP_FAILED)
        err_set(e, ERR_INTERNAL, "the step loop failed");
    link_stop(w->link);
    return end;
}

void worker_close(struct worker **out) {
    struct worker *w = *out;
    if (w == NULL)
        return;
    if (w->link != NULL)
        link_deinit(w->link);
    engine_close(&w->engine); /* before the ids and blocks its steps name go */
    if (w->loop != NULL && w->loop->store.slots != NULL)
        step_loop_deinit(w->loop);
    event_log_close(&w->log);
    mail_deinit(&w->mail);
    mem_free(w->link);
    mem_free(w->loop);
    mem_unmap(w->core, w->core_bytes);
    mem_free(w);
    *out = NULL;
}

void worker_drain(struct worker *w) {
    step_loop_drain(w->loop);
}

void worker_stop(struct worker *w) {
    step_loop_stop(w->loop);
}

void worker_print_pools(const struct worker *w, FILE *f) {
    pools_print(w->engine, &w->loop->store, f);
}

void worker_stats(const struct worker *w, struct worker_stats *out) {
    worker_core_stats(w->core, out);
}

const struct engine_limits *worker_limits(const struct worker *w) {
    return engine_limits(w->engine);
}
