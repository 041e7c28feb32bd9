/* link_driver.c - see link_driver.h. */
#include "tests/bench/link_driver.h"

#include "base/mem.h"
#include "tests/common/testpaths.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ull
#define HEARTBEAT_NS (500 * MS)
#define SILENCE_NS (10000 * MS)
#define READY_NS (120000 * MS) /* a model is loaded meanwhile */

uint64_t driver_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* ---- requests ---- */

int driver_request_init(struct driver_request *r, uint8_t cls, uint64_t seed, uint64_t index,
                      uint32_t n_in, uint32_t n_out, uint32_t n_vocab) {
    uint32_t from = n_vocab > 2000 ? 1000 : 4; /* behind the control tokens */
    *r = (struct driver_request){.n_prompt = n_in,
                               .n = n_in,
                               .max_total = n_in + n_out,
                               .cls = cls,
                               .temperature = index % 2 != 0 ? 1.0f : 0.0f,
                               .seed = rand_at(seed ^ 0x5eedu, index),
                               .tag = index};
    r->ids = mem_array(r->max_total, sizeof(*r->ids));
    r->at_ns = mem_array(n_out, sizeof(*r->at_ns));
    if (r->ids == NULL || r->at_ns == NULL)
        return -1;
    uint64_t own = rand_at(seed, index);
    for (uint32_t i = 0; i < n_in; i++)
        r->ids[i] = (int32_t)(from + rand_at(own, i) % (n_vocab - from));
    return 0;
}

int driver_request_open_ended(struct driver_request *r) {
    uint32_t n_out = r->max_total - r->n_prompt;
    int32_t *ids = mem_realloc(r->ids, (r->n_prompt + 4 * n_out) * sizeof(*ids));
    r->ids = ids != NULL ? ids : r->ids;
    uint64_t *at_ns = mem_realloc(r->at_ns, 4 * n_out * sizeof(*at_ns));
    r->at_ns = at_ns != NULL ? at_ns : r->at_ns;
    if (ids == NULL || at_ns == NULL)
        return -1;
    r->least = n_out;
    r->max_total = r->n_prompt + 4 * n_out;
    return 0;
}

void driver_request_deinit(struct driver_request *r) {
    mem_free(r->ids);
    mem_free(r->at_ns);
    r->ids = NULL;
    r->at_ns = NULL;
}

bool driver_request_answered(const struct driver_request *r) {
    bool whole = r->finish == FINISH_LENGTH && r->n == r->max_total;
    return r->state == DRIVER_DONE && (whole || (r->least != 0 && r->finish == FINISH_STOP_STRING));
}

/* ---- the worker process ---- */

/* -1: anywhere that this process was allowed to be when it was first asked. */
static void on_core(int core) {
    static cpu_set_t at_start;
    static bool known;
    cpu_set_t set;
    if (!known && sched_getaffinity(0, sizeof(at_start), &at_start) != 0)
        return;
    known = true;
    if (core >= CPU_SETSIZE)
        return;
    set = at_start;
    if (core >= 0) {
        CPU_ZERO(&set);
        CPU_SET(core, &set);
    }
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        fprintf(stderr, "core %d is not ours: %s\n", core, strerror(errno));
}

static int make_flags(const struct link_driver *d, int life, char text[12][4400], char **argv) {
    const struct driver_config *c = &d->cfg;
    int n = 0, k = 0;
    argv[n++] = (char *)c->program;
#define FLAG(...)                                                                                  \
    do {                                                                                           \
        snprintf(text[k], sizeof(text[k]), __VA_ARGS__);                                           \
        argv[n++] = text[k++];                                                                     \
    } while (0)
    FLAG("--model=%s", c->model);
    FLAG("--link-keys=%s", d->keys);
    FLAG("--workers-endpoint=%s", d->endpoint);
    FLAG("--supervisor-fd=%d", life);
    FLAG("--engine=%s", c->null_engine ? "null" : "cpu");
    FLAG("--threads=%u", c->threads);
    FLAG("--max-seqs=%u", c->seats);
    FLAG("--kv-tokens=%u", c->kv_tokens);
    FLAG("--prefill-chunk=%u", c->prefill_chunk);
    FLAG("--log-level=error");
    if (c->event_log != NULL)
        FLAG("--event-log=%s", c->event_log);
#undef FLAG
    for (int i = 0; i < DRIVER_MORE_MAX && c->more[i] != NULL; i++)
        argv[n++] = (char *)c->more[i];
    argv[n] = NULL;
    return n;
}

