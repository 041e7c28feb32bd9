/* The scan and the tree: hostile counts and depths without an allocation, agreement with msgpack-c. */
#include "proto/value.h"

#include "base/hash.h"
#include "base/mem.h"
#include "proto/scan.h"
#include "tests/common/test_run.h"

#include <math.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* Refused, without one allocation through the memory door and without the process growing by 1 MiB. */
static void refuse(const void *p, size_t n, const char *what)
{
    struct value_tree t;
    struct err e = {0};
    uint64_t calls = mem_calls();
    long before = peak_kib();
    ck_assert_msg(value_parse(&t, p, n, &e) == -1, "%s is taken", what);
    ck_assert_msg(mem_calls() == calls, "%s: memory was asked for", what);
    ck_assert_msg(peak_kib() - before < 1024, "%s: the process grew", what);
    ck_assert(e.code == ERR_PROTOCOL && e.msg[0]);
}

START_TEST(counts_beyond_the_bytes_are_refused_at_once)
{
    static const struct { const char *p; size_t n; } cases[] = {
        {"\xdd\xff\xff\xff\xff", 5},         {"\xdf\xff\xff\xff\xff", 5},
        {"\xc6\xff\xff\xff\xff", 5},         {"\xdb\xff\xff\xff\xff\x41", 6},
        {"\xc9\xff\xff\xff\xff\x01\x02", 7}, {"\xdd\x04\x00\x00\x00", 5},
        {"\xdc\xff\xff", 3},                 {"\xde\xff\xff", 3},
        {"\xc5\xff\xff", 3},                 {"\xda\xff\xff", 3},
        {"\xc7\x01\x05\x00", 4},             {"\xd4\x01\x01", 3},
        {"\xd8\x01", 2},                     {"\xc1", 1},
        {"", 0},                             {"\x91", 1},
        {"\x01\x01", 2},                     {"\xcf\x01", 2},
        {"\xdf\x80\x00\x00\x00", 5}, /* 2 * 2^31 pairs wraps 32 bits to nothing */
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char inside[64] = "\x82\xa1t\xa7request\xa4" "body"; /* the same as a known key's value */
        size_t head = 1 + 2 + 8 + 5;
        refuse(cases[i].p, cases[i].n, "a hostile head");
        if (i == 16) /* two values: fine inside, if it were a pair's end */
            continue;
        memcpy(inside + head, cases[i].p, cases[i].n);
        refuse(inside, head + cases[i].n, "a hostile head inside");
    }
}
END_TEST

static void repeat(struct buf *b, const char *p, size_t n, unsigned times)
{
    for (unsigned i = 0; i < times; i++)
        buf_add(b, p, n);
}

START_TEST(nesting_is_bounded_without_recursion)
{
    struct { const char *p; size_t n; unsigned times; } cases[] = {
        {"\x91", 1, 100000}, {"\x81\xa1\x61", 3, 33000}, {"\xdc\xff\xff", 3, 24000},
        {"\x91", 1, VALUE_DEPTH_MAX + 1}, {"\xdd\x00\x00\x00\x01", 5, 20000},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf b = {0};
        repeat(&b, cases[i].p, cases[i].n, cases[i].times);
        buf_addc(&b, '\xc0');
        refuse(b.p, b.len, "deep nesting");
        buf_deinit(&b);
    }
    static const unsigned taken[] = {0, 1, 31, 32, 33, VALUE_DEPTH_MAX};
    for (unsigned i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        struct value_tree t;
        struct buf b = {0};
        repeat(&b, "\x91", 1, taken[i]);
        buf_addc(&b, '\x07');
        ck_assert_int_eq(value_parse(&t, b.p, b.len, NULL), 0);
        const struct value *v = &t.root;
        for (unsigned d = 0; d < taken[i]; d++)
            v = v->as.items;
        ck_assert(v->kind == VALUE_UINT && v->as.u == 7);
        value_tree_deinit(&t);
        buf_deinit(&b);
    }
}
END_TEST

START_TEST(the_number_of_nodes_is_bounded)
{
    static const char flat[] = "\x94\x01\x02\x03\x04";
    struct scan_info info;
    ck_assert_int_eq(scan_check(flat, 5, 4, 5, &info, NULL), 0);
    ck_assert_uint_eq(info.nodes, 5);
    ck_assert_uint_eq(info.depth, 1);
    ck_assert_int_eq(scan_check(flat, 5, 4, 4, NULL, NULL), -1);
    ck_assert_int_eq(scan_check(flat, 5, 0, 5, NULL, NULL), -1);
}
END_TEST

