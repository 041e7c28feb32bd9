/* sim_live_json.c - "noise" and "path" of a measured worker's file, and the file itself. */
#include "cli/sim_hardware_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const ends[2] = {"first_us", "end_us"};

static int take_ratios(struct sim_live *l, const json_t *noise, uint32_t kind, struct err *e) {
    const json_t *list = json_array_get(noise, kind);
    size_t n = json_array_size(list);
    if (n > SIM_LIVE_RATIOS)
        return err_set(e, ERR_BAD_FILE, "noise: more than %d ratios", SIM_LIVE_RATIOS);
    for (size_t i = 0; i < n; i++) {
        double v = json_number_value(json_array_get(list, i));
        if (!(v > 0.001 && v < 10000))
            return err_set(e, ERR_BAD_FILE, "noise: ratio %zu of kind %u is none", i, kind);
        l->ratios[kind][i] = (float)v;
    }
    l->n_ratios[kind] = (uint32_t)n;
    return 0;
}

static int take_path(struct sim_live *l, const json_t *path, uint32_t end, struct err *e) {
    const json_t *list = json_object_get(path, ends[end]);
    double last = 0;
    if (json_array_size(list) != SIM_LIVE_PATH)
        return err_set(e, ERR_BAD_FILE, "path: %s has no %d quantiles", ends[end], SIM_LIVE_PATH);
    for (int i = 0; i < SIM_LIVE_PATH; i++) {
        double v = json_number_value(json_array_get(list, (size_t)i));
        if (!(v >= last && v < 1e10))
            return err_set(e, ERR_BAD_FILE, "path: %s does not rise", ends[end]);
        l->path_ns[end][i] = (uint64_t)(v * 1e3);
        last = v;
    }
    return 0;
}

int sim_live_read(struct sim_live *l, const json_t *j, struct err *e) {
    const json_t *noise = json_object_get(j, "noise"), *path = json_object_get(j, "path");
    memset(l, 0, sizeof(*l));
    for (uint32_t k = 0; noise != NULL && k < SIM_LIVE_KINDS; k++)
        if (take_ratios(l, noise, k, e) != 0)
            return -1;
    for (uint32_t k = 0; path != NULL && k < 2; k++)
        if (take_path(l, path, k, e) != 0)
            return -1;
    l->has_path = path != NULL;
    return 0;
}

static json_t *noise_json(const struct sim_live *l) {
    json_t *j = json_array();
    for (int k = 0; k < SIM_LIVE_KINDS; k++) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < l->n_ratios[k]; i++)
            json_array_append_new(list, json_real((double)l->ratios[k][i]));
        json_array_append_new(j, list);
    }
    return j;
}

static json_t *path_json(const struct sim_live *l) {
    json_t *j = json_object();
    for (int k = 0; k < 2; k++) {
        json_t *list = json_array();
        for (int i = 0; i < SIM_LIVE_PATH; i++)
            json_array_append_new(list, json_real((double)l->path_ns[k][i] / 1e3));
        json_object_set_new(j, ends[k], list);
    }
    return j;
}

int sim_hardware_write(const struct sim_hardware *h, const char *path, struct err *e) {
    json_t *cost = json_array();
    for (int i = 0; i < COST_FEATURES; i++)
        json_array_append_new(cost, json_real(h->model.coef[i]));
    json_t *j = json_pack("{s:s,s:o,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:f}", "name", h->name, "cost", cost,
                          "max_seqs", (int)h->max_seqs, "max_slots", (int)h->max_slots, "n_ctx",
                          (int)h->n_ctx, "block_tokens", (int)h->block_tokens, "prefill_chunk",
                          (int)h->prefill_chunk, "segments", (int)h->n_segments, "kv_blocks",
                          (int)h->n_blocks, "host_blocks", (int)h->n_host, "copy_us",
                          (double)h->copy_ns / 1e3);
    if (sim_live_scatters(&h->live))
        json_object_set_new(j, "noise", noise_json(&h->live));
    if (h->live.has_path)
        json_object_set_new(j, "path", path_json(&h->live));
    int rc = j == NULL ? -1 : json_dump_file(j, path, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(j);
    return rc == 0 ? 0 : err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
}
