/* supervisor.c - see supervisor.h. */
#include "cli/supervisor.h"
#include "base/log.h"
#include "cli/clock.h"
#include "cli/command.h"
#include "cli/up_net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS 30       /* while something is awaited that makes no event: a file, /ready */
#define IDLE_MS 5000
#define UNCLEAN_WAIT_MS 2000

static int take_signals(struct supervisor *v, struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    int ends[2];
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0 ||
        (v->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0 ||
        pipe2(ends, O_CLOEXEC) != 0)
        return err_set(e, ERR_IO, "cannot take signals: %s", strerror(errno));
    v->settings.supervisor_fd = ends[0];
    v->pipe_fd = ends[1];
    return 0;
}

int supervisor_init(struct supervisor *v, const struct settings *s, struct err *e) {
    memset(v, 0, sizeof(*v));
    v->settings = *s;
    v->signal_fd = v->pipe_fd = v->state.lock_fd = -1;
    v->settings.supervisor_fd = -1;
    if (child_init(&v->gateway, "gateway", "sluice-gateway", s, e) != 0 ||
        child_init(&v->worker, "worker", "sluice-worker", s, e) != 0 ||
        up_state_open(&v->state, s->state, e) != 0)
        return -1;
    snprintf(v->settings.link_keys, sizeof(v->settings.link_keys), "%s", v->state.keys);
    if (up_net_check_ports(s, v->state.was_unclean ? UNCLEAN_WAIT_MS : 0, e) != 0 ||
        take_signals(v, e) != 0) {
        supervisor_deinit(v);
        return -1;
    }
    return 0;
}

