/* Weights of a node: its files, fetching from others, giving to others; nodes in this process, over
 * loopback. */
#include "base/limits.h"
#include "base/mem.h"
#include "link_world.h"
#include "mesh/frames.h"
#include "model/model.h"
#include "weights/fetch_message.h"
#include "weights/manifest_layers.h"
#include "weights/manifest_make.h"
#include "weights/weights.h"
#include "weights_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- hosts ----------------------------------------------------------------------------------- */

struct host {
    struct link_world_node *node;
    struct weights *weights;
    struct weights_options options;
    char folder[PATH_MAX], file[PATH_MAX];
    bool is_closed, is_added;
    uint32_t n_changed;
    struct weights_facts facts;
    struct error err;
    uint32_t n_chunks, n_refused, n_have; /* what a bare node heard */
};

static struct link_world *world;
static struct host hosts[WORLD_NODES];
static struct manifest demo; /* the model that most tests use */
static struct digest demo_id;
static uint32_t n_layers;

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
    if (host->weights) {
        weights_frame(host->weights, link, header, payload);
        return;
    }
    assert_int_equal(fetch_message_read(payload, header->length, &message, NULL), 0);
    host->n_chunks += message.type == FETCH_MESSAGE_CHUNK;
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

static void on_closed(void *arg)
{
    ((struct host *)arg)->is_closed = true;
}

static bool host_is_closed(void *arg)
{
    return ((struct host *)arg)->is_closed;
}

static void open_weights(struct host *host)
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

static void close_weights(struct host *host)
{
    host->is_closed = false;
    weights_close(host->weights, on_closed, host);
    assert_true(link_world_run(world, host_is_closed, host, 5000));
    host->weights = NULL;
}

/* Node 0 dials the others; the others dial each other. */
static void world_open(int n)
{
    world = link_world_init(MESH_TCP);
    for (int i = 0; i < n; i++) {
        struct host *host = &hosts[i];
        *host = (struct host){.node = &world->nodes[i]};
        weights_folder_make(host->folder);
        host->node->options.events =
            (struct link_events){on_up, on_down, on_memory, on_frame, on_drained, NULL, host};
        host->node->options.n_data_channels = NODE_DATA_CHANNELS;
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

static void connect_hosts(int from, int to)
{
    int pair[2] = {from, to};
    struct dial *dial = link_world_dial(world, from, to);
    if (!link_world_run(world, link_is_up, pair, 5000))
        fail_msg("no link: %s", dial_status(dial).last.text);
}

static void world_close(int n)
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

static void add_file(struct host *host, const char *path)
{
    host->is_added = false;
    weights_add_file(host->weights, path, on_added, host);
    assert_true(link_world_run(world, is_added, host, 20000));
}

static const char *demo_path(char out[PATH_MAX])
{
    assert_non_null(getenv("MEDLEY_ROOT"));
    snprintf(out, PATH_MAX, "%s/models/demo.gguf", getenv("MEDLEY_ROOT"));
    return out;
}

/* A copy of the demo model in the host's folder. */
static void add_demo(struct host *host)
{
    char path[PATH_MAX];
    snprintf(host->file, sizeof host->file, "%.4000s/demo.gguf", host->folder);
    weights_copy_file(demo_path(path), host->file);
    add_file(host, host->file);
    if (host->err.code)
        fail_msg("%s", host->err.text);
    assert_true(digest_equal(&host->facts.model, &demo_id));
}

/* ---- what is expected ------------------------------------------------------------------------ */

struct awaited {
    struct host *host;
    uint32_t first_layer, n_layers;
};

static bool has_layers(void *arg)
{
    const struct awaited *a = arg;
    enum worker_weights have =
        weights_have(a->host->weights, &demo_id, a->first_layer, a->n_layers);
    if (have == WORKER_CANNOT_FETCH)
        fail_msg("%s", weights_problem(a->host->weights, &demo_id));
    return have == WORKER_HAS_ALL;
}

static void await_layers(struct host *host, uint32_t first, uint32_t n)
{
    struct awaited awaited = {host, first, n};
    if (!link_world_run(world, has_layers, &awaited, 30000))
        fail_msg("layers %u to %u do not come", first, first + n - 1);
}

static void fetch_layers(struct host *host, uint32_t first, uint32_t n)
{
    weights_fetch(host->weights, &demo_id, first, n);
    await_layers(host, first, n);
}

static bool has_layers_or_problem(void *arg)
{
    const struct awaited *a = arg;
    return weights_have(a->host->weights, &demo_id, a->first_layer, a->n_layers) ==
               WORKER_HAS_ALL ||
           weights_problem(a->host->weights, &demo_id);
}

static bool host_is_linked(void *arg)
{
    return ((struct host *)arg)->node->link;
}

static bool has_problem(void *arg)
{
    return weights_problem(((struct host *)arg)->weights, &demo_id);
}

static struct part_set parts_of(uint32_t first, uint32_t n)
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

static uint64_t bytes_of(const struct part_set *set)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < demo.n_parts; i++)
        bytes += part_set_has(set, i) ? demo.parts[i].size : 0;
    return bytes;
}

