/* jinja_builtin.h - filters, tests and methods: tables of name, parameters and function.
 *
 * The parser looks a name up here and binds arguments to parameters, so that an unknown one is
 * refused at start, by name and line, and a function sees its arguments by position.
 */
#ifndef SLUICE_MODEL_JINJA_BUILTIN_H
#define SLUICE_MODEL_JINJA_BUILTIN_H

#include "model/jinja_value.h"

#define JBUILTIN_ARGS 3

/* args: JBUILTIN_ARGS values, JV_ABSENT where not given. */
typedef int (*jbuiltin_fn)(struct jrun *r, struct jv self, const struct jv *args, struct jv *out);

struct jbuiltin {
    const char *name;
    jbuiltin_fn fn;
    size_t min;                        /* arguments needed */
    const char *params[JBUILTIN_ARGS]; /* NULL ends; "" = by position only */
};

const struct jbuiltin *jfilter_find(const char *name, size_t n);
const struct jbuiltin *jtest_find(const char *name, size_t n);
const struct jbuiltin *jmethod_find(const char *name, size_t n);

/* obj.name and obj[key]: JV_UNDEF when there is none (an error on an undefined obj). */
int jv_attr(struct jrun *r, struct jv obj, const char *name, struct jv *out);
int jv_item(struct jrun *r, struct jv obj, struct jv key, struct jv *out);
int jv_slice(struct jrun *r, struct jv obj, const struct jv *from_to_step, struct jv *out);
/* `what in where`. */
int jv_contains(struct jrun *r, struct jv where, struct jv what, bool *out);
/* a op b, ops as in JX_ARITH. */
int jv_arith(struct jrun *r, char op, struct jv a, struct jv b, struct jv *out);

#endif
