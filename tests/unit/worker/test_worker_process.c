/* The program sluice-worker over real ZeroMQ with CURVE: exit codes, SIGTERM, the end of its
 * supervisor, a kill in the middle of everything, and an allocation that fails at any moment. */
#include "tests/common/testpaths.h"
#include "tests/unit/worker/gateway_book.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static struct rig_model rig;
static struct rig_gateway gw;
static int life[2]; /* every worker's supervisor: this test, so that none outlives it */
static char life_flag[64];
static char program[4300], keys[4300], model_flag[4400], keys_flag[4400], endpoint_flag[600];

static void setup(void) {
    struct err e = {0};
    rig_model_open(&rig);
    ck_assert_int_eq(pipe(life), 0);
    fcntl(life[1], F_SETFD, FD_CLOEXEC);
    snprintf(life_flag, sizeof(life_flag), "--supervisor-fd=%d", life[0]);
    snprintf(program, sizeof(program), "%s/bin/sluice-worker", test_build_dir());
    snprintf(model_flag, sizeof(model_flag), "--model=%s/tiny.gguf", rig.dir);
    snprintf(keys, sizeof(keys), "%s/keys", rig.dir);
    snprintf(keys_flag, sizeof(keys_flag), "--link-keys=%s", keys);
    ck_assert_msg(transport_keys_make(keys, &e) == 0, "%s", e.msg);
}
static void teardown(void) {
    rig_model_close(&rig);
}

static void open_gateway(void) {
    rig_gateway_listen(&gw, keys);
    snprintf(endpoint_flag, sizeof(endpoint_flag), "--workers-endpoint=%s",
             transport_endpoint(gw.t));
}
static void close_gateway(void) {
    rig_gateway_close(&gw);
}

