#include "gateway/tenants_priv.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "gateway/class_choice.h"
#include "gateway/dispatch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading, on any thread */

void tenants_load_init(const struct tenants *t, struct tenants_load *l)
{
    memset(l, 0, sizeof *l);
    memcpy(l->tenants_path, t->g->settings->tenants, sizeof l->tenants_path);
    memcpy(l->keys_path, t->g->settings->keys, sizeof l->keys_path);
    l->classes = t->classes;
}

static void load_drop(struct tenants_load *l)
{
    tenants_file_deinit(&l->tenants);
    keys_file_deinit(&l->keys);
}

void tenants_read(struct tenants_load *l)
{
    l->failed = tenants_file_load(&l->tenants, l->tenants_path, &l->classes, &l->err) != 0 ||
                keys_file_load(&l->keys, l->keys_path, &l->err) != 0;
    if (l->failed) load_drop(l);
}

/* ---- the table */

static int by_name(const void *name, const void *row)
{
    return strcmp(name, ((const struct tenant_line *)row)->name);
}

static int row_of(const struct tenants_file *f, const char *name)
{
    const struct tenant_line *row = bsearch(name, f->rows, f->n, sizeof *f->rows, by_name);
    return row ? (int)(row - f->rows) : -1;
}

static uint32_t live(const struct tenants *ts)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ts->high; i++) n += ts->list[i] != NULL;
    return n;
}

static void put(struct tenants *ts, struct tenant *t)
{
    uint32_t i = 0;
    while (i < ts->high && ts->list[i]) i++;
    assert(i < TENANTS_LIVE_MAX);
    t->index = i;
    ts->list[i] = t;
    ts->untold[i] = true;
    if (i == ts->high) ts->high++;
}

static void take_out(struct tenants *ts, struct tenant *t)
{
    assert(t->refs == 0 && ts->list[t->index] == t);
    ts->list[t->index] = NULL;
    ts->untold[t->index] = true;
    tenants_look_soon(ts); /* this may be the middle of the dispatcher's own work */
    while (ts->high > 0 && ts->list[ts->high - 1] == NULL) ts->high--;
    mem_free(t);
}

/* The open tenant is told to nobody: with one all is as if there were none. Its in-flight cap is the
 * budget's matter, before the queue. */
void tenants_tell(struct tenants *ts)
{
    _Static_assert(TENANTS_LIVE_MAX <= DISPATCH_TENANTS_MAX, "an index is good for the dispatcher");
    if (ts->g->dispatch == NULL || ts->open) return;
    for (uint32_t i = 0; i < TENANTS_LIVE_MAX; i++) {
        const struct tenant *t = ts->list[i];
        if (!ts->untold[i]) continue;
        ts->untold[i] = false;
        if (t == NULL) {
            dispatch_tenant(ts->g->dispatch, i, 0, 0, 0);
        } else {
            long weight = lround(t->line.weight * 1000);
            dispatch_tenant(ts->g->dispatch, i, (uint32_t)weight, 0, (uint32_t)t->line.queue_room);
        }
    }
}

void tenants_meet_dispatch(struct tenants *ts)
{
    for (uint32_t i = 0; i < ts->high; i++) ts->untold[i] = ts->list[i] != NULL;
    tenants_tell(ts);
}

/* of[i] = the tenant of row i: there already, or new and in no table yet. */
static int match_rows(const struct tenants *ts, const struct tenants_file *f, struct tenant **of,
                      struct err *e)
{
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < ts->high; i++) {
        int row = ts->list[i] ? row_of(f, ts->list[i]->line.name) : -1;
        if (row >= 0) of[row] = ts->list[i];
    }
    for (uint32_t i = 0; i < f->n; i++) fresh += of[i] == NULL;
    if (live(ts) + fresh > TENANTS_LIVE_MAX) {
        return err_set(e, ERR_BAD_FILE,
                       "too many tenants: %u new ones beside %u that still have requests", fresh,
                       live(ts));
    }
    for (uint32_t i = 0; i < f->n; i++) {
        if (of[i]) continue;
        of[i] = mem_zalloc(sizeof *of[i]);
        if (of[i] == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory for %u tenants", f->n);
        of[i]->index = UINT32_MAX;
    }
    return 0;
}

