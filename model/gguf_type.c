/* gguf_type.c - element types of the format: name, elements of a block, bytes of a block.
 *
 * The table is wider than what the engine runs, so that a file of another type is refused by its
 * name.
 */
#include "model/gguf.h"

#include <stdio.h>

struct type_row {
    uint32_t type;
    const char *name;
    uint32_t block, bytes;
};

static const struct type_row rows[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},    {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292}, {20, "IQ4_NL", 32, 18},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},       {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},      {28, "F64", 1, 8},
    {30, "BF16", 1, 2},
};

static const struct type_row *find(uint32_t type)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}

const char *gguf_type_name(uint32_t type)
{
    static _Thread_local char other[24];
    const struct type_row *r = find(type);
    if (r)
        return r->name;
    snprintf(other, sizeof other, "type %u", type);
    return other;
}

uint64_t gguf_type_bytes(uint32_t type, uint64_t n)
{
    const struct type_row *r = find(type);
    if (!r || n % r->block != 0 || n / r->block > UINT64_MAX / r->bytes)
        return 0;
    return n / r->block * r->bytes;
}
