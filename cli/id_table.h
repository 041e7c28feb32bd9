/* id_table.h - the custom_ids of a batch by hash: where each stands, and what is known of it.
 *
 * Keys are 128-bit hashes under a seed drawn at init (so that nobody can write ids that collide); the ids
 * themselves are not kept. 32 bytes an entry, at most 2/3 full: about 48 bytes to 96 bytes a line.
 * Thread: one owner.
 */
#ifndef SLUICE_CLI_ID_TABLE_H
#define SLUICE_CLI_ID_TABLE_H

#include "base/hash.h"

#include <stddef.h>
#include <stdint.h>

enum id_state { ID_OPEN, ID_DONE, ID_FAILED }; /* no result yet; a 2xx one; a final error */

struct id_entry {
    struct hash128 key;
    uint64_t line; /* 0 = empty place */
    enum id_state state;
};

struct id_table {
    struct id_entry *places;
    size_t mask, n;
    uint64_t seed;
};

int id_table_init(struct id_table *t); /* -1 = no memory */
void id_table_deinit(struct id_table *t);
/* NULL = not there. Valid until the next add. */
struct id_entry *id_table_find(const struct id_table *t, const char *id, size_t n);
/* 0 = added, 1 = was there already (*at names the old one), -1 = no memory. line > 0. */
int id_table_add(struct id_table *t, const char *id, size_t n, uint64_t line, struct id_entry **at);

#endif
