/* A part whose stages live in their devices' processes: their lanes, and what becomes of it when
 * one is lost. */
#include "hosting/hosting_impl.h"

#include "base/mem.h"
#include "model/model.h"
#include "pipeline/settings.h"

#include <string.h>

/* ---- messages ---------------------------------------------------------------------------- */

static enum error_code pass_from_child(struct part *part, uint32_t at, struct buffer *message,
                                       struct error *err)
{
    const bool behind = at == part->n_stages;
    const struct part_stage *to = &part->stages[behind ? 0 : at];
    if (!part->lanes_serve)
        return ERROR_NONE; /* what was under way when the part was closed; nobody waits for it */
    if (!behind && to->here)
        lane_send(to->lane, message->data, message->size); /* what is lost there is said there */
    else if (behind && part_drives(part))
        return driver_receive(part->driver, message->data, message->size, err);
    else
        carrier_send(part->hosting->options.carrier, to->node_id, message);
    return ERROR_NONE;
}

/* On a lane's thread. Its process may write whatever it likes, also while other lanes are opened
 * and closed. */
static enum error_code from_child(void *arg, uint32_t at, struct buffer *message, struct error *err)
{
    struct part *part = arg;
    pthread_rwlock_rdlock(&part->lanes_lock);
    const enum error_code code = pass_from_child(part, at, message, err);
    pthread_rwlock_unlock(&part->lanes_lock);
    return code;
}

static void set_serving(struct part *part, bool serve)
{
    pthread_rwlock_wrlock(&part->lanes_lock);
    part->lanes_serve = serve;
    pthread_rwlock_unlock(&part->lanes_lock);
}

void part_serve_lanes(struct part *part)
{
    set_serving(part, true);
}

enum error_code part_pass_on(struct part *part, const void *bytes, size_t size, struct error *err)
{
    struct wire_route route;
    uint32_t at, n_rows;
    enum error_code code = wire_read_address(bytes, size, &route, &at, &n_rows, err);
    if (code)
        return code;
    if (at == part->n_stages && part->driver)
        return driver_receive(part->driver, bytes, size, err);
    if (at >= part->n_stages || !part->stages[at].here)
        return error_set(err, ERROR_INVALID, "a micro-batch for stage %u, which is not here", at);
    code = lane_send(part->stages[at].lane, bytes, size); /* BUSY: its driver is told */
    return code == ERROR_INVALID ? error_set(err, code, "a micro-batch of %zu bytes", size) : code;
}

/* On a thread of the children. */
static void on_changed(void *arg)
{
    struct part *part = arg;
    uv_async_send(&part->hosting->wake);
}

/* ---- opening and closing ----------------------------------------------------------------- */

/* All stages of one device. */
struct opening {
    pthread_t thread;
    bool has_thread;
    struct part *part;
    const char *device;
    const struct driver_options *options;
    const struct wire_shape *shape;
    enum error_code code;
    struct error error;
};

static void *open_one(void *arg)
{
    struct opening *opening = arg;
    struct part *part = opening->part;
    struct child_stage stages[LIMIT_STAGES] = {0};
    for (uint32_t i = 0; i < part->n_stages; i++)
        stages[i] = (struct child_stage){
            .here = part->stages[i].here && strcmp(part->stages[i].device, opening->device) == 0,
            .type = part->stages[i].here ? ACTIVATION_F32 : part->far.type,
            .n_layers = part->stages[i].n_layers,
        };
    const struct lane_options options = {
        .device = opening->device,
        .model = part->model,
        .instance = part->far.instance,
        .epoch = part->far.epoch,
        .options = opening->options,
        .type = ACTIVATION_F32,
        .stages = stages,
        .n_stages = part->n_stages,
        .shape = opening->shape,
        .receive = from_child,
        .changed = on_changed,
        .arg = part,
        .unwanted = &part->cancels,
    };
    struct lane *lane = NULL;
    opening->code = lane_open(part->hosting->options.children, &options, &lane, &opening->error);
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (stages[i].here)
            part->stages[i].lane = lane;
    }
    return NULL;
}

