#include "gateway/class_choice.h"

#include <assert.h>

uint8_t class_all(const struct class_table *t)
{
    return (uint8_t)((1u << t->n) - 1);
}

static bool may(uint8_t allowed, uint32_t cls)
{
    return (allowed >> cls & 1) != 0;
}

uint8_t class_clamp(const struct class_table *t, uint8_t allowed, uint8_t asked)
{
    int below = -1, least = -1;
    assert(asked < t->n && (allowed & class_all(t)) != 0);
    if (may(allowed, asked)) return asked;
    for (uint32_t k = 0; k < t->n; k++) {
        if (!may(allowed, k)) continue;
        uint8_t order = t->rows[k].order;
        if (least < 0 || order > t->rows[least].order) least = (int)k;
        if (order > t->rows[asked].order && (below < 0 || order < t->rows[below].order))
            below = (int)k;
    }
    return (uint8_t)(below >= 0 ? below : least);
}

/* The most urgent row of a rank or below it. */
static uint8_t most_urgent(const struct class_table *t, uint8_t allowed, uint8_t rank)
{
    int best = -1;
    for (uint32_t k = 0; k < t->n; k++) {
        if (!may(allowed, k) || t->rows[k].rank < rank) continue;
        if (best < 0 || t->rows[k].order < t->rows[best].order) best = (int)k;
    }
    return best >= 0 ? (uint8_t)best : UINT8_MAX;
}

int class_choose(const struct class_table *t, uint8_t allowed, const char *word, bool flex,
                 uint8_t *cls, struct err *e)
{
    uint8_t asked = UINT8_MAX;
    if (*word != '\0') {
        int k = class_table_find(t, word);
        if (k < 0)
            return err_set_param(e, ERR_BAD_VALUE, "X-Sluice-Class", "There is no class '%.40s'.",
                                 word);
        asked = (uint8_t)k;
    } else if (flex) {
        asked = most_urgent(t, class_all(t), 1);
    }
    if (asked == UINT8_MAX) asked = most_urgent(t, allowed & class_all(t), 0);
    *cls = class_clamp(t, allowed, asked);
    return 0;
}
