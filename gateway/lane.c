#include "gateway/lane.h"

#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LANE_JOBS_MAX 1024

/* Jobs wait in `queue` under the lane's lock; finished ones in `done` until the loop's async
 * callback takes them. `out` counts jobs given to the lane and not yet taken back: bounded by
 * LANE_JOBS_MAX, so neither array overflows. */
struct lane_state {
    struct lanes *owner;
    pthread_t threads[32]; uint32_t n_threads;
    struct tokenizer_scratch *scratch[32];
    uint32_t started;
    bool bulk;
    pthread_mutex_t lock;
    pthread_cond_t some;
    struct lane_job *queue[LANE_JOBS_MAX]; uint32_t head, n;
    struct lane_job *done[LANE_JOBS_MAX]; uint32_t n_done;
    uint32_t out;                  /* loop thread only */
    bool stop;
};

struct lanes {
    struct gateway *g;
    struct lane_state lane[LANE_COUNT];
    uv_async_t async;
    bool closed;
};

struct thread_arg { struct lane_state *l; uint32_t index; };

static void lower_priority(void)
{
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid),
                10); /* bulk text yields the core to streams */
}

static void *thread_main(void *arg)
{
    struct lane_state *l = ((struct thread_arg *)arg)->l;
    struct tokenizer_scratch *scratch = l->scratch[((struct thread_arg *)arg)->index];
    mem_free(arg);
    if (l->bulk) lower_priority();
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (l->n == 0) {
            pthread_cond_wait(&l->some, &l->lock);
            continue;
        }
        struct lane_job *j = l->queue[l->head];
        l->head = (l->head + 1) % LANE_JOBS_MAX;
        l->n--;
        pthread_mutex_unlock(&l->lock);
        j->work(j, scratch);
        pthread_mutex_lock(&l->lock);
        l->done[l->n_done++] = j;
        uv_async_send(
            &l->owner->async); /* under the lock: lanes_destroy closes it only after the join */
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void take_done(struct lane_state *l)
{
    struct lane_job *jobs[64];
    uint32_t n;
    do {
        pthread_mutex_lock(&l->lock);
        n = l->n_done < 64 ? l->n_done : 64;
        for (uint32_t i = 0; i < n; i++) jobs[i] = l->done[i];
        for (uint32_t i = n; i < l->n_done; i++) l->done[i - n] = l->done[i];
        l->n_done -= n;
        pthread_mutex_unlock(&l->lock);
        l->out -= n;
        for (uint32_t i = 0; i < n; i++) jobs[i]->done(jobs[i]);
    } while (n == 64);
}

static void on_async(uv_async_t *a)
{
    struct lanes *ls = a->data;
    for (int i = 0; i < LANE_COUNT; i++) take_done(&ls->lane[i]);
}

int lane_push(struct lanes *ls, enum lane lane, struct lane_job *j)
{
    struct lane_state *l = &ls->lane[lane];
    if (l->out == LANE_JOBS_MAX) return -1;
    l->out++;
    pthread_mutex_lock(&l->lock);
    l->queue[(l->head + l->n++) % LANE_JOBS_MAX] = j;
    pthread_cond_signal(&l->some);
    pthread_mutex_unlock(&l->lock);
    return 0;
}

static int lane_start(struct lane_state *l, uint32_t n_threads)
{
    for (uint32_t i = 0; i < n_threads; i++) {
        struct thread_arg *arg = mem_alloc(sizeof *arg);
        l->scratch[i] = tokenizer_scratch_create(l->owner->g->model->tok);
        l->n_threads++;
        if (arg == NULL || l->scratch[i] == NULL) {
            mem_free(arg);
            return -1;
        }
        *arg = (struct thread_arg){l, i};
        if (pthread_create(&l->threads[i], NULL, thread_main, arg) != 0) {
            mem_free(arg);
            return -1;
        }
        l->started++;
    }
    return 0;
}

int lanes_create(struct lanes **out, struct gateway *g, struct err *e)
{
    struct lanes *ls = mem_zalloc(sizeof *ls);
    if (ls == NULL) return err_set(e, ERR_NO_MEMORY, "out of memory");
    ls->g = g;
    ls->async.data = ls;
    uv_async_init(g->loop, &ls->async, on_async);
    const uint32_t threads[LANE_COUNT] = {(uint32_t)g->settings->chat_text_threads,
                                          (uint32_t)g->settings->bulk_text_threads};
    for (int i = 0; i < LANE_COUNT; i++) {
        struct lane_state *l = &ls->lane[i];
        l->owner = ls;
        l->bulk = i == LANE_BULK;
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->some, NULL);
    }
    for (int i = 0; i < LANE_COUNT; i++) {
        if (lane_start(&ls->lane[i], threads[i]) != 0) {
            lanes_destroy(&ls);
            return err_set(e, ERR_NO_MEMORY, "out of memory: cannot start the text threads");
        }
    }
    *out = ls;
    return 0;
}

static void lane_stop(struct lane_state *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->some);
    pthread_mutex_unlock(&l->lock);
    for (uint32_t i = 0; i < l->started; i++) pthread_join(l->threads[i], NULL);
    for (uint32_t i = 0; i < l->n_threads; i++) tokenizer_scratch_destroy(&l->scratch[i]);
    take_done(l);
    for (; l->n > 0; l->n--) { /* never begun: their owners learn of it all the same */
        struct lane_job *j = l->queue[l->head];
        l->head = (l->head + 1) % LANE_JOBS_MAX;
        j->done(j);
    }
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->some);
}

static void on_closed(uv_handle_t *h)
{
    ((struct lanes *)h->data)->closed = true;
}

void lanes_destroy(struct lanes **pls)
{
    struct lanes *ls = *pls;
    *pls = NULL;
    if (ls == NULL) return;
    for (int i = 0; i < LANE_COUNT; i++) lane_stop(&ls->lane[i]);
    uv_close((uv_handle_t *)&ls->async, on_closed);
    while (!ls->closed) uv_run(ls->g->loop, UV_RUN_ONCE);
    mem_free(ls);
}
