/* Names and literals, and what may follow them: .attr [item] (call) |filter is-test. */
#include "model/jinja_parse_priv.h"

#include "model/jinja_builtin.h"

#include <assert.h>
#include <string.h>

static int cut(const struct jtok *t)
{
    return t->n > 60 ? 60 : (int)t->n;
}

static int unsupported(struct jparse *p, const char *what, const struct jtok *t)
{
    p->run->line = t->line;
    return jrun_fail(p->run, ERR_UNSUPPORTED, "%s '%.*s' is not supported", what, cut(t), t->p);
}

static int make_const(struct jparse *p, struct jv v, struct jexpr **out)
{
    *out = jexpr_new(p, JX_CONST, p->tok.line);
    if (!*out)
        return -1;
    (*out)->value = v;
    return jparse_advance(p);
}

/* Neighbouring string literals are one string. */
static int parse_string(struct jparse *p, struct jexpr **out)
{
    struct jtext *t = jtext_borrow(p->run, p->tok.p, p->tok.n, true);
    if (!t || make_const(p, jv_text(t), out))
        return -1;
    while (p->tok.kind == JTOK_STRING) {
        struct jtext *more = jtext_borrow(p->run, p->tok.p, p->tok.n, true);
        if (!more || !(t = jtext_cat(p->run, t, more)) || jtext_flat(p->run, t) ||
            jparse_advance(p))
            return -1;
        (*out)->value = jv_text(t);
    }
    return 0;
}

/* After the opening bracket: items up to `close`. *comma says that one was seen (a tuple). */
static int parse_items(struct jparse *p, struct jexpr *x, const char *close, bool *comma)
{
    bool done, more;
    *comma = false;
    if (jparse_take(p, JTOK_OP, close, &done))
        return -1;
    while (!done) {
        struct jexpr *item;
        if (jparse_expr(p, &item) || jexpr_add(p, x, item) ||
            jparse_take(p, JTOK_OP, ",", &more) || jparse_take(p, JTOK_OP, close, &done))
            return -1;
        *comma |= more;
        if (!more && !done)
            return jparse_unexpected(p, "in a list");
    }
    return 0;
}

static int parse_paren(struct jparse *p, struct jexpr **out)
{
    bool comma;
    struct jexpr *x = jexpr_new(p, JX_LIST, p->tok.line);
    if (!x || jparse_advance(p) || parse_items(p, x, ")", &comma))
        return -1;
    x->id = 1;
    *out = x->n_args == 1 && !comma ? x->args[0] : x;
    return 0;
}

static int parse_dict(struct jparse *p, struct jexpr **out)
{
    struct jexpr *x = jexpr_new(p, JX_DICT, p->tok.line), *key, *val;
    bool done, more;
    if (!x || jparse_advance(p) || jparse_take(p, JTOK_OP, "}", &done))
        return -1;
    while (!done) {
        if (jparse_expr(p, &key) || jparse_take(p, JTOK_OP, ":", NULL) || jparse_expr(p, &val) ||
            jexpr_add(p, x, key) || jexpr_add(p, x, val) ||
            jparse_take(p, JTOK_OP, ",", &more) || jparse_take(p, JTOK_OP, "}", &done))
            return -1;
        if (!more && !done)
            return jparse_unexpected(p, "in an object");
    }
    *out = x;
    return 0;
}

static int parse_name(struct jparse *p, struct jexpr **out)
{
    static const struct { const char *name; int value; } words[] = {
        {"true", 1}, {"True", 1}, {"false", 0}, {"False", 0}, {"none", 2}, {"None", 2}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jparse_is(p, JTOK_NAME, words[i].name))
            return make_const(p, words[i].value == 2 ? jv_none() : jv_bool(words[i].value, false),
                              out);
    *out = jexpr_new(p, JX_NAME, p->tok.line);
    if (!*out || jparse_symbol(p, &p->tok, &(*out)->id))
        return -1;
    (*out)->name = p->ast->syms[(*out)->id];
    return jparse_advance(p);
}

