/* Text lanes: every job comes back once, on the loop; no lane waits for the other; a full queue
 * refuses. */
#include "gateway/lane.h"

#include "base/mem.h"
#include "tests/unit/gateway/gateway_rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static struct gateway g;
static struct settings settings;
static struct model model;
static uv_loop_t loop;
static pthread_t loop_thread;

struct job {
    struct lane_job lane;          /* first */
    int worked, done;
    size_t n_ids;
    pthread_mutex_t *gate;         /* held by the test: the lane's thread stands there */
};

static void work(struct lane_job *j, struct tokenizer_scratch *scratch)
{
    struct job *k = (struct job *)j;
    struct id_list ids = {0};
    struct err e;
    ck_assert(!pthread_equal(pthread_self(), loop_thread));
    if (k->gate) {
        pthread_mutex_lock(k->gate);
        pthread_mutex_unlock(k->gate);
    }
    if (tokenizer_encode(model.tok, scratch, "hello world", 11, false, 0, &ids, &e) == 0)
        k->n_ids = ids.n;
    id_list_deinit(&ids);
    k->worked++;
}

static void done(struct lane_job *j)
{
    ck_assert(pthread_equal(pthread_self(), loop_thread));
    ((struct job *)j)->done++;
}

static void setup(void)
{
    struct err e;
    settings_defaults(&settings);
    settings.chat_text_threads = 2;
    settings.bulk_text_threads = 1;
    uv_loop_init(&loop);
    g = (struct gateway){.settings = &settings, .model = &model, .loop = &loop};
    loop_thread = pthread_self();
    ck_assert_int_eq(lanes_create(&g.lanes, &g, &e), 0);
}

static void teardown(void)
{
    lanes_destroy(&g.lanes);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void wait_done(const struct job *j)
{
    while (!j->done) uv_run(&loop, UV_RUN_ONCE);
}

START_TEST(all_come_back)
{
    enum { N = 900 };
    static struct job jobs[2][N];
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < N; i++) {
        for (int lane = 0; lane < 2; lane++) {
            jobs[lane][i].lane = (struct lane_job){work, done};
            ck_assert_int_eq(lane_push(g.lanes, lane ? LANE_BULK : LANE_CHAT, &jobs[lane][i].lane),
                             0);
        }
        if (i % 100 == 0) uv_run(&loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < N; i++) {
        for (int lane = 0; lane < 2; lane++) {
            wait_done(&jobs[lane][i]);
            ck_assert(jobs[lane][i].worked == 1 && jobs[lane][i].done == 1 &&
                      jobs[lane][i].n_ids > 0);
        }
    }
}
END_TEST

/* The bulk lane stands still: chat goes on; its own queue fills and then refuses. */
START_TEST(lanes_are_apart)
{
    static struct job stuck[1100], chat;
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int taken = 0;
    memset(stuck, 0, sizeof stuck);
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 1100; i++) {
        stuck[i] = (struct job){.lane = {work, done}, .gate = &gate};
        if (lane_push(g.lanes, LANE_BULK, &stuck[i].lane) == 0) taken++;
    }
    ck_assert_int_eq(taken, 1024);
    chat = (struct job){.lane = {work, done}};
    ck_assert_int_eq(lane_push(g.lanes, LANE_CHAT, &chat.lane), 0);
    wait_done(&chat);
    for (int i = 0; i < 1024; i++) ck_assert_int_eq(stuck[i].done, 0);
    pthread_mutex_unlock(&gate);
    wait_done(&stuck[1023]);
    struct job again = {.lane = {work, done}};
    ck_assert_int_eq(lane_push(g.lanes, LANE_BULK, &again.lane), 0); /* room again */
    wait_done(&again);
    pthread_mutex_destroy(&gate);
}
END_TEST

/* Closing with work in the queue: what was begun ends, what was not comes back too. */
START_TEST(close_with_work)
{
    static struct job jobs[200];
    memset(jobs, 0, sizeof jobs);
    for (int i = 0; i < 200; i++) {
        jobs[i].lane = (struct lane_job){work, done};
        ck_assert_int_eq(lane_push(g.lanes, LANE_BULK, &jobs[i].lane), 0);
    }
    lanes_destroy(&g.lanes);
    for (int i = 0; i < 200; i++) ck_assert_int_eq(jobs[i].done, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("lane");
    TCase *t = tcase_create("lane");
    if (tiny_text_model_open(&model, "tiny") != 0) return 1;
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, all_come_back);
    tcase_add_test(t, lanes_are_apart);
    tcase_add_test(t, close_with_work);
    suite_add_tcase(s, t);
    int r = test_run(s);
    model_close(&model);
    return r;
}
