/* The events of the log, as bytes and as protobuf-c's structs (proto/cluster.proto, the manual of
 * every field).
 *
 *     Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
 *     Cluster__Event event = CLUSTER__EVENT__INIT;
 *     name.id = node;
 *     event.kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED, event.node_removed = &name;
 *     event_encode(&event, &bytes);            // then replica_submit()
 *
 * Decoding is for foreign bytes: sizes are bounded, and so is the memory they may ask for. Fields
 * that this version does not know are kept and written again. Pure; any thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "cluster/event_kinds.h"

#include <stdbool.h>

/* Appends; on lack of memory out->failed. */
void event_encode(const Cluster__Event *event, struct buffer *out);
/* ERROR_INVALID, ERROR_NO_MEMORY. The event is freed with event_free(). */
enum error_code event_decode(const uint8_t *bytes, size_t size, Cluster__Event **out,
                             struct error *err);
void event_free(Cluster__Event *event); /* NULL is fine */

/* The number of its kind, which is its field's number in proto/cluster.proto, also where this
 * version does not know it; 0: none. Versions know kinds up to a number each, so who knows a kind
 * knows all with lower ones. event_kinds.h says which kinds every version knows, up to
 * EVENT_LEVEL_FIRST. */
uint32_t event_level(const Cluster__Event *event);
uint32_t event_level_known(void); /* the highest kind that this version knows */

/* Whether it counts with an admin's signature alone, once there are roles (proof.h). */
bool event_needs_admin(const Cluster__Event *event);

/* A line for people, without a line feed: "tower joined", "instance demo: placed on 2 stages, epoch
 * 5". Foreign names are made safe. */
void event_describe(const Cluster__Event *event, struct buffer *out);

/* ---- for messages of this room ---- */

/* As event_decode(), of any message. What it may ask for is at most `16 * size + 64 KiB`. */
enum error_code message_decode(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                               size_t size, ProtobufCMessage **out, struct error *err);
void message_encode(const ProtobufCMessage *message, struct buffer *out);
void message_free(ProtobufCMessage *message);
