/* api_limits.h - what the model and the settings allow a request to ask for; fixed once the gateway
 * has started.
 *
 * Plain data, read by the text lanes without a lock: nobody writes it after api_limits_fill.
 */
#ifndef SLUICE_GATEWAY_API_LIMITS_H
#define SLUICE_GATEWAY_API_LIMITS_H

#include "config/config.h"
#include "model/model.h"
#include "scheduler/class_table.h"

struct api_limits {
    const char *model_name;        /* borrowed from the model */
    int32_t n_vocab;
    uint32_t n_ctx;
    uint32_t max_choices;          /* n x prompts */
    uint32_t default_max_tokens_chat;
    struct class_table classes;
};

/* What a caller's tenant and key allow; copied into each request, so that the lanes read it while the
 * tenants' file is being replaced. */
struct api_rules {
    uint8_t classes;               /* bits of the class table; 0 = all */
    bool model_ok;                 /* may use the model that is served */
    uint32_t default_output;       /* of a chat that gives no max_tokens; 0 = the gateway's */
    uint32_t max_output;           /* 0 = no cap */
};

static inline void api_limits_fill(struct api_limits *l, const struct settings *s,
                                   const struct model *m)
{
    *l = (struct api_limits){.model_name = m->name,
                             .n_vocab = (int32_t)m->hp.n_vocab,
                             .n_ctx = m->hp.n_ctx,
                             .max_choices = (uint32_t)s->max_choices,
                             .default_max_tokens_chat = (uint32_t)s->default_max_tokens_chat};
    class_table_default(&l->classes);
}

#endif
