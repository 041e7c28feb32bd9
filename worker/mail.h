/* mail.h - what the link thread and the step loop say to each other: two rings and two eventfds.
 *
 * `in` (link to loop): sessions up and down, submissions with their payload already built, cancels,
 * gaps, acknowledgements. `out` (loop to link): TOKENS of one step for one gateway, SYNC, STATUS,
 * not yet encoded. Used out-messages come back through `spare`, with their grown arrays, so that a
 * running worker allocates nothing for a step's answer.
 *
 * Epoch: the number of the session, raised by the link each time one comes up. The loop stamps
 * every out-message with the epoch of the MAIL_UP it last saw; the link drops what belongs to an
 * older one. So nothing made for a dead session reaches the next one, and SYNC is the first thing a
 * session says. Never blocks. Full towards the loop: the link keeps what it has and stops
 * receiving. Full towards the link: the message is lost and the session is cut (mail_cut), which
 * repairs everything by SYNC. Thread: functions say whose they are. Ownership of a message passes
 * with it.
 */
#ifndef SLUICE_WORKER_MAIL_H
#define SLUICE_WORKER_MAIL_H

#include "base/ring.h"
#include "proto/message.h"
#include "worker/seq.h"

enum mail_in_kind { MAIL_UP, MAIL_DOWN, MAIL_SUBMIT, MAIL_CANCEL, MAIL_GAP, MAIL_ACK, MAIL_DRAIN };

struct mail_in {
    enum mail_in_kind kind;
    uint32_t gw, epoch;
    uint64_t gateway; /* UP: hash of the gateway's name */
    struct sub_id sub;
    uint32_t from;   /* GAP; SUBMIT: as in the message */
    struct seq *seq; /* SUBMIT; NULL = no memory for it */
};

enum mail_out_kind { MAIL_TOKENS, MAIL_SYNC, MAIL_STATUS };

struct mail_out {
    enum mail_out_kind kind;
    uint32_t gw, epoch;
    /* TOKENS: entries name records in order, records name alternatives in order; pointers are set
     * by mail_out_seal */
    struct msg_tokens_entry *entries;
    uint32_t n_entries, cap_entries;
    struct msg_record *records;
    uint32_t n_records, cap_records;
    struct msg_top *tops;
    uint32_t n_tops, cap_tops;
    struct msg_account accounts[CLASSES_MAX];
    uint32_t n_accounts;
    struct msg_tenant *tenants;
    uint32_t n_tenants, cap_tenants;
    bool tenants_all;
    struct msg_sync_entry *sync;
    uint32_t n_sync, cap_sync;
    struct msg_status status;
};

struct mail {
    struct ring in, out, spare;
    int in_fd, out_fd; /* eventfds: readable when the ring may hold something */
    _Atomic uint32_t
        cut; /* bit per gateway: the loop could not say something; the link ends the session */
};

int mail_init(struct mail *m, uint32_t capacity, struct err *e);
void mail_deinit(struct mail *m); /* both threads are gone; destroys what is left */
void mail_clear(int fd);          /* resets an eventfd; before the ring is looked at */
void mail_wake(int fd);

/* Link. */
int mail_in_push(struct mail *m,
                 const struct mail_in *in); /* copies; -1 = full or no memory, `in` is kept */
struct mail_out *mail_out_pop(struct mail *m);
void mail_out_recycle(struct mail *m, struct mail_out **o);
uint32_t mail_take_cut(struct mail *m);

/* Step loop. */
struct mail_in *mail_in_pop(struct mail *m);
void mail_in_destroy(struct mail_in **in); /* the seq too, if it is still there */
struct mail_out *mail_out_new(struct mail *m, enum mail_out_kind kind, uint32_t gw,
                              uint32_t epoch); /* NULL = no memory */
void mail_out_push(struct mail *m,
                   struct mail_out **o); /* full: destroys it and cuts the session */
void mail_cut(struct mail *m, uint32_t gw);

/* Either, on a message it owns. -1 = no memory, nothing changed. */
int mail_out_reserve(struct mail_out *o, uint32_t entries, uint32_t records, uint32_t tops,
                     uint32_t sync);
int mail_out_reserve_tenants(struct mail_out *o, uint32_t n);
void mail_out_seal(struct mail_out *o);
void mail_out_destroy(struct mail_out **o);

#endif
