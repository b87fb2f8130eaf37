#include "weights_hosts.h"

#include "base/limits.h"
#include "mesh/frames.h"
#include "model/model.h"
#include "weights/fetch_message.h"
#include "weights/manifest_layers.h"
#include "weights/manifest_make.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

struct link_world *world;
struct host hosts[WORLD_NODES];
struct link_version host_versions[WORLD_NODES];
struct manifest demo;
struct digest demo_id;
uint32_t n_layers;

static void on_up(void *self, struct link *link)
{
    struct host *host = self;
    host->node->link = link;
    host->node->n_up++;
    if (host->weights)
        weights_up(host->weights, link);
}

static void on_down(void *self, struct link *link, const struct error *why)
{
    struct host *host = self;
    if (host->node->link == link)
        host->node->link = NULL;
    host->node->why = *why;
    host->node->n_down++;
    if (host->weights)
        weights_down(host->weights, link);
}

static void *on_memory(void *self, struct link *link, uint32_t channel,
                       const struct frame_header *header)
{
    struct host *host = self;
    return host->weights ? weights_memory(host->weights, link, channel, header) : NULL;
}

static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    struct host *host = self;
    struct fetch_message message;
    assert_int_equal(header->type, FRAME_WEIGHTS);
    assert_int_equal(channel, NODE_CHANNEL_WEIGHTS);
    if (host->spoils && payload[1] == FETCH_MESSAGE_CHUNK_CONVERTED)
        ((uint8_t *)(uintptr_t)payload)[header->length - 1] ^= 1;
    if (host->weights) {
        weights_frame(host->weights, link, header, payload);
        return;
    }
    assert_int_equal(fetch_message_read(payload, header->length, &message, NULL), 0);
    host->n_chunks +=
        message.type == FETCH_MESSAGE_CHUNK || message.type == FETCH_MESSAGE_CHUNK_CONVERTED;
    host->n_refused += message.type == FETCH_MESSAGE_REFUSE && message.refusal == FETCH_REFUSE_BUSY;
    host->n_have += message.type == FETCH_MESSAGE_HAVE;
}

static void on_drained(void *self, struct link *link, uint32_t channel)
{
    struct host *host = self;
    if (host->weights)
        weights_drained(host->weights, link, channel);
}

static void on_changed(void *self)
{
    ((struct host *)self)->n_changed++;
}

void host_on_closed(void *arg)
{
    ((struct host *)arg)->is_closed = true;
}

bool host_is_closed(void *arg)
{
    return ((struct host *)arg)->is_closed;
}

void open_weights(struct host *host)
{
    struct error err = {0};
    host->options.loop = &world->loop;
    host->options.mesh = host->node->mesh;
    host->options.folder = host->folder;
    host->options.changed = on_changed;
    host->options.self = host;
    if (weights_open(&host->options, &host->weights, &err))
        fail_msg("%s", err.text);
}

void close_weights(struct host *host)
{
    host->is_closed = false;
    weights_close(host->weights, host_on_closed, host);
    assert_true(link_world_run(world, host_is_closed, host, 5000));
    host->weights = NULL;
}

void world_open(int n)
{
    world = link_world_init(MESH_TCP);
    for (int i = 0; i < n; i++) {
        struct host *host = &hosts[i];
        *host = (struct host){.node = &world->nodes[i]};
        weights_folder_make(host->folder);
        host->node->options.events =
            (struct link_events){on_up, on_down, on_memory, on_frame, on_drained, NULL, host};
        host->node->options.n_data_channels = NODE_DATA_CHANNELS;
        host->node->options.version = host_versions[i];
        link_world_open(world, i);
        open_weights(host);
    }
}

static bool link_is_up(void *arg)
{
    const int *pair = arg;
    return mesh_find(hosts[pair[0]].node->mesh, hosts[pair[1]].node->identity.node_id) &&
           mesh_find(hosts[pair[1]].node->mesh, hosts[pair[0]].node->identity.node_id);
}

void connect_hosts(int from, int to)
{
    int pair[2] = {from, to};
    struct dial *dial = link_world_dial(world, from, to);
    if (!link_world_run(world, link_is_up, pair, 5000))
        fail_msg("no link: %s", dial_status(dial).last.text);
}

void world_close(int n)
{
    for (int i = 0; i < n; i++) {
        if (hosts[i].weights)
            close_weights(&hosts[i]);
    }
    link_world_deinit(world);
    for (int i = 0; i < n; i++)
        weights_folder_remove(hosts[i].folder);
}

