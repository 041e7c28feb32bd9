/* mem.c - the memory door. Every block carries a small head with its size, so that the count of
 * used bytes needs no lock and no table. Blocks of 64 bytes and more are aligned to 64, because
 * structs with cache-line aligned members (struct ring) are allocated like any other.
 */
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGN_SMALL 16u
#define ALIGN_LARGE 64u

struct head {
    size_t bytes;  /* as asked */
    size_t offset; /* from the start of the library's block to the caller's: one of ALIGN_* */
};
_Static_assert(sizeof(struct head) <= ALIGN_SMALL, "the head must fit before the caller's block");

static _Atomic size_t used_bytes;
static _Atomic uint64_t call_count;
static _Atomic uint64_t fail_in; /* 0 = off, 1 = the next one fails */

static struct mem_pool_row pools[MEM_POOLS_MAX];
static size_t n_pools;
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;

/* Counts one allocation; true when the debug switch wants this one to fail. The countdown is one
 * compare-and-swap so that exactly one thread sees the 1, whatever the interleaving. */
static bool count_call(void) {
    atomic_fetch_add_explicit(&call_count, 1, memory_order_relaxed);
    uint64_t n = atomic_load_explicit(&fail_in, memory_order_relaxed);
    while (n != 0 && !atomic_compare_exchange_weak_explicit(
                         &fail_in, &n, n - 1, memory_order_relaxed, memory_order_relaxed))
        ;
    return n == 1;
}

static struct head *head_of(void *p) {
    return (struct head *)((char *)p - sizeof(struct head));
}

static void *block_new(size_t bytes) {
    if (count_call() || bytes > SIZE_MAX - ALIGN_LARGE)
        return NULL;
    size_t offset = bytes >= ALIGN_LARGE ? ALIGN_LARGE : ALIGN_SMALL;
    void *base = NULL;
    if (posix_memalign(&base, offset, bytes + offset) != 0)
        return NULL;
    void *p = (char *)base + offset;
    *head_of(p) = (struct head){.bytes = bytes, .offset = offset};
    atomic_fetch_add_explicit(&used_bytes, bytes, memory_order_relaxed);
    return p;
}

void *mem_alloc(size_t bytes) {
    return block_new(bytes);
}

