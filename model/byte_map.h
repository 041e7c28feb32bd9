/* byte_map.h - the GPT-2 byte alphabet: each byte written as one printable code point.
 *
 * Vocabulary files spell tokens and merges in it ("Ġthe" = " the"). Bytes that are printable in
 * Latin-1 stand for themselves, the other 68 for U+0100 upwards in byte order. Thread: pure.
 * Source: the encoder of GPT-2 (bytes_to_unicode), reproduced from its rule.
 */
#ifndef SLUICE_MODEL_BYTE_MAP_H
#define SLUICE_MODEL_BYTE_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Undo the alphabet: text[0..n) to bytes in `out` (at least n long). Count of bytes, or -1 when a
 * code point is not of the alphabet or the text is no UTF-8. */
long byte_map_decode(const char *text, size_t n, uint8_t *out);
/* The code point of a byte (< 0x144), written as UTF-8 to `out`; 1 or 2 bytes long. */
size_t byte_map_encode(uint8_t b, char out[2]);

#endif
