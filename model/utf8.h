/* utf8.h - which bytes are well-formed UTF-8 (Unicode 15, table 3-7), one byte at a time. Pure. */
#ifndef SLUICE_MODEL_UTF8_H
#define SLUICE_MODEL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the sequence a lead byte begins: 1 to 4; 0 when no sequence begins with it. */
unsigned utf8_length(uint8_t lead);
/* May `b` follow the `have` (1 to 3) bytes of a sequence begun correctly by `seq`? */
bool utf8_next_ok(const uint8_t *seq, unsigned have, uint8_t b);
/* Length of the longest well-formed prefix of p[0..n). */
size_t utf8_valid_prefix(const uint8_t *p, size_t n);

#endif