static uint64_t manifest_bytes(void)
{
    struct buffer bytes = {0};
    manifest_write(&demo, &bytes);
    uint64_t size = bytes.size;
    buffer_deinit(&bytes);
    return size;
}

/* The model that the host gives out has the original's bytes in these layers' tensors. */
static void check_bytes(struct host *host, uint32_t first, uint32_t n)
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

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_only_what_is_needed_is_fetched(void **state)
{
    world_open(2);
    connect_hosts(0, 1);
    add_demo(&hosts[1]);
    assert_int_equal(hosts[1].facts.n_layers, n_layers);
    assert_int_equal(hosts[1].facts.bytes, demo.size);
    assert_int_equal(weights_have(hosts[1].weights, &demo_id, 0, n_layers), WORKER_HAS_ALL);
    assert_int_equal(weights_have(hosts[1].weights, &demo_id, 0, n_layers + 1), WORKER_LACKS);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 1, 1), WORKER_LACKS);
    assert_null(weights_model(hosts[0].weights, &demo_id));

    weights_fetch(hosts[0].weights, &demo_id, 1, 1);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 1, 1), WORKER_FETCHES);
    await_layers(&hosts[0], 1, 1);
    struct part_set set = parts_of(1, 1);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes,
                     manifest_bytes() + bytes_of(&set));
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 2, 1), WORKER_LACKS);
    assert_true(hosts[0].n_changed > 0);
    check_bytes(&hosts[0], 1, 1);
    part_set_deinit(&set);

    /* more of it, while it is being fetched; what is there is not fetched again */
    weights_fetch(hosts[0].weights, &demo_id, 2, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    await_layers(&hosts[0], 0, n_layers);
    struct part_set all = parts_of(0, n_layers);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes,
                     manifest_bytes() + bytes_of(&all));
    check_bytes(&hosts[0], 0, n_layers);
    part_set_deinit(&all);
    world_close(2);
}

static void test_two_holders_share_the_work(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    add_demo(&hosts[2]);
    connect_hosts(0, 1);
    connect_hosts(0, 2);
    fetch_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    assert_true(weights_counts(hosts[1].weights).sent_bytes > 0);
    assert_true(weights_counts(hosts[2].weights).sent_bytes > 0);
    world_close(3);
}

static void test_receivers_give_what_they_have(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    connect_hosts(2, 1);
    fetch_layers(&hosts[2], 0, n_layers);
    link_world_close(world, 1);
    connect_hosts(0, 2);
    fetch_layers(&hosts[0], 0, 2);
    check_bytes(&hosts[0], 0, 2);
    world_close(3);
}

/* Both want the same at once, only one of them is linked to the holder: it passes on what it
 * gets. */
static void test_parts_travel_on_while_they_come(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    connect_hosts(0, 2);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    connect_hosts(2, 1);
    fetch_layers(&hosts[2], 0, n_layers);
    await_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    world_close(3);
}

