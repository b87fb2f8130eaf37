/* What a node and a device's process say to each other: any bytes, as a word of the socket, as what
 * is asked of a cache, or as an answer. What is read lies within the limits and the bytes, and says
 * the same after it has been written again. */
#include "fuzz.h"

#include "pipeline/child_cache.h"
#include "pipeline/child_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_same(struct buffer *again, const uint8_t *data, size_t size)
{
    FUZZ_CHECK(!again->failed && again->size == size && memcmp(again->data, data, size) == 0);
    buffer_deinit(again);
}

static void try_word(const uint8_t *data, size_t size)
{
    static struct child_word word;
    struct error err = {0};
    struct buffer again = {0};
    if (child_word_read(data, size, &word, &err)) {
        FUZZ_CHECK(err.text[0]);
        return;
    }
    FUZZ_CHECK(word.n_stages <= LIMIT_STAGES && word.n_ranges <= CHILD_RANGES_MAX);
    FUZZ_CHECK(strlen(word.path) < sizeof word.path && strlen(word.text) < sizeof word.text);
    for (uint32_t i = 0; i < word.n_ranges; i++)
        FUZZ_CHECK(word.ranges[i].stage < LIMIT_STAGES);
    child_word_write(&word, &again);
    check_same(&again, data, size);
}

static void write_message(const struct cache_message *message, struct buffer *out)
{
    if (message->kind == CACHE_OFFER) {
        cache_write_offer(&message->route, &message->offer, out);
        return;
    }
    cache_write_rows(&message->route, &message->rows.run, message->rows.row_bytes, out);
    buffer_append(out, message->rows.bytes, message->rows.run.n_rows * message->rows.row_bytes);
}

static void try_cache(const uint8_t *data, size_t size)
{
    static struct child_cache asked;
    struct error err = {0};
    struct buffer again = {0}, body = {0};
    if (child_cache_read(data, size, &asked, &err)) {
        FUZZ_CHECK(err.text[0]);
        return;
    }
    child_cache_write_head(asked.kind, asked.stage, asked.number, &again);
    if (asked.kind == CHILD_CACHE_READ)
        child_cache_write_run(&asked.run, &body);
    else
        write_message(&asked.message, &body);
    buffer_append(&again, body.data, body.size);
    buffer_deinit(&body);
    check_same(&again, data, size);
}

static void try_answer(const uint8_t *data, size_t size)
{
    struct child_answer answer;
    struct error err = {0};
    struct buffer again = {0};
    if (child_answer_read(data, size, &answer, &err)) {
        FUZZ_CHECK(err.text[0]);
        return;
    }
    child_answer_write_head(answer.number, answer.code, &again);
    if (answer.size)
        buffer_append(&again, answer.bytes, answer.size);
    check_same(&again, data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_word(data, size);
    try_cache(data, size);
    try_answer(data, size);
    return 0;
}
