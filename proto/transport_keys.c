/* transport_keys.c - the key file of the worker link: two CURVE pairs as lines of `name Z85`.
 *
 * Both secrets in one file: gateway and workers of one `up` are the same trust; a worker on another machine
 * would get a file with its own lines only (the loader asks just for what its side needs).
 */
#include "proto/transport.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define Z85_CHARS 40               /* of 32 bytes */
#define FILE_BYTES_MAX 4096

static const char heading[] =
    "# Keys of the link between gateway and workers. Secret: whoever reads this file can be a worker.\n";

void transport_keys_wipe(struct transport_keys *k)
{
    explicit_bzero(k, sizeof *k);
}

static int write_whole(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return -1;
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

/* Beside `path` first, then renamed over it: a reader sees the old file or the new one, whole. */
static int write_file(const char *path, const char *text, struct err *e)
{
    char temp[4096];
    int n = snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    if (n < 0 || (size_t)n >= sizeof temp)
        return err_set(e, ERR_IO, "the path of the key file is too long");
    int fd = mkstemp(temp); /* mode 0600 */
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot make the key file %s: %s", path, strerror(errno));
    int rc = write_whole(fd, text, strlen(text));
    if (fchmod(fd, 0600) != 0)
        rc = -1;
    if (close(fd) != 0)
        rc = -1;
    if (rc == 0)
        rc = rename(temp, path);
    if (rc != 0) {
        err_set(e, ERR_IO, "cannot write the key file %s: %s", path, strerror(errno));
        unlink(temp);
    }
    return rc;
}

int transport_keys_make(const char *path, struct err *e)
{
    char pub[2][Z85_CHARS + 1], sec[2][Z85_CHARS + 1], text[1024];
    int rc = -1;
    if (zmq_curve_keypair(pub[0], sec[0]) != 0 || zmq_curve_keypair(pub[1], sec[1]) != 0) {
        err_set(e, ERR_UNSUPPORTED, "libzmq on this machine was built without CURVE");
        goto out;
    }
    int n = snprintf(text, sizeof text,
                     "%sgateway_public %s\ngateway_secret %s\nworker_public %s\nworker_secret %s\n",
                     heading, pub[0], sec[0], pub[1], sec[1]);
    assert(n > 0 && (size_t)n < sizeof text);
    (void)n;
    rc = write_file(path, text, e);
out:
    explicit_bzero(sec, sizeof sec);
    explicit_bzero(text, sizeof text);
    return rc;
}

/* Reads the file into `text`, NUL-terminated, after looking at who else could have read it. */
static int read_file(const char *path, char text[FILE_BYTES_MAX], struct err *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, ERR_IO, "cannot open the key file %s: %s", path, strerror(errno));
    int rc = -1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        err_set(e, ERR_BAD_FILE, "the key file %s is no regular file", path);
    } else if ((st.st_mode & 077) != 0) {
        err_set(e, ERR_BAD_FILE, "the key file %s can be read by others (mode %03o): chmod 600 it",
                path, (unsigned)(st.st_mode & 0777));
    } else {
        ssize_t n = read(fd, text, FILE_BYTES_MAX - 1);
        text[n > 0 ? n : 0] = '\0';
        rc = n > 0 ? 0 : err_set(e, ERR_BAD_FILE, "the key file %s is empty", path);
    }
    close(fd);
    return rc;
}

/* The 32 bytes of line `name`. */
static int find_key(const char *path, const char *text, const char *name,
                    uint8_t out[TRANSPORT_KEY_BYTES], struct err *e)
{
    size_t n = strlen(name);
    const char *line = text;
    while (line != NULL) {
        if (strncmp(line, name, n) == 0 && line[n] == ' ') {
            char z85[Z85_CHARS + 1];
            const char *key = line + n + 1;
            size_t len = strcspn(key, "\r\n");
            if (len != Z85_CHARS)
                break;
            memcpy(z85, key, len);
            z85[len] = '\0';
            bool ok = zmq_z85_decode(out, z85) != NULL;
            explicit_bzero(z85, sizeof z85);
            if (ok)
                return 0;
            break;
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return err_set(e, ERR_BAD_FILE, "the key file %s has no valid line %s", path, name);
}

/* Whether the secret belongs to the public key: a mixed-up file must not look like a dead peer later. */
static int check_pair(const char *path, const struct transport_keys *k, struct err *e)
{
    char secret[Z85_CHARS + 1], made[Z85_CHARS + 1], want[Z85_CHARS + 1];
    bool ok = zmq_z85_encode(secret, k->own_secret, TRANSPORT_KEY_BYTES) != NULL &&
              zmq_z85_encode(want, k->own_public, TRANSPORT_KEY_BYTES) != NULL &&
              zmq_curve_public(made, secret) == 0 && strcmp(made, want) == 0;
    explicit_bzero(secret, sizeof secret);
    return ok ? 0 : err_set(e, ERR_BAD_FILE, "the key file %s: secret and public key differ", path);
}

int transport_keys_load(struct transport_keys *k, const char *path, bool listener, struct err *e)
{
    char text[FILE_BYTES_MAX];
    const char *pub = listener ? "gateway_public" : "worker_public";
    const char *sec = listener ? "gateway_secret" : "worker_secret";
    *k = (struct transport_keys){.on = true};
    int rc = read_file(path, text, e);
    if (rc == 0 && (find_key(path, text, pub, k->own_public, e) != 0 ||
                    find_key(path, text, sec, k->own_secret, e) != 0))
        rc = -1;
    if (rc == 0 && listener) {
        k->n_allowed = 1;
        rc = find_key(path, text, "worker_public", k->allowed[0], e);
    } else if (rc == 0) {
        rc = find_key(path, text, "gateway_public", k->server_public, e);
    }
    if (rc == 0)
        rc = check_pair(path, k, e);
    explicit_bzero(text, sizeof text);
    if (rc != 0)
        transport_keys_wipe(k);
    return rc;
}
