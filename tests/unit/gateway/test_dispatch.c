/* The dispatcher over a scripted worker: who is admitted, what a bad worker may do, drain, full
 * sockets, many slots. */
#include "tests/unit/gateway/gateway_rig.h"

#include <string.h>

static struct rig r;

static void setup(void)
{
    rig_open(&r, NULL);
}

static void teardown(void)
{
    rig_close(&r);
}

static void post(struct rig_door *d, const char *cls)
{
    rig_post(&r, d, ENDPOINT_COMPLETION, cls,
             "{\"model\":\"tiny\",\"prompt\":\"abcd\",\"max_tokens\":8,\"stream\":true}");
}

static void expect_error(struct rig_door *d, enum err_code code)
{
    uint32_t retry;
    ck_assert_int_eq(rig_settle(&r, d), REQUEST_FAILED);
    ck_assert_int_eq(request_error(d->request, &retry)->code, code);
    rig_drop(d);
}

/* A prompt that can never fit the pool is refused with sizes; one that just fits is clipped (B04).
 */
START_TEST(pool_sizes)
{
    struct rig_door d;
    struct msg keep;
    char body[400];
    rig_join(&r, 3); /* two blocks of 16 and the trash block */
    uint32_t retry;
    snprintf(body, sizeof body, "{\"model\":\"tiny\",\"prompt\":\"%s\",\"max_tokens\":8}",
             "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz");
    rig_post(&r, &d, ENDPOINT_COMPLETION, "", body);
    ck_assert_int_eq(rig_settle(&r, &d), REQUEST_FAILED);
    const struct err *e = request_error(d.request, &retry);
    ck_assert_int_eq(e->code, ERR_POOL_TOO_SMALL);
    ck_assert_ptr_nonnull(strstr(e->msg, "42 tokens"));
    rig_drop(&d);
    rig_post(&r, &d, ENDPOINT_COMPLETION, "",
             "{\"model\":\"tiny\",\"prompt\":\"abcd\",\"max_tokens\":500,\"min_tokens\":500}");
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert_uint_le(s.max_total, 33);
    ck_assert_uint_eq(s.min_total, s.max_total);
    rig_drop(&d);
    rig_expect(&r, MSG_CANCEL, s.sub);
    msg_deinit(&keep);
    rig_idle(&r);
}
END_TEST

/* The same decision for one that came before its worker: shortened, and its min_tokens with it. */
START_TEST(pool_sizes_learnt_late)
{
    struct rig_door d, big;
    struct msg keep;
    char body[400];
    snprintf(body, sizeof body, "{\"model\":\"tiny\",\"prompt\":\"%s\",\"max_tokens\":8}",
             "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz");
    rig_post(&r, &big, ENDPOINT_COMPLETION, "batch", body);
    rig_post(&r, &d, ENDPOINT_COMPLETION, "batch",
             "{\"model\":\"tiny\",\"prompt\":\"abcd\",\"max_tokens\":500,\"min_tokens\":500}");
    rig_join(&r, 3);
    expect_error(&big, ERR_POOL_TOO_SMALL);
    struct msg_submit s = rig_submitted(&r, &keep);
    ck_assert_uint_le(s.max_total, 33);
    ck_assert_uint_eq(s.min_total, s.max_total);
    rig_drop(&d);
    rig_expect(&r, MSG_CANCEL, s.sub);
    msg_deinit(&keep);
    rig_idle(&r);
}
END_TEST

START_TEST(other_vocabulary)
{
    struct err e;
    struct msg m = {.kind = MSG_HELLO};
    ck_assert_int_eq(transport_fake_dial(&r.dialer, r.listener, &e), 0);
    m.u.hello = (struct msg_hello){.version_min = 1,
                                   .version_max = 1,
                                   .name = "w0",
                                   .vocab = {1, 2},
                                   .n_ctx = 8,
                                   .n_vocab = 10,
                                   .block_tokens = 16,
                                   .n_blocks = 4,
                                   .max_seqs = 1,
                                   .max_slots = 1};
    rig_send(&r, &m);
    rig_recv(&r, &m);
    ck_assert_int_eq(m.kind, MSG_HELLO_REPLY);
    ck_assert(!m.u.hello_reply.accepted && m.u.hello_reply.reason[0]);
    ck_assert(!dispatch_ready(r.g.dispatch));
    msg_deinit(&m);
}
END_TEST

