/* sluice-gateway: front doors, text lanes, dispatcher on one loop. Usually started by `sluice up`.
 */
#include "base/log.h"
#include "base/mem.h"
#include "config/cpulist.h"
#include "gateway/budget_file.h"
#include "gateway/dispatch.h"
#include "gateway/explain.h"
#include "gateway/gateway.h"
#include "gateway/http.h"
#include "gateway/lane.h"
#include "gateway/rpc_door.h"
#include "gateway/state_file.h"
#include "gateway/tenants_watch.h"
#include "gateway/usage.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

enum { EXIT_USAGE = 1, EXIT_MODEL = 2, EXIT_RUNTIME = 3 };

struct process {
    struct gateway g;
    struct settings settings;
    struct model model;
    struct tenants_watch *watch;
    uv_loop_t loop;
    uv_signal_t term, intr;
    uv_poll_t parent;
    uv_timer_t drain;
    uint64_t drain_end_ns;
    bool stop, drain_over;
};

static void stop(struct process *p)
{
    p->stop = true;
    uv_stop(&p->loop);
}

static void on_drain_tick(uv_timer_t *t)
{
    struct process *p = t->data;
    bool idle = p->g.live_requests == 0 && dispatch_idle(p->g.dispatch) && http_idle(p->g.http);
    if (!idle && gateway_now_ns() < p->drain_end_ns) return;
    if (!idle && !p->drain_over) { /* each client learns of it, then one more second to send that */
        log_warn("drain time is over: %u requests are cut", p->g.live_requests);
        p->drain_over = true;
        p->drain_end_ns += 1000000000u;
        dispatch_fail_all(p->g.dispatch, ERR_DRAINING);
        return;
    }
    stop(p);
}

/* First signal: take nothing new, let what runs finish. Second: now. */
static void leave(struct process *p, const char *why)
{
    if (p->g.draining) {
        dispatch_fail_all(p->g.dispatch,
                          ERR_DRAINING); /* http_destroy sends what the sockets take at once */
        stop(p);
        return;
    }
    log_info("%s: draining, %u requests live", why, p->g.live_requests);
    p->g.draining = true;
    p->drain_end_ns = gateway_now_ns() + (uint64_t)(p->settings.drain_timeout_s * 1e9);
    dispatch_drain(p->g.dispatch);
    tenants_drain(p->g.tenants);
    uv_timer_start(&p->drain, on_drain_tick, 0, 20);
}

static void on_signal(uv_signal_t *s, int number)
{
    leave(s->data, number == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void on_parent(uv_poll_t *w, int status, int events)
{
    struct process *p = w->data;
    char c;
    (void)status;
    (void)events;
    ssize_t n = read((int)p->settings.supervisor_fd, &c, 1);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    log_warn("the supervisor is gone: leaving");
    uv_poll_stop(w);
    stop(p);
}

static void watch_process(struct process *p)
{
    p->term.data = p->intr.data = p->parent.data = p->drain.data = p;
    uv_signal_init(&p->loop, &p->term);
    uv_signal_init(&p->loop, &p->intr);
    uv_timer_init(&p->loop, &p->drain);
    uv_signal_start(&p->term, on_signal, SIGTERM);
    uv_signal_start(&p->intr, on_signal, SIGINT);
    if (p->settings.supervisor_fd >= 0 &&
        uv_poll_init(&p->loop, &p->parent, (int)p->settings.supervisor_fd) == 0) {
        uv_poll_start(&p->parent, UV_READABLE | UV_DISCONNECT, on_parent);
    }
}

static void pin(const struct settings *s)
{
    struct cpulist own, worker;
    struct err e;
    if (s->cpus[0] == '\0' || cpulist_parse_roles(&own, &worker, s->cpus, &e) != 0 ||
        cpulist_count(&own) == 0)
        return;
    if (cpulist_apply(&own, &e) != 0) log_warn("%s", e.msg);
}

/* What a restart must know of the process before. Without the file of budgets the gateway serves all the
 * same: a tenant may then use a second minute's budget after a crash. */
static int open_books(struct gateway *g, struct err *e)
{
    const char *dir = g->settings->state;
    if (state_file_folder(g, e) != 0 ||
        usage_create(&g->usage, g->loop, dir, gateway_wall_s(), e) != 0)
        return -1;
    struct err why;
    if (budget_file_open(&g->budgets, dir, &why) != 0) log_warn("%s", why.msg);
    return 0;
}

static int open_doors(struct process *p, struct err *e)
{
    struct gateway *g = &p->g;
    if (gateway_classes(g, e) != 0 || open_books(g, e) != 0 ||
        tenants_create(&g->tenants, g, e) != 0 || tenants_watch_create(&p->watch, g, e) != 0)
        return -1;
    if (lanes_create(&g->lanes, g, e) != 0 || dispatch_create(&g->dispatch, g, NULL, e) != 0)
        return -1;
    tenants_meet_dispatch(g->tenants);
    if (explain_create(&g->explain, (uint32_t)g->settings->explain_kept, e) != 0) return -1;
    if (http_create(&g->http, g, e) != 0 || rpc_door_create(&g->rpc, g, e) != 0) return -1;
    return state_file_write(g, e);
}

static void close_doors(struct process *p)
{
    struct gateway *g = &p->g;
    g->draining = true;
    http_destroy(&g->http);
    rpc_door_destroy(&g->rpc);
    lanes_destroy(&g->lanes);
    dispatch_destroy(&g->dispatch);
    explain_destroy(&g->explain);
    tenants_watch_destroy(&p->watch);
    tenants_destroy(&g->tenants);
    budget_file_close(&g->budgets);
    usage_destroy(&g->usage);
}

static void close_any(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h)) uv_close(h, NULL);
}

