/* worker_settings.c - see worker_settings.h. */
#include "worker/worker_settings.h"

#include "base/log.h"
#include "config/address.h"
#include "config/classes_file.h"
#include "config/cpulist.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define BLOCK_TOKENS 16
#define FREE_UNKNOWN (4ull << 30)

static int read_u64(const char *path, const char *fmt, uint64_t *out) {
    char line[256];
    int found = -1;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return -1;
    while (found != 0 && fgets(line, sizeof(line), f) != NULL)
        found = sscanf(line, fmt, out) == 1 ? 0 : -1;
    fclose(f);
    return found;
}

uint64_t worker_settings_free_bytes(void) {
    uint64_t kib, most, now, bytes = FREE_UNKNOWN;
    if (read_u64("/proc/meminfo", "MemAvailable: %" SCNu64, &kib) == 0)
        bytes = kib * 1024;
    /* "max" does not scan: no limit */
    if (read_u64("/sys/fs/cgroup/memory.max", "%" SCNu64, &most) == 0
        && read_u64("/sys/fs/cgroup/memory.current", "%" SCNu64, &now) == 0) {
        uint64_t left = most > now ? most - now : 0;
        bytes = left < bytes ? left : bytes;
    }
    return bytes;
}

static uint64_t block_bytes(const struct settings *s, const struct hparams *hp) {
    uint64_t token = s->kv_type == SETTINGS_KV_INT8 ? hparams_kv_bytes_per_token_int8(hp)
                                                     : hparams_kv_bytes_per_token(hp);
    return (token * BLOCK_TOKENS + 4095) & ~4095ull;
}