void supervisor_deinit(struct supervisor *v) {
    const int fds[] = {v->signal_fd, v->pipe_fd, (int)v->settings.supervisor_fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    v->signal_fd = v->pipe_fd = -1;
    v->settings.supervisor_fd = -1;
    up_state_close(&v->state);
}

static void end(struct supervisor *v, int code) {
    child_signal(&v->gateway, SIGKILL);
    child_signal(&v->worker, SIGKILL);
    v->phase = SUPERVISOR_ENDED;
    v->code = code;
}

static void start(struct supervisor *v, struct child *c, enum settings_program program) {
    struct err e;
    if (child_start(c, program, &v->settings, &e) == 0)
        return;
    log_error("%s", e.msg);
    child_plan(c, clock_ms());
}

static void start_gateway(struct supervisor *v) {
    up_state_forget_gateway(&v->state);
    v->known = false;
    start(v, &v->gateway, SETTINGS_GATEWAY);
}

/* The port that was chosen, in the words of the setting: libzmq names IPv4 hosts as IPv6 ones. */
static int take_port(char *setting, size_t cap, const char *bound, struct err *e) {
    struct address asked, is;
    char text[SETTINGS_TEXT_MAX - 8];
    if (address_parse_endpoint(&asked, setting, e) != 0)
        return -1;
    if (asked.kind != ADDRESS_TCP || asked.port != 0)
        return 0;
    if (address_parse_endpoint(&is, bound, e) != 0)
        return -1;
    asked.port = is.port;
    if (address_format(&asked, text, sizeof(text)) != 0)
        return err_set(e, ERR_BAD_FILE, "an address is too long");
    snprintf(setting, cap, "tcp://%s", text);
    return 0;
}

static int take_ports(struct supervisor *v, const struct up_endpoints *at, struct err *e) {
    struct settings *s = &v->settings;
    if (address_parse_host_port(&v->http, s->http, e) != 0)
        return -1;
    v->http.port = (uint16_t)at->http_port;
    if (address_format(&v->http, s->http, sizeof(s->http)) != 0)
        return err_set(e, ERR_BAD_FILE, "an address is too long");
    if (take_port(s->rpc, sizeof(s->rpc), at->rpc, e) != 0)
        return -1;
    return take_port(s->workers_endpoint, sizeof(s->workers_endpoint), at->workers, e);
}

/* The gateway has bound its doors: take the addresses over, for the worker and for its own restarts. */
static void read_addresses(struct supervisor *v) {
    struct up_endpoints at;
    struct err e;
    int rc = up_state_read_gateway(&v->state, v->gateway.pid, &at, &e);
    if (rc == 0)
        return;
    if (rc < 0 || take_ports(v, &at, &e) != 0) {
        log_error("%s", e.msg);
        end(v, CLI_NO_SERVER);
        return;
    }
    v->known = true;
    if (v->worker.pid == 0 && v->worker.due_ms == 0)
        start(v, &v->worker, SETTINGS_WORKER);
}

static void say_ready(struct supervisor *v) {
    v->ready = v->was_ready = true;
    child_proved(&v->gateway);
    child_proved(&v->worker);
    printf("READY http://%s/v1 rpc %s model %s\n", v->settings.http, v->settings.rpc,
           v->settings.name);
    fflush(stdout);
}

/* Right after a worker's death the gateway may not know of it yet and still say 200: such an answer
 * counts only after a 503, or once two heartbeats would have told it. */
static void ask_ready(struct supervisor *v) {
    int status = up_net_ready(&v->http);
    if (status == 200 && clock_ms() >= v->trust_ms)
        say_ready(v);
    else if (status == 503)
        v->trust_ms = 0;
}

/* A child that never served and ended by itself: there is no use in trying again. */
static bool failed_to_start(const struct supervisor *v, const struct child *c) {
    return !v->was_ready && WIFEXITED(c->status) && WEXITSTATUS(c->status) != 0;
}

static void on_crash(struct supervisor *v, struct child *c, double now_ms) {
    char how[64];
    child_describe(c, how, sizeof(how));
    if (v->ready)
        v->down_ms = now_ms;
    v->ready = false;
    if (c == &v->worker)
        v->trust_ms = v->was_ready ? now_ms + 2e3 * v->settings.link_heartbeat_s : 0;
    if (failed_to_start(v, c)) {
        log_error("the %s could not start (%s); the reason is in its last line above", c->name, how);
        end(v, WEXITSTATUS(c->status));
        return;
    }
    child_plan(c, now_ms);
    if (v->settings.max_restarts > 0 && c->crashes > (uint32_t)v->settings.max_restarts) {
        log_error("the %s ended %u times in a row (last: %s); giving up", c->name, c->crashes, how);
        end(v, CLI_NO_SERVER);
        return;
    }
    log_warn("the %s ended (%s); starting it again in %.0f ms", c->name, how, c->due_ms - now_ms);
}

static void drain(struct supervisor *v) {
    log_info("stopping; running requests may end within %g s, a second signal ends at once",
             v->settings.drain_timeout_s);
    v->phase = SUPERVISOR_DRAINING;
    v->kill_ms = clock_ms() + (v->settings.drain_timeout_s + UP_GRACE_S) * 1e3;
    v->gateway.due_ms = v->worker.due_ms = 0;
    /* The worker stays until the gateway's last request is answered. */
    child_signal(v->gateway.pid != 0 ? &v->gateway : &v->worker, SIGTERM);
}

static void on_end(struct supervisor *v, struct child *c, double now_ms) {
    if (v->phase == SUPERVISOR_SERVING)
        on_crash(v, c, now_ms);
    else if (c == &v->gateway)
        child_signal(&v->worker, SIGTERM);
}

static void read_signals(struct supervisor *v) {
    struct signalfd_siginfo info;
    while (read(v->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (v->phase == SUPERVISOR_SERVING) {
            drain(v);
        } else if (v->phase == SUPERVISOR_DRAINING) {
            log_warn("second signal: ending at once");
            end(v, CLI_OK);
        }
    }
}

static void check_deadlines(struct supervisor *v, double now_ms) {
    if (v->phase == SUPERVISOR_DRAINING && now_ms > v->kill_ms) {
        log_warn("not stopped in time; killing what is left");
        end(v, CLI_OK);
    }
    if (v->phase == SUPERVISOR_SERVING && !v->was_ready &&
        now_ms - v->down_ms > v->settings.ready_timeout_s * 1e3) {
        log_error("not ready within %g s (--ready-timeout-s)", v->settings.ready_timeout_s);
        end(v, CLI_NO_SERVER);
    }
}

/* Starts what is due, looks at what makes no event. */
static void advance(struct supervisor *v, double now_ms) {
    if (v->gateway.due_ms > 0 && now_ms >= v->gateway.due_ms)
        start_gateway(v);
    if (v->worker.due_ms > 0 && now_ms >= v->worker.due_ms && v->known)
        start(v, &v->worker, SETTINGS_WORKER);
    if (v->gateway.pid != 0 && !v->known)
        read_addresses(v);
    if (!v->ready && v->known && v->gateway.pid != 0 && v->worker.pid != 0)
        ask_ready(v);
}

static bool settled(const struct supervisor *v) {
    bool running = v->gateway.pid != 0 || v->worker.pid != 0;
    if (v->phase == SUPERVISOR_DRAINING && !running)
        return true;
    return v->phase == SUPERVISOR_ENDED;
}

/* After SIGKILL: they are ours until they are reaped. */
static void reap(struct supervisor *v) {
    struct child *all[] = {&v->gateway, &v->worker};
    for (int i = 0; i < 2; i++) {
        if (all[i]->pid != 0)
            waitpid(all[i]->pid, &all[i]->status, 0);
        all[i]->pid = 0;
    }
}

int supervisor_run(struct supervisor *v) {
    v->down_ms = clock_ms();
    start_gateway(v);
    while (!settled(v)) {
        struct pollfd f = {.fd = v->signal_fd, .events = POLLIN};
        bool waits = v->phase == SUPERVISOR_SERVING && !v->ready;
        poll(&f, 1, waits ? POLL_MS : v->phase == SUPERVISOR_DRAINING ? 200 : IDLE_MS);
        double now_ms = clock_ms();
        read_signals(v);
        if (child_ended(&v->gateway))
            on_end(v, &v->gateway, now_ms);
        if (v->phase != SUPERVISOR_ENDED && child_ended(&v->worker))
            on_end(v, &v->worker, now_ms);
        if (v->phase == SUPERVISOR_SERVING)
            advance(v, now_ms);
        check_deadlines(v, now_ms);
    }
    reap(v);
    return v->code;
}
