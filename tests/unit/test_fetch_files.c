/* Fetching with real files: a model comes from a file and from a shelf, past a liar. */
#include "base/limits.h"
#include "model/gguf_file.h"
#include "weights/fetch.h"
#include "weights/manifest_make.h"
#include "weights/shelf.h"
#include "weights/weight_source.h"
#include "weights_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Asks a source as a link would: by messages. `lies`: a bit of every chunk is flipped on the
 * way. */
static void over_the_wire(struct fetch *fetch, const struct fetch_action *ask,
                          const struct weight_source *source, bool lies, struct shelf_model *into)
{
    struct buffer request = {0}, answer = {0};
    struct fetch_message message = {
        .type = FETCH_MESSAGE_REQUEST, .id = ask->id, .model = source->model};
    message.request.part = ask->part;
    message.request.offset = ask->offset;
    message.request.size = ask->size;
    fetch_message_write(&message, &request);
    assert_int_equal(fetch_message_read(request.data, request.size, &message, NULL), 0);
    weight_source_answer(source, &message, &answer);
    if (lies)
        answer.data[answer.size - 1] ^= 4;
    assert_int_equal(fetch_message_read(answer.data, answer.size, &message, NULL), 0);
    struct fetch_action where;
    if (message.type == FETCH_MESSAGE_REFUSE)
        fetch_refused(fetch, 1, ask->peer, message.id, message.refusal != FETCH_REFUSE_BUSY);
    else if (fetch_chunk(fetch, 1, ask->peer, message.id, message.chunk.size, &where) ==
             FETCH_WRITE)
        assert_int_equal(shelf_model_write(into, where.part, where.offset, message.chunk.bytes,
                                           message.chunk.size, NULL),
                         0);
    buffer_deinit(&request);
    buffer_deinit(&answer);
}

/* Asks all that may be asked at once, then lets it arrive. Peer 1 lies. */
static void one_round(struct fetch *fetch, const struct weight_source *sources,
                      struct shelf_model *into)
{
    struct fetch_action asks[LIMIT_FETCH_REQUESTS], action;
    uint32_t n_asks = 0, n = 0;
    for (; (action = fetch_next(fetch, 1)).kind != FETCH_NOTHING; n++) {
        if (action.kind == FETCH_ASK)
            asks[n_asks++] = action;
        if (action.kind == FETCH_VERIFY) {
            bool good = !shelf_model_verify(into, action.part, NULL);
            if (good)
                assert_int_equal(shelf_model_keep(into, &action.part, 1, NULL), 0);
            fetch_verified(fetch, 1, action.part, good);
        }
    }
    assert_true(n);
    for (uint32_t i = 0; i < n_asks; i++)
        over_the_wire(fetch, &asks[i], &sources[asks[i].peer], asks[i].peer == 1, into);
}

static void test_a_model_from_a_file_a_shelf_and_a_liar(void **state)
{
    (void)state;
    char folder[PATH_MAX], path[PATH_MAX], here[PATH_MAX + 8], there[PATH_MAX + 8];
    struct gguf_file *file;
    struct manifest manifest;
    struct shelf *shelves[2];
    struct shelf_model *from, *into;
    struct weight_source sources[3];
    struct error err;
    weights_folder_make(folder);
    snprintf(here, sizeof here, "%s/here", folder);
    snprintf(there, sizeof there, "%s/there", folder);
    assert_int_equal(gguf_file_open(weights_golden("gpt-oss", path), &file, NULL), 0);
    assert_int_equal(manifest_make(file, NULL, &manifest, NULL), 0);
    assert_int_equal(shelf_open(here, &(struct shelf_options){0}, &shelves[0], NULL), 0);
    assert_int_equal(shelf_open(there, &(struct shelf_options){0}, &shelves[1], NULL), 0);
    assert_int_equal(shelf_model_open(shelves[0], &manifest, &into, NULL), 0);
    assert_int_equal(shelf_model_open(shelves[1], &manifest, &from, NULL), 0);
    for (uint32_t i = 0; i < manifest.n_parts; i += 2) {
        const struct manifest_part *part = &manifest.parts[i];
        assert_int_equal(
            shelf_model_write(from, i, 0, gguf_file_bytes(file) + part->offset, part->size, NULL),
            0);
        assert_int_equal(shelf_model_keep(from, &i, 1, NULL), 0);
    }
    assert_int_equal(weight_source_of_file(&manifest, file, &sources[0], NULL), 0);
    assert_int_equal(weight_source_of_file(&manifest, file, &sources[1], NULL), 0);
    assert_int_equal(weight_source_of_shelf(from, &sources[2], NULL), 0);

    struct part_set wanted;
    struct fetch *fetch;
    part_set_init(&wanted, manifest.n_parts, NULL);
    part_set_add_all(&wanted);
    assert_int_equal(fetch_new(&manifest, &wanted, &(struct fetch_settings){.chunk_bytes = 4096}, 0,
                               &fetch, NULL),
                     0);
    for (uint32_t i = 0; i < 3; i++) {
        struct buffer have = {0};
        struct fetch_message message;
        struct part_set has;
        struct topology_link link = {.up = true};
        uint32_t peer;
        weight_source_have(&sources[i], &have);
        assert_int_equal(fetch_message_read(have.data, have.size, &message, NULL), 0);
        part_set_init(&has, message.have.n_parts, NULL);
        fetch_message_parts(&message, &has);
        assert_int_equal(part_set_count(&has),
                         i < 2 ? manifest.n_parts : (manifest.n_parts + 1) / 2);
        assert_int_equal(message.have.manifest_bytes, sources[i].manifest_bytes.size);
        assert_int_equal(fetch_peer_add(fetch, 0, &link, &has, &peer, NULL), 0);
        part_set_deinit(&has);
        buffer_deinit(&have);
    }
    while (fetch_status(fetch, &err) == FETCH_RUNNING)
        one_round(fetch, sources, into);
    assert_int_equal(fetch_status(fetch, NULL), FETCH_DONE);
    assert_true(fetch_peer_notes(fetch, 1).has_lied && !fetch_peer_notes(fetch, 0).has_lied);
    assert_int_equal(part_set_count(shelf_model_has(into)), manifest.n_parts);
    for (uint32_t i = 0; i < manifest.n_parts; i++)
        assert_int_equal(shelf_model_verify(into, i, NULL), 0);

    fetch_free(fetch);
    part_set_deinit(&wanted);
    for (int i = 0; i < 3; i++)
        weight_source_deinit(&sources[i]);
    shelf_model_close(from);
    shelf_model_close(into);
    shelf_close(shelves[0]);
    shelf_close(shelves[1]);
    manifest_deinit(&manifest);
    gguf_file_close(file);
    weights_folder_remove(folder);
}

