#include "scheduler/ledger.h"

#include <assert.h>

static const struct {
    const char *name, *meaning, *advice;
} rows[LEDGER_CAUSES] = {
#define LEDGER_ROW(name, text, meaning, advice) {text, meaning, advice},
    LEDGER_LIST(LEDGER_ROW)
#undef LEDGER_ROW
};

const char *ledger_name(enum ledger_cause c)
{
    assert(c < LEDGER_CAUSES);
    return rows[c].name;
}

const char *ledger_meaning(enum ledger_cause c)
{
    assert(c < LEDGER_CAUSES);
    return rows[c].meaning;
}

const char *ledger_advice(enum ledger_cause c)
{
    assert(c < LEDGER_CAUSES);
    return rows[c].advice;
}
