/* dispatch_priv.h - the inside of the dispatcher: dispatch.c (slots, actions) and link.c (sessions,
 * messages). */
#ifndef SLUICE_GATEWAY_DISPATCH_PRIV_H
#define SLUICE_GATEWAY_DISPATCH_PRIV_H

#include "gateway/dispatch.h"

struct link_session {
    bool used, accepted, synced;
    bool told, young;              /* STATUS came; the worker started after this gateway */
    uint32_t peer;
    uint64_t name;                 /* hash of the worker's name */
    uint64_t heard_ns, sent_ns, hello_ns;
    struct msg_hello hello;
    struct msg_status status;
};

/* What callbacks asked for while actions were being performed: handled after them, in order. */
struct dispatch_later { enum gateway_event_kind kind; uint32_t slot, worker; struct sub_id sub; };

struct dispatch {
    struct gateway *g;
    struct gateway_core *core;
    void *region; size_t region_bytes;
    struct gateway_action *actions;
    struct sequence **slots;       /* NULL = free, or already left by its owner */
    uint32_t *free_slots, n_free, max_slots;
    struct dispatch_later *later; uint32_t later_head, n_later;
    bool performing;
    uint64_t arrivals;
    /* the message whose records GA_DELIVER names */
    const struct msg_tokens_entry *entry;
    /* link */
    struct transport *listener;
    struct transport_keys keys;
    struct link_session sessions[GATEWAY_WORKERS_MAX];
    struct buf out;                /* encoding of one message */
    int32_t *ids; uint32_t cap_ids;
    uv_poll_t poll;
    uv_timer_t timer;
    uint64_t ticked_ns; /* the last tick: events that come faster than ticks must not put them off
                           for ever */
    uv_prepare_t prepare;
    bool sent; /* since the last receive: the edge-triggered descriptor must be looked at again */
    int open_handles;
    bool ticking;
};

/* dispatch.c */
void dispatch_event(struct dispatch *d, const struct gateway_event *ev);

/* link.c */
int link_open(struct dispatch *d, struct err *e);
void link_close(struct dispatch *d);
void link_receive(struct dispatch *d); /* until empty: the descriptor is edge-triggered */
void link_heartbeat(struct dispatch *d, uint64_t now_ns);    /* pings, silence */
int link_send(struct dispatch *d, uint32_t worker,
              const struct msg *m); /* 0, TRANSPORT_FULL, TRANSPORT_GONE */
/* Fill ids, from and sub of a SUBMIT and send it. */
int link_submit(struct dispatch *d, const struct gateway_action *a, struct sequence *s);

#endif
