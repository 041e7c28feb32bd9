/* event_log.c - records go round in two rings: filled ones to the writer, written ones back.
 *
 * All records are made at open, so that a step allocates nothing; when no empty one is left the
 * event is dropped and counted. A record carries the variable part (tokens or spans) behind it.
 */
#include "worker/event_log.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/priority.h"
#include "base/ring.h"
#include "worker/event_text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WRITE_BYTES (64u << 10)

struct record {
    uint64_t ns, dropped_before;
    bool is_event;
    int32_t *ids; /* of a submission: own memory, freed by the writer */
    union {
        struct worker_event event;
        struct worker_action action;
    } u;
    union {
        struct worker_token token;
        struct worker_span span;
    } items[]; /* max_spans */
};

struct event_log {
    struct ring full, empty;
    char *records;
    size_t record_bytes;
    struct class_table classes;
    uint32_t max_spans;
    uint64_t dropped; /* since the last record that got through */
    int fd, wake_fd;
    struct buf text;
    bool write_failed; /* no disk: said once, the worker goes on */
    pthread_t thread;
    bool started;
    _Atomic bool stop;
};

static void write_out(struct event_log *l) {
    size_t at = 0;
    while (!l->write_failed && at < l->text.len) {
        ssize_t n = write(l->fd, l->text.p + at, l->text.len - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            log_error("event log: %s; it ends here", strerror(errno));
            l->write_failed = true;
        } else {
            at += (size_t)n;
        }
    }
    buf_clear(&l->text);
}

static void write_record(struct event_log *l, struct record *r) {
    if (r->dropped_before != 0)
        buf_addf(&l->text, "{\"dropped\":%llu}\n", (unsigned long long)r->dropped_before);
    if (r->is_event)
        event_text_event(&l->text, &r->u.event, &l->classes, r->ns);
    else
        event_text_action(&l->text, &r->u.action, r->ns);
    mem_free(r->ids);
    r->ids = NULL;
    if (l->text.len >= WRITE_BYTES)
        write_out(l);
}

static void drain(struct event_log *l) {
    struct record *r;
    while ((r = ring_pop(&l->full)) != NULL) {
        write_record(l, r);
        ring_push(&l->empty,
                  r); /* as long as the ring of empties holds them all this cannot fail */
    }
    write_out(l);
}

static void *run(void *arg) {
    struct event_log *l = arg;
    priority_lower(PRIORITY_LOG);
    while (!atomic_load_explicit(&l->stop, memory_order_acquire)) {
        struct pollfd p = {.fd = l->wake_fd, .events = POLLIN};
        uint64_t n;
        if (poll(&p, 1, -1) > 0 && read(l->wake_fd, &n, sizeof(n)) < 0 && errno != EAGAIN
            && errno != EINTR)
            break;
        drain(l);
    }
    drain(l);
    return NULL;
}

static void wake(struct event_log *l) {
    uint64_t one = 1;
    if (write(l->wake_fd, &one, sizeof(one)) < 0) {
        /* EAGAIN: the counter is at its end, the writer is awake */
    }
}

static int make_records(struct event_log *l, uint32_t n) {
    l->record_bytes = sizeof(struct record) + l->max_spans * sizeof(((struct record *)0)->items[0]);
    l->record_bytes = (l->record_bytes + 63) & ~(size_t)63;
    l->records = mem_array(n, l->record_bytes);
    if ((ring_init(&l->full, n) | ring_init(&l->empty, n)) != 0 || l->records == NULL)
        return -1;
    for (uint32_t i = 0; i < n; i++)
        ring_push(&l->empty, l->records + i * l->record_bytes);
    return 0;
}

