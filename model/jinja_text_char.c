/* Characters: white space, code points, and stripping by either. */
#include "model/jinja_text.h"

#include <string.h>

static size_t char_len(const char *p, size_t n)
{
    size_t k = 1;
    while (k < n && ((unsigned char)p[k] & 0xC0) == 0x80)
        k++;
    return k;
}

static size_t char_len_before(const char *p, size_t n)
{
    size_t k = 1;
    while (k < n && ((unsigned char)p[n - k] & 0xC0) == 0x80)
        k++;
    return k;
}

/* The code points for which Python's str.isspace holds. */
static bool is_space(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    if (n == 1)
        return u[0] == ' ' || (u[0] >= 0x09 && u[0] <= 0x0D) || (u[0] >= 0x1C && u[0] <= 0x1F);
    if (n == 2)
        return u[0] == 0xC2 && (u[1] == 0x85 || u[1] == 0xA0);
    if (n != 3)
        return false;
    uint32_t c = (uint32_t)(u[0] & 0x0F) << 12 | (uint32_t)(u[1] & 0x3F) << 6 | (u[2] & 0x3F);
    return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t jspace_at(const char *p, size_t n)
{
    size_t k = n ? char_len(p, n) : 0;
    return k && is_space(p, k) ? k : 0;
}

size_t jspace_before(const char *p, size_t n)
{
    size_t k = n ? char_len_before(p, n) : 0;
    return k && is_space(p + n - k, k) ? k : 0;
}

size_t jtext_length(const struct jtext *t)
{
    size_t count = 0;
    for (size_t i = 0; i < t->n; i++)
        count += ((unsigned char)t->p[i] & 0xC0) != 0x80;
    return count;
}

size_t jtext_offset(const struct jtext *t, size_t i)
{
    size_t at = 0;
    while (i-- && at < t->n)
        at += char_len(t->p + at, t->n - at);
    return at;
}

static bool in_set(const struct jtext *set, const char *p, size_t n)
{
    return set ? memmem(set->p, set->n, p, n) != NULL : is_space(p, n);
}

struct jtext *jtext_strip(struct jrun *r, struct jtext *t, struct jtext *chars, unsigned sides)
{
    if (jtext_flat(r, t) || (chars && jtext_flat(r, chars)))
        return NULL;
    size_t from = 0, to = t->n, k;
    while ((sides & 1) && from < to && (k = char_len(t->p + from, to - from)) != 0 &&
           in_set(chars, t->p + from, k))
        from += k;
    while ((sides & 2) && from < to && (k = char_len_before(t->p + from, to - from)) != 0 &&
           in_set(chars, t->p + to - k, k))
        to -= k;
    size_t cut = t->n - (to - from);
    if (jrun_step(r, cut * (chars ? 1 + chars->n / 64 : 1)))
        return NULL;
    struct jtext *out = jtext_sub(r, t, from, to);
    return out && chars && !jtext_all_own(chars) ? jtext_taint(r, out) : out;
}