static enum fetch_message_type ask_source(const struct weight_source *source, uint32_t part,
                                          uint64_t offset, uint32_t size, enum fetch_refusal *why)
{
    struct buffer answer = {0};
    struct fetch_message message = {.type = FETCH_MESSAGE_REQUEST, .id = 5, .model = source->model};
    message.request.part = part;
    message.request.offset = offset;
    message.request.size = size;
    weight_source_answer(source, &message, &answer);
    assert_int_equal(fetch_message_read(answer.data, answer.size, &message, NULL), 0);
    assert_int_equal(message.id, 5);
    if (message.type == FETCH_MESSAGE_REFUSE)
        *why = message.refusal;
    else
        assert_int_equal(message.chunk.size, size);
    buffer_deinit(&answer);
    return message.type;
}

static void test_a_source_gives_what_it_has_and_nothing_of_a_changed_file(void **state)
{
    (void)state;
    char folder[PATH_MAX], path[PATH_MAX + 8], golden[PATH_MAX];
    struct gguf_file *file;
    struct manifest manifest;
    struct weight_source source;
    enum fetch_refusal why;
    weights_folder_make(folder);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    weights_copy_file(weights_golden("qwen3", golden), path);
    assert_int_equal(
        gguf_file_open(path, &file, NULL) || manifest_make(file, NULL, &manifest, NULL), 0);
    assert_int_equal(weight_source_of_file(&manifest, file, &source, NULL), 0);
    uint64_t size = manifest.parts[1].size;
    assert_int_equal(ask_source(&source, 1, size - 10, 10, &why), FETCH_MESSAGE_CHUNK);
    assert_int_equal(
        ask_source(&source, FETCH_MANIFEST, 0, (uint32_t)source.manifest_bytes.size, &why),
        FETCH_MESSAGE_CHUNK);
    assert_int_equal(ask_source(&source, 1, size - 10, 11, &why), FETCH_MESSAGE_REFUSE);
    assert_int_equal(why, FETCH_REFUSE_INVALID);
    assert_int_equal(ask_source(&source, 1, UINT64_MAX, 11, &why), FETCH_MESSAGE_REFUSE);
    assert_int_equal(ask_source(&source, manifest.n_parts, 0, 1, &why), FETCH_MESSAGE_REFUSE);
    assert_int_equal(why, FETCH_REFUSE_LACKS);
    weights_flip_byte(path, manifest.parts[2].offset);
    assert_int_equal(ask_source(&source, 1, 0, 10, &why), FETCH_MESSAGE_REFUSE);
    assert_int_equal(why, FETCH_REFUSE_LACKS);
    weight_source_deinit(&source);
    manifest_deinit(&manifest);
    gguf_file_close(file);
    weights_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_model_from_a_file_a_shelf_and_a_liar),
        cmocka_unit_test(test_a_source_gives_what_it_has_and_nothing_of_a_changed_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
