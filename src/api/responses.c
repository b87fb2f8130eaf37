/* Answers as OpenAI's Responses: a row of items, which are reasoning, a message, and calls. In a
 * stream each has an added, deltas and a done: .../api-reference/responses-streaming */
#include "api/responses.h"

#include "api/json_out.h"
#include "model/model.h"

#include <inttypes.h>
#include <string.h>

static const char *responses_status(const struct completion *completion)
{
    const char *reason = completion->choices[0].finish_reason;
    return !reason ? "in_progress" : strcmp(reason, "length") == 0 ? "incomplete" : "completed";
}

/* ---- items ---- */

static void responses_item_head(const struct completion *completion, const char *type,
                                uint32_t index, struct buffer *out)
{
    buffer_printf(out, "{\"type\":\"%s\",\"id\":\"item_%u_%s\"", type, index, completion->id);
}

static void responses_write_thought(struct text text, struct buffer *out)
{
    buffer_text(out, "{\"type\":\"reasoning_text\",\"text\":");
    json_out_string(out, text.data ? text.data : "", text.size);
    buffer_text(out, "}");
}

static void responses_write_reasoning(const struct completion *completion, uint32_t index,
                                      struct text text, struct buffer *out)
{
    responses_item_head(completion, "reasoning", index, out);
    buffer_text(out, ",\"summary\":[],\"content\":[");
    responses_write_thought(text, out);
    buffer_text(out, "]}");
}

static void responses_write_part(struct text text, struct buffer *out)
{
    buffer_text(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    json_out_string(out, text.data ? text.data : "", text.size);
    buffer_text(out, "}");
}

static void responses_write_message(const struct completion *completion, uint32_t index,
                                    const struct text *text, struct buffer *out)
{
    responses_item_head(completion, "message", index, out);
    buffer_printf(out, ",\"role\":\"assistant\",\"status\":\"%s\",\"content\":[",
                  text ? "completed" : "in_progress");
    if (text)
        responses_write_part(*text, out);
    buffer_text(out, "]}");
}

static void responses_write_call(const struct completion *completion, uint32_t index,
                                 const char *call_id, struct text name,
                                 const struct buffer *arguments, struct buffer *out)
{
    responses_item_head(completion, "function_call", index, out);
    buffer_text(out, ",\"call_id\":");
    json_out_text(out, call_id);
    buffer_text(out, ",\"name\":");
    json_out_string(out, name.data, name.size);
    buffer_text(out, ",\"arguments\":");
    json_out_string(out, arguments && arguments->data ? arguments->data : "",
                    arguments ? arguments->size : 0);
    buffer_printf(out, ",\"status\":\"%s\"}", arguments ? "completed" : "in_progress");
}

static void responses_write_items(const struct completion *completion, struct buffer *out)
{
    const struct completion_choice *choice = &completion->choices[0];
    const struct chat_reply *reply = &choice->reply;
    const struct text text = {choice->whole.data, choice->whole.size};
    uint32_t n = 0;
    if (reply->reasoning.size)
        responses_write_reasoning(completion, n++,
                                  (struct text){reply->reasoning.data, reply->reasoning.size}, out);
    if (text.size || !reply->n_calls) {
        buffer_text(out, n ? "," : "");
        responses_write_message(completion, n++, &text, out);
    }
    for (uint32_t i = 0; reply->calls && i < reply->n_calls; i++) {
        const struct chat_call *call = &reply->calls[i];
        buffer_text(out, n ? "," : "");
        responses_write_call(completion, n++, call->id,
                             (struct text){call->name.data, call->name.size}, &call->arguments,
                             out);
    }
}

/* ---- the response ---- */

static void responses_write_usage(const struct response_usage *usage, struct buffer *out)
{
    buffer_printf(
        out,
        ",\"usage\":{\"input_tokens\":%" PRIu64
        ",\"input_tokens_details\":{\"cached_tokens\":%" PRIu64 "},\"output_tokens\":%" PRIu64
        ",\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":%" PRIu64 "}",
        usage->prompt_tokens, usage->cached_tokens, usage->completion_tokens,
        usage->prompt_tokens + usage->completion_tokens);
}

static void responses_write_choice(const struct generation_request *request, struct buffer *out)
{
    static const char *const names[] = {[TOOL_CHOICE_AUTO] = "\"auto\"",
                                        [TOOL_CHOICE_NONE] = "\"none\"",
                                        [TOOL_CHOICE_REQUIRED] = "\"required\""};
    if (!request->tool_name.data) {
        buffer_text(out, names[request->tool_choice]);
        return;
    }
    buffer_text(out, "{\"type\":\"function\",\"name\":");
    json_out_string(out, request->tool_name.data, request->tool_name.size);
    buffer_text(out, "}");
}