void *mem_zalloc(size_t bytes) {
    void *p = block_new(bytes);
    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

void *mem_array(size_t count, size_t bytes) {
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return NULL;
    return mem_zalloc(total);
}

void *mem_realloc(void *p, size_t bytes) {
    if (p == NULL)
        return block_new(bytes);
    /* realloc(3) keeps no alignment above 16, so a block is moved by hand. */
    void *q = block_new(bytes);
    if (q == NULL)
        return NULL;
    size_t old = head_of(p)->bytes;
    memcpy(q, p, old < bytes ? old : bytes);
    mem_free(p);
    return q;
}

char *mem_strdup(const char *s) {
    assert(s != NULL);
    return mem_memdup(s, strlen(s) + 1);
}

void *mem_memdup(const void *p, size_t bytes) {
    void *q = block_new(bytes);
    if (q != NULL && bytes > 0)
        memcpy(q, p, bytes);
    return q;
}

void mem_free(void *p) {
    if (p == NULL)
        return;
    struct head h = *head_of(p);
    assert(h.offset == ALIGN_SMALL || h.offset == ALIGN_LARGE); /* not ours, or overwritten */
    head_of(p)->offset = 0;                                     /* a second free asserts above */
    atomic_fetch_sub_explicit(&used_bytes, h.bytes, memory_order_relaxed);
    free((char *)p - h.offset);
}

/* Rounded up to whole pages; 0 when that overflows. */
static size_t map_size(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return bytes > SIZE_MAX - page ? 0 : (bytes + page - 1) / page * page;
}

void *mem_map(size_t bytes) {
    size_t size = map_size(bytes);
    if (count_call() || size == 0)
        return NULL;
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    atomic_fetch_add_explicit(&used_bytes, size, memory_order_relaxed);
    return p;
}

void mem_unmap(void *p, size_t bytes) {
    if (p == NULL)
        return;
    size_t size = map_size(bytes);
    int rc = munmap(p, size);
    assert(rc == 0);
    (void)rc;
    atomic_fetch_sub_explicit(&used_bytes, size, memory_order_relaxed);
}

size_t mem_used(void) {
    return atomic_load_explicit(&used_bytes, memory_order_relaxed);
}

uint64_t mem_calls(void) {
    return atomic_load_explicit(&call_count, memory_order_relaxed);
}

void mem_fail_nth(uint64_t n) {
    atomic_store_explicit(&fail_in, n, memory_order_relaxed);
}

void mem_pool_set(const char *name, size_t asked, size_t used, size_t limit) {
    assert(name != NULL);
    pthread_mutex_lock(&pools_lock);
    size_t i = 0;
    while (i < n_pools && strcmp(pools[i].name, name) != 0)
        i++;
    if (i < MEM_POOLS_MAX) {
        pools[i] = (struct mem_pool_row){name, asked, used, limit};
        if (i == n_pools)
            n_pools++;
    }
    pthread_mutex_unlock(&pools_lock);
}

void mem_pool_used(const char *name, size_t used) {
    pthread_mutex_lock(&pools_lock);
    for (size_t i = 0; i < n_pools; i++)
        if (strcmp(pools[i].name, name) == 0)
            pools[i].asked = pools[i].used = used;
    pthread_mutex_unlock(&pools_lock);
}

/* Resident bytes, and those of files among them (the program, libraries, a mapped model). */
static size_t resident(size_t *of_files) {
    unsigned long pages = 0, files = 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *of_files = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*u %lu %lu", &pages, &files) != 2)
        pages = files = 0;
    fclose(f);
    *of_files = files * page;
    return pages * page;
}

size_t mem_rss(void) {
    size_t of_files;
    return resident(&of_files);
}

static size_t program_own; /* of the program's bytes, those that are no file's; main's thread sets it */

void mem_pool_program(void) {
    size_t of_files, all = resident(&of_files);
    program_own = all - of_files;
    mem_pool_set(MEM_POOL_PROGRAM, all, all, 0);
}

static bool outside_the_door(const char *name) {
    return strcmp(name, MEM_POOL_PROGRAM) == 0 || strcmp(name, MEM_POOL_FILE) == 0
           || strcmp(name, MEM_POOL_HEAP) == 0;
}

void mem_pool_refresh(void) {
    size_t named = 0, touched = program_own, used = mem_used(), model = 0, of_files;
    size_t all = resident(&of_files);
    pthread_mutex_lock(&pools_lock);
    for (size_t i = 0; i < n_pools; i++) {
        named += outside_the_door(pools[i].name) ? 0 : pools[i].asked;
        touched += outside_the_door(pools[i].name) ? 0 : pools[i].used;
        if (strcmp(pools[i].name, MEM_POOL_FILE) == 0)
            model = pools[i].used;
    }
    pthread_mutex_unlock(&pools_lock);
    size_t rest = used > named ? used - named : 0;
    size_t program = program_own + (of_files > model ? of_files - model : 0);
    size_t room = all - of_files > touched ? all - of_files - touched : 0;
    mem_pool_set(MEM_POOL_HEAP, rest, rest < room ? rest : room, 0);
    mem_pool_set(MEM_POOL_PROGRAM, program, program, 0);
}

size_t mem_resident(const void *p, size_t bytes) {
    unsigned char in[4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = p != NULL ? map_size(bytes) / page : 0, sum = 0;
    assert((uintptr_t)p % page == 0);
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < sizeof(in) ? n - at : sizeof(in);
        if (mincore((char *)(uintptr_t)p + at * page, some * page, in) != 0)
            return 0;
        for (size_t i = 0; i < some; i++)
            sum += in[i] & 1;
    }
    return sum * page;
}

size_t mem_pool_rows(struct mem_pool_row *out, size_t cap) {
    pthread_mutex_lock(&pools_lock);
    size_t n = n_pools < cap ? n_pools : cap;
    if (n > 0)
        memcpy(out, pools, n * sizeof(*out));
    pthread_mutex_unlock(&pools_lock);
    return n;
}

void mem_pool_print(FILE *f) {
    struct mem_pool_row rows[MEM_POOLS_MAX];
    size_t n = mem_pool_rows(rows, MEM_POOLS_MAX), total = 0;
    fprintf(f, "%-24s %12s %12s %12s\n", "pool (KiB)", "asked", "used", "limit");
    for (size_t i = 0; i < n; i++) {
        fprintf(f, "%-24s %12zu %12zu ", rows[i].name, rows[i].asked / 1024, rows[i].used / 1024);
        if (rows[i].limit != 0)
            fprintf(f, "%12zu\n", rows[i].limit / 1024);
        else
            fprintf(f, "%12s\n", "-");
        total += rows[i].used;
    }
    fprintf(f, "%-24s %12s %12zu %12s\n", "sum", "", total / 1024, "");
    fprintf(f, "%-24s %12s %12zu %12s\n", "resident", "", mem_rss() / 1024, "");
}
