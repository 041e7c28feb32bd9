/* The entries of one flow: a treap by key (first and last are known, so arrivals in order and picks
 * touch a few nodes only), and a list by arrival for the longest wait.
 *
 * A heap key of a node is the hash of its number: the shape follows from the numbers alone, runs
 * repeat, and no client can choose it (numbers are the gateway's slots). */
#include "scheduler/fair_queue_impl.h"

#include <assert.h>

static uint32_t tree_rank(uint32_t link)
{
    uint32_t x = link * 0x9e3779b1u;
    x = (x ^ x >> 15) * 0x85ebca77u;
    return x ^ x >> 13;
}

static bool tree_before(const struct fair_entry *a, const struct fair_entry *b)
{
    if (a->due != b->due) return a->due < b->due;
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->order != b->order) return a->order < b->order;
    return a->arrival < b->arrival;
}

/* `link`'s parent (0 = the flow's root) takes `with` in its place. */
static void tree_replace(struct fair_queue *q, struct fair_flow *f, uint32_t link, uint32_t with)
{
    uint32_t up = fair_at(q, link)->parent;
    if (up == 0)
        f->root = with;
    else if (fair_at(q, up)->left == link)
        fair_at(q, up)->left = with;
    else
        fair_at(q, up)->right = with;
    if (with != 0) fair_at(q, with)->parent = up;
}

/* `link` goes above its parent. */
static void tree_rotate_up(struct fair_queue *q, struct fair_flow *f, uint32_t link)
{
    struct fair_entry *e = fair_at(q, link);
    uint32_t up = e->parent;
    struct fair_entry *p = fair_at(q, up);
    uint32_t moved;
    tree_replace(q, f, up, link);
    if (p->left == link) {
        moved = p->left = e->right;
        e->right = up;
    } else {
        moved = p->right = e->left;
        e->left = up;
    }
    if (moved != 0) fair_at(q, moved)->parent = up;
    p->parent = link;
}

static void tree_attach(struct fair_queue *q, struct fair_flow *f, uint32_t link)
{
    struct fair_entry *e = fair_at(q, link);
    uint32_t at = f->root;
    if (f->root == 0) {
        f->root = f->first = f->last = link;
    } else if (tree_before(fair_at(q, f->last), e)) { /* in order: no way down */
        e->parent = f->last;
        fair_at(q, f->last)->right = link;
        f->last = link;
    } else if (tree_before(e, fair_at(q, f->first))) {
        e->parent = f->first;
        fair_at(q, f->first)->left = link;
        f->first = link;
    } else {
        for (uint32_t next = at; next != 0;) {
            at = next;
            next = tree_before(e, fair_at(q, at)) ? fair_at(q, at)->left : fair_at(q, at)->right;
        }
        e->parent = at;
        if (tree_before(e, fair_at(q, at)))
            fair_at(q, at)->left = link;
        else
            fair_at(q, at)->right = link;
    }
}

void fair_tree_add(struct fair_queue *q, struct fair_flow *f, uint32_t link)
{
    struct fair_entry *e = fair_at(q, link);
    assert(e->left == 0 && e->right == 0 && e->parent == 0);
    tree_attach(q, f, link);
    while (e->parent != 0 && tree_rank(e->parent) < tree_rank(link)) tree_rotate_up(q, f, link);
}

uint32_t fair_tree_next(const struct fair_queue *q, uint32_t link)
{
    uint32_t at = fair_at(q, link)->right;
    if (at != 0) {
        while (fair_at(q, at)->left != 0) at = fair_at(q, at)->left;
        return at;
    }
    for (at = fair_at(q, link)->parent; at != 0 && fair_at(q, at)->right == link;) {
        link = at;
        at = fair_at(q, at)->parent;
    }
    return at;
}

static uint32_t tree_previous(const struct fair_queue *q, uint32_t link)
{
    uint32_t at = fair_at(q, link)->left;
    if (at != 0) {
        while (fair_at(q, at)->right != 0) at = fair_at(q, at)->right;
        return at;
    }
    for (at = fair_at(q, link)->parent; at != 0 && fair_at(q, at)->left == link;) {
        link = at;
        at = fair_at(q, at)->parent;
    }
    return at;
}

void fair_tree_remove(struct fair_queue *q, struct fair_flow *f, uint32_t link)
{
    struct fair_entry *e = fair_at(q, link);
    if (f->first == link) f->first = fair_tree_next(q, link);
    if (f->last == link) f->last = tree_previous(q, link);
    while (e->left != 0 && e->right != 0) /* down until one side is empty */
        tree_rotate_up(q, f, tree_rank(e->left) > tree_rank(e->right) ? e->left : e->right);
    tree_replace(q, f, link, e->left != 0 ? e->left : e->right);
    e->left = e->right = e->parent = 0;
}

/* What comes back has waited before: it stands first. */
void fair_list_add(struct fair_queue *q, struct fair_flow *f, uint32_t link)
{
    struct fair_entry *e = fair_at(q, link);
    assert(e->older == 0 && e->newer == 0);
    if (f->oldest == 0) {
        f->oldest = f->newest = link;
    } else if (fair_at(q, f->newest)->arrival < e->arrival) {
        e->older = f->newest;
        fair_at(q, f->newest)->newer = link;
        f->newest = link;
    } else {
        e->newer = f->oldest;
        fair_at(q, f->oldest)->older = link;
        f->oldest = link;
    }
}

void fair_list_remove(struct fair_queue *q, struct fair_flow *f, uint32_t link)
{
    struct fair_entry *e = fair_at(q, link);
    if (e->older != 0)
        fair_at(q, e->older)->newer = e->newer;
    else
        f->oldest = e->newer;
    if (e->newer != 0)
        fair_at(q, e->newer)->older = e->older;
    else
        f->newest = e->older;
    e->older = e->newer = 0;
}

static bool tree_node_ok(const struct fair_queue *q, const struct fair_flow *f, uint32_t link)
{
    const struct fair_entry *e = fair_at(q, link);
    if (e->parent == 0 ? f->root != link
                       : fair_at(q, e->parent)->left != link && fair_at(q, e->parent)->right != link)
        return false;
    return e->parent == 0 || tree_rank(e->parent) >= tree_rank(link);
}

const char *fair_tree_check(const struct fair_queue *q, const struct fair_flow *f)
{
    uint32_t n = 0, last = 0;
    if ((f->n == 0) != (f->root == 0) || (f->root == 0) != (f->first == 0))
        return "a flow's tree and count disagree";
    for (uint32_t at = f->first; at != 0 && n <= f->n; at = fair_tree_next(q, at), n++) {
        if (!tree_node_ok(q, f, at)) return "a flow's tree is not a tree";
        if (!fair_at(q, at)->linked) return "an entry in a flow does not know it";
        if (last != 0 && !tree_before(fair_at(q, last), fair_at(q, at)))
            return "a flow's entries are out of order";
        last = at;
    }
    if (n != f->n || last != f->last) return "a flow's entries miscounted";
    n = 0;
    last = 0;
    for (uint32_t at = f->oldest; at != 0 && n <= f->n; at = fair_at(q, at)->newer, n++) {
        if (fair_at(q, at)->older != last) return "a flow's list is broken";
        last = at;
    }
    return n != f->n || last != f->newest ? "a flow's list misses entries" : NULL;
}
