/* peer_map.h - inside proto/: a listener's peers, ZeroMQ routing ids on one side, small numbers on the other.
 *
 * A number is a place and the place's generation, so that a forgotten peer's number names nobody for a
 * long time (2^20 uses of that place) instead of somebody else. Bounded: over `capacity` the peer heard from
 * longest ago is forgotten. The hash is keyed at random: routing ids may be chosen by strangers.
 * Ownership: all memory is the map's. Thread: one owner. Cost: O(1) a call.
 */
#ifndef SLUICE_PROTO_PEER_MAP_H
#define SLUICE_PROTO_PEER_MAP_H

#include <stddef.h>
#include <stdint.h>

#define PEER_ID_MAX 255            /* libzmq's own limit for a routing id */
#define PEER_PLACES_MAX 4096
#define PEER_NONE 0u               /* no peer's number */

struct peer_map;

int peer_map_create(struct peer_map **out, uint32_t capacity); /* 1 .. PEER_PLACES_MAX; -1 = no memory */
void peer_map_destroy(struct peer_map **m);
/* The number of this routing id, new when unknown; marks it as heard from. PEER_NONE = no memory. */
uint32_t peer_map_touch(struct peer_map *m, const void *id, size_t n);
/* The routing id; NULL when the number is stale or never was. Valid until the next touch or drop. */
const void *peer_map_id(const struct peer_map *m, uint32_t peer, size_t *n);
void peer_map_drop(struct peer_map *m, uint32_t peer); /* stale numbers are ignored */
uint32_t peer_map_count(const struct peer_map *m);
const char *peer_map_check(const struct peer_map *m);  /* auditor: NULL, or what is broken */

#endif
