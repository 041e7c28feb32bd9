#include "gateway/api_pages.h"

#include "gateway/dispatch.h"
#include "gateway/json_out.h"
#include "gateway/tenants.h"

#include <inttypes.h>
#include <string.h>

static void card(const struct gateway *g, struct buf *out)
{
    buf_adds(out, "{\"id\":");
    json_out_str(out, g->model->name, strlen(g->model->name));
    buf_addf(out, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"sluice\",\"root\":",
             g->started_wall_s);
    json_out_str(out, g->model->name, strlen(g->model->name));
    buf_addf(out, ",\"parent\":null,\"permission\":[],\"max_model_len\":%" PRIu32 "}",
             g->model->hp.n_ctx);
}

static bool may_see(const struct gateway *g, const struct tenant *t)
{
    return t == NULL || tenant_line_model(&t->line, g->model->name);
}

void api_page_models(const struct gateway *g, const struct tenant *t, struct buf *out)
{
    buf_adds(out, "{\"object\":\"list\",\"data\":[");
    if (may_see(g, t)) card(g, out);
    buf_adds(out, "]}");
}

int api_page_model(const struct gateway *g, const struct tenant *t, const char *name,
                   struct buf *out, struct err *e)
{
    if (strcmp(name, g->model->name) != 0) {
        return err_set_param(e, ERR_MODEL_NOT_FOUND, "model",
                             "The model '%.100s' does not exist; this server has '%s'.", name,
                             g->model->name);
    }
    if (!may_see(g, t)) {
        return err_set_param(e, ERR_FORBIDDEN, "model", "This key may not use the model '%s'.",
                             g->model->name);
    }
    card(g, out);
    return 0;
}

int api_page_ready(const struct gateway *g, struct err *e)
{
    if (g->draining) return err_set(e, ERR_DRAINING, "The server is shutting down.");
    if (!dispatch_ready(g->dispatch)) return err_set(e, ERR_NO_WORKER, "No worker is ready yet.");
    return 0;
}
