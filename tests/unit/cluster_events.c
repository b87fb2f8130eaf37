#include "cluster_events.h"

#include "base/random.h"

#include <stdio.h>
#include <string.h>

static struct event_draws *source;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(random_at(source->seed, source->draws++) % below);
}

static char names[64][16];
static uint32_t n_names;

static char *name(const char *kind, uint32_t of)
{
    char *text = names[n_names++ % 64];
    snprintf(text, sizeof names[0], "%s%u", kind, draw(of));
    return draw(50) == 0 ? NULL : text;
}

static void make_node(Cluster__Node *node, Cluster__Device *devices, Cluster__Device **list)
{
    const uint32_t number = draw(6);
    node->id = names[n_names++ % 64];
    snprintf(node->id, sizeof names[0], "node%u", number);
    node->name = name("name", 9);
    node->has_member = true;
    node->member = draw(20) ? 100 + number : draw(120);
    node->has_level = true;
    node->level = EVENT_ROW_AUDITED - (draw(8) == 0); /* so that there is a record */
    node->n_devices = 1 + draw(3);
    for (uint32_t i = 0; i < node->n_devices; i++) {
        cluster__device__init(&devices[i]);
        devices[i].id = names[n_names++ % 64];
        snprintf(devices[i].id, sizeof names[0], "gpu%u", draw(20) ? i : 0);
        devices[i].has_memory_bytes = true;
        devices[i].memory_bytes = draw(1000000);
        list[i] = &devices[i];
    }
    node->devices = list;
}

static const Cluster__Instance *some_instance(const struct state *state)
{
    return state->root && state->root->n_instances
               ? state->root->instances[draw((uint32_t)state->root->n_instances)]
               : NULL;
}

/* Every layer once, on devices that are there; now and then not. */
static void make_placement(const struct state *state, Cluster__InstancePlaced *placed,
                           Cluster__Placement *placement, Cluster__Stage *stages,
                           Cluster__Stage **list)
{
    const Cluster__Instance *instance = some_instance(state);
    const Cluster__Model *model = instance ? state_model(state, instance->model) : NULL;
    uint32_t layer = 0, n_layers = model ? model->n_layers : 4;
    placed->id = instance ? instance->id : name("instance", 4);
    placed->has_after_epoch = true;
    placed->after_epoch = instance ? state_epoch(instance) + (draw(12) == 0) : 0;
    placed->placement = placement;
    placement->has_epoch = true;
    placement->epoch = (state->root ? state->root->last_epoch : 0) + 1 - (draw(12) == 0);
    placement->stages = list;
    for (uint32_t i = 0; i < 4 && layer < n_layers; i++) {
        Cluster__Stage *stage = list[placement->n_stages++] = &stages[i];
        cluster__stage__init(stage);
        stage->node = name("node", 6);
        stage->device = name("gpu", 2);
        stage->has_first_layer = stage->has_n_layers = true;
        stage->first_layer = layer + (draw(40) == 0);
        stage->n_layers = i == 3 || draw(2) ? n_layers - layer : 1;
        layer += stage->n_layers;
    }
}

static void make_report(const struct state *state, Cluster__StageReport *report)
{
    const Cluster__Instance *instance = some_instance(state);
    const Cluster__Placement *placement =
        instance ? (instance->next && draw(2) ? instance->next : instance->current) : NULL;
    report->has_epoch = report->has_stage = report->has_state = true;
    report->instance = instance ? instance->id : name("instance", 4);
    report->epoch = placement && draw(10) ? placement->epoch : draw(100);
    report->stage = placement ? draw((uint32_t)placement->n_stages + (draw(20) == 0)) : draw(3);
    report->node = placement && report->stage < placement->n_stages && draw(20)
                       ? placement->stages[report->stage]->node
                       : name("node", 6);
    report->state = draw(8) ? CLUSTER__STAGE_STATE__READY : (Cluster__StageState)draw(4);
    report->problem = report->state == CLUSTER__STAGE_STATE__FAILED ? name("problem", 5) : NULL;
}

static void make_memory(const struct state *state, Cluster__MemoryStep *step)
{
    Cluster__StageReport report = CLUSTER__STAGE_REPORT__INIT;
    make_report(state, &report);
    step->instance = report.instance, step->node = report.node;
    step->has_epoch = step->has_stage = step->has_step = true;
    step->epoch = report.epoch, step->stage = report.stage;
    step->device = name("gpu", 2);
    step->step = draw(9) * (draw(20) ? 1 : 20);
    step->given = draw(20) ? name("given", 3) : NULL;
}

static void random_bytes(struct buffer *out)
{
    const uint32_t size = draw(40);
    for (uint32_t i = 0; i < size; i++) {
        const uint8_t byte = (uint8_t)draw(256);
        buffer_append(out, &byte, 1);
    }
}

