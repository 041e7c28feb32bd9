/* batch_line.h - one line of a batch file in OpenAI's form, and one line of its results.
 *
 * In:  {"custom_id","method":"POST","url","body":{...}}
 * Out: {"id","custom_id","response":{"status_code","request_id","body"},"error":null}
 * Thread: any. Limits below.
 */
#ifndef SLUICE_CLI_BATCH_LINE_H
#define SLUICE_CLI_BATCH_LINE_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define BATCH_LINE_BYTES_MAX (10u << 20)
#define BATCH_ID_BYTES_MAX 512

struct batch_line {
    json_t *root;
    const char *custom_id, *url; /* inside root */
    size_t n_custom_id;
    json_t *body;
};

/* Everything about the line alone; -1 = `e` says what is wrong, nothing to free. The body's "stream" and
 * "stream_options" are dropped: a line's answer is whole or not there. */
int batch_line_parse(struct batch_line *l, const char *p, size_t n, struct err *e);
void batch_line_deinit(struct batch_line *l);

enum batch_verdict {
    BATCH_RESULT_BROKEN, /* no result line: torn, or another file */
    BATCH_RESULT_RETRY,  /* no final answer: without response, or a status worth another try */
    BATCH_RESULT_DONE,   /* 2xx */
    BATCH_RESULT_FAILED, /* any other status: final */
};

struct batch_result {
    json_t *root;
    const char *custom_id;
    size_t n_custom_id;
};

/* Reads a result line; deinit unless BROKEN. */
enum batch_verdict batch_result_parse(struct batch_result *r, const char *p, size_t n);
void batch_result_deinit(struct batch_result *r);
/* 408, 429, 499 and 5xx: the same line may succeed later. */
bool batch_status_retryable(uint32_t status);

/* Appends the line with its LF; `body` is borrowed, `tag` names the result ("batch_req_" and so on). -1 =
 * no memory. */
int batch_result_put(struct buf *out, const char *tag, const char *custom_id, size_t n_custom_id,
                     uint32_t status, const json_t *body);

#endif
