/* http.h - the HTTP door: libmicrohttpd in external-epoll mode on the libuv loop, routes, SSE. */
#ifndef SLUICE_GATEWAY_HTTP_H
#define SLUICE_GATEWAY_HTTP_H

#include "gateway/gateway.h"

int http_create(struct http_server **out, struct gateway *g,
                struct err *e);                /* ERR_IO names the address when taken */
void http_quiesce(struct http_server *h);      /* stop accepting; running replies go on */
bool http_idle(const struct http_server *h);   /* no reply is owed or on its way */
uint32_t http_connections(const struct http_server *h); /* open now; 0 for NULL */
void http_destroy(
    struct http_server **h); /* sends what is ready, resumes the rest as dead, then stops */
uint16_t http_port(const struct http_server *h); /* the bound one, when 0 was asked for */

#endif
