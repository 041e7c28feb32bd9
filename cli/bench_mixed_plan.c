/* bench_mixed_plan.c - see bench_mixed_plan.h. */
#include "cli/bench_mixed_plan.h"
#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES (1 << 16)
#define IN_LOW 16
#define IN_SPREAD 17 /* 16 to 32 */
#define OUT_LOW 4
#define OUT_SPREAD 9 /* 4 to 12 */

int load_plan_make(struct load_plan *p, uint64_t seed, uint32_t n, double rate, struct err *e) {
    double at = 0;
    *p = (struct load_plan){.rows = mem_array(n, sizeof(*p->rows)), .n = n, .rate = rate};
    if (p->rows == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for %u arrivals", n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t c = 3 * (uint64_t)i;
        at += -log(1.0 - (double)(rand_at(seed, c) >> 11) * 0x1p-53) / rate;
        p->rows[i] = (struct load_row){at, IN_LOW + (uint32_t)(rand_at(seed, c + 1) % IN_SPREAD),
                                       OUT_LOW + (uint32_t)(rand_at(seed, c + 2) % OUT_SPREAD)};
    }
    return 0;
}

void load_plan_deinit(struct load_plan *p) {
    mem_free(p->rows);
    p->rows = NULL;
    p->n = 0;
}

double load_plan_length_s(const struct load_plan *p) {
    return p->n > 0 ? p->rows[p->n - 1].at_s : 0;
}

double load_plan_mean_in(const struct load_plan *p) {
    double sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        sum += p->rows[i].n_in;
    return p->n > 0 ? sum / p->n : 0;
}

double load_plan_mean_out(const struct load_plan *p) {
    double sum = 0;
    for (uint32_t i = 0; i < p->n; i++)
        sum += p->rows[i].n_out;
    return p->n > 0 ? sum / p->n : 0;
}

void load_plan_set_rate(struct load_plan *p, double rate) {
    for (uint32_t i = 0; i < p->n; i++)
        p->rows[i].at_s *= p->rate / rate;
    p->rate = rate;
}

/* ---- files */

struct columns {
    int arrival, in, out, cls;
};

static int header(struct columns *c, char *line, const char *path, struct err *e) {
    char *rest = line;
    *c = (struct columns){-1, -1, -1, -1};
    for (int i = 0; rest != NULL; i++) {
        const char *name = strsep(&rest, ",");
        if (strcmp(name, "arrival_ms") == 0)
            c->arrival = i;
        else if (strcmp(name, "input_tokens") == 0)
            c->in = i;
        else if (strcmp(name, "output_tokens") == 0)
            c->out = i;
        else if (strcmp(name, "class") == 0)
            c->cls = i;
    }
    if (c->arrival >= 0 && c->in >= 0 && c->out >= 0)
        return 0;
    return err_set(e, ERR_BAD_FILE,
                   "%s: its header names no arrival_ms, input_tokens and "
                   "output_tokens",
                   path);
}

static bool number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out) && *out >= 0;
}

/* 1 = a real-time row, 0 = another class, -1 = nonsense. */
static int row(struct load_row *r, const struct columns *c, char *line) {
    double v[3] = {-1, -1, -1};
    bool batch = false;
    char *rest = line;
    for (int i = 0; rest != NULL; i++) {
        const char *cell = strsep(&rest, ",");
        int at = i == c->arrival ? 0 : i == c->in ? 1 : i == c->out ? 2 : -1;
        if (at >= 0 && !number(cell, &v[at]))
            return -1;
        if (i == c->cls)
            batch = strcmp(cell, "batch") == 0;
    }
    if (v[0] < 0 || v[1] < 1 || v[2] < 1 || v[1] > 1e6 || v[2] > 1e6)
        return -1;
    *r = (struct load_row){v[0] / 1e3, (uint32_t)v[1], (uint32_t)v[2]};
    return batch ? 0 : 1;
}

