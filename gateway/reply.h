/* reply.h - the JSON of chunks and whole replies, in the shape the OpenAI SDKs and load testers
 * read.
 *
 * Required keys are written even when null; `service_tier` only when the caller asked for a tier,
 * since old schemas refuse null there. A stream's first event carries the role together with the
 * first text (a role-only event would falsify time to first token).
 */
#ifndef SLUICE_GATEWAY_REPLY_H
#define SLUICE_GATEWAY_REPLY_H

#include "gateway/request_priv.h"

void reply_head(struct request *r);                        /* fills r->head and r->id, once */
void reply_chunk(struct request *r, const struct choice *c, const struct piece *p,
                 const struct buf *text, struct buf *out);
void reply_usage_chunk(struct request *r, struct buf *out);
/* The whole body from finished choices, into r->body. -1 = no memory. */
int reply_whole(struct request *r);

#endif
