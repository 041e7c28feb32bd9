/* api_pages.h - replies that need no sequence and are the same at every door: models, readiness. */
#ifndef SLUICE_GATEWAY_API_PAGES_H
#define SLUICE_GATEWAY_API_PAGES_H

#include "gateway/gateway.h"

struct tenant;

/* What tenant `t` may use (NULL = everything). */
void api_page_models(const struct gateway *g, const struct tenant *t, struct buf *out);
int api_page_model(const struct gateway *g, const struct tenant *t, const char *name,
                   struct buf *out, struct err *e);          /* MODEL_NOT_FOUND, FORBIDDEN */
int api_page_ready(const struct gateway *g, struct err *e);  /* 0, or -1 with why not */

#endif
