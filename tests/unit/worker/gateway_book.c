#include "tests/unit/worker/gateway_book.h"

#include "base/hash.h"

#include <string.h>

void book_line(struct line *l, uint32_t i) {
    *l = (struct line){.n_prompt = 1 + (uint32_t)(rand_at(BOOK_SEED, i) % BOOK_PROMPT_MAX),
                       .cls = i % 5 == 4 ? CLASS_REALTIME : CLASS_BATCH,
                       .temperature = i % 2 != 0 ? 1.0f : 0.0f};
    for (uint32_t k = 0; k < l->n_prompt; k++)
        l->ids[k] = RIG_BYTE('a' + rand_at(BOOK_SEED + 1 + i, k) % 26);
    l->n = l->n_prompt;
    l->max_total = l->n_prompt + 5 + (uint32_t)(rand_at(BOOK_SEED, 1000 + i) % (BOOK_OUT_MAX - 5));
}

void book_send(struct rig_gateway *g, struct book *b, struct line *l) {
    struct msg_stop stops[] = {{"qu", 2}};
    l->sub = (struct sub_id){g->incarnation, ++b->counter};
    l->state = LINE_SENT;
    b->submits++;
    struct msg m = {.kind = MSG_SUBMIT, .u.submit = rig_submit(l->sub, l->ids, l->n, l->max_total)};
    struct msg_submit *s = &m.u.submit;
    s->cls = l->cls;
    s->rank = l->cls != CLASS_REALTIME;
    s->n_prompt = l->n_prompt;
    s->tag = b->counter;
    s->temperature = l->temperature;
    s->seed = 1000 + l->n_prompt;
    s->stops = stops;
    s->n_stops = 1;
    s->min_total = l->n_prompt + 2;
    rig_send(g, &m);
}

static struct line *find_line(struct book *b, struct sub_id sub) {
    for (uint32_t i = 0; i < b->n; i++)
        if (b->lines[i].state == LINE_SENT && sub_id_equal(b->lines[i].sub, sub))
            return &b->lines[i];
    return NULL;
}

static void on_sync(struct rig_gateway *g, struct book *b, const struct msg_sync *s) {
    bool there[BOOK_LINES] = {false};
    b->syncs++;
    for (uint32_t k = 0; k < s->n; k++) {
        struct line *l = find_line(b, s->entries[k].sub);
        if (l == NULL) {
            rig_send_sub(g, MSG_CANCEL, s->entries[k].sub, 0);
            continue;
        }
        there[l - b->lines] = true;
        rig_send_sub(g, MSG_GAP, l->sub, l->n);
    }
    for (uint32_t i = 0; !b->live && i < b->n; i++)
        if (b->lines[i].state == LINE_WAITS || (b->lines[i].state == LINE_SENT && !there[i]))
            book_send(g, b, &b->lines[i]);
    b->live = true;
}

static void on_entry(struct rig_gateway *g, struct book *b, const struct msg_tokens_entry *t) {
    struct line *l = find_line(b, t->sub);
    if (l == NULL) {
        if (t->finish != FINISH_CANCELLED && t->finish != FINISH_UNKNOWN)
            rig_send_sub(g, MSG_CANCEL, t->sub, 0);
        return;
    }
    if (t->finish == FINISH_HANDED_BACK || t->finish == FINISH_UNKNOWN) {
        rig_send_sub(g, MSG_ACK, t->sub, 0);
        book_send(g, b, l);
        return;
    }
    if (t->index > l->n) {
        rig_send_sub(g, MSG_GAP, l->sub, l->n);
        return;
    }
    for (uint32_t k = 0; k < t->n; k++) {
        uint32_t at = t->index + k;
        ck_assert_uint_lt(at, l->max_total);
        if (at < l->n)
            ck_assert_int_eq(l->ids[at], t->records[k].id); /* said twice, never changed */
        l->ids[at] = t->records[k].id;
        if (at == l->n)
            l->n++;
        b->tokens++;
    }
    if (t->finish != FINISH_NONE && t->index + t->n == l->n) {
        l->finish = t->finish;
        l->visible = t->visible_bytes;
        l->state = LINE_DONE;
        rig_send_sub(g, MSG_ACK, l->sub, 0);
    } else if (l->cancel_at != 0 && l->n >= l->n_prompt + l->cancel_at) {
        rig_send_sub(g, MSG_CANCEL, l->sub, 0);
        l->state = LINE_DONE;
    }
}

void book_message(struct rig_gateway *g, struct book *b, const struct msg *m) {
    switch (m->kind) {
    case MSG_HELLO:
        b->live = false;
        rig_accept(g);
        break;
    case MSG_SYNC: on_sync(g, b, &m->u.sync); break;
    case MSG_TOKENS:
        for (uint32_t i = 0; i < m->u.tokens.n; i++)
            on_entry(g, b, &m->u.tokens.entries[i]);
        break;
    case MSG_BYE: /* of a worker that ended before this book began */
    case MSG_STATUS: break;
    default: ck_abort_msg("unexpected message %s", msg_name(m->kind));
    }
}

static bool all_done(const struct book *b) {
    for (uint32_t i = 0; i < b->n; i++)
        if (b->lines[i].state != LINE_DONE)
            return false;
    return true;
}

void book_run(struct rig_gateway *g, struct book *b, uint64_t cut_every) {
    uint64_t cut_at = cut_every;
    while (!all_done(b)) {
        struct msg m;
        rig_wait(g, &m);
        book_message(g, b, &m);
        msg_deinit(&m);
        if (cut_every != 0 && b->tokens >= cut_at && b->live) {
            cut_at = b->tokens + cut_every;
            b->live = false;
            rig_cut(g);
        }
    }
}

void book_compare(const struct line *alone, const struct line *got, uint32_t i) {
    ck_assert_msg(got->n <= alone->n && (got->cancel_at != 0 || got->n == alone->n),
                  "line %u: %u ids, alone %u", i, got->n, alone->n);
    ck_assert_msg(memcmp(alone->ids, got->ids, got->n * sizeof(int32_t)) == 0, "line %u differs",
                  i);
    if (got->finish == FINISH_NONE)
        return; /* cancelled */
    ck_assert_int_eq(got->finish, alone->finish);
    ck_assert_uint_eq(got->visible, alone->visible);
}
