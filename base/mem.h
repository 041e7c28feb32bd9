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
#define MEM_POOL_PROGRAM "program and libraries"
#define MEM_POOL_FILE "model file"
#define MEM_POOL_HEAP "other heap"
void mem_pool_set(const char *name, size_t asked, size_t used, size_t limit);
void mem_pool_used(const char *name, size_t used); /* of a pool that takes as it goes: asked too */
/* The row MEM_POOL_PROGRAM: what is resident now. Called first in main. */
void mem_pool_program(void);
/* Before the table is looked at: MEM_POOL_PROGRAM with the pages of libraries touched since, and
 * MEM_POOL_HEAP: asked = what is given out here and by no other row's name, used = of it at most what
 * can be resident beside the other rows (zeroed arrays are not touched at once). Resident memory
 * that nobody asked for here stays a difference between sum and resident. */
void mem_pool_refresh(void);
size_t mem_pool_rows(struct mem_pool_row *out, size_t cap);
void mem_pool_print(FILE *f); /* the rows, their sum, and what the process really has resident */

/* What the system says: resident bytes of this process (0 = it does not say), and of the mapping
 * [p, p + bytes) of mem_map, p NULL = 0. */
size_t mem_rss(void);
size_t mem_resident(const void *p, size_t bytes);

#endif
