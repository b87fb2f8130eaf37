#include "hosting_world.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct house the_house;

/* ---- the state ------------------------------------------------------------------------ */

static void apply(struct house *house, const struct buffer *bytes, bool must)
{
    struct state_outcome outcome;
    struct error err = {0};
    if (state_apply(&house->state, ++house->index, (const uint8_t *)bytes->data, bytes->size,
                    &outcome, &err))
        fail_msg("%s", err.text);
    if (must && !outcome.applied)
        fail_msg("%s", outcome.reason);
    house->n_ignored += !outcome.applied;
    house->is_dirty = true;
}

static void submit(struct house *house, Cluster__Event *event)
{
    struct buffer bytes = {0};
    event_encode(event, &bytes);
    apply(house, &bytes, true);
    buffer_deinit(&bytes);
}

static void admit(struct house *house, struct house_node *node)
{
    char names[HOUSE_DEVICES + 1][16];
    Cluster__Device devices[HOUSE_DEVICES + 1], *list[HOUSE_DEVICES + 1];
    Cluster__Node record = CLUSTER__NODE__INIT;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    for (int i = 0; i <= HOUSE_DEVICES; i++) {
        cluster__device__init(&devices[i]);
        snprintf(names[i], sizeof names[i], "toy%d%c", node->index,
                 i < HOUSE_DEVICES ? 'a' + i : 'x');
        devices[i].id = names[i];
        list[i] = &devices[i];
    }
    record.id = record.name = name.id = node->id;
    record.has_member = true, record.member = (uint64_t)node->index + 1;
    record.has_level = true, record.level = event_level_known();
    record.n_devices = HOUSE_DEVICES + 1, record.devices = list;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED, event.node_joined = &record;
    submit(house, &event);
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED, event.node_admitted = &name;
    submit(house, &event);
}

static void want(struct house *house)
{
    uint8_t hash[32] = {1};
    Cluster__Model model = CLUSTER__MODEL__INIT;
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    model.name = (char *)"toy", model.has_manifest = true, model.manifest.len = 32,
    model.manifest.data = hash;
    model.has_n_layers = true, model.n_layers = FAKE_LAYERS;
    event.kind_case = CLUSTER__EVENT__KIND_MODEL_REGISTERED, event.model_registered = &model;
    submit(house, &event);
    demand.has_context_tokens = demand.has_streams = true;
    demand.context_tokens = HOUSE_CONTEXT, demand.streams = 4;
    instance.id = (char *)"i", instance.model = (char *)"toy", instance.demand = &demand;
    instance.has_active = true, instance.active = true;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_DESIRED, event.instance_desired = &instance;
    submit(house, &event);
}

uint64_t house_place(struct house *house, const char *text)
{
    const uint32_t n = (uint32_t)strlen(text) / 2;
    Cluster__Stage stages[FAKE_LAYERS], *list[FAKE_LAYERS];
    char devices[FAKE_LAYERS][16];
    Cluster__Placement placement = CLUSTER__PLACEMENT__INIT;
    Cluster__InstancePlaced placed = CLUSTER__INSTANCE_PLACED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    for (uint32_t i = 0, layer = 0; i < n; i++) {
        const int node = text[2 * i] - '0';
        cluster__stage__init(&stages[i]);
        snprintf(devices[i], sizeof devices[i], "toy%d%c", node, text[2 * i + 1]);
        stages[i].node = house->nodes[node].id;
        stages[i].device = devices[i];
        stages[i].has_first_layer = stages[i].has_n_layers = true;
        stages[i].first_layer = layer;
        stages[i].n_layers = (FAKE_LAYERS - layer) / (n - i);
        layer += stages[i].n_layers;
        list[i] = &stages[i];
    }
    placement.has_epoch = placed.has_after_epoch = true;
    placement.epoch = house->state.root->last_epoch + 1;
    placement.n_stages = n, placement.stages = list;
    placement.has_replaces = placement.replaces = house->replaces;
    placed.id = (char *)"i", placed.placement = &placement;
    placed.after_epoch = state_epoch(state_instance(&house->state, "i"));
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_PLACED, event.instance_placed = &placed;
    submit(house, &event);
    return placement.epoch;
}

void house_set_active(struct house *house, bool active)
{
    Cluster__InstanceTarget target = CLUSTER__INSTANCE_TARGET__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    target.id = (char *)"i", target.has_active = true, target.active = active;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_TARGET, event.instance_target = &target;
    submit(house, &event);
}

void house_abandon_next(struct house *house)
{
    Cluster__InstanceAbandoned abandoned = CLUSTER__INSTANCE_ABANDONED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    abandoned.id = (char *)"i", abandoned.has_epoch = true,
    abandoned.epoch = house_next(house)->epoch;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_ABANDONED,
    event.instance_abandoned = &abandoned;
    submit(house, &event);
}

const Cluster__Placement *house_current(const struct house *house)
{
    return state_instance(&house->state, "i")->current;
}

const Cluster__Placement *house_next(const struct house *house)
{
    return state_instance(&house->state, "i")->next;
}

