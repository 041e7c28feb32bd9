/* terminal.c - see terminal.h. */
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

void terminal_clean(struct buf *out, const char *p, size_t n) {
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        bool c1 = c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0;
        bool c0 = (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
        buf_addc(out, c0 || c1 ? '?' : (char)c);
        i += c1; /* U+0080 to U+009F are two bytes and one character */
    }
}

int terminal_write(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EAGAIN) { /* a descriptor that somebody else made non-blocking */
            struct pollfd f = {.fd = fd, .events = POLLOUT};
            poll(&f, 1, -1);
            continue;
        }
        if (w < 0 && errno != EINTR)
            return -1;
        if (w > 0) {
            p += w;
            n -= (size_t)w;
        }
    }
    return 0;
}
