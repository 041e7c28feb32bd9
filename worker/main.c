/* main.c - sluice-worker: one model on one device, for one gateway (`sluice up` starts it).
 *
 * Exit: 0 ended in order, 1 usage, 2 the model or the engine cannot be opened, 3 failed while
 * running.
 */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "worker/worker_settings.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EXIT_USAGE = 1, EXIT_MODEL = 2, EXIT_FAILED = 3 };

static void print_help(void) {
    printf("usage: sluice-worker --model FILE [options]\n\nRuns a model's sequences for a gateway; "
           "`sluice up` "
           "starts both.\n\n");
    settings_help(stdout, SETTINGS_WORKER);
}

/* What is left to do with the command line: -1 = run, else the exit code. */
static int read_settings(struct settings *s, int argc, char **argv) {
    struct err e = {0};
    switch (settings_parse_args(s, SETTINGS_WORKER, argc, argv, &e)) {
    case SETTINGS_RUN: return -1;
    case SETTINGS_HELP: print_help(); return 0;
    case SETTINGS_VERSION: printf("sluice-worker %s\n", SLUICE_VERSION); return 0;
    case SETTINGS_CHECK: settings_dump(stdout, s, SETTINGS_WORKER); return 0;
    case SETTINGS_BAD: break;
    }
    fprintf(stderr, "sluice-worker: %s\n", e.msg);
    return EXIT_USAGE;
}

/* SIGTERM, SIGINT and SIGUSR1 (table of pools) become a descriptor, before any thread exists; a gateway that goes away is no
 * signal. */
static int take_signals(struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return err_set(e, ERR_INTERNAL, "sigprocmask: %s", strerror(errno));
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return fd >= 0 ? fd : err_set(e, ERR_INTERNAL, "signalfd: %s", strerror(errno));
}

/* A supervised worker must not outlive its supervisor, however that ends: the kernel kills it then,
 * and the pipe's end of file tells it too. The parent may be gone already: then the pipe is at its
 * end. */
static int follow_supervisor(int fd, struct err *e) {
    if (fd < 0)
        return 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return err_set(e, ERR_INTERNAL, "PR_SET_PDEATHSIG: %s", strerror(errno));
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return err_set_param(e, ERR_BAD_VALUE, "supervisor-fd", "supervisor-fd %d: %s", fd,
                             strerror(errno));
    char c;
    if (read(fd, &c, 1) == 0)
        return err_set(e, ERR_INTERNAL, "the supervisor is gone already");
    return 0;
}

static void say_what_runs(const struct worker *w, const struct worker_config *cfg,
                          const char *endpoint) {
    const struct engine_limits *l = worker_limits(w);
    char id[33];
    hash128_hex(l->numerics_id, id);
    log_info("model %s, engine %s, %u threads, numerics %.16s", cfg->model->name, l->family,
             cfg->engine.n_threads, id);
    log_info("%u seats, %u KV blocks of %u positions, gateway at %s", cfg->max_seqs,
             l->n_blocks - 1, l->block_tokens, endpoint);
    worker_print_pools(w, stderr);
}

static int run(const struct settings *s, const struct model *m, int signal_fd) {
    struct err e = {0};
    struct worker_config cfg;
    struct link_door door;
    struct worker *w;
    int fault = fault_parse(s->debug_fault);
    if (fault < 0) {
        log_error("debug-fault: there is no built-in mistake '%s'; base/fault.h lists them", s->debug_fault);
        return EXIT_USAGE;
    }
    fault_set((enum fault)fault);
    if (fault != FAULT_NONE)
        log_warn("built-in mistake on: %s", fault_what((enum fault)fault));
    if (worker_settings_apply(&cfg, &door, s, m, &e) != 0) {
        log_error("%s", e.msg);
        return EXIT_USAGE;
    }
    cfg.signal_fd = signal_fd;
    if (worker_open(&w, &cfg, &e) != 0) {
        log_error("%s", e.msg);
        transport_keys_wipe(&door.keys);
        return EXIT_MODEL;
    }
    say_what_runs(w, &cfg, door.endpoint);
    if (s->debug_fail_alloc > 0)
        mem_fail_nth((uint64_t)s->debug_fail_alloc);
    enum step_loop_end end = worker_run(w, &e);
    if (end == LOOP_FAILED)
        log_error("%s", e.msg);
    worker_close(&w);
    transport_keys_wipe(&door.keys); /* not before: each new session dials with them */
    return end == LOOP_FAILED ? EXIT_FAILED : 0;
}

int main(int argc, char **argv) {
    static struct settings s;
    struct err e = {0};
    int done = read_settings(&s, argc, argv);
    if (done >= 0)
        return done;
    log_open("worker", (enum log_level)s.log_level, s.log_json);
    mem_pool_program();
    int signal_fd = take_signals(&e);
    if (signal_fd < 0 || follow_supervisor((int)s.supervisor_fd, &e) != 0) {
        log_error("%s", e.msg);
        return EXIT_FAILED;
    }
    struct model m;
    if (model_open(&m, s.model, s.name[0] != '\0' ? s.name : NULL, &e) != 0) {
        log_error("%s", e.msg);
        return EXIT_MODEL;
    }
    mem_pool_set("model file", gguf_file_bytes(m.gguf), gguf_file_bytes(m.gguf), 0);
    int rc = run(&s, &m, signal_fd);
    model_close(&m);
    return rc;
}
