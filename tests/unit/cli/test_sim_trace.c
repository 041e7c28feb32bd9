/* Traces: what is read, what is refused and how it is said, what scaling does. */
#include "base/hash.h"
#include "cli/sim_trace.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD "arrival_ms,input_tokens,output_tokens,class,tenant,session,block_tokens,prefix_ids\n"

static struct class_table classes;

static int read_bytes(struct sim_trace *t, const char *text, size_t n, struct err *e)
{
    char path[] = "/tmp/sim_trace_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, text, n), (int)n);
    close(fd);
    struct sim_trace_options o = {.classes = &classes};
    class_table_default(&classes);
    int rc = sim_trace_read(t, path, &o, e);
    unlink(path);
    return rc;
}

static int read_text(struct sim_trace *t, const char *text, struct err *e)
{
    return read_bytes(t, text, strlen(text), e);
}

START_TEST(test_rows)
{
    struct sim_trace t;
    struct err e;
    ck_assert_int_eq(read_text(&t,
                               "# a comment\n" HEAD "0,5,2,realtime,a,,0,\n1500,40,3,batch,b,s,16,7 9-10\n"
                               "1500,1,1,,,,,",
                               &e),
                     0);
    ck_assert_uint_eq(t.n, 3);
    ck_assert_uint_eq(t.n_tenants, 3);
    ck_assert_str_eq(t.tenants[2], "-");
    ck_assert_uint_eq(t.rows[1].at_ns, 1500000000u);
    ck_assert_uint_eq(t.rows[1].n_prompt, 40);
    ck_assert_uint_eq(t.rows[1].cls, CLASS_BATCH);
    ck_assert_uint_eq(t.rows[1].n_ranges, 2);
    ck_assert_uint_eq(t.rows[2].cls, CLASS_REALTIME);
    ck_assert_uint_eq(sim_trace_longest(&t), 43);
    ck_assert(sim_trace_has_prefixes(&t));
    sim_trace_free(&t);
}
END_TEST

START_TEST(test_columns_in_any_order)
{
    struct sim_trace t;
    struct err e;
    ck_assert_int_eq(read_text(&t, "other,output_tokens,arrival_ms,input_tokens\r\nx,3,7.25,2\r\n", &e), 0);
    ck_assert_uint_eq(t.rows[0].n_prompt, 2);
    ck_assert_uint_eq(t.rows[0].n_out, 3);
    ck_assert_uint_eq(t.rows[0].at_ns, 7250000u);
    sim_trace_free(&t);
}
END_TEST

/* Each is refused with one sentence that names the line. */
START_TEST(test_hostile)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "no header"},
        {"# only\n", "no header"},
        {HEAD, "no requests"},
        {"input_tokens,output_tokens\n1,1\n", "no column arrival_ms"},
        {"arrival_ms,input_tokens,output_tokens,arrival_ms\n", "twice"},
        {HEAD "0,5\n", "line 2: 2 fields"},
        {HEAD "0,0,1,,,,0,\n", "line 2: input_tokens"},
        {HEAD "0,1,0,,,,0,\n", "line 2: output_tokens"},
        {HEAD "-1,1,1,,,,0,\n", "line 2: arrival_ms"},
        {HEAD "1.,1,1,,,,0,\n", "line 2: arrival_ms"},
        {HEAD ".5,1,1,,,,0,\n", "line 2: arrival_ms"},
        {HEAD "1.0000001,1,1,,,,0,\n", "line 2: arrival_ms"},
        {HEAD "1e3,1,1,,,,0,\n", "line 2: arrival_ms"},
        {HEAD "99999999999999999999,1,1,,,,0,\n", "line 2: arrival_ms"},
        {HEAD "0,18446744073709551617,1,,,,0,\n", "line 2: input_tokens"},
        {HEAD "0,1, 1,,,,0,\n", "line 2: output_tokens"},
        {HEAD "5,1,1,,,,0,\n4,1,1,,,,0,\n", "line 3: it came before"},
        {HEAD "0,1,1,royal,,,0,\n", "line 2: no such class"},
        {HEAD "0,1,1,,a\tb,,0,\n", "line 2: a control character"},
        {HEAD "0,9,1,,,,4,1-2\n", "line 2: prefix_ids"},
        {HEAD "0,9,1,,,,4,1-4\n", "line 2: prefix_ids"},
        {HEAD "0,9,1,,,,4,3-1\n", "line 2: no range"},
        {HEAD "0,9,1,,,,4,1 x 3\n", "line 2: no prefix id"},
        {HEAD "0,9,1,,,,4,1-18446744073709551615\n", "line 2: no range"},
        {HEAD "0,9,1,,,,4,\n", "line 2: prefix_ids"},
        {"a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,a,b,c,d,e,f,g\n", "more than 32 fields"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sim_trace t;
        struct err e;
        ck_assert_msg(read_text(&t, cases[i].text, &e) == -1, "case %zu was taken", i);
        ck_assert_msg(strstr(e.msg, cases[i].says) != NULL, "case %zu: %s", i, e.msg);
        ck_assert_ptr_null(t.rows);
    }
    struct sim_trace t;
    struct err e;
    ck_assert_int_eq(read_bytes(&t, HEAD "0,1,1,\0,,,0,\n", sizeof(HEAD "0,1,1,\0,,,0,\n") - 1, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "line 2: a NUL byte"));
    struct sim_trace_options o = {.classes = &classes};
    ck_assert_int_eq(sim_trace_read(&t, "/nonexistent/trace.csv", &o, &e), -1);
}
END_TEST

