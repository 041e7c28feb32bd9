#include "worker/engine/cpu/packed_matrix.h"

#include "worker/engine/cpu/f16.h"

#include <assert.h>
#include <string.h>

/* Blocks as they lie in the file. */
#define FILE_Q4_1_BYTES 20 /* F16 d, F16 m, 16 bytes: low nibbles columns 0-15, high 16-31 */
#define FILE_Q8_0_BYTES 34 /* F16 d, 32 int8 */

static int plan_type(struct packed_matrix *m, uint32_t type, size_t *file_bytes) {
    switch (type) {
    case GGUF_Q4_1:
        m->block_bytes = PACKED_Q4_1_BYTES;
        *file_bytes = FILE_Q4_1_BYTES;
        break;
    case GGUF_Q8_0:
        m->block_bytes = PACKED_Q8_0_BYTES;
        *file_bytes = FILE_Q8_0_BYTES;
        break;
    case GGUF_F32:
        m->block_bytes = PACKED_F32_BYTES;
        *file_bytes = 0;
        break;
    default:
        return -1;
    }
    m->type = (enum gguf_type)type;
    return 0;
}

int packed_matrix_plan(struct packed_matrix *m, const struct gguf_tensor *t, struct err *e) {
    int name_n = t->name.n < 64 ? (int)t->name.n : 64;
    const char *name = t->name.p ? t->name.p : "";
    size_t file_block;
    memset(m, 0, sizeof *m);
    if (plan_type(m, t->type, &file_block) != 0)
        return err_set(e, ERR_BAD_FILE, "tensor %.*s: weight type %u is not supported (Q4_1, "
                       "Q8_0 and F32 are)", name_n, name, t->type);
    uint64_t cols = t->dims[0], rows = t->dims[1];
    if (t->n_dims > 2 || cols == 0 || rows == 0 || cols > INT32_MAX - PACKED_COLS ||
        rows > INT32_MAX - PACKED_ROWS)
        return err_set(e, ERR_BAD_FILE, "tensor %.*s: not a matrix of usable size", name_n, name);
    if (file_block != 0 && cols % PACKED_COLS != 0)
        return err_set(e, ERR_BAD_FILE, "tensor %.*s: %u columns are no multiple of 32", name_n,
                       name, (unsigned)cols);
    uint64_t row_bytes = file_block ? cols / PACKED_COLS * file_block : cols * sizeof(float);
    if (t->bytes != row_bytes * rows)
        return err_set(e, ERR_BAD_FILE, "tensor %.*s: its size does not fit its shape", name_n,
                       name);
    m->n_rows = (uint32_t)rows;
    m->n_cols = (uint32_t)cols;
    m->n_groups = (m->n_rows + PACKED_ROWS - 1) / PACKED_ROWS;
    m->n_blocks = (m->n_cols + PACKED_COLS - 1) / PACKED_COLS;
    m->group_bytes = m->block_bytes * m->n_blocks;
    m->bytes = m->group_bytes * m->n_groups;
    return 0;
}

/* `out` is the block of a group, zeroed before; r the row inside the group. */
static void fill_q4_1(uint8_t *out, uint32_t r, const uint8_t *in) {
    memcpy(out + 2 * r, in, 2);
    memcpy(out + 32 + 2 * r, in + 2, 2);
    uint32_t shift = r < 8 ? 0 : 4;
    for (uint32_t col = 0; col < 32; col++) {
        uint8_t nibble = col < 16 ? in[4 + col] & 15 : in[4 + col - 16] >> 4;
        out[64 + col / 4 * 32 + r % 8 * 4 + col % 4] |= (uint8_t)(nibble << shift);
    }
}

static void fill_q8_0(uint8_t *out, uint32_t r, const uint8_t *in) {
    memcpy(out + 2 * r, in, 2);
    for (uint32_t j = 0; j < 8; j++)
        memcpy(out + 32 + j * 64 + r * 4, in + 2 + 4 * j, 4);
}

static void fill_f32(uint8_t *out, uint32_t r, const uint8_t *in, uint32_t n) {
    for (uint32_t col = 0; col < n; col++)
        memcpy(out + (col * PACKED_ROWS + r) * 4, in + 4 * col, 4);
}

static void fill_row(const struct packed_matrix *m, const uint8_t *in, uint32_t row) {
    uint8_t *group = m->data + (size_t)(row / PACKED_ROWS) * m->group_bytes;
    uint32_t r = row % PACKED_ROWS;
    for (uint32_t b = 0; b < m->n_blocks; b++) {
        uint8_t *out = group + b * m->block_bytes;
        uint32_t left = m->n_cols - b * PACKED_COLS;
        if (m->type == GGUF_Q4_1)
            fill_q4_1(out, r, in + (size_t)b * FILE_Q4_1_BYTES);
        else if (m->type == GGUF_Q8_0)
            fill_q8_0(out, r, in + (size_t)b * FILE_Q8_0_BYTES);
        else
            fill_f32(out, r, in + (size_t)b * 128, left < PACKED_COLS ? left : PACKED_COLS);
    }
}

void packed_matrix_fill(const struct packed_matrix *m, const struct gguf_tensor *t,
                        uint32_t group_begin, uint32_t group_end) {
    assert(m->data != NULL && group_begin <= group_end && group_end <= m->n_groups);
    size_t row_bytes = t->bytes / m->n_rows;
    for (uint32_t g = group_begin; g < group_end; g++) {
        memset(m->data + (size_t)g * m->group_bytes, 0, m->group_bytes);
        for (uint32_t row = g * PACKED_ROWS; row < (g + 1) * PACKED_ROWS; row++)
            if (row < m->n_rows)
                fill_row(m, (const uint8_t *)t->data + row * row_bytes, row);
    }
}

static float f16_at(const uint8_t *p, uint32_t i) {
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return f16_to_f32(h);
}

void packed_matrix_row(const struct packed_matrix *m, uint32_t row, float *out) {
    assert(row < m->n_rows);
    const uint8_t *group = m->data + (size_t)(row / PACKED_ROWS) * m->group_bytes;
    uint32_t r = row % PACKED_ROWS;
    for (uint32_t col = 0; col < m->n_cols; col++) {
        const uint8_t *b = group + col / 32 * m->block_bytes;
        uint32_t c = col % 32;
        if (m->type == GGUF_Q4_1) {
            uint8_t byte = b[64 + c / 4 * 32 + r % 8 * 4 + c % 4];
            out[col] = f16_at(b, r) * (float)(r < 8 ? byte & 15 : byte >> 4) + f16_at(b + 32, r);
        } else if (m->type == GGUF_Q8_0) {
            out[col] = f16_at(b, r) * (float)(int8_t)b[32 + c / 4 * 64 + r * 4 + c % 4];
        } else {
            memcpy(out + col, b + (c * PACKED_ROWS + r) * 4, 4);
        }
    }
}
