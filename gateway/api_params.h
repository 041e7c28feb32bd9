/* api_params.h - what an OpenAI body asks for, checked: sampling, limits, stops, output form,
 * class.
 *
 * Rules: null = absent; unknown fields are ignored; a field we know and cannot honour is 400, never
 * silently dropped. Ownership: api_params borrows nothing from the JSON (it owns copies); deinit
 * frees them. Thread: any (a text lane).
 */
#ifndef SLUICE_GATEWAY_API_PARAMS_H
#define SLUICE_GATEWAY_API_PARAMS_H

#include "gateway/api_fields.h"
#include "gateway/api_limits.h"
#include "gateway/request.h"
#include "proto/message.h"

struct api_params {
    enum endpoint endpoint;
    bool stream, include_usage, continuous_usage;
    uint32_t n;
    int64_t max_tokens;            /* resolved default; 0 only with echo */
    int64_t min_tokens;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int32_t top_k;
    bool has_seed; uint64_t seed;
    bool logprobs; uint8_t n_top;  /* chat: top_logprobs; completions: logprobs */
    bool echo, ignore_eos, include_stop, skip_special;
    struct msg_stop stops[MSG_STOPS_MAX]; uint32_t n_stops;   /* owned copies */
    int32_t stop_ids[MSG_STOP_IDS_MAX]; uint32_t n_stop_ids;
    struct msg_bias *bias; uint32_t n_bias;                    /* owned */
    char *cache_salt; uint32_t n_cache_salt;                   /* owned; NULL = none */
    uint8_t cls;
    int8_t priority;               /* among the tenant's own: -8 .. 7, larger first */
    char tier[16];                 /* service_tier to echo, "" = not asked */
};

/* `cls`: class from the header or RPC field, "" = none (then service_tier decides); `rules`: what the
 * caller may use, NULL = everything. 0 or -1. */
int api_params_read(struct api_params *p, enum endpoint endpoint, const json_t *body,
                    const char *cls, const struct api_rules *rules,
                    const struct api_limits *limits, struct err *e);
void api_params_deinit(struct api_params *p);
/* The `model` field: present, a string, and the one we serve. */
int api_check_model(const json_t *body, const struct api_limits *limits, bool required,
                    struct err *e);

#endif
