#include "gateway/usage.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define INDEX (2 * USAGE_ROWS_MAX) /* half empty: probes stay short */
#define SEEN 128 /* workers, twice the sessions: one that comes back in another is known again */
#define WARN_EVERY 12 /* failed writes: a minute */

/* One day. The index holds 1 + row, 0 = empty, by the hash of the name. */
struct table {
    int32_t day;
    uint64_t seq;
    struct usage_row *rows;
    uint32_t n;
    uint16_t *index;
    bool dirty;
};

struct seen { uint64_t incarnation, used; struct msg_account account[CLASSES_MAX]; };

struct usage {
    uv_loop_t *loop;
    char *dir;
    struct table today, before;    /* before: yesterday until it is written for the last time */
    struct seen seen[SEEN];
    uint64_t messages;             /* with counters: which was used last */
    uv_timer_t timer;
    bool has_timer, closed;
    /* one write at a time; the worker thread owns `job` and `err` meanwhile */
    uv_work_t work;
    bool writing;
    struct usage_day job;
    bool failed;
    struct err err;
    uint32_t failures;
};

/* ---- the table */

static int table_make(struct table *t)
{
    t->rows = mem_array(USAGE_ROWS_MAX, sizeof *t->rows);
    t->index = mem_array(INDEX, sizeof *t->index);
    return t->rows && t->index ? 0 : -1;
}

static void table_clear(struct table *t, int32_t day)
{
    memset(t->rows, 0, t->n * sizeof *t->rows);
    memset(t->index, 0, INDEX * sizeof *t->index);
    t->n = 0;
    t->seq = 0;
    t->day = day;
    t->dirty = false;
}

static uint16_t *place_of(const struct table *t, const char *name)
{
    size_t i = hash64(name, strlen(name), 0) % INDEX;
    while (t->index[i] != 0 && strcmp(t->rows[t->index[i] - 1].tenant, name) != 0)
        i = (i + 1) % INDEX;
    return &t->index[i];
}

static struct usage_counts *counts_of(struct table *t, const char *name)
{
    uint16_t *at = place_of(t, name);
    if (*at == 0) {
        /* the last two rows are kept for the two names that are no tenant's */
        bool own = strcmp(name, USAGE_OTHER) == 0 || strcmp(name, USAGE_ENGINE) == 0;
        if (!own && t->n >= USAGE_ROWS_MAX - 2) return counts_of(t, USAGE_OTHER);
        assert(usage_name_ok(name) && t->n < USAGE_ROWS_MAX);
        memcpy(t->rows[t->n].tenant, name, strlen(name) + 1);
        *at = (uint16_t)++t->n;
    }
    return &t->rows[*at - 1].counts;
}

static void table_load(struct table *t, const char *dir, int32_t day)
{
    struct usage_day d;
    struct err e;
    table_clear(t, day);
    if (usage_file_load(&d, dir, day, &e) != 0) {
        if (e.code == ERR_NOT_FOUND) return;
        log_warn("usage: %s; this day counts from 0, the file is put aside", e.msg);
        usage_file_set_aside(dir, day);
        return;
    }
    t->seq = d.seq;
    for (uint32_t i = 0; i < d.n; i++)
        usage_counts_add(counts_of(t, d.rows[i].tenant), &d.rows[i].counts);
    usage_text_deinit(&d);
}

static struct table *table_at(struct usage *u, int64_t wall_s)
{
    int32_t day = usage_day_of(wall_s);
    if (day <= u->today.day) return &u->today; /* a clock set back: the day at hand */
    if (u->before.dirty) log_warn("usage: a whole day could not be written and is lost");
    struct table last = u->before;
    u->before = u->today;
    u->today = last;
    table_load(&u->today, u->dir, day); /* there only after a clock was set back: no real read */
    return &u->today;
}

/* ---- writing */

static void work(uv_work_t *w)
{
    struct usage *u = w->data;
    u->failed = usage_file_save(u->dir, &u->job, &u->err) != 0;
    if (u->job.seq % 1000 == 1) usage_file_forget(u->dir, u->job.day);
}

static void done(uv_work_t *w, int status)
{
    struct usage *u = w->data;
    u->writing = false;
    bool bad = status != 0 || u->failed;
    struct table *t = u->job.day == u->today.day ? &u->today : &u->before;
    if (bad && t->day == u->job.day) t->dirty = true;
    if (bad && u->failures++ % WARN_EVERY == 0)
        log_warn("usage: %s; tried again", status != 0 ? uv_strerror(status) : u->err.msg);
    if (!bad) u->failures = 0;
    mem_free(u->job.rows);
    u->job.rows = NULL;
}

static int job_of(struct usage *u, struct table *t)
{
    struct usage_row *rows = mem_memdup(t->rows, t->n * sizeof *rows);
    if (rows == NULL) return -1; /* tried again */
    u->job = (struct usage_day){.day = t->day, .seq = ++t->seq, .rows = rows, .n = t->n};
    t->dirty = false;
    return 0;
}

void usage_write(struct usage *u)
{
    struct table *t = u->before.dirty ? &u->before : &u->today;
    if (u->writing || !t->dirty || job_of(u, t) != 0) return;
    u->work.data = u;
    if (uv_queue_work(u->loop, &u->work, work, done) == 0) {
        u->writing = true;
        return;
    }
    t->dirty = true;
    mem_free(u->job.rows);
}

