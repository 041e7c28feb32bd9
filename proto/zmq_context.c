/* zmq_context.c - see zmq_context.h.
 *
 * The ZAP thread owns its two sockets from its start to its end: REP for requests, PAIR for the order to
 * stop. Two locks: `life` is held over a start or an end of context and thread, whole; `admission` guards the
 * table of admitted keys, which the thread reads. The thread never takes `life`, so the end may join it.
 */
#include "proto/zmq_context.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#define ZAP_ENDPOINT "inproc://zeromq.zap.01"
#define STOP_ENDPOINT "inproc://sluice.zap.stop"
#define ZAP_FRAMES 7               /* version, request, domain, address, id, mechanism, key */
#define ZAP_FRAME_MAX 256

struct admitted {
    char domain[ZMQ_DOMAIN_MAX];   /* "" = free */
    uint8_t keys[4][TRANSPORT_KEY_BYTES];
    uint32_t n;
};

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t admission = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static unsigned n_users;
static unsigned long n_domains;
static struct admitted table[ZMQ_DOMAINS_MAX];
static pthread_t zap_thread;
static void *stop_socket;          /* ours; the thread has the other end */
static void *zap_sockets[2];       /* made here, then only the thread's: REP, PAIR */

struct frame { uint8_t p[ZAP_FRAME_MAX]; size_t n; };

static bool frame_is(const struct frame *f, const char *text)
{
    return f->n == strlen(text) && memcmp(f->p, text, f->n) == 0;
}

static bool is_admitted(const struct frame *domain, const struct frame *key)
{
    bool found = false;
    if (key->n != TRANSPORT_KEY_BYTES || domain->n == 0)
        return false;
    pthread_mutex_lock(&admission);
    for (unsigned i = 0; i < ZMQ_DOMAINS_MAX; i++) {
        if (!frame_is(domain, table[i].domain))
            continue;
        for (uint32_t k = 0; k < table[i].n; k++)
            found |= memcmp(table[i].keys[k], key->p, TRANSPORT_KEY_BYTES) == 0;
    }
    pthread_mutex_unlock(&admission);
    return found;
}

/* All frames of one request; how many there were (those over ZAP_FRAMES are read and forgotten). */
static unsigned zap_receive(void *rep, struct frame f[ZAP_FRAMES])
{
    unsigned n = 0;
    for (int more = 1; more; n++) {
        struct frame spare = {0}, *at = n < ZAP_FRAMES ? &f[n] : &spare;
        int got = zmq_recv(rep, at->p, sizeof at->p, 0);
        if (got < 0)
            return 0;
        at->n = (size_t)got < sizeof at->p ? (size_t)got : sizeof at->p;
        size_t size = sizeof more;
        if (zmq_getsockopt(rep, ZMQ_RCVMORE, &more, &size) != 0)
            more = 0;
    }
    return n;
}

