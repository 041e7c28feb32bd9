/* Buffers: growth, limit, sticky failure, and that no failure loses or tears what was there. */
#include "base/buf.h"
#include "base/mem.h"
#include "tests/common/test_run.h"

#include <string.h>

START_TEST(zeroed_storage_is_a_valid_empty_buffer) {
    struct buf b = {0};
    ck_assert_str_eq(buf_str(&b), "");
    buf_adds(&b, "");
    ck_assert_uint_eq(b.len, 0);
    size_t len = 9;
    char *p = buf_take(&b, &len);
    ck_assert_str_eq(p, "");
    ck_assert_uint_eq(len, 0);
    mem_free(p);
    buf_deinit(&b);
}
END_TEST

START_TEST(appends_grow_and_keep_nul_bytes) {
    struct buf b;
    buf_init(&b, 0);
    for (int i = 0; i < 1000; i++)
        buf_addf(&b, "%d,", i);
    buf_addc(&b, '\0');
    buf_add(&b, "a\0b", 3);
    ck_assert(!b.bad);
    ck_assert_uint_eq(b.len, 3890 + 4);
    ck_assert_int_eq(strncmp(b.p, "0,1,2,", 6), 0);
    ck_assert_mem_eq(b.p + b.len - 4, "\0a\0b", 4);
    ck_assert_int_eq(buf_str(&b)[b.len], '\0');
    buf_deinit(&b);
}
END_TEST

START_TEST(addf_is_whole_at_every_fill) {
    for (size_t fill = 0; fill < 140; fill++) {
        struct buf b;
        buf_init(&b, 0);
        for (size_t i = 0; i < fill; i++)
            buf_addc(&b, 'x');
        buf_addf(&b, "[%s]", "0123456789012345678901234567890123456789");
        ck_assert_uint_eq(b.len, fill + 42);
        ck_assert_int_eq(b.p[fill], '[');
        ck_assert_int_eq(b.p[b.len - 1], ']');
        buf_deinit(&b);
    }
}
END_TEST

START_TEST(the_limit_is_exact_and_failure_is_sticky) {
    struct buf b;
    buf_init(&b, 10);
    buf_adds(&b, "0123456789");
    ck_assert(!b.bad);
    ck_assert_str_eq(buf_str(&b), "0123456789");
    buf_addc(&b, 'x');
    ck_assert(b.bad);
    ck_assert_uint_eq(b.len, 10);
    ck_assert_str_eq(buf_str(&b), "");
    ck_assert_ptr_null(buf_take(&b, NULL));
    buf_clear(&b);
    buf_addf(&b, "%s", "0123456789");
    ck_assert(!b.bad);
    buf_clear(&b);
    buf_addf(&b, "%s", "01234567890");
    ck_assert(b.bad);
    buf_adds(&b, "y");
    ck_assert_uint_eq(b.len, 0);
    buf_deinit(&b);
    buf_init(&b, 0);
    ck_assert_int_eq(buf_reserve(&b, (size_t)-1), -1);
    ck_assert(b.bad);
    buf_deinit(&b);
}
END_TEST

START_TEST(no_memory_is_a_sticky_failure) {
    struct buf b;
    buf_init(&b, 0);
    buf_adds(&b, "kept");
    mem_fail_nth(1);
    ck_assert_int_eq(buf_reserve(&b, 1000), -1);
    ck_assert(b.bad);
    ck_assert_mem_eq(b.p, "kept", 4);
    buf_deinit(&b);
    ck_assert(!b.bad);
}
END_TEST

START_TEST(consume_drops_from_the_front) {
    struct buf b;
    buf_init(&b, 0);
    buf_adds(&b, "headtail");
    buf_consume(&b, 0);
    buf_consume(&b, 4);
    ck_assert_str_eq(buf_str(&b), "tail");
    buf_consume(&b, 4);
    ck_assert_uint_eq(b.len, 0);
    buf_deinit(&b);
}
END_TEST

int main(void) {
    Suite *s = suite_create("buf");
    TCase *tc = tcase_create("buf");
    tcase_add_test(tc, zeroed_storage_is_a_valid_empty_buffer);
    tcase_add_test(tc, appends_grow_and_keep_nul_bytes);
    tcase_add_test(tc, addf_is_whole_at_every_fill);
    tcase_add_test(tc, the_limit_is_exact_and_failure_is_sticky);
    tcase_add_test(tc, no_memory_is_a_sticky_failure);
    tcase_add_test(tc, consume_drops_from_the_front);
    suite_add_tcase(s, tc);
    return test_run(s);
}
