/* jinja_eval.h - runs a parsed template over values.
 *
 * Order: jeval_init, jeval_bind for each variable, jeval_run, then read `out`, and at the end (after
 * a failure too) jrun_deinit(&ev->run). The tree is only read: any number of runs may share it.
 * Scopes are those of Jinja: a loop's body, a macro and a generation block have their own, an if
 * has none. Failure: -1, the run's error.
 */
#ifndef SLUICE_MODEL_JINJA_EVAL_H
#define SLUICE_MODEL_JINJA_EVAL_H

#include "model/jinja_ast.h"

struct jundo { uint32_t sym; struct jv was; };

struct jeval {
    struct jrun run;
    const struct jast *ast;
    struct jv *slots;   /* values by symbol; JV_ABSENT = not set */
    struct jv *globals; /* the same as seen from outside of every scope: what a macro sees */
    struct jundo *undo; /* what leaving the open scopes puts back */
    size_t n_undo, cap_undo;
    int scopes;         /* open */
    int macros;         /* being run inside each other */
    struct jbuild *sink;
    struct jbuild out;
    enum { JEVAL_ON, JEVAL_BREAK, JEVAL_CONTINUE } flow;
};

int jeval_init(struct jeval *ev, const struct jast *ast, struct err *e);
void jeval_bind(struct jeval *ev, const char *name, struct jv v); /* a name not used: nothing */
int jeval_run(struct jeval *ev);

/* Of the two halves of the evaluator. */
int jeval_expr(struct jeval *ev, const struct jexpr *x, struct jv *out);
int jeval_macro(struct jeval *ev, const struct jexpr *call, struct jv *out);

#endif
