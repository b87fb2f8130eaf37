/* Layers that are fetched in a smaller type: the bytes are those of the conversion, they are kept
 * under a name of their own, and where they cannot be had the original is fetched. Nodes in this
 * process, over links. */
#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"
#include "mesh/frames.h"
#include "model/gguf_file.h"
#include "model/model.h"
#include "model/model_precision.h"
#include "model/weight_type.h"
#include "precision/convert.h"
#include "trust/digest.h"
#include "weights/converted.h"
#include "weights/weight_source.h"
#include "weights_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct worker_precision type_of(const char *name)
{
    int type = 0;
    assert_int_equal(weight_type_find(name, &type, NULL), ERROR_NONE);
    return (struct worker_precision){(uint32_t)type, false};
}

/* As a stage's node does, until the layers are here. */
struct wish {
    struct host *host;
    struct worker_precision type;
    uint32_t first_layer, n_layers;
};

static bool wish_is_granted(void *arg)
{
    const struct wish *wish = arg;
    struct weights *weights = wish->host->weights;
    const enum worker_weights have =
        weights_have_at(weights, &demo_id, wish->type, wish->first_layer, wish->n_layers);
    if (have == WORKER_LACKS)
        weights_fetch_at(weights, &demo_id, wish->type, wish->first_layer, wish->n_layers);
    if (have == WORKER_CANNOT_FETCH)
        fail_msg("%s", weights_problem(weights, &demo_id));
    return have == WORKER_HAS_ALL;
}

static void get_layers(struct host *host, struct worker_precision type, uint32_t first, uint32_t n)
{
    struct wish wish = {host, type, first, n};
    if (!link_world_run(world, wish_is_granted, &wish, 30000))
        fail_msg("layers %u to %u do not come", first, first + n - 1);
}

static struct model *open_demo(void)
{
    char path[PATH_MAX];
    struct model *model;
    assert_int_equal(model_open(demo_path(path), &model, NULL), ERROR_NONE);
    return model;
}

/* What `medley convert` makes of one tensor; free() it. */
static uint8_t *convert_one(const struct model *model, uint64_t tensor, int type, uint64_t size)
{
    FILE *file = tmpfile();
    uint8_t *bytes = malloc(size);
    assert_true(file && bytes);
    assert_int_equal(convert_tensor(model_file(model), tensor, type, fileno(file), 0, NULL),
                     ERROR_NONE);
    assert_int_equal(pread(fileno(file), bytes, size, 0), (ssize_t)size);
    fclose(file);
    return bytes;
}

/* The file that the host has got holds the converted layers; the answer is how many bytes they and
 * its header are. */
static uint64_t check_layers(struct host *host, struct worker_precision type, uint32_t first,
                             uint32_t n)
{
    struct model *demo_model = open_demo();
    const struct worker_range range = {first, n};
    const struct model *smaller;
    bool is_smaller = false;
    const struct model *got =
        weights_model_at(host->weights, &demo_id, type, &range, 1, &is_smaller);
    struct part_set set = parts_of(first, n);
    assert_true(got && is_smaller);
    assert_int_equal(model_at_precision(demo_model, (int)type.type, &smaller, NULL), ERROR_NONE);
    assert_int_equal(model_weight_bytes(got), model_weight_bytes(smaller));
    const struct model *again; /* there is nothing left to convert when it is loaded */
    assert_int_equal(model_at_precision(got, (int)type.type, &again, NULL), ERROR_NONE);
    assert_ptr_equal(again, got);
    uint64_t bytes = 0;
    for (uint32_t i = 1; i < demo.n_parts; i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(model_file(got), i - 1);
        if (!part_set_has(&set, i))
            continue;
        assert_int_equal(tensor->type, model_tensor_at(smaller, i - 1)->type);
        uint8_t *want = convert_one(demo_model, i - 1, tensor->type, tensor->size);
        assert_memory_equal(gguf_file_bytes(model_file(got)) + tensor->offset, want, tensor->size);
        free(want);
        bytes += tensor->size;
    }
    weights_release_at(host->weights, &demo_id, type, is_smaller);
    part_set_deinit(&set);
    model_close(demo_model);
    return bytes;
}

