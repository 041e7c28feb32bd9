/* codec_corpus.c - writes the seed corpus of tests/fuzz/fuzz_codec.c: usage codec_corpus FOLDER. Two messages of each
 * kind, one of each RPC kind, and the hostile heads that were bugs elsewhere. Run again when a message changes. */
#include "proto/rpc.h"
#include "tests/unit/proto/msg_gen.h"

#include <stdio.h>
#include <string.h>

static int failures;

static void save(const char *dir, const char *name, unsigned number, struct buf *b)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s_%u", dir, name, number);
    FILE *f = b->bad ? NULL : fopen(path, "wb");
    if (f == NULL || fwrite(b->p, 1, b->len, f) != b->len || fclose(f) != 0) {
        fprintf(stderr, "cannot write %s\n", path);
        failures++;
    }
    buf_clear(b);
}

static void save_messages(const char *dir, struct buf *b)
{
    for (unsigned k = 0; k < msg_gen_n_kinds; k++)
        for (unsigned seed = 1; seed <= 2; seed++) {
            struct msg m;
            msg_gen(&m, msg_gen_kinds[k], seed);
            msg_encode(b, &m);
            save(dir, msg_name(m.kind), seed, b);
            msg_deinit(&m);
        }
}

static void save_rpc(const char *dir, struct buf *b)
{
    struct buf body = {0};
    value_put_map(&body, 2);
    value_put_str(&body, "messages", 8);
    value_put_array(&body, 1);
    value_put_map(&body, 1);
    value_put_str(&body, "role", 4);
    value_put_str(&body, "user", 4);
    value_put_str(&body, "temperature", 11);
    value_put_float(&body, 0.5);
    rpc_put_request(b, 1, "/v1/chat/completions", "batch", &body);
    save(dir, "rpc_request", 1, b);
    rpc_put_delta(b, 1, &body);
    save(dir, "rpc_delta", 1, b);
    rpc_put_done(b, 1, NULL);
    save(dir, "rpc_done", 1, b);
    rpc_put_error(b, 1, 503, 100, &body);
    save(dir, "rpc_error", 1, b);
    rpc_put_cancel(b, 1);
    save(dir, "rpc_cancel", 1, b);
    rpc_put_ping(b, 1, false);
    save(dir, "rpc_ping", 1, b);
    buf_deinit(&body);
}

static void save_hostile(const char *dir, struct buf *b)
{
    static const struct { const char *p; size_t n; unsigned times; } cases[] = {
        {"\xdd\xff\xff\xff\xff", 5, 1},     {"\xdf\xff\xff\xff\xff", 5, 1},
        {"\xc6\xff\xff\xff\xff", 5, 1},     {"\xdb\xff\xff\xff\xff\x41", 6, 1},
        {"\xc9\xff\xff\xff\xff\x05", 6, 1}, {"\x91", 1, 65},
        {"\x81\xa1\x61", 3, 40},            {"\xdc\xff\xff", 3, 40},
        {"\x82\xa1" "a\x01\xa1" "a\x02", 7, 1},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (unsigned k = 0; k < cases[i].times; k++)
            buf_add(b, cases[i].p, cases[i].n);
        save(dir, "hostile", i, b);
    }
}

int main(int argc, char **argv)
{
    struct buf b = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: codec_corpus FOLDER\n");
        return 2;
    }
    save_messages(argv[1], &b);
    save_rpc(argv[1], &b);
    save_hostile(argv[1], &b);
    buf_deinit(&b);
    return failures > 0;
}
