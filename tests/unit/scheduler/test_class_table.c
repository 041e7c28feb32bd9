/* The default classes: what other code takes for granted about rows 0 and 1. */
#include "scheduler/class_table.h"
#include "tests/common/test_run.h"

START_TEST(test_default_rows)
{
    struct class_table t;
    class_table_default(&t);
    ck_assert_uint_eq(t.n, 2);
    ck_assert_int_eq(class_table_find(&t, "realtime"), CLASS_REALTIME);
    ck_assert_int_eq(class_table_find(&t, "batch"), CLASS_BATCH);
    ck_assert_int_eq(class_table_find(&t, "Batch"), -1);
    ck_assert_int_eq(class_table_find(&t, ""), -1);
    ck_assert_uint_eq(t.rows[CLASS_REALTIME].rank, 0);
    ck_assert_uint_eq(t.rows[CLASS_BATCH].rank, 1);
    ck_assert_uint_lt(t.rows[CLASS_REALTIME].order, t.rows[CLASS_BATCH].order);
    ck_assert(!t.rows[CLASS_REALTIME].preemptible && t.rows[CLASS_BATCH].preemptible);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("class_table");
    TCase *tc = tcase_create("rows");
    tcase_add_test(tc, test_default_rows);
    suite_add_tcase(s, tc);
    return test_run(s);
}
