/* packed_matrix.h - one weight matrix in the order the matmul kernels read it.
 *
 * Rows are interleaved in groups of 16; the last group is filled up with zero rows. A group is its
 * blocks of 32 columns, ascending; the columns are filled up with zeros to a multiple of 32 (the
 * float types only, the quantised ones have whole blocks). A block, bytes in order, j = 0 .. 7 a
 * run of 4 columns:
 *   Q4_1, 320: 16 x F16 scale d | 16 x F16 minimum m | even j: 16 rows x 4 bytes; byte c of row r
 *              holds the nibble of column 4j + c low and of 4j + 4 + c high
 *   Q8_0, 544: 16 x F16 scale d | j: rows 0-7 x 4 int8, then rows 8-15 x 4 int8
 *   F16, BF16, 1024: column by column, 16 halves as in the file (nothing is lost)
 *   F32, 2048: column by column, 16 floats
 * Q4_0 is held as Q4_1 with the minimum -8 d, which is exact in F16 (d below 8,188; a larger scale
 * means weights past F16's range, the file's own type cannot give them sensibly).
 * So one int32 lane of a vector is one row with 4 columns and a vector load gives 8 or 16 rows.
 *
 * Order of calls: packed_matrix_plan (shape, sizes), the caller finds `bytes` bytes and sets `data`
 * (64-byte aligned; page-aligned with huge pages is fastest), packed_matrix_fill over all groups,
 * in any order and from any threads (ranges must not overlap). Ownership: data is the caller's;
 * the tensor is not needed after the fill. Failure: plan refuses types and shapes it does not
 * know (ERR_BAD_FILE).
 */
#ifndef SLUICE_WORKER_ENGINE_CPU_PACKED_MATRIX_H
#define SLUICE_WORKER_ENGINE_CPU_PACKED_MATRIX_H

#include "base/err.h"
#include "model/gguf.h"

#include <stddef.h>
#include <stdint.h>

#define PACKED_ROWS 16
#define PACKED_COLS 32
#define PACKED_Q4_1_BYTES 320
#define PACKED_Q8_0_BYTES 544
#define PACKED_HALF_BYTES 1024
#define PACKED_F32_BYTES 2048

struct packed_matrix {
    enum gguf_type type;          /* of the packed blocks: Q4_1, Q8_0, F16, BF16 or F32 */
    uint32_t n_rows, n_cols;      /* as the tensor says: dims[1] x dims[0] */
    uint32_t n_groups, n_blocks;  /* row groups; blocks of 32 columns a row */
    size_t block_bytes, group_bytes, bytes;
    uint8_t *data;
};

int packed_matrix_plan(struct packed_matrix *m, const struct gguf_tensor *t, struct err *e);
void packed_matrix_fill(const struct packed_matrix *m, const struct gguf_tensor *t,
                        uint32_t group_begin, uint32_t group_end);
/* One row as floats (embedding look-up): d * q + m, d * q, or the float. Writes n_cols values. */
void packed_matrix_row(const struct packed_matrix *m, uint32_t row, float *out);

#endif
