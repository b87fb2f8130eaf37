#include "node/history.h"

#include "base/clock.h"
#include "cluster/event.h"
#include "heat/heat.h"
#include "mesh/frames.h"
#include "node/daemon_state.h"
#include "node/peers.h"
#include "vitals/vitals.h"

#include <math.h>
#include <string.h>

enum { MIB = 1 << 20 };

/* ---- this node's own ------------------------------------------------------------------------- */

/* What an answer points into; large, and the loop's alone. */
struct history_room {
    struct heat_snapshot snapshot;
    struct recent_sample samples[RECENT_SAMPLES];
    int32_t temperature_dc[RECENT_SAMPLES], use_permille[RECENT_SAMPLES], power_dw[RECENT_SAMPLES],
        clock_mhz[RECENT_SAMPLES], free_mib[RECENT_SAMPLES], predicted_dc[RECENT_SAMPLES];
};

static int32_t history_steps(float value, double scale)
{
    return vitals_steps(isfinite(value), (double)value * scale);
}

static void history_fill(struct history_room *room, Node__HistoryAnswer *out)
{
    for (uint32_t i = 0; i < RECENT_SAMPLES; i++) {
        const struct recent_sample *sample = &room->samples[i];
        room->temperature_dc[i] = history_steps(sample->temperature_c, 10);
        room->use_permille[i] = history_steps(sample->use_share, 1000);
        room->power_dw[i] = history_steps(sample->power_w, 10);
        room->clock_mhz[i] = history_steps(sample->clock_mhz, 1);
        room->free_mib[i] = history_steps(sample->free_bytes, 1.0 / MIB);
    }
    out->temperature_dc = room->temperature_dc;
    out->use_permille = room->use_permille;
    out->power_dw = room->power_dw;
    out->clock_mhz = room->clock_mhz;
    out->free_mib = room->free_mib;
    out->n_temperature_dc = out->n_use_permille = out->n_power_dw = out->n_clock_mhz =
        out->n_free_mib = RECENT_SAMPLES;
}

/* At the power of now, by the fitted body. */
static void history_predict(struct history_room *room, const struct thermal_state *thermal,
                            uint32_t period_ms, Node__HistoryAnswer *out)
{
    if (!thermal->is_modelled)
        return;
    for (uint32_t i = 0; i < RECENT_SAMPLES; i++) {
        const double after_s = (i + 1) * period_ms / 1e3;
        room->predicted_dc[i] =
            vitals_steps(true, 10 * thermal_after_c(&thermal->body, thermal->smooth_c,
                                                    thermal->power_w, after_s));
    }
    out->predicted_dc = room->predicted_dc;
    out->n_predicted_dc = RECENT_SAMPLES;
}

/* Good until the next call. */
static Node__HistoryAnswer history_own(struct daemon *daemon, const char *device)
{
    static struct history_room room;
    Node__HistoryAnswer out = NODE__HISTORY_ANSWER__INIT;
    struct heat *heat = daemon->options.heat;
    uint32_t period_ms = 0, at = 0;
    if (heat)
        heat_latest(heat, &room.snapshot);
    const uint32_t n = heat ? room.snapshot.n_devices : 0;
    while (at < n && strcmp(device_info(room.snapshot.devices[at].device)->id, device) != 0)
        at++;
    const uint64_t end_ns = at < n ? heat_recent(heat, at, &period_ms, room.samples) : 0;
    if (!end_ns) {
        out.problem = (char *)(uintptr_t)(at < n ? "nothing was read of that device yet"
                                                 : "that machine has no such device");
        return out;
    }
    out.has_period_ms = out.has_age_ms = true;
    out.period_ms = period_ms;
    const uint64_t now_ns = clock_now_ns();
    out.age_ms = now_ns > end_ns ? (now_ns - end_ns) / 1000000 : 0;
    history_fill(&room, &out);
    history_predict(&room, &room.snapshot.devices[at].thermal, period_ms, &out);
    return out;
}