/* Bytes that are no message, messages of the other direction: counted, dropped, the session goes
 * on. */
START_TEST(nonsense)
{
    struct rig_door d;
    struct msg keep;
    rig_join(&r, 512);
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(transport_send(r.dialer, 0, "\x93\xff\x00", 3), TRANSPORT_OK);
    rig_send(&r, &(struct msg){.kind = MSG_DRAIN});
    rig_tokens(&r, (struct sub_id){1, 2}, 5, (int32_t[]){1}, 1, NULL, FINISH_NONE,
               0); /* unknown: CANCEL */
    rig_expect(&r, MSG_CANCEL, (struct sub_id){1, 2});
    ck_assert_uint_eq(r.g.metrics.link_bad_messages, 6);
    post(&d, "");
    struct msg_submit s = rig_submitted(&r, &keep);
    rig_answer(&r, &s, "x", FINISH_EOS);
    rig_pull_to_end(&r, &d);
    ck_assert_int_eq(d.last, PULL_DONE);
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
    rig_drop(&d);
    rig_idle(&r);
}
END_TEST

/* Ids outside the vocabulary end the session, not the gateway; the request waits for another
 * worker. */
START_TEST(bad_ids)
{
    struct rig_door d;
    struct msg keep, again;
    rig_join(&r, 512);
    post(&d, "");
    struct msg_submit s = rig_submitted(&r, &keep);
    rig_tokens(&r, s.sub, s.n_ids, (int32_t[]){TINY_VOCAB}, 1, NULL, FINISH_NONE, 0);
    while (dispatch_ready(r.g.dispatch)) rig_turn(&r);
    transport_close(&r.dialer);
    r.incarnation++;
    rig_join(&r, 512);
    struct msg_submit t = rig_submitted(&r, &again);
    ck_assert_uint_eq(t.n_ids, s.n_ids); /* nothing of the bad message was taken */
    rig_answer(&r, &t, "y", FINISH_EOS);
    rig_pull_to_end(&r, &d);
    rig_expect(&r, MSG_ACK, t.sub);
    msg_deinit(&keep);
    msg_deinit(&again);
    rig_drop(&d);
    rig_idle(&r);
}
END_TEST

/* What the worker cannot run ends with an error, once. */
START_TEST(refused_by_worker)
{
    static const struct { enum finish finish; enum err_code code; } rows[] = {
        {FINISH_TOO_LARGE, ERR_POOL_TOO_SMALL}, {FINISH_REFUSED, ERR_INTERNAL}};
    rig_join(&r, 512);
    for (int i = 0; i < 2; i++) {
        struct rig_door d;
        struct msg keep;
        uint32_t retry;
        post(&d, "");
        struct msg_submit s = rig_submitted(&r, &keep);
        rig_tokens(&r, s.sub, s.n_ids, NULL, 0, NULL, rows[i].finish, 0);
        ck_assert_int_eq(rig_settle(&r, &d), REQUEST_FAILED);
        ck_assert_int_eq(request_error(d.request, &retry)->code, rows[i].code);
        rig_drop(&d);
        rig_expect(&r, MSG_ACK, s.sub);
        msg_deinit(&keep);
    }
    rig_idle(&r);
}
END_TEST