int jparse_primary(struct jparse *p, struct jexpr **out)
{
    bool comma;
    p->run->line = p->tok.line;
    switch (p->tok.kind) {
    case JTOK_NAME: return parse_name(p, out);
    case JTOK_STRING: return parse_string(p, out);
    case JTOK_INT: return make_const(p, jv_int(p->tok.i, false), out);
    case JTOK_FLOAT: return make_const(p, jv_float(p->tok.f, false), out);
    default: break;
    }
    if (jparse_is(p, JTOK_OP, "("))
        return parse_paren(p, out);
    if (jparse_is(p, JTOK_OP, "{"))
        return parse_dict(p, out);
    if (!jparse_is(p, JTOK_OP, "["))
        return jparse_unexpected(p, "where a value is needed");
    *out = jexpr_new(p, JX_LIST, p->tok.line);
    return !*out || jparse_advance(p) || parse_items(p, *out, "]", &comma) ? -1 : 0;
}

/* After "(": arguments into x, with the names of those given by name. */
static int parse_args(struct jparse *p, struct jexpr *x)
{
    bool done, more;
    if (jparse_take(p, JTOK_OP, ")", &done))
        return -1;
    while (!done) {
        struct jexpr *arg;
        const char *name = NULL;
        if (jparse_is(p, JTOK_OP, "*") || jparse_is(p, JTOK_OP, "**"))
            return jrun_fail(p->run, ERR_UNSUPPORTED,
                             "unpacking arguments with '*' is not supported");
        if (p->tok.kind == JTOK_NAME && p->next.kind == JTOK_OP && p->next.n == 1 &&
            *p->next.p == '=') {
            name = p->tok.p;
            if (jparse_advance(p) || jparse_advance(p))
                return -1;
        } else if (x->n_args && x->names && x->names[x->n_args - 1]) {
            return jrun_fail(p->run, ERR_BAD_FILE, "an argument by position after one by name");
        }
        const char **names =
            jrun_grow(p->run, x->names, &x->cap_names, x->n_args + 1, sizeof *names);
        if (!names)
            return -1;
        x->names = names;
        names[x->n_args] = name;
        if (jparse_expr(p, &arg) || jexpr_add(p, x, arg) ||
            jparse_take(p, JTOK_OP, ",", &more) || jparse_take(p, JTOK_OP, ")", &done))
            return -1;
        if (!more && !done)
            return jparse_unexpected(p, "in arguments");
    }
    return 0;
}

/* Arguments to the parameters of a built-in: x gets subject + one place per parameter. */
static int bind_args(struct jparse *p, struct jexpr *x, struct jexpr *subject,
                     const struct jexpr *call, const char *what)
{
    struct jexpr *places[JBUILTIN_ARGS] = {NULL};
    const struct jbuiltin *fn = x->fn;
    size_t n_params = 0, given = 0;
    p->run->line = x->line;
    while (n_params < JBUILTIN_ARGS && fn->params[n_params])
        n_params++;
    for (size_t i = 0; call && i < call->n_args; i++) {
        size_t k = i;
        const char *name = call->names[i];
        for (k = name ? 0 : i; name && k < n_params && strcmp(fn->params[k], name) != 0;)
            k++;
        if (k >= n_params && name)
            return jrun_fail(p->run, ERR_UNSUPPORTED, "%s '%s': argument '%.60s' is not supported",
                             what, fn->name, name);
        if (k >= n_params || places[k])
            return jrun_fail(p->run, ERR_UNSUPPORTED, "%s '%s': these arguments are not supported",
                             what, fn->name);
        places[k] = call->args[i];
        given++;
    }
    if (given < fn->min)
        return jrun_fail(p->run, ERR_BAD_FILE, "%s '%s' needs %zu argument%s", what, fn->name,
                         fn->min, fn->min == 1 ? "" : "s");
    if (jexpr_add(p, x, subject))
        return -1;
    for (size_t i = 0; i < JBUILTIN_ARGS; i++)
        if (jexpr_add(p, x, places[i]))
            return -1;
    return 0;
}

/* A filter or test named by a string argument is looked up now, when the string is a literal. */
static int check_named(struct jparse *p, const struct jexpr *x)
{
    const char *f = x->fn->name;
    bool attr = !strcmp(f, "selectattr") || !strcmp(f, "rejectattr");
    bool test = attr || !strcmp(f, "select") || !strcmp(f, "reject");
    const struct jexpr *arg = test ? x->args[attr ? 2 : 1] : !strcmp(f, "map") ? x->args[1] : NULL;
    if (!arg)
        return 0;
    if (arg->kind != JX_CONST || arg->value.kind != JV_STR)
        return jrun_fail(p->run, ERR_UNSUPPORTED,
                         "filter '%s' with a computed name is not supported", f);
    struct jtok name = {.line = arg->line, .p = arg->value.u.s->p, .n = arg->value.u.s->n};
    const struct jbuiltin *fn = test ? jtest_find(name.p, name.n) : jfilter_find(name.p, name.n);
    if (!fn)
        return unsupported(p, test ? "test" : "filter", &name);
    if (!test && fn->min)
        return unsupported(p, "map with filter", &name);
    return 0;
}

