/* id_list.c - a growing list of token ids (contract in tokenizer.h). */
#include "model/tokenizer.h"

#include "base/mem.h"

#include <string.h>

void id_list_deinit(struct id_list *l)
{
    mem_free(l->ids);
    memset(l, 0, sizeof *l);
}

int id_list_add(struct id_list *l, const int32_t *ids, size_t n)
{
    if (n > l->cap - l->n) {
        size_t cap = l->cap < 64 ? 64 : l->cap;
        while (cap - l->n < n) {
            if (cap > SIZE_MAX / 2 / sizeof *ids)
                return -1;
            cap *= 2;
        }
        int32_t *p = mem_realloc(l->ids, cap * sizeof *p);
        if (!p)
            return -1;
        l->ids = p;
        l->cap = cap;
    }
    if (n)
        memcpy(l->ids + l->n, ids, n * sizeof *ids);
    l->n += n;
    return 0;
}