static int start_worker(struct link_driver *d, struct err *e) {
    int life[2];
    static char text[12][4400];
    char *argv[16 + DRIVER_MORE_MAX];
    if (pipe(life) != 0)
        return err_set(e, ERR_IO, "pipe: %s", strerror(errno));
    fcntl(life[1], F_SETFD, FD_CLOEXEC);
    make_flags(d, life[0], text, argv);
    d->pid = fork();
    if (d->pid == 0) {
        on_core(d->cfg.worker_core);
        int log = open(d->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (log >= 0)
            dup2(log, STDERR_FILENO);
        execv(d->cfg.program, argv);
        fprintf(stderr, "%s: %s\n", d->cfg.program, strerror(errno));
        _exit(127);
    }
    close(life[0]);
    d->life = life[1];
    return d->pid > 0 ? 0 : err_set(e, ERR_IO, "fork: %s", strerror(errno));
}

/* The table of pools is of no interest, what went wrong is. */
static void show_log(const struct link_driver *d) {
    size_t n;
    char *text = test_read_file(d->log, &n);
    fputs(text != NULL ? text : "", stderr);
    free(text); /* the library's block */
}

bool driver_worker_knows(const char *program, const char *flag) {
    char command[4400], line[512], want[80];
    bool found = false;
    snprintf(command, sizeof(command), "'%s' --help", program);
    snprintf(want, sizeof(want), "--%s", flag);
    FILE *f = popen(command, "r");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        const char *at = strstr(line, want);
        found = found || (at != NULL && strchr(" =\n", at[strlen(want)]) != NULL);
    }
    if (f != NULL)
        pclose(f);
    return found;
}

