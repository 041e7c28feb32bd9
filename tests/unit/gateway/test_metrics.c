/* /metrics read by a strict parser of the exposition format; names from outside are escaped, series
 * do not grow. */
#include "gateway/metrics.h"

#include "tests/unit/gateway/gateway_rig.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static struct rig r;

static void setup(void)
{
    rig_open(&r, NULL);
}

static void teardown(void)
{
    rig_close(&r);
}

static size_t name_length(const char *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_' || p[n] == ':') n++;
    ck_assert_msg(n > 0 && !isdigit((unsigned char)p[0]), "no name at '%.40s'", p);
    return n;
}

/* `name="value",...}` with \\ \" \n as the only escapes; returns behind the brace. `model` gets
 * model_name undone. */
static const char *labels(const char *p, char *model)
{
    while (*p != '}') {
        size_t n = name_length(p), at = 0;
        bool is_model = n == 10 && memcmp(p, "model_name", 10) == 0;
        p += n;
        ck_assert(p[0] == '=' && p[1] == '"');
        for (p += 2; *p != '"'; p++) {
            char c = *p;
            ck_assert_msg(c != '\n' && c != '\0', "a label's value is not closed");
            if (c == '\\') {
                c = *++p;
                ck_assert(c == '\\' || c == '"' || c == 'n');
                if (c == 'n') c = '\n';
            }
            if (is_model) model[at++] = c;
        }
        if (is_model) model[at] = '\0';
        p++;
        if (*p == ',') p++;
    }
    return p + 1;
}

struct seen { int samples, types; };

/* Every line: HELP, TYPE, or a sample of the family that was announced last. */
static struct seen parse(const char *text, const char *want_model)
{
    struct seen seen = {0};
    char family[100] = "", model[300];
    for (const char *p = text; *p;) {
        const char *end = strchr(p, '\n');
        ck_assert_ptr_nonnull(end); /* the last line ends too */
        if (strncmp(p, "# HELP ", 7) == 0) {
            name_length(p + 7);
        } else if (strncmp(p, "# TYPE ", 7) == 0) {
            size_t n = name_length(p + 7);
            snprintf(family, sizeof family, "%.*s", (int)n, p + 7);
            const char *type = p + 7 + n + 1;
            ck_assert(strncmp(type, "counter\n", 8) == 0 || strncmp(type, "gauge\n", 6) == 0 ||
                      strncmp(type, "histogram\n", 10) == 0);
            ck_assert(strncmp(type, "counter\n", 8) != 0 || strcmp(family + n - 6, "_total") == 0);
            seen.types++;
        } else {
            char *stop;
            size_t n = name_length(p);
            ck_assert_msg(strncmp(p, family, strlen(family)) == 0, "'%.60s' behind TYPE %s", p,
                          family);
            const char *v = p + n;
            if (*v == '{') v = labels(v + 1, model);
            ck_assert(*v == ' ');
            double value = strtod(v + 1, &stop);
            ck_assert_msg(*stop == '\n' && value >= 0, "'%.80s'", p);
            ck_assert_str_eq(model, want_model);
            seen.samples++;
        }
        p = end + 1;
    }
    return seen;
}

static struct seen render(const char *want_model)
{
    struct buf b = {0};
    metrics_render(&r.g, &b);
    ck_assert(!b.bad);
    struct seen s = parse(buf_str(&b), want_model);
    ck_assert_int_gt(s.types, 30);
    buf_deinit(&b);
    return s;
}

START_TEST(odd_names)
{
    static const char *const names[] = {"tiny", "x\"} 1\nfake_metric 9\n#", "back\\slash\\", "\"",
                                        "\xe2\x82\xac"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(r.model.name, sizeof r.model.name, "%s", names[i]);
        render(names[i]);
    }
}
END_TEST

/* Unknown models, broken bodies, wrong paths: counted as errors, and no new series (B85). */
START_TEST(no_growth)
{
    struct seen before = render("tiny");
    for (int i = 0; i < 200; i++) {
        struct rig_door d;
        char body[100];
        snprintf(body, sizeof body, "{\"model\":\"unknown-%d\",\"messages\":[]}", i);
        rig_post(&r, &d, ENDPOINT_CHAT, "", body);
        rig_settle(&r, &d);
        rig_drop(&d);
    }
    struct seen after = render("tiny");
    ck_assert_int_eq(before.samples, after.samples);
    ck_assert_uint_eq(r.g.metrics.errors[ERR_MODEL_NOT_FOUND], 200);
}
END_TEST

START_TEST(choices)
{
    struct metrics *m = &r.g.metrics;
    metrics_choice_end(m, &(struct metrics_choice){.finish = FINISH_LENGTH,
                                                   .arrived_ns = 1000000000,
                                                   .sent_ns = 1100000000,
                                                   .first_ns = 1500000000,
                                                   .last_ns = 2500000000,
                                                   .prompt_tokens = 10,
                                                   .output_tokens = 11,
                                                   .max_tokens = 11});
    metrics_choice_end(m, &(struct metrics_choice){.finish = FINISH_CANCELLED, .arrived_ns = 5});
    metrics_choice_end(
        m, &(struct metrics_choice){
               .finish = FINISH_EOS, .arrived_ns = 9, .sent_ns = 8, .first_ns = 7, .last_ns = 6});
    const struct metrics_class *c = &m->cls[0];
    ck_assert_uint_eq(c->finished[FINISH_LENGTH], 1);
    ck_assert_uint_eq(c->aborted, 1);
    ck_assert_double_eq_tol(c->ttft.sum, 0.5,
                            1e-9); /* a clock fault counts as 0, never below (B87) */
    ck_assert_double_eq_tol(c->e2e.sum, 1.5, 1e-9);
    ck_assert_double_eq_tol(c->tpot.sum, 0.1, 1e-9);
    ck_assert_uint_eq(c->generation_tokens_total, 11);
    render("tiny");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("metrics");
    TCase *t = tcase_create("metrics");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, odd_names);
    tcase_add_test(t, no_growth);
    tcase_add_test(t, choices);
    suite_add_tcase(s, t);
    return test_run(s);
}
