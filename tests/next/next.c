/* What the next minor version of Medley might be: the same program with more to say. The linker's
 * --wrap puts these functions in the place of the product's (meson.build), so nothing of this is in
 * `medley`.
 *
 *  - the link protocol's minor version is one higher; MEDLEY_NEXT_MINORS=2: two;
 *  - hellos, descriptions of nodes, NOW messages, events, replicas' messages and requests have a
 * field, or bytes at their end, that this version does not know; there are frames and requests of
 * unknown types;
 *  - there is one more kind of event, which makes the setting "next" in the state. It is proposed
 * by every node, over and over, under the product's rule: only once all nodes know it
 * (event_level()).
 */
#include "agreement/agreement.h"
#include "cluster/event.h"
#include "cluster/state.h"
#include "cluster/wire.h"
#include "mesh/frames.h"
#include "mesh/mesh.h"
#include "node/daemon_state.h"
#include "node/lead.h"
#include "node/peers.h"
#include "request/request_wire.h"

#include <stdlib.h>
#include <string.h>

enum { EXTRA = 9, KIND = EVENT_ROW_END, FRAME_UNKNOWN_CONTROL = 63, FRAME_UNKNOWN_DATA = 95 };

enum error_code __real_mesh_open(const struct mesh_options *options, struct mesh **out,
                                 struct error *err);
enum error_code __wrap_mesh_open(const struct mesh_options *options, struct mesh **out,
                                 struct error *err);
size_t __real_hello_write(const struct hello *hello, uint8_t bytes[static LIMIT_HELLO_BYTES]);
size_t __wrap_hello_write(const struct hello *hello, uint8_t bytes[static LIMIT_HELLO_BYTES]);
void __real_message_encode(const ProtobufCMessage *message, struct buffer *out);
void __wrap_message_encode(const ProtobufCMessage *message, struct buffer *out);
void __real_event_encode(const Cluster__Event *event, struct buffer *out);
void __wrap_event_encode(const Cluster__Event *event, struct buffer *out);
uint32_t __wrap_event_level_known(void);
enum error_code __real_state_apply(struct state *state, uint64_t index, const uint8_t *event,
                                   size_t size, struct state_outcome *outcome, struct error *err);
enum error_code __wrap_state_apply(struct state *state, uint64_t index, const uint8_t *event,
                                   size_t size, struct state_outcome *outcome, struct error *err);
void __real_wire_encode(struct buffer *out, const struct wire_message *message);
void __wrap_wire_encode(struct buffer *out, const struct wire_message *message);
void __real_request_write_submit(uint64_t id, const char *instance, const struct request *request,
                                 struct buffer *run);
void __wrap_request_write_submit(uint64_t id, const char *instance, const struct request *request,
                                 struct buffer *run);
void __real_request_write_accepted(uint64_t id, struct buffer *run);
void __wrap_request_write_accepted(uint64_t id, struct buffer *run);
void __real_daemon_lead(struct daemon *daemon);
void __wrap_daemon_lead(struct daemon *daemon);

/* ---- the link -------------------------------------------------------------------------------- */

enum error_code __wrap_mesh_open(const struct mesh_options *options, struct mesh **out,
                                 struct error *err)
{
    struct mesh_options next = *options;
    const char *minors = getenv("MEDLEY_NEXT_MINORS");
    next.version =
        (struct link_version){LINK_MAJOR, LINK_MINOR + (minors ? (uint32_t)atoi(minors) : 1)};
    return __real_mesh_open(&next, out, err);
}

/* A protobuf field that nobody knows: number 99, a text. */
static const uint8_t unknown_field[] = {0x9a, 0x06, 4, 'n', 'e', 'x', 't'};

size_t __wrap_hello_write(const struct hello *hello, uint8_t bytes[static LIMIT_HELLO_BYTES])
{
    const size_t size = __real_hello_write(hello, bytes);
    if (size + sizeof unknown_field > LIMIT_HELLO_BYTES)
        return size;
    memcpy(bytes + size, unknown_field, sizeof unknown_field);
    return size + sizeof unknown_field;
}

/* ---- messages of the cluster ----------------------------------------------------------------- */

/* What this node says of itself has a field more; what others have said of themselves stays as it
 * is. */
void __wrap_message_encode(const ProtobufCMessage *message, struct buffer *out)
{
    const bool is_own = message->descriptor == &cluster__node__descriptor &&
                        !message->n_unknown_fields &&
                        ((const Cluster__Node *)message)->level == KIND;
    __real_message_encode(message, out);
    if (is_own || message->descriptor == &node__now__descriptor)
        buffer_append(out, unknown_field, sizeof unknown_field);
}