/* Drain: what no worker has seen fails at once, what runs goes on; new ones are refused (B70). */
START_TEST(drain)
{
    struct rig_door running, queued[3], late;
    struct msg keep;
    rig_join(&r, 512);
    post(&running, "");
    struct msg_submit s = rig_submitted(&r, &keep);
    rig_tokens(&r, s.sub, s.n_ids, (int32_t[]){TINY_BYTE('a')}, 1, NULL, FINISH_NONE, 0);
    struct msg status = {.kind = MSG_STATUS};
    status.u.status =
        (struct msg_status){.number = 99, .n_classes = 2}; /* no room in the batch window */
    rig_send(&r, &status);
    rig_settle(&r, &running);
    for (int i = 0; i < 3; i++) post(&queued[i], "batch");
    struct gateway_stats st;
    do {
        rig_turn(&r);
        dispatch_stats(r.g.dispatch, &st);
    } while (st.queued[CLASS_BATCH] < 3);
    r.g.draining = true;
    dispatch_drain(r.g.dispatch);
    for (int i = 0; i < 3; i++) expect_error(&queued[i], ERR_DRAINING);
    post(&late, "");
    expect_error(&late, ERR_DRAINING);
    ck_assert(!dispatch_ready(r.g.dispatch) && !dispatch_idle(r.g.dispatch));
    rig_tokens(&r, s.sub, s.n_ids + 1, (int32_t[]){TINY_BYTE('b')}, 1, NULL, FINISH_EOS, 2);
    rig_pull_to_end(&r, &running);
    ck_assert_int_eq(running.last, PULL_DONE);
    rig_expect(&r, MSG_ACK, s.sub);
    msg_deinit(&keep);
    rig_drop(&running);
    rig_idle(&r);
}
END_TEST

/* The end of the drain time: streams end with one error. */
START_TEST(fail_all)
{
    struct rig_door d[3];
    struct msg keep[3];
    rig_join(&r, 512);
    for (int i = 0; i < 3; i++) {
        post(&d[i], "");
        struct msg_submit s = rig_submitted(&r, &keep[i]);
        if (i < 2)
            rig_tokens(&r, s.sub, s.n_ids, (int32_t[]){TINY_BYTE('a')}, 1, NULL, FINISH_NONE, 0);
        if (i < 2) rig_settle(&r, &d[i]);
    }
    rig_pull(&d[0]); /* one begun, one with its head out but no event yet, one not begun */
    dispatch_fail_all(r.g.dispatch, ERR_DRAINING);
    rig_pull(&d[0]);
    ck_assert_int_eq(d[0].last, PULL_ERROR);
    rig_pull(&d[1]);
    ck_assert_int_eq(d[1].last, PULL_ERROR);
    ck_assert_int_eq(request_state(d[2].request), REQUEST_FAILED);
    for (int i = 0; i < 3; i++) {
        rig_expect(&r, MSG_CANCEL, keep[i].u.submit.sub);
        rig_drop(&d[i]);
        msg_deinit(&keep[i]);
    }
    rig_idle(&r);
}
END_TEST

static void one_message(struct settings *s)
{
    s->max_queue_requests = 40;
}

/* A socket that is full: submissions wait and all arrive; over max-queue-requests a request is
 * refused. */
START_TEST(full_socket)
{
    struct rig_door d[41];
    rig_close(&r);
    rig_open(&r, one_message);
    transport_fake_limit(r.listener, 3);
    rig_join(&r, 512);
    for (int i = 0; i < 40; i++) post(&d[i], "");
    int n_submits = 0;
    while (n_submits < 40) {
        struct msg m;
        rig_recv(&r, &m);
        if (m.kind == MSG_SUBMIT) {
            n_submits++;
            if (n_submits == 40) { /* all slots are in use now */
                post(&d[40], "");
                expect_error(&d[40], ERR_QUEUE_FULL);
            }
            rig_tokens(&r, m.u.submit.sub, m.u.submit.n_ids, (int32_t[]){TINY_BYTE('q')}, 1, NULL,
                       FINISH_NONE, 0);
        }
        msg_deinit(&m);
    }
    for (int i = 0; i < 40; i++) {
        rig_settle(&r, &d[i]);
        rig_drop(&d[i]);
    }
    rig_idle(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dispatch");
    TCase *t = tcase_create("dispatch");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, pool_sizes);
    tcase_add_test(t, pool_sizes_learnt_late);
    tcase_add_test(t, other_vocabulary);
    tcase_add_test(t, nonsense);
    tcase_add_test(t, bad_ids);
    tcase_add_test(t, refused_by_worker);
    tcase_add_test(t, drain);
    tcase_add_test(t, fail_all);
    tcase_add_test(t, full_socket);
    suite_add_tcase(s, t);
    return test_run(s);
}
