/* http_client.c - see http_client.h. libcurl's multi socket interface on an epoll of our own. */
#include "cli/http_client.h"
#include "base/mem.h"
#include "cli/clock.h"

#include <string.h>

void http_call_deinit(struct http_call *call) {
    buf_deinit(&call->reply);
    mem_free(call->chunks);
    call->chunks = NULL;
    call->n_chunks = call->cap_chunks = 0;
}

#ifdef SLUICE_CURL

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 32
#define CONNECT_TIMEOUT_MS 5000L

struct http_client {
    CURLM *multi;
    struct curl_slist *headers;
    char base[HTTP_URL_MAX];
    int epoll_fd;
    double timer_ms; /* when libcurl wants to be called; < 0 = not at all */
    bool keeps;      /* connections are used again */
};

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *ctx, void *known) {
    struct http_client *c = ctx;
    struct epoll_event ev = {.data.fd = fd};
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        curl_multi_assign(c->multi, fd, NULL);
        return 0;
    }
    ev.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    /* A number that was closed and opened again behind our back is no longer in the set. */
    if (known == NULL || epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, fd, &ev) != 0)
        if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &ev) != 0 && errno == EEXIST)
            epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, fd, &ev);
    curl_multi_assign(c->multi, fd, c);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *ctx) {
    struct http_client *c = ctx;
    (void)multi;
    c->timer_ms = timeout_ms < 0 ? -1 : clock_ms() + (double)timeout_ms;
    return 0;
}

static bool note_chunk(struct http_call *call) {
    if (call->n_chunks == call->cap_chunks) {
        uint32_t cap = call->cap_chunks == 0 ? 32 : call->cap_chunks * 2;
        struct http_chunk *p = mem_realloc(call->chunks, cap * sizeof(*p));
        if (p == NULL)
            return false;
        call->chunks = p;
        call->cap_chunks = cap;
    }
    call->chunks[call->n_chunks++] = (struct http_chunk){call->reply.len, clock_ms()};
    return true;
}

static size_t on_bytes(char *p, size_t size, size_t n, void *ctx) {
    struct http_call *call = ctx;
    buf_add(&call->reply, p, size * n);
    return call->reply.bad || !note_chunk(call) ? 0 : size * n;
}

static size_t on_header(char *p, size_t size, size_t n, void *ctx) {
    static const char name[] = "retry-after:";
    struct http_call *call = ctx;
    size_t all = size * n;
    char value[24];
    if (all > sizeof(name) && strncasecmp(p, name, sizeof(name) - 1) == 0) {
        snprintf(value, sizeof(value), "%.*s", (int)(all - sizeof(name) + 1), p + sizeof(name) - 1);
        call->retry_after_s = atof(value);
    }
    return all;
}

static int add_headers(struct http_client *c, const char *key) {
    char line[600];
    static const char *const plain[] = {"Content-Type: application/json", "Expect:"};
    for (int i = 0; i < 3; i++) {
        if (i == 2 && (key == NULL || key[0] == '\0'))
            break;
        if (i == 2)
            snprintf(line, sizeof(line), "Authorization: Bearer %s", key);
        struct curl_slist *longer = curl_slist_append(c->headers, i < 2 ? plain[i] : line);
        if (longer == NULL)
            return -1;
        c->headers = longer;
    }
    return 0;
}

/* Scheme and host only: paths are given with each call. */
static int take_base(struct http_client *c, const char *url, struct err *e) {
    const char *host = strstr(url, "://");
    size_t n = host != NULL ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;
    bool plain = strncmp(url, "http://", 7) == 0;
    if ((!plain && strncmp(url, "https://", 8) != 0) || n >= sizeof(c->base) || n < 9)
        return err_set(e, ERR_BAD_VALUE, "'%.80s' is no URL like http://127.0.0.1:8000/v1", url);
    snprintf(c->base, sizeof(c->base), "%.*s", (int)n, url);
    c->keeps = !plain;
    return 0;
}

int http_client_create(struct http_client **out, const char *url, const char *key, struct err *e) {
    struct http_client *c = mem_zalloc(sizeof(*c));
    *out = NULL;
    if (c == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory");
    c->epoll_fd = -1;
    c->timer_ms = -1;
    if (take_base(c, url, e) != 0) {
        mem_free(c);
        return -1;
    }
    curl_global_init(CURL_GLOBAL_DEFAULT);
    c->multi = curl_multi_init();
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->multi == NULL || c->epoll_fd < 0 || add_headers(c, key) != 0) {
        http_client_destroy(&c);
        return err_set(e, ERR_NO_MEMORY, "cannot make an HTTP client");
    }
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    *out = c;
    return 0;
}

