/* tiny_half.h - IEEE half precision and the quantised blocks of the format, written plainly for
 * tests.
 *
 * Independent of the engine's own conversions on purpose: the engine is compared with these. Pure.
 * Source: ggml's block layouts, nibbles: 16 bytes, low ones are elements 0..15, high ones 16..31.
 * Q4_0: half d, nibbles, x = d (q - 8). Q4_1: half d, half m, nibbles, x = d q + m. Q8_0: half d,
 * 32 int8, x = d q. BF16 is the upper half of a float.
 */
#ifndef SLUICE_TESTS_TINY_TINY_HALF_H
#define SLUICE_TESTS_TINY_TINY_HALF_H

#include <stddef.h>
#include <stdint.h>

uint16_t tiny_to_half(float f); /* nearest, ties to even; finite values below 65520 */
float tiny_from_half(uint16_t h);
uint16_t tiny_to_bf16(float f); /* nearest, ties to even; finite values */
/* n is a multiple of 32; `out` takes n / 32 blocks of 18 (Q4_0), 20 (Q4_1) or 34 (Q8_0) bytes. */
void tiny_quantise_q4_0(const float *x, size_t n, uint8_t *out);
void tiny_quantise_q4_1(const float *x, size_t n, uint8_t *out);
void tiny_quantise_q8_0(const float *x, size_t n, uint8_t *out);
/* Floats as any type the engine runs (enum gguf_type); `out` takes gguf_type_bytes. -1: another. */
int tiny_quantise(uint32_t type, const float *x, size_t n, uint8_t *out);
/* And back: -1 for another type. */
int tiny_dequantise(uint32_t type, const void *p, size_t n, float *out);

#endif