static void on_added(void *arg, const struct weights_facts *facts, const struct error *err)
{
    struct host *host = arg;
    host->is_added = true;
    host->err = err ? *err : (struct error){0};
    if (facts)
        host->facts = *facts;
}

static bool is_added(void *arg)
{
    return ((struct host *)arg)->is_added;
}

void add_file(struct host *host, const char *path)
{
    host->is_added = false;
    weights_add_file(host->weights, path, on_added, host);
    assert_true(link_world_run(world, is_added, host, 20000));
}

const char *demo_path(char out[PATH_MAX])
{
    assert_non_null(getenv("MEDLEY_ROOT"));
    snprintf(out, PATH_MAX, "%s/models/demo.gguf", getenv("MEDLEY_ROOT"));
    return out;
}

void add_demo(struct host *host)
{
    char path[PATH_MAX];
    snprintf(host->file, sizeof host->file, "%.4000s/demo.gguf", host->folder);
    weights_copy_file(demo_path(path), host->file);
    add_file(host, host->file);
    if (host->err.code)
        fail_msg("%s", host->err.text);
    assert_true(digest_equal(&host->facts.model, &demo_id));
}

static bool has_layers(void *arg)
{
    const struct awaited *a = arg;
    enum worker_weights have =
        weights_have(a->host->weights, &demo_id, a->first_layer, a->n_layers);
    if (have == WORKER_CANNOT_FETCH)
        fail_msg("%s", weights_problem(a->host->weights, &demo_id));
    return have == WORKER_HAS_ALL;
}

void await_layers(struct host *host, uint32_t first, uint32_t n)
{
    struct awaited awaited = {host, first, n};
    if (!link_world_run(world, has_layers, &awaited, 30000))
        fail_msg("layers %u to %u do not come", first, first + n - 1);
}

void fetch_layers(struct host *host, uint32_t first, uint32_t n)
{
    weights_fetch(host->weights, &demo_id, first, n);
    await_layers(host, first, n);
}

bool has_layers_or_problem(void *arg)
{
    const struct awaited *a = arg;
    return weights_have(a->host->weights, &demo_id, a->first_layer, a->n_layers) ==
               WORKER_HAS_ALL ||
           weights_problem(a->host->weights, &demo_id);
}

bool host_is_linked(void *arg)
{
    return ((struct host *)arg)->node->link;
}

bool has_problem(void *arg)
{
    return weights_problem(((struct host *)arg)->weights, &demo_id);
}

struct part_set parts_of(uint32_t first, uint32_t n)
{
    char path[PATH_MAX];
    struct part_set set;
    struct model *model;
    assert_int_equal(model_open(demo_path(path), &model, NULL), 0);
    assert_int_equal(part_set_init(&set, demo.n_parts, NULL), 0);
    assert_int_equal(manifest_add_layers(&demo, model, first, n, &set, NULL), 0);
    model_close(model);
    return set;
}

uint64_t bytes_of(const struct part_set *set)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < demo.n_parts; i++)
        bytes += part_set_has(set, i) ? demo.parts[i].size : 0;
    return bytes;
}

uint64_t manifest_bytes(void)
{
    struct buffer bytes = {0};
    manifest_write(&demo, &bytes);
    uint64_t size = bytes.size;
    buffer_deinit(&bytes);
    return size;
}

void check_bytes(struct host *host, uint32_t first, uint32_t n)
{
    char path[PATH_MAX];
    struct part_set set = parts_of(first, n);
    const struct model *model = weights_model(host->weights, &demo_id);
    assert_non_null(model);
    assert_int_equal(model_hyperparameters(model)->n_layers, n_layers);
    for (uint32_t i = 0; i < demo.n_parts; i++) {
        const struct manifest_part *part = &demo.parts[i];
        if (!part_set_has(&set, i))
            continue;
        void *want = weights_read(demo_path(path), part->offset, part->size);
        assert_memory_equal(gguf_file_bytes(model_file(model)) + part->offset, want, part->size);
        free(want);
    }
    weights_release(host->weights, &demo_id);
    part_set_deinit(&set);
}

int hosts_set_up(void **state)
{
    char path[PATH_MAX];
    struct model *model;
    const struct manifest_options options = {.n_threads = 1};
    if (model_open(demo_path(path), &model, NULL))
        return -1;
    n_layers = model_hyperparameters(model)->n_layers;
    int failed = manifest_make(model_file(model), &options, &demo, NULL) ||
                 manifest_identity(&demo, &demo_id, NULL);
    model_close(model);
    return failed;
}

int hosts_tear_down(void **state)
{
    manifest_deinit(&demo);
    return 0;
}
