/* The table of custom_ids: found after growth, added once, state kept. */
#include "cli/id_table.h"
#include "tests/common/test_run.h"

#include <stdio.h>
#include <string.h>

#define MANY 20000

START_TEST(many_ids_are_found_after_growth) {
    struct id_table t;
    struct id_entry *at;
    char id[32];
    ck_assert_int_eq(id_table_init(&t), 0);
    for (uint64_t i = 1; i <= MANY; i++) {
        int n = snprintf(id, sizeof(id), "request-%llu", (unsigned long long)i);
        ck_assert_int_eq(id_table_add(&t, id, (size_t)n, i, &at), 0);
        if (i % 3 == 0)
            at->state = ID_DONE;
    }
    ck_assert_uint_eq(t.n, MANY);
    for (uint64_t i = 1; i <= MANY; i++) {
        int n = snprintf(id, sizeof(id), "request-%llu", (unsigned long long)i);
        at = id_table_find(&t, id, (size_t)n);
        ck_assert_ptr_nonnull(at);
        ck_assert_uint_eq(at->line, i);
        ck_assert_int_eq(at->state, i % 3 == 0 ? ID_DONE : ID_OPEN);
        ck_assert_int_eq(id_table_add(&t, id, (size_t)n, i + MANY, &at), 1);
        ck_assert_uint_eq(at->line, i);
    }
    ck_assert_ptr_null(id_table_find(&t, "request-0", 9));
    ck_assert_ptr_null(id_table_find(&t, "request-1", 8));
    id_table_deinit(&t);
}
END_TEST

START_TEST(ids_are_bytes_of_a_length) {
    struct id_table t;
    struct id_entry *at;
    ck_assert_int_eq(id_table_init(&t), 0);
    ck_assert_int_eq(id_table_add(&t, "a\0b", 3, 1, &at), 0);
    ck_assert_int_eq(id_table_add(&t, "a\0c", 3, 2, &at), 0);
    ck_assert_int_eq(id_table_add(&t, "a", 1, 3, &at), 0);
    ck_assert_uint_eq(id_table_find(&t, "a\0c", 3)->line, 2);
    id_table_deinit(&t);
}
END_TEST

int main(void) {
    Suite *s = suite_create("id_table");
    TCase *t = tcase_create("all");
    tcase_add_test(t, many_ids_are_found_after_growth);
    tcase_add_test(t, ids_are_bytes_of_a_length);
    suite_add_tcase(s, t);
    return test_run(s);
}