/* ---- a node's hosting ----------------------------------------------------------------- */

static enum worker_weights weights(void *self, const Cluster__Model *model,
                                   struct worker_precision precision, uint32_t first_layer,
                                   uint32_t n_layers)
{
    assert_true(first_layer + n_layers <= model->n_layers);
    return ((struct house_node *)self)->weights;
}

static void fetch(void *self, const Cluster__Model *model, struct worker_precision precision,
                  uint32_t first_layer, uint32_t n_layers)
{
    struct house_node *node = self;
    assert_string_equal(model->name, "toy");
    assert_true(n_layers > 0 && first_layer + n_layers <= FAKE_LAYERS);
    node->n_fetches++;
    node->weights = WORKER_FETCHES;
}

static const struct model *model_of(void *self, const Cluster__Model *model,
                                    const struct worker_range *ranges, uint32_t n_ranges,
                                    struct hosting_file *file)
{
    struct house_node *node = self;
    assert_int_equal(model->manifest.data[0], 1);
    if (node->lacks_model)
        return NULL;
    node->n_held++;
    return fake_model();
}

static void release(void *self, const Cluster__Model *model, const struct hosting_file *file)
{
    struct house_node *node = self;
    assert_int_equal(model->manifest.data[0], 1);
    assert_true(node->n_held-- > 0);
}

static void propose(void *self, const void *event, size_t size)
{
    struct house *house = ((struct house_node *)self)->house;
    assert_true(house->n_proposed < HOUSE_REPORTS);
    buffer_append(&house->proposed[house->n_proposed++], event, size);
    house->n_reports++;
}

static void changed(void *self)
{
    struct house_node *node = self;
    node->n_changed++;
    node->house->is_dirty = true;
}

static bool linked(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    struct house_node *node = self;
    return mesh_find(node->house->links->nodes[node->index].mesh, node_id) != NULL;
}

void house_open_hosting(struct house *house, int index)
{
    struct house_node *node = &house->nodes[index];
    const struct hosting_options options = {
        .loop = &house->links->loop,
        .gpu = node->gpu,
        .children = node->children,
        .node = node->id,
        .carrier = node->carrier,
        .wire = ACTIVATION_F16,
        .weights = weights,
        .fetch = fetch,
        .model = model_of,
        .release = release,
        .propose = propose,
        .changed = changed,
        .linked = linked,
        .self = node,
    };
    struct error err = {0};
    if (hosting_open(&options, &node->hosting, &err))
        fail_msg("%s", err.text);
    house->is_dirty = true;
}

static void on_closed(void *arg)
{
    ((struct house_node *)arg)->has_closed = true;
}

static bool has_closed(void *arg)
{
    return ((struct house_node *)arg)->has_closed;
}

void house_close_hosting(struct house *house, int index)
{
    struct house_node *node = &house->nodes[index];
    if (!node->hosting)
        return;
    node->has_closed = false;
    hosting_close(node->hosting, on_closed, node);
    node->hosting = NULL;
    assert_true(house_run(house, has_closed, node, 5000));
    assert_int_equal(node->n_held, 0);
}

/* ---- links ---------------------------------------------------------------------------- */

static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    struct house_node *node = ((struct link_world_node *)self)->data;
    assert_int_equal(channel, header->type == FRAME_HALT ? LINK_CONTROL : LINK_DATA);
    if (node->carrier)
        carrier_frame(node->carrier, link, header, payload);
}

static void on_down(void *self, struct link *link, const struct error *why)
{
    struct house_node *node = ((struct link_world_node *)self)->data;
    node->house->down[node->index](self, link, why);
    if (node->carrier)
        carrier_down(node->carrier, link, why);
}

static void on_lost(void *arg, const uint8_t node_id[NODE_ID_BYTES], const struct error *why)
{
    struct house_node *node = arg;
    if (node->hosting)
        hosting_lost(node->hosting, node_id, why);
}

static void on_stray(void *arg, const uint8_t node_id[NODE_ID_BYTES],
                     const struct wire_route *route)
{
    struct house_node *node = arg;
    if (node->hosting)
        hosting_stray(node->hosting, node_id, route);
}

static enum error_code on_cache(void *arg, const uint8_t node_id[NODE_ID_BYTES], const void *bytes,
                                size_t size, struct error *err)
{
    struct house_node *node = arg;
    return node->hosting ? hosting_cache(node->hosting, node_id, bytes, size, err) : ERROR_NONE;
}

static void on_halt(void *arg, const uint8_t node_id[NODE_ID_BYTES], const struct wire_route *route)
{
    struct house_node *node = arg;
    if (node->hosting)
        hosting_halt(node->hosting, node_id, route);
}

static struct link *link_of(struct house *house, int from, int to)
{
    return mesh_find(house->links->nodes[from].mesh, house->links->nodes[to].identity.node_id);
}

void house_abort(struct house *house, int from, int to)
{
    struct link *link = link_of(house, from, to);
    struct error why = {0};
    error_set(&why, ERROR_IO, "the cable is out");
    assert_non_null(link);
    link_abort(link, &why);
}

