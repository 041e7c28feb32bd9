/* The link by hand: link_turn with an invented clock, a scripted gateway at the other end of the
 * fake transport, and the test in the place of the step loop. Nothing sleeps, every time is exact.
 */
#include "tests/unit/worker/worker_rig.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#define MS 1000000ull
#define S 1000000000ull

static struct rig_model rig;
static struct rig_gateway gw;
static struct mail box;
static struct link *line;
static struct link_config config;
static uint64_t now;
static size_t memory_before;
static int32_t ids[] = {RIG_BYTE('a'), RIG_BYTE('b')};

static void setup_model(void) {
    rig_model_open(&rig);
}
static void teardown_model(void) {
    rig_model_close(&rig);
}

static void start_link(void) {
    line = malloc(sizeof(*line));
    link_init(line, &config, &box);
}

static void setup(void) {
    memory_before = mem_used();
    now = 1000 * S;
    rig_gateway_open(&gw);
    ck_assert_int_eq(mail_init(&box, 64, NULL), 0);
    config = (struct link_config){
        .session = {.dial = rig_dial,
                    .dial_ctx = &gw,
                    .heartbeat_ns = 500 * MS,
                    .silence_ns = 2 * S,
                    .backlog_bytes = 1 << 16},
        .limits = {.vocab = rig.m.vocab, .n_vocab = TINY_VOCAB, .n_ctx = 64, .n_classes = 2},
        .n_gateways = 1};
    config.session.hello = (struct msg_hello){.version_min = 1,
                                              .version_max = 1,
                                              .name = "w0",
                                              .incarnation = 5,
                                              .n_ctx = 64,
                                              .n_vocab = TINY_VOCAB,
                                              .block_tokens = 16,
                                              .n_blocks = 9,
                                              .max_seqs = 2,
                                              .max_slots = 8};
    start_link();
}

static void teardown(void) {
    link_deinit(line);
    free(line);
    mail_deinit(&box);
    rig_gateway_close(&gw);
    ck_assert_uint_eq(mem_used(), memory_before);
}

/* Turns with time going on, in steps of 10 ms. */
static void turns(uint64_t ns) {
    for (uint64_t t = 0; t < ns; t += 10 * MS) {
        link_turn(line, now);
        now += 10 * MS;
    }
    link_turn(line, now);
}

static uint32_t count_messages(enum msg_kind kind) {
    struct msg m;
    uint32_t n = 0;
    while (rig_recv(&gw, &m)) {
        n += m.kind == kind;
        msg_deinit(&m);
    }
    return n;
}

static struct mail_in take(enum mail_in_kind kind) {
    struct mail_in *in = mail_in_pop(&box), copy;
    ck_assert_msg(in != NULL, "the link said nothing to the loop");
    ck_assert_int_eq(in->kind, kind);
    copy = *in;
    copy.seq = NULL;
    mail_in_destroy(&in);
    return copy;
}

static uint32_t come_up(void) {
    link_turn(line, now);
    ck_assert_uint_ge(count_messages(MSG_HELLO), 1);
    rig_accept(&gw);
    link_turn(line, now);
    struct mail_in up = take(MAIL_UP);
    return up.epoch;
}

static void say_tokens(uint32_t epoch, uint64_t counter, uint32_t index, uint32_t n) {
    struct mail_out *o = mail_out_new(&box, MAIL_TOKENS, 0, epoch);
    ck_assert_int_eq(mail_out_reserve(o, 1, n, 0, 0), 0);
    o->entries[0] = (struct msg_tokens_entry){.sub = {11, counter}, .index = index, .n = n};
    o->n_entries = 1;
    for (uint32_t i = 0; i < n; i++)
        o->records[o->n_records++] = (struct msg_record){.id = (int32_t)i};
    mail_out_push(&box, &o);
}

START_TEST(hello_is_repeated_each_second) {
    turns(3500 * MS);
    ck_assert_uint_eq(count_messages(MSG_HELLO), 4);
    ck_assert_ptr_null(mail_in_pop(&box));
    rig_accept(&gw);
    link_turn(line, now);
    ck_assert_uint_ne(take(MAIL_UP).gateway, 0);
    turns(5 * MS);
    ck_assert_uint_eq(count_messages(MSG_HELLO), 0);
}
END_TEST

START_TEST(a_refused_hello_is_tried_again_later) {
    link_turn(line, now);
    ck_assert_uint_eq(count_messages(MSG_HELLO), 1);
    struct msg m = {.kind = MSG_HELLO_REPLY};
    m.u.hello_reply = (struct msg_hello_reply){
        .code = ERR_MODEL_NOT_FOUND, .reason = "another model", .gateway = "gw0"};
    rig_send(&gw, &m);
    turns(990 * MS);
    ck_assert_uint_eq(count_messages(MSG_HELLO), 0);
    turns(20 * MS);
    ck_assert_uint_eq(count_messages(MSG_HELLO), 1);
    ck_assert_ptr_null(mail_in_pop(&box));
    rig_accept(&gw);
    link_turn(line, now);
    take(MAIL_UP);
}
END_TEST