double driver_cpu_s(const struct link_driver *d) {
    clockid_t id;
    struct timespec t;
    if (clock_getcpuclockid(d->pid, &id) != 0 || clock_gettime(id, &t) != 0)
        return 0;
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- saying ---- */

static int say(struct link_driver *d, const struct msg *m) {
    buf_clear(&d->out);
    msg_encode(&d->out, m);
    if (d->out.bad || d->t == NULL)
        return -1;
    int rc = transport_send(d->t, d->peer, d->out.p, d->out.len);
    if (rc == TRANSPORT_OK)
        d->said_ns = driver_clock_ns();
    return rc == TRANSPORT_OK ? 0 : rc == TRANSPORT_FULL ? 1 : -1;
}

static void say_sub(struct link_driver *d, enum msg_kind kind, struct sub_id sub, uint32_t from) {
    say(d, &(struct msg){.kind = kind, .u.sub = {.sub = sub, .from = from}});
}

static int remember(struct link_driver *d, struct driver_request *r) {
    if (d->counter >= d->cap) {
        size_t cap = d->cap == 0 ? 1024 : d->cap * 2;
        struct driver_request **p = mem_realloc(d->by_counter, cap * sizeof(*p));
        if (p == NULL)
            return -1;
        d->by_counter = p;
        d->cap = cap;
    }
    d->by_counter[d->counter++] = r;
    r->sub = (struct sub_id){d->incarnation, d->counter};
    return 0;
}

static const struct msg_stop letters[] = {{"e", 1}, {"a", 1}, {"i", 1}, {"o", 1}, {"n", 1},
                                          {"r", 1}, {"t", 1}, {"s", 1}, {"u", 1}, {"l", 1},
                                          {"c", 1}, {"d", 1}, {"p", 1}, {"m", 1}, {" ", 1}};

int driver_submit(struct link_driver *d, struct driver_request *r) {
    if (!d->live || remember(d, r) != 0)
        return -1;
    struct msg m = {.kind = MSG_SUBMIT};
    m.u.submit = (struct msg_submit){.sub = r->sub,
                                     .cls = r->cls,
                                     .rank = r->cls != CLASS_REALTIME,
                                     .tenant = "bench",
                                     .tag = r->tag,
                                     .ids = r->ids,
                                     .n_ids = r->n,
                                     .n_prompt = r->n_prompt,
                                     .from = r->n,
                                     .max_total = r->max_total,
                                     .temperature = r->temperature,
                                     .top_p = 1.0f,
                                     .repetition_penalty = 1.0f,
                                     .seed = r->seed,
                                     .ignore_eos = true,
                                     .skip_special = true};
    if (r->least != 0) {
        m.u.submit.min_total = r->n_prompt + r->least;
        m.u.submit.stops = (struct msg_stop *)letters; /* read only */
        m.u.submit.n_stops = sizeof(letters) / sizeof(letters[0]);
    }
    uint64_t now = driver_clock_ns();
    int rc = say(d, &m);
    if (rc != 0) {
        d->by_counter[--d->counter] = NULL;
        return rc;
    }
    if (r->sent_ns == 0)
        r->sent_ns = now;
    r->state = DRIVER_SENT;
    return 0;
}

void driver_cancel(struct link_driver *d, struct driver_request *r) {
    if (r->state == DRIVER_SENT && d->live)
        say_sub(d, MSG_CANCEL, r->sub, 0);
    r->state = DRIVER_DONE;
    r->finish = FINISH_CANCELLED;
}

/* ---- hearing ---- */

static struct driver_request *find(struct link_driver *d, struct sub_id sub) {
    if (sub.counter == 0 || sub.counter > d->counter)
        return NULL;
    struct driver_request *r = d->by_counter[sub.counter - 1];
    return r != NULL && sub_id_equal(r->sub, sub) ? r : NULL;
}

static void accept(struct link_driver *d, const struct msg_hello *h) {
    struct msg m = {.kind = MSG_HELLO_REPLY};
    d->hello = *h;
    d->live = false;
    m.u.hello_reply = (struct msg_hello_reply){
        .accepted = true, .version = PROTO_VERSION_MAX, .incarnation = d->incarnation};
    memcpy(m.u.hello_reply.gateway, d->name, sizeof(d->name));
    say(d, &m);
}

/* What the worker still has goes on; what it lost is submitted again with the ids there are. */
static void on_sync(struct link_driver *d, const struct msg_sync *s) {
    bool first = !d->live;
    d->live = true;
    d->syncs++;
    for (uint32_t i = 0; first && i < d->counter; i++)
        if (d->by_counter[i] != NULL && d->by_counter[i]->state == DRIVER_SENT)
            d->by_counter[i]->state = DRIVER_RETRY;
    for (uint32_t k = 0; k < s->n; k++) {
        struct driver_request *r = find(d, s->entries[k].sub);
        if (first)
            d->sync_entries++;
        if (r != NULL && r->state == DRIVER_RETRY)
            r->state = DRIVER_SENT;
        if (r != NULL && r->state == DRIVER_SENT)
            say_sub(d, MSG_GAP, r->sub, r->n);
        else
            say_sub(d, r != NULL && r->finish != FINISH_CANCELLED ? MSG_ACK : MSG_CANCEL,
                    s->entries[k].sub, 0);
    }
    for (uint32_t i = 0; first && i < d->counter; i++)
        if (d->by_counter[i] != NULL && d->by_counter[i]->state == DRIVER_RETRY) {
            d->retries = true;
            d->resubmitted++;
        }
}

static void retry(struct link_driver *d) {
    uint64_t n = d->counter;
    if (!d->retries)
        return;
    d->retries = false;
    for (uint64_t i = 0; i < n; i++) {
        struct driver_request *r = d->by_counter[i];
        if (r == NULL || r->state != DRIVER_RETRY || r->sub.counter != i + 1)
            continue;
        if (driver_submit(d, r) == 0)
            d->by_counter[i] = NULL;
        else
            d->retries = true;
    }
}

static void end(struct link_driver *d, struct driver_request *r, enum finish f) {
    r->state = DRIVER_DONE;
    r->finish = f;
    say_sub(d, MSG_ACK, r->sub, 0);
    if (d->ended != NULL)
        d->ended(d->ctx, r);
}

static void take_ids(struct link_driver *d, struct driver_request *r,
                     const struct msg_tokens_entry *t, uint64_t now) {
    for (uint32_t k = 0; k < t->n && t->index + k < r->max_total; k++) {
        uint32_t at = t->index + k;
        if (at < r->n) {
            d->changed += r->ids[at] != t->records[k].id;
            continue;
        }
        r->ids[at] = t->records[k].id;
        r->at_ns[at - r->n_prompt] = now;
        r->n++;
    }
}

static void on_entry(struct link_driver *d, const struct msg_tokens_entry *t, uint64_t now) {
    struct driver_request *r = find(d, t->sub);
    if (r == NULL || r->state != DRIVER_SENT) {
        if (t->finish == FINISH_CANCELLED || t->finish == FINISH_UNKNOWN)
            return;
        d->strange += r == NULL;
        bool done = r != NULL && r->finish != FINISH_CANCELLED;
        say_sub(d, done ? MSG_ACK : MSG_CANCEL, t->sub, 0);
        return;
    }
    if (t->finish == FINISH_HANDED_BACK || t->finish == FINISH_UNKNOWN) {
        say_sub(d, MSG_ACK, t->sub, 0);
        r->state = DRIVER_RETRY;
        d->retries = true;
        d->handed_back++;
        return;
    }
    if (t->index > r->n) {
        d->gaps++;
        say_sub(d, MSG_GAP, r->sub, r->n);
        return;
    }
    r->preemptions = t->preemptions;
    take_ids(d, r, t, now);
    if (t->finish != FINISH_NONE)
        end(d, r, t->finish);
}

static void on_tokens(struct link_driver *d, const struct msg_tokens *t, uint64_t now) {
    for (uint32_t i = 0; i < t->n_accounts; i++)
        if (t->accounts[i].cls < CLASSES_MAX)
            d->accounts[t->accounts[i].cls] = t->accounts[i];
    for (uint32_t i = 0; i < t->n; i++)
        on_entry(d, &t->entries[i], now);
}

static int hear(struct link_driver *d, const struct transport_msg *raw, uint64_t now,
                struct err *e) {
    struct msg m;
    if (msg_decode(&m, raw->p, raw->n, e) != 0)
        return -1;
    d->peer = raw->peer;
    d->heard_ns = now;
    d->messages++;
    switch (m.kind) {
    case MSG_HELLO: accept(d, &m.u.hello); break;
    case MSG_SYNC: on_sync(d, &m.u.sync); break;
    case MSG_TOKENS:
        if (d->live)
            on_tokens(d, &m.u.tokens, now);
        break;
    case MSG_STATUS:
        d->status = m.u.status;
        d->n_status++;
        if (d->live)
            retry(d);
        break;
    default: break; /* PING, BYE */
    }
    msg_deinit(&m);
    return 0;
}

/* How many messages came; -1. */
static int hear_all(struct link_driver *d, struct err *e) {
    struct transport_msg raw;
    int n = 0;
    while (d->t != NULL && transport_recv(d->t, &raw) == TRANSPORT_OK) {
        int rc = hear(d, &raw, driver_clock_ns(), e);
        transport_msg_free(&raw);
        if (rc != 0)
            return -1;
        n++;
    }
    return n;
}

static int still_there(struct link_driver *d, uint64_t now, struct err *e) {
    if (now < d->heard_ns + SILENCE_NS)
        return 0;
    int status;
    if (waitpid(d->pid, &status, WNOHANG) == d->pid) {
        d->pid = -1;
        show_log(d);
        return err_set(e, ERR_WORKER_LOST, "the worker ended (status %d)", status);
    }
    return d->live ? err_set(e, ERR_WORKER_LOST, "the worker says nothing for 10 s") : 0;
}

int driver_turn(struct link_driver *d, uint64_t until_ns, struct err *e) {
    int n = hear_all(d, e);
    uint64_t now = driver_clock_ns();
    if (n < 0 || still_there(d, now, e) != 0)
        return -1;
    if (d->live && now >= d->said_ns + HEARTBEAT_NS) {
        say(d, &(struct msg){.kind = MSG_PING});
        n += hear_all(d, e); /* the descriptor is edge-triggered: read after each send */
    }
    if (n != 0 || now >= until_ns)
        return n < 0 ? -1 : 0;
    uint64_t at = d->said_ns + HEARTBEAT_NS;
    at = d->live && at < until_ns ? at : until_ns;
    uint64_t left = at > now ? at - now : 0;
    left = left < 1000 * MS ? left : 1000 * MS;
    struct timespec t = {(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)};
    struct pollfd p = {.fd = d->t != NULL ? transport_fd(d->t) : -1, .events = POLLIN};
    ppoll(&p, 1, &t, NULL);
    return hear_all(d, e) < 0 ? -1 : 0;
}

/* ---- sessions ---- */

static int listen_here(struct link_driver *d, const char *endpoint, struct err *e) {
    struct transport_keys k = {0};
    if (transport_keys_load(&k, d->keys, true, e) != 0)
        return -1;
    int rc = transport_listen(&d->t, endpoint, &k, MSG_BYTES_MAX, e);
    transport_keys_wipe(&k);
    return rc;
}

static int await_session(struct link_driver *d, struct err *e) {
    uint64_t by = driver_clock_ns() + READY_NS;
    d->heard_ns = driver_clock_ns();
    while (!d->live) {
        if (driver_clock_ns() >= by)
            return err_set(e, ERR_NO_WORKER, "the worker does not come");
        if (driver_turn(d, driver_clock_ns() + 100 * MS, e) != 0)
            return -1;
    }
    return 0;
}

int driver_open(struct link_driver *d, const struct driver_config *cfg, struct err *e) {
    *d = (struct link_driver){.cfg = *cfg, .name = "bench", .pid = -1, .life = -1};
    d->incarnation = driver_clock_ns();
    signal(SIGPIPE, SIG_IGN);
    on_core(cfg->driver_core);          /* before ZeroMQ's thread exists: it inherits this */
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0); /* arrivals on time, to 1 us instead of 50 */
    if (test_tmpdir_make(d->dir, "link") != 0)
        return err_set(e, ERR_IO, "no folder for the keys: %s", strerror(errno));
    snprintf(d->keys, sizeof(d->keys), "%s/keys", d->dir);
    snprintf(d->log, sizeof(d->log), "%s/worker.log", d->dir);
    if (transport_keys_make(d->keys, e) != 0 || listen_here(d, "tcp://127.0.0.1:*", e) != 0)
        return -1;
    snprintf(d->endpoint, sizeof(d->endpoint), "%s", transport_endpoint(d->t));
    return start_worker(d, e) != 0 ? -1 : await_session(d, e);
}

