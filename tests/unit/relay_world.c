#include "relay_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct driver_options OPTIONS = {
    .n_slots = 4, .context = RELAY_CONTEXT, .batch_rows = 40};

/* ---- what a relay is given ---------------------------------------------------------------- */

static struct driver *driver_of(struct relay_world *world)
{
    return world->is_far ? world->far.world.driver : world->driver.driver;
}

static enum error_code find(void *self, const char *instance, struct driver **driver,
                            uint8_t node_id[NODE_ID_BYTES], uint64_t *epoch, struct error *err)
{
    struct relay_node *node = self;
    struct relay_world *world = node->world;
    if (world->find_fails)
        return error_set(err, world->find_fails, "the test says so");
    if (strcmp(instance, "toy") != 0)
        return error_set(err, ERROR_NOT_FOUND, "there is no instance %s", instance);
    if (world->where == NOWHERE)
        return error_set(err, ERROR_BUSY, "the toy is being loaded");
    *epoch = world->epoch;
    *driver = world->where == node->index ? driver_of(world) : NULL;
    memcpy(node_id, world->links->nodes[world->where].identity.node_id, NODE_ID_BYTES);
    return ERROR_NONE;
}

static int index_of(const struct relay_world *world, const uint8_t node_id[NODE_ID_BYTES])
{
    int i = 0;
    while (memcmp(world->links->nodes[i].identity.node_id, node_id, NODE_ID_BYTES) != 0)
        i++;
    return i;
}

static bool reaches(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct relay_node *node = self;
    const struct relay_world *world = node->world;
    return !world->blind[node->index][index_of(world, node_id)] &&
           mesh_find(world->links->nodes[node->index].mesh, node_id) != NULL;
}

static bool through(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out)
{
    const struct relay_node *node = self;
    const struct relay_world *world = node->world;
    const int to = index_of(world, node_id);
    for (int i = 0; world->has_detours && i < WORLD_NODES; i++) {
        if (i == node->index || i == to || world->blind[node->index][i] ||
            (world->blind[i][to] && !world->is_misled))
            continue;
        if (out)
            memcpy(out, world->links->nodes[i].identity.node_id, NODE_ID_BYTES);
        return true;
    }
    return false;
}

static void wanted(void *self, const char *instance)
{
    struct relay_node *node = self;
    assert_string_equal(instance, "toy");
    node->n_wanted++;
}

static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    struct relay_node *node = ((struct link_world_node *)self)->data;
    assert_int_equal(channel, NODE_CHANNEL_PIPELINE);
    assert_int_equal(header->type, FRAME_REQUEST);
    node->n_frames++;
    if (!node->is_closed && !node->is_deaf)
        relay_frame(node->relay, link, header, payload);
}

static void on_down(void *self, struct link *link, const struct error *why)
{
    struct relay_node *node = ((struct link_world_node *)self)->data;
    if (!node->is_closed)
        relay_down(node->relay, link);
    node->link_down(self, link, why);
}

/* ---- nodes -------------------------------------------------------------------------------- */

static void open_node(struct relay_world *world, int index, const struct relay_options *options)
{
    struct relay_node *node = &world->nodes[index];
    struct link_world_node *link_node = &world->links->nodes[index];
    struct error err = {0};
    *node = (struct relay_node){
        .world = world, .index = index, .link_down = link_node->options.events.down};
    link_node->data = node;
    link_node->options.events.frame = on_frame;
    link_node->options.events.down = on_down;
    link_world_open(world->links, index);
    struct relay_options own = *options;
    own.loop = &world->links->loop;
    own.mesh = link_node->mesh;
    own.find = find;
    own.wanted = wanted;
    own.reaches = reaches;
    own.through = through;
    own.self = node;
    if (relay_open(&own, &node->relay, &err) ||
        relay_generator(node->relay, "toy", RELAY_CONTEXT, &node->generator, &err))
        fail_msg("%s", err.text);
}

static bool all_linked(void *arg)
{
    struct relay_world *world = arg;
    for (int i = 0; i < WORLD_NODES; i++) {
        for (int k = 0; k < WORLD_NODES; k++) {
            if (i != k &&
                !mesh_find(world->links->nodes[i].mesh, world->links->nodes[k].identity.node_id))
                return false;
        }
    }
    return true;
}

void relay_world_link(struct relay_world *world)
{
    assert_true(link_world_run(world->links, all_linked, world, 20000));
}