int64_t worker_settings_kv_tokens(const struct settings *s, const struct hparams *hp,
                                  uint64_t free_bytes) {
    if (s->kv_tokens > 0)
        return s->kv_tokens;
    uint64_t blocks = free_bytes / 4 / block_bytes(s, hp);
    uint64_t want = (uint64_t)s->max_seqs * ((hp->n_ctx + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
    uint64_t n = blocks < want ? blocks : want;
    if (n < 1)
        return -1;
    n = n * BLOCK_TOKENS;
    return n < INT32_MAX ? (int64_t)n : INT32_MAX - INT32_MAX % BLOCK_TOKENS;
}

uint32_t worker_settings_host_slots(const struct settings *s, const struct hparams *hp,
                                    uint32_t kv_tokens, uint64_t free_bytes) {
    if (s->host_kv_tokens >= 0)
        return (uint32_t)((s->host_kv_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
    uint64_t most = free_bytes / 4 / block_bytes(s, hp);
    uint32_t pool = (kv_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    return most < pool ? (uint32_t)most : pool;
}

static int dial(struct transport **out, void *ctx, uint32_t gw, struct err *e) {
    const struct link_door *d = ctx;
    (void)gw; /* one gateway a worker for now */
    return transport_dial(out, d->endpoint, &d->keys, MSG_BYTES_MAX, e);
}

static bool same_machine(const char *endpoint) {
    struct address a;
    return address_parse_endpoint(&a, endpoint, NULL) == 0 && address_is_loopback(&a);
}

/* Pinned: the cores named, all of them. Not pinned: one core is left to a gateway on the same
 * machine. */
static int set_threads(struct worker_config *cfg, const struct settings *s, struct err *e) {
    struct cpulist gateway, worker;
    if (cpulist_parse_roles(&gateway, &worker, s->cpus, e) != 0 || cpulist_apply(&worker, e) != 0)
        return -1;
    bool pinned = cpulist_count(&worker) > 0;
    bool shared =
        same_machine(s->workers_endpoint) && (!pinned || cpulist_overlap(&gateway, &worker));
    cfg->engine.n_threads = (uint32_t)settings_threads(s, shared);
    for (int cpu = cpulist_next(&worker, 0); cpu >= 0 && cfg->engine.n_cpus < ENGINE_CPUS_MAX;
         cpu = cpulist_next(&worker, cpu + 1))
        cfg->engine.cpus[cfg->engine.n_cpus++] = (uint32_t)cpu;
    return 0;
}

static uint64_t ns_of(double seconds) {
    return (uint64_t)(seconds * 1e9);
}

static void set_plain(struct worker_config *cfg, const struct settings *s) {
    static const enum engine_kernel kernels[] = {[SETTINGS_KERNEL_AUTO] = ENGINE_KERNEL_AUTO,
                                                 [SETTINGS_KERNEL_SCALAR] = ENGINE_KERNEL_SCALAR,
                                                 [SETTINGS_KERNEL_AVX2] = ENGINE_KERNEL_AVX2,
                                                 [SETTINGS_KERNEL_AVX512] = ENGINE_KERNEL_AVX512};
    cfg->engine.backend = s->engine == SETTINGS_ENGINE_NULL ? "null" : "cpu";
    cfg->engine.kernel = kernels[s->kernel];
    cfg->engine.precise = s->precise;
    cfg->engine.kv_type = s->kv_type == SETTINGS_KV_INT8 ? ENGINE_KV_INT8 : ENGINE_KV_F16;
    cfg->engine.chaos_seed = (uint64_t)s->debug_chaos;
    cfg->engine.null_token_ns = (uint64_t)s->null_token_us * 1000u;
    cfg->engine.null_step_ns = (uint64_t)s->null_step_us * 1000u;
    cfg->engine.copy_gb_s = s->copy_gbps;
    cfg->engine.null_copy_ns = (uint64_t)s->null_copy_us * 1000u;
    cfg->engine.null_segments = (uint32_t)s->null_segments;
    cfg->max_seqs = (uint32_t)s->max_seqs;
    cfg->prefill_chunk = (uint32_t)s->prefill_chunk;
    cfg->prefix_cache = s->prefix_cache;
    cfg->min_run = (uint32_t)s->min_run;
    cfg->interference_permille = (uint32_t)(s->batch_interference * 10 + 0.5);
    snprintf(cfg->name, sizeof(cfg->name), "%.63s", s->worker_name);
    cfg->heartbeat_ns = ns_of(s->link_heartbeat_s);
    cfg->silence_ns = ns_of(s->link_silence_s);
    cfg->drain_timeout_ns = ns_of(s->drain_timeout_s);
    cfg->event_log = s->event_log;
    cfg->supervisor_fd = (int)s->supervisor_fd;
    cfg->debug_resume = s->debug_resume == SETTINGS_RESUME_SWAP        ? 1
                        : s->debug_resume == SETTINGS_RESUME_RECOMPUTE ? 2
                                                                       : 0;
    cfg->debug_pool_blocks = (uint32_t)s->debug_pool_blocks;
    cfg->debug_preempt_every = (uint32_t)s->debug_preempt_every;
    cfg->debug_park_every = (uint32_t)s->debug_park_every;
    cfg->debug_drop_every = (uint32_t)s->debug_drop_every;
    cfg->debug_stall_ns = (uint64_t)s->debug_stall_worker_ms * 1000000ull;
}

/* The same file as the gateway's: a class is a number on the link. */
static int set_classes(struct worker_config *cfg, const struct settings *s, struct err *e) {
    struct classes_file f;
    if (s->classes[0] == '\0')
        return 0;
    if (classes_file_load(&f, s->classes, e) != 0)
        return -1;
    CLASS_LINES_COPY(&cfg->classes, &f);
    return 0;
}

int worker_settings_apply(struct worker_config *cfg, struct link_door *door,
                          const struct settings *s, const struct model *m, struct err *e) {
    worker_config_default(cfg);
    *door = (struct link_door){.endpoint = ""};
    set_plain(cfg, s);
    if (set_threads(cfg, s, e) != 0 || set_classes(cfg, s, e) != 0)
        return -1;
    uint64_t free_bytes = worker_settings_free_bytes();
    int64_t kv = worker_settings_kv_tokens(s, &m->hp, free_bytes);
    if (kv < 1)
        return err_set_param(e, ERR_NO_MEMORY, "kv-tokens",
                             "not enough free memory for one KV block");
    cfg->kv_tokens = (uint32_t)kv;
    cfg->engine.host_slots =
        worker_settings_host_slots(s, &m->hp, cfg->kv_tokens, free_bytes);
    cfg->model = m;
    memcpy(door->endpoint, s->workers_endpoint, sizeof(door->endpoint));
    if (s->link_keys[0] != '\0' && transport_keys_load(&door->keys, s->link_keys, false, e) != 0)
        return -1;
    cfg->dial = dial;
    cfg->dial_ctx = door;
    if (getrandom(&cfg->incarnation, sizeof(cfg->incarnation), 0)
            != (ssize_t)sizeof(cfg->incarnation)
        || getrandom(&cfg->cache_secret, sizeof(cfg->cache_secret), 0)
               != (ssize_t)sizeof(cfg->cache_secret))
        return err_set(e, ERR_IO, "no random number for the incarnation: %s", strerror(errno));
    return 0;
}
