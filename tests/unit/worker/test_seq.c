/* A SUBMIT becomes a sequence, or is refused with a reason; records, scores, parameters; the table
 * of slots. */
#include "tests/unit/worker/worker_rig.h"
#include "worker/seq_store.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static struct rig_model rig;
static struct seq_limits limits;
static int32_t ids[] = {RIG_BYTE('a'), RIG_BYTE('b'), RIG_BYTE('c'), RIG_BYTE('d')};

static void setup(void) {
    rig_model_open(&rig);
    limits = (struct seq_limits){
        .vocab = rig.m.vocab, .n_vocab = TINY_VOCAB, .n_ctx = 64, .n_classes = 2};
}
static void teardown(void) {
    rig_model_close(&rig);
}

static struct msg_submit valid(void) {
    return rig_submit((struct sub_id){7, 1}, ids, 4, 10);
}

#define REFUSED(change)                                                                            \
    do {                                                                                           \
        struct msg_submit m = valid();                                                             \
        ck_assert_ptr_null(seq_validate(&m, &limits));                                             \
        change;                                                                                    \
        ck_assert_msg(seq_validate(&m, &limits) != NULL, "not refused: " #change);                 \
        struct seq *s_ = seq_create(&m, &limits);                                                  \
        ck_assert_ptr_nonnull(s_);                                                                 \
        ck_assert_ptr_nonnull(s_->refused);                                                        \
        seq_destroy(&s_);                                                                          \
    } while (0)

START_TEST(refused_by_counts) {
    REFUSED(m.cls = 2);
    REFUSED(m.adapter = 1);
    REFUSED(m.n_prompt = 0);
    REFUSED(m.n_prompt = 5);
    REFUSED(m.n_ids = m.n_prompt = 0);
    REFUSED(m.max_total = 3);
    REFUSED(m.from = 0);
    REFUSED(m.from = 5);
    static int32_t many[65];
    REFUSED((m.ids = many, m.n_ids = m.n_prompt = m.from = 65, m.max_total = 70));
}
END_TEST

START_TEST(refused_by_ids_and_lists) {
    int32_t bad[] = {RIG_BYTE('a'), TINY_VOCAB, 3, 3}, negative[] = {1, -1, 3, 3};
    struct msg_stop stop = {"x", 0}, stops[17];
    struct msg_bias bias = {TINY_VOCAB, 0}, nan_bias = {1, NAN};
    int32_t lots[MSG_STOP_IDS_MAX] = {0};
    memset(stops, 0, sizeof(stops));
    REFUSED(m.ids = bad);
    REFUSED(m.ids = negative);
    REFUSED((m.stop_ids = bad, m.n_stop_ids = 2));
    REFUSED((m.stops = &stop, m.n_stops = 1));
    REFUSED((m.stops = stops, m.n_stops = 17));
    REFUSED((m.bias = &bias, m.n_bias = 1));
    REFUSED((m.bias = &nan_bias, m.n_bias = 1));
    REFUSED(m.n_top = 21);
    REFUSED((m.stop_ids = lots, m.n_stop_ids = MSG_STOP_IDS_MAX, m.min_total = 6));
}
END_TEST

START_TEST(refused_by_sampling) {
    REFUSED(m.temperature = -0.1f);
    REFUSED(m.temperature = NAN);
    REFUSED(m.temperature = 2.5f);
    REFUSED(m.top_p = 0.0f);
    REFUSED(m.top_p = 1.1f);
    REFUSED(m.min_p = -0.5f);
    REFUSED(m.top_k = -1);
    REFUSED(m.repetition_penalty = 0.0f);
    REFUSED(m.repetition_penalty = INFINITY);
    REFUSED(m.presence_penalty = 2.5f);
    REFUSED(m.frequency_penalty = -2.5f);
}
END_TEST

START_TEST(clipped_to_the_context) {
    struct msg_submit m = valid();
    m.max_total = 1000;
    struct seq *s = seq_create(&m, &limits);
    ck_assert_uint_eq(s->rules.max_total, 64);
    ck_assert_uint_lt(s->bytes, seq_bytes_max(&limits));
    seq_destroy(&s);
    ck_assert_ptr_null(s);
    seq_destroy(&s);
}
END_TEST

START_TEST(parameters) {
    struct msg_submit m = valid();
    struct msg_bias bias = {5, -2.0f};
    int32_t stop_id = RIG_BYTE('z');
    m.temperature = 0.7f;
    m.top_k = 3;
    m.seed = 99;
    m.bias = &bias;
    m.n_bias = 1;
    m.min_total = 6;
    m.stop_ids = &stop_id;
    m.n_stop_ids = 1;
    struct seq *s = seq_create(&m, &limits);
    struct sample_params p;
    seq_params(s, 4, &p);
    ck_assert_uint_eq(p.position, 4);
    ck_assert_uint_eq(p.seed, 99);
    ck_assert_int_eq(p.bias[0].id, 5);
    ck_assert_ptr_null(p.history);
    ck_assert_uint_eq(p.n_banned, stopper_banned(rig.m.vocab, &s->rules, NULL, 0));
    ck_assert_int_eq(p.banned[p.n_banned - 1], stop_id);
    seq_params(s, 6, &p);
    ck_assert_uint_eq(p.n_banned, 0);
    seq_destroy(&s);
    m.frequency_penalty = 0.5f;
    s = seq_create(&m, &limits);
    seq_params(s, 4, &p);
    ck_assert_ptr_eq(p.history, s->ids);
    ck_assert_uint_eq(p.n_history, 4);
    ck_assert_uint_eq(p.n_prompt, 4);
    seq_destroy(&s);
}
END_TEST

START_TEST(records_and_scores) {
    struct msg_submit m = valid();
    m.logprobs = true;
    m.n_top = 2;
    m.from = 1;
    struct seq *s = seq_create(&m, &limits);
    struct sample_result r = {
        .id = ids[2], .logprob = -1.5f, .n_top = 3, .top = {{4, -1.0f}, {5, -2.0f}, {6, -3.0f}}};
    seq_score(s, 2, &r);
    r = (struct sample_result){.id = 40, .logprob = -0.5f, .n_top = 1, .top = {{40, -0.5f}}};
    ck_assert_int_eq(seq_push(s, rig.m.vocab, 4, &r), FINISH_NONE);
    struct msg_record rec;
    struct msg_top top[SAMPLE_TOP_MAX];
    seq_record(s, 2, &rec, top);
    ck_assert_int_eq(rec.id, ids[2]);
    ck_assert(rec.logprob == -1.5f);
    ck_assert_uint_eq(rec.n_top, 2); /* no more than asked for */
    ck_assert_int_eq(rec.top[1].id, 5);
    seq_record(s, 4, &rec, top);
    ck_assert_int_eq(rec.id, 40);
    ck_assert_uint_eq(rec.n_top, 1);
    seq_record(s, 0, &rec, top); /* before the first index wanted: the id alone */
    ck_assert_int_eq(rec.id, ids[0]);
    ck_assert_uint_eq(rec.n_top, 0);
    seq_destroy(&s);
}
END_TEST

START_TEST(an_id_taken_back) {
    struct msg_stop stop = {"zz", 2};
    struct msg_submit m = valid();
    m.stops = &stop;
    m.n_stops = 1;
    struct seq *s = seq_create(&m, &limits);
    struct sample_result z = {.id = RIG_BYTE('z')};
    ck_assert_int_eq(seq_push(s, rig.m.vocab, 4, &z), FINISH_NONE);
    ck_assert_int_eq(seq_push(s, rig.m.vocab, 4, &z), FINISH_NONE); /* made again: one z, not two */
    ck_assert_uint_eq(s->n_ids, 5);
    ck_assert_int_eq(seq_push(s, rig.m.vocab, 5, &z), FINISH_STOP_STRING);
    ck_assert_uint_eq(s->stop.visible, 0);
    seq_destroy(&s);
}
END_TEST

START_TEST(resume_replays_the_stop_state) {
    struct msg_stop stop = {"dz", 2};
    struct msg_submit m = valid();
    m.n_prompt = 3; /* "abc", then the output "d" */
    m.stops = &stop;
    m.n_stops = 1;
    struct seq *s = seq_create(&m, &limits);
    struct sample_result z = {.id = RIG_BYTE('z')};
    ck_assert_int_eq(seq_push(s, rig.m.vocab, 4, &z), FINISH_STOP_STRING);
    ck_assert_uint_eq(s->stop.visible, 0);
    seq_destroy(&s);
    m.n_prompt = 4; /* the same bytes as prompt never count */
    s = seq_create(&m, &limits);
    ck_assert_int_eq(seq_push(s, rig.m.vocab, 4, &z), FINISH_NONE);
    seq_destroy(&s);
}
END_TEST

START_TEST(no_memory) {
    struct msg_stop stop = {"dz", 2};
    struct msg_submit m = valid();
    m.stops = &stop;
    m.n_stops = 1;
    size_t before = mem_used();
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_nth(n);
        ck_assert_ptr_null(seq_create(&m, &limits));
        ck_assert_uint_eq(mem_used(), before);
    }
    mem_fail_nth(0);
}
END_TEST