static void make_token(Cluster__Event *e, struct buffer *out)
{
    Cluster__Token token = CLUSTER__TOKEN__INIT;
    Cluster__TokenPlace place = CLUSTER__TOKEN_PLACE__INIT, *places[] = {&place};
    char *models[] = {name("model", 3)};
    uint8_t hash[32] = {0};
    hash[31] = (uint8_t)draw(5), hash[0] = (uint8_t)(37 * hash[31]);
    token.name = name("token", 5);
    token.has_hash = true, token.hash.len = draw(20) ? 32 : 31, token.hash.data = hash;
    token.has_scopes = true, token.scopes = draw(20) ? 1 + draw(15) : draw(99);
    token.models = models, token.n_models = draw(2) && models[0];
    place.node = name("node", 6), place.device = draw(2) ? name("gpu", 2) : NULL;
    token.places = places, token.n_places = draw(2);
    e->kind_case = CLUSTER__EVENT__KIND_TOKEN_CREATED, e->token_created = &token;
    event_encode(e, out);
}

/* Few kinds and subjects, so that most are up already, or are cleared again. */
static void make_alert(Cluster__Event *e, struct buffer *out)
{
    Cluster__Alert alert = CLUSTER__ALERT__INIT;
    Cluster__AlertCleared cleared = CLUSTER__ALERT_CLEARED__INIT;
    char *kind = name("kind", 3), *subject = name("subject", 40);
    if (draw(3)) {
        alert.kind = kind, alert.subject = subject;
        alert.has_critical = true, alert.critical = draw(2) != 0;
        alert.has_raised_ms = true, alert.raised_ms = draw(1000000);
        alert.text = name("text", 99), alert.mend = draw(2) ? name("mend", 99) : NULL;
        alert.has_cleared_ms = draw(30) == 0;
        e->kind_case = CLUSTER__EVENT__KIND_ALERT_RAISED, e->alert_raised = &alert;
    } else {
        cleared.kind = kind, cleared.subject = subject;
        cleared.why = draw(3) ? NULL : name("why", 9);
        e->kind_case = CLUSTER__EVENT__KIND_ALERT_CLEARED, e->alert_cleared = &cleared;
    }
    event_encode(e, out);
}

static void small_event(Cluster__Event *e, struct buffer *out)
{
    Cluster__NodeName node = CLUSTER__NODE_NAME__INIT;
    Cluster__ModelName model = CLUSTER__MODEL_NAME__INIT;
    Cluster__InstanceName instance = CLUSTER__INSTANCE_NAME__INIT;
    Cluster__InstanceTarget target = CLUSTER__INSTANCE_TARGET__INIT;
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Refounded refounded = CLUSTER__REFOUNDED__INIT;
    Cluster__NodeRole role = CLUSTER__NODE_ROLE__INIT;
    Cluster__Proof proof = CLUSTER__PROOF__INIT;
    uint8_t bytes[64] = {(uint8_t)draw(2)};
    Cluster__AuditNote note = CLUSTER__AUDIT_NOTE__INIT, *notes[] = {&note, &note};
    Cluster__Audited audited = CLUSTER__AUDITED__INIT;
    Cluster__TokenHash revoked = CLUSTER__TOKEN_HASH__INIT;
    uint8_t hash[32] = {0};
    switch (draw(18)) {
    case 14:
    case 15:
    case 16:
    case 17:
        make_alert(e, out);
        return;
    case 11:
        hash[31] = (uint8_t)draw(5), hash[0] = (uint8_t)(37 * hash[31]);
        revoked.has_hash = true, revoked.hash.len = draw(20) ? 32 : 3, revoked.hash.data = hash;
        e->kind_case = CLUSTER__EVENT__KIND_TOKEN_REVOKED, e->token_revoked = &revoked;
        break;
    case 12:
        make_token(e, out);
        return;
    case 0:
        node.id = name("node", 6);
        e->kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED, e->node_removed = &node;
        break;
    case 1:
        model.name = name("model", 3);
        e->kind_case = CLUSTER__EVENT__KIND_MODEL_FORGOTTEN, e->model_forgotten = &model;
        break;
    case 2:
        instance.id = name("instance", 4);
        e->kind_case = CLUSTER__EVENT__KIND_INSTANCE_STOPPED, e->instance_stopped = &instance;
        break;
    case 3:
    case 4:
    case 5:
        target.id = name("instance", 4);
        target.has_active = true, target.active = draw(4) != 0;
        e->kind_case = CLUSTER__EVENT__KIND_INSTANCE_TARGET, e->instance_target = &target;
        break;
    case 6:
        refounded.has_generation = refounded.has_founder = true;
        refounded.generation = draw(6), refounded.founder = draw(9);
        e->kind_case = CLUSTER__EVENT__KIND_REFOUNDED, e->refounded = &refounded;
        break;
    case 10: /* with a proof that cannot be good: test_roles.c has those that are */
        role.id = name("node", 6);
        role.has_role = role.has_cluster = role.has_authority = true;
        role.role = (Cluster__Role)draw(3);
        role.cluster = (ProtobufCBinaryData){16, bytes};
        role.authority = (ProtobufCBinaryData){32, bytes};
        proof.has_public_key = proof.has_signature = proof.has_change = true;
        proof.public_key = (ProtobufCBinaryData){32, bytes};
        proof.signature = (ProtobufCBinaryData){64, bytes};
        proof.change = draw(3);
        e->kind_case = CLUSTER__EVENT__KIND_NODE_ROLE, e->node_role = &role;
        e->proof = draw(3) ? &proof : NULL;
        e->by = name("node", 6);
        break;
    case 7:
        setting.key = name("key", 4), setting.value = name("value", 4);
        e->kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED, e->setting_changed = &setting;
        break;
    case 8:
        note.what = name("what", 4), note.who = name("who", 4), note.subject = name("subject", 4);
        audited.notes = notes, audited.n_notes = draw(3);
        e->kind_case = CLUSTER__EVENT__KIND_AUDITED, e->audited = &audited;
        break;
    default:
        node.id = name("node", 6);
        e->kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED, e->node_admitted = &node;
    }
    event_encode(e, out);
}

