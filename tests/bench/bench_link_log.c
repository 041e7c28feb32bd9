#include "tests/bench/bench_link_log.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MAX 65536
#define NOBODY UINT32_MAX

struct reader {
    struct link_log *l;
    uint64_t cap_steps, running; /* running: step that computes; 0 = none */
    uint32_t cap_arrivals;
    uint32_t *waits; /* by slot: arrival that no step has had yet */
    uint8_t *live;   /* by slot: real-time, its last token not made */
    uint32_t n_live;
    uint64_t last_ns;
    struct log_window *windows;
    uint32_t n_windows, window; /* window: the first that is not over */
    bool no_memory;
};

static uint64_t value(const char *line, const char *name) {
    char key[40];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(line, key);
    if (at == NULL)
        return 0;
    at += strlen(key);
    return strncmp(at, "true", 4) == 0 ? 1 : *at == '-' ? 0 : strtoull(at, NULL, 10);
}

static struct log_step *step_at(struct reader *r, uint64_t id) {
    if (id >= r->cap_steps) {
        uint64_t cap = id * 2 + 1024;
        struct log_step *p = mem_realloc(r->l->steps, cap * sizeof(*p));
        r->no_memory = r->no_memory || p == NULL;
        if (p == NULL)
            return NULL;
        memset(p + r->cap_steps, 0, (cap - r->cap_steps) * sizeof(*p));
        r->l->steps = p;
        r->cap_steps = cap;
    }
    r->l->n_steps = id + 1 > r->l->n_steps ? id + 1 : r->l->n_steps;
    return &r->l->steps[id];
}

static bool lower_runs(const struct reader *r) {
    return r->running != 0 && r->l->steps[r->running].rank != 0;
}

static struct log_window *window(struct reader *r) {
    struct log_window *w = r->window < r->n_windows ? &r->windows[r->window] : NULL;
    return w != NULL && r->last_ns >= w->from_ns ? w : NULL;
}

/* What was true since the last line. */
static void pass_time(struct reader *r, const char *line) {
    uint64_t ns = value(line, "ns"), dt = ns > r->last_ns ? ns - r->last_ns : 0;
    struct log_window *w = window(r);
    if (ns == 0)
        return;
    if (w != NULL) {
        w->latency_s += 1e-9 * (double)dt * r->n_live;
        w->behind_s += lower_runs(r) ? 1e-9 * (double)dt * r->n_live : 0;
    }
    r->last_ns = ns > r->last_ns ? ns : r->last_ns;
    while (r->window < r->n_windows && ns >= r->windows[r->window].to_ns)
        r->window++;
}

static void set_live(struct reader *r, uint64_t slot, bool live) {
    if (slot >= SLOTS_MAX || (r->live[slot] != 0) == live)
        return;
    r->live[slot] = live;
    r->n_live += live ? 1 : UINT32_MAX;
    struct log_window *w = window(r);
    if (live && w != NULL)
        w->requests++;
}

static void on_submit(struct reader *r, const char *line) {
    struct link_log *l = r->l;
    unsigned long long incarnation = 0, counter = 0;
    uint64_t slot = value(line, "slot");
    const char *sub = strstr(line, "\"sub\":[");
    if (value(line, "class") != 0 || slot >= SLOTS_MAX || sub == NULL)
        return;
    if (l->n_arrivals == r->cap_arrivals) {
        r->cap_arrivals = r->cap_arrivals * 2 + 256;
        struct log_arrival *p = mem_realloc(l->arrivals, r->cap_arrivals * sizeof(*p));
        r->no_memory = r->no_memory || p == NULL;
        if (p == NULL)
            return;
        l->arrivals = p;
    }
    sscanf(sub, "\"sub\":[%llu,%llu]", &incarnation, &counter);
    bool beside = lower_runs(r);
    l->arrivals[l->n_arrivals] = (struct log_arrival){.incarnation = incarnation,
                                                      .counter = counter,
                                                      .submit_ns = value(line, "ns"),
                                                      .beside = beside ? r->running : 0};
    r->waits[slot] = l->n_arrivals++;
    set_live(r, slot, value(line, "refused") == 0);
}

