/* mail.c - see mail.h. */
#include "worker/mail.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

int mail_init(struct mail *m, uint32_t capacity, struct err *e) {
    *m = (struct mail){.in_fd = -1, .out_fd = -1};
    atomic_init(&m->cut, 0);
    int bad =
        ring_init(&m->in, capacity) | ring_init(&m->out, capacity) | ring_init(&m->spare, capacity);
    if (bad != 0) {
        err_set(e, ERR_NO_MEMORY, "no memory for the rings between link and step loop");
        goto fail;
    }
    m->in_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    m->out_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->in_fd < 0 || m->out_fd < 0) {
        err_set(e, ERR_IO, "eventfd of the link: %s", strerror(errno));
        goto fail;
    }
    return 0;
fail:
    mail_deinit(m);
    return -1;
}

static void drop_all(struct mail *m) {
    struct mail_in *in;
    struct mail_out *out;
    while (m->in.slots != NULL && (in = ring_pop(&m->in)) != NULL)
        mail_in_destroy(&in);
    while (m->out.slots != NULL && (out = ring_pop(&m->out)) != NULL)
        mail_out_destroy(&out);
    while (m->spare.slots != NULL && (out = ring_pop(&m->spare)) != NULL)
        mail_out_destroy(&out);
}

void mail_deinit(struct mail *m) {
    drop_all(m);
    ring_deinit(&m->in);
    ring_deinit(&m->out);
    ring_deinit(&m->spare);
    if (m->in_fd >= 0)
        close(m->in_fd);
    if (m->out_fd >= 0)
        close(m->out_fd);
    m->in_fd = m->out_fd = -1;
}

void mail_clear(int fd) {
    uint64_t n;
    while (read(fd, &n, sizeof(n)) < 0 && errno == EINTR)
        ;
}

void mail_wake(int fd) {
    uint64_t one = 1;
    /* EAGAIN means that the counter is at its end: readable anyway. */
    while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

int mail_in_push(struct mail *m, const struct mail_in *in) {
    struct mail_in *copy = mem_memdup(in, sizeof(*in));
    if (copy == NULL)
        return -1;
    if (ring_push(&m->in, copy) != 0) {
        mem_free(copy);
        return -1;
    }
    mail_wake(m->in_fd);
    return 0;
}

struct mail_in *mail_in_pop(struct mail *m) {
    return ring_pop(&m->in);
}

void mail_in_destroy(struct mail_in **in) {
    if (*in != NULL)
        seq_destroy(&(*in)->seq);
    mem_free(*in);
    *in = NULL;
}

struct mail_out *mail_out_pop(struct mail *m) {
    return ring_pop(&m->out);
}

void mail_out_recycle(struct mail *m, struct mail_out **o) {
    if (ring_push(&m->spare, *o) != 0)
        mail_out_destroy(o);
    *o = NULL;
}

struct mail_out *mail_out_new(struct mail *m, enum mail_out_kind kind, uint32_t gw,
                              uint32_t epoch) {
    struct mail_out *o = ring_pop(&m->spare);
    if (o == NULL)
        o = mem_zalloc(sizeof(*o));
    if (o == NULL)
        return NULL;
    o->kind = kind;
    o->gw = gw;
    o->epoch = epoch;
    o->n_entries = o->n_records = o->n_tops = o->n_sync = o->n_accounts = o->n_tenants = 0;
    o->tenants_all = false;
    return o;
}

void mail_out_push(struct mail *m, struct mail_out **o) {
    uint32_t gw = (*o)->gw;
    if (ring_push(&m->out, *o) != 0) {
        mail_out_destroy(o);
        mail_cut(m, gw);
    }
    *o = NULL;
    mail_wake(m->out_fd);
}

void mail_cut(struct mail *m, uint32_t gw) {
    assert(gw < 32);
    atomic_fetch_or_explicit(&m->cut, 1u << gw, memory_order_relaxed); /* a hint, orders nothing */
    mail_wake(m->out_fd);
}

uint32_t mail_take_cut(struct mail *m) {
    return atomic_exchange_explicit(&m->cut, 0, memory_order_relaxed);
}

static int grow(void *array, uint32_t *cap, uint32_t need, size_t item) {
    void *p;
    if (need <= *cap)
        return 0;
    uint32_t n = *cap < 16 ? 16 : *cap;
    while (n < need)
        n *= 2;
    memcpy(&p, array, sizeof(p));
    p = mem_realloc(p, n * item);
    if (p == NULL)
        return -1;
    memcpy(array, &p, sizeof(p));
    *cap = n;
    return 0;
}

int mail_out_reserve(struct mail_out *o, uint32_t entries, uint32_t records, uint32_t tops,
                     uint32_t sync) {
    if (grow(&o->entries, &o->cap_entries, o->n_entries + entries, sizeof(*o->entries)) != 0
        || grow(&o->records, &o->cap_records, o->n_records + records, sizeof(*o->records)) != 0
        || grow(&o->tops, &o->cap_tops, o->n_tops + tops, sizeof(*o->tops)) != 0)
        return -1;
    return grow(&o->sync, &o->cap_sync, o->n_sync + sync, sizeof(*o->sync));
}

int mail_out_reserve_tenants(struct mail_out *o, uint32_t n) {
    return grow(&o->tenants, &o->cap_tenants, n, sizeof(*o->tenants));
}

void mail_out_seal(struct mail_out *o) {
    uint32_t record = 0, top = 0;
    for (uint32_t i = 0; i < o->n_entries; i++) {
        o->entries[i].records = o->records != NULL ? o->records + record : NULL;
        for (uint32_t k = 0; k < o->entries[i].n; k++, record++) {
            o->records[record].top = o->tops != NULL ? o->tops + top : NULL;
            top += o->records[record].n_top;
        }
    }
    assert(record == o->n_records && top == o->n_tops);
}

void mail_out_destroy(struct mail_out **o) {
    if (*o != NULL) {
        mem_free((*o)->entries);
        mem_free((*o)->records);
        mem_free((*o)->tops);
        mem_free((*o)->sync);
        mem_free((*o)->tenants);
    }
    mem_free(*o);
    *o = NULL;
}