/* Random values, nested. */
static void put_random(struct buf *b, uint64_t seed, uint64_t *n, unsigned depth)
{
    uint64_t r = rand_at(seed, (*n)++), v = rand_at(seed, (*n)++) >> (r >> 58);
    char text[300];
    memset(text, 'x', sizeof text);
    switch (r % (depth < 6 ? 10 : 8)) {
    case 0: value_put_nil(b); break;
    case 1: value_put_bool(b, v & 1); break;
    case 2: value_put_uint(b, v); break;
    case 3: value_put_int(b, -(int64_t)(v >> 1)); break;
    case 4: value_put_float(b, (double)v / 3); break;
    case 5: value_put_float32(b, (float)v / 3); break;
    case 6: value_put_str(b, text, v % sizeof text); break;
    case 7: value_put_bin(b, text, v % sizeof text); break;
    case 8:
        value_put_array(b, v % 20);
        for (unsigned i = 0; i < v % 20; i++)
            put_random(b, seed, n, depth + 1);
        break;
    default:
        value_put_map(b, v % 20);
        for (unsigned i = 0; i < v % 20; i++) {
            snprintf(text, sizeof text, "key %u", i);
            value_put_str(b, text, strlen(text));
            put_random(b, seed, n, depth + 1);
        }
    }
}

static void same_as(const struct value *v, const msgpack_object *o)
{
    switch (o->type) {
    case MSGPACK_OBJECT_NIL: ck_assert_int_eq(v->kind, VALUE_NIL); break;
    case MSGPACK_OBJECT_BOOLEAN:
        ck_assert(v->kind == VALUE_BOOL && v->as.b == o->via.boolean);
        break;
    case MSGPACK_OBJECT_POSITIVE_INTEGER:
        ck_assert(v->kind == VALUE_UINT && v->as.u == o->via.u64);
        break;
    case MSGPACK_OBJECT_NEGATIVE_INTEGER:
        ck_assert(v->kind == VALUE_INT && v->as.i == o->via.i64);
        break;
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64:
        ck_assert(v->kind == VALUE_FLOAT && memcmp(&v->as.f, &o->via.f64, 8) == 0);
        break;
    case MSGPACK_OBJECT_STR:
        ck_assert(v->kind == VALUE_STR && v->n_bytes == o->via.str.size);
        if (v->n_bytes > 0)
            ck_assert_mem_eq(v->as.s, o->via.str.ptr, v->n_bytes);
        break;
    case MSGPACK_OBJECT_BIN:
        ck_assert(v->kind == VALUE_BIN && v->n_bytes == o->via.bin.size);
        break;
    case MSGPACK_OBJECT_ARRAY:
        ck_assert(v->kind == VALUE_ARRAY && v->n == o->via.array.size);
        for (uint32_t i = 0; i < v->n; i++)
            same_as(&v->as.items[i], &o->via.array.ptr[i]);
        break;
    case MSGPACK_OBJECT_MAP:
        ck_assert(v->kind == VALUE_MAP && v->n == o->via.map.size);
        for (uint32_t i = 0; i < v->n; i++) {
            same_as(&v->as.items[2 * i], &o->via.map.ptr[i].key);
            same_as(&v->as.items[2 * i + 1], &o->via.map.ptr[i].val);
        }
        break;
    default: ck_abort_msg("ext");
    }
}

static bool holds_ext(const msgpack_object *o)
{
    bool found = o->type == MSGPACK_OBJECT_EXT;
    if (o->type == MSGPACK_OBJECT_ARRAY)
        for (uint32_t i = 0; i < o->via.array.size; i++)
            found |= holds_ext(&o->via.array.ptr[i]);
    if (o->type == MSGPACK_OBJECT_MAP)
        for (uint32_t i = 0; i < o->via.map.size; i++)
            found |= holds_ext(&o->via.map.ptr[i].key) || holds_ext(&o->via.map.ptr[i].val);
    return found;
}

/* What the scan takes msgpack-c takes and reads the same; what msgpack-c takes (safe to ask: the scan
 * stopped large counts, here by size) the scan takes too, ext and bytes behind the end excepted. */
static void compare(const char *p, size_t n, uint64_t seed)
{
    struct value_tree t;
    struct err e = {0};
    int ours = value_parse(&t, p, n, &e);
    bool map_rule = ours != 0 && strstr(e.msg, "key") != NULL;
    if (ours != 0 && strstr(e.msg, "announces") != NULL)
        return; /* msgpack-c would allocate that */
    msgpack_unpacked u;
    size_t at = 0;
    msgpack_unpacked_init(&u);
    bool theirs = msgpack_unpack_next(&u, p, n, &at) == MSGPACK_UNPACK_SUCCESS && at == n;
    if (ours == 0) {
        ck_assert_msg(theirs, "seed %llu: only the scan takes it", (unsigned long long)seed);
        same_as(&t.root, &u.data);
        value_tree_deinit(&t);
    } else {
        ck_assert_msg(!theirs || map_rule || holds_ext(&u.data), "seed %llu: %s",
                      (unsigned long long)seed, e.msg);
    }
    msgpack_unpacked_destroy(&u);
}