void driver_close(struct link_driver *d) {
    struct err e;
    int status;
    uint64_t by = driver_clock_ns() + 5000 * MS;
    if (d->pid > 0)
        kill(d->pid, SIGTERM);
    while (d->pid > 0 && driver_clock_ns() < by) { /* what it finishes is acknowledged meanwhile */
        if (driver_turn(d, driver_clock_ns() + 20 * MS, &e) != 0)
            break;
        if (waitpid(d->pid, &status, WNOHANG) == d->pid)
            d->pid = -1;
    }
    if (d->pid > 0) {
        kill(d->pid, SIGKILL);
        waitpid(d->pid, &status, 0);
    }
    transport_close(&d->t);
    if (d->life >= 0)
        close(d->life);
    mem_free(d->by_counter);
    buf_deinit(&d->out);
    test_tmpdir_remove(d->dir);
    *d = (struct link_driver){.pid = -1, .life = -1};
}

void driver_cut(struct link_driver *d) {
    transport_close(&d->t);
    d->live = false;
}

int driver_back(struct link_driver *d, uint64_t incarnation, struct err *e) {
    d->incarnation = incarnation;
    for (int i = 0; d->t == NULL && i < 50; i++) { /* ZeroMQ closes the old listener by and by */
        if (listen_here(d, d->endpoint, e) == 0)
            break;
        struct timespec t = {0, 100 * (long)MS};
        nanosleep(&t, NULL);
    }
    return d->t == NULL ? -1 : await_session(d, e);
}