static int lines(struct load_plan *p, FILE *f, const char *path, uint32_t max, char *line,
                 struct err *e) {
    struct columns c = {0};
    bool begun = false;
    for (uint64_t n = 1; p->n < max && fgets(line, LINE_MAX_BYTES, f) != NULL; n++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        if (!begun) {
            if (header(&c, line, path, e) != 0)
                return -1;
            begun = true;
            continue;
        }
        struct load_row r;
        int kind = row(&r, &c, line);
        if (kind < 0 || (kind > 0 && p->n > 0 && r.at_s < p->rows[p->n - 1].at_s))
            return err_set(e, ERR_BAD_FILE,
                           "%s line %" PRIu64 " is no row of a trace in order of "
                           "time",
                           path, n);
        if (kind > 0)
            p->rows[p->n++] = r;
    }
    if (p->n < 2)
        return err_set(e, ERR_BAD_FILE, "%s has fewer than two real-time arrivals", path);
    return 0;
}

int load_plan_read(struct load_plan *p, const char *path, uint32_t max, struct err *e) {
    FILE *f = fopen(path, "re");
    *p = (struct load_plan){0};
    if (f == NULL)
        return err_set(e, ERR_IO, "cannot read %s: %s", path, strerror(errno));
    char *line = mem_alloc(LINE_MAX_BYTES);
    p->rows = mem_array(max, sizeof(*p->rows));
    int rc = line == NULL || p->rows == NULL ? err_set(e, ERR_NO_MEMORY, "no memory for a trace")
                                             : lines(p, f, path, max, line, e);
    fclose(f);
    mem_free(line);
    double first = rc == 0 ? p->rows[0].at_s : 0;
    for (uint32_t i = 0; rc == 0 && i < p->n; i++)
        p->rows[i].at_s -= first;
    if (rc == 0 && load_plan_length_s(p) <= 0)
        rc = err_set(e, ERR_BAD_FILE, "all arrivals of %s are at one time", path);
    if (rc == 0)
        p->rate = p->n / load_plan_length_s(p);
    else
        load_plan_deinit(p);
    return rc;
}

int load_plan_write(const struct load_plan *p, const char *path, struct err *e) {
    FILE *f = fopen(path, "we");
    if (f == NULL)
        return err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    fprintf(f, "arrival_ms,input_tokens,output_tokens,class,tenant,session,block_tokens,"
               "prefix_ids\n");
    for (uint32_t i = 0; i < p->n; i++)
        fprintf(f, "%.3f,%u,%u,realtime,,,0,\n", p->rows[i].at_s * 1e3, p->rows[i].n_in,
                p->rows[i].n_out);
    bool bad = ferror(f) != 0;
    if (fclose(f) != 0 || bad)
        return err_set(e, ERR_IO, "cannot write %s", path);
    return 0;
}

/* ---- requests */

uint32_t ask_length(uint64_t seed, uint64_t i, uint32_t mean) {
    uint32_t low = mean - mean / 2;
    return (low > 0 ? low : 1) + (uint32_t)(rand_at(seed, i) % (mean + 1));
}

static void words(struct buf *out, uint64_t key, uint32_t n) {
    static const char *const common[] = {"time",  "water", "house", "light", "people", "river",
                                         "work",  "music", "paper", "night", "table",  "story",
                                         "stone", "world", "green", "quiet"};
    buf_addc(out, '"');
    for (uint32_t i = 0; i < n; i++)
        buf_addf(out, "%s%s", i > 0 ? " " : "", common[rand_at(key, i) % 16]);
    buf_addc(out, '"');
}

int ask_body(struct buf *out, const struct ask_style *style, const struct ask *a) {
    uint64_t key = rand_at(a->seed, a->index * 2 + (a->batch ? 1 : 0));
    uint32_t span = style->id_high - style->id_low;
    buf_addf(out, "{\"model\":\"%s\",\"prompt\":", style->model);
    if (style->words) {
        words(out, key, a->n_in);
    } else {
        buf_addc(out, '[');
        for (uint32_t i = 0; i < a->n_in; i++)
            buf_addf(out, "%s%u", i > 0 ? "," : "",
                     style->id_low + (uint32_t)(rand_at(key, i) % span));
        buf_addc(out, ']');
    }
    buf_addf(out, ",\"max_tokens\":%u,\"ignore_eos\":true,\"temperature\":%d,\"seed\":%u", a->n_out,
             (int)(a->index % 2), (uint32_t)(key >> 40));
    buf_addf(out, ",\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                  "\"continuous_usage_stats\":true}");
    if (a->batch && style->batch_tier != NULL)
        buf_addf(out, ",\"service_tier\":\"%s\"", style->batch_tier);
    buf_addc(out, '}');
    return out->bad ? -1 : 0;
}
