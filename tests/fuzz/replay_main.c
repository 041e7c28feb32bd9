/* replay_main.c - runs a fuzz target over a folder of inputs, without libFuzzer.
 *
 * usage: fuzz_x [--mutations N] PATH...   (folder or file; N per file, default 64)
 * Each file is run whole, cut at up to 64 places, and with N small mutations from a seed that
 * depends on the file's size and the mutation's number only, so every build runs the same bytes. An
 * empty folder is a failure: a corpus that got lost must not look like a passed test.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define REPLAY_FILE_MAX (16u << 20)
#define REPLAY_CUTS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

static unsigned n_mutations = 64;
static unsigned long n_files, n_runs;

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9e3779b97f4a7c15u;
    uint64_t z = *s;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* The input in memory of exactly its size, so that a sanitizer sees one byte too many. */
static void run_copy(const uint8_t *p, size_t n)
{
    uint8_t *q = malloc(n ? n : 1);
    if (!q)
        abort();
    memcpy(q, p, n);
    LLVMFuzzerTestOneInput(q, n);
    free(q);
    n_runs++;
}

static void mutate(uint8_t *p, size_t n, uint64_t *s)
{
    static const uint8_t special[] = {0, 1, 0x7f, 0x80, 0xff, 0x20, '"', '{', 0xdd, 0xc6};
    unsigned count = 1 + (unsigned)(next_random(s) % 4);
    for (unsigned i = 0; i < count && n; i++) {
        size_t at = (size_t)(next_random(s) % n);
        uint64_t how = next_random(s) % 4;
        if (how == 0)
            p[at] ^= (uint8_t)(1u << (next_random(s) % 8));
        else if (how == 1)
            p[at] = special[next_random(s) % sizeof special];
        else if (how == 2)
            p[at] = (uint8_t)next_random(s);
        else
            memset(p + at, special[next_random(s) % 5], n - at < 8 ? n - at : 8);
    }
}

static void run_bytes(const uint8_t *p, size_t n)
{
    run_copy(p, n);
    for (size_t i = 0; i < REPLAY_CUTS && i < n; i++)
        run_copy(p, n < REPLAY_CUTS ? i : n / REPLAY_CUTS * i);
    uint8_t *m = malloc(n ? n : 1);
    if (!m)
        abort();
    for (unsigned i = 0; i < n_mutations && n; i++) {
        uint64_t s = n * 1000003u + i;
        memcpy(m, p, n);
        mutate(m, n, &s);
        run_copy(m, n);
    }
    free(m);
}

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p = malloc(REPLAY_FILE_MAX);
    if (!f || !p) {
        fprintf(stderr, "cannot read %s\n", path);
        if (f)
            fclose(f);
        free(p);
        return -1;
    }
    size_t n = fread(p, 1, REPLAY_FILE_MAX, f);
    fclose(f);
    run_bytes(p, n);
    free(p);
    n_files++;
    return 0;
}

static int run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return run_file(path);
    DIR *d = opendir(path);
    if (!d)
        return -1;
    int rc = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char sub[4096];
        if (e->d_name[0] == '.')
            continue;
        snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
        if (run_path(sub) != 0)
            rc = -1;
    }
    closedir(d);
    return rc;
}

int main(int argc, char **argv)
{
    int first = 1, rc = 0;
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    if (argc > 2 && strcmp(argv[1], "--mutations") == 0) {
        n_mutations = (unsigned)strtoul(argv[2], NULL, 10);
        first = 3;
    }
    for (int i = first; i < argc; i++)
        if (run_path(argv[i]) != 0)
            rc = 1;
    printf("%lu files, %lu runs\n", n_files, n_runs);
    return n_files == 0 ? 1 : rc;
}
