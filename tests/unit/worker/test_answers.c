/* What the step loop says: one message per event and gateway, large answers cut into several,
 * nothing for a session that is down, and a session cut when a message cannot be made. */
#include "tests/unit/worker/worker_rig.h"
#include "scheduler/worker_core_impl.h"
#include "worker/answers.h"

#include "base/mem.h"

#include <string.h>

#define LONG 6000

static struct rig_model rig;
static struct seq_limits limits;
static struct mail box;
static struct seq_store store;
static struct answers answers;
static struct worker_core *core;
static int32_t ids[LONG];

static void setup_model(void) {
    rig_model_open(&rig);
}
static void teardown_model(void) {
    rig_model_close(&rig);
}

static void setup(void) {
    struct worker_core_config c = {
        .max_slots = 4,
        .max_seqs = 2,
        .max_spans = 2,
        .max_tokens = 8,
        .max_rows = 8,
        .prefill_chunk = 4,
        .n_ctx = 8192,
        .pool = {.n_blocks = 9,
                 .block_tokens = 16,
                 .max_seq_blocks = 512,
                 .max_accounts = SEQ_ACCOUNTS}};
    class_table_default(&c.classes);
    limits = (struct seq_limits){
        .vocab = rig.m.vocab, .n_vocab = TINY_VOCAB, .n_ctx = 8192, .n_classes = 2};
    core = worker_core_init(mem_zalloc(worker_core_bytes(&c)), &c);
    ck_assert_int_eq(mail_init(&box, 8, NULL), 0);
    ck_assert_int_eq(seq_store_init(&store, 4), 0);
    ck_assert_int_eq(answers_init(&answers, &box, core, &store, 2), 0);
}
static void teardown(void) {
    answers_deinit(&answers);
    seq_store_deinit(&store);
    mail_deinit(&box);
    mem_free(core);
}

static struct worker_action tokens_of(uint32_t n, uint32_t from, uint8_t n_top, enum finish f) {
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(3 + i % 200);
    struct msg_submit m = rig_submit((struct sub_id){1, n}, ids, n, n + 1);
    m.from = from;
    m.logprobs = n_top != 0;
    m.n_top = n_top;
    struct seq *s = seq_create(&m, &limits);
    struct sample_result r = {.logprob = -1, .n_top = n_top};
    for (uint32_t i = from; i < n; i++)
        seq_score(s, i, &r);
    return (struct worker_action){.kind = WA_TOKENS,
                                  .sub = m.sub,
                                  .slot = seq_store_put(&store, &s),
                                  .from = from,
                                  .to = n,
                                  .finish = f};
}

START_TEST(one_message_an_event) {
    struct worker_action a = tokens_of(10, 4, 2, FINISH_NONE),
                         b = tokens_of(5, 5, 0, FINISH_LENGTH);
    answers_up(&answers, 0, 1);
    answers_tokens(&answers, &a);
    answers_tokens(&answers, &b);
    answers_finish(&answers, &(struct worker_action){.sub = {9, 9}, .finish = FINISH_UNKNOWN}, 7);
    ck_assert_ptr_null(mail_out_pop(&box));
    answers_flush(&answers);
    struct mail_out *o = mail_out_pop(&box);
    mail_out_seal(o);
    ck_assert_uint_eq(o->n_entries, 3);
    ck_assert_uint_eq(o->entries[0].n, 6);
    ck_assert_uint_eq(o->entries[0].records[5].n_top, 2);
    ck_assert_uint_eq(o->entries[1].n, 0);
    ck_assert_int_eq(o->entries[1].finish, FINISH_LENGTH);
    ck_assert_uint_eq(o->entries[2].index, 7);
    ck_assert_uint_eq(o->n_accounts, 2);
    mail_out_recycle(&box, &o);
    ck_assert_ptr_null(mail_out_pop(&box));
}
END_TEST

static const struct msg_tenant *row_of(const struct mail_out *o, const char *name) {
    for (uint32_t i = 0; i < o->n_tenants; i++)
        if (strcmp(o->tenants[i].name, name) == 0)
            return &o->tenants[i];
    return NULL;
}