static bool has_begun(void *arg)
{
    struct fetch_progress progress = weights_progress(((struct host *)arg)->weights, &demo_id);
    return progress.n_wanted > 1 && progress.n_verified >= progress.n_wanted / 4;
}

static void test_a_fetch_goes_on_after_a_restart(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_begun, &hosts[0], 10000));
    struct fetch_progress before = weights_progress(hosts[0].weights, &demo_id);
    assert_true(before.n_verified < before.n_wanted);
    close_weights(&hosts[0]);
    open_weights(&hosts[0]);
    fetch_layers(&hosts[0], 0, n_layers);
    struct part_set all = parts_of(0, n_layers);
    /* the manifest, the header and what was verified did not travel again */
    assert_true(weights_counts(hosts[0].weights).received_bytes <=
                bytes_of(&all) - before.verified_bytes);
    check_bytes(&hosts[0], 0, n_layers);
    part_set_deinit(&all);
    world_close(2);
}

static void test_a_holder_leaves(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    add_demo(&hosts[2]);
    connect_hosts(0, 1);
    connect_hosts(0, 2);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_begun, &hosts[0], 10000));
    link_abort(mesh_find(hosts[2].node->mesh, hosts[0].node->identity.node_id),
               &(struct error){ERROR_IO, "gone"});
    await_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    world_close(3);
}

/* Host 2 has fetched all, then a byte of it turns on its disk. */
static void make_liar(void)
{
    char path[PATH_MAX], name[DIGEST_TEXT];
    add_demo(&hosts[1]);
    connect_hosts(2, 1);
    fetch_layers(&hosts[2], 0, n_layers);
    snprintf(path, sizeof path, "%.3900s/models/%s.gguf", hosts[2].folder,
             digest_text(&demo_id, name));
    for (uint32_t i = 1; i < demo.n_parts; i++)
        weights_flip_byte(path, demo.parts[i].offset + demo.parts[i].size / 2);
}

static void test_a_holder_lies(void **state)
{
    world_open(3);
    make_liar();
    connect_hosts(0, 2);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    world_close(3);
}

static void test_all_holders_lie(void **state)
{
    world_open(3);
    make_liar();
    link_world_close(world, 1);
    close_weights(&hosts[0]);
    hosts[0].options.patience_ms = 1200;
    open_weights(&hosts[0]);
    connect_hosts(0, 2);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_problem, &hosts[0], 10000));
    assert_non_null(strstr(weights_problem(hosts[0].weights, &demo_id), "1 sent wrong bytes"));
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, n_layers), WORKER_CANNOT_FETCH);
    world_close(3);
}

static void test_nobody_has_it(void **state)
{
    world_open(2);
    close_weights(&hosts[0]);
    hosts[0].options.patience_ms = 600;
    open_weights(&hosts[0]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, 1);
    assert_true(link_world_run(world, has_problem, &hosts[0], 5000));
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 1), WORKER_CANNOT_FETCH);
    /* somebody gets it: then it is worth another attempt */
    add_demo(&hosts[1]);
    link_world_pass(world, 50);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 1), WORKER_LACKS);
    fetch_layers(&hosts[0], 0, 1);
    assert_null(weights_problem(hosts[0].weights, &demo_id));
    world_close(2);
}

static void test_the_limit_is_too_small(void **state)
{
    world_open(2);
    close_weights(&hosts[0]);
    hosts[0].options.limit_bytes = 600 * 1024;
    open_weights(&hosts[0]);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_problem, &hosts[0], 5000));
    assert_non_null(strstr(weights_problem(hosts[0].weights, &demo_id), "limit"));
    struct part_set all = parts_of(0, n_layers);
    assert_true(weights_counts(hosts[0].weights).received_bytes <
                bytes_of(&all) / 2); /* said before it was fetched */
    part_set_deinit(&all);
    world_close(2);
}

