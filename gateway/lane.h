/* lane.h - text lanes: threads that parse JSON, render templates and tokenize, so that the loop
 * never does.
 *
 * Two lanes with one thread and one bounded queue each: *chat* (short bodies first in first out)
 * and *bulk* (batch class, bodies over 32 KiB; niced). A job is work(job) on the lane's thread,
 * then done(job) on the loop. No lane waits for another. Scratch: each lane has its own
 * tokenizer_scratch.
 */
#ifndef SLUICE_GATEWAY_LANE_H
#define SLUICE_GATEWAY_LANE_H

#include "gateway/gateway.h"

enum lane { LANE_CHAT, LANE_BULK, LANE_COUNT };
#define LANE_BULK_BYTES (32u << 10)

struct lane_job {
    void (*work)(
        struct lane_job *j,
        struct tokenizer_scratch *scratch); /* lane thread: may touch the job and the model only */
    void (*done)(struct lane_job *j);                                     /* loop thread */
};

int lanes_create(struct lanes **out, struct gateway *g, struct err *e);
void lanes_destroy(struct lanes **l); /* runs no more work; done() of taken jobs is still called */
int lane_push(struct lanes *l, enum lane lane, struct lane_job *j); /* -1 = queue full */

#endif
