/* json_out.h - JSON text straight into a buf, for what is written once a token (a tree would cost
 * 10x).
 *
 * Strings must be UTF-8 (callers pass text that went through detok); control characters are
 * escaped.
 */
#ifndef SLUICE_GATEWAY_JSON_OUT_H
#define SLUICE_GATEWAY_JSON_OUT_H

#include "base/buf.h"

#include <stdint.h>

void json_out_str(struct buf *b, const char *p, size_t n);        /* with the quotes */
void json_out_bytes(struct buf *b, const uint8_t *p,
                    size_t n); /* any bytes: invalid UTF-8 becomes U+FFFD */
void json_out_byte_list(struct buf *b, const uint8_t *p, size_t n); /* [240,159] */
void json_out_logprob(struct buf *b, float v); /* finite always: -inf and NaN become -9999 */

#endif