static void forget_new(struct tenant **of, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (of[i] && of[i]->index == UINT32_MAX) mem_free(of[i]);
    }
}

/* The classes of a key, 0 = it lets in nowhere: its tenant or its classes are not in force. */
static uint8_t key_classes(const struct tenants *ts, const struct key_line *k,
                           const struct tenant_line *line)
{
    char *names[CLASS_LINES_MAX];
    const char *bad;
    uint8_t all = line->classes & class_all(&ts->g->limits.classes);
    for (uint32_t i = 0; i < k->n_classes; i++) names[i] = (char *)(uintptr_t)k->classes[i];
    int mask = class_names_mask(&ts->classes, names, k->n_classes, &bad);
    if (mask < 0) return 0;
    return k->n_classes == 0 ? all : (uint8_t)mask & all;
}

static void add_keys(struct tenants *ts, struct key_index *x, const struct tenants_load *l,
                     struct tenant **of)
{
    uint32_t dead = 0;
    ts->n_keys = 0;
    for (uint32_t i = 0; i < l->keys.n; i++) {
        const struct key_line *k = &l->keys.rows[i];
        int row = row_of(&l->tenants, k->tenant);
        uint8_t classes = row >= 0 ? key_classes(ts, k, &l->tenants.rows[row]) : 0;
        if (classes == 0) {
            dead++;
            continue;
        }
        key_index_add(x, k->hash, (struct key_grant){of[row], classes});
        ts->n_keys++;
    }
    if (dead)
        log_warn("tenants: %u keys let nobody in, their tenant or classes are not in force", dead);
    if (ts->n_keys == 0) log_warn("tenants: no key is in force; make one with `sluice keys add`");
}

/* From here on nothing can fail. */
static void commit(struct tenants *ts, const struct tenants_load *l, struct tenant **of,
                   struct key_index *x)
{
    for (uint32_t i = 0; i < ts->high; i++) {
        if (ts->list[i]) ts->list[i]->gone = true;
    }
    for (uint32_t i = 0; i < l->tenants.n; i++) {
        bool fresh = of[i]->index == UINT32_MAX;
        of[i]->line = l->tenants.rows[i];
        of[i]->gone = false;
        if (!fresh) ts->untold[of[i]->index] = true;
        tenant_set_limits(of[i], fresh);
        if (!fresh) continue;
        put(ts, of[i]);
        tenant_restore(ts->g, of[i]);
    }
    add_keys(ts, x, l, of);
    key_index_destroy(&ts->keys);
    ts->keys = x;
    for (uint32_t i = 0; i < ts->high; i++) {
        struct tenant *t = ts->list[i];
        if (t && t->gone && t->refs == 0) take_out(ts, t);
    }
    tenants_tell(ts);
}

int tenants_apply(struct tenants *ts, struct tenants_load *l, struct err *e)
{
    struct key_index *x = NULL;
    if (l->failed) {
        *e = l->err;
        return -1;
    }
    struct tenant **of = mem_array(l->tenants.n, sizeof *of);
    int bad = of == NULL ? err_set(e, ERR_NO_MEMORY, "out of memory") : 0;
    if (bad == 0) bad = match_rows(ts, &l->tenants, of, e);
    if (bad == 0) bad = key_index_create(&x, l->keys.n, e);
    if (bad == 0) {
        commit(ts, l, of, x);
        tenants_look_soon(ts);
        log_info("tenants: %u tenants, %u keys in force", l->tenants.n, ts->n_keys);
    } else if (of) {
        forget_new(of, l->tenants.n);
    }
    mem_free(of);
    load_drop(l);
    return bad;
}

