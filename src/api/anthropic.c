/* Answers as Anthropic's clients read them: a message of content blocks. In a stream each block has
 * a start, deltas and a stop: https://docs.anthropic.com/en/docs/build-with-claude/streaming */
#include "api/anthropic.h"

#include "api/json_out.h"
#include "model/model.h"

#include <inttypes.h>
#include <string.h>

static const char *anthropic_reason(const struct completion_choice *choice)
{
    if (strcmp(choice->finish_reason, "length") == 0)
        return "max_tokens";
    if (strcmp(choice->finish_reason, "tool_calls") == 0)
        return "tool_use";
    return choice->text.stop.stopped ? "stop_sequence" : "end_turn";
}

/* "stop_reason":…,"stop_sequence":… */
static void anthropic_write_reason(const struct completion_choice *choice, struct buffer *out)
{
    const struct text *met = choice->text.stop.met;
    buffer_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":", anthropic_reason(choice));
    if (choice->text.stop.stopped && met)
        json_out_string(out, met->data, met->size);
    else
        buffer_text(out, "null");
}

static void anthropic_write_head(const struct completion *completion, struct buffer *out)
{
    buffer_text(out, "\"id\":");
    json_out_text(out, completion->id);
    buffer_text(out, ",\"type\":\"message\",\"role\":\"assistant\",\"model\":");
    json_out_text(out, completion->use.model->id);
}

static void anthropic_write_usage(uint64_t input, uint64_t output, struct buffer *out)
{
    buffer_printf(out,
                  "\"usage\":{\"input_tokens\":%" PRIu64 ",\"cache_creation_input_tokens\":0,"
                  "\"cache_read_input_tokens\":0,\"output_tokens\":%" PRIu64 "}",
                  input, output);
}

/* ---- a stream ---- */

