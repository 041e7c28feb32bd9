/* log.c - builds a line on the stack and hands it over in one write(2), so that lines of threads
 * and processes that share stderr never mix. Clock: log lines carry wall time; this is the one file
 * outside the shells that reads it.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MSG_MAX 2048   /* longer messages are cut */
#define LINE_CAP 10752 /* 5 output bytes for an input byte, and the head */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static char prog_name[32] = "sluice";
static _Atomic int level_max = LOG_INFO;
static _Atomic bool as_json;

void log_open(const char *prog, enum log_level level, bool json) {
    snprintf(prog_name, sizeof(prog_name), "%s", prog);
    atomic_store(&level_max, (int)level);
    atomic_store(&as_json, json);
}

int log_level_parse(const char *s, enum log_level *out) {
    for (int i = 0; i <= LOG_DEBUG; i++) {
        if (strcmp(s, level_names[i]) == 0) {
            *out = (enum log_level)i;
            return 0;
        }
    }
    return -1;
}

/* Length of the well-formed UTF-8 character at s; 0 when there is none. */
static size_t utf8_len(const unsigned char *s) {
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) /* the terminating NUL stops this too */
            return 0;
    bool overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
    bool surrogate = s[0] == 0xED && s[1] >= 0xA0;
    bool beyond = s[0] == 0xF4 && s[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : n;
}

/* C0, DEL, C1 and the two Unicode line separators: what a terminal or a log reader acts on. */
static bool is_control(const unsigned char *s, size_t n) {
    if (n == 1)
        return s[0] < 0x20 || s[0] == 0x7F;
    if (n == 2)
        return s[0] == 0xC2 && s[1] < 0xA0;
    return n == 3 && s[0] == 0xE2 && s[1] == 0x80 && (s[2] == 0xA8 || s[2] == 0xA9);
}

/* Appends one byte escaped; JSON gets a doubled backslash, so that the text reads the same. */
static size_t put_escaped(char *out, unsigned char c, bool json) {
    return (size_t)sprintf(out, json ? "\\\\x%02x" : "\\x%02x", c);
}

/* Escapes s into out, at most `cap` bytes; returns the length. */
static size_t escape(char *out, size_t cap, const char *s, bool json) {
    const unsigned char *p = (const unsigned char *)s;
    size_t n = 0;
    while (*p != '\0' && n + 24 < cap) {
        size_t len = utf8_len(p);
        if (len == 0 || is_control(p, len)) {
            size_t bytes = len == 0 ? 1 : len;
            for (size_t i = 0; i < bytes; i++)
                n += put_escaped(out + n, p[i], json);
            p += bytes;
            continue;
        }
        if (json && (*p == '"' || *p == '\\'))
            out[n++] = '\\';
        memcpy(out + n, p, len);
        n += len;
        p += len;
    }
    return n;
}

static void write_all(const char *p, size_t n) {
    while (n > 0) {
        ssize_t w = write(STDERR_FILENO, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return; /* nowhere to report it */
        p += w;
        n -= (size_t)w;
    }
}

static size_t put_head(char *line, size_t cap, enum log_level level, bool json) {
    struct timespec now = {0};
    struct tm tm = {0};
    char day[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &tm);
    const char *fmt = json ? "{\"ts\":\"%s.%03dZ\",\"level\":\"%s\",\"prog\":\"%s\",\"msg\":\""
                           : "%s.%03dZ %s %s: ";
    return (size_t)snprintf(line, cap, fmt, day, (int)(now.tv_nsec / 1000000), level_names[level],
                            prog_name);
}

void log_line(enum log_level level, const char *fmt, ...) {
    if ((int)level > atomic_load_explicit(&level_max, memory_order_relaxed))
        return;
    int saved = errno; /* callers log before they look at it */
    bool json = atomic_load_explicit(&as_json, memory_order_relaxed);
    char msg[MSG_MAX], line[LINE_CAP];
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(msg, sizeof(msg), fmt, ap);
    va_end(ap);
    if (len < 0)
        msg[0] = '\0';
    size_t n = put_head(line, sizeof(line), level, json);
    n += escape(line + n, sizeof(line) - n - 8, msg, json);
    const char *cut = len >= (int)sizeof(msg) ? "..." : "";
    n += (size_t)sprintf(line + n, "%s%s\n", cut, json ? "\"}" : "");
    write_all(line, n);
    errno = saved;
}
