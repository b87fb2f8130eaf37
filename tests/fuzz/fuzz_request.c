/* Requests and answers from other nodes: any bytes, as a run of messages. What is read keeps the
 * limits, and reads the same after it has been written again. */
#include "fuzz.h"

#include "request/request_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_tokens(struct request_message *message, struct buffer *run)
{
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
    size_t last = SIZE_MAX;
    for (uint32_t i = 0; i < message->tokens.count; i++) {
        struct token_event event;
        request_next_token(message, &event, top);
        FUZZ_CHECK(event.token >= 0 && event.token < LIMIT_VOCAB &&
                   event.n_top <= LIMIT_TOP_LOGPROBS);
        request_write_token(message->id, &event, &last, run);
    }
}

static void write_row(const struct request_message *message, struct buffer *run)
{
    float *values = malloc(message->row.n_values * sizeof *values);
    FUZZ_CHECK(values);
    memcpy(values, message->row.values, message->row.n_values * sizeof *values);
    request_write_row(message->id, message->row.position, values, message->row.n_values, run);
    free(values);
}

/* Written again; nothing for kinds that this version does not know. */
static void write_again(struct request_message *message, struct buffer *run)
{
    switch (message->kind) {
    case REQUEST_SUBMIT:
        FUZZ_CHECK(!request_check(&message->submit.request, LIMIT_VOCAB, NULL) &&
                   message->submit.instance[0]);
        (message->submit.onward ? request_write_submit_onward : request_write_submit)(
            message->id, message->submit.instance, &message->submit.request, run);
        break;
    case REQUEST_ACCEPTED:
        request_write_accepted(message->id, run);
        break;
    case REQUEST_REFUSED:
        FUZZ_CHECK(message->error.code);
        request_write_refused(message->id, &message->error, run);
        break;
    case REQUEST_TOKENS:
        write_tokens(message, run);
        break;
    case REQUEST_ROW:
        write_row(message, run);
        break;
    case REQUEST_DONE:
        FUZZ_CHECK((message->done.reason == FINISH_ERROR) == (message->error.code != ERROR_NONE));
        request_write_done(message->id, message->done.reason, &message->done.usage, &message->error,
                           message->done.lost, run);
        break;
    case REQUEST_CANCEL:
        request_write_cancel(message->id, run);
        break;
    default:
        break;
    }
}

static void check_again(const struct request_message *message, const struct buffer *run)
{
    struct bytes_reader reader = {(const unsigned char *)run->data, run->size, false};
    struct request_message again;
    const void *bytes = NULL;
    size_t size = 0;
    if (!run->size)
        return;
    FUZZ_CHECK(!run->failed && !request_next(&reader, &bytes, &size, NULL) && bytes &&
               !reader.left);
    FUZZ_CHECK(!request_read(bytes, size, &again, NULL));
    FUZZ_CHECK(again.kind == message->kind && again.id == message->id);
    request_message_deinit(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes_reader reader = {data, size, false};
    const void *bytes = NULL;
    size_t n = 0;
    while (!request_next(&reader, &bytes, &n, NULL) && bytes) {
        struct request_message message;
        struct error err = {0};
        struct buffer run = {0};
        if (request_read(bytes, n, &message, &err)) {
            FUZZ_CHECK(err.text[0] && !message.memory);
            continue;
        }
        write_again(&message, &run);
        check_again(&message, &run);
        request_message_deinit(&message);
        buffer_deinit(&run);
    }
    return 0;
}
