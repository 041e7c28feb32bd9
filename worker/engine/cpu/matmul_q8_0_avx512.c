/* Q8_0 row groups by vpdpbusd, whose first side is unsigned: weights are lifted to w + 128 (one
 * xor), and sums begin at -128 * (sum of q), which act_block.lift holds, so that they end exact. */
#if defined(__x86_64__)
#include "worker/engine/cpu/matmul_avx512.h"

#include "worker/engine/cpu/simd_avx512.h"

#include <string.h>

struct panel_block {      /* a block of a pair of groups, unpacked */
    __m512i w[8][2];      /* run of 4 columns, group */
    __m512 d[2];
};

ALWAYS_INLINE __m512 load_f16x16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

ALWAYS_INLINE __m512i four_columns(const struct act_block *a, int run) {
    int32_t q;
    memcpy(&q, a->q + 4 * run, sizeof q);
    return _mm512_set1_epi32(q);
}

ALWAYS_INLINE __m512 step(__m512 acc, __m512i sum, __m512 d, const struct act_block *a) {
    return _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(a->d)), _mm512_cvtepi32_ps(sum), acc);
}

/* T tokens straight from the packed bytes. Two integer chains a token. */
ALWAYS_INLINE void direct(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                          const int T, float (*out)[PACKED_ROWS]) {
    const __m512i top = _mm512_set1_epi8(-128);
    __m512 acc[TILE512];
    UNROLL for (int t = 0; t < T; t++)
        acc[t] = _mm512_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; b++, group += PACKED_Q8_0_BYTES, act++) {
        __m512i sum[TILE512][2];
        UNROLL for (int i = 0; i < PACKED_Q8_0_BYTES; i += 64)
            _mm_prefetch((const char *)group + PREFETCH512_BYTES + i, _MM_HINT_T0);
        UNROLL for (int t = 0; t < T; t++) {
            sum[t][0] = _mm512_set1_epi32(act[(size_t)t * n_blocks].lift);
            sum[t][1] = _mm512_setzero_si512();
        }
        UNROLL for (int run = 0; run < 8; run++) {
            __m512i w = _mm512_xor_si512(_mm512_loadu_si512(group + 32 + 64 * run), top);
            UNROLL for (int t = 0; t < T; t++) {
                __m512i q = four_columns(act + (size_t)t * n_blocks, run);
                sum[t][run % 2] = _mm512_dpbusd_epi32(sum[t][run % 2], w, q);
            }
        }
        __m512 d = load_f16x16(group);
        UNROLL for (int t = 0; t < T; t++)
            acc[t] = step(acc[t], _mm512_add_epi32(sum[t][0], sum[t][1]), d,
                          act + (size_t)t * n_blocks);
    }
    UNROLL for (int t = 0; t < T; t++)
        _mm512_storeu_ps(out[t], acc[t]);
}

void direct_q8_0_avx512(const uint8_t *group, uint32_t n_blocks, const struct act_block *act,
                        uint32_t n, float (*acc)[PACKED_ROWS]) {
    WITH_TOKENS(n, direct(group, n_blocks, act, T, acc))
}

ALWAYS_INLINE void unpack(struct panel_block *to, const uint8_t *group, uint32_t n, int g) {
    const __m512i top = _mm512_set1_epi8(-128);
    for (uint32_t b = 0; b < n; b++, to++, group += PACKED_Q8_0_BYTES) {
        UNROLL for (int run = 0; run < 8; run++)
            to->w[run][g] = _mm512_xor_si512(_mm512_loadu_si512(group + 32 + 64 * run), top);
        to->d[g] = load_f16x16(group);
    }
}

/* T tokens against n unpacked blocks of G groups; acc goes on where the chunk before left it.
 * `ahead`: packed bytes to be unpacked next, `apart` those of the second group behind them. */
ALWAYS_INLINE void tile(const struct panel_block *panel, uint32_t n, const uint8_t *ahead,
                        size_t apart, const struct act_block *act, size_t stride, const int T,
                        const int G, acc512 *out, uint32_t first) {
    __m512 acc[TILE512][2];
    UNROLL for (int t = 0; t < T; t++)
        UNROLL for (int g = 0; g < G; g++)
            acc[t][g] = _mm512_load_ps(out[g][first + (uint32_t)t]);
    for (uint32_t b = 0; b < n; b++, panel++, act++, ahead += PACKED_Q8_0_BYTES) {
        __m512i sum[TILE512][2];
        UNROLL for (int i = 0; i < PACKED_Q8_0_BYTES; i += 64)
            UNROLL for (int g = 0; g < G; g++)
                _mm_prefetch((const char *)ahead + g * apart + i, _MM_HINT_T1);
        UNROLL for (int t = 0; t < T; t++)
            UNROLL for (int g = 0; g < G; g++)
                sum[t][g] = _mm512_set1_epi32(act[(size_t)t * stride].lift);
        UNROLL for (int run = 0; run < 8; run++)
            UNROLL for (int t = 0; t < T; t++) {
                __m512i q = four_columns(act + (size_t)t * stride, run);
                UNROLL for (int g = 0; g < G; g++)
                    sum[t][g] = _mm512_dpbusd_epi32(sum[t][g], panel->w[run][g], q);
            }
        UNROLL for (int g = 0; g < G; g++)
            UNROLL for (int t = 0; t < T; t++)
                acc[t][g] = step(acc[t][g], sum[t][g], panel->d[g],
                                 act + (size_t)t * stride);
    }
    UNROLL for (int t = 0; t < T; t++)
        UNROLL for (int g = 0; g < G; g++)
            _mm512_store_ps(out[g][first + (uint32_t)t], acc[t][g]);
}

ALWAYS_INLINE void tiles(const struct panel_block *panel, uint32_t n_chunk, const uint8_t *ahead,
                         const struct act_block *act, uint32_t n_blocks, uint32_t n, const int G,
                         acc512 *acc) {
    size_t apart = (size_t)n_blocks * PACKED_Q8_0_BYTES;
    for (uint32_t t = 0, left = n, size; left > 0; left -= size, t += size) {
        const struct act_block *a = act + (size_t)t * n_blocks;
        size = tile_tokens(left);
        WITH_TOKENS(size, tile(panel, n_chunk, ahead, apart, a, n_blocks, T, G, acc, t))
    }
}

void panel_q8_0_avx512(const uint8_t *group, bool pair, uint32_t n_blocks,
                       const struct act_block *act, uint32_t n, acc512 *acc) {
    struct panel_block panel[PANEL512_BLOCKS];
    uint32_t size = panel_blocks(n_blocks);
    for (uint32_t b = 0; b < n_blocks; b += size) {
        uint32_t n_chunk = n_blocks - b < size ? n_blocks - b : size;
        const uint8_t *from = group + (size_t)b * PACKED_Q8_0_BYTES;
        const uint8_t *ahead = from + n_chunk * PACKED_Q8_0_BYTES;
        if (b + n_chunk == n_blocks) /* the chunk after this one begins the next pair */
            ahead = group + (pair ? 2 : 1) * (size_t)n_blocks * PACKED_Q8_0_BYTES;
        unpack(panel, from, n_chunk, 0);
        if (pair) {
            unpack(panel, from + (size_t)n_blocks * PACKED_Q8_0_BYTES, n_chunk, 1);
            tiles(panel, n_chunk, ahead, act + b, n_blocks, n, 2, acc);
        } else {
            tiles(panel, n_chunk, ahead, act + b, n_blocks, n, 1, acc);
        }
    }
}
#else
typedef int matmul_q8_0_avx512_is_empty;
#endif
