/* The event log: every field as a line of JSON, order kept, a full ring dropped and counted, a bad
 * path told. */
#include "tests/common/test_run.h"
#include "tests/common/testpaths.h"
#include "worker/event_log.h"
#include "worker/event_text.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char dir[TEST_PATH_MAX], path[TEST_PATH_MAX + 16];
static struct worker_core_config core;

static void setup(void) {
    ck_assert_int_eq(test_tmpdir_make(dir, "eventlog"), 0);
    snprintf(path, sizeof(path), "%s/log", dir);
    core = (struct worker_core_config){.max_slots = 4, .max_seqs = 2, .max_spans = 2, .n_ctx = 64};
    class_table_default(&core.classes);
}
static void teardown(void) {
    test_tmpdir_remove(dir);
}

static void text_is(struct buf *b, const char *want) {
    ck_assert_str_eq(buf_str(b), want);
    buf_clear(b);
}

START_TEST(events_as_text) {
    struct buf b = {0};
    struct worker_event ev = {.kind = WE_SUBMIT, .gw = 1, .sub = {7, 8}};
    ev.submit.slot = 3;
    ev.submit.cls = 1;
    ev.submit.tag = 9;
    ev.submit.n_prompt = ev.submit.n_tokens = ev.submit.from = 5;
    ev.submit.max_total = 20;
    event_text_event(&b, &ev, &core.classes, 100);
    text_is(&b, "{\"ns\":100,\"event\":\"submit\",\"gw\":1,\"sub\":[7,8],\"slot\":3,\"class\":1,"
                "\"rank\":1,\"tag\":9,"
                "\"n_prompt\":5,\"n_tokens\":5,\"from\":5,\"max_total\":20,\"refused\":false,\"account\":0,"
                "\"quota\":0,\"ttft_ms\":0,\"tpot_ms\":0}\n");
    int32_t ids[] = {4, 5, 6, 7, 8};
    ev.submit.ids = ids;
    ev.submit.root = (struct hash128){1, 2};
    event_text_event(&b, &ev, &core.classes, 100);
    ck_assert_ptr_nonnull(strstr(buf_str(&b), ",\"root\":[1,2],\"ids\":[4,5,6,7,8]}\n"));
    buf_clear(&b);
    struct worker_token tokens[] = {{2, true, 77, FINISH_NONE}, {3, false, 0, FINISH_LENGTH}};
    ev = (struct worker_event){.kind = WE_STEP_END};
    ev.step.step = 4;
    ev.step.tokens = tokens;
    ev.step.n_tokens = 2;
    ev.step.segments_done = 6;
    event_text_event(&b, &ev, &core.classes, 101);
    text_is(&b, "{\"ns\":101,\"event\":\"step_end\",\"step\":4,\"segments_done\":6,\"segment_at_"
                "request\":0,\"device_ns\":0,"
                "\"failed\":false,\"tokens\":[[2,1,\"none\",77],[3,0,\"length\",0]]}\n");
    ev = (struct worker_event){.kind = WE_COPY_END};
    ev.copy.id = 9;
    ev.copy.device_ns = 5;
    event_text_event(&b, &ev, &core.classes, 101);
    text_is(&b, "{\"ns\":101,\"event\":\"copy_end\",\"copy\":9,\"ok\":false,\"device_ns\":5}\n");
    ev = (struct worker_event){.kind = WE_TICK};
    event_text_event(&b, &ev, &core.classes, 102);
    text_is(&b, "{\"ns\":102,\"event\":\"tick\"}\n");
    buf_deinit(&b);
}
END_TEST

START_TEST(actions_as_text) {
    struct buf b = {0};
    struct worker_span spans[] = {
        {.slot = 1, .pos = 16, .n = 4, .score_from = 17, .score_to = 20, .sample = true}};
    struct worker_action a = {.kind = WA_STEP_SUBMIT,
                              .plan = {.step = 5, .rank = 1, .spans = spans, .n_spans = 1}};
    event_text_action(&b, &a, 1);
    text_is(&b, "{\"ns\":1,\"action\":\"step_submit\",\"step\":5,\"rank\":1,\"spans\":[[1,16,4,17,"
                "20,1]]}\n");
    a = (struct worker_action){.kind = WA_COPY, .slot = 2};
    a.copy.id = 3;
    a.copy.to_host = true;
    a.copy.block = 4;
    a.copy.host = 5;
    event_text_action(&b, &a, 1);
    text_is(&b, "{\"ns\":1,\"action\":\"copy\",\"copy\":3,\"slot\":2,\"to_host\":1,\"block\":4,"
                "\"host\":5}\n");
    a = (struct worker_action){.kind = WA_TOKENS,
                               .gw = 0,
                               .sub = {1, 2},
                               .slot = 3,
                               .from = 4,
                               .to = 5,
                               .cached = 3,
                               .finish = FINISH_EOS};
    event_text_action(&b, &a, 2);
    text_is(&b, "{\"ns\":2,\"action\":\"tokens\",\"gw\":0,\"sub\":[1,2],\"slot\":3,\"from\":4,"
                "\"to\":5,\"cached\":3,\"preemptions\":0,\"finish\":\"eos\",\"booked_ns\":[0,0,0,0,0,0,0,0,0]}\n");
    buf_deinit(&b);
}
END_TEST

