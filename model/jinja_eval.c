/* Statements. Expressions are in jinja_eval_expr.c. */
#include "model/jinja_eval.h"

#include "model/jinja_parse.h"

#include <assert.h>
#include <string.h>

int jeval_init(struct jeval *ev, const struct jast *ast, struct err *e)
{
    memset(ev, 0, sizeof *ev);
    jrun_init(&ev->run, e);
    ev->ast = ast;
    ev->out.run = &ev->run;
    ev->sink = &ev->out;
    ev->slots = jrun_array(&ev->run, ast->n_syms + 1, sizeof *ev->slots);
    ev->globals = jrun_array(&ev->run, ast->n_syms + 1, sizeof *ev->globals);
    return ev->slots && ev->globals ? 0 : -1;
}

void jeval_bind(struct jeval *ev, const char *name, struct jv v)
{
    uint32_t sym = jast_symbol(ev->ast, name);
    assert(!ev->scopes);
    if (sym != UINT32_MAX)
        ev->slots[sym] = ev->globals[sym] = v;
}

static int set_var(struct jeval *ev, uint32_t sym, struct jv v)
{
    if (!ev->scopes) {
        ev->slots[sym] = ev->globals[sym] = v;
        return 0;
    }
    struct jundo *u = jrun_grow(&ev->run, ev->undo, &ev->cap_undo, ev->n_undo + 1, sizeof *u);
    if (!u)
        return -1;
    ev->undo = u;
    u[ev->n_undo++] = (struct jundo){sym, ev->slots[sym]};
    ev->slots[sym] = v;
    return 0;
}

static size_t scope_open(struct jeval *ev)
{
    ev->scopes++;
    return ev->n_undo;
}

/* On an error the run is over, so only whole scopes are closed. */
static void scope_close(struct jeval *ev, size_t mark)
{
    assert(ev->scopes > 0 && ev->n_undo >= mark);
    while (ev->n_undo > mark) {
        ev->n_undo--;
        ev->slots[ev->undo[ev->n_undo].sym] = ev->undo[ev->n_undo].was;
    }
    ev->scopes--;
}

static int run_body(struct jeval *ev, const struct jstmt *s);

static int run_scope(struct jeval *ev, const struct jstmt *s)
{
    size_t mark = scope_open(ev);
    int rc = run_body(ev, s);
    scope_close(ev, mark);
    return rc;
}

static int run_output(struct jeval *ev, const struct jstmt *s)
{
    struct jv v;
    struct jtext *t;
    return jeval_expr(ev, s->expr, &v) || jv_str(&ev->run, v, &t) || jbuild_text(ev->sink, t) ||
           jrun_step(&ev->run, t->n) ? -1 : 0;
}

static int run_if(struct jeval *ev, const struct jstmt *s)
{
    for (;;) {
        struct jv v;
        ev->run.line = s->line;
        if (jeval_expr(ev, s->expr, &v))
            return -1;
        if (jv_truth(v))
            return run_body(ev, s->body);
        if (!s->orelse || !s->orelse->elif)
            return run_body(ev, s->orelse);
        s = s->orelse;
    }
}

static int set_targets(struct jeval *ev, const struct jstmt *s, struct jv v)
{
    struct jv parts;
    if (s->n_targets == 1)
        return set_var(ev, s->targets[0], v);
    if (jv_iterate(&ev->run, v, &parts))
        return -1;
    if (parts.u.list->n != s->n_targets)
        return jrun_fail(&ev->run, ERR_INVALID, "%zu values for %zu loop variables",
                         parts.u.list->n, s->n_targets);
    for (size_t i = 0; i < s->n_targets; i++)
        if (set_var(ev, s->targets[i], parts.u.list->v[i]))
            return -1;
    return 0;
}

/* The loop's `if`: what it leaves out does not count for loop.index and loop.length. */
static int filter_items(struct jeval *ev, const struct jstmt *s, struct jv *items)
{
    struct jv kept, v;
    if (!s->cond)
        return 0;
    if (jv_list_new(&ev->run, 0, false, &kept))
        return -1;
    for (size_t i = 0; i < items->u.list->n; i++) {
        size_t mark = scope_open(ev);
        int rc = set_targets(ev, s, items->u.list->v[i]) || jeval_expr(ev, s->cond, &v) ||
                 (jv_truth(v) && jlist_add(&ev->run, kept.u.list, items->u.list->v[i]));
        scope_close(ev, mark);
        if (rc)
            return -1;
    }
    *items = kept;
    return 0;
}

static int run_for(struct jeval *ev, const struct jstmt *s)
{
    struct jv v, items;
    if (jeval_expr(ev, s->expr, &v) || jv_iterate(&ev->run, v, &items) ||
        filter_items(ev, s, &items))
        return -1;
    if (!items.u.list->n)
        return run_body(ev, s->orelse);
    uint32_t loop_sym = jast_symbol(ev->ast, "loop");
    for (size_t i = 0, n = items.u.list->n; i < n && ev->flow != JEVAL_BREAK; i++) {
        size_t mark = scope_open(ev);
        int rc = 0;
        if (loop_sym != UINT32_MAX) {
            struct jloop *l = jrun_alloc(&ev->run, sizeof *l);
            rc = !l;
            if (l) {
                *l = (struct jloop){items.u.list, i};
                struct jv loop = {.kind = JV_LOOP, .caller = true, .u.loop = l};
                rc = set_var(ev, loop_sym, loop);
            }
        }
        ev->flow = JEVAL_ON;
        rc = rc || jrun_step(&ev->run, 0) || set_targets(ev, s, items.u.list->v[i]) ||
             run_body(ev, s->body);
        scope_close(ev, mark);
        if (rc)
            return -1;
    }
    ev->flow = JEVAL_ON;
    return 0;
}