static int parse_method(struct jparse *p, struct jexpr **x, const struct jtok *name)
{
    struct jexpr *call = jexpr_new(p, JX_CALL, name->line);
    struct jexpr *m = jexpr_new(p, JX_METHOD, name->line);
    if (!call || !m)
        return -1;
    m->fn = jmethod_find(name->p, name->n);
    if (!m->fn)
        return unsupported(p, "method", name);
    if (jparse_advance(p) || parse_args(p, call) || bind_args(p, m, *x, call, "method"))
        return -1;
    *x = m;
    return 0;
}

static int parse_dot(struct jparse *p, struct jexpr **x)
{
    struct jtok name;
    if (jparse_advance(p))
        return -1;
    name = p->tok;
    if (name.kind != JTOK_NAME)
        return jparse_unexpected(p, "after '.'");
    if (jparse_advance(p))
        return -1;
    if (jparse_is(p, JTOK_OP, "("))
        return parse_method(p, x, &name);
    struct jexpr *a = jexpr_new(p, JX_ATTR, name.line);
    if (!a || jexpr_add(p, a, *x))
        return -1;
    a->name = name.p;
    *x = a;
    return 0;
}

/* obj[key] or obj[from:to:step] */
static int parse_subscript(struct jparse *p, struct jexpr **x)
{
    struct jexpr *part[3] = {NULL}, *item = jexpr_new(p, JX_ITEM, p->tok.line);
    int n = 0;
    bool closed = false, colon;
    if (!item || jexpr_add(p, item, *x) || jparse_advance(p))
        return -1;
    while (!closed) {
        if (!jparse_is(p, JTOK_OP, ":") && !jparse_is(p, JTOK_OP, "]") && jparse_expr(p, &part[n]))
            return -1;
        if (jparse_take(p, JTOK_OP, ":", &colon))
            return -1;
        if (colon && ++n == 3)
            return jrun_fail(p->run, ERR_BAD_FILE, "a slice has at most three parts");
        if (!colon && jparse_take(p, JTOK_OP, "]", NULL))
            return -1;
        closed = !colon;
    }
    item->kind = n ? JX_SLICE : JX_ITEM;
    if (!n && !part[0])
        return jrun_fail(p->run, ERR_BAD_FILE, "an index is missing");
    for (int i = 0; i < (n ? 3 : 1); i++)
        if (jexpr_add(p, item, part[i]))
            return -1;
    *x = item;
    return 0;
}

static int check_namespace(struct jparse *p, const struct jexpr *call)
{
    for (size_t i = 0; i < call->n_args; i++)
        if (!call->names[i])
            return jrun_fail(p->run, ERR_UNSUPPORTED,
                             "namespace() with an argument by position is not supported");
    return 0;
}

/* name(...): a built-in function or a macro defined above. */
static int parse_call(struct jparse *p, struct jexpr **x)
{
    static const struct { const char *name; enum jfunc f; size_t min, max; } funcs[] = {
        {"raise_exception", JF_RAISE, 1, 1}, {"range", JF_RANGE, 1, 3},
        {"namespace", JF_NAMESPACE, 0, SIZE_MAX}, {"strftime_now", JF_NOW, 1, 1}};
    struct jexpr *name = *x, *call;
    p->run->line = p->tok.line;
    if (name->kind != JX_NAME)
        return jrun_fail(p->run, ERR_UNSUPPORTED, "calling a value is not supported");
    bool macro = jparse_is_macro(p, name->id);
    call = jexpr_new(p, macro ? JX_MACRO : JX_CALL, name->line);
    if (!call || jparse_advance(p) || parse_args(p, call))
        return -1;
    p->run->line = name->line;
    call->id = macro ? name->id : JF_NONE;
    call->name = name->name;
    *x = call;
    for (size_t i = 0; !macro && i < sizeof funcs / sizeof *funcs; i++) {
        if (strcmp(funcs[i].name, name->name) != 0)
            continue;
        call->id = funcs[i].f;
        if (call->n_args < funcs[i].min || call->n_args > funcs[i].max)
            return jrun_fail(p->run, ERR_BAD_FILE, "wrong number of arguments for '%s'",
                             name->name);
        if (call->id == JF_NAMESPACE)
            return check_namespace(p, call);
        for (size_t k = 0; k < call->n_args; k++)
            if (call->names[k])
                return jrun_fail(p->run, ERR_UNSUPPORTED,
                                 "function '%s': arguments by name are not supported", name->name);
    }
    if (!macro && (call->id == JF_NONE || (call->id == JF_NOW && !p->now_known)))
        return jrun_fail(p->run, ERR_UNSUPPORTED, "function '%.60s' is not supported%s", name->name,
                         call->id == JF_NOW ? " (a prompt must not depend on the clock)" : "");
    return 0;
}