static uint32_t put(const char *tenant) {
    for (uint32_t i = 0; i < 4; i++)
        ids[i] = 3;
    struct msg_submit m = rig_submit((struct sub_id){2, 1}, ids, 4, 8);
    snprintf(m.tenant, sizeof(m.tenant), "%s", tenant);
    struct seq *s = seq_create(&m, &limits);
    return seq_store_put(&store, &s);
}

static void had(uint32_t slot, uint64_t prompt, uint64_t output) {
    struct worker_tenant_account *t =
        wc_tenant(core, seq_store_get(&store, slot)->account, CLASS_BATCH);
    t->prompt_first += prompt;
    t->output += output;
}

/* Beside STATUS to who gets no answers: all after the session came up, then what changed. */
START_TEST(tenants_are_shown_to_every_gateway) {
    uint32_t a = put("a"), b = put("b");
    answers_flush(&answers); /* as after the event that brought them */
    had(a, 10, 2);
    had(b, 5, 1);
    answers_up(&answers, 1, 7);
    answers_status(&answers, 0, 0);
    struct mail_out *o = mail_out_pop(&box);
    ck_assert_int_eq(o->kind, MAIL_STATUS);
    mail_out_recycle(&box, &o);
    o = mail_out_pop(&box);
    ck_assert_int_eq(o->kind, MAIL_TOKENS);
    ck_assert_uint_eq(o->n_entries, 0);
    ck_assert_uint_eq(o->n_tenants, 2);
    ck_assert(o->tenants_all);
    ck_assert_uint_eq(row_of(o, "a")->prompt_first, 10);
    ck_assert_uint_eq(row_of(o, "b")->output, 1);
    ck_assert_uint_eq(row_of(o, "b")->cls, CLASS_BATCH);
    mail_out_recycle(&box, &o);
    answers_status(&answers, 0, 0); /* nothing new */
    o = mail_out_pop(&box);
    ck_assert_int_eq(o->kind, MAIL_STATUS);
    mail_out_recycle(&box, &o);
    ck_assert_ptr_null(mail_out_pop(&box));
    had(b, 0, 4);
    struct worker_action t = tokens_of(5, 5, 0, FINISH_LENGTH);
    t.gw = 1;
    answers_tokens(&answers, &t);
    answers_flush(&answers);
    o = mail_out_pop(&box);
    ck_assert_uint_eq(o->n_entries, 1);
    ck_assert_uint_eq(o->n_tenants, 1);
    ck_assert_uint_eq(row_of(o, "b")->output, 5);
    mail_out_recycle(&box, &o);
}
END_TEST

/* An account that becomes another tenant's: that one begins at 0. */
START_TEST(an_account_that_is_given_away_starts_over) {
    uint32_t a = put("a");
    answers_flush(&answers);
    had(a, 10, 2);
    store.n_accounts = SEQ_ACCOUNTS; /* as if all had been given */
    seq_store_free(&store, a);
    answers_up(&answers, 0, 1);
    uint32_t c = put("c");
    ck_assert_uint_eq(seq_store_get(&store, c)->account, 1);
    answers_flush(&answers); /* after the event that brought it */
    had(c, 3, 0);
    answers_status(&answers, 0, 0);
    struct mail_out *o = mail_out_pop(&box);
    mail_out_recycle(&box, &o);
    o = mail_out_pop(&box);
    ck_assert_uint_eq(o->n_tenants, 1);
    ck_assert_uint_eq(row_of(o, "c")->prompt_first, 3);
    mail_out_recycle(&box, &o);
}
END_TEST

