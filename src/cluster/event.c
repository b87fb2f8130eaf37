#include "cluster/event.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* ---- memory: ours, and not without end ---- */

struct budget {
    size_t left;
    bool starved; /* there was no memory; else too much was asked for */
};

static void *decoder_allocate(void *data, size_t size)
{
    struct budget *budget = data;
    if (size > budget->left)
        return NULL;
    void *memory = mem_new(size);
    budget->left -= size;
    budget->starved |= !memory;
    return memory;
}

static void decoder_free(void *data, void *memory)
{
    assert(data);
    mem_free(memory);
}

enum error_code message_decode(const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                               size_t size, ProtobufCMessage **out, struct error *err)
{
    struct budget budget = {.left = 16 * size + 64 * 1024};
    ProtobufCAllocator allocator = {
        .alloc = decoder_allocate, .free = decoder_free, .allocator_data = &budget};
    *out = protobuf_c_message_unpack(type, &allocator, size, bytes);
    if (*out)
        return ERROR_NONE;
    if (budget.starved)
        return error_set(err, ERROR_NO_MEMORY, "cluster: not enough memory for a %s of %zu bytes",
                         type->short_name, size);
    return error_set(err, ERROR_INVALID, "cluster: malformed %s (%zu bytes)", type->short_name,
                     size);
}

void message_encode(const ProtobufCMessage *message, struct buffer *out)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *bytes = mem_new(size + 1);
    if (!bytes) {
        out->failed = true;
        return;
    }
    protobuf_c_message_pack(message, bytes);
    buffer_append(out, bytes, size);
    mem_free(bytes);
}

void message_free(ProtobufCMessage *message)
{
    struct budget budget = {0};
    ProtobufCAllocator allocator = {
        .alloc = decoder_allocate, .free = decoder_free, .allocator_data = &budget};
    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
}

void event_encode(const Cluster__Event *event, struct buffer *out)
{
    message_encode(&event->base, out);
}

enum error_code event_decode(const uint8_t *bytes, size_t size, Cluster__Event **out,
                             struct error *err)
{
    ProtobufCMessage *message = NULL;
    *out = NULL;
    if (size > LIMIT_CLUSTER_ENTRY_BYTES)
        return error_set(err, ERROR_INVALID,
                         "cluster: an event of %zu bytes; at most %d are possible", size,
                         LIMIT_CLUSTER_ENTRY_BYTES);
    const enum error_code code =
        message_decode(&cluster__event__descriptor, bytes, size, &message, err);
    *out = (Cluster__Event *)message;
    return code;
}

uint32_t event_level(const Cluster__Event *event)
{
    uint32_t level = event->kind_case;
    for (unsigned i = 0; i < event->base.n_unknown_fields; i++) {
        const uint32_t tag = event->base.unknown_fields[i].tag;
        if (tag >= EVENT_KIND_MIN && tag > level)
            level = tag;
    }
    return level;
}

/* A kind of the protocol that has no row in EVENT_KINDS is one that this switch lacks,
 * which the compiler refuses (-Wswitch-enum). Without that, a kind could be applied here and yet be
 * above the level that this node tells of itself. */
static inline bool event_kind_has_row(Cluster__Event__KindCase kind)
{
#define EVENT_CASE(KIND, since, signed) case CLUSTER__EVENT__KIND_##KIND:
    switch (kind) {
        EVENT_KINDS(EVENT_CASE)
        return true;
    case CLUSTER__EVENT__KIND__NOT_SET:
    case _CLUSTER__EVENT__KIND__CASE_IS_INT_SIZE:
        break;
    }
#undef EVENT_CASE
    return false;
}

uint32_t event_level_known(void)
{
    const uint32_t level = EVENT_ROW_END - 1;
    assert(event_kind_has_row((Cluster__Event__KindCase)level) && level >= EVENT_LEVEL_FIRST);
    return level;
}

bool event_needs_admin(const Cluster__Event *event)
{
#define EVENT_SIGNED_ROW(KIND, since, signed) EVENT_SIGNED_##signed,
    static const uint8_t table[] = {EVENT_KINDS(EVENT_SIGNED_ROW)};
#undef EVENT_SIGNED_ROW
    const uint32_t kind = event->kind_case;
    return kind >= EVENT_KIND_MIN && kind < EVENT_ROW_END &&
           table[kind - EVENT_KIND_MIN] == EVENT_SIGNED_ADMIN;
}

void event_free(Cluster__Event *event)
{
    message_free(event ? &event->base : NULL);
}

/* ---- for people ---- */

/* A foreign name: printable ASCII as it is, all else as "?". */
static void put_name(struct buffer *out, const char *name)
{
    char safe[65];
    size_t n = 0;
    for (; name && name[n] && n + 1 < sizeof safe; n++)
        safe[n] = name[n] >= ' ' && name[n] <= '~' ? name[n] : '?';
    safe[n] = 0;
    buffer_text(out, n ? safe : "?");
}

