/* transport_fake.c - the same pipes in memory, for tests with two threads and without sockets.
 *
 * One hub per listener holds all links (one per dialer) under one mutex; hub and links are counted, so either
 * side may close first. Each end has an eventfd, raised under the mutex when something is queued for it and
 * lowered when its recv finds nothing: unlike ZeroMQ's it is level-triggered, which no owner may rely on.
 */
#include "proto/transport_impl.h"

#include "base/list.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LIMIT_DEFAULT 1000

struct parcel {
    struct transport_owner owner;
    struct list link;
    size_t n;
    uint8_t bytes[];
};

struct fake_queue { struct list parcels; uint32_t n; };

struct fake_link {
    struct list of_hub;
    uint32_t number;               /* as the listener knows it */
    bool cut;
    bool room;                     /* the dialer has not been told of room in `up` yet */
    int fd;                        /* the dialer's */
    struct fake_queue up, down;
};

struct fake_hub {
    pthread_mutex_t lock;
    unsigned users;                /* listener and dialers */
    bool closed;
    bool room;                     /* the listener has not been told of room in some `down` yet */
    int fd;                        /* the listener's */
    uint32_t next_number, limit;
    struct list links;             /* served in turn: the one just read goes to the end */
};

struct fake_transport {
    struct transport base;
    struct fake_hub *hub;
    struct fake_link *link;        /* dialer */
};

static void parcel_free(void *p)
{
    mem_free(p);
}

static struct fake_transport *self(struct transport *t)
{
    return (struct fake_transport *)t;
}

static void queue_clear(struct fake_queue *q)
{
    for (struct list *l; (l = list_pop_front(&q->parcels)) != NULL;)
        mem_free(list_item(l, struct parcel, link));
    q->n = 0;
}

static void raise_fd(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n; /* EAGAIN: it is raised already */
}

static void lower_fd(int fd)
{
    uint64_t sum;
    ssize_t n = read(fd, &sum, sizeof sum);
    (void)n; /* EAGAIN: it was low */
}

static int queue_put(struct fake_queue *q, uint32_t limit, const void *p, size_t n)
{
    if (q->n >= limit)
        return TRANSPORT_FULL;
    struct parcel *c = mem_alloc(sizeof(*c) + n);
    if (c == NULL)
        return TRANSPORT_FULL;
    c->owner.free = parcel_free;
    c->n = n;
    list_init(&c->link);
    if (n > 0)
        memcpy(c->bytes, p, n);
    list_push_back(&q->parcels, &c->link);
    q->n++;
    return TRANSPORT_OK;
}

static bool queue_take(struct fake_queue *q, uint32_t peer, struct transport_msg *m)
{
    struct list *l = list_pop_front(&q->parcels);
    if (l == NULL)
        return false;
    struct parcel *c = list_item(l, struct parcel, link);
    *m = (struct transport_msg){.peer = peer, .p = c->bytes, .n = c->n, .owner = c};
    q->n--;
    return true;
}

/* Gives up one use under the lock; the last one ends the hub. */
static void hub_release(struct fake_hub *h)
{
    unsigned left = --h->users;
    pthread_mutex_unlock(&h->lock);
    if (left > 0)
        return;
    pthread_mutex_destroy(&h->lock);
    close(h->fd);
    mem_free(h);
}

static void link_cut(struct fake_hub *h, struct fake_link *l)
{
    l->cut = true;
    queue_clear(&l->up);
    queue_clear(&l->down);
    raise_fd(l->fd);
    raise_fd(h->fd);
}

/* The dialer owns its link and its eventfd; the listener's close only cuts. */
static void fake_close(struct transport *t)
{
    struct fake_transport *f = self(t);
    struct fake_hub *h = f->hub;
    pthread_mutex_lock(&h->lock);
    if (t->listener) {
        struct list *at, *next;
        h->closed = true;
        list_each(at, next, &h->links)
            link_cut(h, list_item(at, struct fake_link, of_hub));
    } else {
        link_cut(h, f->link);
        list_remove(&f->link->of_hub);
        close(f->link->fd);
        mem_free(f->link);
    }
    hub_release(h);
    mem_free(f);
}

static struct fake_link *find_link(struct fake_hub *h, uint32_t number)
{
    struct list *at, *next;
    list_each(at, next, &h->links) {
        struct fake_link *l = list_item(at, struct fake_link, of_hub);
        if (l->number == number)
            return l->cut ? NULL : l;
    }
    return NULL;
}