/* Lines of the log and how many records it says were dropped. */
static uint32_t read_log(uint64_t *dropped, uint64_t *last_tick) {
    size_t n;
    uint32_t lines = 0;
    char *text = test_read_file(path, &n), *save = NULL;
    ck_assert_ptr_nonnull(text);
    ck_assert(n > 0 && text[n - 1] == '\n');
    *dropped = 0;
    uint64_t last = 0;
    for (char *line = strtok_r(text, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        unsigned long long v;
        if (sscanf(line, "{\"dropped\":%llu}", &v) == 1) {
            *dropped += v;
            continue;
        }
        if (sscanf(line, "{\"ns\":%llu,", &v) == 1) {
            ck_assert_uint_ge(v, last);
            last = v;
            lines++;
        }
    }
    ck_assert_ptr_nonnull(strstr(text, "{\"config\":{\"max_slots\":4,"));
    free(text);
    *last_tick = last;
    return lines;
}

START_TEST(nothing_is_lost_or_it_is_counted) {
    struct event_log *log;
    struct err e = {0};
    uint64_t dropped, last;
    size_t before = mem_used();
    ck_assert_msg(event_log_open(&log, path, &core, 8, &e) == 0, "%s", e.msg);
    struct worker_event tick = {.kind = WE_TICK};
    struct worker_span spans[2] = {{.slot = 1}, {.slot = 2}};
    struct worker_action a = {.kind = WA_STEP_SUBMIT,
                              .plan = {.step = 1, .spans = spans, .n_spans = 2}};
    for (uint64_t i = 1; i <= 3000; i++) {
        event_log_event(log, &tick, i);
        event_log_actions(log, &a, 1, i);
        spans[0].slot++; /* the record must hold a copy */
    }
    event_log_close(&log);
    ck_assert_ptr_null(log);
    ck_assert_uint_eq(mem_used(), before);
    uint32_t lines = read_log(&dropped, &last);
    ck_assert_uint_ge(lines, 8);
    ck_assert_uint_le(lines + dropped, 6000); /* drops behind the last line are not told */
    ck_assert(last == 3000 || dropped > 0 || lines < 6000);
}
END_TEST

START_TEST(a_large_ring_keeps_all) {
    struct event_log *log;
    uint64_t dropped, last;
    ck_assert_int_eq(event_log_open(&log, path, &core, 4096, NULL), 0);
    struct worker_event tick = {.kind = WE_TICK};
    for (uint64_t i = 1; i <= 4000; i++)
        event_log_event(log, &tick, i);
    event_log_close(&log);
    ck_assert_uint_eq(read_log(&dropped, &last), 4000);
    ck_assert_uint_eq(dropped, 0);
    ck_assert_uint_eq(last, 4000);
}
END_TEST

START_TEST(bad_path_and_no_log) {
    struct event_log *log;
    struct err e = {0};
    size_t before = mem_used();
    ck_assert_int_eq(event_log_open(&log, "/nonexistent/dir/log", &core, 8, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.msg, "/nonexistent/dir/log"));
    ck_assert_ptr_null(log);
    ck_assert_uint_eq(mem_used(), before);
    event_log_event(NULL, &(struct worker_event){.kind = WE_TICK}, 1);
    event_log_actions(NULL, NULL, 0, 1);
    event_log_close(&log);
}
END_TEST

int main(void) {
    Suite *s = suite_create("event_log");
    TCase *t = tcase_create("event_log");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, events_as_text);
    tcase_add_test(t, actions_as_text);
    tcase_add_test(t, nothing_is_lost_or_it_is_counted);
    tcase_add_test(t, a_large_ring_keeps_all);
    tcase_add_test(t, bad_path_and_no_log);
    suite_add_tcase(s, t);
    return test_run(s);
}
