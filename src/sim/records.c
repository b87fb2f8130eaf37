/* What a leader keeps true in the state: the nodes' records, and the models and instances that are
 * wanted. */
#include "sim/world.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { REPROPOSE_MS = 2000, JOINS_AT_ONCE = 64 };

static void fill_node(const struct world *w, const struct node *about, Cluster__Node *out,
                      Cluster__Device *devices, Cluster__Device **list)
{
    assert(about->member);
    static const char *const names[SCENARIO_DEVICES] = {"d0", "d1", "d2", "d3"};
    const struct scenario_node *is = &w->scenario->nodes[about->index];
    cluster__node__init(out);
    out->id = (char *)(uintptr_t)about->id;
    out->name = (char *)(uintptr_t)about->name;
    out->has_member = true;
    out->member = about->member;
    out->has_level = true;
    out->level = event_level_known();
    out->devices = list;
    for (uint32_t i = 0; i < is->devices; i++) {
        if (about->devices_gone[i])
            continue;
        Cluster__Device *device = &devices[out->n_devices];
        cluster__device__init(device);
        device->id = (char *)(uintptr_t)names[i];
        device->has_memory_bytes = true;
        device->memory_bytes = is->memory_mib << 20;
        list[out->n_devices++] = device;
    }
}

static bool is_recorded(const Cluster__Node *about, const Cluster__Node *record)
{
    bool same = about->member == record->member && about->n_devices == record->n_devices;
    for (size_t i = 0; same && i < about->n_devices; i++)
        same = strcmp(about->devices[i]->id, record->devices[i]->id) == 0;
    return same;
}

static bool record_node(struct world *w, struct node *node, const struct node *about,
                        const Cluster__NodeRecord *is)
{
    Cluster__Device devices[SCENARIO_DEVICES], *list[SCENARIO_DEVICES];
    Cluster__Node message;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    fill_node(w, about, &message, devices, list);
    name.id = (char *)(uintptr_t)about->id;
    if (!is) {
        event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
        event.node_joined = &message;
    } else if (!is->admitted) {
        event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED;
        event.node_admitted = &name;
    } else if (!is_recorded(&message, is->node)) {
        event.kind_case = CLUSTER__EVENT__KIND_NODE_UPDATED;
        event.node_updated = &message;
    } else {
        return false;
    }
    if (node->leads)
        node->recorded_ms[about->index] = w->now_ms;
    log_propose(w, node, &event, UINT64_C(1) << 60 | (uint64_t)event.kind_case << 32 | about->index,
                false);
    return true;
}

void record_all(struct world *w, struct node *node)
{
    assert(node->leads);
    const Cluster__State *root = node_state(node)->root;
    const Cluster__NodeRecord *records[SCENARIO_NODES] = {NULL};
    uint32_t n = 0;
    for (size_t i = 0; root && i < root->n_nodes; i++)
        records[world_node(w, root->nodes[i]->node->id)->index] = root->nodes[i];
    for (uint32_t i = 0; i < w->n && n < JOINS_AT_ONCE; i++) {
        const struct node *about = &w->nodes[i];
        const Cluster__NodeRecord *is = records[i];
        const uint64_t wait = is && is->admitted ? REPROPOSE_MS : LEAD_MS;
        if (i && w->has_roles && !(is && is->admitted))
            continue; /* record_members() */
        if (about->joined && net_link(w, node->index, i) &&
            (!node->recorded_ms[i] || w->now_ms - node->recorded_ms[i] >= wait))
            n += record_node(w, node, about, is);
    }
}

/* ---- with roles ---- */

static void record_role(struct world *w, struct node *node, const struct node *about)
{
    static uint8_t cluster[CLUSTER_ID_BYTES] = {1}, authority[PUBLIC_KEY_BYTES] = {1};
    Cluster__NodeRole to = CLUSTER__NODE_ROLE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    to.id = (char *)(uintptr_t)about->id;
    to.has_role = to.has_cluster = to.has_authority = true;
    to.role = CLUSTER__ROLE__ADMIN;
    to.cluster = (ProtobufCBinaryData){sizeof cluster, cluster};
    to.authority = (ProtobufCBinaryData){sizeof authority, authority};
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ROLE;
    event.node_role = &to;
    log_propose(w, node, &event, UINT64_C(4) << 60 | about->index, false);
}

static void record_removal(struct world *w, struct node *node, const struct node *about)
{
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    name.id = (char *)(uintptr_t)about->id;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED;
    event.node_removed = &name;
    log_propose(w, node, &event, UINT64_C(5) << 60 | about->index, false);
}

/* The founder begins them. Every honest node becomes an admin, and any admin lets others in; so
 * several try at once. In the end the hostile ones are removed. */
void record_members(struct world *w, struct node *node)
{
    enum { TRIES_PPM = 250000 };
    const struct state *state = node_state(node);
    const Cluster__NodeRecord *self = state_node(state, node->id);
    if (node->index == 0 && self && self->admitted && !state_has_roles(state))
        record_role(w, node, node);
    if (!state_has_roles(state) || !state_is_admin(state, node->id) ||
        !world_chance_ppm(w, TRIES_PPM))
        return;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct node *about = &w->nodes[i];
        const Cluster__NodeRecord *is = state_node(state, about->id);
        if (about->hostile && w->healed) {
            if (is)
                record_removal(w, node, about);
        } else if (!is || !is->admitted) {
            if (about->joined && net_link(w, node->index, i))
                record_node(w, node, about, is);
        } else if (!about->hostile && !state_is_admin(state, about->id)) {
            record_role(w, node, about);
        }
    }
}

/* ---- models ---- */

void record_model(struct world *w, struct node *node, uint32_t i)
{
    assert(node->leads && i < w->scenario->n_instances);
    const struct scenario_instance *is = &w->scenario->instances[i];
    char model_name[8], id[8];
    uint8_t manifest[32] = {(uint8_t)(i + 1)};
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    snprintf(model_name, sizeof model_name, "m%u", i);
    snprintf(id, sizeof id, "i%u", i);
    if (state_instance(node_state(node), id))
        return;
    if (!state_model(node_state(node), model_name)) {
        model.name = model_name;
        model.has_manifest = model.has_n_layers = true;
        model.manifest.len = sizeof manifest;
        model.manifest.data = manifest;
        model.n_layers = (uint32_t)is->layers;
        event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED;
        event.model_registered = &model;
    } else {
        demand.has_context_tokens = demand.has_streams = true;
        demand.context_tokens = 4096;
        demand.streams = 4;
        instance.id = id;
        instance.model = model_name;
        instance.demand = &demand;
        instance.has_idle_ms = true;
        instance.idle_ms = is->idle_ms;
        event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED;
        event.instance_desired = &instance;
    }
    log_propose(w, node, &event, UINT64_C(2) << 60 | (uint64_t)event.kind_case << 32 | i, false);
}
