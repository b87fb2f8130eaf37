/* Requests of other interfaces, and of chats with tools: any bytes. The first byte chooses. What a
 * dialect writes anew must be JSON that the chats' reader takes, or refuses with a reason. */
#include "fuzz.h"

#include "api/anthropic.h"
#include "api/chat_prompt.h"
#include "api/llama_server.h"
#include "api/ollama.h"
#include "api/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef bool (*dialect_reader)(struct completion *completion, const char *body, size_t size,
                               struct buffer *out, struct api_error *err);

static const dialect_reader readers[] = {
    anthropic_read, anthropic_read_count, ollama_read_chat, ollama_read_generate,
    NULL,           responses_read,       llama_read,       llama_read_infill};

static void read_request(enum generation_kind kind, const char *body, size_t size, bool translated)
{
    static const char *const formats[] = {"{% tools %}", "", "tools ['arguments'] +"};
    struct generation_request request;
    struct api_error err = {0};
    if (!generation_request_parse(kind, body, size, &request, &err)) {
        FUZZ_CHECK(err.status >= 400 && err.message[0]);
        FUZZ_CHECK(!translated || !err.code || strcmp(err.code, "invalid_json") != 0);
        return;
    }
    for (size_t i = 0; kind == GENERATION_CHAT && i < sizeof formats / sizeof *formats; i++) {
        struct template_traits traits = template_traits_of(formats[i], strlen(formats[i]));
        struct buffer out = {0};
        struct tool_table tools = {0};
        FUZZ_CHECK(chat_prompt_write(&request, &traits, &out, &err) || err.status == 400);
        FUZZ_CHECK(tool_table_make(&tools, request.tools));
        buffer_deinit(&out);
        tool_table_deinit(&tools);
    }
    generation_request_deinit(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct completion completion = {.kind = GENERATION_CHAT};
    struct buffer out = {0};
    struct api_error err = {0};
    if (!size)
        return 0;
    const dialect_reader reader = readers[data[0] % (sizeof readers / sizeof *readers)];
    const char *body = (const char *)data + 1;
    if (reader == llama_read || reader == llama_read_infill)
        completion.kind = GENERATION_COMPLETION;
    if (!reader)
        read_request(GENERATION_CHAT, body, size - 1, false);
    else if (reader(&completion, body, size - 1, &out, &err))
        read_request(completion.kind, out.data, out.size, true);
    else
        FUZZ_CHECK(err.status >= 400 && err.message[0]);
    buffer_deinit(&out);
    buffer_deinit(&completion.history);
    return 0;
}