START_TEST(a_version_unknown_here_is_no_session) {
    link_turn(line, now);
    count_messages(MSG_HELLO);
    struct msg m = {.kind = MSG_HELLO_REPLY};
    m.u.hello_reply = (struct msg_hello_reply){.accepted = true, .version = 9, .gateway = "gw0"};
    rig_send(&gw, &m);
    link_turn(line, now);
    ck_assert_ptr_null(mail_in_pop(&box));
    ck_assert_int_eq(line->peers[0].session.state, SESSION_DOWN);
}
END_TEST

START_TEST(nothing_before_hello_counts) {
    struct msg_submit sub = rig_submit((struct sub_id){11, 1}, ids, 2, 10);
    link_turn(line, now);
    count_messages(MSG_HELLO);
    rig_send(&gw, &(struct msg){.kind = MSG_SUBMIT, .u.submit = sub});
    link_turn(line, now);
    ck_assert_ptr_null(mail_in_pop(&box));
}
END_TEST

START_TEST(messages_reach_the_loop_in_order) {
    uint32_t epoch = come_up();
    struct msg_submit sub = rig_submit((struct sub_id){11, 1}, ids, 2, 10);
    rig_send(&gw, &(struct msg){.kind = MSG_SUBMIT, .u.submit = sub});
    rig_send_sub(&gw, MSG_GAP, sub.sub, 3);
    rig_send_sub(&gw, MSG_CANCEL, sub.sub, 0);
    rig_send_sub(&gw, MSG_ACK, sub.sub, 0);
    rig_send(&gw, &(struct msg){.kind = MSG_DRAIN});
    link_turn(line, now);
    struct mail_in *in = mail_in_pop(&box);
    ck_assert_int_eq(in->kind, MAIL_SUBMIT);
    ck_assert_uint_eq(in->epoch, epoch);
    ck_assert_ptr_null(in->seq->refused);
    ck_assert_uint_eq(in->seq->n_ids, 2);
    mail_in_destroy(&in);
    ck_assert_uint_eq(take(MAIL_GAP).from, 3);
    take(MAIL_CANCEL);
    take(MAIL_ACK);
    take(MAIL_DRAIN);
    ck_assert_ptr_null(mail_in_pop(&box));
}
END_TEST

START_TEST(an_invalid_submit_arrives_refused) {
    come_up();
    struct msg_submit sub = rig_submit((struct sub_id){11, 1}, ids, 2, 10);
    sub.cls = 5;
    rig_send(&gw, &(struct msg){.kind = MSG_SUBMIT, .u.submit = sub});
    link_turn(line, now);
    struct mail_in *in = mail_in_pop(&box);
    ck_assert_ptr_nonnull(in->seq->refused);
    ck_assert_uint_eq(in->from, 2);
    mail_in_destroy(&in);
}
END_TEST

START_TEST(garbage_is_dropped_and_counted) {
    come_up();
    transport_send(gw.t, gw.peer, "\xc1garbage", 8);
    rig_send_sub(&gw, MSG_ACK, (struct sub_id){1, 2}, 0);
    link_turn(line, now);
    ck_assert_uint_eq(line->peers[0].session.bad_messages, 1);
    take(MAIL_ACK);
}
END_TEST

START_TEST(pings_when_nothing_else_was_said) {
    uint32_t epoch = come_up();
    struct transport_msg raw;
    for (int i = 0; i < 4; i++) {
        uint32_t n = 0;
        for (uint64_t t = 0; t < 500; t += 10) {
            now += 10 * MS;
            if (i == 3 && t == 250)
                say_tokens(epoch, 1, 2, 1); /* something was said: the ping waits */
            link_turn(line, now);
        }
        while (transport_recv(gw.t, &raw) == TRANSPORT_OK) {
            n++;
            transport_msg_free(&raw);
        }
        ck_assert_uint_eq(n, 1);
        rig_send(&gw, &(struct msg){.kind = MSG_PING});
    }
    ck_assert_uint_eq(line->peers[0].session.sessions, 1);
}
END_TEST

START_TEST(silence_ends_the_session) {
    uint32_t epoch = come_up();
    turns(1990 * MS);
    ck_assert_ptr_null(mail_in_pop(&box));
    turns(20 * MS);
    ck_assert_uint_eq(take(MAIL_DOWN).epoch, epoch);
    turns(200 * MS); /* dials again, under a new number */
    ck_assert_uint_eq(come_up(), epoch + 1);
}
END_TEST

