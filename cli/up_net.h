/* up_net.h - the two things `sluice up` does with sockets itself: is a port free, is the gateway ready.
 *
 * Both are for loopback and take at most a second. Thread: main only.
 */
#ifndef SLUICE_CLI_UP_NET_H
#define SLUICE_CLI_UP_NET_H

#include "config/address.h"
#include "config/config.h"

/* The addresses of the three listeners: each free, no two the same. -1 names the flag to change.
 * `patience_ms`: how long to wait for a port that an `up` killed a moment ago still holds. */
int up_net_check_ports(const struct settings *s, int patience_ms, struct err *e);
/* GET /ready: the HTTP status, or -1 when there is no answer. */
int up_net_ready(const struct address *http);

#endif