static void check_stored(struct host *host, struct worker_precision type, uint32_t first,
                         uint32_t n)
{
    const struct worker_range range = {first, n};
    bool is_smaller = true;
    assert_non_null(weights_model_at(host->weights, &demo_id, type, &range, 1, &is_smaller));
    assert_false(is_smaller);
    weights_release_at(host->weights, &demo_id, type, is_smaller);
    check_bytes(host, first, n);
}

static void test_layers_come_in_a_smaller_type(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    get_layers(&hosts[0], q4, 1, 2);
    const uint64_t converted = check_layers(&hosts[0], q4, 1, 2);
    struct part_set set = parts_of(1, 2);
    const uint64_t stored = bytes_of(&set);
    part_set_deinit(&set);
    /* the manifest, the original's header, and the converted layers: nothing else travelled */
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes,
                     manifest_bytes() + demo.parts[MANIFEST_HEADER].size + converted);
    assert_true((double)converted < 0.75 * (double)(stored - demo.parts[MANIFEST_HEADER].size));
    /* the original's layers are not here, nor those of another type */
    assert_false(weights_holds(hosts[0].weights, &demo_id, 1, 2));
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 1, 2), WORKER_LACKS);
    assert_int_equal(weights_have_at(hosts[0].weights, &demo_id, type_of("q2_k"), 1, 2),
                     WORKER_LACKS);
    /* all of them, and another type beside */
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    get_layers(&hosts[0], type_of("q2_k"), 0, 1);
    check_layers(&hosts[0], type_of("q2_k"), 0, 1);
    check_layers(&hosts[0], q4, 0, n_layers);
    world_close(2);
}

static void test_they_are_there_after_a_restart(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    get_layers(&hosts[0], q4, 0, n_layers);
    close_weights(&hosts[0]);
    link_world_close(world, 1);
    open_weights(&hosts[0]);
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, 0);
    world_close(2);
}

static void test_the_original_is_taken_where_it_is(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 0, n_layers);
    const uint64_t before = weights_counts(hosts[0].weights).received_bytes;
    get_layers(&hosts[0], q4, 0, n_layers);
    check_stored(&hosts[0], q4, 0, n_layers);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, before);
    world_close(2);
}

/* One layer is here as stored, the other in the smaller type: a file with both is made. */
static void test_layers_in_two_files_become_one(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    const struct worker_range ranges[] = {{0, 1}, {2, 1}};
    bool is_smaller;
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 0, 1);
    get_layers(&hosts[0], q4, 2, 1);
    assert_int_equal(weights_have_at(hosts[0].weights, &demo_id, q4, 0, 1), WORKER_HAS_ALL);
    assert_null(weights_model_at(hosts[0].weights, &demo_id, q4, ranges, 2, &is_smaller));
    for (int i = 0; i < 200; i++) {
        if (weights_model_at(hosts[0].weights, &demo_id, q4, ranges, 2, &is_smaller))
            break;
        link_world_pass(world, 20);
    }
    assert_true(is_smaller);
    weights_release_at(hosts[0].weights, &demo_id, q4, is_smaller);
    check_layers(&hosts[0], q4, 2, 1);
    world_close(2);
}