static void on_timer(uv_timer_t *timer)
{
    usage_write(timer->data);
}

bool usage_writing(const struct usage *u)
{
    return u->writing;
}

static void write_last(struct usage *u, struct table *t)
{
    struct err e;
    if (!t->dirty) return;
    struct usage_day d = {.day = t->day, .seq = t->seq + 1, .rows = t->rows, .n = t->n};
    if (usage_file_save(u->dir, &d, &e) != 0) log_warn("usage: %s", e.msg);
}

/* ---- life */

int usage_create(struct usage **out, uv_loop_t *loop, const char *dir, int64_t wall_s,
                 struct err *e)
{
    struct usage *u = mem_zalloc(sizeof *u);
    *out = NULL;
    if (u == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    u->loop = loop;
    u->dir = mem_strdup(dir);
    if (u->dir == NULL || table_make(&u->today) != 0 || table_make(&u->before) != 0) {
        usage_destroy(&u);
        return err_set(e, ERR_NO_MEMORY, "out of memory for the usage of a day");
    }
    u->before.day = INT32_MIN;
    table_load(&u->today, dir, usage_day_of(wall_s));
    if (uv_timer_init(loop, &u->timer) != 0 ||
        uv_timer_start(&u->timer, on_timer, USAGE_WRITE_MS, USAGE_WRITE_MS) != 0) {
        usage_destroy(&u);
        return err_set(e, ERR_IO, "cannot make a timer");
    }
    u->timer.data = u;
    u->has_timer = true;
    *out = u;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    ((struct usage *)h->data)->closed = true;
}

void usage_destroy(struct usage **pu)
{
    struct usage *u = *pu;
    *pu = NULL;
    if (u == NULL) return;
    while (u->writing) uv_run(u->loop, UV_RUN_ONCE);
    if (u->has_timer) {
        uv_close((uv_handle_t *)&u->timer, on_closed);
        while (!u->closed) uv_run(u->loop, UV_RUN_ONCE);
        write_last(u, &u->before);
        write_last(u, &u->today);
    }
    mem_free(u->dir);
    mem_free(u->today.rows);
    mem_free(u->today.index);
    mem_free(u->before.rows);
    mem_free(u->before.index);
    mem_free(u);
}

/* ---- counting */

void usage_add(struct usage *u, int64_t wall_s, const char *tenant, const struct usage_counts *n)
{
    if (u == NULL) return;
    struct table *t = table_at(u, wall_s);
    usage_counts_add(counts_of(t, tenant), n);
    t->dirty = true;
}

void usage_find(const struct usage *u, const char *tenant, struct usage_counts *out)
{
    *out = (struct usage_counts){0};
    if (u == NULL) return;
    uint16_t at = *place_of(&u->today, tenant);
    if (at != 0) *out = u->today.rows[at - 1].counts;
}

void usage_mark_deliver(struct usage_mark *m, uint32_t n_prompt, uint32_t cached, uint32_t n_out,
                        uint32_t fresh, struct usage_counts *out)
{
    *out = (struct usage_counts){0};
    assert(fresh <= n_out && cached <= n_prompt);
    bool first = fresh == n_out; /* of this run of it: the prompt was computed for it */
    if (first && !m->prompt) {
        m->prompt = true;
        out->prompt = n_prompt - cached;
        out->cached = cached;
    } else if (first) {
        out->wasted_again = n_prompt - cached;
    }
    uint32_t beyond = n_out > m->output ? n_out - m->output : 0;
    if (beyond > fresh) beyond = fresh;
    out->output = beyond;
    out->wasted_again += fresh - beyond;
    if (n_out > m->output) m->output = n_out;
}

/* Within one incarnation counters only rise; one that fell is an old message. */
static uint64_t rise(uint64_t *last, uint64_t now)
{
    uint64_t n = now > *last ? now - *last : 0;
    if (now > *last) *last = now;
    return n;
}

/* The worker's counters as last seen; *known = false: it is new here, they are all 0. */
static struct seen *seen_of(struct usage *u, uint64_t incarnation, bool *known)
{
    struct seen *oldest = &u->seen[0];
    *known = true;
    for (size_t i = 0; i < SEEN; i++) {
        struct seen *s = &u->seen[i];
        if (s->used != 0 && s->incarnation == incarnation) return s;
        if (s->used < oldest->used) oldest = s;
    }
    *known = false;
    *oldest = (struct seen){.incarnation = incarnation};
    return oldest;
}

void usage_engine(struct usage *u, int64_t wall_s, uint64_t incarnation, bool young,
                  const struct msg_account *accounts, uint32_t n)
{
    struct usage_counts sum = {0};
    bool known;
    if (u == NULL || n == 0) return;
    struct seen *s = seen_of(u, incarnation, &known);
    s->used = ++u->messages;
    for (uint32_t i = 0; i < n; i++) {
        const struct msg_account *a = &accounts[i];
        if (a->cls >= CLASSES_MAX) continue;
        struct msg_account *last = &s->account[a->cls];
        sum.prompt += rise(&last->prompt_first, a->prompt_first);
        sum.output += rise(&last->output, a->output);
        sum.wasted_recomputed += rise(&last->recomputed, a->recomputed);
        sum.wasted_dropped += rise(&last->dropped, a->dropped);
    }
    if (known || young) usage_add(u, wall_s, USAGE_ENGINE, &sum);
}