static const char *state_name(Cluster__StageState state)
{
    return state == CLUSTER__STAGE_STATE__READY    ? "ready"
           : state == CLUSTER__STAGE_STATE__FAILED ? "failed"
                                                   : "loading";
}

static void description_put(struct buffer *out, const char *before, const char *name,
                            const char *after)
{
    buffer_text(out, before);
    put_name(out, name);
    buffer_text(out, after);
}

static void describe_links(const Cluster__Links *links, struct buffer *out)
{
    buffer_text(out, links->n_links == 1 ? "link " : "links ");
    for (size_t i = 0; i < links->n_links; i++) {
        const Cluster__Link *link = links->links[i];
        description_put(out, i ? ", " : "", link->from, " to ");
        description_put(out, "", link->to, ":");
        if (link->has_latency_ns)
            buffer_printf(out, " %.2f ms", (double)link->latency_ns * 1e-6);
        if (link->has_bytes_per_s)
            buffer_printf(out, " %.0f Mb/s", (double)link->bytes_per_s * 8e-6);
    }
}

static void describe_placement(const Cluster__Placement *placement, struct buffer *out)
{
    description_put(out, ": placed (", placement->why, ")");
    for (size_t i = 0; i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        description_put(out, i ? ", " : " on ", stage->node, "");
        description_put(out, "/", stage->device, "");
        buffer_printf(out, " layers %u-%u", stage->first_layer,
                      stage->first_layer + stage->n_layers - 1);
        if (stage->weights_max)
            buffer_printf(out, " (%u from its disk)", stage->n_streamed);
    }
    if (placement->shares_cells)
        buffer_text(out, ", its streams share memory");
    buffer_printf(out, ", epoch %llu", (unsigned long long)placement->epoch);
}

static void describe_instance(const Cluster__Event *e, struct buffer *out)
{
    if (e->kind_case == CLUSTER__EVENT__KIND_INSTANCE_PLACED) {
        const Cluster__Placement *placement = e->instance_placed->placement;
        description_put(out, "instance ", e->instance_placed->id, "");
        if (placement) {
            describe_placement(placement, out);
        }
    } else if (e->kind_case == CLUSTER__EVENT__KIND_STAGE_REPORTED) {
        const Cluster__StageReport *report = e->stage_reported;
        description_put(out, "instance ", report->instance, "");
        buffer_printf(out, ": stage %u of epoch %llu is %s", report->stage,
                      (unsigned long long)report->epoch, state_name(report->state));
        if (report->problem)
            description_put(out, ": ", report->problem, "");
    }
}

/* A sentence is longer than a name may be. */
static void put_sentence(struct buffer *out, const char *text)
{
    for (size_t n = 0; text && text[n] && n < 256; n++) {
        const char safe = text[n] >= ' ' && text[n] <= '~' ? text[n] : '?';
        buffer_append(out, &safe, 1);
    }
}

static void describe_memory(const Cluster__MemoryStep *step, struct buffer *out)
{
    description_put(out, "memory of ", step->node, "");
    description_put(out, " ", step->device, "");
    description_put(out,
                    !step->step                 ? " is free again, instance "
                    : step->step < step->before ? " is less short, instance "
                                                : " is short, instance ",
                    step->instance, "");
    buffer_printf(out, ", stage %u: step %u, ", step->stage, step->step);
    put_sentence(out, step->given);
}

static void describe_setting(const Cluster__Setting *setting, struct buffer *out)
{
    static const char drain[] = "drain/";
    const bool set = setting->value && setting->value[0];
    if (setting->key && strncmp(setting->key, drain, sizeof drain - 1) == 0) {
        description_put(out, "node ", setting->key + sizeof drain - 1,
                        set ? " is drained" : " may be used again");
        return;
    }
    description_put(out, "setting ", setting->key, set ? ": " : " is as usual again");
    if (set)
        put_name(out, setting->value);
}

/* By the id that `medley token list` shows: the name is gone by now. */
static void describe_revoked(const Cluster__TokenHash *token, struct buffer *out)
{
    buffer_text(out, "token ");
    for (size_t i = 0; i < token->hash.len && i < 8; i++)
        buffer_printf(out, "%02x", token->hash.data[i]);
    buffer_text(out, " was revoked");
}

static void describe_audited(const Cluster__Audited *audited, struct buffer *out)
{
    buffer_printf(out, "record: %zu entr%s", audited->n_notes, audited->n_notes == 1 ? "y" : "ies");
    if (audited->n_notes)
        description_put(out, " (", audited->notes[0]->what, ")");
}

static void describe_raised(const Cluster__Alert *alert, struct buffer *out)
{
    buffer_text(out, alert->critical ? "critical alert " : "alert ");
    description_put(out, "", alert->kind, ": ");
    put_sentence(out, alert->text);
}

