#include "worker/engine/cpu/packed_matrix.h"

#include "worker/engine/cpu/f16.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

/* Blocks as they lie in the file. */
#define FILE_Q4_0_BYTES 18 /* F16 d, 16 bytes: low nibbles columns 0-15, high 16-31 */
#define FILE_Q4_1_BYTES 20 /* F16 d, F16 m, nibbles as in Q4_0 */
#define FILE_Q8_0_BYTES 34 /* F16 d, 32 int8 */

/* file_block: bytes of 32 columns in the file. Quantised types have whole blocks only. */
static int plan_type(struct packed_matrix *m, uint32_t type, size_t *file_block) {
    switch (type) {
    case GGUF_Q4_0: /* d * (q - 8) is d * q + m with m = -8 d, which F16 holds exactly */
        m->type = GGUF_Q4_1;
        m->block_bytes = PACKED_Q4_1_BYTES;
        *file_block = FILE_Q4_0_BYTES;
        return 0;
    case GGUF_Q4_1:
        m->block_bytes = PACKED_Q4_1_BYTES;
        *file_block = FILE_Q4_1_BYTES;
        break;
    case GGUF_Q8_0:
        m->block_bytes = PACKED_Q8_0_BYTES;
        *file_block = FILE_Q8_0_BYTES;
        break;
    case GGUF_F16:
    case GGUF_BF16:
        m->block_bytes = PACKED_HALF_BYTES;
        *file_block = PACKED_COLS * sizeof(uint16_t);
        break;
    case GGUF_F32:
        m->block_bytes = PACKED_F32_BYTES;
        *file_block = PACKED_COLS * sizeof(float);
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
        return err_set(e, ERR_BAD_FILE, "tensor %.*s: weight type %s is not supported (Q4_0, "
                       "Q4_1, Q8_0, F16, BF16 and F32 are)", name_n, name,
                       gguf_type_name(t->type));
    uint64_t cols = t->dims[0], rows = t->dims[1];
    if (t->n_dims > 2 || cols == 0 || rows == 0 || cols > INT32_MAX - PACKED_COLS ||
        rows > INT32_MAX - PACKED_ROWS)
        return err_set(e, ERR_BAD_FILE, "tensor %.*s: not a matrix of usable size", name_n, name);
    bool whole = m->type == GGUF_Q4_1 || m->type == GGUF_Q8_0;
    if (whole && cols % PACKED_COLS != 0)
        return err_set(e, ERR_BAD_FILE, "tensor %.*s: %u columns are no multiple of 32", name_n,
                       name, (unsigned)cols);
    uint64_t row_bytes = cols * file_block / PACKED_COLS;
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

/* `out` is the block of a group, zeroed before; r the row inside the group. Eight columns at a
 * time: loading a model is mostly this loop. */
static void fill_nibbles(uint8_t *out, uint32_t r, const uint8_t *nibbles) {
    uint8_t *to = out + 64 + r * 4;
    for (uint32_t i = 0; i < 4; i++, to += 64) {
        uint32_t first, second; /* runs 2i and 2i + 1 */
        memcpy(&first, nibbles + i % 2 * 8, sizeof first);
        memcpy(&second, nibbles + i % 2 * 8 + 4, sizeof second);
        first = (i < 2 ? first : first >> 4) & 0x0f0f0f0fu;
        second = (i < 2 ? second << 4 : second) & 0xf0f0f0f0u;
        first |= second;
        memcpy(to, &first, sizeof first);
    }
}

static void fill_q4_0(uint8_t *out, uint32_t r, const uint8_t *in) {
    uint16_t d;
    memcpy(&d, in, sizeof d);
    uint16_t m = f32_to_f16(-8.0f * f16_to_f32(d));
    memcpy(out + 2 * r, &d, sizeof d);
    memcpy(out + 32 + 2 * r, &m, sizeof m);
    fill_nibbles(out, r, in + 2);
}

static void fill_q4_1(uint8_t *out, uint32_t r, const uint8_t *in) {
    memcpy(out + 2 * r, in, 2);
    memcpy(out + 32 + 2 * r, in + 2, 2);
    fill_nibbles(out, r, in + 4);
}

static void fill_q8_0(uint8_t *out, uint32_t r, const uint8_t *in) {
    memcpy(out + 2 * r, in, 2);
    for (uint32_t j = 0; j < 8; j++)
        memcpy(out + 32 + j * 64 + r * 4, in + 2 + 4 * j, 4);
}

static void fill_half(uint8_t *out, uint32_t r, const uint8_t *in, uint32_t n) {
    for (uint32_t col = 0; col < n; col++)
        memcpy(out + (col * PACKED_ROWS + r) * 2, in + 2 * col, 2);
}

static void fill_f32(uint8_t *out, uint32_t r, const uint8_t *in, uint32_t n) {
    for (uint32_t col = 0; col < n; col++)
        memcpy(out + (col * PACKED_ROWS + r) * 4, in + 4 * col, 4);
}

static void fill_block(uint8_t *out, uint32_t r, const uint8_t *in, uint32_t type, uint32_t n) {
    switch (type) {
    case GGUF_Q4_0:
        fill_q4_0(out, r, in);
        break;
    case GGUF_Q4_1:
        fill_q4_1(out, r, in);
        break;
    case GGUF_Q8_0:
        fill_q8_0(out, r, in);
        break;
    case GGUF_F32:
        fill_f32(out, r, in, n);
        break;
    default:
        fill_half(out, r, in, n);
    }
}

/* Block by block over the group's rows, so that a block is written while it is near. */
static void fill_group(const struct packed_matrix *m, const struct gguf_tensor *t, uint32_t g) {
    size_t row_bytes = t->bytes / m->n_rows;
    size_t file_block = m->n_cols % PACKED_COLS == 0 ? row_bytes / m->n_blocks
                                                     : row_bytes / m->n_cols * PACKED_COLS;
    uint8_t *out = m->data + (size_t)g * m->group_bytes;
    uint32_t first = g * PACKED_ROWS, rows = m->n_rows - first;
    rows = rows < PACKED_ROWS ? rows : PACKED_ROWS;
    const uint8_t *in = (const uint8_t *)t->data + first * row_bytes;
    for (uint32_t b = 0; b < m->n_blocks; b++, out += m->block_bytes, in += file_block) {
        uint32_t left = m->n_cols - b * PACKED_COLS, n = left < PACKED_COLS ? left : PACKED_COLS;
        memset(out, 0, m->block_bytes);
        for (uint32_t r = 0; r < rows; r++)
            fill_block(out, r, in + r * row_bytes, t->type, n);
    }
}

void packed_matrix_fill(const struct packed_matrix *m, const struct gguf_tensor *t,
                        uint32_t group_begin, uint32_t group_end) {
    assert(m->data != NULL && group_begin <= group_end && group_end <= m->n_groups);
    for (uint32_t g = group_begin; g < group_end; g++)
        fill_group(m, t, g);
}

static float f16_at(const uint8_t *p, uint32_t i) {
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return f16_to_f32(h);
}

/* One value of a block; r the row inside the group, c the column inside the block. */
static float value_at(enum gguf_type type, const uint8_t *b, uint32_t r, uint32_t c) {
    float f;
    uint8_t byte;
    uint16_t half;
    switch (type) {
    case GGUF_Q4_1:
        byte = b[64 + c / 8 * 64 + r * 4 + c % 4];
        return f16_at(b, r) * (float)(c & 4 ? byte >> 4 : byte & 15) + f16_at(b + 32, r);
    case GGUF_Q8_0:
        return f16_at(b, r) * (float)(int8_t)b[32 + c / 4 * 64 + r * 4 + c % 4];
    case GGUF_F32:
        memcpy(&f, b + (c * PACKED_ROWS + r) * 4, 4);
        return f;
    case GGUF_F16:
        return f16_at(b, c * PACKED_ROWS + r);
    default:
        memcpy(&half, b + (c * PACKED_ROWS + r) * 2, 2);
        return bf16_to_f32(half);
    }
}

void packed_matrix_row(const struct packed_matrix *m, uint32_t row, float *out) {
    assert(row < m->n_rows);
    const uint8_t *group = m->data + (size_t)(row / PACKED_ROWS) * m->group_bytes;
    uint32_t r = row % PACKED_ROWS;
    for (uint32_t col = 0; col < m->n_cols; col++)
        out[col] = value_at(m->type, group + col / 32 * m->block_bytes, r, col % 32);
}
