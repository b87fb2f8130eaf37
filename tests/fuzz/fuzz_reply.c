/* What a model may write: any bytes. The first byte chooses the format, the second the rest. */
#include "fuzz.h"

#include "reply_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const formats[] = {
    "harmony", "deepseek", "kimi",    "minimax", "mistral", "qwen3-coder", "glm",        "granite",
    "hermes",  "llama3",   "generic", "dsml",    "gemma4",  "kimi-k3",     "minimax-m3", "hunyuan"};
static const struct think_marks think = {"<think>", "</think>"};

static const struct tool_format *format_of(const uint8_t *data)
{
    return tool_format_named(formats[data[0] % (sizeof formats / sizeof *formats)]);
}

static void read_in_pieces(const uint8_t *data, size_t size, size_t piece, struct reply_text *out)
{
    const char *text = (const char *)data + 2;
    const struct tool_format *format = format_of(data);
    const struct think_marks *own = format->think;
    reply_text_init(out, format->name,
                    !(data[1] & 1) ? NULL
                    : own          ? own
                                   : &think,
                    data[1] & 2, data[1] & 4);
    for (size_t at = 0; at < size - 2; at += piece)
        reply_reader_push(&out->reply, text + at, size - 2 - at < piece ? size - 2 - at : piece);
    reply_reader_finish(&out->reply);
    FUZZ_CHECK(!out->reply.failed && !out->reply.held.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reply_text whole, cut;
    if (size < 2 || size > 4096)
        return 0;
    read_in_pieces(data, size, size, &whole);
    read_in_pieces(data, size, 1 + (data[1] >> 4), &cut);
    FUZZ_CHECK(whole.text.size == cut.text.size);
    FUZZ_CHECK(!whole.text.size || memcmp(whole.text.data, cut.text.data, cut.text.size) == 0);
    if (!(data[1] & 7) && !format_of(data)->silent[0] &&
        format_of(data)->style != TOOL_STYLE_CHANNELS) { /* no marks: the text as it is */
        FUZZ_CHECK(!whole.text.size || whole.text.size == size - 2 + strlen("[say]"));
    }
    reply_text_deinit(&whole);
    reply_text_deinit(&cut);
    return 0;
}