/* To be streamed, layers are converted into a file of their own, though the original is here. */
static void test_layers_of_ones_own_are_converted_once(void **state)
{
    struct worker_precision q4 = type_of("q4_k");
    const struct worker_range range = {0, n_layers};
    bool is_smaller = true;
    world_open(1);
    add_demo(&hosts[0]);
    assert_int_equal(weights_have_at(hosts[0].weights, &demo_id, q4, 0, n_layers), WORKER_HAS_ALL);
    assert_non_null(weights_model_at(hosts[0].weights, &demo_id, q4, &range, 1, &is_smaller));
    assert_false(is_smaller); /* it is converted while it is loaded */
    weights_release_at(hosts[0].weights, &demo_id, q4, is_smaller);
    q4.is_streamed = true;
    assert_int_equal(weights_have_at(hosts[0].weights, &demo_id, q4, 1, 2), WORKER_LACKS);
    get_layers(&hosts[0], q4, 1, 2);
    check_layers(&hosts[0], q4, 1, 2);
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, 0);
    close_weights(&hosts[0]);
    open_weights(&hosts[0]);
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    q4.is_streamed = false; /* it is here, so it is not converted again */
    check_layers(&hosts[0], q4, 0, n_layers);
    world_close(1);
}

/* What was fetched as stored, of which some layers are here: those of them. */
static void test_fetched_layers_are_converted_too(void **state)
{
    struct worker_precision q4 = type_of("q4_k");
    q4.is_streamed = true;
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 1, 2);
    const uint64_t before = weights_counts(hosts[0].weights).received_bytes;
    get_layers(&hosts[0], q4, 1, 2);
    check_layers(&hosts[0], q4, 1, 2);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, before);
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    assert_true(weights_counts(hosts[0].weights).received_bytes > before);
    world_close(2);
}

static void test_no_room_for_a_file_of_ones_own(void **state)
{
    struct worker_precision q4 = type_of("q4_k");
    struct wish wish = {&hosts[0], q4, 0, n_layers};
    wish.type.is_streamed = true;
    world_open(1);
    close_weights(&hosts[0]);
    hosts[0].options.limit_bytes = 600 * 1024;
    open_weights(&hosts[0]);
    add_demo(&hosts[0]);
    assert_true(link_world_run(world, wish_is_granted, &wish, 10000)); /* as stored */
    check_stored(&hosts[0], q4, 0, n_layers);
    world_close(1);
}

static void test_closing_while_layers_are_converted(void **state)
{
    struct worker_precision q4 = type_of("q4_k");
    q4.is_streamed = true;
    world_open(1);
    add_demo(&hosts[0]);
    for (int i = 0; i < 3; i++) {
        for (int turn = 0; turn <= 2 * i; turn++) {
            weights_fetch_at(hosts[0].weights, &demo_id, q4, 0, n_layers);
            link_world_pass(world, 5);
        }
        close_weights(&hosts[0]);
        open_weights(&hosts[0]);
    }
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    world_close(1);
}

static void test_whoever_got_them_does_not_give_them(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    world_open(3);
    add_demo(&hosts[1]);
    connect_hosts(2, 1);
    get_layers(&hosts[2], q4, 0, n_layers);
    connect_hosts(0, 1);
    get_layers(&hosts[0], q4, 1, 1);
    connect_hosts(0, 2);
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    assert_true(weights_counts(hosts[1].weights).sent_bytes > 0);
    /* at most the header, which it has of the original */
    assert_true(weights_counts(hosts[2].weights).sent_bytes <=
                demo.parts[MANIFEST_HEADER].size + manifest_bytes() + 4096);
    world_close(3);
}

static void test_an_older_node_gives_the_original(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    host_versions[1] = (struct link_version){1, 1};
    world_open(2);
    host_versions[1] = (struct link_version){0};
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    get_layers(&hosts[0], q4, 1, 2);
    check_stored(&hosts[0], q4, 1, 2);
    world_close(2);
}

/* What comes is not what its digest says: that sender is asked for no more of it. */
static void test_a_wrong_digest_is_refused(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    world_open(2);
    close_weights(&hosts[0]);
    hosts[0].options.patience_ms = 1200;
    open_weights(&hosts[0]);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    hosts[0].spoils = true;
    get_layers(&hosts[0], q4, 1, 2);
    check_stored(&hosts[0], q4, 1, 2);
    world_close(2);
}