static int run(struct process *p)
{
    struct err e;
    struct gateway *g = &p->g;
    g->settings = &p->settings;
    g->model = &p->model;
    g->loop = &p->loop;
    g->started_wall_s = gateway_wall_s();
    if (getrandom(&g->incarnation, sizeof g->incarnation, 0) != (ssize_t)sizeof g->incarnation)
        g->incarnation = gateway_now_ns();
    api_limits_fill(&g->limits, &p->settings, &p->model);
    metrics_init(&g->metrics);
    uv_loop_init(&p->loop);
    watch_process(p);
    int bad = open_doors(p, &e);
    if (bad) {
        log_error("%s", e.msg);
    } else {
        dispatch_pools(g->dispatch);
        mem_pool_print(stderr);
        log_info("serving %s on http port %u, rpc %s", p->model.name, http_port(g->http),
                 rpc_door_endpoint(g->rpc));
        while (!p->stop) uv_run(&p->loop, UV_RUN_DEFAULT);
    }
    close_doors(p);
    uv_walk(&p->loop, close_any, NULL);
    uv_run(&p->loop, UV_RUN_DEFAULT);
    uv_loop_close(&p->loop);
    return bad ? EXIT_RUNTIME : 0;
}

static int usage(void)
{
    printf("usage: sluice-gateway --model FILE [options]\n\nThe gateway process: HTTP and RPC "
           "doors, queues, worker link. `sluice up` starts it.\n\n");
    settings_help(stdout, SETTINGS_GATEWAY);
    return 0;
}

int main(int argc, char **argv)
{
    static struct process p;
    struct err e;
    switch (settings_parse_args(&p.settings, SETTINGS_GATEWAY, argc, argv, &e)) {
    case SETTINGS_BAD:
        fprintf(stderr, "sluice-gateway: %s\n", e.msg);
        return EXIT_USAGE;
    case SETTINGS_HELP: return usage();
    case SETTINGS_VERSION: return puts("sluice-gateway " SLUICE_VERSION) < 0;
    case SETTINGS_CHECK:
        settings_dump(stdout, &p.settings, SETTINGS_GATEWAY);
        return 0;
    case SETTINGS_RUN: break;
    }
    signal(SIGPIPE, SIG_IGN);
    if (p.settings.supervisor_fd >= 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    mem_pool_program();
    log_open("gateway", (enum log_level)p.settings.log_level, p.settings.log_json);
    pin(&p.settings);
    if (model_open(&p.model, p.settings.model, p.settings.name, &e) != 0) {
        log_error("%s", e.msg);
        return EXIT_MODEL;
    }
    mem_pool_set(MEM_POOL_FILE, gguf_file_bytes(p.model.gguf), gguf_drop_tensor_pages(p.model.gguf),
                 0);
    mem_fail_nth((uint64_t)p.settings.debug_fail_alloc);
    int rc = run(&p);
    model_close(&p.model);
    return rc;
}
