/* sim_what_if.c - see sim_what_if.h. */
#include "cli/sim_what_if.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 128

struct word {
    char key[WORD_MAX], name[WORD_MAX]; /* "weight", "A" */
    const char *value;
    double number;
    bool relative;
};

static int bad(struct err *e, const char *text, const char *what) {
    return err_set(e, ERR_INVALID, "'%.80s': %s", text, what);
}

static int split(struct word *w, const char *text, struct err *e) {
    const char *equals = strrchr(text, '='), *colon = strchr(text, ':');
    if (equals == NULL)
        return bad(e, text, "no '=' in it; such as workers=+1, weight:A=2, floor:batch=5%");
    if (colon != NULL && colon > equals)
        colon = NULL;
    size_t key = (size_t)((colon != NULL ? colon : equals) - text);
    size_t name = colon != NULL ? (size_t)(equals - colon - 1) : 0;
    if (key >= WORD_MAX || name >= WORD_MAX)
        return bad(e, text, "too long");
    memcpy(w->key, text, key);
    w->key[key] = '\0';
    memcpy(w->name, colon != NULL ? colon + 1 : "", name);
    w->name[name] = '\0';
    w->value = equals + 1;
    w->relative = *w->value == '+' || *w->value == '-';
    char *end;
    w->number = strtod(w->value, &end);
    if (end == w->value || !isfinite(w->number))
        return bad(e, text, "no number behind '='");
    if (*end == '%' && strcmp(w->key, "floor") == 0)
        end++;
    return *end == '\0' ? 0 : bad(e, text, "something behind its number");
}

static int set_workers(struct sim_plan *p, const struct word *w, const char *text, struct err *e) {
    double n = w->relative ? p->workers + w->number : w->number;
    if (w->name[0] != '\0' || n != floor(n) || n < 1 || n > SIM_WORKERS_MAX)
        return bad(e, text, "workers are 1 to 1000");
    p->workers = (uint32_t)n;
    return 0;
}

static int set_weight(struct sim_plan *p, const struct sim_trace *t, const struct word *w,
                      const char *text, struct err *e) {
    for (uint32_t i = 0; i < t->n_tenants; i++) {
        if (strcmp(t->tenants[i], w->name) != 0)
            continue;
        if (w->number < 0.001 || w->number > 65)
            return bad(e, text, "a weight is 0.001 to 65");
        p->weights[i] = (uint32_t)lround(w->number * 1000);
        return 0;
    }
    return bad(e, text, "no such tenant in the trace");
}

static int set_class(struct sim_plan *p, const struct word *w, const char *text, struct err *e) {
    int k = class_table_find(&p->classes, w->name);
    if (k < 0)
        return bad(e, text, "no such class");
    struct class_row *row = &p->classes.rows[k];
    double v = w->number;
    if (strcmp(w->key, "floor") == 0) {
        if (v < 0 || v > 90 || row->rank == 0)
            return bad(e, text, "a floor share is 0% to 90%, of a class below real-time");
        row->floor_permille = (uint32_t)lround(v * 10);
        return 0;
    }
    if (v < 0 || v > 1e6)
        return bad(e, text, "no time from 0 to 1000000");
    if (strcmp(w->key, "deadline") == 0)
        p->deadline_ns[k] = (uint64_t)(v * 1e9);
    else if (strcmp(w->key, "ttft") == 0)
        row->ttft_ms = (uint32_t)v;
    else
        row->tpot_ms = (uint32_t)v;
    return 0;
}

static int apply_word(struct sim_plan *p, const struct sim_trace *t, const char *text, struct err *e) {
    static const char *const of_class[] = {"floor", "deadline", "ttft", "tpot"};
    struct word w;
    if (split(&w, text, e) != 0)
        return -1;
    if (strcmp(w.key, "workers") == 0)
        return set_workers(p, &w, text, e);
    if (strcmp(w.key, "weight") == 0)
        return set_weight(p, t, &w, text, e);
    for (size_t i = 0; i < sizeof(of_class) / sizeof(of_class[0]); i++)
        if (strcmp(w.key, of_class[i]) == 0)
            return set_class(p, &w, text, e);
    return bad(e, text, "not one of workers, weight, floor, deadline, ttft, tpot");
}

int sim_what_if_apply(struct sim_plan *p, const struct sim_trace *t, const char *text, struct err *e) {
    char word[WORD_MAX];
    for (;;) {
        size_t n = strcspn(text, ",");
        if (n >= sizeof(word))
            return bad(e, text, "too long");
        memcpy(word, text, n);
        word[n] = '\0';
        if (apply_word(p, t, word, e) != 0)
            return -1;
        if (text[n] == '\0')
            return 0;
        text += n + 1;
    }
}

const char *sim_what_if_next(const char *list, char *out, size_t cap) {
    if (list == NULL || *list == '\0')
        return NULL;
    size_t n = strcspn(list, ";"), keep = n < cap ? n : cap - 1;
    memcpy(out, list, keep);
    out[keep] = '\0';
    return list + n + (list[n] != '\0');
}
