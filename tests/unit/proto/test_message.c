/* The codec of the worker link: round trips, every cut, every changed byte, every bound. */
#include "tests/unit/proto/msg_gen.h"

#include "base/mem.h"
#include "tests/common/test_run.h"

#include <math.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 200

static void encode(struct buf *b, const struct msg *m)
{
    *b = (struct buf){0};
    msg_encode(b, m);
    ck_assert(!b->bad);
}

static void round_trip(enum msg_kind kind, uint64_t seed)
{
    struct msg m, back;
    struct buf a, b;
    struct err e;
    msg_gen(&m, kind, seed);
    encode(&a, &m);
    ck_assert_msg(msg_decode(&back, a.p, a.len, &e) == 0, "%s seed %llu: %s", msg_name(kind),
                  (unsigned long long)seed, e.msg);
    const char *d = msg_gen_differ(&m, &back);
    ck_assert_msg(d == NULL, "%s seed %llu: %s differs", msg_name(kind), (unsigned long long)seed,
                  d ? d : "");
    encode(&b, &back);
    ck_assert_uint_eq(a.len, b.len);
    ck_assert_mem_eq(a.p, b.p, a.len);
    buf_deinit(&a);
    buf_deinit(&b);
    msg_deinit(&back);
    msg_deinit(&m);
}