static bool is_first_of_device(const struct part *part, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++) {
        if (part->stages[k].here && strcmp(part->stages[k].device, part->stages[i].device) == 0)
            return false;
    }
    return part->stages[i].here;
}

/* Different devices at the same time. */
static enum error_code open_all(struct part *part, struct opening *openings,
                                const struct opening *like, struct error *err)
{
    enum error_code code = ERROR_NONE;
    uint32_t n = 0;
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (!is_first_of_device(part, i))
            continue;
        struct opening *opening = &openings[n++];
        *opening = *like;
        opening->device = part->stages[i].device;
        opening->has_thread = !pthread_create(&opening->thread, NULL, open_one, opening);
        if (!opening->has_thread)
            open_one(opening);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (openings[i].has_thread)
            pthread_join(openings[i].thread, NULL);
        if (openings[i].code && !code)
            code = error_set(err, openings[i].code, "%s", openings[i].error.text);
    }
    return code;
}

enum error_code part_open_lanes(struct part *part, struct error *err)
{
    struct driver_options options;
    struct pipeline_settings settings;
    enum error_code code =
        pipeline_check(part->model, part->plan, part->n_stages, &part->options, &options, err);
    if (code)
        return code;
    pipeline_settings_init(&settings, part->model, part->plan, part->n_stages, &options);
    struct opening *openings = mem_new_array(part->n_stages, sizeof *openings);
    if (!openings)
        return error_set(err, ERROR_NO_MEMORY, "no memory to open %u stages", part->n_stages);
    const struct opening like = {
        .part = part,
        .options = &options,
        .shape = &settings.shape,
    };
    code = open_all(part, openings, &like, err);
    mem_free(openings);
    if (code)
        part_close_lanes(part);
    return code;
}

void part_close_lanes(struct part *part)
{
    set_serving(part, false);
    for (uint32_t i = 0; i < part->n_stages; i++) {
        struct lane *lane = part->stages[i].lane;
        if (!lane)
            continue;
        lane_close(lane);
        for (uint32_t k = i; k < part->n_stages; k++) {
            if (part->stages[k].lane == lane)
                part->stages[k].lane = NULL;
        }
    }
}

/* ---- what has become of them ------------------------------------------------------------- */

bool part_has_lanes(const struct part *part)
{
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (part->stages[i].lane)
            return true;
    }
    return false;
}

bool part_lanes_loaded(const struct part *part)
{
    struct error why = {0};
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (part->stages[i].lane && lane_look(part->stages[i].lane, &why) != LANE_LOADED)
            return false;
    }
    return true;
}

/* One that hands over its caches has lost them. */
static void mind_handing(struct part *part, struct lane *lane)
{
    struct error why = {0};
    if (!lane_take_loss(lane, &why) && lane_look(lane, &why) == LANE_LOADED)
        return;
    if (!part->driver)
        part_notify_driver(part); /* which waits for what was under way here */
    give_fail(part, why.text);
}

static void mind(struct part *part, struct lane *lane)
{
    struct error why = {0};
    if (lane_look(lane, &why) == LANE_GIVEN_UP) {
        if (!part->driver)
            part_notify_driver(part);
        part_give_up(part, &why);
    } else if (lane_take_loss(lane, &why)) {
        give_fail(part, why.text);
        take_fail(part, why.text);
        if (part->driver)
            part_lose(part, &why);
        else
            part_notify_driver(part);
    }
}

void hosting_mind(struct hosting *hosting)
{
    for (struct part *part = hosting->parts; part; part = part->next) {
        for (uint32_t i = 0; i < part->n_stages;
             i++) { /* the state first: while it loads, lanes are another thread's */
            if (part->state == PART_READY && part->stages[i].lane)
                mind(part, part->stages[i].lane);
            else if (part->state == PART_HANDING && part->stages[i].lane)
                mind_handing(part, part->stages[i].lane);
        }
    }
}
