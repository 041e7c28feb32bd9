/* Intrusive list: both ends, removal while walking, double removal. */
#include "base/list.h"
#include "tests/common/test_run.h"


struct item {
    int value;
    struct list link;
};

static struct item it[6];
static struct list head;

static void setup_items(void) {
    list_init(&head);
    for (int i = 0; i < 6; i++) {
        it[i].value = i;
        list_init(&it[i].link);
    }
}

static int digits(void) {
    int n = 0;
    struct list *at, *next;
    list_each(at, next, &head) n = n * 10 + list_item(at, struct item, link)->value;
    return n;
}

START_TEST(push_insert_pop) {
    setup_items();
    ck_assert(list_empty(&head));
    ck_assert_ptr_null(list_pop_front(&head));
    ck_assert_ptr_null(list_last(&head));
    list_push_back(&head, &it[2].link);
    list_push_back(&head, &it[3].link);
    list_push_front(&head, &it[1].link);
    list_insert_before(&it[3].link, &it[5].link);
    ck_assert_int_eq(digits(), 1253);
    ck_assert_uint_eq(list_count(&head), 4);
    ck_assert_ptr_eq(list_pop_front(&head), &it[1].link);
    ck_assert(!list_linked(&it[1].link));
    ck_assert_ptr_eq(list_first(&head), &it[2].link);
    ck_assert_ptr_eq(list_last(&head), &it[3].link);
}
END_TEST

START_TEST(removal_while_walking_and_twice) {
    setup_items();
    for (int i = 1; i < 6; i++)
        list_push_back(&head, &it[i].link);
    struct list *at, *next;
    list_each(at, next, &head) if (list_item(at, struct item, link)->value % 2 == 1)
        list_remove(at);
    ck_assert_int_eq(digits(), 24);
    list_remove(&it[3].link);
    ck_assert_int_eq(digits(), 24);
    list_remove(&it[2].link);
    list_remove(&it[4].link);
    ck_assert(list_empty(&head));
    ck_assert_uint_eq(list_count(&head), 0);
}
END_TEST

int main(void) {
    Suite *s = suite_create("list");
    TCase *tc = tcase_create("list");
    tcase_add_test(tc, push_insert_pop);
    tcase_add_test(tc, removal_while_walking_and_twice);
    suite_add_tcase(s, tc);
    return test_run(s);
}
