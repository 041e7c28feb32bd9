/* Rendering of one answer against the worker's own stopper: random ids, stops and cuts of delivery,
 * and the text of a stream is the text of the whole reply is the visible bytes the worker counted.
 */
#include "gateway/choice.h"

#include "base/mem.h"
#include "tests/unit/gateway/gateway_rig.h"
#include "worker/stopper.h"

#include <stdlib.h>
#include <string.h>

#define IDS_MAX 200

static struct model model;

/* What one answer is made of. */
struct story {
    struct api_params params;
    struct stop_set *stops;
    struct api_prompt prompt;
    int32_t prompt_ids[4];
    int32_t ids[IDS_MAX];
    uint32_t n;                    /* up to the end that the stopper decided */
    enum finish finish;
    uint32_t visible;
    struct buf raw;                /* visible bytes of all ids, cut at `visible` */
    struct buf text;               /* the same as text */
};

/* Ids that meet: letters a to c, pieces of multibyte characters, controls, a merge. */
static int32_t draw(unsigned *seed)
{
    static const uint8_t bytes[] = {'a',  'b',  'c',  'a',  'b',  0xe2, 0x82,
                                    0xac, 0xf0, 0x9f, 0x98, 0x80, ' ',  '\n'};
    switch (rand_r(seed) % 12) {
    case 0: return 3;              /* a control token that ends nothing */
    case 1: return 290 + rand_r(seed) % 10;
    case 2: return TINY_BYTE(rand_r(seed) % 256);
    default: return TINY_BYTE(bytes[(unsigned)rand_r(seed) % sizeof bytes]);
    }
}

static void add_stop(struct story *s, const char *text, size_t n)
{
    s->params.stops[s->params.n_stops++] = (struct msg_stop){text, (uint32_t)n};
}

static void draw_stops(struct story *s, unsigned *seed)
{
    static const char *const pool[] = {"ab",   "abc", "bca",  "aab", "\xe2\x82\xac",
                                       "\xac", "c\n", "aaaa", " ",   "abab"};
    struct stop_text texts[STOP_MAX];
    for (int k = rand_r(seed) % 4; k > 0; k--) {
        const char *t = pool[rand_r(seed) % 10];
        add_stop(s, t, strlen(t));
    }
    for (uint32_t i = 0; i < s->params.n_stops; i++) {
        texts[i] = (struct stop_text){s->params.stops[i].p, s->params.stops[i].n};
    }
    s->stops = stop_set_create(texts, s->params.n_stops);
    ck_assert_ptr_nonnull(s->stops);
}

static void decide(struct story *s, uint32_t min_total, uint32_t max_total)
{
    const struct stop_rules rules = {.stops = s->stops, .include_stop = s->params.include_stop,
                                     .skip_special = s->params.skip_special, .min_total = min_total,
                                     .max_total = max_total};
    struct stopper st = {0};
    for (s->n = 0; s->finish == FINISH_NONE; s->n++) {
        s->finish = stopper_push(model.vocab, &rules, &st, 4 + s->n, s->ids[s->n]);
    }
    s->visible = (uint32_t)st.visible;
    for (uint32_t i = 0; i < s->n; i++) {
        size_t n;
        const uint8_t *b = detok_visible(model.vocab, s->ids[i], s->params.skip_special, &n);
        buf_add(&s->raw, b, n);
    }
    ck_assert_uint_ge(s->raw.len, s->visible);
    struct detok d = {0};
    detok_push(&d, (const uint8_t *)s->raw.p, s->visible, &s->text);
    detok_end(&d, &s->text);
}

static void make_story(struct story *s, unsigned seed)
{
    memset(s, 0, sizeof *s);
    uint32_t len = 1 + (unsigned)rand_r(&seed) % (IDS_MAX - 1);
    s->params.endpoint = ENDPOINT_COMPLETION;
    s->params.n = 1;
    s->params.max_tokens = len;
    s->params.temperature = s->params.top_p = s->params.repetition_penalty = 1;
    s->params.skip_special = rand_r(&seed) % 4 != 0;
    s->params.include_stop = rand_r(&seed) % 4 == 0;
    s->params.logprobs = rand_r(&seed) % 4 == 0;
    s->params.min_tokens = rand_r(&seed) % 3 == 0 ? rand_r(&seed) % (int)len : 0;
    for (int i = 0; i < 4; i++) s->prompt_ids[i] = TINY_BYTE('a' + i);
    s->prompt.ids = (struct id_list){s->prompt_ids, 4, 4};
    for (uint32_t i = 0; i < len; i++) s->ids[i] = draw(&seed);
    if (rand_r(&seed) % 3 == 0) s->ids[len - 1] = TINY_IM_END;
    draw_stops(s, &seed);
    decide(s, s->params.min_tokens ? 4 + (uint32_t)s->params.min_tokens : 0, 4 + len);
}

