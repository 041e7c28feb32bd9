/* link_driver.h - a gateway's end of the worker link as a measuring instrument: it starts one
 * sluice-worker, speaks the link to it (docs/PROTOCOL.md), stamps what it sends and receives, and
 * keeps every id that comes.
 *
 * Placement: the worker with all its threads on one core, the driver with ZeroMQ's thread on
 * another. It sleeps in ppoll on the transport's descriptor and never spins, so that it takes
 * nothing from what it measures. All stamps are CLOCK_MONOTONIC, ns.
 *
 * Order: driver_open (worker started, session up, SYNC answered); driver_submit / driver_cancel and
 * driver_turn as often as wanted; driver_close (worker drained by SIGTERM, so that an event log is
 * complete). driver_cut and driver_back play a gateway that dies and returns under the same name.
 * Requests belong to the caller and must live until driver_close; `ended` is called once for each,
 * from driver_turn. A sequence handed back is submitted again by itself after the next STATUS; its
 * first stamp stays. Lost messages are asked for again as a gateway does. Thread: one owner.
 * Failure: -1 with `err`; a worker that dies or is silent for 10 s makes driver_turn fail.
 */
#ifndef SLUICE_TESTS_LINK_DRIVER_H
#define SLUICE_TESTS_LINK_DRIVER_H

#include "base/buf.h"
#include "proto/message.h"
#include "proto/transport.h"

#include <sys/types.h>

#define DRIVER_MORE_MAX 24

struct driver_config {
    const char *program, *model;
    bool null_engine;
    int worker_core, driver_core; /* -1 = anywhere */
    uint32_t threads, seats, kv_tokens, prefill_chunk;
    const char *event_log;           /* NULL = none */
    const char *more[DRIVER_MORE_MAX]; /* flags of the worker, as they are; NULL-terminated */
};

enum driver_state { DRIVER_NEW, DRIVER_SENT, DRIVER_RETRY, DRIVER_DONE };

struct driver_request {
    int32_t *ids; /* prompt, then what came; room for max_total */
    uint32_t n_prompt, n, max_total;
    uint32_t least; /* not 0: ends at the first common letter after so many ids, see below */
    uint8_t cls;
    float temperature;
    uint64_t seed, tag;
    enum driver_state state;
    struct sub_id sub; /* the current one */
    enum finish finish;
    uint32_t preemptions;
    uint64_t due_ns, sent_ns, *at_ns; /* at_ns[i]: receipt of output id i */
};

/* A request of `n_in` ids drawn from (seed, index) that runs to n_out ids, whatever they are. */
int driver_request_init(struct driver_request *r, uint8_t cls, uint64_t seed, uint64_t index,
                      uint32_t n_in, uint32_t n_out, uint32_t n_vocab);
/* Makes the length one that nobody knows before: max_total is four times as far, and after n_out
 * ids the first one with a common letter in it ends the answer (stop strings, min_total). */
int driver_request_open_ended(struct driver_request *r);
void driver_request_deinit(struct driver_request *r);
bool driver_request_answered(const struct driver_request *r); /* ended as asked, all ids there */

struct link_driver {
    struct driver_config cfg;
    struct transport *t; /* NULL = cut */
    uint32_t peer;
    char endpoint[300], dir[4096], keys[4120], log[4120];
    char name[MSG_NAME_MAX];
    uint64_t incarnation, counter;
    pid_t pid; /* of the worker; -1 = it ended */
    int life; /* the worker ends when this end closes */
    bool live;
    struct msg_hello hello;
    struct msg_status status;
    uint64_t n_status;
    struct msg_account accounts[CLASSES_MAX]; /* of the newest TOKENS */
    struct driver_request **by_counter;
    size_t cap;
    struct buf out;
    uint64_t said_ns, heard_ns;
    bool retries;
    void (*ended)(void *ctx, struct driver_request *r);
    void *ctx;
    /* counts */
    uint64_t messages, handed_back, gaps, changed, resubmitted, sync_entries, syncs, strange;
};

uint64_t driver_clock_ns(void);
int driver_open(struct link_driver *d, const struct driver_config *cfg, struct err *e);
void driver_close(struct link_driver *d);
/* 0; 1 = no room now, try again after the next turn; -1 = the session is down. sent_ns is set
 * once. */
int driver_submit(struct link_driver *d, struct driver_request *r);
/* It is DONE then, `ended` is not called. */
void driver_cancel(struct link_driver *d, struct driver_request *r);
/* Takes what is there, or waits for it until `until_ns` at the latest. */
int driver_turn(struct link_driver *d, uint64_t until_ns, struct err *e);
/* Takes the connection away as a killed gateway does; nothing is said. */
void driver_cut(struct link_driver *d);
/* Listens again at the same place and waits until SYNC was answered. */
int driver_back(struct link_driver *d, uint64_t incarnation, struct err *e);
double driver_cpu_s(const struct link_driver *d); /* of the worker process so far */
bool driver_worker_knows(const char *program, const char *flag); /* named by its --help */

#endif
