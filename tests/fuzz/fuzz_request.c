/* fuzz_request.c - any bytes as the body of a request, at every endpoint, on the tiny model.
 *
 * The first byte chooses endpoint and class, the rest is the body. What is taken must pass the
 * link's own check of a SUBMIT, since an assert there would end the gateway; what is refused must
 * say so in a JSON error.
 */
#include "base/log.h"
#include "base/mem.h"
#include "gateway/choice.h"
#include "gateway/json_out.h"
#include "tests/tiny/tiny_model.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct model model;
static struct api_limits limits;
static struct tokenizer_scratch *scratch;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static struct settings settings;
    char path[] = "/tmp/fuzz-request-XXXXXX";
    struct err e = {0};
    (void)argc;
    (void)argv;
    log_open("fuzz_request", LOG_ERROR, false);
    int fd = mkstemp(path);
    if (fd < 0 || tiny_model_write(TINY_SEED, path) != 0 ||
        model_open(&model, path, "tiny", &e) != 0) {
        fprintf(stderr, "no tiny model: %s\n", e.msg);
        exit(1);
    }
    close(fd);
    unlink(path);
    settings_defaults(&settings);
    api_limits_fill(&limits, &settings, &model);
    scratch = tokenizer_scratch_create(model.tok);
    return scratch == NULL;
}

static void check_error(const struct err *e)
{
    struct buf b = {0};
    assert(e->code != ERR_OK && e->msg[0] && err_http_status(e->code) < 500);
    error_json(&b, e);
    json_t *j = json_loadb(b.p, b.len, JSON_REJECT_DUPLICATES, NULL);
    assert(j && json_object_size(json_object_get(j, "error")) == 4);
    json_decref(j);
    buf_deinit(&b);
}

static void check_choices(const struct api_job *j)
{
    assert(j->n_prompts >= 1 && j->n_prompts * j->params.n <= limits.max_choices);
    for (uint32_t i = 0; i < j->n_prompts; i++) {
        struct choice c;
        struct err e;
        const struct api_prompt *p = &j->prompts[i];
        choice_init(&c, NULL, i, &j->params, p, 1, limits.n_ctx);
        struct msg m = {.kind = MSG_SUBMIT, .u.submit = c.seq.submit};
        m.u.submit.ids = p->ids.ids;
        m.u.submit.n_ids = (uint32_t)p->ids.n;
        m.u.submit.from = c.seq.from;
        assert(msg_check(&m, &e) == 0);
        for (size_t k = 0; k < p->ids.n; k++)
            assert(p->ids.ids[k] >= 0 && p->ids.ids[k] < limits.n_vocab);
        choice_deinit(&c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const classes[] = {"", "batch", "realtime", "gold"};
    struct api_job j;
    if (n == 0) return 0;
    struct request_in in = {.endpoint = (enum endpoint)(data[0] % 4), .n_body = n - 1};
    snprintf(in.cls, sizeof in.cls, "%s", classes[data[0] / 4 % 4]);
    in.body = mem_memdup(data + 1, n - 1);
    if (in.body == NULL) return 0;
    api_job_init(&j, &model, &limits, &in);
    api_job_work(&j, scratch);
    if (j.failed) {
        check_error(&j.err);
    } else if (in.endpoint == ENDPOINT_TOKENIZE || in.endpoint == ENDPOINT_DETOKENIZE) {
        json_t *reply =
            json_loadb(j.reply.p, j.reply.len, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
        assert(reply);
        json_decref(reply);
    } else {
        check_choices(&j);
    }
    api_job_deinit(&j);
    return 0;
}
