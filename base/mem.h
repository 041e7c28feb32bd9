/* mem.h - the memory door: every heap allocation of the project goes through here.
 *
 * Why: used memory is exact (exported as a metric), a test can make the n-th allocation fail, and a
 * process can print the table of its pools (asked, used, limit) at start.
 * Failure: returns NULL, never aborts; every caller handles it. mem_free(NULL) is legal.
 * Alignment: blocks of 64 bytes and more lie on 64, smaller ones on 16 (after mem_realloc too, which
 * therefore always moves). A block of 0 bytes is a valid pointer. Head of a block: 16 or 64 bytes, not counted.
 * Thread: any; counters are relaxed atomics (statistics only, they order nothing).
 */
#ifndef SLUICE_BASE_MEM_H
#define SLUICE_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

void *mem_alloc(size_t bytes);                        /* uninitialised */
void *mem_zalloc(size_t bytes);                       /* zeroed */
void *mem_array(size_t count, size_t bytes);          /* zeroed; NULL when count * bytes overflows */
void *mem_realloc(void *p, size_t bytes);             /* the old block stays valid on failure */
char *mem_strdup(const char *s);
void *mem_memdup(const void *p, size_t bytes);
void mem_free(void *p);

/* Page-aligned anonymous memory (mmap), for KV pools and weights; counted like the rest. */
void *mem_map(size_t bytes);
void mem_unmap(void *p, size_t bytes);

size_t mem_used(void);          /* bytes given out now */
uint64_t mem_calls(void);       /* allocations so far */
/* Debug switch: the n-th allocation from now (1 = the next) fails once; 0 = off. */
void mem_fail_nth(uint64_t n);

/* The table of pools. `name` must outlive the process; at most MEM_POOLS_MAX, more are ignored. */
#define MEM_POOLS_MAX 32
struct mem_pool_row { const char *name; size_t asked, used, limit; };
void mem_pool_set(const char *name, size_t asked, size_t used, size_t limit);
size_t mem_pool_rows(struct mem_pool_row *out, size_t cap);
void mem_pool_print(FILE *f);

#endif