/* ---- as text --------------------------------------------------------------------------------- */

enum error_code history_check(const Node__HistoryAnswer *answer, struct error *err)
{
    const size_t counts[] = {answer->n_temperature_dc, answer->n_use_permille,
                             answer->n_power_dw,       answer->n_clock_mhz,
                             answer->n_free_mib,       answer->n_predicted_dc};
    bool good = !answer->problem || strlen(answer->problem) <= LIMIT_CLUSTER_TEXT_BYTES;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        good = good && counts[i] <= HISTORY_VALUES_MAX;
    return good ? ERROR_NONE
                : error_set(err, ERROR_INVALID, "a node tells more than a minute of a device");
}

static void history_write_list(struct buffer *out, const char *name, const int32_t *values,
                               size_t n, double per_unit)
{
    buffer_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        buffer_text(out, i ? "," : "");
        if (values[i] == VITALS_UNKNOWN)
            buffer_text(out, "null");
        else
            buffer_printf(out, "%.15g", values[i] / per_unit);
    }
    buffer_text(out, "]");
}

void history_write(const Node__HistoryAnswer *answer, uint64_t wall_ms, struct buffer *out)
{
    const uint64_t age_ms = answer->age_ms < wall_ms ? answer->age_ms : 0;
    buffer_printf(out, "{\"period_ms\":%u,\"end_ms\":%llu", answer->period_ms,
                  (unsigned long long)(wall_ms - age_ms));
    history_write_list(out, "temperature_c", answer->temperature_dc, answer->n_temperature_dc, 10);
    history_write_list(out, "use_share", answer->use_permille, answer->n_use_permille, 1000);
    history_write_list(out, "power_w", answer->power_dw, answer->n_power_dw, 10);
    history_write_list(out, "clock_mhz", answer->clock_mhz, answer->n_clock_mhz, 1);
    history_write_list(out, "free_bytes", answer->free_mib, answer->n_free_mib, 1.0 / MIB);
    history_write_list(out, "predicted_c", answer->predicted_dc, answer->n_predicted_dc, 10);
    buffer_text(out, "}");
}

static void history_deliver(const Node__HistoryAnswer *answer, live_history_fn *done, void *arg)
{
    struct buffer text = {0};
    struct error err;
    if (answer->problem) {
        error_set(&err, ERROR_NOT_FOUND, "%s", answer->problem);
        done(arg, NULL, 0, &err);
        return;
    }
    history_write(answer, daemon_wall_ms(), &text);
    if (text.failed) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for the last minute of a device");
        done(arg, NULL, 0, &err);
    } else {
        done(arg, text.data, text.size, NULL);
    }
    buffer_deinit(&text);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void history_fail(struct history_question *question, const char *why)
{
    struct history_question copy = *question;
    struct error err;
    *question = (struct history_question){0};
    error_set(&err, ERROR_IO, "%s", why);
    copy.done(copy.arg, NULL, 0, &err);
}

static void history_send(struct daemon *daemon, const struct peer *peer, const char *device,
                         live_history_fn *done, void *arg)
{
    struct history *history = &daemon->history;
    Node__HistoryRequest request = NODE__HISTORY_REQUEST__INIT;
    struct buffer bytes = {0};
    struct history_question *row = history->questions;
    struct error err;
    while (row < history->questions + HISTORY_ASKED_MAX && row->id)
        row++;
    if (row == history->questions + HISTORY_ASKED_MAX) {
        error_set(&err, ERROR_BUSY, "too many ask for devices' last minute; try again in a moment");
        done(arg, NULL, 0, &err);
        return;
    }
    *row = (struct history_question){.id = ++history->n_asked,
                                     .until_ms = daemon_now_ms(daemon) + HISTORY_WAIT_MS,
                                     .peer = peer,
                                     .done = done,
                                     .arg = arg};
    request.has_id = true;
    request.id = row->id;
    request.device = (char *)(uintptr_t)device;
    message_encode(&request.base, &bytes);
    if (!bytes.failed)
        daemon_post(peer->link, FRAME_HISTORY_ASK, bytes.data, bytes.size);
    buffer_deinit(&bytes);
}