static void describe_cleared(const Cluster__AlertCleared *cleared, struct buffer *out)
{
    description_put(out, "alert ", cleared->kind, " of ");
    put_sentence(out, cleared->subject);
    buffer_text(out, " is over");
    if (cleared->why)
        description_put(out, ": ", cleared->why, "");
}

/* Most often it is a device that was measured. */
static void describe_updated(const Cluster__Node *node, struct buffer *out)
{
    const char *before = "; measured: ";
    description_put(out, "", node->name, " has changed");
    for (size_t i = 0; i < node->n_devices; i++) {
        if (!node->devices[i]->n_rates)
            continue;
        description_put(out, before, node->devices[i]->id, "");
        before = ", ";
    }
}

void event_describe(const Cluster__Event *e, struct buffer *out)
{
    switch (e->kind_case) {
    case CLUSTER__EVENT__KIND_NODE_JOINED:
        description_put(out, "", e->node_joined->name, " joined, and waits to be let in");
        return;
    case CLUSTER__EVENT__KIND_NODE_ADMITTED:
        description_put(out, "node ", e->node_admitted->id, " was let in");
        return;
    case CLUSTER__EVENT__KIND_NODE_REMOVED:
        description_put(out, "node ", e->node_removed->id, " was removed");
        return;
    case CLUSTER__EVENT__KIND_NODE_UPDATED:
        describe_updated(e->node_updated, out);
        return;
    case CLUSTER__EVENT__KIND_LINKS_MEASURED:
        describe_links(e->links_measured, out);
        return;
    case CLUSTER__EVENT__KIND_MODEL_REGISTERED:
        description_put(out, "model ", e->model_registered->name, " is there");
        return;
    case CLUSTER__EVENT__KIND_MODEL_FORGOTTEN:
        description_put(out, "model ", e->model_forgotten->name, " was forgotten");
        return;
    case CLUSTER__EVENT__KIND_INSTANCE_DESIRED:
        description_put(out, "instance ", e->instance_desired->id, " is wanted");
        return;
    case CLUSTER__EVENT__KIND_INSTANCE_TARGET:
        description_put(out, "instance ", e->instance_target->id,
                        e->instance_target->active ? ": to be loaded" : ": to be unloaded");
        return;
    case CLUSTER__EVENT__KIND_INSTANCE_PLACED:
    case CLUSTER__EVENT__KIND_STAGE_REPORTED:
        describe_instance(e, out);
        return;
    case CLUSTER__EVENT__KIND_INSTANCE_ABANDONED:
        description_put(out, "instance ", e->instance_abandoned->id, ": the move was given up");
        return;
    case CLUSTER__EVENT__KIND_INSTANCE_STOPPED:
        description_put(out, "instance ", e->instance_stopped->id, " was removed");
        return;
    case CLUSTER__EVENT__KIND_SETTING_CHANGED:
        describe_setting(e->setting_changed, out);
        return;
    case CLUSTER__EVENT__KIND_NODE_ROLE:
        description_put(out, "node ", e->node_role->id,
                        e->node_role->role == CLUSTER__ROLE__ADMIN ? " is an admin now"
                                                                   : " is a plain member now");
        return;
    case CLUSTER__EVENT__KIND_AUTHORITY_ROTATED:
        buffer_text(out, "the cluster's authority has a new key; the old one is good for now");
        return;
    case CLUSTER__EVENT__KIND_AUTHORITY_RETIRED:
        buffer_text(out, "the cluster's old authority is retired");
        return;
    case CLUSTER__EVENT__KIND_REFOUNDED:
        if (e->refounded->generation == 1)
            buffer_text(out, "the cluster was founded");
        else
            buffer_printf(out, "the cluster was founded anew, generation %llu",
                          (unsigned long long)e->refounded->generation);
        return;
    case CLUSTER__EVENT__KIND_TOKEN_CREATED:
        description_put(out, "token ", e->token_created->name, " was made");
        return;
    case CLUSTER__EVENT__KIND_TOKEN_REVOKED:
        describe_revoked(e->token_revoked, out);
        return;
    case CLUSTER__EVENT__KIND_AUDITED:
        describe_audited(e->audited, out);
        return;
    case CLUSTER__EVENT__KIND_ALERT_RAISED:
        describe_raised(e->alert_raised, out);
        return;
    case CLUSTER__EVENT__KIND_ALERT_CLEARED:
        describe_cleared(e->alert_cleared, out);
        return;
    case CLUSTER__EVENT__KIND_MEMORY_STEPPED:
        describe_memory(e->memory_stepped, out);
        return;
    case CLUSTER__EVENT__KIND__NOT_SET:
    case _CLUSTER__EVENT__KIND__CASE_IS_INT_SIZE:
        break;
    }
    buffer_text(out, "an event that this version does not know");
}
