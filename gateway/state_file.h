/* state_file.h - <state>/gateway.json: where this gateway listens, for `sluice up` and people.
 *
 * {"http_port":N,"rpc":"tcp://...","workers":"tcp://...","pid":N}, written to a temporary name and
 * renamed, so that a reader sees the old or the new file, never half of one.
 */
#ifndef SLUICE_GATEWAY_STATE_FILE_H
#define SLUICE_GATEWAY_STATE_FILE_H

#include "gateway/gateway.h"

/* The folder itself, with its parents; before anything is kept in it. */
int state_file_folder(const struct gateway *g, struct err *e);
int state_file_write(const struct gateway *g, struct err *e);

#endif