START_TEST(store) {
    struct seq_store st;
    struct msg_submit m = valid();
    size_t before = mem_used();
    ck_assert_int_eq(seq_store_init(&st, 2), 0);
    struct seq *a = seq_create(&m, &limits), *b = seq_create(&m, &limits),
               *c = seq_create(&m, &limits);
    struct seq *was_a = a;
    ck_assert_uint_eq(seq_store_put(&st, &a), 0);
    ck_assert_ptr_null(a);
    ck_assert_uint_eq(seq_store_put(&st, &b), 1);
    ck_assert_uint_eq(seq_store_put(&st, &c), WORKER_SLOT_NONE);
    ck_assert_ptr_null(c);
    ck_assert_ptr_eq(seq_store_get(&st, 0), was_a);
    seq_store_free(&st, 0);
    a = seq_create(&m, &limits);
    ck_assert_uint_eq(seq_store_put(&st, &a), 0);
    seq_store_deinit(&st);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

static struct hash128 root_of(const char *tenant, uint32_t from) {
    struct msg_submit m = valid();
    snprintf(m.tenant, sizeof(m.tenant), "%s", tenant);
    m.from = from;
    struct seq *s = seq_create(&m, &limits);
    ck_assert_ptr_nonnull(s);
    ck_assert_ptr_null(s->refused);
    struct hash128 root = s->root;
    seq_destroy(&s);
    return root;
}

static bool is_zero(struct hash128 h) {
    return (h.lo | h.hi) == 0;
}

/* Blocks are shared inside a tenant and never across; who wants rows of the prompt takes none. */
START_TEST(roots_are_the_tenants) {
    limits.prefix_cache = true;
    limits.cache_key = 5;
    struct hash128 a = root_of("a", 4), b = root_of("b", 4);
    ck_assert(!is_zero(a) && !is_zero(b) && !hash128_equal(a, b));
    ck_assert(hash128_equal(a, root_of("a", 4)));
    ck_assert(is_zero(root_of("a", 3)));
    limits.cache_key = 6;
    ck_assert(!hash128_equal(a, root_of("a", 4)));
    limits.prefix_cache = false;
    ck_assert(is_zero(root_of("a", 4)));
}
END_TEST

static struct hash128 root_salted(const char *tenant, const char *salt) {
    struct msg_submit m = valid();
    snprintf(m.tenant, sizeof(m.tenant), "%s", tenant);
    m.cache_salt = salt;
    m.n_cache_salt = (uint32_t)strlen(salt);
    struct seq *s = seq_create(&m, &limits);
    ck_assert_ptr_nonnull(s);
    struct hash128 root = s->root;
    seq_destroy(&s);
    return root;
}

/* B20: no tenant and salt can be written so that they are another tenant's, with or without a salt. */
START_TEST(b20_parts_of_a_root_cannot_imitate_each_other) {
    static const char *const pairs[][2] = {{"a|b", "c"}, {"a", "b|c"},   {"ab", "c"}, {"a", "bc"}, {"abc", ""},
                                           {"", "abc"},  {"a", ""},      {"b", "a"},  {"b", ""},   {"a", "a"},
                                           {"a", "t"},   {"a", "s\1"},   {"as", "c"}, {"a", "sc"}, {"", ""},
                                           {"", "t"},    {"", "a|b"},    {"t", ""}};
    struct hash128 roots[18];
    limits.prefix_cache = true;
    limits.cache_key = 5;
    for (int i = 0; i < 18; i++) {
        roots[i] = root_salted(pairs[i][0], pairs[i][1]);
        ck_assert(!is_zero(roots[i]));
        ck_assert(hash128_equal(roots[i], root_salted(pairs[i][0], pairs[i][1])));
        for (int k = 0; k < i; k++)
            ck_assert_msg(!hash128_equal(roots[i], roots[k]), "%s+%s is %s+%s", pairs[i][0], pairs[i][1],
                          pairs[k][0], pairs[k][1]);
    }
    limits.prefix_cache = false;
}
END_TEST

START_TEST(longest_salt) {
    char salt[MSG_SALT_MAX + 2];
    memset(salt, 's', sizeof(salt));
    salt[MSG_SALT_MAX] = '\0';
    limits.prefix_cache = true;
    struct hash128 a = root_salted("x", salt);
    salt[MSG_SALT_MAX - 1] = 't';
    ck_assert(!hash128_equal(a, root_salted("x", salt)));
    limits.prefix_cache = false;
    REFUSED((m.cache_salt = salt, m.n_cache_salt = MSG_SALT_MAX + 1));
}
END_TEST

static uint32_t put_of(struct seq_store *st, const char *tenant, uint32_t *slot) {
    struct msg_submit m = valid();
    snprintf(m.tenant, sizeof(m.tenant), "%s", tenant);
    struct seq *s = seq_create(&m, &limits);
    ck_assert_ptr_nonnull(s);
    *slot = seq_store_put(st, &s);
    return seq_store_get(st, *slot)->account;
}

/* One account a tenant while it has sequences here; of too many tenants the last share account 0. */
START_TEST(accounts_follow_tenants) {
    static struct seq_store st;
    uint32_t slot, first, kept;
    char name[16];
    ck_assert_int_eq(seq_store_init(&st, SEQ_ACCOUNTS + 8), 0);
    uint32_t a = put_of(&st, "a", &first);
    ck_assert_uint_ne(a, 0);
    ck_assert_uint_eq(put_of(&st, "a", &kept), a);
    ck_assert_uint_ne(put_of(&st, "b", &slot), a);
    seq_store_free(&st, first);
    ck_assert_uint_eq(put_of(&st, "a", &slot), a); /* one was left */
    for (uint32_t i = 0; i < SEQ_ACCOUNTS - 3; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        ck_assert_uint_ne(put_of(&st, name, &slot), 0);
    }
    ck_assert_uint_eq(put_of(&st, "one too many", &slot), 0);
    seq_store_free(&st, slot - 1); /* the last tenant that got one of its own */
    ck_assert_uint_ne(put_of(&st, "next", &slot), 0);
    seq_store_deinit(&st);
}
END_TEST

int main(void) {
    Suite *s = suite_create("seq");
    TCase *t = tcase_create("seq");
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_test(t, refused_by_counts);
    tcase_add_test(t, refused_by_ids_and_lists);
    tcase_add_test(t, refused_by_sampling);
    tcase_add_test(t, clipped_to_the_context);
    tcase_add_test(t, parameters);
    tcase_add_test(t, records_and_scores);
    tcase_add_test(t, an_id_taken_back);
    tcase_add_test(t, resume_replays_the_stop_state);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, store);
    tcase_add_test(t, roots_are_the_tenants);
    tcase_add_test(t, b20_parts_of_a_root_cannot_imitate_each_other);
    tcase_add_test(t, longest_salt);
    tcase_add_test(t, accounts_follow_tenants);
    suite_add_tcase(s, t);
    return test_run(s);
}