/* A byte of the original has turned on the sender's disk: it notices, and does not convert it. */
static void test_a_damaged_original_is_not_converted(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    char path[PATH_MAX], name[DIGEST_TEXT];
    world_open(3);
    add_demo(&hosts[1]);
    connect_hosts(2, 1);
    fetch_layers(&hosts[2], 0, n_layers);
    snprintf(path, sizeof path, "%.3900s/models/%s.gguf", hosts[2].folder,
             digest_text(&demo_id, name));
    for (uint32_t i = 1; i < demo.n_parts; i++)
        weights_flip_byte(path, demo.parts[i].offset + demo.parts[i].size / 2);
    connect_hosts(0, 2);
    connect_hosts(0, 1);
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    world_close(3);
}

static bool wish_is_granted_at_last(void *arg)
{
    const struct wish *wish = arg;
    struct weights *weights = wish->host->weights;
    const enum worker_weights have =
        weights_have_at(weights, &demo_id, wish->type, wish->first_layer, wish->n_layers);
    if (have == WORKER_LACKS || have == WORKER_CANNOT_FETCH)
        weights_fetch_at(weights, &demo_id, wish->type, wish->first_layer, wish->n_layers);
    return have == WORKER_HAS_ALL;
}

static void test_memory_runs_out(void **state)
{
    struct wish wish = {&hosts[0], type_of("q4_k"), 1, 1};
    const struct worker_range range = {1, 1};
    bool is_smaller;
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    for (unsigned nth = 1; nth < 100; nth += 1 + nth / 6) {
        close_weights(&hosts[0]);
        weights_folder_remove(hosts[0].folder);
        hosts[0].options.patience_ms = 900;
        open_weights(&hosts[0]);
        mem_fail_nth(nth);
        link_world_run(world, wish_is_granted_at_last, &wish, 200);
        mem_fail_nth(0);
        close_weights(&hosts[0]); /* a header that could not be opened is not tried again */
        open_weights(&hosts[0]);
        if (!host_is_linked(&hosts[0]))
            link_world_run(world, host_is_linked, &hosts[0], 3000);
        if (!link_world_run(world, wish_is_granted_at_last, &wish, 10000))
            fail_msg("allocation %u failed, and layers do not come", nth);
        assert_non_null(
            weights_model_at(hosts[0].weights, &demo_id, wish.type, &range, 1, &is_smaller));
        weights_release_at(hosts[0].weights, &demo_id, wish.type, is_smaller);
        if (is_smaller)
            check_layers(&hosts[0], wish.type, 1, 1);
        else
            check_bytes(&hosts[0], 1, 1);
    }
    world_close(2);
}

/* ---- a node that asks for anything, and says anything ---- */

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
    return hosts[2].n_chunks + hosts[2].n_refused == 200;
}

static void test_a_hostile_node_is_bounded(void **state)
{
    const struct worker_precision q4 = type_of("q4_k");
    world_open(3);
    add_demo(&hosts[1]);
    connect_hosts(2, 1);
    connect_hosts(2, 0);
    close_weights(&hosts[2]);
    for (uint32_t i = 0; i < 200; i++) {
        struct fetch_message request = {
            .type = FETCH_MESSAGE_REQUEST_CONVERTED, .id = i, .model = demo_id};
        request.request.part = 2;
        request.request.size = 64;
        request.request.weight_type = (int)q4.type;
        hosts[2].node->link = mesh_find(hosts[2].node->mesh, hosts[1].node->identity.node_id);
        post(&hosts[2], &request);
    }
    assert_true(link_world_run(world, all_answered, NULL, 5000));
    assert_true(hosts[2].n_chunks >= LIMIT_WEIGHTS_ASKED && hosts[2].n_refused > 0);
    /* chunks that nobody asked for, while another node is asked for such */
    connect_hosts(0, 1);
    hosts[2].node->link = mesh_find(hosts[2].node->mesh, hosts[0].node->identity.node_id);
    for (uint32_t i = 0; i < 200; i++) {
        struct fetch_message chunk = {.type = FETCH_MESSAGE_CHUNK_CONVERTED, .id = i};
        chunk.chunk.bytes = demo_id.bytes;
        chunk.chunk.size = sizeof demo_id.bytes;
        if (i == 100)
            weights_fetch_at(hosts[0].weights, &demo_id, q4, 0, n_layers);
        post(&hosts[2], &chunk);
    }
    get_layers(&hosts[0], q4, 0, n_layers);
    check_layers(&hosts[0], q4, 0, n_layers);
    world_close(3);
}