START_TEST(every_message_survives_the_round_trip)
{
    size_t before = mem_used();
    for (unsigned k = 0; k < msg_gen_n_kinds; k++)
        for (uint64_t seed = 0; seed < SEEDS; seed++)
            round_trip(msg_gen_kinds[k], seed);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

/* An outside reader agrees on the bytes: msgpack-c's own unpacker. */
START_TEST(msgpack_c_reads_what_we_write)
{
    for (unsigned k = 0; k < msg_gen_n_kinds; k++) {
        struct msg m;
        struct buf b;
        msg_gen(&m, msg_gen_kinds[k], 7);
        encode(&b, &m);
        msgpack_unpacked u;
        msgpack_unpacked_init(&u);
        size_t at = 0;
        ck_assert_int_eq(msgpack_unpack_next(&u, b.p, b.len, &at), MSGPACK_UNPACK_SUCCESS);
        ck_assert_uint_eq(at, b.len);
        ck_assert_int_eq(u.data.type, MSGPACK_OBJECT_ARRAY);
        ck_assert_uint_eq(u.data.via.array.ptr[0].via.u64, (uint64_t)m.kind);
        msgpack_unpacked_destroy(&u);
        buf_deinit(&b);
        msg_deinit(&m);
    }
}
END_TEST

/* Bytes in a block of exactly their size, so that a sanitizer sees one read too far. */
static int decode_copy(const char *p, size_t n)
{
    struct msg m;
    struct err e = {0};
    char *q = malloc(n ? n : 1);
    memcpy(q, p, n);
    int rc = msg_decode(&m, q, n, &e);
    free(q);
    if (rc == 0)
        msg_deinit(&m);
    else
        ck_assert(e.code == ERR_PROTOCOL && e.msg[0]);
    return rc;
}

START_TEST(a_cut_at_every_byte_is_refused)
{
    size_t before = mem_used();
    for (unsigned k = 0; k < msg_gen_n_kinds; k++) {
        struct msg m;
        struct buf b;
        msg_gen(&m, msg_gen_kinds[k], 3);
        encode(&b, &m);
        for (size_t n = 0; n < b.len; n++)
            ck_assert_int_eq(decode_copy(b.p, n), -1);
        ck_assert_int_eq(decode_copy(b.p, b.len), 0);
        buf_addc(&b, '\0');
        ck_assert_int_eq(decode_copy(b.p, b.len), -1);
        buf_deinit(&b);
        msg_deinit(&m);
    }
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

START_TEST(any_changed_byte_is_refused_or_read_whole)
{
    static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
                                           0xc0, 0xc1, 0xc4, 0xc6, 0xc7, 0xca, 0xcb, 0xcf, 0xd3,
                                           0xd4, 0xd9, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xff};
    size_t before = mem_used();
    for (unsigned k = 0; k < msg_gen_n_kinds; k++) {
        struct msg m;
        struct buf b;
        msg_gen(&m, msg_gen_kinds[k], 11);
        encode(&b, &m);
        for (size_t at = 0; at < b.len; at++) {
            char was = b.p[at];
            for (unsigned v = 0; v < sizeof values; v++) {
                b.p[at] = (char)values[v];
                (void)decode_copy(b.p, b.len);
            }
            b.p[at] = was;
        }
        buf_deinit(&b);
        msg_deinit(&m);
    }
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

/* A later minor version may add fields at the end of a message, and ours must read past them. */
/* A gateway of before quotas sends 17 elements; a worker of before the cache 16 in STATUS. */
START_TEST(fields_added_later_may_be_missing)
{
    struct msg m = {.kind = MSG_SUBMIT}, back;
    struct buf b = {0};
    int32_t id = 5;
    m.u.submit = (struct msg_submit){.ids = &id, .n_ids = 1, .n_prompt = 1, .from = 1,
                                     .max_total = 2, .top_p = 1, .repetition_penalty = 1};
    msg_encode(&b, &m);
    ck_assert_uint_eq((unsigned char)b.p[0], 0xdc);
    ck_assert_uint_eq(b.p[2], 19);
    for (char n = 18; n >= 17; n--) { /* without the salt (2 bytes), and without the quota too */
        b.p[2] = n;
        ck_assert_int_eq(msg_decode(&back, b.p, b.len - (n == 18 ? 2 : 3), NULL), 0);
        ck_assert_uint_eq(back.u.submit.kv_quota, 0);
        ck_assert_uint_eq(back.u.submit.n_cache_salt, 0);
        msg_deinit(&back);
    }
    buf_clear(&b);
    m = (struct msg){.kind = MSG_STATUS, .u.status = {.draining = true}};
    msg_encode(&b, &m);
    ck_assert_uint_eq(b.p[2], 18);
    for (char n = 17; n >= 16; n--) { /* without the tags (1 byte), and without the cache's figures too */
        b.p[2] = n;
        ck_assert_int_eq(msg_decode(&back, b.p, b.len - (n == 17 ? 1 : 12), NULL), 0);
        ck_assert(back.u.status.draining);
        msg_deinit(&back);
    }
    buf_clear(&b);
    m = (struct msg){.kind = MSG_TOKENS, .u.tokens = {.tenants_all = true}};
    msg_encode(&b, &m);
    ck_assert_uint_eq((unsigned char)b.p[0], 0x95);
    b.p[0] = (char)0x93; /* an older worker shows no tenants */
    ck_assert_int_eq(msg_decode(&back, b.p, b.len - 2, NULL), 0);
    ck_assert_uint_eq(back.u.tokens.n_tenants, 0);
    ck_assert(!back.u.tokens.tenants_all);
    msg_deinit(&back);
    buf_deinit(&b);
}
END_TEST

START_TEST(trailing_fields_are_skipped)
{
    static const unsigned char ping[] = {0x93, MSG_PING, 0x82, 0xa1, 'a', 0x92, 1, 2, 0xa1, 'b',
                                         0xc4, 2, 9, 9, 0xc0};
    struct msg m;
    struct err e;
    ck_assert_int_eq(msg_decode(&m, ping, sizeof ping, &e), 0);
    ck_assert_int_eq(m.kind, MSG_PING);
    msg_deinit(&m);

    struct buf b;
    msg_gen(&m, MSG_GAP, 5);
    encode(&b, &m);
    b.p[0] = (char)0x95; /* was 0x94: one field more */
    buf_add(&b, "\x91\x01", 2);
    struct msg back;
    ck_assert_int_eq(msg_decode(&back, b.p, b.len, &e), 0);
    ck_assert_ptr_null(msg_gen_differ(&m, &back));
    msg_deinit(&back);
    b.p[0] = (char)0x93; /* and one too few */
    ck_assert_int_eq(msg_decode(&back, b.p, b.len - 2, &e), -1);
    buf_deinit(&b);
    msg_deinit(&m);
}
END_TEST

/* A good SUBMIT to break one field of. */
static int32_t some_ids[4] = {1, 2, 3, 4};
static struct msg good_submit(void)
{
    struct msg m = {.kind = MSG_SUBMIT};
    struct msg_submit *s = &m.u.submit;
    s->ids = some_ids;
    s->n_ids = 4;
    s->n_prompt = 2;
    s->from = 4;
    s->max_total = 9;
    s->top_p = 1;
    s->repetition_penalty = 1;
    return m;
}

#define BREAK(field, value)                                                                        \
    do {                                                                                           \
        struct msg m_ = good_submit();                                                             \
        struct err e_ = {0};                                                                       \
        ck_assert_int_eq(msg_check(&m_, &e_), 0);                                                  \
        m_.u.submit.field = (value);                                                               \
        ck_assert_msg(msg_check(&m_, &e_) == -1, "%s = %s is taken", #field, #value);              \
        ck_assert_int_eq(e_.code, ERR_PROTOCOL);                                                   \
    } while (0)

START_TEST(every_bound_of_submit_holds)
{
    struct msg_stop stops[MSG_STOPS_MAX + 1] = {{0}};
    BREAK(cls, CLASSES_MAX);
    BREAK(rank, 2);
    BREAK(n_ids, 0);
    BREAK(n_ids, MSG_IDS_MAX + 1);
    BREAK(n_prompt, 0);
    BREAK(n_prompt, 5);
    BREAK(from, 0);
    BREAK(from, 5);
    BREAK(max_total, 3);
    BREAK(max_total, MSG_IDS_MAX + 1);
    BREAK(min_total, 10);
    BREAK(deadline_in_ns, MSG_DURATION_MAX + 1);
    BREAK(temperature, -0.1f);
    BREAK(temperature, NAN);
    BREAK(temperature, INFINITY);
    BREAK(top_p, NAN);
    BREAK(top_p, 1.5f);
    BREAK(min_p, NAN);
    BREAK(min_p, -1);
    BREAK(repetition_penalty, 0);
    BREAK(repetition_penalty, NAN);
    BREAK(presence_penalty, -INFINITY);
    BREAK(frequency_penalty, NAN);
    BREAK(top_k, -2);
    BREAK(n_top, MSG_TOP_MAX + 1);
    BREAK(n_stop_ids, MSG_STOP_IDS_MAX + 1);
    BREAK(n_bias, MSG_BIAS_MAX + 1);
    BREAK(tenant[0], '\n');
    BREAK(tenant[0], (char)0xff);
    struct msg m = good_submit();
    m.u.submit.stops = stops;
    m.u.submit.n_stops = 1; /* of no bytes: it would match everywhere */
    ck_assert_int_eq(msg_check(&m, NULL), -1);
    stops[0] = (struct msg_stop){"x", MSG_STOP_BYTES_MAX + 1};
    ck_assert_int_eq(msg_check(&m, NULL), -1);
    int32_t bad_ids[1] = {-1};
    m = good_submit();
    m.u.submit.stop_ids = bad_ids;
    m.u.submit.n_stop_ids = 1;
    ck_assert_int_eq(msg_check(&m, NULL), -1);
}
END_TEST

START_TEST(bounds_of_the_other_messages_hold)
{
    struct msg m;
    msg_gen(&m, MSG_HELLO, 1);
    struct msg_hello *h = &m.u.hello;
    uint32_t *const at_least_one[] = {&h->version_min, &h->n_ctx,    &h->n_vocab, &h->block_tokens,
                                      &h->n_blocks,    &h->max_seqs, &h->max_slots};
    for (unsigned i = 0; i < sizeof at_least_one / sizeof at_least_one[0]; i++) {
        uint32_t was = *at_least_one[i];
        *at_least_one[i] = 0;
        ck_assert_int_eq(msg_check(&m, NULL), -1);
        *at_least_one[i] = was;
    }
    h->name[0] = '\0';
    ck_assert_int_eq(msg_check(&m, NULL), -1);
    memset(h->name, 'a', sizeof h->name); /* no NUL */
    ck_assert_int_eq(msg_check(&m, NULL), -1);
    msg_deinit(&m);

    struct msg_tokens_entry entry = {.index = UINT32_MAX, .n = 0};
    m = (struct msg){.kind = MSG_TOKENS, .u.tokens = {.entries = &entry, .n = 1}};
    ck_assert_int_eq(msg_check(&m, NULL), -1); /* index + n is summed in 64 bits */
    entry.index = 0;
    ck_assert_int_eq(msg_check(&m, NULL), 0);

    m = (struct msg){.kind = MSG_STATUS, .u.status = {.blocks_total = 1, .blocks_free = 2}};
    ck_assert_int_eq(msg_check(&m, NULL), -1);
    m = (struct msg){.kind = MSG_STATUS, .u.status = {.n_cost = 1, .cost = {NAN}}};
    ck_assert_int_eq(msg_check(&m, NULL), -1);
    m = (struct msg){.kind = (enum msg_kind)99};
    ck_assert_int_eq(msg_check(&m, NULL), -1);
}
END_TEST

START_TEST(a_logprob_that_is_no_number_is_clamped_not_sent)
{
    struct msg_record r[3] = {{.id = 1, .logprob = NAN}, {.id = 2, .logprob = -INFINITY},
                              {.id = 3, .logprob = INFINITY}};
    struct msg_tokens_entry entry = {.index = 5, .n = 3, .records = r, .logprobs = true};
    struct msg m = {.kind = MSG_TOKENS, .u.tokens = {.entries = &entry, .n = 1}}, back;
    struct buf b;
    struct err e;
    encode(&b, &m);
    ck_assert_int_eq(msg_decode(&back, b.p, b.len, &e), 0);
    const struct msg_record *got = back.u.tokens.entries[0].records;
    ck_assert(got[0].logprob == MSG_LOGPROB_MIN && got[1].logprob == MSG_LOGPROB_MIN);
    ck_assert(got[2].logprob == MSG_LOGPROB_MAX);
    msg_deinit(&back);
    buf_deinit(&b);
}
END_TEST

/* A step's TOKENS for 16 sequences is small, and reading it takes one allocation. */
START_TEST(tokens_without_logprobs_are_a_flat_list_of_ids)
{
    struct msg_record r = {.id = 100};
    struct msg_tokens_entry entries[16];
    for (unsigned i = 0; i < 16; i++)
        entries[i] = (struct msg_tokens_entry){.sub = {1ull << 63, i}, .index = 500, .n = 1,
                                               .records = &r};
    struct msg m = {.kind = MSG_TOKENS, .u.tokens = {.entries = entries, .n = 16}}, back;
    struct buf b;
    encode(&b, &m);
    ck_assert_uint_le(b.len, 16 * 32);
    uint64_t calls = mem_calls();
    ck_assert_int_eq(msg_decode(&back, b.p, b.len, NULL), 0);
    ck_assert_uint_eq(mem_calls() - calls, 1);
    msg_deinit(&back);
    buf_deinit(&b);
}
END_TEST

START_TEST(no_memory_is_told_and_leaves_nothing)
{
    struct msg m, back;
    struct buf b;
    struct err e;
    msg_gen(&m, MSG_SUBMIT, 2);
    encode(&b, &m);
    size_t before = mem_used();
    mem_fail_nth(1);
    ck_assert_int_eq(msg_decode(&back, b.p, b.len, &e), -1);
    ck_assert_int_eq(e.code, ERR_NO_MEMORY);
    ck_assert_uint_eq(mem_used(), before);
    mem_fail_nth(0);
    buf_deinit(&b);
    msg_deinit(&m);
}
END_TEST

START_TEST(names_and_numbers_are_the_lists)
{
    ck_assert_str_eq(msg_name(MSG_HELLO), "HELLO");
    ck_assert_str_eq(msg_name(MSG_BYE), "BYE");
    ck_assert_str_eq(msg_name((enum msg_kind)0), "?");
    ck_assert_int_eq(MSG_TOKENS, 7);
}
END_TEST

int main(void)
{
    printf("seeds 0 to %d\n", SEEDS - 1);
    Suite *s = suite_create("message");
    TCase *tc = tcase_create("message");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, every_message_survives_the_round_trip);
    tcase_add_test(tc, msgpack_c_reads_what_we_write);
    tcase_add_test(tc, a_cut_at_every_byte_is_refused);
    tcase_add_test(tc, any_changed_byte_is_refused_or_read_whole);
    tcase_add_test(tc, fields_added_later_may_be_missing);
    tcase_add_test(tc, trailing_fields_are_skipped);
    tcase_add_test(tc, every_bound_of_submit_holds);
    tcase_add_test(tc, bounds_of_the_other_messages_hold);
    tcase_add_test(tc, a_logprob_that_is_no_number_is_clamped_not_sent);
    tcase_add_test(tc, tokens_without_logprobs_are_a_flat_list_of_ids);
    tcase_add_test(tc, no_memory_is_told_and_leaves_nothing);
    tcase_add_test(tc, names_and_numbers_are_the_lists);
    suite_add_tcase(s, tc);
    return test_run(s);
}
