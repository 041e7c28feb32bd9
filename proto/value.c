/* value.c - msgpack bytes to a tree. The scan has proved counts, lengths and depth before, and told
 * the number of nodes, so the arena is one allocation of the right size:
 *
 *     [ struct value x (nodes - 1) ][ copy of the input; strings point in here ]
 *
 * msgpack-c's unpacker is not used for reading: docs/PROTOCOL.md, "Codec", says why.
 */
#include "proto/value.h"

#include "base/mem.h"
#include "proto/scan.h"

#include <assert.h>
#include <string.h>

_Static_assert(VALUE_DEPTH_MAX <= SCAN_DEPTH_MAX, "the scan's stack is the limit");

/* Children still to be read at one level. */
struct level { struct value *next; uint64_t left; };

struct builder {
    struct value *free;            /* next unused node of the arena */
    const uint8_t *p, *end;        /* in the arena's copy */
    struct level levels[VALUE_DEPTH_MAX + 1];
    uint32_t depth;
};

static void fill_scalar(struct value *v, const struct scan_token *t)
{
    *v = (struct value){.kind = VALUE_NIL};
    switch (t->kind) {
    case SCAN_NIL:
        break;
    case SCAN_BOOL:
        v->kind = VALUE_BOOL;
        v->as.b = t->b;
        break;
    case SCAN_INT:
        v->kind = VALUE_INT;
        v->as.i = t->i;
        break;
    case SCAN_UINT:
        v->kind = VALUE_UINT;
        v->as.u = t->u;
        break;
    case SCAN_FLOAT:
        v->kind = VALUE_FLOAT;
        v->as.f = t->f;
        break;
    case SCAN_STR:
    case SCAN_BIN:
        v->kind = t->kind == SCAN_STR ? VALUE_STR : VALUE_BIN;
        v->n_bytes = t->n;
        v->as.s = (const char *)t->p;
        break;
    default:
        assert(!"a container is no scalar");
    }
}

/* Reads one value into `v`; a container takes its children's nodes and becomes the level at hand. */
static void build_one(struct builder *b, struct value *v)
{
    struct scan_token t;
    const char *bad = scan_next(&b->p, b->end, &t);
    assert(bad == NULL); /* scan_check accepted the same bytes */
    (void)bad;
    if (t.kind != SCAN_ARRAY && t.kind != SCAN_MAP) {
        fill_scalar(v, &t);
        return;
    }
    bool map = t.kind == SCAN_MAP;
    uint64_t n = map ? 2 * (uint64_t)t.n : t.n;
    *v = (struct value){.kind = map ? VALUE_MAP : VALUE_ARRAY, .n = t.n, .as.items = b->free};
    assert(b->depth < VALUE_DEPTH_MAX);
    b->levels[++b->depth] = (struct level){.next = b->free, .left = n};
    b->free += n;
}

static void build(struct builder *b, struct value *root)
{
    b->levels[0] = (struct level){.next = root, .left = 1};
    while (b->depth > 0 || b->levels[0].left > 0) {
        struct level *l = &b->levels[b->depth];
        if (l->left == 0) {
            b->depth--;
            continue;
        }
        l->left--;
        build_one(b, l->next++);
    }
    assert(b->p == b->end);
}

/* Order for finding duplicates only: by length, then bytes. */
static int key_compare(const struct value *a, const struct value *b)
{
    if (a->n_bytes != b->n_bytes)
        return a->n_bytes < b->n_bytes ? -1 : 1;
    return a->n_bytes ? memcmp(a->as.s, b->as.s, a->n_bytes) : 0;
}

static void sift_down(const struct value **k, uint32_t at, uint32_t n)
{
    for (;;) {
        uint64_t child = 2 * (uint64_t)at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && key_compare(k[child], k[child + 1]) < 0)
            child++;
        if (key_compare(k[at], k[child]) >= 0)
            return;
        const struct value *swap = k[at];
        k[at] = k[child];
        k[child] = swap;
        at = (uint32_t)child;
    }
}

