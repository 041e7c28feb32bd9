#include "gateway/json_out.h"

#include "gateway/request.h"
#include "model/tokenizer.h"

#include <math.h>
#include <string.h>

static void escape(struct buf *b, unsigned char c)
{
    switch (c) {
    case '"': buf_add(b, "\\\"", 2); break;
    case '\\': buf_add(b, "\\\\", 2); break;
    case '\n': buf_add(b, "\\n", 2); break;
    case '\r': buf_add(b, "\\r", 2); break;
    case '\t': buf_add(b, "\\t", 2); break;
    default: buf_addf(b, "\\u%04x", c);
    }
}

void json_out_str(struct buf *b, const char *p, size_t n)
{
    buf_addc(b, '"');
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        if (i > from) buf_add(b, p + from, i - from);
        escape(b, c);
        from = i + 1;
    }
    if (n > from) buf_add(b, p + from, n - from);
    buf_addc(b, '"');
}

void json_out_bytes(struct buf *b, const uint8_t *p, size_t n)
{
    struct buf text = {0};
    struct detok d = {0};
    detok_push(&d, p, n, &text);
    detok_end(&d, &text);
    json_out_str(b, text.p, text.len);
    if (text.bad) b->bad = true;
    buf_deinit(&text);
}

void json_out_byte_list(struct buf *b, const uint8_t *p, size_t n)
{
    buf_addc(b, '[');
    for (size_t i = 0; i < n; i++) buf_addf(b, i ? ",%u" : "%u", p[i]);
    buf_addc(b, ']');
}

void json_out_logprob(struct buf *b, float v)
{
    if (!isfinite(v)) v = -9999.0f;
    buf_addf(b, "%.9g", (double)v);
}

void error_json(struct buf *out, const struct err *e)
{
    const char *code = err_code_text(e->code);
    buf_adds(out, "{\"error\":{\"message\":");
    json_out_bytes(out, (const uint8_t *)e->msg, strlen(e->msg));
    buf_addf(out, ",\"type\":\"%s\",\"param\":", err_type(e->code));
    if (e->param[0]) json_out_bytes(out, (const uint8_t *)e->param, strlen(e->param));
    else buf_adds(out, "null");
    if (code) buf_addf(out, ",\"code\":\"%s\"}}", code);
    else buf_adds(out, ",\"code\":null}}");
}