/* ---- life */

static int open_one(struct tenants *ts, struct err *e)
{
    struct tenant *t = mem_zalloc(sizeof *t);
    if (t == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    ts->open = true;
    tenant_line_default(&t->line, TENANT_OPEN_NAME);
    tenant_set_limits(t, true);
    put(ts, t);
    tenant_restore(ts->g, t);
    return 0;
}

static int read_first(struct tenants *ts, struct err *e)
{
    struct tenants_load *l = mem_zalloc(sizeof *l);
    if (l == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    tenants_load_init(ts, l);
    tenants_read(l);
    int r = tenants_apply(ts, l, e);
    mem_free(l);
    return r;
}

/* The class table as the files' reader knows it: by name. */
static void names_of(const struct class_table *t, struct classes_file *f)
{
    memset(f, 0, sizeof *f);
    f->n = t->n;
    for (uint32_t i = 0; i < t->n; i++) memcpy(f->rows[i].name, t->rows[i].name, CLASS_NAME_BYTES);
}

int tenants_create(struct tenants **out, struct gateway *g, struct err *e)
{
    if (api_key_init(e) != 0) return -1;
    struct tenants *ts = mem_zalloc(sizeof *ts);
    if (ts == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    ts->g = g;
    names_of(&g->limits.classes, &ts->classes);
    int bad = tenants_timer_open(ts, e);
    if (bad == 0) bad = g->settings->tenants[0] ? read_first(ts, e) : open_one(ts, e);
    if (bad) tenants_destroy(&ts);
    else *out = ts;
    return bad ? -1 : 0;
}

void tenants_destroy(struct tenants **pts)
{
    struct tenants *ts = *pts;
    *pts = NULL;
    if (ts == NULL) return;
    tenants_timer_close(ts);
    for (uint32_t i = 0; i < ts->high; i++) {
        assert(ts->list[i] == NULL || ts->list[i]->refs == 0);
        mem_free(ts->list[i]);
    }
    key_index_destroy(&ts->keys);
    mem_free(ts);
}

bool tenants_are_open(const struct tenants *ts)
{
    return ts == NULL || ts->open;
}

bool tenants_find(const struct tenants *ts, const char *key, size_t n, struct key_grant *out)
{
    if (ts->open) {
        *out = (struct key_grant){ts->list[0], UINT8_MAX};
        return true;
    }
    return key != NULL && key_index_find(ts->keys, key, n, out);
}

static bool is_called(const struct tenants *ts, uint32_t i, const char *name)
{
    return i < ts->high && ts->list[i] && strcmp(ts->list[i]->line.name, name) == 0;
}

/* Workers' messages name tenants all the time: the same place is looked at first. */
struct tenant *tenants_by_name(struct tenants *ts, const char *name)
{
    uint16_t *hint = &ts->hint[hash64(name, strlen(name), 0) % 4096];
    if (*hint != 0 && is_called(ts, *hint - 1u, name)) return ts->list[*hint - 1u];
    for (uint32_t i = 0; i < ts->high; i++) {
        if (!is_called(ts, i, name)) continue;
        *hint = (uint16_t)(i + 1);
        return ts->list[i];
    }
    return NULL;
}

uint32_t tenants_keys(const struct tenants *ts)
{
    return ts->n_keys;
}

uint32_t tenants_count(const struct tenants *ts)
{
    return ts->high;
}

struct tenant *tenants_at(const struct tenants *ts, uint32_t i)
{
    return i < ts->high ? ts->list[i] : NULL;
}

struct tenant *tenant_hold(struct tenant *t)
{
    if (t) t->refs++;
    return t;
}

void tenant_release(struct tenants *ts, struct tenant **pt)
{
    struct tenant *t = *pt;
    *pt = NULL;
    if (t == NULL) return;
    assert(t->refs > 0);
    if (--t->refs == 0 && t->gone) take_out(ts, t);
}