/* ---- the answer to a request, whatever it is ---- */

static struct weight_source source;
static struct model *source_model;

static struct fetch_message ask(uint32_t part, uint64_t offset, uint32_t size, int type,
                                struct buffer *bytes)
{
    struct fetch_message request = {
        .type = FETCH_MESSAGE_REQUEST_CONVERTED, .id = 7, .model = demo_id};
    struct fetch_message answer;
    request.request.part = part;
    request.request.offset = offset;
    request.request.size = size;
    request.request.weight_type = type;
    buffer_clear(bytes);
    converted_answer(&source, source_model, &request, bytes);
    assert_int_equal(fetch_message_read(bytes->data, bytes->size, &answer, NULL), ERROR_NONE);
    assert_int_equal(answer.id, 7);
    return answer;
}

static void check_range(const struct converted *converted, uint32_t part, uint64_t offset,
                        uint32_t size, int type, const uint8_t *want)
{
    struct buffer bytes = {0};
    struct digest of_bytes, digest;
    const struct fetch_message answer = ask(part, offset, size, type, &bytes);
    assert_int_equal(answer.type, FETCH_MESSAGE_CHUNK_CONVERTED);
    assert_int_equal(answer.chunk.size, size);
    assert_memory_equal(answer.chunk.bytes, want + offset, size);
    assert_int_equal(digest_of(answer.chunk.bytes, size, &of_bytes, NULL), ERROR_NONE);
    assert_int_equal(converted_chunk_digest(&converted->manifest.parts[part].digest, offset,
                                            &of_bytes, &digest, NULL),
                     ERROR_NONE);
    assert_true(digest_equal(&digest, &answer.chunk.digest));
    buffer_deinit(&bytes);
}

/* Whatever is asked, what comes is as long as what was asked for and lies in the part. */
static void ask_anything(struct buffer *bytes)
{
    static const uint32_t sizes[] = {0, 1, 255, 4096, LIMIT_FETCH_CHUNK_BYTES, UINT32_MAX};
    uint64_t draw = 1;
    for (int i = 0; i < 3000; i++) {
        draw = random_mix(draw + 1);
        const uint32_t part = (uint32_t)(draw % (demo.n_parts + 2)), size = sizes[(draw >> 8) % 6];
        const uint64_t offset = draw >> 16 & 1 ? draw >> 20 : (draw >> 20) % 100000;
        const int type = (int)(draw >> 56);
        struct fetch_message request = {
            .type = FETCH_MESSAGE_REQUEST_CONVERTED, .id = 7, .model = demo_id};
        struct fetch_message answer;
        request.request.part = part;
        request.request.offset = offset;
        request.request.size = size;
        request.request.weight_type = type;
        buffer_clear(bytes);
        converted_answer(&source, source_model, &request, bytes);
        assert_int_equal(fetch_message_read(bytes->data, bytes->size, &answer, NULL), ERROR_NONE);
        if (answer.type != FETCH_MESSAGE_CHUNK_CONVERTED)
            assert_int_equal(answer.type, FETCH_MESSAGE_REFUSE);
        else
            assert_true(answer.chunk.size == size && part && part < demo.n_parts &&
                        offset + size <= demo.parts[part].size);
    }
}

