/* jinja_value.h - the values of a rendering: small structs passed by value, storage in the arena.
 *
 * Numbers and booleans carry a caller mark too, so that text made from them is the caller's.
 * Lists and dicts are never changed once made (real chat templates run in an immutable sandbox);
 * only a namespace is. Depth of nesting is bounded where values are walked, as a namespace can hold
 * itself. Failure: -1 with the run's error set.
 */
#ifndef SLUICE_MODEL_JINJA_VALUE_H
#define SLUICE_MODEL_JINJA_VALUE_H

#include "model/jinja_text.h"

#include <jansson.h>

enum jv_kind {
    JV_ABSENT, /* an argument that was not given */
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STR,
    JV_LIST,
    JV_DICT,
    JV_NS,    /* namespace(): u.dict, the one thing that changes */
    JV_LOOP,
    JV_FUNC,  /* a built-in function named but not called */
    JV_MACRO
};

struct jv {
    enum jv_kind kind;
    bool caller; /* not for JV_STR: the text has its marks */
    union {
        bool b;
        int64_t i;
        double f;
        struct jtext *s;
        struct jlist *list;
        struct jdict *dict;
        struct jloop *loop;
        const struct jstmt *macro;
        const char *name; /* of what is undefined, may be NULL */
    } u;
};

struct jlist { struct jv *v; size_t n, cap; bool tuple; };
struct jentry { struct jv key, val; };
struct jdict { struct jentry *e; size_t n, cap; };
struct jloop { const struct jlist *items; size_t i; };

struct jv jv_none(void);
struct jv jv_undef(const char *name);
struct jv jv_bool(bool b, bool caller);
struct jv jv_int(int64_t i, bool caller);
struct jv jv_float(double f, bool caller);
struct jv jv_text(struct jtext *t);
int jv_str_new(struct jrun *r, const char *p, size_t n, bool own, struct jv *out); /* borrows p */

int jv_list_new(struct jrun *r, size_t cap, bool tuple, struct jv *out);
int jlist_add(struct jrun *r, struct jlist *l, struct jv v);
int jv_dict_new(struct jrun *r, enum jv_kind kind, struct jv *out);
int jdict_set(struct jrun *r, struct jdict *d, struct jv key, struct jv val);
/* JV_ABSENT: there is none. */
int jdict_get(struct jrun *r, const struct jdict *d, struct jv key, struct jv *out);
int jdict_get_name(struct jrun *r, const struct jdict *d, const char *name, struct jv *out);

const char *jv_kind_name(struct jv v);
bool jv_truth(struct jv v);
bool jv_is_number(struct jv v); /* int, float or bool */
double jv_number(struct jv v);
/* Does anything of the caller's hide in it? Flattens text; lists and dicts: when any item does. */
int jv_is_caller(struct jrun *r, struct jv v, bool *out);
int jv_equal(struct jrun *r, struct jv a, struct jv b, bool *out);
/* -1, 0, 1 in *out; kinds that have no order are an error. */
int jv_order(struct jrun *r, struct jv a, struct jv b, int *out);
/* A list of what iterating gives: items, keys, characters; nothing for undefined. */
int jv_iterate(struct jrun *r, struct jv v, struct jv *list);

/* As Python's str() does: text as it is, "None", "True", repr of lists. */
int jv_str(struct jrun *r, struct jv v, struct jtext **out);
/* JSON as Python's json.dumps(ensure_ascii=False) writes it; indent < 0: on one line. */
int jv_json(struct jrun *r, struct jv v, int64_t indent, struct jtext **out);
/* All of it is the caller's; strings stay borrowed, so `j` must outlive the run. */
int jv_from_json(struct jrun *r, const json_t *j, struct jv *out);

#endif
