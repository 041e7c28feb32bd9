/* rpc_stand_in.h - a server of the RPC door that answers as a test tells it, in a thread of its own.
 *
 * Each REQUEST is given to `answer` with how often its text ("prompt" of the body) was asked before; it
 * returns the status to answer with: 200 is DONE, STAND_IN_SILENCE nothing at all, STAND_IN_HANG_UP ends the
 * connection (the listener is closed and opened again on the same endpoint), others are ERROR.
 * Order: start, use `endpoint`, stop. Thread: `answer` is called from the server's thread.
 */
#ifndef SLUICE_TESTS_UNIT_CLI_RPC_STAND_IN_H
#define SLUICE_TESTS_UNIT_CLI_RPC_STAND_IN_H

#include "proto/rpc.h"

#include <pthread.h>
#include <stdatomic.h>

#define STAND_IN_TEXTS 64
enum { STAND_IN_SILENCE = 0, STAND_IN_HANG_UP = -1 };

struct rpc_stand_in {
    char endpoint[256];
    int (*answer)(const char *text, int asked_before);
    uint32_t retry_after_ms;
    struct transport *first;
    pthread_t thread;
    _Atomic bool stop;
    _Atomic int requests, cancels;
    char texts[STAND_IN_TEXTS][64];
    int asked[STAND_IN_TEXTS];
    int n_texts;
};

int rpc_stand_in_start(struct rpc_stand_in *s, const char *endpoint);
void rpc_stand_in_stop(struct rpc_stand_in *s);

#endif
