/* jinja_ast.h - the parsed template: nodes in the template's arena, read-only after parsing.
 *
 * Chains of equal precedence (a + b + c, a and b, a < b) are one node with many operands, so the
 * depth of the tree is the depth of nesting a person sees, and the evaluator's recursion is bounded
 * by JRUN_DEPTH_MAX for statements and for expressions.
 */
#ifndef SLUICE_MODEL_JINJA_AST_H
#define SLUICE_MODEL_JINJA_AST_H

#include "model/jinja_value.h"

enum jexpr_kind {
    JX_CONST,   /* value */
    JX_NAME,    /* id = symbol */
    JX_LIST,    /* args; id = 1: a tuple */
    JX_DICT,    /* args: key, value, key, value */
    JX_ARITH,   /* args; ops[i] joins args[i] and args[i + 1]: '+' '-' '*' '/' '%' 'f' (//) */
    JX_CONCAT,  /* args: ~ */
    JX_COMPARE, /* args; ops: '=' '!' '<' '>' 'l' (<=) 'g' (>=) 'i' (in) 'n' (not in) */
    JX_AND, JX_OR,
    JX_NOT, JX_NEG, JX_POS, /* args[0] */
    JX_COND,    /* args: test, then, else or NULL */
    JX_ATTR,    /* args[0], name */
    JX_ITEM,    /* args: object, key */
    JX_SLICE,   /* args: object, from, to, step; NULL = not given */
    JX_FILTER, JX_TEST, JX_METHOD, /* args[0] = subject, then arguments; fn */
    JX_CALL,    /* id = enum jfunc; args; names for namespace() */
    JX_MACRO    /* id = symbol called; args; names[i] NULL = by position */
};

enum jfunc { JF_NONE, JF_RAISE, JF_RANGE, JF_NAMESPACE, JF_NOW };

struct jbuiltin;

struct jexpr {
    enum jexpr_kind kind;
    uint32_t line;
    uint32_t depth;
    uint32_t id;
    struct jexpr **args;
    size_t n_args, cap_args;
    char *ops;
    size_t cap_ops;
    const char **names; /* as many as args, or NULL */
    size_t cap_names;
    const char *name;
    const struct jbuiltin *fn;
    struct jv value;
};

enum jstmt_kind {
    JS_TEXT,     /* text */
    JS_OUTPUT,   /* expr */
    JS_IF,       /* expr, body, orelse */
    JS_FOR,      /* targets, expr = items, cond, body, orelse */
    JS_SET,      /* targets[0], expr; name: of a namespace's attribute */
    JS_CAPTURE,  /* set ... endset: targets[0], body */
    JS_SCOPE,    /* generation block: body */
    JS_MACRO,    /* targets[0] = its name, the rest parameters; defaults; body */
    JS_BREAK, JS_CONTINUE
};

struct jstmt {
    enum jstmt_kind kind;
    uint32_t line;
    struct jstmt *next;
    struct jtext *text;
    struct jexpr *expr, *cond;
    struct jstmt *body, *orelse;
    uint32_t *targets;
    size_t n_targets;
    struct jexpr **defaults; /* of parameters; NULL entries: none */
    const char *name;
    /* JS_IF: an elif is the only statement of orelse; `elif` marks it, so that a long chain is
     * walked in a loop and not by recursion */
    bool elif;
};

struct jast {
    struct jstmt *body;
    const char **syms; /* names of variables by symbol */
    size_t n_syms, cap_syms;
};

#endif