/* usage NULL: it is only beginning. */
static void responses_write(const struct completion *completion, const struct response_usage *usage,
                            struct buffer *out)
{
    const char *status = responses_status(completion);
    buffer_text(out, "{\"id\":");
    json_out_text(out, completion->id);
    buffer_printf(out, ",\"object\":\"response\",\"created_at\":%" PRIu64 ",\"status\":\"%s\"",
                  completion->created, status);
    buffer_text(out, ",\"error\":null,\"incomplete_details\":");
    buffer_text(out,
                strcmp(status, "incomplete") == 0 ? "{\"reason\":\"max_output_tokens\"}" : "null");
    buffer_text(out, ",\"instructions\":null,\"metadata\":{},\"model\":");
    json_out_text(out, completion->use.model->id);
    buffer_printf(out,
                  ",\"parallel_tool_calls\":%s,\"tools\":[],\"temperature\":%g,"
                  "\"top_p\":%g,\"tool_choice\":",
                  completion->request.one_call ? "false" : "true",
                  (double)completion->request.sampler.temperature,
                  (double)completion->request.sampler.top_p);
    responses_write_choice(&completion->request, out);
    buffer_text(out, ",\"output\":[");
    if (usage)
        responses_write_items(completion, out);
    buffer_text(out, "]");
    if (usage)
        responses_write_usage(usage, out);
    buffer_text(out, "}");
}

/* What was said is kept, so that the next request may go on from it. */
static void responses_keep(struct completion *completion)
{
    const struct completion_choice *choice = &completion->choices[0];
    const struct chat_reply *reply = &choice->reply;
    struct buffer *history = &completion->history;
    if (!completion->keeps)
        return;
    buffer_text(history, history->size ? ",{\"role\":\"assistant\",\"content\":"
                                       : "{\"role\":\"assistant\",\"content\":");
    json_out_string(history, choice->whole.data ? choice->whole.data : "", choice->whole.size);
    for (uint32_t i = 0; reply->calls && i < reply->n_calls; i++) {
        const struct chat_call *call = &reply->calls[i];
        buffer_text(history, i ? ",{\"type\":\"function\",\"id\":"
                               : ",\"tool_calls\":[{\"type\":\"function\",\"id\":");
        json_out_text(history, call->id);
        buffer_text(history, ",\"function\":{\"name\":");
        json_out_string(history, call->name.data, call->name.size);
        buffer_text(history, ",\"arguments\":");
        json_out_string(history, call->arguments.data ? call->arguments.data : "",
                        call->arguments.size);
        buffer_text(history, "}}");
    }
    buffer_text(history, reply->calls && reply->n_calls ? "]}" : "}");
    response_store_keep(completion->work.server->responses, completion->id, completion->grant,
                        history);
}

static void responses_whole(struct completion *completion, const struct response_choice *choice,
                            const struct response_usage *usage, struct buffer *out)
{
    (void)choice;
    responses_write(completion, usage, out);
    responses_keep(completion);
}

/* ---- a stream ---- */

static void responses_event(struct completion *completion, const char *type)
{
    struct buffer *out = &completion->json;
    buffer_clear(out);
    buffer_printf(out, "{\"type\":\"%s\",\"sequence_number\":%u", type, completion->n_events++);
}

static void responses_send(struct completion *completion, const char *type)
{
    buffer_text(&completion->json, "}");
    dialect_send(completion, type);
}

static void responses_send_whole(struct completion *completion, const char *type,
                                 const struct response_usage *usage)
{
    responses_event(completion, type);
    buffer_text(&completion->json, ",\"response\":");
    responses_write(completion, usage, &completion->json);
    responses_send(completion, type);
}

static void responses_begin(struct completion *completion)
{
    responses_send_whole(completion, "response.created", NULL);
    responses_send_whole(completion, "response.in_progress", NULL);
}

/* ,"output_index":…: of the item at hand; with its id where it is not the item itself. */
static void responses_place(struct completion *completion, bool with_id)
{
    const uint32_t index = completion->n_blocks - 1;
    buffer_printf(&completion->json, ",\"output_index\":%u", index);
    if (with_id)
        buffer_printf(&completion->json, ",\"item_id\":\"item_%u_%s\"", index, completion->id);
    if (with_id && completion->block != REPLY_CALL)
        buffer_text(&completion->json, ",\"content_index\":0");
}

static void responses_piece(struct completion *completion, const char *type, const char *member,
                            struct text text)
{
    responses_event(completion, type);
    responses_place(completion, true);
    dialect_member(&completion->json, member);
    json_out_string(&completion->json, text.data ? text.data : "", text.size);
    if (completion->block == REPLY_CONTENT)
        buffer_text(&completion->json, ",\"logprobs\":[]");
    responses_send(completion, type);
}