void http_client_destroy(struct http_client **at) {
    struct http_client *c = *at;
    if (c == NULL)
        return;
    if (c->multi != NULL)
        curl_multi_cleanup(c->multi);
    curl_slist_free_all(c->headers);
    if (c->epoll_fd >= 0)
        close(c->epoll_fd);
    mem_free(c);
    *at = NULL;
}

static void options(struct http_client *c, CURL *easy, struct http_call *call, const char *url) {
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    if (!c->keeps) {
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
    }
    if (call->body != NULL) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->n_body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
    }
}

int http_client_send(struct http_client *c, struct http_call *call, struct err *e) {
    char url[HTTP_URL_MAX + 128];
    int running;
    http_call_deinit(call);
    buf_init(&call->reply, HTTP_REPLY_MAX);
    call->status = 0;
    call->complete = false;
    call->retry_after_s = -1;
    call->error[0] = '\0';
    CURL *easy = curl_easy_init();
    if (easy == NULL)
        return err_set(e, ERR_NO_MEMORY, "no memory for an HTTP call");
    snprintf(url, sizeof(url), "%s%s", c->base, call->path);
    options(c, easy, call, url);
    call->easy = easy;
    call->running = true;
    call->sent_ms = clock_ms();
    if (curl_multi_add_handle(c->multi, easy) != CURLM_OK) {
        call->running = false;
        call->easy = NULL;
        curl_easy_cleanup(easy);
        return err_set(e, ERR_IO, "cannot start an HTTP call");
    }
    curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running); /* connects now */
    return 0;
}

static void end_call(struct http_client *c, struct http_call *call, CURLcode result) {
    CURL *easy = call->easy;
    long status = 0;
    call->ended_ms = clock_ms();
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    call->status = (int)status;
    call->complete = result == CURLE_OK;
    if (!call->complete)
        snprintf(call->error, sizeof(call->error), "%s", curl_easy_strerror(result));
    curl_multi_remove_handle(c->multi, easy);
    curl_easy_cleanup(easy);
    call->easy = NULL;
    call->running = false;
}

void http_client_cancel(struct http_client *c, struct http_call *call) {
    if (call->running)
        end_call(c, call, CURLE_ABORTED_BY_CALLBACK);
}

static void take_ended(struct http_client *c) {
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(c->multi, &left)) != NULL) {
        char *private = NULL;
        CURLcode result = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
        struct http_call *call = (struct http_call *)(void *)private;
        end_call(c, call, result);
        if (call->done != NULL)
            call->done(call);
    }
}

static int wait_events(struct http_client *c, struct epoll_event *ev, double until_ms) {
    double left = until_ms - clock_ms();
    if (c->timer_ms >= 0 && c->timer_ms - clock_ms() < left)
        left = c->timer_ms - clock_ms();
    left = left < 0 ? 0 : left > 60e3 ? 60e3 : left;
    struct timespec t = {(time_t)(left / 1e3), 0};
    t.tv_nsec = (long)((left - (double)t.tv_sec * 1e3) * 1e6);
    return epoll_pwait2(c->epoll_fd, ev, EVENTS, &t, NULL);
}

void http_client_turn(struct http_client *c, double until_ms) {
    struct epoll_event ev[EVENTS];
    int running, n = wait_events(c, ev, until_ms);
    for (int i = 0; i < n; i++) {
        int what = (ev[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                   (ev[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (ev[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        curl_multi_socket_action(c->multi, ev[i].data.fd, what, &running);
    }
    if (c->timer_ms >= 0 && clock_ms() >= c->timer_ms) {
        c->timer_ms = -1;
        curl_multi_socket_action(c->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    take_ended(c);
}

#else /* without libcurl */

int http_client_create(struct http_client **out, const char *url, const char *key, struct err *e) {
    (void)url;
    (void)key;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED,
                   "this program was built without libcurl; install its headers "
                   "and build again");
}

void http_client_destroy(struct http_client **c) {
    *c = NULL;
}

int http_client_send(struct http_client *c, struct http_call *call, struct err *e) {
    (void)c;
    (void)call;
    return err_set(e, ERR_UNSUPPORTED, "built without libcurl");
}

void http_client_cancel(struct http_client *c, struct http_call *call) {
    (void)c;
    call->running = false;
}

void http_client_turn(struct http_client *c, double until_ms) {
    (void)c;
    (void)until_ms;
}

#endif

int http_client_wait(struct http_client *c, struct http_call *call, double timeout_ms,
                     struct err *e) {
    double until = clock_ms() + timeout_ms;
    if (http_client_send(c, call, e) != 0)
        return -1;
    while (call->running && clock_ms() < until)
        http_client_turn(c, until);
    if (call->running) {
        http_client_cancel(c, call);
        return err_set(e, ERR_TIMEOUT, "no reply to %s within %.0f s", call->path,
                       timeout_ms / 1e3);
    }
    if (!call->complete)
        return err_set(e, ERR_IO, "%s: %s", call->path, call->error);
    return 0;
}