/* Bytes of a good file turned over at random: read, or refused; never anything else. */
START_TEST(test_mutations)
{
    static const char good[] = HEAD "0,5,2,realtime,a,,0,\n1500,40,3,batch,b,s,16,7 9-10\n";
    uint64_t seed = 0x51a1;
    printf("seed %llu\n", (unsigned long long)seed);
    for (uint64_t k = 0; k < 2000; k++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (uint32_t m = 0; m < 1 + k % 4; m++)
            text[rand_at(seed, 8 * k + 2 * m) % (sizeof good - 1)] =
                (char)rand_at(seed, 8 * k + 2 * m + 1);
        struct sim_trace t;
        struct err e;
        if (read_bytes(&t, text, sizeof good - 1, &e) == 0) {
            ck_assert_uint_ge(t.n, 1);
            sim_trace_free(&t);
        } else {
            ck_assert_ptr_null(t.rows);
        }
    }
}
END_TEST

START_TEST(test_scale)
{
    struct sim_trace t;
    struct err e;
    char text[sizeof HEAD + 100 * 40] = HEAD;
    for (int i = 0; i < 100; i++)
        (void)snprintf(text + strlen(text), 40, "%d,%d,2,,,,4,1-2\n", i * 100, 8);
    ck_assert_int_eq(read_text(&t, text, &e), 0);
    ck_assert_int_eq(sim_trace_scale(&t, 2.5, 7, &e), 0);
    ck_assert_uint_ge(t.n, 220);
    ck_assert_uint_le(t.n, 280);
    for (uint32_t i = 1; i < t.n; i++) ck_assert_uint_ge(t.rows[i].at_ns, t.rows[i - 1].at_ns);
    /* A copy's prefix is another's; of one copy they are the same. */
    int32_t a[8], b[8];
    uint32_t copy = 0;
    while (t.rows[copy].copy == 0) copy++;
    sim_trace_ids(&t, &t.rows[0], a);
    sim_trace_ids(&t, &t.rows[copy], b);
    ck_assert_int_eq(memcmp(a, b, sizeof a) == 0, t.rows[0].copy == t.rows[copy].copy);
    sim_trace_speed(&t, 2);
    ck_assert_uint_le(t.rows[t.n - 1].at_ns, 7500000000u);
    ck_assert_int_eq(sim_trace_scale(&t, 1e9, 1, &e), -1);
    sim_trace_free(&t);
}
END_TEST

/* Two prompts share exactly the leading blocks on which their lists agree. */
START_TEST(test_prefix_ids)
{
    struct sim_trace t;
    struct err e;
    ck_assert_int_eq(read_text(&t, HEAD "0,12,1,,,,4,1-3\n0,10,1,,,,4,1-2 9\n", &e), 0);
    int32_t a[12], b[10];
    sim_trace_ids(&t, &t.rows[0], a);
    sim_trace_ids(&t, &t.rows[1], b);
    ck_assert_mem_eq(a, b, 8 * sizeof *a);
    ck_assert_mem_ne(a + 8, b + 8, 2 * sizeof *a);
    sim_trace_free(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("sim_trace");
    TCase *c = tcase_create("all");
    tcase_add_test(c, test_rows);
    tcase_add_test(c, test_columns_in_any_order);
    tcase_add_test(c, test_hostile);
    tcase_add_test(c, test_mutations);
    tcase_add_test(c, test_scale);
    tcase_add_test(c, test_prefix_ids);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_set_fork_status(r, CK_NOFORK);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