static void responses_content_part(struct completion *completion, const char *type,
                                   struct text text)
{
    responses_event(completion, type);
    responses_place(completion, true);
    buffer_text(&completion->json, ",\"part\":");
    if (completion->block == REPLY_REASONING)
        responses_write_thought(text, &completion->json);
    else
        responses_write_part(text, &completion->json);
    responses_send(completion, type);
}

static struct text responses_rest(const struct buffer *buffer, size_t from)
{
    return (struct text){buffer->data ? buffer->data + from : "", buffer->size - from};
}

static void responses_end_block(struct completion *completion)
{
    static const char done[] = "response.output_item.done";
    const struct completion_choice *choice = &completion->choices[0];
    const struct chat_reply *reply = &choice->reply;
    const uint32_t index = completion->n_blocks - 1;
    const size_t from = completion->block_from;
    struct buffer *out = &completion->json;
    if (!completion->in_block)
        return;
    completion->in_block = false;
    if (completion->block == REPLY_REASONING) {
        const struct text text = responses_rest(&reply->reasoning, from);
        responses_piece(completion, "response.reasoning_text.done", "text", text);
        responses_content_part(completion, "response.content_part.done", text);
        responses_event(completion, done);
        responses_place(completion, false);
        buffer_text(out, ",\"item\":");
        responses_write_reasoning(completion, index, text, out);
    } else if (completion->block == REPLY_CONTENT) {
        const struct text text = responses_rest(&choice->whole, from);
        responses_piece(completion, "response.output_text.done", "text", text);
        responses_content_part(completion, "response.content_part.done", text);
        responses_event(completion, done);
        responses_place(completion, false);
        buffer_text(out, ",\"item\":");
        responses_write_message(completion, index, &text, out);
    } else {
        const struct chat_call *call = &reply->calls[from];
        responses_piece(completion, "response.function_call_arguments.done", "arguments",
                        responses_rest(&call->arguments, 0));
        responses_event(completion, done);
        responses_place(completion, false);
        buffer_text(out, ",\"item\":");
        responses_write_call(completion, index, call->id,
                             (struct text){call->name.data, call->name.size}, &call->arguments,
                             out);
    }
    responses_send(completion, done);
}

static void responses_begin_block(struct completion *completion,
                                  const struct response_choice *shown)
{
    static const char added[] = "response.output_item.added";
    const struct completion_choice *choice = &completion->choices[0];
    struct buffer *out = &completion->json;
    const uint32_t index = completion->n_blocks;
    responses_end_block(completion);
    completion->in_block = true;
    completion->n_blocks++;
    completion->block = shown->part;
    completion->block_from = shown->part == REPLY_CALL        ? shown->call
                             : shown->part == REPLY_REASONING ? choice->reply.reasoning.size
                                                              : choice->whole.size;
    if (shown->part != REPLY_CALL) /* the first piece is kept already */
        completion->block_from -= shown->text.size;
    responses_event(completion, added);
    responses_place(completion, false);
    buffer_text(out, ",\"item\":");
    if (shown->part == REPLY_REASONING) {
        responses_item_head(completion, "reasoning", index, out);
        buffer_text(out, ",\"summary\":[],\"content\":[]}");
    } else if (shown->part == REPLY_CONTENT) {
        responses_write_message(completion, index, NULL, out);
    } else {
        responses_write_call(completion, index, shown->call_id, shown->text, NULL, out);
    }
    responses_send(completion, added);
    if (shown->part != REPLY_CALL)
        responses_content_part(completion, "response.content_part.added", (struct text){"", 0});
}

static void responses_part(struct completion_choice *choice, const struct response_choice *shown)
{
    static const char *const deltas[] = {
        [REPLY_CONTENT] = "response.output_text.delta",
        [REPLY_REASONING] = "response.reasoning_text.delta",
        [REPLY_ARGUMENTS] = "response.function_call_arguments.delta",
    };
    struct completion *completion = choice->completion;
    if (shown->part == REPLY_CALL || (shown->part != REPLY_ARGUMENTS &&
                                      (!completion->in_block || completion->block != shown->part)))
        responses_begin_block(completion, shown);
    if (shown->part != REPLY_CALL)
        responses_piece(completion, deltas[shown->part], "delta", shown->text);
}

static void responses_end(struct completion *completion, const struct response_usage *usage)
{
    const bool is_whole = strcmp(responses_status(completion), "completed") == 0;
    responses_end_block(completion);
    responses_keep(completion);
    responses_send_whole(completion, is_whole ? "response.completed" : "response.incomplete",
                         usage);
}

static const struct dialect responses_dialect = {.id = "resp",
                                                 .keeps_parts = true,
                                                 .read = responses_read,
                                                 .begin = responses_begin,
                                                 .part = responses_part,
                                                 .end = responses_end,
                                                 .whole = responses_whole};

void responses_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_CHAT, &responses_dialect);
}
