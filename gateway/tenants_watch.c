#include "gateway/tenants_watch.h"

#include "base/log.h"
#include "base/mem.h"

#include <signal.h>

#define LOOK_MS 500

struct tenants_watch {
    struct gateway *g;
    uv_signal_t hup;
    uv_fs_poll_t tenants, keys;
    uv_work_t work;
    struct tenants_load load;
    bool busy, again, closing;
    int open_handles;
};

static void on_work(uv_work_t *work)
{
    struct tenants_watch *w = work->data;
    tenants_read(&w->load);
}

static void read_again(struct tenants_watch *w);

static void on_read(uv_work_t *work, int status)
{
    struct tenants_watch *w = work->data;
    struct err e;
    w->busy = false;
    if (status != 0) w->load.failed = true;
    if (status != 0) err_set(&w->load.err, ERR_IO, "not read");
    if (tenants_apply(w->g->tenants, &w->load, &e) != 0) {
        w->g->metrics.tenant_reload_errors++;
        log_error("tenants: the new files are not taken, the old ones stay in force: %s", e.msg);
    } else {
        w->g->metrics.tenant_reloads++;
    }
    if (w->again && !w->closing) read_again(w);
}

static void read_again(struct tenants_watch *w)
{
    w->again = w->busy; /* it may have been read before the change */
    if (w->busy || w->closing) return;
    tenants_load_init(w->g->tenants, &w->load);
    w->work.data = w;
    w->busy = uv_queue_work(w->g->loop, &w->work, on_work, on_read) == 0;
}

static void on_hup(uv_signal_t *s, int number)
{
    struct tenants_watch *w = s->data;
    (void)number;
    if (tenants_are_open(w->g->tenants)) log_info("SIGHUP: there is no tenants file to read again");
    else read_again(w);
}

/* Also when the file is gone or there again: reading says so. */
static void on_change(uv_fs_poll_t *p, int status, const uv_stat_t *before, const uv_stat_t *now)
{
    (void)status;
    (void)before;
    (void)now;
    read_again(p->data);
}

int tenants_watch_create(struct tenants_watch **out, struct gateway *g, struct err *e)
{
    struct tenants_watch *w = mem_zalloc(sizeof *w);
    if (w == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    w->g = g;
    w->hup.data = w->tenants.data = w->keys.data = w;
    uv_signal_init(g->loop, &w->hup);
    uv_fs_poll_init(g->loop, &w->tenants);
    uv_fs_poll_init(g->loop, &w->keys);
    w->open_handles = 3;
    *out = w;
    uv_signal_start(&w->hup, on_hup, SIGHUP);
    if (tenants_are_open(g->tenants)) return 0;
    if (uv_fs_poll_start(&w->tenants, on_change, g->settings->tenants, LOOK_MS) == 0 &&
        uv_fs_poll_start(&w->keys, on_change, g->settings->keys, LOOK_MS) == 0)
        return 0;
    tenants_watch_destroy(out);
    return err_set(e, ERR_IO, "cannot watch %s", g->settings->tenants);
}

static void on_closed(uv_handle_t *h)
{
    ((struct tenants_watch *)h->data)->open_handles--;
}

void tenants_watch_destroy(struct tenants_watch **pw)
{
    struct tenants_watch *w = *pw;
    *pw = NULL;
    if (w == NULL) return;
    w->closing = true;
    uv_close((uv_handle_t *)&w->hup, on_closed);
    uv_close((uv_handle_t *)&w->tenants, on_closed);
    uv_close((uv_handle_t *)&w->keys, on_closed);
    while (w->open_handles > 0 || w->busy) uv_run(w->g->loop, UV_RUN_ONCE);
    mem_free(w);
}