int jparse_postfix(struct jparse *p, struct jexpr **x)
{
    for (;;) {
        int rc;
        if (jparse_is(p, JTOK_OP, "."))
            rc = parse_dot(p, x);
        else if (jparse_is(p, JTOK_OP, "["))
            rc = parse_subscript(p, x);
        else if (jparse_is(p, JTOK_OP, "("))
            rc = parse_call(p, x);
        else
            return 0;
        if (rc)
            return -1;
    }
}

static int parse_filter(struct jparse *p, struct jexpr **x)
{
    struct jexpr *f = jexpr_new(p, JX_FILTER, p->tok.line), *call = NULL;
    if (!f || jparse_advance(p))
        return -1;
    if (p->tok.kind != JTOK_NAME)
        return jparse_unexpected(p, "where a filter's name is needed");
    f->fn = jfilter_find(p->tok.p, p->tok.n);
    if (!f->fn)
        return unsupported(p, "filter", &p->tok);
    if (jparse_advance(p))
        return -1;
    if (jparse_is(p, JTOK_OP, "(")) {
        call = jexpr_new(p, JX_CALL, p->tok.line);
        if (!call || jparse_advance(p) || parse_args(p, call))
            return -1;
    }
    if (bind_args(p, f, *x, call, "filter") || check_named(p, f))
        return -1;
    *x = f;
    return 0;
}

/* subject is [not] test, the argument with or without brackets */
static int parse_test(struct jparse *p, struct jexpr **x)
{
    bool negated;
    struct jexpr *t = jexpr_new(p, JX_TEST, p->tok.line), *call = NULL, *arg;
    if (!t || jparse_advance(p) || jparse_take(p, JTOK_NAME, "not", &negated))
        return -1;
    if (p->tok.kind != JTOK_NAME)
        return jparse_unexpected(p, "where a test's name is needed");
    t->fn = jtest_find(p->tok.p, p->tok.n);
    if (!t->fn)
        return unsupported(p, "test", &p->tok);
    if (jparse_advance(p))
        return -1;
    if (jparse_is(p, JTOK_OP, "(")) {
        call = jexpr_new(p, JX_CALL, p->tok.line);
        if (!call || jparse_advance(p) || parse_args(p, call))
            return -1;
    } else if (t->fn->min) {
        call = jexpr_new(p, JX_CALL, p->tok.line);
        const char **none = jrun_alloc(p->run, sizeof *none);
        if (!call || !none || jparse_primary(p, &arg) || jparse_postfix(p, &arg) ||
            jexpr_add(p, call, arg))
            return -1;
        call->names = none;
    }
    if (bind_args(p, t, *x, call, "test"))
        return -1;
    *x = t;
    if (!negated)
        return 0;
    *x = jexpr_new(p, JX_NOT, t->line);
    return !*x || jexpr_add(p, *x, t) ? -1 : 0;
}

int jparse_filters(struct jparse *p, struct jexpr **x)
{
    for (;;) {
        int rc;
        if (jparse_is(p, JTOK_OP, "|"))
            rc = parse_filter(p, x);
        else if (jparse_is(p, JTOK_NAME, "is"))
            rc = parse_test(p, x);
        else if (jparse_is(p, JTOK_OP, "("))
            rc = jrun_fail(p->run, ERR_UNSUPPORTED, "calling a value is not supported");
        else
            return 0;
        if (rc)
            return -1;
    }
}