/* Heap sort: no recursion, no memory, n log n whatever a peer sends (a hash table could be aimed at). */
static void sort_keys(const struct value **k, uint32_t n)
{
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(k, i, n);
    for (uint32_t last = n; last-- > 1;) {
        const struct value *swap = k[0];
        k[0] = k[last];
        k[last] = swap;
        sift_down(k, 0, last);
    }
}

/* Only a short and valid key may stand in a message that a client will read. */
static int refuse_twice(const struct value *key, struct err *e)
{
    if (key->n_bytes > 64 || !value_is_utf8(key))
        return err_set(e, ERR_PROTOCOL, "a key comes twice in one map");
    return err_set(e, ERR_PROTOCOL, "the key \"%.*s\" comes twice in one map", (int)key->n_bytes,
                   key->as.s);
}

static int keys_unique(const struct value *map, const struct value **scratch, struct err *e)
{
    for (uint32_t i = 0; i < map->n; i++) {
        scratch[i] = &map->as.items[2 * (size_t)i];
        if (scratch[i]->kind != VALUE_STR)
            return err_set(e, ERR_PROTOCOL, "a map key is not a string");
    }
    sort_keys(scratch, map->n);
    for (uint32_t i = 1; i < map->n; i++)
        if (key_compare(scratch[i - 1], scratch[i]) == 0)
            return refuse_twice(scratch[i], e);
    return 0;
}

/* Checks the keys of every map: root and the nodes of the arena. */
static int check_maps(const struct value *root, const struct value *nodes, uint32_t n_nodes,
                      struct err *e)
{
    uint32_t widest = root->kind == VALUE_MAP ? root->n : 0;
    for (uint32_t i = 0; i < n_nodes; i++)
        if (nodes[i].kind == VALUE_MAP && nodes[i].n > widest)
            widest = nodes[i].n;
    if (widest == 0)
        return 0;
    const struct value **scratch = mem_array(widest, sizeof(*scratch));
    if (scratch == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for a map of %u keys", widest);
    int rc = root->kind == VALUE_MAP ? keys_unique(root, scratch, e) : 0;
    for (uint32_t i = 0; rc == 0 && i < n_nodes; i++)
        if (nodes[i].kind == VALUE_MAP)
            rc = keys_unique(&nodes[i], scratch, e);
    mem_free(scratch);
    return rc;
}

int value_parse(struct value_tree *t, const void *p, size_t n, struct err *e)
{
    *t = (struct value_tree){.arena = NULL};
    struct scan_info info;
    if (scan_check(p, n, VALUE_DEPTH_MAX, VALUE_NODES_MAX, &info, e) != 0)
        return -1;
    size_t nodes_bytes = (size_t)(info.nodes - 1) * sizeof(struct value);
    struct value *nodes = mem_alloc(nodes_bytes + n);
    if (nodes == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for a message of %zu bytes", n);
    uint8_t *copy = (uint8_t *)nodes + nodes_bytes;
    memcpy(copy, p, n);
    struct builder b = {.free = nodes, .p = copy, .end = copy + n};
    build(&b, &t->root);
    assert(b.free == nodes + (info.nodes - 1));
    t->arena = nodes;
    if (check_maps(&t->root, nodes, info.nodes - 1, e) != 0) {
        value_tree_deinit(t);
        return -1;
    }
    return 0;
}

void value_tree_deinit(struct value_tree *t)
{
    mem_free(t->arena);
    *t = (struct value_tree){.arena = NULL};
}

const struct value *value_get(const struct value *map, const char *key)
{
    assert(key != NULL);
    if (map == NULL || map->kind != VALUE_MAP)
        return NULL;
    for (uint32_t i = 0; i < map->n; i++) {
        const struct value *k = &map->as.items[2 * (size_t)i];
        if (value_str_is(k, key))
            return k + 1;
    }
    return NULL;
}

bool value_is_utf8(const struct value *v)
{
    assert(v != NULL);
    return v->kind == VALUE_STR && scan_utf8(v->as.s, v->n_bytes);
}

bool value_str_is(const struct value *v, const char *s)
{
    size_t n = strlen(s);
    return v != NULL && v->kind == VALUE_STR && v->n_bytes == n && memcmp(v->as.s, s, n) == 0;
}
