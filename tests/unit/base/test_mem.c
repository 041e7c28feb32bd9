/* The memory door: exact count, alignment, overflow, the failing n-th allocation, the pool table.
 */
#include "base/mem.h"
#include "tests/common/test_run.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

START_TEST(counts_every_byte) {
    size_t before = mem_used();
    uint64_t calls = mem_calls();
    char *a = mem_alloc(100);
    char *b = mem_zalloc(7);
    ck_assert_uint_eq(mem_used() - before, 107);
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(b[i], 0);
    a = mem_realloc(a, 300);
    ck_assert_uint_eq(mem_used() - before, 307);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
    ck_assert_uint_eq(mem_used(), before);
    ck_assert_uint_eq(mem_calls() - calls, 3);
}
END_TEST

START_TEST(blocks_are_aligned_and_kept_by_realloc) {
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *p = mem_alloc(n);
        ck_assert_ptr_nonnull(p);
        ck_assert_uint_eq((uintptr_t)p % (n >= 64 ? 64 : 16), 0);
        memset(p, (int)n, n);
        p = mem_realloc(p, n + 200);
        ck_assert_uint_eq((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < n; i++)
            ck_assert_uint_eq(p[i], n & 255);
        p = mem_realloc(p, n / 2);
        for (size_t i = 0; i < n / 2; i++)
            ck_assert_uint_eq(p[i], n & 255);
        mem_free(p);
    }
}
END_TEST

START_TEST(sizes_that_overflow_are_refused) {
    size_t before = mem_used();
    ck_assert_ptr_null(mem_array(SIZE_MAX / 2, 3));
    ck_assert_ptr_null(mem_alloc(SIZE_MAX));
    ck_assert_ptr_null(mem_alloc(SIZE_MAX - 32));
    ck_assert_ptr_null(mem_map(SIZE_MAX - 1));
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

START_TEST(the_nth_allocation_fails_once) {
    char *keep = mem_strdup("kept");
    mem_fail_nth(3);
    void *a = mem_alloc(1);
    void *b = mem_memdup("xy", 2);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_null(mem_realloc(keep, 1000));
    ck_assert_str_eq(keep, "kept");
    void *c = mem_alloc(1);
    ck_assert_ptr_nonnull(c);
    mem_fail_nth(1);
    ck_assert_ptr_null(mem_map(1));
    mem_fail_nth(1);
    mem_fail_nth(0);
    void *d = mem_alloc(1);
    ck_assert_ptr_nonnull(d);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
    mem_free(keep);
}
END_TEST

START_TEST(maps_are_whole_zeroed_pages) {
    size_t before = mem_used();
    unsigned char *p = mem_map(10000);
    ck_assert_ptr_nonnull(p);
    ck_assert_uint_eq((uintptr_t)p % 4096, 0);
    ck_assert_uint_ge(mem_used() - before, 10000);
    ck_assert_uint_eq(p[9999], 0);
    p[9999] = 1;
    mem_unmap(p, 10000);
    mem_unmap(NULL, 1);
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

START_TEST(pool_table_updates_rows_and_has_an_end) {
    static char names[MEM_POOLS_MAX + 5][16];
    mem_pool_set("kv", 100, 10, 200);
    mem_pool_set("kv", 100, 90, 200);
    struct mem_pool_row rows[MEM_POOLS_MAX];
    size_t n = mem_pool_rows(rows, MEM_POOLS_MAX), seen = 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, "kv") == 0) {
            ck_assert_uint_eq(rows[i].used, 90);
            seen++;
        }
    ck_assert_uint_eq(seen, 1);
    for (int i = 0; i < MEM_POOLS_MAX + 5; i++) {
        snprintf(names[i], sizeof(names[i]), "p%d", i);
        mem_pool_set(names[i], 1, 2048, 0);
    }
    ck_assert_uint_eq(mem_pool_rows(rows, MEM_POOLS_MAX), MEM_POOLS_MAX);
    ck_assert_uint_eq(mem_pool_rows(rows, 3), 3);
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    mem_pool_print(f);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "\nkv "));
    ck_assert_ptr_nonnull(strstr(text, "\nsum "));
    free(text);
}
END_TEST

START_TEST(resident_pages_are_those_touched) {
    size_t page = 4096, n = 64 * page;
    char *p = mem_map(n);
    ck_assert_ptr_nonnull(p);
    ck_assert_uint_eq(mem_resident(p, n), 0);
    ck_assert_uint_eq(mem_resident(NULL, n), 0);
    memset(p, 1, 5 * page);
    p[20 * page] = 1;
    ck_assert_uint_eq(mem_resident(p, n), 6 * page);
    size_t before = mem_rss();
    ck_assert_uint_gt(before, 6 * page);
    mem_unmap(p, n);
}
END_TEST

static struct mem_pool_row row(const char *name) {
    struct mem_pool_row rows[MEM_POOLS_MAX];
    size_t n = mem_pool_rows(rows, MEM_POOLS_MAX);
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i];
    return (struct mem_pool_row){0};
}

/* Before the rows run out: the order of the cases below. */
START_TEST(heap_row_is_what_no_other_row_asked_for) {
    mem_pool_program();
    ck_assert_uint_gt(row(MEM_POOL_PROGRAM).used, 100000);
    mem_pool_refresh();
    size_t before = row(MEM_POOL_HEAP).asked;
    void *named = mem_alloc(1000000), *other = mem_alloc(70000);
    mem_pool_set("kv", 1000000, 5, 0);
    mem_pool_refresh();
    ck_assert_uint_eq(row(MEM_POOL_HEAP).asked, before + 70000);
    mem_pool_used("kv", 400000);
    mem_pool_used("nobody", 1);
    mem_pool_refresh();
    ck_assert_uint_eq(row(MEM_POOL_HEAP).asked, before + 670000);
    ck_assert_uint_eq(row("kv").used, 400000);
    ck_assert_uint_le(row(MEM_POOL_HEAP).used, row(MEM_POOL_HEAP).asked);
    mem_free(named);
    mem_free(other);
}
END_TEST

int main(void) {
    Suite *s = suite_create("mem");
    TCase *tc = tcase_create("mem");
    tcase_add_test(tc, counts_every_byte);
    tcase_add_test(tc, blocks_are_aligned_and_kept_by_realloc);
    tcase_add_test(tc, sizes_that_overflow_are_refused);
    tcase_add_test(tc, the_nth_allocation_fails_once);
    tcase_add_test(tc, maps_are_whole_zeroed_pages);
    tcase_add_test(tc, resident_pages_are_those_touched);
    tcase_add_test(tc, heap_row_is_what_no_other_row_asked_for);
    tcase_add_test(tc, pool_table_updates_rows_and_has_an_end);
    suite_add_tcase(s, tc);
    return test_run(s);
}