void relay_world_open(struct relay_world *world, const struct relay_options *options)
{
    *world = (struct relay_world){.links = link_world_init(MESH_TCP), .where = NOWHERE};
    fake_set_faults((struct fake_faults){0});
    for (int i = 0; i < WORLD_NODES; i++)
        open_node(world, i, options);
    for (int i = 0; i < WORLD_NODES; i++) {
        for (int k = i + 1; k < WORLD_NODES; k++)
            link_world_dial(world->links, i, k);
    }
    relay_world_link(world);
}

static void on_closed(void *arg)
{
    ((struct relay_node *)arg)->is_closed = true;
}

static bool all_closed(void *arg)
{
    struct relay_world *world = arg;
    for (int i = 0; i < WORLD_NODES; i++) {
        if (!world->nodes[i].is_closed)
            return false;
    }
    return true;
}

void relay_world_close_relays(struct relay_world *world)
{
    if (all_closed(world))
        return;
    for (int i = 0; i < WORLD_NODES; i++)
        relay_close(world->nodes[i].relay, on_closed, &world->nodes[i]);
    assert_true(link_world_run(world->links, all_closed, world, 10000));
}

void relay_world_close(struct relay_world *world)
{
    relay_world_close_relays(world);
    relay_world_unplace(world);
    for (int i = 0; i < WORLD_NODES; i++)
        link_world_close(world->links, i);
    link_world_deinit(world->links);
}

/* ---- the driver --------------------------------------------------------------------------- */

static void tell_relays(struct relay_world *world)
{
    for (int i = 0; i < WORLD_NODES; i++)
        relay_changed(world->nodes[i].relay);
}

void relay_world_pass(struct relay_world *world, uint64_t ms)
{
    for (uint64_t at = 0; at < ms; at += 100) {
        link_world_pass(world->links, 100);
        tell_relays(world);
    }
}

void relay_world_place(struct relay_world *world, int node)
{
    relay_world_unplace(world);
    world_open(&world->driver, 2, 1, &OPTIONS);
    world->where = node;
    world->epoch++;
    tell_relays(world);
}

void relay_world_place_far(struct relay_world *world, int node)
{
    relay_world_unplace(world);
    far_world_open(&world->far, "01", ACTIVATION_F32, &OPTIONS);
    world->is_far = true;
    world->where = node;
    world->epoch++;
    tell_relays(world);
}

void relay_world_unplace(struct relay_world *world)
{
    world->where = NOWHERE;
    if (world->is_far)
        far_world_close(&world->far);
    else if (world->driver.driver)
        world_close(&world->driver);
    world->is_far = false;
    world->driver.driver = NULL;
}

void relay_world_cut(struct relay_world *world)
{
    world->where = NOWHERE;
    far_world_cut(&world->far);
}

struct relay_use relay_world_use(struct relay_world *world, int node, const char *instance)
{
    static struct relay_uses uses;
    relay_use_report(world->nodes[node].relay, &uses);
    return relay_use_of(&uses, instance);
}

/* ---- clients ------------------------------------------------------------------------------ */

enum error_code relay_world_ask(struct relay_world *world, int node, struct client *client,
                                struct error *err)
{
    client->request.prompt = client->prompt;
    client->request.arg = client;
    uint64_t id = 0;
    enum error_code code =
        generator_submit(world->nodes[node].generator, &client->request, &id, err);
    client->id = id;
    return code;
}

struct waiting {
    const struct client *clients;
    uint32_t n, n_tokens;
};

static bool all_done(void *arg)
{
    const struct waiting *waiting = arg;
    for (uint32_t i = 0; i < waiting->n; i++) {
        if (!client_is_done(&waiting->clients[i]))
            return false;
    }
    return true;
}

bool relay_world_wait(struct relay_world *world, const struct client *clients, uint32_t n)
{
    struct waiting waiting = {.clients = clients, .n = n};
    return link_world_run(world->links, all_done, &waiting, 20000);
}

static bool has_tokens(void *arg)
{
    const struct waiting *waiting = arg;
    return client_is_done(waiting->clients) || client_tokens(waiting->clients) >= waiting->n_tokens;
}

bool relay_world_wait_tokens(struct relay_world *world, const struct client *client,
                             uint32_t n_tokens)
{
    struct waiting waiting = {.clients = client, .n_tokens = n_tokens};
    return link_world_run(world->links, has_tokens, &waiting, 20000) &&
           client_tokens(client) >= n_tokens;
}