START_TEST(bye_and_lost_connections_end_it) {
    come_up();
    rig_send(&gw, &(struct msg){.kind = MSG_BYE});
    link_turn(line, now);
    take(MAIL_DOWN);
    turns(200 * MS);
    come_up();
    transport_peer_drop(gw.t, gw.peer);
    rig_gateway_close(&gw); /* the gateway is gone, and comes back */
    link_turn(line, now);
    take(MAIL_DOWN);
    rig_gateway_open(&gw);
    turns(1200 * MS);
    come_up();
}
END_TEST

/* What the loop said to an old session must not reach the next one. */
START_TEST(old_words_are_dropped) {
    uint32_t epoch = come_up();
    struct msg m;
    say_tokens(epoch, 1, 2, 1);
    rig_send(&gw, &(struct msg){.kind = MSG_BYE});
    turns(300 * MS);
    take(MAIL_DOWN);
    say_tokens(epoch, 1, 3, 1);
    uint32_t next = come_up();
    say_tokens(epoch, 1, 4, 1);
    say_tokens(next, 1, 5, 1);
    link_turn(line, now);
    ck_assert(rig_recv(&gw, &m));
    ck_assert_int_eq(m.kind, MSG_TOKENS);
    ck_assert_uint_eq(m.u.tokens.entries[0].index, 5);
    msg_deinit(&m);
    ck_assert(!rig_recv(&gw, &m));
}
END_TEST

START_TEST(another_gateway_process_is_another_session) {
    come_up();
    gw.incarnation++;
    rig_accept(&gw);
    link_turn(line, now);
    take(MAIL_DOWN);
}
END_TEST

START_TEST(tokens_arrive_whole_and_in_order) {
    uint32_t epoch = come_up();
    struct mail_out *o = mail_out_new(&box, MAIL_TOKENS, 0, epoch);
    struct msg m;
    mail_out_reserve(o, 2, 3, 3, 0);
    o->entries[0] = (struct msg_tokens_entry){.sub = {11, 1}, .index = 5, .n = 2, .logprobs = true};
    o->entries[1] = (struct msg_tokens_entry){
        .sub = {11, 2}, .index = 9, .n = 1, .finish = FINISH_EOS, .visible_bytes = 7};
    o->n_entries = 2;
    o->records[0] = (struct msg_record){.id = 1, .logprob = -1, .n_top = 2};
    o->records[1] = (struct msg_record){.id = 2, .logprob = -2, .n_top = 1};
    o->records[2] = (struct msg_record){.id = 3};
    o->n_records = 3;
    for (int i = 0; i < 3; i++)
        o->tops[o->n_tops++] = (struct msg_top){.id = 10 + i, .logprob = -1};
    o->accounts[0] = (struct msg_account){.cls = 1, .output = 4};
    o->n_accounts = 1;
    mail_out_push(&box, &o);
    link_turn(line, now);
    ck_assert(rig_recv(&gw, &m));
    const struct msg_tokens *t = &m.u.tokens;
    ck_assert_uint_eq(t->n, 2);
    ck_assert_int_eq(t->entries[0].records[1].top[0].id, 12);
    ck_assert_int_eq(t->entries[1].records[0].id, 3);
    ck_assert_int_eq(t->entries[1].finish, FINISH_EOS);
    ck_assert_uint_eq(t->entries[1].visible_bytes, 7);
    ck_assert_uint_eq(t->accounts[0].output, 4);
    msg_deinit(&m);
    ck_assert_uint_eq(ring_count(&box.spare), 1); /* the message is used again */
}
END_TEST

/* The gateway does not read: what does not fit waits in order; when it reads again all of it comes.
 */
START_TEST(a_full_transport_keeps_the_order) {
    uint32_t epoch = come_up();
    struct msg m;
    for (uint32_t i = 0; i < 1200; i++) {
        say_tokens(epoch, 1, i, 1);
        link_turn(line, now);
    }
    ck_assert_uint_gt(line->peers[0].session.backlog_bytes, 0);
    uint32_t next = 0;
    for (int i = 0; i < 50 && next < 1200; i++) {
        while (rig_recv(&gw, &m)) {
            if (m.kind == MSG_TOKENS)
                ck_assert_uint_eq(m.u.tokens.entries[0].index, next++);
            msg_deinit(&m);
        }
        turns(20 * MS);
        rig_send(&gw, &(struct msg){.kind = MSG_PING});
    }
    ck_assert_uint_eq(next, 1200);
    ck_assert_uint_eq(line->peers[0].session.sessions, 1);
}
END_TEST

