#include "worker/engine/chaos.h"

#include "base/hash.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define POLLS_MAX 4 /* a completion waits 0 .. POLLS_MAX - 1 polls */
#define DELAY_NS_MIN 20000u
#define DELAY_NS_MAX 2000000u /* one wait between polls; three of them make the "few ms" */

struct held {
    struct engine_completion done;
    uint32_t polls;
};

struct chaos {
    uint64_t seed, draws;
    int epoll_fd, timer_fd;
    uint32_t n, cap;
    struct held items[];
};

static uint64_t draw(struct chaos *c, uint64_t below)
{
    return rand_at(c->seed, c->draws++) % below;
}

static int watch(int epoll_fd, int fd)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &ev);
}

int chaos_create(struct chaos **out, uint64_t seed, uint32_t capacity, int backend_fd,
                 struct err *e)
{
    *out = NULL;
    struct chaos *c = mem_zalloc(sizeof *c + capacity * sizeof c->items[0]);
    if (c == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the chaos layer");
    c->seed = seed;
    c->cap = capacity;
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (c->epoll_fd < 0 || c->timer_fd < 0 || watch(c->epoll_fd, backend_fd) < 0 ||
        watch(c->epoll_fd, c->timer_fd) < 0) {
        int rc = err_set(e, ERR_IO, "descriptors of the chaos layer: %s", strerror(errno));
        chaos_destroy(&c);
        return rc;
    }
    *out = c;
    return 0;
}

void chaos_destroy(struct chaos **cp)
{
    struct chaos *c = *cp;
    if (c == NULL)
        return;
    if (c->epoll_fd >= 0)
        close(c->epoll_fd);
    if (c->timer_fd >= 0)
        close(c->timer_fd);
    mem_free(c);
    *cp = NULL;
}

int chaos_fd(const struct chaos *c)
{
    return c->epoll_fd;
}

uint32_t chaos_room(const struct chaos *c)
{
    return c->cap - c->n;
}

void chaos_push(struct chaos *c, const struct engine_completion *done)
{
    assert(c->n < c->cap);
    c->items[c->n++] = (struct held){.done = *done, .polls = (uint32_t)draw(c, POLLS_MAX)};
}

static bool of_step(enum engine_completion_kind k)
{
    return k == ENGINE_STEP_END || k == ENGINE_STEP_PARKED || k == ENGINE_SPAN_DROPPED;
}

/* A STEP_END may go only when nothing else of its step is held, nor the end of an earlier step: one
 * that refers to another's ids ends after it. */
static bool may_go(const struct chaos *c, uint32_t i)
{
    const struct held *h = &c->items[i];
    if (h->polls > 0)
        return false;
    if (h->done.kind != ENGINE_STEP_END)
        return true;
    for (uint32_t j = 0; j < c->n; j++)
        if (j != i && of_step(c->items[j].done.kind)
            && (c->items[j].done.id == h->done.id
                || (c->items[j].done.kind == ENGINE_STEP_END && c->items[j].done.id < h->done.id)))
            return false;
    return true;
}

static void arm(struct chaos *c)
{
    struct itimerspec t = {0}; /* zero stops the timer and takes back an expiry not yet read */
    if (c->n > 0)
        t.it_value.tv_nsec = (long)(DELAY_NS_MIN + draw(c, DELAY_NS_MAX - DELAY_NS_MIN));
    timerfd_settime(c->timer_fd, 0, &t, NULL);
}

int chaos_take(struct chaos *c, struct engine_completion *out, int max)
{
    int n = 0;
    for (uint32_t i = 0; i < c->n; i++)
        c->items[i].polls -= c->items[i].polls > 0;
    uint32_t start = c->n > 0 ? (uint32_t)draw(c, c->n) : 0;
    for (uint32_t left = c->n; left > 0 && n < max; left--) {
        if (start >= c->n)
            start = 0;
        if (may_go(c, start)) {
            out[n++] = c->items[start].done;
            c->items[start] = c->items[--c->n]; /* disorder is the purpose */
        } else {
            start++;
        }
    }
    arm(c);
    return n;
}