static void end_story(struct story *s)
{
    stop_set_destroy(&s->stops);
    buf_deinit(&s->raw);
    buf_deinit(&s->text);
}

static void deliver(struct choice *c, const struct story *s, uint32_t n)
{
    struct msg_record records[IDS_MAX];
    memset(records, 0, sizeof records);
    for (uint32_t i = 0; i < n; i++)
        records[i] = (struct msg_record){.id = s->ids[c->seq.n_out + i], .logprob = -1};
    if (c->seq.n_out + n > c->seq.cap_out) {
        c->seq.cap_out = c->seq.n_out + n + 16;
        c->seq.out = mem_realloc(c->seq.out, c->seq.cap_out * sizeof(int32_t));
    }
    uint32_t index = c->seq.n_prompt + c->seq.n_out;
    for (uint32_t i = 0; i < n; i++) c->seq.out[c->seq.n_out++] = records[i].id;
    ck_assert_int_eq(choice_take(c, &s->params, index, records, n, s->params.logprobs), 0);
    if (c->seq.n_out == s->n) {
        c->finish = s->finish;
        c->visible = s->visible;
    }
}

/* Valid UTF-8 as a whole, however it was cut. */
static bool utf8_whole(const struct buf *b)
{
    struct detok d = {0};
    struct buf again = {0};
    detok_push(&d, (const uint8_t *)b->p, b->len, &again);
    bool ok =
        d.n_held == 0 && again.len == b->len && (b->len == 0 || memcmp(again.p, b->p, b->len) == 0);
    buf_deinit(&again);
    return ok;
}

/* The stop text itself never shows: what was sent is always a prefix of the right text. */
static void check_prefix(const struct buf *all, const struct story *s, unsigned seed)
{
    ck_assert_msg(all->len <= s->text.len &&
                      (all->len == 0 || memcmp(all->p, s->text.p, all->len) == 0),
                  "seed %u: '%.*s' is no beginning of '%.*s'", seed, (int)all->len, all->p,
                  (int)s->text.len, s->text.p);
}

static void pull_all(struct choice *c, const struct story *s, struct buf *all, uint32_t *covered,
                     int *finishes, unsigned seed)
{
    struct piece p;
    struct buf text = {0};
    while (choice_next(c, &s->params, &model, s->stops, &text, &p)) {
        ck_assert_msg(utf8_whole(&text), "seed %u: a torn character", seed);
        if (s->params.logprobs)
            ck_assert_uint_eq(p.first, *covered); /* each id with its scores, once, in order */
        ck_assert(!p.begins || (all->len == 0 && *covered == 0));
        *covered += p.n;
        *finishes += p.finish != FINISH_NONE;
        buf_add(all, text.p, text.len);
        check_prefix(all, s, seed);
        buf_clear(&text);
    }
    buf_deinit(&text);
}

static void stream(const struct story *s, unsigned seed, bool restart)
{
    struct choice c;
    struct buf all = {0};
    uint32_t covered = 0;
    int finishes = 0;
    unsigned cuts = seed * 31 + 7;
    choice_init(&c, NULL, 0, &s->params, &s->prompt, 1, TINY_CTX);
    while (c.seq.n_out < s->n) {
        uint32_t n = 1 + (unsigned)rand_r(&cuts) % 5;
        if (n > s->n - c.seq.n_out) n = s->n - c.seq.n_out;
        deliver(&c, s, n);
        if (rand_r(&cuts) % 2) pull_all(&c, s, &all, &covered, &finishes, seed);
        if (restart && !c.begun && c.seq.n_out < s->n) { /* another worker begins from the prompt */
            restart = false;
            covered = c.seq.n_out = 0;
            choice_restart(&c);
        }
    }
    pull_all(&c, s, &all, &covered, &finishes, seed);
    ck_assert_msg(all.len == s->text.len &&
                      (all.len == 0 || memcmp(all.p, s->text.p, all.len) == 0),
                  "seed %u: '%.*s' instead of '%.*s'", seed, (int)all.len, all.p, (int)s->text.len,
                  s->text.p);
    ck_assert_int_eq(finishes, 1);
    if (s->params.logprobs) ck_assert_uint_eq(covered, s->n);
    struct piece p;
    struct buf none = {0};
    ck_assert(
        !choice_next(&c, &s->params, &model, s->stops, &none, &p)); /* nothing after the finish */
    choice_deinit(&c);
    buf_deinit(&all);
    buf_deinit(&none);
}

START_TEST(random_streams)
{
    uint32_t by_stop = 0, restarted = 0;
    for (unsigned seed = 1; seed <= 6000; seed++) {
        struct story s;
        make_story(&s, seed);
        stream(&s, seed, false);
        stream(&s, seed, true);
        by_stop += s.finish == FINISH_STOP_STRING;
        restarted++;
        end_story(&s);
    }
    ck_assert_uint_gt(by_stop, 1000); /* the cases are really there */
    ck_assert_uint_eq(restarted, 6000);
}
END_TEST