static void large_event(const struct state *state, Cluster__Event *e, struct buffer *out)
{
    Cluster__Node node = CLUSTER__NODE__INIT;
    Cluster__Device devices[4], *device_list[4];
    Cluster__Link link = CLUSTER__LINK__INIT, *link_list[] = {&link};
    Cluster__Links links = CLUSTER__LINKS__INIT;
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__InstancePlaced placed = CLUSTER__INSTANCE_PLACED__INIT;
    Cluster__InstanceAbandoned abandoned = CLUSTER__INSTANCE_ABANDONED__INIT;
    Cluster__Placement placement = CLUSTER__PLACEMENT__INIT;
    Cluster__Stage stages[4], *stage_list[4];
    Cluster__StageReport report = CLUSTER__STAGE_REPORT__INIT;
    Cluster__MemoryStep step = CLUSTER__MEMORY_STEP__INIT;
    uint8_t hash[32] = {(uint8_t)draw(2)};
    const Cluster__Instance *some = some_instance(state);
    switch (draw(16)) {
    case 0:
    case 1:
        make_node(&node, devices, device_list);
        e->kind_case = CLUSTER__EVENT__KIND_NODE_JOINED, e->node_joined = &node;
        break;
    case 2:
        make_node(&node, devices, device_list);
        e->kind_case = CLUSTER__EVENT__KIND_NODE_UPDATED, e->node_updated = &node;
        break;
    case 3:
        link.from = name("node", 6), link.to = name("node", 6);
        links.n_links = 1, links.links = link_list;
        e->kind_case = CLUSTER__EVENT__KIND_LINKS_MEASURED, e->links_measured = &links;
        break;
    case 4:
        model.name = name("model", 3);
        model.has_manifest = model.has_n_layers = true;
        model.manifest.len = draw(20) ? 32 : 31, model.manifest.data = hash;
        model.n_layers = 1 + draw(5);
        e->kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED, e->model_registered = &model;
        break;
    case 5:
        demand.has_context_tokens = demand.has_streams = true;
        demand.context_tokens = 512, demand.streams = draw(20) ? 1 : 0;
        instance.id = name("instance", 4), instance.model = name("model", 3),
        instance.demand = &demand;
        e->kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED, e->instance_desired = &instance;
        break;
    case 6:
        abandoned.id = some ? some->id : NULL;
        abandoned.has_epoch = true, abandoned.epoch = some ? state_epoch(some) : 1;
        e->kind_case = CLUSTER__EVENT__KIND_INSTANCE_ABANDONED, e->instance_abandoned = &abandoned;
        break;
    case 7:
    case 8:
    case 9:
        make_placement(state, &placed, &placement, stages, stage_list);
        e->kind_case = CLUSTER__EVENT__KIND_INSTANCE_PLACED, e->instance_placed = &placed;
        break;
    case 10:
    case 11:
        make_memory(state, &step);
        e->kind_case = CLUSTER__EVENT__KIND_MEMORY_STEPPED, e->memory_stepped = &step;
        break;
    default:
        make_report(state, &report);
        e->kind_case = CLUSTER__EVENT__KIND_STAGE_REPORTED, e->stage_reported = &report;
    }
    event_encode(e, out);
}

void random_event(struct event_draws *draws, const struct state *state, struct buffer *out)
{
    Cluster__Event event = CLUSTER__EVENT__INIT;
    source = draws;
    event.has_time_ms = true;
    event.time_ms = draw(1000000);
    event.by = name("node", 6);
    event.actor = name("actor", 3);
    if (draw(20) == 0)
        random_bytes(out);
    else if (draw(3) == 0)
        small_event(&event, out);
    else
        large_event(state, &event, out);
    if (draw(20) == 0 && out->size)
        out->data[draw((uint32_t)out->size)] ^= (char)(1 << draw(8));
}