static bool is_ours(const Cluster__Event *event)
{
    return event_level(event) == KIND;
}

void __wrap_event_encode(const Cluster__Event *event, struct buffer *out)
{
    Cluster__Event more = *event;
    ProtobufCMessageUnknownField extra = {
        .tag = EXTRA, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = 1, .data = (uint8_t *)"\5"};
    if (!more.base.n_unknown_fields) {
        more.base.n_unknown_fields = 1;
        more.base.unknown_fields = &extra;
    }
    __real_event_encode(&more, out);
}

uint32_t __wrap_event_level_known(void)
{
    return KIND;
}

/* The new kind means: the setting "next" has the value of its number. */
enum error_code __wrap_state_apply(struct state *state, uint64_t index, const uint8_t *bytes,
                                   size_t size, struct state_outcome *outcome, struct error *err)
{
    Cluster__Event *event = NULL;
    struct buffer as_setting = {0};
    if (event_decode(bytes, size, &event, err) == ERROR_NONE && is_ours(event)) {
        Cluster__Event meant = CLUSTER__EVENT__INIT;
        Cluster__Setting setting = CLUSTER__SETTING__INIT;
        setting.key = (char *)(uintptr_t)"next";
        setting.value = (char *)(uintptr_t)"yes";
        meant.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
        meant.setting_changed = &setting;
        meant.by = event->by;
        __real_event_encode(&meant, &as_setting);
        bytes = (const uint8_t *)as_setting.data;
        size = as_setting.size;
    }
    const enum error_code code = __real_state_apply(state, index, bytes, size, outcome, err);
    event_free(event);
    buffer_deinit(&as_setting);
    return code;
}

void __wrap_wire_encode(struct buffer *out, const struct wire_message *message)
{
    const size_t begin = out->size;
    __real_wire_encode(out, message);
    buffer_append(out, "later", 5);
    if (!out->failed)
        ((uint8_t *)out->data)[begin] += 1; /* its version */
}

/* ---- requests -------------------------------------------------------------------------------- */

static void lengthen(struct buffer *run, size_t begin)
{
    buffer_append(run, "later", 5);
    if (!run->failed)
        ((uint8_t *)run->data)[begin] = (uint8_t)(((uint8_t *)run->data)[begin] + 5);
}

void __wrap_request_write_submit(uint64_t id, const char *instance, const struct request *request,
                                 struct buffer *run)
{
    const size_t begin = run->size;
    __real_request_write_submit(id, instance, request, run);
    if (!run->failed && ((uint8_t *)run->data)[begin] < 250) /* no carry */
        lengthen(run, begin);
}

void __wrap_request_write_accepted(uint64_t id, struct buffer *run)
{
    static const uint8_t unknown[] = {12, 0, 0, 0, 77, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    const size_t begin = run->size;
    __real_request_write_accepted(id, run);
    lengthen(run, begin);
    buffer_append(run, unknown, sizeof unknown);
}

/* ---- what the node does ---------------------------------------------------------------------- */

static void post(struct link *link, uint32_t channel, uint16_t type)
{
    const struct frame_header header = {.type = type, .flags = 0x8000, .length = 5, .tag = 1};
    struct error err;
    link_post(link, channel, &header, "later", &err);
}

static void propose(struct daemon *daemon)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    ProtobufCMessageUnknownField kind = {.tag = KIND,
                                         .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                         .len = 1,
                                         .data = (uint8_t *)""};
    event.base.n_unknown_fields = 1;
    event.base.unknown_fields = &kind;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

void __wrap_daemon_lead(struct daemon *daemon)
{
    static uint64_t said_ms;
    const uint64_t now_ms = daemon_now_ms(daemon);
    __real_daemon_lead(daemon);
    if (!daemon->agreement || now_ms - said_ms < 500)
        return;
    said_ms = now_ms;
    for (const struct peer *peer = daemon->peers; peer; peer = peer->next) {
        if (peer->link) {
            post(peer->link, LINK_CONTROL, FRAME_UNKNOWN_CONTROL);
            post(peer->link, NODE_CHANNEL_PIPELINE, FRAME_UNKNOWN_DATA);
        }
    }
    if (!state_setting(daemon_state(daemon), "next"))
        propose(daemon);
}
