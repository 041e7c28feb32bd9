/* transport.h - message pipes that never block: ZeroMQ in production, memory in tests.
 *
 * Two ends. A *listener* (ROUTER, mandatory) has many peers, each named by a small integer the transport gives
 * out; a *dialer* (DEALER) has one. A session is one connection: the dialer never reconnects by
 * itself (a DEALER would deliver its old queue to the new peer before anything else); it reports
 * TRANSPORT_DOWN and the owner makes a new one, so nothing queued in an old session is ever delivered.
 *
 * Sends: 0 = taken; TRANSPORT_FULL = would block, state unchanged; TRANSPORT_GONE = no such peer any more
 * (dialer: the connection ended). FULL: keep the message and try again whenever recv has become empty, and at
 * the latest on a timer (50 ms): the descriptor has one edge for reading and writing, so the event that
 * says "room again" may have been taken by the recv in between. A new dialer is FULL until it is
 * connected (transport_ready). Receives: until TRANSPORT_EMPTY: the descriptors are edge-triggered, so after
 * every send or receive, and after either descriptor was readable, the owner must call
 * transport_recv until it is empty. TRANSPORT_DOWN (dialer) comes after the last message of the
 * session and stays: the owner closes.
 * A message is one frame of bytes, perhaps empty; peers that send several frames have that message counted in
 * bad_envelopes and dropped, the connection stays (their next valid message is served).
 * A listener knows at most TRANSPORT_PEERS_MAX peers; over that the one heard from longest ago is forgotten
 * (sends to it are GONE, its next message comes under a new number), so strangers cannot fill the table for ever.
 * Thread: one owner per transport. Memory: received bytes belong to the caller (transport_msg_free), and
 * may outlive the transport.
 */
#ifndef SLUICE_PROTO_TRANSPORT_H
#define SLUICE_PROTO_TRANSPORT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_PEERS_MAX 4096
#define TRANSPORT_KEY_BYTES 32

enum { TRANSPORT_OK = 0, TRANSPORT_FULL = -1, TRANSPORT_GONE = -2, TRANSPORT_EMPTY = -3, TRANSPORT_DOWN = -4 };

/* CURVE pair of one side and the public key(s) of the other; all zero = no encryption (RPC door on loopback). */
struct transport_keys {
    bool on;
    uint8_t own_public[TRANSPORT_KEY_BYTES], own_secret[TRANSPORT_KEY_BYTES];
    uint8_t server_public[TRANSPORT_KEY_BYTES];  /* dialer: the listener's key */
    uint8_t allowed[4][TRANSPORT_KEY_BYTES]; uint32_t n_allowed; /* listener: ZAP admits these only */
};
/* Key file: both pairs as text, mode 0600; `up` makes it anew at each start (an old file is replaced in one
 * rename) and hands the path to both sides. load refuses a file that others may read (ERR_BAD_FILE). Whoever
 * holds a filled struct transport_keys wipes it after listen or dial (transport_keys_wipe). */
int transport_keys_make(const char *path, struct err *e);
void transport_keys_wipe(struct transport_keys *k);
int transport_keys_load(struct transport_keys *k, const char *path, bool listener, struct err *e);

struct transport_msg { uint32_t peer; uint8_t *p; size_t n; void *owner; };
void transport_msg_free(struct transport_msg *m);

struct transport;

/* tcp://HOST:PORT (PORT 0 or * = chosen, see transport_endpoint) or ipc://PATH. `keys` NULL or not on = plain.
 * dial returns at once, before anything is connected; messages over max_bytes end the sender's connection. */
int transport_listen(struct transport **out, const char *endpoint, const struct transport_keys *keys, size_t max_bytes, struct err *e);
int transport_dial(struct transport **out, const char *endpoint, const struct transport_keys *keys, size_t max_bytes, struct err *e);
/* Memory pair for tests (no sockets, two threads): a listener and dialers of it. Ordered, nothing lost, FULL
 * after the limit of messages per direction and peer (default 1000). A listener may be closed before its dialers. */
int transport_fake_listen(struct transport **out, struct err *e);
int transport_fake_dial(struct transport **out, struct transport *listener, struct err *e);
/* Loss of a fake dialer's connection, from any thread: what is queued either way is dropped, the dialer
 * gets DOWN, the listener's sends to it GONE. */
void transport_fake_cut(struct transport *dialer);
void transport_fake_limit(struct transport *t, uint32_t messages); /* listener: for all its dialers */
void transport_close(struct transport **t);       /* linger 0: what was not sent is dropped */

const char *transport_endpoint(const struct transport *t);
int transport_fd(const struct transport *t);       /* watch for reading */
/* A second descriptor of a dialer that tells of the connection's end (monitor); -1 when there is none. */
int transport_monitor_fd(const struct transport *t);
bool transport_ready(const struct transport *t);  /* dialer: connected and handshaken; as of the last recv */
int transport_send(struct transport *t, uint32_t peer, const void *p, size_t n); /* dialer: peer 0 */
int transport_recv(struct transport *t, struct transport_msg *m);
/* Listener: forget a peer (its later messages come under a new number). */
void transport_peer_drop(struct transport *t, uint32_t peer);
uint64_t transport_bad_envelopes(const struct transport *t);

#endif