static int fake_send(struct transport *t, uint32_t peer, const void *p, size_t n)
{
    struct fake_transport *f = self(t);
    struct fake_hub *h = f->hub;
    pthread_mutex_lock(&h->lock);
    struct fake_link *l = t->listener ? find_link(h, peer) : f->link->cut ? NULL : f->link;
    int rc = TRANSPORT_GONE;
    if (l != NULL)
        rc = queue_put(t->listener ? &l->down : &l->up, h->limit, p, n);
    if (rc == TRANSPORT_OK)
        raise_fd(t->listener ? l->fd : h->fd);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* Nothing to read: the descriptor is lowered, unless room was made since the last time; then it stays up once
 * more, so that an owner that read between FULL and its wait does not wait for ever. */
static void settle(int fd, bool *room)
{
    if (!*room)
        lower_fd(fd);
    *room = false;
}

static int recv_listener(struct fake_hub *h, struct transport_msg *m)
{
    struct list *at, *next;
    list_each(at, next, &h->links) {
        struct fake_link *l = list_item(at, struct fake_link, of_hub);
        bool was_full = l->up.n >= h->limit;
        if (!queue_take(&l->up, l->number, m))
            continue;
        if (was_full) {
            l->room = true;
            raise_fd(l->fd);
        }
        list_remove(&l->of_hub);
        list_push_back(&h->links, &l->of_hub);
        return TRANSPORT_OK;
    }
    settle(h->fd, &h->room);
    return TRANSPORT_EMPTY;
}

static int recv_dialer(struct fake_hub *h, struct fake_link *l, struct transport_msg *m)
{
    bool was_full = l->down.n >= h->limit;
    if (queue_take(&l->down, 0, m)) {
        if (was_full) {
            h->room = true;
            raise_fd(h->fd);
        }
        return TRANSPORT_OK;
    }
    settle(l->fd, &l->room);
    return l->cut ? TRANSPORT_DOWN : TRANSPORT_EMPTY;
}

static int fake_recv(struct transport *t, struct transport_msg *m)
{
    struct fake_transport *f = self(t);
    struct fake_hub *h = f->hub;
    pthread_mutex_lock(&h->lock);
    int rc = t->listener ? recv_listener(h, m) : recv_dialer(h, f->link, m);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

static void fake_drop(struct transport *t, uint32_t peer)
{
    struct fake_hub *h = self(t)->hub;
    pthread_mutex_lock(&h->lock);
    struct fake_link *l = find_link(h, peer);
    if (l != NULL)
        l->number = h->next_number++;
    pthread_mutex_unlock(&h->lock);
}

static bool fake_ready(const struct transport *t)
{
    const struct fake_transport *f = (const struct fake_transport *)t;
    pthread_mutex_lock(&f->hub->lock);
    bool ready = !f->link->cut;
    pthread_mutex_unlock(&f->hub->lock);
    return ready;
}

static const struct transport_ops fake_ops = {
    .close = fake_close,
    .send = fake_send,
    .recv = fake_recv,
    .peer_drop = fake_drop,
    .ready = fake_ready,
};

static struct fake_transport *fake_new(bool listener, int fd)
{
    struct fake_transport *f = mem_zalloc(sizeof(*f));
    if (f == NULL)
        return NULL;
    f->base = (struct transport){.ops = &fake_ops, .listener = listener, .fd = fd,
                                 .monitor_fd = -1};
    snprintf(f->base.endpoint, sizeof f->base.endpoint, "fake://");
    return f;
}

int transport_fake_listen(struct transport **out, struct err *e)
{
    *out = NULL;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct fake_hub *h = fd < 0 ? NULL : mem_zalloc(sizeof(*h));
    struct fake_transport *f = h == NULL ? NULL : fake_new(true, fd);
    if (f == NULL) {
        mem_free(h);
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_NO_MEMORY, "no memory or descriptor for a fake listener");
    }
    pthread_mutex_init(&h->lock, NULL);
    h->users = 1;
    h->fd = fd;
    h->next_number = 1;
    h->limit = LIMIT_DEFAULT;
    list_init(&h->links);
    f->hub = h;
    *out = &f->base;
    return 0;
}

int transport_fake_dial(struct transport **out, struct transport *listener, struct err *e)
{
    assert(listener->ops == &fake_ops && listener->listener);
    struct fake_hub *h = self(listener)->hub;
    *out = NULL;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct fake_link *l = fd < 0 ? NULL : mem_zalloc(sizeof(*l));
    struct fake_transport *f = l == NULL ? NULL : fake_new(false, fd);
    if (f == NULL) {
        mem_free(l);
        if (fd >= 0)
            close(fd);
        return err_set(e, ERR_NO_MEMORY, "no memory or descriptor for a fake dialer");
    }
    l->fd = fd;
    list_init(&l->up.parcels);
    list_init(&l->down.parcels);
    list_init(&l->of_hub);
    f->hub = h;
    f->link = l;
    pthread_mutex_lock(&h->lock);
    h->users++;
    l->number = h->next_number++;
    l->cut = h->closed;
    list_push_back(&h->links, &l->of_hub);
    pthread_mutex_unlock(&h->lock);
    *out = &f->base;
    return 0;
}

void transport_fake_cut(struct transport *dialer)
{
    assert(dialer->ops == &fake_ops && !dialer->listener);
    struct fake_transport *f = self(dialer);
    pthread_mutex_lock(&f->hub->lock);
    link_cut(f->hub, f->link);
    pthread_mutex_unlock(&f->hub->lock);
}

void transport_fake_limit(struct transport *t, uint32_t messages)
{
    assert(t->ops == &fake_ops);
    struct fake_hub *h = self(t)->hub;
    pthread_mutex_lock(&h->lock);
    h->limit = messages;
    pthread_mutex_unlock(&h->lock);
}