static void test_any_range_is_answered_or_refused(void **state)
{
    const int type = (int)type_of("q4_k").type;
    const struct model *smaller;
    struct converted converted;
    struct buffer bytes = {0};
    uint32_t part = 0;
    source_model = open_demo();
    assert_int_equal(weight_source_of_file(&demo, model_file(source_model), &source, NULL), 0);
    assert_int_equal(converted_init(&converted, &demo, source_model, type, NULL), ERROR_NONE);
    assert_int_equal(model_at_precision(source_model, type, &smaller, NULL), ERROR_NONE);
    for (uint32_t i = 1; i < demo.n_parts; i++)
        part = part_set_has(&converted.changes, i) ? i : part;
    const struct gguf_tensor *tensor = model_tensor_at(smaller, part - 1);
    const uint32_t size = (uint32_t)tensor->size;
    assert_true(part && size < demo.parts[part].size);
    assert_int_equal(converted.manifest.parts[part].size, size);
    assert_int_equal(converted.manifest.parts[MANIFEST_HEADER].size,
                     demo.parts[MANIFEST_HEADER].size);
    uint8_t *want = convert_one(source_model, part - 1, tensor->type, size);
    check_range(&converted, part, 0, size, type, want);
    check_range(&converted, part, 1, 1, type, want);
    check_range(&converted, part, size - 1, 1, type, want);
    check_range(&converted, part, size / 3, size / 2, type, want);
    free(want);
    for (uint32_t i = 1; i < demo.n_parts; i++) { /* a part that stays is sent as it is */
        if (part_set_has(&converted.changes, i))
            continue;
        assert_true(digest_equal(&converted.manifest.parts[i].digest, &demo.parts[i].digest));
        assert_int_equal(ask(i, 0, (uint32_t)demo.parts[i].size, type, &bytes).type,
                         FETCH_MESSAGE_CHUNK_CONVERTED);
    }
    ask_anything(&bytes);
    assert_int_equal(ask(MANIFEST_HEADER, 0, 1, type, &bytes).type, FETCH_MESSAGE_REFUSE);
    assert_int_equal(ask(FETCH_MANIFEST, 0, 1, type, &bytes).type, FETCH_MESSAGE_REFUSE);
    assert_int_equal(ask(part, size, 1, type, &bytes).refusal, FETCH_REFUSE_INVALID);
    assert_int_equal(ask(part, 1, size, type, &bytes).refusal, FETCH_REFUSE_INVALID);
    assert_int_equal(ask(demo.n_parts, 0, 1, type, &bytes).refusal, FETCH_REFUSE_LACKS);
    assert_int_equal(ask(part, 0, 1, 255, &bytes).refusal, FETCH_REFUSE_LACKS);
    buffer_deinit(&bytes);
    converted_deinit(&converted);
    weight_source_deinit(&source);
    model_close(source_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers_come_in_a_smaller_type),
        cmocka_unit_test(test_they_are_there_after_a_restart),
        cmocka_unit_test(test_the_original_is_taken_where_it_is),
        cmocka_unit_test(test_layers_in_two_files_become_one),
        cmocka_unit_test(test_layers_of_ones_own_are_converted_once),
        cmocka_unit_test(test_fetched_layers_are_converted_too),
        cmocka_unit_test(test_no_room_for_a_file_of_ones_own),
        cmocka_unit_test(test_closing_while_layers_are_converted),
        cmocka_unit_test(test_whoever_got_them_does_not_give_them),
        cmocka_unit_test(test_an_older_node_gives_the_original),
        cmocka_unit_test(test_a_wrong_digest_is_refused),
        cmocka_unit_test(test_a_damaged_original_is_not_converted),
        cmocka_unit_test(test_memory_runs_out),
        cmocka_unit_test(test_a_hostile_node_is_bounded),
        cmocka_unit_test(test_any_range_is_answered_or_refused),
    };
    return cmocka_run_group_tests(tests, hosts_set_up, hosts_tear_down);
}
