/* docs/PROTOCOL.md against the code: message table, number of fields of each message, limits. */
#include "proto/rpc.h"
#include "proto/scan.h"
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"
#include "tests/unit/proto/msg_gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *doc;

/* Rows of the table behind `heading` (its two head lines not counted), up to the first line without a bar. */
static unsigned rows_behind(const char *heading)
{
    const char *at = strstr(doc, heading);
    ck_assert_msg(at != NULL, "no \"%s\"", heading);
    at = strstr(at, "\n|");
    ck_assert_ptr_nonnull(at);
    unsigned lines = 0;
    for (at++; *at == '|'; lines++) {
        at = strchr(at, '\n');
        ck_assert_ptr_nonnull(at);
        at++;
    }
    ck_assert_uint_ge(lines, 3);
    return lines - 2;
}

START_TEST(the_message_table_is_the_list)
{
#define ROW(name, number, dir, text)                                                               \
    ck_assert_msg(strstr(doc, "\n| " #number " | " #name " | " dir " | " text " |\n") != NULL,     \
                  "row of " #name " differs");
    MSG_LIST(ROW)
#undef ROW
    ck_assert_uint_eq(rows_behind("## 2. The link's messages"), msg_gen_n_kinds);
}
END_TEST

/* Fields of the array at `path` steps into the encoding of a message (first elements of `into` arrays). */
static uint32_t fields_of(const struct buf *b)
{
    const uint8_t *p = (const uint8_t *)b->p;
    struct scan_token t;
    ck_assert_ptr_null(scan_next(&p, p + b->len, &t));
    ck_assert_int_eq(t.kind, SCAN_ARRAY);
    return t.n;
}

static uint32_t fields_sent(enum msg_kind kind)
{
    struct msg m;
    struct buf b = {0};
    msg_gen(&m, kind, 1);
    msg_encode(&b, &m);
    uint32_t n = fields_of(&b) - 1; /* the kind itself */
    msg_deinit(&m);
    buf_deinit(&b);
    return n;
}

START_TEST(each_field_table_has_the_fields_sent)
{
    static const struct { const char *heading; enum msg_kind kind; } tables[] = {
        {"### Fields of HELLO\n", MSG_HELLO},   {"### Fields of HELLO_REPLY\n", MSG_HELLO_REPLY},
        {"### Fields of SYNC\n", MSG_SYNC},     {"### Fields of STATUS\n", MSG_STATUS},
        {"### Fields of SUBMIT\n", MSG_SUBMIT}, {"### Fields of TOKENS\n", MSG_TOKENS},
        {"### Fields of CANCEL, GAP, ACK\n", MSG_CANCEL}, {"### Fields of CANCEL, GAP, ACK\n", MSG_GAP},
        {"### Fields of CANCEL, GAP, ACK\n", MSG_ACK},
    };
    for (unsigned i = 0; i < sizeof tables / sizeof tables[0]; i++)
        ck_assert_msg(rows_behind(tables[i].heading) == fields_sent(tables[i].kind),
                      "%s: %u rows, %u fields", tables[i].heading, rows_behind(tables[i].heading),
                      fields_sent(tables[i].kind));
    ck_assert_uint_eq(fields_sent(MSG_PING) + fields_sent(MSG_DRAIN) + fields_sent(MSG_BYE), 0);
}
END_TEST

/* The two nested arrays: sampling is the last field of SUBMIT, a TOKENS entry the first of its list. */
START_TEST(the_nested_tables_too)
{
    struct msg_record r = {.id = 1};
    struct msg_tokens_entry entry = {.n = 1, .records = &r};
    struct msg m = {.kind = MSG_TOKENS, .u.tokens = {.entries = &entry, .n = 1}};
    struct buf b = {0};
    struct scan_token t;
    msg_encode(&b, &m);
    const uint8_t *p = (const uint8_t *)b.p, *end = p + b.len;
    for (unsigned i = 0; i < 4; i++) /* message, kind, list, entry */
        ck_assert_ptr_null(scan_next(&p, end, &t));
    ck_assert_int_eq(t.kind, SCAN_ARRAY);
    ck_assert_uint_eq(rows_behind("An entry (extensible):"), t.n);
    buf_clear(&b);
    int32_t ids[1] = {1};
    m = (struct msg){.kind = MSG_SUBMIT, .u.submit = {.ids = ids, .n_ids = 1, .n_prompt = 1, .from = 1,
                     .max_total = 2, .repetition_penalty = 1}};
    msg_encode(&b, &m);
    p = (const uint8_t *)b.p;
    end = p + b.len;
    for (unsigned i = 0; i < 1 + 17 + 1; i++) /* message, 16 values and one list of one, then sampling */
        ck_assert_ptr_null(scan_next(&p, end, &t));
    ck_assert_int_eq(t.kind, SCAN_ARRAY);
    ck_assert_uint_eq(rows_behind("\nSampling:"), t.n);
    buf_deinit(&b);
}
END_TEST

START_TEST(the_limits_are_the_numbers)
{
#define LIMIT(name) {#name, (unsigned long long)(name)}
    static const struct { const char *name; unsigned long long value; } limits[] = {
        LIMIT(MSG_BYTES_MAX), LIMIT(MSG_NODES_MAX), LIMIT(MSG_DEPTH_MAX), LIMIT(MSG_NAME_MAX),
        LIMIT(MSG_IDS_MAX), LIMIT(MSG_ENTRIES_MAX), LIMIT(MSG_VOCAB_MAX), LIMIT(MSG_BLOCKS_MAX),
        LIMIT(MSG_STOPS_MAX), LIMIT(MSG_STOP_BYTES_MAX), LIMIT(MSG_STOP_IDS_MAX),
        LIMIT(MSG_BIAS_MAX), LIMIT(MSG_TOP_MAX), LIMIT(MSG_SALT_MAX), LIMIT(MSG_COST_MAX), LIMIT(VALUE_DEPTH_MAX),
        LIMIT(VALUE_NODES_MAX), LIMIT(RPC_BYTES_MAX), LIMIT(RPC_PATH_MAX), LIMIT(RPC_CLASS_MAX),
        LIMIT(RPC_KEY_MAX),
        LIMIT(TRANSPORT_PEERS_MAX),
    };
    unsigned n = sizeof limits / sizeof limits[0];
    for (unsigned i = 0; i < n; i++) {
        char row[128];
        snprintf(row, sizeof row, "\n| `%s` | %llu |", limits[i].name, limits[i].value);
        ck_assert_msg(strstr(doc, row) != NULL, "%s is not %llu there", limits[i].name,
                      limits[i].value);
    }
    ck_assert_uint_eq(rows_behind("### Limits"), n);
    ck_assert_ptr_nonnull(strstr(doc, "This build speaks 1 to 1."));
    ck_assert(PROTO_VERSION_MIN == 1 && PROTO_VERSION_MAX == 1);
}
END_TEST

START_TEST(every_finish_is_named)
{
    for (int f = FINISH_EOS; f < FINISH_COUNT; f++) {
        char word[64];
        snprintf(word, sizeof word, "`%s`", finish_text((enum finish)f));
        ck_assert_msg(strstr(doc, word) != NULL, "%s", word);
    }
}
END_TEST

int main(void)
{
    char path[TEST_PATH_MAX + 32];
    size_t n;
    snprintf(path, sizeof path, "%s/docs/PROTOCOL.md", test_source_dir());
    doc = test_read_file(path, &n);
    if (doc == NULL) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    Suite *s = suite_create("protocol_doc");
    TCase *tc = tcase_create("protocol_doc");
    tcase_add_test(tc, the_message_table_is_the_list);
    tcase_add_test(tc, each_field_table_has_the_fields_sent);
    tcase_add_test(tc, the_nested_tables_too);
    tcase_add_test(tc, the_limits_are_the_numbers);
    tcase_add_test(tc, every_finish_is_named);
    suite_add_tcase(s, tc);
    int rc = test_run(s);
    free(doc);
    return rc;
}