static void test_a_model_makes_room_for_another(void **state)
{
    char path[PATH_MAX];
    world_open(2);
    add_demo(&hosts[1]);
    add_file(&hosts[1], weights_golden("qwen3", path));
    assert_int_equal(hosts[1].err.code, 0);
    close_weights(&hosts[0]);
    hosts[0].options.limit_bytes = demo.size + hosts[1].facts.bytes / 2; /* one or the other */
    open_weights(&hosts[0]);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 0, n_layers);
    const struct digest other = hosts[1].facts.model;
    link_world_pass(world, LIMIT_WEIGHTS_IDLE_MS + 100);
    weights_fetch(hosts[0].weights, &other, 0, hosts[1].facts.n_layers);
    struct host *host = &hosts[0];
    for (int i = 0; i < 100 && weights_have(host->weights, &other, 0, hosts[1].facts.n_layers) ==
                                   WORKER_FETCHES;
         i++)
        link_world_pass(world, 20);
    if (weights_problem(host->weights, &other))
        fail_msg("%s", weights_problem(host->weights, &other));
    assert_int_equal(weights_have(host->weights, &other, 0, hosts[1].facts.n_layers),
                     WORKER_HAS_ALL);
    assert_int_equal(weights_have(host->weights, &demo_id, 0, 0), WORKER_LACKS);
    world_close(2);
}

static void test_everything_is_there_after_a_restart(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 1, 2);
    close_weights(&hosts[0]);
    close_weights(&hosts[1]);
    open_weights(&hosts[0]);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 1, 2),
                     WORKER_FETCHES); /* it is looked at */
    await_layers(&hosts[0], 1, 2);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 1), WORKER_LACKS);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, 0);
    check_bytes(&hosts[0], 1, 2);
    open_weights(&hosts[1]);
    await_layers(&hosts[1], 0, n_layers);
    struct weights_facts facts[4];
    assert_int_equal(weights_list(hosts[1].weights, facts, 4), 1);
    assert_true(digest_equal(&facts[0].model, &demo_id));
    world_close(2);
}

static void test_a_missing_file_is_not_forgotten(void **state)
{
    char away[PATH_MAX + 8];
    world_open(1);
    add_demo(&hosts[0]);
    close_weights(&hosts[0]);
    snprintf(away, sizeof away, "%s.away", hosts[0].file);
    assert_int_equal(rename(hosts[0].file, away), 0);
    open_weights(&hosts[0]);
    link_world_pass(world, 100);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 0), WORKER_LACKS);
    char golden[PATH_MAX];
    add_file(&hosts[0], weights_golden("llama", golden)); /* writes the list anew */
    assert_int_equal(hosts[0].err.code, 0);
    close_weights(&hosts[0]);
    assert_int_equal(rename(away, hosts[0].file), 0);
    open_weights(&hosts[0]);
    await_layers(&hosts[0], 0, n_layers);
    /* the same again is no other file */
    add_file(&hosts[0], hosts[0].file);
    assert_int_equal(hosts[0].err.code, 0);
    assert_int_equal(weights_list(hosts[0].weights, NULL, 0), 2);
    world_close(1);
}

static void test_files_that_cannot_be_added(void **state)
{
    char path[PATH_MAX];
    world_open(1);
    snprintf(path, sizeof path, "%.4000s/nothing.gguf", hosts[0].folder);
    add_file(&hosts[0], path);
    assert_int_equal(hosts[0].err.code, ERROR_NOT_FOUND);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs("this is no model", file);
    fclose(file);
    add_file(&hosts[0], path);
    assert_int_equal(hosts[0].err.code, ERROR_INVALID);
    assert_int_equal(weights_list(hosts[0].weights, NULL, 0), 0);
    snprintf(path, sizeof path, "%.4000s/files", hosts[0].folder);
    assert_int_not_equal(access(path, F_OK), 0);
    world_close(1);
}