/* One answer by hand: ids are bytes, each delivered alone; `want` is what each pull may say, "" =
 * nothing yet. */
static void by_hand(const char *bytes, const char *stop, const char *const *want,
                    enum finish finish, uint32_t visible)
{
    struct story s = {.params = {.n = 1, .max_tokens = 100, .skip_special = true}};
    struct choice c;
    s.n = (uint32_t)strlen(bytes);
    s.finish = finish;
    s.visible = visible;
    for (uint32_t i = 0; i < s.n; i++) s.ids[i] = TINY_BYTE(bytes[i]);
    s.prompt.ids = (struct id_list){s.prompt_ids, 4, 4};
    struct stop_text t = {stop, strlen(stop)};
    s.stops = stop_set_create(&t, stop[0] ? 1 : 0);
    choice_init(&c, NULL, 0, &s.params, &s.prompt, 1, TINY_CTX);
    for (uint32_t i = 0; i < s.n; i++) {
        struct buf text = {0};
        struct piece p;
        deliver(&c, &s, 1);
        while (choice_next(&c, &s.params, &model, s.stops, &text, &p)) {}
        ck_assert_msg(strcmp(buf_str(&text), want[i]) == 0, "%s[%u]: '%s' instead of '%s'", bytes,
                      i, buf_str(&text), want[i]);
        buf_deinit(&text);
    }
    choice_deinit(&c);
    end_story(&s);
}

START_TEST(held_bytes)
{
    /* a possible beginning of a stop waits, and comes out whole once it is none */
    by_hand("O P X", "O P Q", (const char *[]){"", "", "", "", "O P X"}, FINISH_LENGTH, 5);
    /* the stop itself never shows */
    by_hand("zO P Q", "O P Q", (const char *[]){"z", "", "", "", "", ""}, FINISH_STOP_STRING, 1);
    /* an incomplete stop at the end is text */
    by_hand("zO P", "O P Q", (const char *[]){"z", "", "", "O P"}, FINISH_LENGTH, 4);
    /* a character waits for its last byte; an incomplete one at the end is one replacement */
    by_hand("\xe2\x82\xac", "", (const char *[]){"", "", "\xe2\x82\xac"}, FINISH_LENGTH, 3);
    by_hand("a\xf0\x9f\x98", "", (const char *[]){"a", "", "", "\xef\xbf\xbd"}, FINISH_LENGTH, 4);
}
END_TEST

/* Whatever a client may ask, the link takes the SUBMIT made of it (an assert there would end the
 * process). */
START_TEST(submits_pass_the_link)
{
    static const char *const bodies[] = {
        "{}",
        "{\"max_tokens\":2147483647}",
        "{\"max_tokens\":2147483647,\"min_tokens\":2147483647}",
        "{\"temperature\":2,\"top_p\":0,\"min_p\":1,\"top_k\":2147483647,\"repetition_penalty\":"
        "10}",
        "{\"presence_penalty\":-2,\"frequency_penalty\":2,\"seed\":-9223372036854775808,\"top_k\":-"
        "1}",
        "{\"logit_bias\":{\"0\":-100,\"299\":100},\"stop_token_ids\":[0,299],\"stop\":[\"\\u0000\"]"
        "}",
    };
    struct api_limits limits;
    tiny_text_limits(&limits, &model);
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct api_params params;
        struct choice c;
        struct err e = {0};
        int32_t ids[3] = {1, 2, 3};
        struct api_prompt prompt = {.ids = {ids, 3, 3}};
        json_t *o = api_parse_body(bodies[i], strlen(bodies[i]), &e);
        ck_assert_msg(api_params_read(&params, ENDPOINT_CHAT, o, "", NULL, &limits, &e) == 0, "%s: %s",
                      bodies[i], e.msg);
        choice_init(&c, NULL, 0, &params, &prompt, 5, TINY_CTX);
        struct msg m = {.kind = MSG_SUBMIT, .u.submit = c.seq.submit};
        m.u.submit.ids = ids;
        m.u.submit.n_ids = m.u.submit.from = 3;
        ck_assert_msg(msg_check(&m, &e) == 0, "%s: %s", bodies[i], e.msg);
        ck_assert_uint_le(m.u.submit.max_total, TINY_CTX);
        choice_deinit(&c);
        api_params_deinit(&params);
        json_decref(o);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("choice");
    TCase *t = tcase_create("choice");
    if (tiny_text_model_open(&model, "tiny") != 0) return 1;
    tcase_set_timeout(t, 120);
    tcase_add_test(t, held_bytes);
    tcase_add_test(t, submits_pass_the_link);
    tcase_add_test(t, random_streams);
    suite_add_tcase(s, t);
    int r = test_run(s);
    model_close(&model);
    return r;
}
