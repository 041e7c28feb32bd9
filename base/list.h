/* list.h - intrusive doubly linked list; the link is a member of the item, so nothing is allocated.
 *
 * A head is a `struct list` that was list_init'ed; an item's link is list_init'ed before its first
 * use, so that list_linked and a second list_remove are legal on it. An item is in one list per link.
 * The list owns nothing. Thread: one owner. Cost: every call O(1), list_count O(n).
 *
 *     struct list *at, *next;
 *     list_each(at, next, &head) { struct item *it = list_item(at, struct item, link); ... }
 *
 * Inside list_each the item at hand may be removed or freed, its neighbours may not.
 */
#ifndef SLUICE_BASE_LIST_H
#define SLUICE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

#define list_item(link_ptr, type, member)                                                          \
    ((type *)(void *)((char *)(link_ptr) - offsetof(type, member)))

#define list_each(at, after, head)                                                                 \
    for ((at) = (head)->next, (after) = (at)->next; (at) != (head);                                \
         (at) = (after), (after) = (at)->next)

static inline void list_init(struct list *l) {
    l->prev = l->next = l;
}

static inline bool list_empty(const struct list *head) {
    return head->next == head;
}

/* Whether an item's link is in some list now. */
static inline bool list_linked(const struct list *link) {
    return link->next != link;
}

/* Puts `link` (in no list) before `at`; `at` may be a head, then it becomes the last. */
static inline void list_insert_before(struct list *at, struct list *link) {
    link->prev = at->prev;
    link->next = at;
    at->prev->next = link;
    at->prev = link;
}

static inline void list_push_back(struct list *head, struct list *link) {
    list_insert_before(head, link);
}

static inline void list_push_front(struct list *head, struct list *link) {
    list_insert_before(head->next, link);
}

/* Leaves `link` initialised, so that removing it again does nothing. */
static inline void list_remove(struct list *link) {
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* First and last link, or NULL when the list is empty. */
static inline struct list *list_first(const struct list *head) {
    return list_empty(head) ? NULL : head->next;
}

static inline struct list *list_last(const struct list *head) {
    return list_empty(head) ? NULL : head->prev;
}

/* Removes and returns the first link; NULL when empty. */
static inline struct list *list_pop_front(struct list *head) {
    struct list *l = list_first(head);
    if (l != NULL)
        list_remove(l);
    return l;
}

static inline size_t list_count(const struct list *head) {
    size_t n = 0;
    for (const struct list *l = head->next; l != head; l = l->next)
        n++;
    return n;
}

#endif