/* Whoever asks makes it look at the file: what was hashed of the flipped one is another model. */
static bool has_demo_again(void *arg)
{
    struct host *host = arg;
    struct weights_facts facts[4];
    uint32_t n = weights_list(host->weights, facts, 4);
    for (uint32_t i = 0; i < n && i < 4; i++)
        weights_have(host->weights, &facts[i].model, 0, 1);
    return weights_have(host->weights, &demo_id, 0, 1) == WORKER_HAS_ALL;
}

static void test_a_changed_file_is_not_given_away(void **state)
{
    world_open(2);
    close_weights(&hosts[0]);
    hosts[0].options.patience_ms = 600;
    open_weights(&hosts[0]);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    const struct model *model = weights_model(hosts[1].weights, &demo_id);
    assert_non_null(model);
    weights_flip_byte(hosts[1].file, demo.parts[5].offset);
    assert_int_equal(weights_have(hosts[1].weights, &demo_id, 0, 1), WORKER_LACKS);
    assert_null(weights_model(hosts[1].weights, &demo_id));
    weights_fetch(hosts[0].weights, &demo_id, 0, 1);
    assert_true(link_world_run(world, has_problem, &hosts[0], 5000));
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, 0);
    assert_int_equal(model_hyperparameters(model)->n_layers,
                     n_layers); /* who has it open keeps it */
    weights_release(hosts[1].weights, &demo_id);
    /* back as it was: it is noticed, hashed again, and given */
    weights_flip_byte(hosts[1].file, demo.parts[5].offset);
    assert_true(link_world_run(world, has_demo_again, &hosts[1], 10000));
    fetch_layers(&hosts[0], 0, 1);
    check_bytes(&hosts[0], 0, 1);
    world_close(2);
}

static void count_ended(void *arg, const struct weights_facts *facts, const struct error *err)
{
    assert_true(facts ? !err : err && err->code == ERROR_CANCELLED);
    ++*(uint32_t *)arg;
}

/* Hashing, waiting to be hashed, reading and sending for others, receiving, writing, verifying: all
 * at once. */
static void test_closing_with_everything_under_way(void **state)
{
    char path[PATH_MAX];
    uint32_t n_ended = 0;
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_begun, &hosts[0], 10000));
    for (int i = 0; i < 4; i++) {
        weights_add_file(hosts[0].weights, weights_golden("llama", path), count_ended, &n_ended);
        weights_add_file(hosts[1].weights, weights_golden("qwen3", path), count_ended, &n_ended);
    }
    weights_close(hosts[1].weights, on_closed, &hosts[1]);
    weights_close(hosts[0].weights, on_closed, &hosts[0]);
    assert_true(link_world_run(world, host_is_closed, &hosts[0], 5000));
    assert_true(link_world_run(world, host_is_closed, &hosts[1], 5000));
    assert_int_equal(n_ended, 8);
    hosts[0].weights = hosts[1].weights = NULL;
    world_close(2);
}

/* Whatever allocation fails, there is an answer, and another attempt succeeds. */
static void test_lack_of_memory(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    for (unsigned nth = 1; nth < 60; nth += 1 + nth / 8) {
        struct awaited awaited = {&hosts[0], 1, 1};
        close_weights(&hosts[0]);
        weights_folder_remove(hosts[0].folder);
        hosts[0].options.patience_ms = 900;
        open_weights(&hosts[0]);
        mem_fail_nth(nth);
        for (int attempt = 0; attempt < 10 && !has_layers_or_problem(&awaited); attempt++) {
            weights_fetch(hosts[0].weights, &demo_id, 1, 1);
            link_world_run(world, has_layers_or_problem, &awaited, 300);
        }
        mem_fail_nth(0);
        if (!host_is_linked(&hosts[0]))
            link_world_run(world, host_is_linked, &hosts[0], 3000);
        for (int attempt = 0; attempt < 3 && weights_problem(hosts[0].weights, &demo_id);
             attempt++) {
            weights_fetch(hosts[0].weights, &demo_id, 1, 1);
            link_world_run(world, has_layers_or_problem, &awaited, 3000);
        }
        weights_fetch(hosts[0].weights, &demo_id, 1, 1);
        await_layers(&hosts[0], 1, 1);
        check_bytes(&hosts[0], 1, 1);
    }
    world_close(2);
}