static void zap_answer(void *rep)
{
    struct frame f[ZAP_FRAMES];
    unsigned n = zap_receive(rep, f);
    if (n == 0)
        return;
    bool ok = n == ZAP_FRAMES && frame_is(&f[0], "1.0") && frame_is(&f[5], "CURVE") &&
              is_admitted(&f[2], &f[6]);
    const char *code = ok ? "200" : "400", *text = ok ? "OK" : "not admitted";
    zmq_send(rep, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(rep, f[1].p, n > 1 ? f[1].n : 0, ZMQ_SNDMORE);
    zmq_send(rep, code, 3, ZMQ_SNDMORE);
    zmq_send(rep, text, strlen(text), ZMQ_SNDMORE);
    zmq_send(rep, "", 0, ZMQ_SNDMORE); /* user id */
    zmq_send(rep, "", 0, 0);           /* metadata */
}

static void *zap_run(void *arg)
{
    void **sockets = arg;
    zmq_pollitem_t items[2] = {{sockets[0], 0, ZMQ_POLLIN, 0}, {sockets[1], 0, ZMQ_POLLIN, 0}};
    for (;;) {
        if (zmq_poll(items, 2, -1) < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        if (items[1].revents != 0)
            break;
        if (items[0].revents != 0)
            zap_answer(sockets[0]);
    }
    zmq_close(sockets[0]);
    zmq_close(sockets[1]);
    return NULL;
}

static void close_all(void)
{
    for (unsigned i = 0; i < 2; i++) {
        if (zap_sockets[i] != NULL)
            zmq_close(zap_sockets[i]);
        zap_sockets[i] = NULL;
    }
    if (stop_socket != NULL)
        zmq_close(stop_socket);
    stop_socket = NULL;
    zmq_ctx_term(context);
    context = NULL;
}

/* Signals belong to the programs' own threads: the ZAP thread takes none. */
static int start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&zap_thread, NULL, zap_run, zap_sockets);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int start(struct err *e)
{
    context = zmq_ctx_new();
    if (context == NULL)
        return err_set(e, ERR_IO, "cannot make a ZeroMQ context: %s", zmq_strerror(errno));
    zmq_ctx_set(context, ZMQ_IPV6, 1);
    zmq_ctx_set(context, ZMQ_BLOCKY, 0); /* new sockets linger 0: the end of the process waits for no peer */
    zap_sockets[0] = zmq_socket(context, ZMQ_REP);
    zap_sockets[1] = zmq_socket(context, ZMQ_PAIR);
    stop_socket = zmq_socket(context, ZMQ_PAIR);
    if (zap_sockets[0] == NULL || zap_sockets[1] == NULL || stop_socket == NULL ||
        zmq_bind(zap_sockets[0], ZAP_ENDPOINT) != 0 ||
        zmq_bind(zap_sockets[1], STOP_ENDPOINT) != 0 ||
        zmq_connect(stop_socket, STOP_ENDPOINT) != 0 || start_thread() != 0) {
        err_set(e, ERR_IO, "cannot start the ZeroMQ door-keeper: %s", zmq_strerror(errno));
        close_all();
        return -1;
    }
    return 0;
}

void *zmq_context_get(struct err *e)
{
    pthread_mutex_lock(&life);
    void *made = NULL;
    if (n_users > 0 || start(e) == 0) {
        n_users++;
        made = context;
    }
    pthread_mutex_unlock(&life);
    return made;
}

static void stop_thread(void)
{
    while (zmq_send(stop_socket, "", 0, 0) < 0)
        assert(errno == EINTR); /* a PAIR to our own thread: nothing else can be wrong */
    pthread_join(zap_thread, NULL);
    zap_sockets[0] = zap_sockets[1] = NULL; /* the thread closed them */
}

void zmq_context_put(void)
{
    pthread_mutex_lock(&life);
    assert(n_users > 0);
    if (--n_users == 0) {
        stop_thread();
        close_all();
    }
    pthread_mutex_unlock(&life);
}

int zmq_context_admit(const struct transport_keys *keys, char domain[ZMQ_DOMAIN_MAX], struct err *e)
{
    assert(keys->n_allowed <= 4);
    int rc = -1;
    pthread_mutex_lock(&admission);
    for (unsigned i = 0; i < ZMQ_DOMAINS_MAX && rc != 0; i++) {
        if (table[i].domain[0] != '\0')
            continue;
        snprintf(domain, ZMQ_DOMAIN_MAX, "link%lu", n_domains++);
        snprintf(table[i].domain, ZMQ_DOMAIN_MAX, "%s", domain);
        memcpy(table[i].keys, keys->allowed, sizeof table[i].keys);
        table[i].n = keys->n_allowed;
        rc = 0;
    }
    pthread_mutex_unlock(&admission);
    return rc == 0 ? 0 : err_set(e, ERR_IO, "more than %d encrypted listeners", ZMQ_DOMAINS_MAX);
}

void zmq_context_forget(const char *domain)
{
    if (domain[0] == '\0')
        return;
    pthread_mutex_lock(&admission);
    for (unsigned i = 0; i < ZMQ_DOMAINS_MAX; i++)
        if (strcmp(table[i].domain, domain) == 0)
            memset(&table[i], 0, sizeof table[i]);
    pthread_mutex_unlock(&admission);
}