static int open_parts(struct event_log *l, const char *path, uint32_t records, struct err *e) {
    if (make_records(l, records) != 0)
        return err_set(e, ERR_NO_MEMORY, "no memory for the event log");
    l->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (l->fd < 0)
        return err_set_param(e, ERR_IO, "event-log", "cannot write the event log %s: %s", path,
                             strerror(errno));
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->wake_fd < 0)
        return err_set(e, ERR_IO, "eventfd of the event log: %s", strerror(errno));
    int rc = pthread_create(&l->thread, NULL, run, l);
    if (rc != 0)
        return err_set(e, ERR_NO_MEMORY, "thread of the event log: %s", strerror(rc));
    l->started = true;
    return 0;
}

int event_log_open(struct event_log **out, const char *path, const struct worker_core_config *core,
                   uint32_t records, struct err *e) {
    *out = NULL;
    struct event_log *l = mem_zalloc(sizeof(*l));
    if (l == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the event log");
    l->fd = l->wake_fd = -1;
    l->max_spans = core->max_spans;
    l->classes = core->classes;
    atomic_init(&l->stop, false);
    buf_init(&l->text, 0);
    event_text_config(&l->text, core);
    if (open_parts(l, path, records, e) != 0) {
        event_log_close(&l);
        return -1;
    }
    *out = l;
    return 0;
}

void event_log_close(struct event_log **log) {
    struct event_log *l = *log;
    if (l == NULL)
        return;
    if (l->started) {
        atomic_store_explicit(&l->stop, true, memory_order_release);
        wake(l);
        pthread_join(l->thread, NULL);
    }
    if (l->fd >= 0)
        close(l->fd);
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    ring_deinit(&l->full);
    ring_deinit(&l->empty);
    mem_free(l->records);
    buf_deinit(&l->text);
    mem_free(l);
    *log = NULL;
}

static struct record *take(struct event_log *l, uint64_t ns) {
    struct record *r = ring_pop(&l->empty);
    if (r == NULL) {
        l->dropped++;
        return NULL;
    }
    r->ns = ns;
    r->ids = NULL;
    r->dropped_before = l->dropped;
    l->dropped = 0;
    return r;
}

/* Too many for a record. Submissions come far apart, so they may allocate. */
static int keep_ids(struct record *r, const struct worker_event *ev) {
    r->ids = mem_memdup(ev->submit.ids, (size_t)ev->submit.n_tokens * sizeof(*r->ids));
    r->u.event.submit.ids = r->ids;
    return r->ids != NULL ? 0 : -1;
}

void event_log_event(struct event_log *l, const struct worker_event *ev, uint64_t now_ns) {
    struct record *r = l != NULL ? take(l, now_ns) : NULL;
    if (r == NULL)
        return;
    r->is_event = true;
    r->u.event = *ev;
    struct worker_token *tokens = &r->items[0].token;
    uint32_t n = ev->kind == WE_STEP_END ? ev->step.n_tokens : 0;
    if (n != 0)
        memcpy(tokens, ev->step.tokens, n * sizeof(*tokens)); /* packed from the first item on */
    r->u.event.step.tokens = tokens;
    if (ev->kind == WE_SUBMIT && ev->submit.ids != NULL && keep_ids(r, ev) != 0) {
        ring_push(&l->empty, r);
        l->dropped += r->dropped_before + 1;
        return;
    }
    ring_push(&l->full, r);
    wake(l);
}

void event_log_actions(struct event_log *l, const struct worker_action *a, uint32_t n,
                       uint64_t now_ns) {
    for (uint32_t i = 0; l != NULL && i < n; i++) {
        struct record *r = take(l, now_ns);
        if (r == NULL)
            continue;
        r->is_event = false;
        r->u.action = a[i];
        if (a[i].kind == WA_STEP_SUBMIT) {
            struct worker_span *spans = &r->items[0].span;
            memcpy(spans, a[i].plan.spans, a[i].plan.n_spans * sizeof(*spans));
            r->u.action.plan.spans = spans;
        }
        ring_push(&l->full, r);
    }
    if (l != NULL && n != 0)
        wake(l);
}
