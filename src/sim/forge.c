/* What a hostile member makes up: messages of the log, mostly from the receiver's own numbers, a
 * little off, so that they reach where random ones do not; and events, in its own name and in
 * others', unsigned or signed with its own key. */
#include "sim/world.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "cluster/proof.h"
#include "cluster/wire.h"

#include <assert.h>
#include <string.h>

struct node *forge_honest(struct world *w)
{
    struct node *node = &w->nodes[world_draw(w, w->n)];
    return node->hostile ? &w->nodes[0] : node;
}

/* Near a number, or far from all. */
static uint64_t forge_near(struct world *w, uint64_t number)
{
    static const uint64_t far[] = {0, 1, 1 << 20, UINT64_C(1) << 32, UINT64_C(1) << 36, UINT64_MAX};
    if (world_draw(w, 8) == 0)
        return far[world_draw(w, sizeof far / sizeof *far)];
    const uint64_t off = world_draw(w, 7);
    return off < 3 ? number : number + off - 3;
}

static struct lineage forge_lineage(struct world *w, struct node *from, struct lineage own)
{
    if (world_draw(w, 3))
        return own;
    const uint64_t founder = world_draw(w, 2) ? from->member : forge_honest(w)->member;
    return (struct lineage){forge_near(w, own.generation + 1), founder};
}

/* ---- messages of the log ---- */

/* libraft's form (cluster/members.c): all nodes, and who votes drawn. */
static void forge_members(struct world *w, struct buffer *out)
{
    bytes_put(out, 1, 1);
    bytes_put(out, w->n, 8);
    for (uint32_t i = 0; i < w->n; i++) {
        bytes_put(out, w->nodes[i].member, 8);
        buffer_printf(out, "%llu", (unsigned long long)w->nodes[i].member);
        bytes_put(out, 0, 1);
        bytes_put(out, world_draw(w, 2), 1);
    }
    while (out->size % 8)
        bytes_put(out, 0, 1);
}

static void forge_entry(struct world *w, struct node *from, struct log_entry *entry,
                        struct buffer *bytes)
{
    buffer_clear(bytes);
    entry->type = world_draw(w, 4) ? LOG_EVENT : LOG_MEMBERS;
    if (entry->type == LOG_MEMBERS)
        forge_members(w, bytes);
    else
        forge_event(w, from, bytes);
    entry->bytes = (uint8_t *)bytes->data;
    entry->size = bytes->size;
}

static void forge_append(struct world *w, struct node *from, const struct replica_status *of,
                         struct wire_append *append)
{
    struct buffer bytes = {0};
    append->term = forge_near(w, of->term);
    append->prev_index = forge_near(w, world_draw(w, 2) ? of->last : of->commit);
    append->prev_term = forge_near(w, of->term);
    append->commit = forge_near(w, of->last);
    append->entries.first = append->prev_index + 1;
    for (uint64_t n = world_draw(w, 4); n > 0; n--) {
        struct log_entry entry = {.term = append->term};
        forge_entry(w, from, &entry, &bytes);
        w->out_of_memory |= bytes.failed || log_append(&append->entries, &entry, NULL);
    }
    buffer_deinit(&bytes);
}

static void forge_install(struct world *w, const struct node *to, const struct replica_status *of,
                          struct wire_install *install)
{
    struct buffer members = {0}, state = {0};
    const uint64_t index = forge_near(w, world_draw(w, 2) ? of->last : of->commit);
    forge_members(w, &members);
    if (world_draw(w, 2))
        state_encode(party_applied(to->party), &state);
    else
        buffer_printf(&state, "no state");
    install->term = forge_near(w, of->term);
    const struct log_snapshot made_up = {.index = index ? index : 1,
                                         .term = forge_near(w, of->term),
                                         .members_index = 1,
                                         .members = (uint8_t *)members.data,
                                         .members_size = members.size,
                                         .state = (uint8_t *)state.data,
                                         .state_size = state.size};
    w->out_of_memory |=
        members.failed || state.failed || log_snapshot_copy(&install->snapshot, &made_up, NULL);
    buffer_deinit(&members);
    buffer_deinit(&state);
}

