#include "worker/engine/copy_book.h"

#include "base/mem.h"

#include <assert.h>

int copy_book_init(struct copy_book *b, uint32_t n_blocks, struct err *e)
{
    *b = (struct copy_book){.reads = mem_array(n_blocks, 1), .writes = mem_array(n_blocks, 1)};
    if (b->reads == NULL || b->writes == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for the engine's checks of copies");
    return 0;
}

void copy_book_deinit(struct copy_book *b)
{
    mem_free(b->reads);
    mem_free(b->writes);
    *b = (struct copy_book){0};
}

static bool from_block(const struct engine_copy *c)
{
    return c->kind != ENGINE_COPY_HOST_TO_BLOCK;
}

static bool to_block(const struct engine_copy *c)
{
    return c->kind != ENGINE_COPY_BLOCK_TO_HOST;
}

/* Host slots are few users' business: looked for in the list. */
static bool slots_meet(const struct engine_copy *a, const struct engine_copy *b)
{
    if (!to_block(a) && !to_block(b))
        return a->to == b->to;
    if (!to_block(a) && !from_block(b))
        return a->to == b->from;
    return !from_block(a) && !to_block(b) && a->from == b->to;
}

bool copy_book_may(const struct copy_book *b, const struct engine_copy *c)
{
    if (b->n_live == ENGINE_COPIES_MAX)
        return false;
    if (from_block(c) && b->writes[c->from])
        return false;
    if (to_block(c) && (b->writes[c->to] || b->reads[c->to] != 0))
        return false;
    for (uint32_t i = 0; i < b->n_live; i++)
        if (b->live[i].id == c->id || slots_meet(&b->live[i], c))
            return false;
    return true;
}

void copy_book_add(struct copy_book *b, const struct engine_copy *c)
{
    assert(b->n_live < ENGINE_COPIES_MAX);
    b->live[b->n_live++] = *c;
    if (from_block(c))
        b->reads[c->from]++;
    if (to_block(c))
        b->writes[c->to] = 1;
}

struct engine_copy copy_book_end(struct copy_book *b, uint64_t id)
{
    uint32_t i = 0;
    while (i < b->n_live && b->live[i].id != id)
        i++;
    if (i == b->n_live)
        return (struct engine_copy){0};
    struct engine_copy c = b->live[i];
    b->live[i] = b->live[--b->n_live];
    if (from_block(&c))
        b->reads[c.from]--;
    if (to_block(&c))
        b->writes[c.to] = 0;
    return c;
}