void house_cut(struct house *house, int from, int to)
{
    mesh_forget(house->links->nodes[from].mesh, house->dials[from][to]);
    house_abort(house, from, to);
}

void house_mend(struct house *house, int from, int to)
{
    house->dials[from][to] = link_world_dial(house->links, from, to);
}

/* ---- the house ------------------------------------------------------------------------ */

/* As finely as the product reads it: a driver that starts anew tells by it what was sent for the
 * one before. */
static uint64_t wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void turn(struct house *house)
{
    for (uint32_t i = 0; i < house->n_proposed; i++) {
        apply(house, &house->proposed[i], false);
        buffer_deinit(&house->proposed[i]);
    }
    house->n_proposed = 0;
    if (!house->is_dirty)
        return;
    house->is_dirty = false;
    for (int i = 0; i < WORLD_NODES; i++) {
        mem_fail_nth(house->nodes[i].fail_nth);
        if (house->nodes[i].hosting && !house->nodes[i].is_behind)
            hosting_step(house->nodes[i].hosting, &house->state, uv_now(&house->links->loop),
                         wall_ms());
        mem_fail_nth(0);
    }
}

struct wait {
    struct house *house;
    bool (*holds)(void *arg);
    void *arg;
};

static bool holds_after_turn(void *arg)
{
    const struct wait *wait = arg;
    turn(wait->house);
    return wait->holds && wait->holds(wait->arg);
}

bool house_run(struct house *house, bool (*holds)(void *arg), void *arg, uint64_t ms)
{
    struct wait wait = {house, holds, arg};
    return link_world_run(house->links, holds_after_turn, &wait, ms);
}

void house_pass(struct house *house, uint64_t ms)
{
    house_run(house, NULL, NULL, ms);
}

static bool drives(void *arg)
{
    return hosting_driver(((struct house_node *)arg)->hosting, "i", NULL) != NULL;
}

struct driver *house_driver(struct house *house, int node)
{
    if (!house_run(house, drives, &house->nodes[node], 5000))
        fail_msg("node %d never has a driver", node);
    return hosting_driver(house->nodes[node].hosting, "i", NULL);
}

static bool all_linked(void *arg)
{
    struct house *house = arg;
    for (int i = 0; i < WORLD_NODES; i++) {
        for (int k = 0; k < WORLD_NODES; k++) {
            if (i != k && !link_of(house, i, k))
                return false;
        }
    }
    return true;
}

static void open_node(struct house *house, int index, bool has_children)
{
    struct house_node *node = &house->nodes[index];
    struct link_world_node *world = &house->links->nodes[index];
    const struct carrier_handlers handlers = {
        .lost = on_lost, .arg = node, .stray = on_stray, .cache = on_cache, .halt = on_halt};
    node->house = house;
    node->index = index;
    id_text(world->identity.node_id, NODE_ID_BYTES, node->id);
    for (int i = 0; i < HOUSE_DEVICES; i++) {
        char id[16];
        snprintf(id, sizeof id, "toy%d%c", index, 'a' + i);
        node->devices[i] = fake_device_open(id, 1000000, 0);
    }
    node->gpu = fake_gpu_new(node->devices, HOUSE_DEVICES);
    node->children = has_children ? fake_children_new(node->gpu) : NULL;
    house->down[index] = world->options.events.down;
    world->data = node;
    world->options.events.frame = on_frame;
    world->options.events.down = on_down;
    link_world_open(house->links, index);
    assert_int_equal(
        carrier_open(&house->links->loop, world->mesh, &handlers, &node->carrier, NULL),
        ERROR_NONE);
    house_open_hosting(house, index);
    admit(house, node);
}

struct house *house_open(void)
{
    return house_open_with("");
}

struct house *house_open_with(const char *children)
{
    struct house *house = &the_house;
    memset(house, 0, sizeof *house);
    house->links = link_world_init(MESH_TCP);
    for (int i = 0; i < WORLD_NODES; i++)
        open_node(house, i, i < (int)strlen(children) && children[i] == 'c');
    for (int i = 0; i < WORLD_NODES; i++) {
        for (int k = i + 1; k < WORLD_NODES; k++)
            house_mend(house, i, k);
    }
    want(house);
    assert_true(house_run(house, all_linked, house, 5000));
    return house;
}

void house_close(struct house *house)
{
    for (int i = 0; i < WORLD_NODES; i++)
        house_close_hosting(house, i);
    assert_int_equal(fake_stages_open(), 0);
    for (int i = 0; i < WORLD_NODES; i++) {
        carrier_close(house->nodes[i].carrier);
        house->nodes[i].carrier = NULL;
    }
    for (int i = 0; i < WORLD_NODES; i++) {
        link_world_close(house->links, i);
        for (int k = 0; k < HOUSE_DEVICES; k++)
            fake_device_close(house->nodes[i].devices[k]);
        free(house->nodes[i].children);
        free(house->nodes[i].gpu);
    }
    link_world_deinit(house->links);
    for (uint32_t i = 0; i < house->n_proposed; i++)
        buffer_deinit(&house->proposed[i]);
    state_deinit(&house->state);
}