static int run_set(struct jeval *ev, const struct jstmt *s)
{
    struct jv v;
    if (jeval_expr(ev, s->expr, &v))
        return -1;
    if (!s->name)
        return set_var(ev, s->targets[0], v);
    struct jv ns = ev->slots[s->targets[0]];
    if (ns.kind != JV_NS)
        return jrun_fail(&ev->run, ERR_INVALID, "'%s' is not a namespace",
                         ev->ast->syms[s->targets[0]]);
    struct jv key;
    if (jv_str_new(&ev->run, s->name, strlen(s->name), true, &key))
        return -1;
    return jdict_set(&ev->run, ns.u.dict, key, v);
}

/* Runs a body with its output caught as a text. */
static int capture(struct jeval *ev, const struct jstmt *body, struct jv *out)
{
    struct jbuild b = {.run = &ev->run}, *sink = ev->sink;
    ev->sink = &b;
    int rc = run_scope(ev, body);
    ev->sink = sink;
    struct jtext *t = rc ? NULL : jbuild_done(&b);
    if (!t)
        return -1;
    *out = jv_text(t);
    return 0;
}

static int bind_params(struct jeval *ev, const struct jstmt *m, const struct jexpr *call,
                       const struct jv *args)
{
    for (size_t i = 1; i < m->n_targets; i++) {
        struct jv v = {.kind = JV_ABSENT};
        for (size_t k = 0; k < call->n_args; k++) {
            const char *name = call->names[k];
            if (name ? !strcmp(name, ev->ast->syms[m->targets[i]]) : k == i - 1)
                v = args[k];
        }
        if (v.kind == JV_ABSENT) {
            if (!m->defaults[i])
                v = jv_undef(ev->ast->syms[m->targets[i]]);
            else if (jeval_expr(ev, m->defaults[i], &v))
                return -1;
        }
        if (set_var(ev, m->targets[i], v))
            return -1;
    }
    return 0;
}

/* A macro sees its arguments and what is set outside of every scope, not its caller's loop
 * variables: it runs over a copy of the globals. */
static int run_macro(struct jeval *ev, const struct jstmt *m, const struct jexpr *call,
                     const struct jv *args, struct jv *out)
{
    size_t n = ev->ast->n_syms;
    struct jv *slots = ev->slots, *mine = jrun_array(&ev->run, n, sizeof *mine);
    if (!mine || jrun_step(&ev->run, n * sizeof *mine))
        return -1;
    memcpy(mine, ev->globals, n * sizeof *mine);
    ev->slots = mine;
    size_t mark = scope_open(ev);
    int rc = bind_params(ev, m, call, args) || capture(ev, m->body, out);
    scope_close(ev, mark);
    ev->slots = slots;
    return rc ? -1 : 0;
}

int jeval_macro(struct jeval *ev, const struct jexpr *call, struct jv *out)
{
    struct jv v = ev->slots[call->id];
    struct jv *args = jrun_array(&ev->run, call->n_args + 1, sizeof *args);
    if (!args)
        return -1;
    if (v.kind != JV_MACRO)
        v = ev->globals[call->id];
    if (v.kind != JV_MACRO)
        return jrun_fail(&ev->run, ERR_INVALID, "'%s' is not a macro here", call->name);
    for (size_t i = 0; i < call->n_args; i++)
        if (jeval_expr(ev, call->args[i], &args[i]))
            return -1;
    if (call->n_args >= v.u.macro->n_targets)
        return jrun_fail(&ev->run, ERR_INVALID, "too many arguments for macro '%s'", call->name);
    if (++ev->macros > JRUN_DEPTH_MAX / 4)
        return jrun_fail(&ev->run, ERR_TOO_LARGE, "macros call each other deeper than %d levels",
                         JRUN_DEPTH_MAX / 4);
    int rc = run_macro(ev, v.u.macro, call, args, out);
    ev->macros--;
    return rc;
}

static int run_stmt(struct jeval *ev, const struct jstmt *s)
{
    struct jv v;
    switch (s->kind) {
    case JS_TEXT: return jbuild_text(ev->sink, s->text) || jrun_step(&ev->run, s->text->n) ? -1 : 0;
    case JS_OUTPUT: return run_output(ev, s);
    case JS_IF: return run_if(ev, s);
    case JS_FOR: return run_for(ev, s);
    case JS_SET: return run_set(ev, s);
    case JS_CAPTURE: return capture(ev, s->body, &v) ? -1 : set_var(ev, s->targets[0], v);
    case JS_SCOPE: return run_scope(ev, s->body);
    case JS_MACRO:
        return set_var(ev, s->targets[0], (struct jv){.kind = JV_MACRO, .u.macro = s});
    case JS_BREAK: ev->flow = JEVAL_BREAK; return 0;
    case JS_CONTINUE: ev->flow = JEVAL_CONTINUE; return 0;
    }
    return 0;
}

static int run_body(struct jeval *ev, const struct jstmt *s)
{
    for (; s && ev->flow == JEVAL_ON; s = s->next) {
        ev->run.line = s->line;
        if (jrun_step(&ev->run, 0) || run_stmt(ev, s))
            return -1;
    }
    return 0;
}

int jeval_run(struct jeval *ev)
{
    return run_body(ev, ev->ast->body);
}
