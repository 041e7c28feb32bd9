/* address.h - where a listener listens: HOST:PORT, tcp://HOST:PORT, ipc://PATH; and is it loopback.
 *
 * Only text is looked at, no name is resolved: loopback is 127.0.0.0/8 and ::1 (also as
 * ::ffff:127.x.y.z) in their usual notation, the word localhost, and ipc. Everything else is not,
 * a name that resolves to loopback too. Port 0 (or * in an endpoint) means a free one.
 * Thread: any. Ownership: plain storage.
 */
#ifndef SLUICE_CONFIG_ADDRESS_H
#define SLUICE_CONFIG_ADDRESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADDRESS_HOST_MAX 256
#define ADDRESS_PATH_MAX 104 /* what a Unix socket takes, less the NUL and what libzmq adds */

enum address_kind { ADDRESS_TCP, ADDRESS_IPC };

struct address {
    enum address_kind kind;
    char host[ADDRESS_HOST_MAX]; /* ADDRESS_TCP: without brackets */
    bool is_ipv6;
    uint16_t port;
    char path[ADDRESS_PATH_MAX]; /* ADDRESS_IPC */
};

/* "127.0.0.1:8000", "[::1]:8000", "localhost:0". */
int address_parse_host_port(struct address *a, const char *text, struct err *e);
/* "tcp://HOST:PORT", "ipc://PATH" (absolute). */
int address_parse_endpoint(struct address *a, const char *text, struct err *e);
bool address_is_loopback(const struct address *a);
/* HOST:PORT with brackets where needed, or ipc://PATH; -1 when cap is too small. */
int address_format(const struct address *a, char *out, size_t cap);

#endif
