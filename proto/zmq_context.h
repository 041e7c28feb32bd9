/* zmq_context.h - inside proto/: the process's one ZeroMQ context and the door-keeper of CURVE listeners.
 *
 * The context is made with the first user and ended with the last one. With it lives one thread that answers
 * ZAP (inproc://zeromq.zap.01): CURVE proves that a peer has a key, ZAP says whether that key is one we
 * admit; without the handler CURVE admits anybody. Each CURVE listener registers its list of admitted keys under
 * a domain of its own before it binds. What is not registered is refused.
 * Thread: any. zmq_context_put of the last user ends the thread and the context: all
 * sockets must be closed before.
 */
#ifndef SLUICE_PROTO_ZMQ_CONTEXT_H
#define SLUICE_PROTO_ZMQ_CONTEXT_H

#include "proto/transport.h"

#define ZMQ_DOMAIN_MAX 32
#define ZMQ_DOMAINS_MAX 16         /* CURVE listeners of one process at once */

void *zmq_context_get(struct err *e); /* a libzmq context; NULL = failed */
void zmq_context_put(void);
/* Admits keys->allowed under a new domain, written to `domain`. */
int zmq_context_admit(const struct transport_keys *keys, char domain[ZMQ_DOMAIN_MAX], struct err *e);
void zmq_context_forget(const char *domain); /* "" is ignored */

#endif