static void forge_fill(struct world *w, struct node *from, const struct node *to,
                       struct wire_message *m)
{
    const struct replica_status of = party_status(to->party);
    const uint64_t term = forge_near(w, of.term);
    m->lineage = forge_lineage(w, from, of.lineage);
    switch (m->type) {
    case WIRE_VOTE:
        m->vote = (struct wire_vote){term, forge_near(w, of.last), forge_near(w, of.term),
                                     world_draw(w, 2), world_draw(w, 2)};
        break;
    case WIRE_VOTE_RESULT:
        m->vote_result = (struct wire_vote_result){term, world_draw(w, 2), world_draw(w, 2)};
        break;
    case WIRE_APPEND:
        forge_append(w, from, &of, &m->append);
        break;
    case WIRE_APPEND_RESULT:
        m->append_result = (struct wire_append_result){
            term, world_draw(w, 2) ? forge_near(w, of.last) : 0, forge_near(w, of.last)};
        break;
    case WIRE_INSTALL:
        forge_install(w, to, &of, &m->install);
        break;
    case WIRE_TIMEOUT_NOW:
        m->timeout_now =
            (struct wire_timeout_now){term, forge_near(w, of.last), forge_near(w, of.term)};
        break;
    case WIRE_STATUS:
        m->status = (struct wire_status){forge_near(w, of.term), forge_near(w, of.last),
                                         world_draw(w, 2), world_draw(w, 2)};
        break;
    case WIRE_UNKNOWN:
        break;
    }
}

void forge_log_message(struct world *w, struct node *from, const struct node *to,
                       struct buffer *out)
{
    struct wire_message message = {.type = (enum wire_type)(WIRE_VOTE + world_draw(w, 7))};
    assert(to->party && from->hostile);
    forge_fill(w, from, to, &message);
    bytes_put(out, 0, 1); /* a frame with the whole message (agreement/pieces.h) */
    if (!w->out_of_memory)
        wire_encode(out, &message);
    wire_clear(&message);
}

/* ---- events ---- */

enum forged {
    FORGED_JOIN,
    FORGED_ADMISSION,
    FORGED_REMOVAL,
    FORGED_ROLE,
    FORGED_RECORD,
    FORGED_REPORT,
    FORGED_PLACEMENT,
    FORGED_FOUNDING,
    FORGED_ROTATION,
    FORGED_TOKEN,
    FORGED_SETTING,
    FORGED_KINDS
};

/* Everything that a made-up event may point to. */
struct forged_event {
    Cluster__Event event;
    Cluster__Node node;
    Cluster__NodeName name;
    Cluster__NodeRole role;
    Cluster__StageReport report;
    Cluster__Placement placement;
    Cluster__InstancePlaced placed;
    Cluster__Refounded refounded;
    Cluster__AuthorityRotated rotated;
    Cluster__TokenHash token;
    Cluster__Setting setting;
    uint8_t bytes[64];
};

static const char nobody[] = "ff00000000000000000000000000000000000000000000000000000000000000";

static void forge_of_nodes(struct world *w, struct node *from, enum forged what,
                           struct forged_event *f)
{
    /* It may take itself out, and would be harmless then. */
    const bool of_others = what == FORGED_REMOVAL || world_draw(w, 2);
    const struct node *about = of_others ? forge_honest(w) : from;
    char *id = world_draw(w, 3) ? (char *)(uintptr_t)about->id : (char *)(uintptr_t)nobody;
    f->node.id = f->node.name = f->name.id = f->role.id = id;
    f->node.has_member = f->node.has_level = f->role.has_role = true;
    f->node.level = event_level_known();
    f->node.member = world_draw(w, 2) ? forge_honest(w)->former_member : forge_honest(w)->member;
    f->role.role = world_draw(w, 2) ? CLUSTER__ROLE__ADMIN : CLUSTER__ROLE__MEMBER;
    f->role.has_cluster = f->role.has_authority = true;
    f->role.cluster = (ProtobufCBinaryData){CLUSTER_ID_BYTES, f->bytes};
    f->role.authority = (ProtobufCBinaryData){PUBLIC_KEY_BYTES, f->bytes};
    f->event.node_joined = &f->node; /* of a union */
    f->event.kind_case =
        what == FORGED_JOIN ? CLUSTER__EVENT__KIND_NODE_JOINED : CLUSTER__EVENT__KIND_NODE_UPDATED;
    if (what == FORGED_ROLE) {
        f->event.kind_case = CLUSTER__EVENT__KIND_NODE_ROLE;
        f->event.node_role = &f->role;
    } else if (what == FORGED_ADMISSION || what == FORGED_REMOVAL) {
        f->event.kind_case = what == FORGED_REMOVAL ? CLUSTER__EVENT__KIND_NODE_REMOVED
                                                    : CLUSTER__EVENT__KIND_NODE_ADMITTED;
        f->event.node_admitted = &f->name;
    }
}