static void post(struct host *host, const struct fetch_message *message)
{
    struct buffer bytes = {0};
    fetch_message_write(message, &bytes);
    const struct frame_header header = {.type = FRAME_WEIGHTS, .length = (uint32_t)bytes.size};
    assert_int_equal(link_post(host->node->link, NODE_CHANNEL_WEIGHTS, &header, bytes.data, NULL),
                     0);
    buffer_deinit(&bytes);
}

static bool all_answered(void *arg)
{
    return hosts[0].n_chunks + hosts[0].n_refused == 200;
}

/* Host 0 is one that asks for more than it should. */
static void test_requests_are_bounded(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    close_weights(&hosts[0]);
    for (uint32_t i = 0; i < 200; i++) {
        struct fetch_message request = {.type = FETCH_MESSAGE_REQUEST, .id = i, .model = demo_id};
        request.request.part = 1;
        request.request.size = 64;
        post(&hosts[0], &request);
    }
    assert_true(link_world_run(world, all_answered, NULL, 5000));
    assert_true(hosts[0].n_chunks >= LIMIT_WEIGHTS_ASKED && hosts[0].n_refused > 0);
    world_close(2);
}

static bool no_link(void *arg)
{
    return !((struct host *)arg)->node->link;
}

static void test_garbage_ends_the_link(void **state)
{
    world_open(2);
    connect_hosts(0, 1);
    close_weights(&hosts[0]);
    struct fetch_message nonsense = {
        .type = FETCH_MESSAGE_REFUSE, .id = 77, .refusal = FETCH_REFUSE_LACKS};
    post(&hosts[0], &nonsense); /* of what was never asked: ignored */
    nonsense = (struct fetch_message){
        .type = FETCH_MESSAGE_CHUNK, .id = 5, .chunk = {(const uint8_t *)"abc", 3}};
    post(&hosts[0], &nonsense);
    post(&hosts[0], &(struct fetch_message){.type = FETCH_MESSAGE_ASK_HAVE, .model = demo_id});
    for (int i = 0; i < 50 && !hosts[0].n_have; i++)
        link_world_pass(world, 10);
    assert_int_equal(hosts[0].n_have, 1);
    assert_non_null(hosts[0].node->link);
    const struct frame_header header = {.type = FRAME_WEIGHTS, .length = 3};
    assert_int_equal(link_post(hosts[0].node->link, NODE_CHANNEL_WEIGHTS, &header, "\1\3\0", NULL),
                     0);
    assert_true(link_world_run(world, no_link, &hosts[0], 5000));
    world_close(2);
}

static int set_up(void **state)
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

static int tear_down(void **state)
{
    manifest_deinit(&demo);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_needed_is_fetched),
        cmocka_unit_test(test_two_holders_share_the_work),
        cmocka_unit_test(test_receivers_give_what_they_have),
        cmocka_unit_test(test_parts_travel_on_while_they_come),
        cmocka_unit_test(test_a_fetch_goes_on_after_a_restart),
        cmocka_unit_test(test_a_holder_leaves),
        cmocka_unit_test(test_a_holder_lies),
        cmocka_unit_test(test_all_holders_lie),
        cmocka_unit_test(test_nobody_has_it),
        cmocka_unit_test(test_the_limit_is_too_small),
        cmocka_unit_test(test_a_model_makes_room_for_another),
        cmocka_unit_test(test_everything_is_there_after_a_restart),
        cmocka_unit_test(test_a_missing_file_is_not_forgotten),
        cmocka_unit_test(test_files_that_cannot_be_added),
        cmocka_unit_test(test_a_changed_file_is_not_given_away),
        cmocka_unit_test(test_closing_with_everything_under_way),
        cmocka_unit_test(test_lack_of_memory),
        cmocka_unit_test(test_requests_are_bounded),
        cmocka_unit_test(test_garbage_ends_the_link),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