static void on_step_submit(struct reader *r, const char *line) {
    uint64_t id = value(line, "step");
    struct log_step *s = step_at(r, id);
    const char *at = strstr(line, "\"spans\":[");
    struct log_window *w = window(r);
    unsigned slot, pos, n;
    if (s == NULL || at == NULL)
        return;
    *s = (struct log_step){.rank = (uint8_t)value(line, "rank"),
                           .submit_ns = value(line, "ns"),
                           .shortest = UINT32_MAX};
    for (at += 9; sscanf(at, "[%u,%u,%u,", &slot, &pos, &n) == 3;) {
        s->tokens += n;
        s->spans++;
        s->shortest = pos < s->shortest ? pos : s->shortest;
        if (w != NULL) {
            w->holds++;
            w->held_blocks += (pos + n + 15) / 16;
        }
        if (slot < SLOTS_MAX && r->waits[slot] != NOBODY) {
            r->l->arrivals[r->waits[slot]].step = id;
            r->waits[slot] = NOBODY;
        }
        at = strchr(at, ']') + 1;
        at += *at == ',';
    }
    if (r->running == 0) /* else it is launched behind the running one */
        r->running = id;
}

static void on_step_end(struct reader *r, const char *line) {
    uint64_t id = value(line, "step");
    struct log_step *s = step_at(r, id);
    if (s == NULL)
        return;
    s->end_ns = value(line, "ns");
    s->device_ns = value(line, "device_ns");
    s->segments = (uint32_t)value(line, "segments_done");
    r->running = r->running == id ? 0 : r->running;
    struct log_window *w = window(r);
    if (w == NULL)
        return;
    w->rank_s[s->rank != 0] += 1e-9 * (double)s->device_ns;
    if (s->rank == 0 && s->tokens == s->spans)
        w->decode_steps[s->spans < LOG_WIDTHS ? s->spans : LOG_WIDTHS]++;
    else if (s->rank == 0)
        w->prefill_tokens += s->tokens;
}

static void on_tokens(struct reader *r, const char *line) {
    if (strstr(line, "\"finish\":\"\"") == NULL && strstr(line, "\"finish\":\"none\"") == NULL)
        set_live(r, value(line, "slot"), false);
}

static void on_line(struct reader *r, const char *line) {
    pass_time(r, line);
    if (strstr(line, "\"event\":\"submit\"") != NULL) {
        on_submit(r, line);
    } else if (strstr(line, "\"action\":\"step_submit\"") != NULL) {
        on_step_submit(r, line);
    } else if (strstr(line, "\"event\":\"step_end\"") != NULL) {
        on_step_end(r, line);
    } else if (strstr(line, "\"event\":\"step_parked\"") != NULL) {
        struct log_step *s = step_at(r, value(line, "step"));
        if (s != NULL)
            s->parks++;
        r->running = 0;
    } else if (strstr(line, "\"action\":\"step_continue\"") != NULL) {
        r->running = value(line, "step");
    } else if (strstr(line, "\"action\":\"tokens\"") != NULL) {
        on_tokens(r, line);
    } else if (strstr(line, "\"action\":\"free\"") != NULL) {
        set_live(r, value(line, "slot"), false);
    } else if (strstr(line, "\"action\":\"copy\"") != NULL) {
        if (window(r) != NULL)
            window(r)->copies++;
    } else if (strstr(line, "{\"dropped\":") == line) {
        r->l->dropped += value(line, "dropped");
    }
}

int link_log_read(struct link_log *l, const char *path, struct log_window *windows, uint32_t n,
                  struct err *e) {
    *l = (struct link_log){0};
    struct reader r = {.l = l,
                       .waits = mem_array(SLOTS_MAX, sizeof(*r.waits)),
                       .live = mem_zalloc(SLOTS_MAX),
                       .windows = windows,
                       .n_windows = n};
    char *line = NULL; /* getline's: the library's block */
    size_t cap = 0;
    FILE *f = fopen(path, "re");
    int rc = 0;
    if (f == NULL || r.waits == NULL || r.live == NULL) {
        rc = err_set(e, ERR_IO, "cannot read %s: %s", path, strerror(errno));
    } else {
        memset(r.waits, 0xff, SLOTS_MAX * sizeof(*r.waits));
        while (getline(&line, &cap, f) > 0)
            on_line(&r, line);
        if (r.no_memory)
            rc = err_set(e, ERR_NO_MEMORY, "no memory for the log");
    }
    free(line);
    mem_free(r.waits);
    mem_free(r.live);
    if (f != NULL)
        fclose(f);
    return rc;
}

void link_log_free(struct link_log *l) {
    mem_free(l->steps);
    mem_free(l->arrivals);
    *l = (struct link_log){0};
}