static void forge_of_instances(struct world *w, const struct node *from, enum forged what,
                               struct forged_event *f)
{
    static char instance[] = "i0", why[] = "made up";
    f->report.instance = f->placed.id = instance;
    f->report.node = (char *)(uintptr_t)forge_honest(w)->id;
    f->report.has_epoch = f->report.has_stage = f->report.has_state = true;
    const struct state *state = node_state(from);
    f->report.epoch = state->root ? state->root->last_epoch : 0;
    f->report.state = CLUSTER__STAGE_STATE__FAILED;
    f->placement.has_epoch = true;
    f->placement.epoch = f->report.epoch + 1;
    f->placement.why = why;
    f->placed.placement = &f->placement;
    if (what == FORGED_REPORT) {
        f->event.kind_case = CLUSTER__EVENT__KIND_STAGE_REPORTED;
        f->event.stage_reported = &f->report;
    } else {
        f->event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_PLACED;
        f->event.instance_placed = &f->placed;
    }
}

static void forge_of_all(enum forged what, struct forged_event *f)
{
    static char key[] = "key1", value[] = "made up";
    const ProtobufCBinaryData bytes = {sizeof f->bytes / 2, f->bytes};
    f->rotated.has_public_key = f->rotated.has_certificate = true;
    f->rotated.public_key = f->rotated.certificate = bytes;
    f->token.has_hash = true;
    f->token.hash = bytes;
    f->setting.key = key;
    f->setting.value = value;
    f->event.setting_changed = &f->setting;
    f->event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    if (what == FORGED_FOUNDING) {
        f->event.kind_case = CLUSTER__EVENT__KIND_REFOUNDED;
        f->event.refounded = &f->refounded;
    } else if (what == FORGED_ROTATION) {
        f->event.kind_case = CLUSTER__EVENT__KIND_AUTHORITY_ROTATED;
        f->event.authority_rotated = &f->rotated;
    } else if (what == FORGED_TOKEN) {
        f->event.kind_case = CLUSTER__EVENT__KIND_TOKEN_REVOKED;
        f->event.token_revoked = &f->token;
    }
}

void forge_event(struct world *w, struct node *from, struct buffer *out)
{
    struct forged_event f = {.bytes = {1}};
    const enum forged what = (enum forged)world_draw(w, FORGED_KINDS);
    cluster__event__init(&f.event);
    cluster__node__init(&f.node);
    cluster__node_name__init(&f.name);
    cluster__node_role__init(&f.role);
    cluster__stage_report__init(&f.report);
    cluster__placement__init(&f.placement);
    cluster__instance_placed__init(&f.placed);
    cluster__refounded__init(&f.refounded);
    cluster__authority_rotated__init(&f.rotated);
    cluster__token_hash__init(&f.token);
    cluster__setting__init(&f.setting);
    if (what <= FORGED_RECORD)
        forge_of_nodes(w, from, what, &f);
    else if (what <= FORGED_PLACEMENT)
        forge_of_instances(w, from, what, &f);
    else
        forge_of_all(what, &f);
    f.event.by = world_draw(w, 3) ? from->id : forge_honest(w)->id;
    f.event.has_nonce = true;
    f.event.nonce = world_draw(w, UINT64_MAX);
    event_encode(&f.event, out);
    if (!out->failed && world_draw(w, 2))
        proof_add(node_state(from), &from->identity, out, NULL); /* before roles there are none */
}
