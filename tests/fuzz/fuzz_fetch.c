/* Messages about weights from other nodes: any bytes. What is read is within the limits, reads the
 * same after it has been written, and a source answers a request with what was asked or a
 * refusal. */
#include "fuzz.h"

#include "base/limits.h"
#include "weights/weight_source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct manifest_part parts[3] = {{.size = 100},
                                        {.name = "a", .offset = 100, .size = 5000},
                                        {.name = "b", .offset = 5120, .size = 7}};
static struct manifest manifest = {.size = 5127, .n_parts = 3, .parts = parts};
static struct part_set has;
static struct weight_source source;

static void make_source(void)
{
    char path[] = "/tmp/medley-fuzz-XXXXXX";
    int fd = mkstemp(path);
    FUZZ_CHECK(fd >= 0 && unlink(path) == 0 && ftruncate(fd, 5127) == 0);
    FUZZ_CHECK(!part_set_init(&has, 3, NULL));
    part_set_add(&has, 1);
    source = (struct weight_source){.manifest = &manifest, .has = &has, .fd = fd};
    manifest_write(&manifest, &source.manifest_bytes);
}

static void answer(const struct fetch_message *request)
{
    struct buffer bytes = {0};
    struct fetch_message back;
    source.model = request->model;
    weight_source_answer(&source, request, &bytes);
    FUZZ_CHECK(!fetch_message_read(bytes.data, bytes.size, &back, NULL) && back.id == request->id);
    bool is_manifest = request->request.part == FETCH_MANIFEST;
    if (back.type == FETCH_MESSAGE_CHUNK) {
        FUZZ_CHECK(request->request.part == 1 || is_manifest);
        FUZZ_CHECK(back.chunk.size == request->request.size &&
                   request->request.offset + back.chunk.size <=
                       (is_manifest ? source.manifest_bytes.size : 5000));
    } else {
        FUZZ_CHECK(back.type == FETCH_MESSAGE_REFUSE);
    }
    buffer_deinit(&bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fetch_message message, again;
    struct error err = {0};
    if (!source.manifest)
        make_source();
    if (fetch_message_read(data, size, &message, &err)) {
        FUZZ_CHECK(err.text[0]);
        return 0;
    }
    struct buffer bytes = {0}, twice = {0};
    fetch_message_write(&message, &bytes);
    FUZZ_CHECK(bytes.size <= size && !fetch_message_read(bytes.data, bytes.size, &again, NULL));
    fetch_message_write(&again, &twice);
    FUZZ_CHECK(twice.size == bytes.size && memcmp(twice.data, bytes.data, bytes.size) == 0);
    if (message.type == FETCH_MESSAGE_REQUEST)
        answer(&message);
    if (message.type == FETCH_MESSAGE_HAVE) {
        struct part_set set;
        FUZZ_CHECK(message.have.n_parts <= LIMIT_MODEL_TENSORS + 1 &&
                   !part_set_init(&set, message.have.n_parts, NULL));
        fetch_message_parts(&message, &set);
        buffer_clear(&twice);
        fetch_message_write_have(&message.model, message.have.manifest_bytes, &set, &twice);
        FUZZ_CHECK(twice.size == bytes.size && memcmp(twice.data, bytes.data, bytes.size) == 0);
        part_set_deinit(&set);
    }
    buffer_deinit(&bytes);
    buffer_deinit(&twice);
    return 0;
}