/* The flags every run has, then `more` (NULL-terminated, may be NULL). */
static pid_t spawn(char *const *more) {
    char *argv[24] = {program, model_flag, keys_flag, endpoint_flag, life_flag};
    static const char *const sizes[] = {"--max-seqs=4", "--kv-tokens=1024", "--prefill-chunk=16",
                                        "--threads=1", "--log-level=error"};
    int n = 5;
    for (int i = 0; i < 5; i++)
        argv[n++] = (char *)sizes[i];
    for (int i = 0; more != NULL && more[i] != NULL; i++)
        argv[n++] = more[i];
    pid_t pid;
    ck_assert_int_eq(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    return pid;
}

static int wait_exit(pid_t pid) {
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int run_plain(char *const *argv) {
    pid_t pid;
    ck_assert_int_eq(posix_spawn(&pid, program, NULL, NULL, argv, environ), 0);
    return wait_exit(pid);
}

START_TEST(exit_codes) {
    char *no_model[] = {program, NULL};
    char *bad_flag[] = {program, model_flag, (char *)"--max-seqs=0", NULL};
    char *no_file[] = {program, (char *)"--model=/nonexistent.gguf", NULL};
    char *check[] = {program, model_flag, (char *)"--check-config", NULL};
    char *version[] = {program, (char *)"--version", NULL};
    ck_assert_int_eq(run_plain(no_model), 1);
    ck_assert_int_eq(run_plain(bad_flag), 1);
    ck_assert_int_eq(run_plain(no_file), 2);
    ck_assert_int_eq(run_plain(check), 0);
    ck_assert_int_eq(run_plain(version), 0);
}
END_TEST

static void follow_until(struct book *b, uint64_t tokens) {
    while (b->tokens < tokens || !b->live) {
        struct msg m;
        rig_wait(&gw, &m);
        book_message(&gw, b, &m);
        msg_deinit(&m);
    }
}

/* One that has not begun when SIGTERM comes is handed back, and this gateway has no other worker for it. */
static void follow_until_all_run(struct book *b) {
    uint32_t begun = 0;
    while (begun < b->n) {
        follow_until(b, b->tokens + 1);
        begun = 0;
        for (uint32_t i = 0; i < b->n; i++)
            begun += b->lines[i].n > 0;
    }
}

static void fill(struct book *b, uint32_t n) {
    *b = (struct book){.n = n};
    for (uint32_t i = 0; i < n; i++)
        book_line(&b->lines[i], i);
}

START_TEST(sigterm_drains) {
    static struct book b;
    fill(&b, 4);
    pid_t pid = spawn(NULL);
    follow_until_all_run(&b);
    kill(pid, SIGTERM);
    book_run(&gw, &b, 0); /* what runs ends, and is acknowledged */
    ck_assert_int_eq(wait_exit(pid), 0);
}
END_TEST

/* A row of the table of pools as printed, "used" in KiB; the last one of that name in the text. */
static long pool_row(const char *text, const char *name) {
    const char *at = NULL;
    long asked, used;
    for (const char *p = text; (p = strstr(p, name)) != NULL; p++)
        at = p;
    ck_assert_msg(at != NULL, "no row %s in\n%s", name, text);
    at += strlen(name);
    int n = sscanf(at, " %ld %ld", &asked, &used);
    return n == 2 ? used : n == 1 ? asked : -1; /* sum and resident have one figure */
}

static size_t text_of(const char *path, char *out, size_t cap) {
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    size_t n = fread(out, 1, cap - 1, f);
    out[n] = '\0';
    fclose(f);
    return n;
}

static uint32_t tables_in(const char *text) {
    uint32_t n = 0;
    for (const char *p = text; (p = strstr(p, "\nresident ")) != NULL; p++)
        n++;
    return n;
}

/* At start and, on SIGUSR1, after work: the KV row has grown, and the sum is the RSS within 10 %. */
static void check_pools(char *const *more, uint32_t lines) {
    static struct book b;
    static char path[4200], text[65536];
    fill(&b, lines);
    snprintf(path, sizeof(path), "%s/pools", rig.dir);
    int keep = dup(2), to = open(path, O_CREAT | O_TRUNC | O_RDWR | O_APPEND | O_CLOEXEC, 0600);
    ck_assert(keep >= 0 && to >= 0);
    dup2(to, 2);
    pid_t pid = spawn(more);
    dup2(keep, 2);
    close(keep);
    book_run(&gw, &b, 0);
    text_of(path, text, sizeof(text));
    long before = pool_row(text, "\nkv blocks");
    kill(pid, SIGUSR1);
    while (tables_in(text) < 2) { /* the test's own time limit ends this */
        struct pollfd nothing = {.fd = -1};
        poll(&nothing, 1, 10);
        text_of(path, text, sizeof(text));
    }
    long sum = pool_row(text, "\nsum"), rss = pool_row(text, "\nresident");
    ck_assert_int_gt(pool_row(text, "\nkv blocks"), before);
#if defined(__SANITIZE_ADDRESS__) || defined(SLUICE_TSAN) /* their shadow is nobody's pool */
    const bool compare = false;
#else
    const bool compare = true;
#endif
    ck_assert_msg(!compare || labs(sum - rss) * 10 <= rss, "sum %ld KiB, resident %ld KiB\n%s", sum, rss,
                  text);
    kill(pid, SIGKILL);
    wait_exit(pid);
    close(to);
}

START_TEST(table_of_pools_is_the_rss) {
    /* A pool of some MB of the tiny model's blocks, half of it touched. */
    check_pools((char *[]){(char *)"--kv-tokens=8192", NULL}, 8);
}
END_TEST

START_TEST(an_idle_worker_leaves_at_once) {
    static struct book b;
    fill(&b, 0);
    pid_t pid = spawn(NULL);
    follow_until(&b, 0);
    kill(pid, SIGINT);
    ck_assert_int_eq(wait_exit(pid), 0);
}
END_TEST

START_TEST(killed_in_the_middle) {
    static struct book alone, b;
    fill(&alone, 8);
    fill(&b, 8);
    pid_t pid = spawn(NULL);
    book_run(&gw, &alone, 0);
    kill(pid, SIGKILL);
    wait_exit(pid);
    for (uint64_t until = 50; until <= 150; until += 50) {
        b.live = false;
        pid = spawn(NULL);
        follow_until(&b, until);
        kill(pid, SIGKILL);
        ck_assert_int_eq(wait_exit(pid), 1000 + SIGKILL);
    }
    pid = spawn(NULL);
    b.live = false;
    book_run(&gw, &b, 0);
    kill(pid, SIGKILL);
    wait_exit(pid);
    for (uint32_t i = 0; i < b.n; i++)
        book_compare(&alone.lines[i], &b.lines[i], i);
}
END_TEST

/* The n-th allocation fails, whichever it is: nobody dies, nothing is lost, no byte differs. */
START_TEST(an_allocation_fails) {
    static struct book alone, b;
    fill(&alone, 6);
    pid_t pid = spawn(NULL);
    book_run(&gw, &alone, 0);
    kill(pid, SIGKILL);
    wait_exit(pid);
    for (int nth = 1; nth <= 61; nth += 6) {
        char flag[64];
        char *more[] = {flag, NULL};
        fill(&b, 6);
        snprintf(flag, sizeof(flag), "--debug-fail-alloc=%d", nth);
        pid = spawn(more);
        book_run(&gw, &b, 0);
        kill(pid, SIGTERM);
        book_run(&gw, &b, 0);
        ck_assert_int_eq(wait_exit(pid), 0);
        for (uint32_t i = 0; i < b.n; i++)
            book_compare(&alone.lines[i], &b.lines[i], i);
    }
}
END_TEST

START_TEST(the_supervisors_end_is_the_workers) {
    int ends[2];
    char flag[64];
    char *more[] = {flag, NULL};
    static struct book b;
    ck_assert_int_eq(pipe(ends), 0);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    snprintf(flag, sizeof(flag), "--supervisor-fd=%d", ends[0]);
    fill(&b, 0);
    pid_t pid = spawn(more);
    follow_until(&b, 0);
    close(ends[1]);
    ck_assert_int_eq(wait_exit(pid), 0);
    close(ends[0]);
}
END_TEST

/* A process in between starts the worker and is killed: the worker must not stay. */
START_TEST(a_killed_supervisor_takes_it_along) {
    int alive[2], held[2];
    char flag[64], c;
    char *more[] = {flag, NULL};
    static struct book b;
    ck_assert_int_eq(pipe(alive), 0); /* read end: end of file when nobody of them lives */
    ck_assert_int_eq(pipe(held), 0);
    fcntl(alive[0], F_SETFD, FD_CLOEXEC);
    snprintf(flag, sizeof(flag), "--supervisor-fd=%d", held[0]);
    fill(&b, 0);
    pid_t middle = fork();
    if (middle == 0) {
        spawn(more);
        for (;;)
            pause();
    }
    close(alive[1]);
    follow_until(&b, 0);
    kill(middle, SIGKILL);
    wait_exit(middle);
    ssize_t n;
    while ((n = read(alive[0], &c, 1)) < 0 && errno == EINTR)
        ;
    ck_assert_int_eq(n, 0); /* held[1] is still open here: it is the kernel's signal that ends it */
    close(alive[0]);
    close(held[0]);
    close(held[1]);
}
END_TEST

int main(void) {
    Suite *s = suite_create("worker_process");
    TCase *t = tcase_create("worker_process");
    tcase_set_timeout(t, 100);
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_checked_fixture(t, open_gateway, close_gateway);
    tcase_add_test(t, exit_codes);
    tcase_add_test(t, sigterm_drains);
    tcase_add_test(t, table_of_pools_is_the_rss);
    tcase_add_test(t, an_idle_worker_leaves_at_once);
    tcase_add_test(t, killed_in_the_middle);
    tcase_add_test(t, an_allocation_fails);
    tcase_add_test(t, the_supervisors_end_is_the_workers);
    tcase_add_test(t, a_killed_supervisor_takes_it_along);
    suite_add_tcase(s, t);
    return test_run(s);
}