START_TEST(the_tree_is_what_msgpack_c_reads)
{
    size_t before = mem_used();
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct buf b = {0};
        uint64_t n = 0;
        put_random(&b, seed, &n, 0);
        compare(b.p, b.len, seed);
        for (unsigned i = 0; i < 20; i++) {
            uint64_t r = rand_at(seed + 1000, i);
            size_t at = r % b.len;
            char was = b.p[at];
            b.p[at] = (char)(r >> 40);
            compare(b.p, b.len, seed);
            b.p[at] = was;
        }
        buf_deinit(&b);
    }
    ck_assert_uint_eq(mem_used(), before);
}
END_TEST

static int parse_text(struct value_tree *t, const char *p, size_t n, struct err *e)
{
    char *copy = malloc(n);
    memcpy(copy, p, n);
    int rc = value_parse(t, copy, n, e);
    free(copy); /* the tree must not point into the input */
    return rc;
}

START_TEST(maps_have_unique_string_keys)
{
    struct value_tree t;
    struct err e;
    ck_assert_int_eq(parse_text(&t, "\x82\xa1" "a\x01\xa1" "b\x02", 7, &e), 0);
    ck_assert_uint_eq(value_get(&t.root, "a")->as.u, 1);
    ck_assert_uint_eq(value_get(&t.root, "b")->as.u, 2);
    ck_assert_ptr_null(value_get(&t.root, "c"));
    ck_assert_ptr_null(value_get(value_get(&t.root, "a"), "a"));
    ck_assert_ptr_null(value_get(NULL, "a"));
    value_tree_deinit(&t);
    ck_assert_int_eq(parse_text(&t, "\x82\xa1" "a\x01\xa1" "a\x02", 7, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "\"a\""));
    ck_assert_int_eq(parse_text(&t, "\x81\x01\x01", 3, &e), -1);
    ck_assert_int_eq(parse_text(&t, "\x91\x82\xa0\x01\xa0\x02", 6, &e), -1); /* nested, empty keys */
}
END_TEST

/* 200,000 keys: unique ones pass, and one repeat among them is found, in n log n. */
START_TEST(a_wide_map_is_checked_too)
{
    for (unsigned twice = 0; twice < 2; twice++) {
        struct buf b = {0};
        struct value_tree t;
        value_put_map(&b, 200000);
        for (unsigned i = 0; i < 200000; i++) {
            char key[16];
            int n = snprintf(key, sizeof key, "%u", twice && i == 150000 ? 77 : i);
            value_put_str(&b, key, (size_t)n);
            value_put_nil(&b);
        }
        ck_assert_int_eq(value_parse(&t, b.p, b.len, NULL), twice ? -1 : 0);
        value_tree_deinit(&t);
        buf_deinit(&b);
    }
}
END_TEST

START_TEST(strings_may_hold_nul_and_are_checked_on_request)
{
    struct value_tree t;
    ck_assert_int_eq(parse_text(&t, "\xa3" "a\0b", 4, NULL), 0);
    ck_assert_uint_eq(t.root.n_bytes, 3);
    ck_assert(value_is_utf8(&t.root));
    ck_assert(!value_str_is(&t.root, "a"));
    value_tree_deinit(&t);
    static const struct { const char *s; bool ok; } cases[] = {
        {"", true}, {"abc", true}, {"\xc3\xa9", true}, {"\xe2\x82\xac", true},
        {"\xf0\x9f\x98\x80", true}, {"\xf4\x8f\xbf\xbf", true}, {"\xc0\x80", false},
        {"\xc1\xbf", false}, {"\xe0\x80\x80", false}, {"\xe0\x9f\xbf", false},
        {"\xed\xa0\x80", false}, {"\xf0\x80\x80\x80", false}, {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false}, {"\x80", false}, {"\xc3", false}, {"\xe2\x82", false},
        {"\xff", false}, {"a\xc3(", false},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(scan_utf8(cases[i].s, strlen(cases[i].s)) == cases[i].ok, "case %u", i);
}
END_TEST

START_TEST(no_memory_is_told)
{
    struct value_tree t;
    struct err e;
    size_t before = mem_used();
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_nth(n);
        ck_assert_int_eq(value_parse(&t, "\x81\xa1" "a\x01", 4, &e), -1);
        ck_assert_int_eq(e.code, ERR_NO_MEMORY);
        ck_assert_uint_eq(mem_used(), before);
    }
    mem_fail_nth(0);
}
END_TEST

int main(void)
{
    printf("seeds 0 to 299\n");
    Suite *s = suite_create("value");
    TCase *tc = tcase_create("value");
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, counts_beyond_the_bytes_are_refused_at_once);
    tcase_add_test(tc, nesting_is_bounded_without_recursion);
    tcase_add_test(tc, the_number_of_nodes_is_bounded);
    tcase_add_test(tc, the_tree_is_what_msgpack_c_reads);
    tcase_add_test(tc, maps_have_unique_string_keys);
    tcase_add_test(tc, a_wide_map_is_checked_too);
    tcase_add_test(tc, strings_may_hold_nul_and_are_checked_on_request);
    tcase_add_test(tc, no_memory_is_told);
    suite_add_tcase(s, tc);
    return test_run(s);
}