static void anthropic_begin(struct completion *completion)
{
    struct buffer *out = &completion->json;
    buffer_clear(out);
    buffer_text(out, "{\"type\":\"message_start\",\"message\":{");
    anthropic_write_head(completion, out);
    buffer_text(out, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    anthropic_write_usage(completion->prompts[0].count, 0, out);
    buffer_text(out, "}}");
    dialect_send(completion, "message_start");
}

static void anthropic_end_block(struct completion *completion)
{
    if (!completion->in_block)
        return;
    completion->in_block = false;
    buffer_clear(&completion->json);
    buffer_printf(&completion->json, "{\"type\":\"content_block_stop\",\"index\":%u}",
                  completion->n_blocks - 1);
    dialect_send(completion, "content_block_stop");
}

static void anthropic_begin_block(struct completion *completion,
                                  const struct response_choice *shown)
{
    struct buffer *out = &completion->json;
    anthropic_end_block(completion);
    completion->in_block = true;
    completion->block = shown->part;
    buffer_clear(out);
    buffer_printf(out, "{\"type\":\"content_block_start\",\"index\":%u,\"content_block\":",
                  completion->n_blocks++);
    if (shown->part == REPLY_CALL) {
        buffer_text(out, "{\"type\":\"tool_use\",\"id\":");
        json_out_text(out, shown->call_id);
        buffer_text(out, ",\"name\":");
        json_out_string(out, shown->text.data, shown->text.size);
        buffer_text(out, ",\"input\":{}}}");
    } else if (shown->part == REPLY_REASONING) {
        buffer_text(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}");
    } else {
        buffer_text(out, "{\"type\":\"text\",\"text\":\"\"}}");
    }
    dialect_send(completion, "content_block_start");
}

static void anthropic_part(struct completion_choice *choice, const struct response_choice *shown)
{
    static const char *const deltas[] = {
        [REPLY_CONTENT] = "{\"type\":\"text_delta\",\"text\":",
        [REPLY_REASONING] = "{\"type\":\"thinking_delta\",\"thinking\":",
        [REPLY_ARGUMENTS] = "{\"type\":\"input_json_delta\",\"partial_json\":",
    };
    struct completion *completion = choice->completion;
    struct buffer *out = &completion->json;
    if (shown->part == REPLY_CALL || (shown->part != REPLY_ARGUMENTS &&
                                      (!completion->in_block || completion->block != shown->part)))
        anthropic_begin_block(completion, shown);
    if (shown->part == REPLY_CALL)
        return;
    buffer_clear(out);
    buffer_printf(out, "{\"type\":\"content_block_delta\",\"index\":%u,\"delta\":%s",
                  completion->n_blocks - 1, deltas[shown->part]);
    json_out_string(out, shown->text.data, shown->text.size);
    buffer_text(out, "}}");
    dialect_send(completion, "content_block_delta");
}

static void anthropic_end(struct completion *completion, const struct response_usage *usage)
{
    struct buffer *out = &completion->json;
    anthropic_end_block(completion);
    buffer_clear(out);
    buffer_text(out, "{\"type\":\"message_delta\",\"delta\":{");
    anthropic_write_reason(&completion->choices[0], out);
    buffer_text(out, "},");
    anthropic_write_usage(usage->prompt_tokens, usage->completion_tokens, out);
    buffer_text(out, "}");
    dialect_send(completion, "message_delta");
    buffer_clear(out);
    buffer_text(out, "{\"type\":\"message_stop\"}");
    dialect_send(completion, "message_stop");
}

/* ---- a whole answer ---- */

static void anthropic_write_call(const struct chat_call *call, struct buffer *out)
{
    buffer_text(out, "{\"type\":\"tool_use\",\"id\":");
    json_out_text(out, call->id);
    buffer_text(out, ",\"name\":");
    json_out_string(out, call->name.data, call->name.size);
    buffer_text(out, ",\"input\":");
    dialect_object(out, call->arguments.data, call->arguments.size);
    buffer_text(out, "}");
}

static void anthropic_whole(struct completion *completion, const struct response_choice *choice,
                            const struct response_usage *usage, struct buffer *out)
{
    const struct chat_reply *reply = choice->reply;
    buffer_text(out, "{");
    anthropic_write_head(completion, out);
    buffer_text(out, ",\"content\":[");
    if (reply->reasoning.size) {
        buffer_text(out, "{\"type\":\"thinking\",\"signature\":\"\",\"thinking\":");
        json_out_string(out, reply->reasoning.data, reply->reasoning.size);
        buffer_text(out, "}");
    }
    if (choice->text.size || !reply->n_calls) {
        buffer_text(out, reply->reasoning.size ? "," : "");
        buffer_text(out, "{\"type\":\"text\",\"text\":");
        json_out_string(out, choice->text.data ? choice->text.data : "", choice->text.size);
        buffer_text(out, "}");
    }
    for (uint32_t i = 0; i < reply->n_calls; i++) {
        buffer_text(out, i || choice->text.size || reply->reasoning.size ? "," : "");
        anthropic_write_call(&reply->calls[i], out);
    }
    buffer_text(out, "],");
    anthropic_write_reason(&completion->choices[0], out);
    buffer_text(out, ",");
    anthropic_write_usage(usage->prompt_tokens, usage->completion_tokens, out);
    buffer_text(out, "}");
}

static void anthropic_write_count(const struct completion *completion, struct buffer *out)
{
    buffer_printf(out, "{\"input_tokens\":%zu}", completion->prompts[0].count);
}

static const struct dialect anthropic_dialect = {.id = "msg",
                                                 .read = anthropic_read,
                                                 .begin = anthropic_begin,
                                                 .part = anthropic_part,
                                                 .end = anthropic_end,
                                                 .whole = anthropic_whole};
static const struct dialect anthropic_count = {
    .id = "msg", .read = anthropic_read_count, .prepared = anthropic_write_count};

void anthropic_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_CHAT, &anthropic_dialect);
}

void anthropic_count_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_CHAT, &anthropic_count);
}
