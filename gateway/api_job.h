/* api_job.h - the text work of one call, on a lane's thread: JSON body in, checked parameters and
 * exact token ids out (or one error). Also the whole of /tokenize and /detokenize.
 *
 * Order: api_job_init on the loop, api_job_work on a lane, then the loop reads the results;
 * api_job_deinit. Memory: everything is the job's; api_job_deinit frees what was not taken.
 */
#ifndef SLUICE_GATEWAY_API_JOB_H
#define SLUICE_GATEWAY_API_JOB_H

#include "gateway/api_params.h"
#include "model/model.h"

struct api_prompt {
    struct id_list ids;
    char *text; size_t n_text;     /* the prompt as text, only when echo asks for it */
};

struct api_job {
    /* in */
    const struct model *model;
    const struct api_limits *limits;
    enum endpoint endpoint;
    char cls[24];
    struct api_rules rules;
    char *body; size_t n_body;     /* owned */
    /* out */
    bool failed;
    struct err err;
    struct api_params params;
    struct api_prompt *prompts; uint32_t n_prompts;
    struct buf reply;              /* tokenize, detokenize: the JSON body */
};

/* Afterwards `rules` may be set: at first everything is allowed. */
void api_job_init(struct api_job *j, const struct model *m, const struct api_limits *limits,
                  const struct request_in *in);
void api_job_work(struct api_job *j, struct tokenizer_scratch *scratch);
void api_job_deinit(struct api_job *j);

#endif