void history_ask(struct daemon *daemon, const char *node, const char *device, live_history_fn *done,
                 void *arg)
{
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), node);
    const struct peer *peer = daemon_peer(daemon, node);
    struct error err;
    if (strcmp(node, daemon->id) == 0) {
        const Node__HistoryAnswer own = history_own(daemon, device);
        history_deliver(&own, done, arg);
    } else if (!record) {
        error_set(&err, ERROR_NOT_FOUND, "there is no node of that id in the cluster");
        done(arg, NULL, 0, &err);
    } else if (!state_device(record, device)) {
        error_set(&err, ERROR_NOT_FOUND, "%s has no such device", record->node->name);
        done(arg, NULL, 0, &err);
    } else if (!peer || !peer->link) {
        error_set(&err, ERROR_IO, "%s cannot be reached", record->node->name);
        done(arg, NULL, 0, &err);
    } else {
        history_send(daemon, peer, device, done, arg);
    }
}

void history_cancel(struct daemon *daemon, void *arg)
{
    for (uint32_t i = 0; i < HISTORY_ASKED_MAX; i++) {
        if (daemon->history.questions[i].id && daemon->history.questions[i].arg == arg)
            daemon->history.questions[i] = (struct history_question){0};
    }
}

void history_tick(struct daemon *daemon)
{
    const uint64_t now = daemon_now_ms(daemon);
    for (uint32_t i = 0; i < HISTORY_ASKED_MAX; i++) {
        struct history_question *question = &daemon->history.questions[i];
        if (question->id && now >= question->until_ms)
            history_fail(question, "the machine did not tell in time: it may run an older version");
    }
}

void history_lost(struct daemon *daemon, const struct peer *peer)
{
    for (uint32_t i = 0; i < HISTORY_ASKED_MAX; i++) {
        struct history_question *question = &daemon->history.questions[i];
        if (question->id && question->peer == peer)
            history_fail(question, "the link to the machine broke");
    }
}

/* ---- what is heard --------------------------------------------------------------------------- */

static void history_answer(struct daemon *daemon, struct peer *peer,
                           const Node__HistoryRequest *request)
{
    Node__HistoryAnswer own = history_own(daemon, request->device ? request->device : "");
    struct buffer bytes = {0};
    own.has_id = request->has_id;
    own.id = request->id;
    message_encode(&own.base, &bytes);
    if (peer->link && !bytes.failed)
        daemon_post(peer->link, FRAME_HISTORY, bytes.data ? bytes.data : "", bytes.size);
    buffer_deinit(&bytes);
}

static enum error_code history_hear(struct daemon *daemon, const struct peer *peer,
                                    const Node__HistoryAnswer *answer, struct error *err)
{
    enum error_code code = history_check(answer, err);
    for (uint32_t i = 0; !code && i < HISTORY_ASKED_MAX; i++) {
        struct history_question *question = &daemon->history.questions[i];
        if (!question->id || question->id != answer->id || question->peer != peer)
            continue;
        const struct history_question copy = *question;
        *question = (struct history_question){0};
        history_deliver(answer, copy.done, copy.arg);
    }
    return code;
}

enum error_code history_take(struct daemon *daemon, struct peer *peer,
                             const struct frame_header *header, const uint8_t *payload,
                             struct error *err)
{
    const bool asks = header->type == FRAME_HISTORY_ASK;
    ProtobufCMessage *message = NULL;
    enum error_code code = message_decode(asks ? &node__history_request__descriptor
                                               : &node__history_answer__descriptor,
                                          payload, header->length, &message, err);
    if (code)
        return code;
    if (asks)
        history_answer(daemon, peer, (Node__HistoryRequest *)message);
    else
        code = history_hear(daemon, peer, (Node__HistoryAnswer *)message, err);
    message_free(message);
    return code;
}