START_TEST(a_large_answer_is_cut) {
    struct worker_action a = tokens_of(LONG, 1, SAMPLE_TOP_MAX, FINISH_LENGTH);
    answers_up(&answers, 0, 1);
    answers_tokens(&answers, &a);
    answers_flush(&answers);
    uint32_t next = 1, finishes = 0, messages = 0;
    for (struct mail_out *o; (o = mail_out_pop(&box)) != NULL; messages++) {
        mail_out_seal(o);
        struct msg m = {.kind = MSG_TOKENS, .u.tokens = {.entries = o->entries, .n = o->n_entries}};
        ck_assert_int_eq(msg_check(&m, NULL), 0);
        ck_assert_uint_le(o->n_tops, 131072);
        for (uint32_t i = 0; i < o->n_entries; i++) {
            ck_assert_uint_eq(o->entries[i].index, next);
            ck_assert_int_eq(o->entries[i].records[0].id, ids[next]);
            next += o->entries[i].n;
            finishes += o->entries[i].finish != FINISH_NONE;
            ck_assert(o->entries[i].finish == FINISH_NONE || next == LONG);
        }
        mail_out_recycle(&box, &o);
    }
    ck_assert_uint_eq(next, LONG);
    ck_assert_uint_eq(finishes, 1);
    ck_assert_uint_le(messages, 2);
}
END_TEST

START_TEST(nothing_for_a_session_that_is_down) {
    struct worker_action a = tokens_of(10, 4, 0, FINISH_NONE);
    ck_assert(!answers_any_up(&answers));
    answers_tokens(&answers, &a);
    answers_finish(&answers, &a, 0);
    answers_sync(&answers, 0);
    answers_status(&answers, 0, 0);
    answers_flush(&answers);
    ck_assert_ptr_null(mail_out_pop(&box));
    answers_up(&answers, 0, 1);
    answers_tokens(&answers, &a);
    answers_down(&answers, 0); /* what was collected goes too */
    answers_flush(&answers);
    ck_assert_ptr_null(mail_out_pop(&box));
}
END_TEST

START_TEST(no_memory_cuts_the_session) {
    struct worker_action a = tokens_of(10, 4, 0, FINISH_NONE);
    answers_up(&answers, 0, 1);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        mem_fail_nth(nth);
        answers_tokens(&answers, &a);
        mem_fail_nth(0);
        ck_assert_uint_eq(mail_take_cut(&box), 1);
        answers_down(&answers, 0);
        answers_up(&answers, 0, 1);
    }
    mem_fail_nth(1);
    answers_sync(&answers, 0);
    mem_fail_nth(0);
    ck_assert_uint_eq(mail_take_cut(&box), 1);
}
END_TEST

START_TEST(status_rises) {
    answers_up(&answers, 0, 1);
    answers_up(&answers, 2, 5);
    answers_status(&answers, 10, 20);
    answers_status(&answers, 11, 21);
    for (uint64_t number = 1; number <= 2; number++) {
        for (int i = 0; i < 2; i++) {
            struct mail_out *o = mail_out_pop(&box);
            ck_assert_int_eq(o->kind, MAIL_STATUS);
            ck_assert_uint_eq(o->gw, i == 0 ? 0 : 2);
            ck_assert_uint_eq(o->status.number, number);
            ck_assert_uint_eq(o->status.blocks_total, 8);
            mail_out_recycle(&box, &o);
            if (number > 1)
                continue;
            o = mail_out_pop(&box); /* what tenants had, once: nothing */
            ck_assert_int_eq(o->kind, MAIL_TOKENS);
            ck_assert(o->tenants_all && o->n_tenants == 0);
            mail_out_recycle(&box, &o);
        }
    }
}
END_TEST

int main(void) {
    Suite *s = suite_create("answers");
    TCase *t = tcase_create("answers");
    tcase_add_unchecked_fixture(t, setup_model, teardown_model);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, one_message_an_event);
    tcase_add_test(t, tenants_are_shown_to_every_gateway);
    tcase_add_test(t, an_account_that_is_given_away_starts_over);
    tcase_add_test(t, a_large_answer_is_cut);
    tcase_add_test(t, nothing_for_a_session_that_is_down);
    tcase_add_test(t, no_memory_cuts_the_session);
    tcase_add_test(t, status_rises);
    suite_add_tcase(s, t);
    return test_run(s);
}