START_TEST(a_backlog_over_its_limit_ends_the_session) {
    uint32_t epoch = come_up();
    for (uint32_t i = 0; i < 3000 && line->peers[0].session.state == SESSION_UP; i++) {
        say_tokens(epoch, 1, i, 40);
        link_turn(line, now);
    }
    ck_assert_int_eq(line->peers[0].session.state, SESSION_DOWN);
    take(MAIL_DOWN);
}
END_TEST

/* The loop does not look: the link stops receiving, keeps what it has, and does not call it
 * silence. */
START_TEST(a_full_ring_holds_the_gateway_back) {
    come_up();
    for (uint32_t i = 0; i < 100; i++)
        rig_send_sub(&gw, MSG_GAP, (struct sub_id){11, 1}, i);
    turns(4 * S);
    ck_assert(line->peers[0].session.blocked);
    ck_assert_uint_eq(line->peers[0].session.sessions, 1);
    uint32_t next = 0;
    for (int i = 0; i < 10; i++) {
        for (struct mail_in *in; (in = mail_in_pop(&box)) != NULL;) {
            ck_assert_int_eq(in->kind, MAIL_GAP);
            ck_assert_uint_eq(in->from, next++);
            mail_in_destroy(&in);
        }
        link_turn(line, now);
    }
    ck_assert_uint_eq(next, 100);
    ck_assert_int_eq(line->peers[0].session.state, SESSION_UP);
}
END_TEST

START_TEST(what_the_loop_cannot_say_cuts_the_session) {
    uint32_t epoch = come_up();
    for (uint32_t i = 0; i < 65; i++) /* one more than the ring holds */
        say_tokens(epoch, 1, i, 1);
    link_turn(line, now);
    take(MAIL_DOWN);
    ck_assert_int_eq(line->peers[0].session.state, SESSION_DOWN);
}
END_TEST

START_TEST(no_memory_never_loses_a_submit_silently) {
    uint32_t cut = 0, handed = 0, whole = 0;
    struct msg_submit sub = rig_submit((struct sub_id){11, 1}, ids, 2, 10);
    for (uint64_t nth = 1; nth <= 12; nth++) {
        come_up();
        rig_send(&gw, &(struct msg){.kind = MSG_SUBMIT, .u.submit = sub});
        mem_fail_nth(nth);
        link_turn(line, now);
        mem_fail_nth(0);
        turns(50 * MS);
        struct mail_in *in = mail_in_pop(&box);
        ck_assert_ptr_nonnull(in);
        cut += in->kind == MAIL_DOWN;
        handed += in->kind == MAIL_SUBMIT && in->seq == NULL;
        whole += in->kind == MAIL_SUBMIT && in->seq != NULL;
        bool down = in->kind == MAIL_DOWN;
        mail_in_destroy(&in);
        if (!down) {
            rig_send(&gw, &(struct msg){.kind = MSG_BYE});
            link_turn(line, now);
            take(MAIL_DOWN);
        }
        turns(1500 * MS);
        while ((in = mail_in_pop(&box)) != NULL)
            mail_in_destroy(&in);
    }
    ck_assert_uint_gt(cut, 0);
    ck_assert_uint_gt(handed, 0);
    ck_assert_uint_gt(whole, 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("link");
    TCase *t = tcase_create("link");
    tcase_add_unchecked_fixture(t, setup_model, teardown_model);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, hello_is_repeated_each_second);
    tcase_add_test(t, a_refused_hello_is_tried_again_later);
    tcase_add_test(t, a_version_unknown_here_is_no_session);
    tcase_add_test(t, nothing_before_hello_counts);
    tcase_add_test(t, messages_reach_the_loop_in_order);
    tcase_add_test(t, an_invalid_submit_arrives_refused);
    tcase_add_test(t, garbage_is_dropped_and_counted);
    tcase_add_test(t, pings_when_nothing_else_was_said);
    tcase_add_test(t, silence_ends_the_session);
    tcase_add_test(t, bye_and_lost_connections_end_it);
    tcase_add_test(t, old_words_are_dropped);
    tcase_add_test(t, another_gateway_process_is_another_session);
    tcase_add_test(t, tokens_arrive_whole_and_in_order);
    tcase_add_test(t, a_full_transport_keeps_the_order);
    tcase_add_test(t, a_backlog_over_its_limit_ends_the_session);
    tcase_add_test(t, a_full_ring_holds_the_gateway_back);
    tcase_add_test(t, what_the_loop_cannot_say_cuts_the_session);
    tcase_add_test(t, no_memory_never_loses_a_submit_silently);
    suite_add_tcase(s, t);
    return test_run(s);
}
