#include "node/lend.h"

#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/gpu.h"
#include "heat/heat.h"
#include "lending/lending.h"
#include "node/control.h"
#include "node/daemon_state.h"
#include "node/lend_load.h"

#include <string.h>

struct lend {
    char path[PATH_MAX];
    struct lending lending;
    struct lending_use use;
    struct lend_load load;
    enum lending_state state;
    uint64_t measured_ms;
};

enum { MEASURE_LOAD_MS = 2000 };

/* ---- the file -------------------------------------------------------------------------------- */

static enum error_code lend_store(const struct lend *lend, struct error *err)
{
    struct buffer text = {0};
    lending_write(&lend->lending, &text);
    enum error_code code = text.failed ? error_set(err, ERROR_NO_MEMORY, "out of memory")
                                       : durable_replace(lend->path, text.data, text.size, err);
    buffer_deinit(&text);
    return code;
}

static enum error_code lend_load_file(struct lend *lend, struct error *err)
{
    struct buffer text = {0};
    enum error_code code = durable_read(lend->path, LENDING_FILE_MAX, 0, &text, err);
    if (code == ERROR_NOT_FOUND) {
        *err = (struct error){0};
        code = ERROR_NONE;
    } else if (!code) {
        code = lending_read(text.data ? text.data : "", text.size, &lend->lending, err);
    }
    buffer_deinit(&text);
    return code ? error_wrap(err, "what this machine lends (STATE/lend; remove it to begin anew)")
                : ERROR_NONE;
}

enum error_code lend_open(struct daemon *daemon, struct lend **out, struct error *err)
{
    const struct daemon_options *options = &daemon->options;
    struct lend *lend = *out = mem_new(sizeof *lend);
    if (!lend)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for what is lent");
    enum error_code code = durable_path(daemon->folder, "lend", "", lend->path, err);
    if (!code)
        code = lend_load_file(lend, err);
    for (uint32_t i = 0; i < options->n_lends && !code; i++)
        code = lending_set(&lend->lending, options->lends[i].setting, options->lends[i].value, err);
    if (!code && options->n_lends)
        code = lend_store(lend, err);
    return code;
}

void lend_free(struct lend *lend)
{
    mem_free(lend);
}

const char *lend_devices(const struct lend *lend)
{
    return lend->lending.devices;
}

/* ---- now ------------------------------------------------------------------------------------- */

/* The part of this machine that others use: of its processors, or of a card while nothing of the
 * cluster computes. */
static struct reading others_share(struct daemon *daemon, const struct heat_snapshot *heat)
{
    struct reading share = lend_load_others(&daemon->lend->load, heat->node.cpu_utilisation_pct);
    for (uint32_t i = 0; i < heat->n_devices && heat->time_ns && !daemon->computes; i++) {
        const struct reading use = heat->devices[i].readings.utilisation_pct;
        if (device_info(heat->devices[i].device)->kind == DEVICE_CPU || !use.valid)
            continue;
        if (!share.valid || use.value / 100 > share.value)
            share = reading_now(UNIT_NUMBER, use.value / 100);
    }
    return share;
}

static struct lending_moment lend_look(struct daemon *daemon)
{
    struct lend *lend = daemon->lend;
    static struct heat_snapshot heat;
    const uint64_t now_ms = daemon_now_ms(daemon);
    heat = (struct heat_snapshot){0};
    if (daemon->options.heat)
        heat_latest(daemon->options.heat, &heat);
    if (lend->lending.not_while_used && now_ms - lend->measured_ms >= MEASURE_LOAD_MS) {
        lend->measured_ms = now_ms;
        lending_use_step(&lend->use, now_ms, others_share(daemon, &heat));
    }
    struct lending_moment moment = {.minute = lending_minute((int64_t)(daemon_wall_ms() / 1000)),
                                    .used = lend->use.used,
                                    .on_battery = heat.node.on_ac};
    moment.on_battery.value = heat.node.on_ac.value > 0 ? 0 : 1;
    return moment;
}

void lend_tick(struct daemon *daemon)
{
    struct lend *lend = daemon->lend;
    const struct lending_moment moment = lend_look(daemon);
    const enum lending_state state = lending_at(&lend->lending, &moment);
    if (state == lend->state)
        return;
    lend->state = state;
    log_line(LOG_INFO, "lend", "this machine lends %s%s%s",
             state == LENDING_OPEN ? "what its owner allows" : "nothing",
             state == LENDING_OPEN ? "" : ": ", lending_state_text(state));
    daemon_tell_now(daemon);
}

/* ---- telling --------------------------------------------------------------------------------- */

static const struct device *lend_device(const struct daemon *daemon, const char *id)
{
    for (uint32_t i = 0; i < gpu_device_count(daemon->options.gpu); i++) {
        const struct device *device = gpu_device(daemon->options.gpu, i);
        if (strcmp(device_info(device)->id, id) == 0)
            return device;
    }
    return NULL;
}

void lend_tell(struct daemon *daemon, Node__Now *now)
{
    const struct lend *lend = daemon->lend;
    if (lend->state != LENDING_OPEN)
        now->lends_nothing = (char *)(uintptr_t)lending_state_text(lend->state);
    for (size_t i = 0; lending_is_limited(&lend->lending) && i < now->n_devices; i++) {
        Node__DeviceNow *told = now->devices[i];
        const struct device *device = lend_device(daemon, told->id);
        if (!device)
            continue;
        told->has_lent_bytes = true;
        told->lent_bytes =
            lending_bytes(&lend->lending, told->id, device_memory(device).total_bytes);
    }
}

/* ---- asked ----------------------------------------------------------------------------------- */

void control_put_lending(const struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    const struct lend *lend = daemon->lend;
    char value[LENDING_TEXT];
    yyjson_mut_val *object = yyjson_mut_obj_add_obj(doc, root, "lends");
    for (uint32_t i = 0; i < LENDING_SETTINGS; i++) {
        lending_value(&lend->lending, i, value);
        yyjson_mut_obj_add_strcpy(doc, object, lending_setting(i), value);
    }
    if (lend->state == LENDING_OPEN)
        yyjson_mut_obj_add_null(doc, object, "nothing_now");
    else
        yyjson_mut_obj_add_str(doc, object, "nothing_now", lending_state_text(lend->state));
}

/* All of what is asked for, or none of it. */
static enum error_code take_settings(struct lend *lend, yyjson_val *request, struct error *err)
{
    const struct lending before = lend->lending;
    enum error_code code = ERROR_NONE;
    bool some = false;
    for (uint32_t i = 0; i < LENDING_SETTINGS && !code; i++) {
        const char *value = control_text(request, lending_setting(i));
        some = some || value;
        code = value ? lending_set(&lend->lending, lending_setting(i), value, err) : ERROR_NONE;
    }
    if (!code && some)
        code = lend_store(lend, err);
    if (code)
        lend->lending = before;
    return code;
}

void control_lend(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    struct error err;
    if (take_settings(daemon->lend, request, &err)) {
        control_fail(conversation, &err);
        return;
    }
    if (daemon->is_member) {
        lend_tick(daemon);
        daemon_tell_now(daemon);
    }
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    control_put_lending(daemon, doc, root);
    control_answer(conversation, doc);
    control_end(conversation);
}
