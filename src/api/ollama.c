/* Answers as Ollama's clients read them: an object, or lines of objects of which the last is done.
 * Calls come whole. */
#include "api/ollama.h"

#include "api/json_out.h"
#include "base/clock.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

void ollama_time(uint64_t seconds, char out[OLLAMA_TIME_BYTES])
{
    const time_t when = (time_t)seconds;
    struct tm utc;
    if (!gmtime_r(&when, &utc) || !strftime(out, OLLAMA_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &utc))
        memcpy(out, "1970-01-01T00:00:00Z", sizeof "1970-01-01T00:00:00Z");
}

static void ollama_write_head(const struct completion *completion, struct buffer *out)
{
    char when[OLLAMA_TIME_BYTES];
    ollama_time(completion->created, when);
    buffer_text(out, "{\"model\":");
    json_out_text(out, completion->use.model->id);
    buffer_printf(out, ",\"created_at\":\"%s\",", when);
}

/* What was taken for it, in ns. The prompt's share ends with the first token. */
static void ollama_write_end(const struct completion *completion,
                             const struct response_usage *usage, struct buffer *out)
{
    const struct completion_choice *choice = &completion->choices[0];
    const uint64_t total = clock_now_ns() - completion->started_ns;
    const uint64_t prompt = completion->first_token_ns > completion->started_ns
                                ? completion->first_token_ns - completion->started_ns
                                : total;
    buffer_printf(out,
                  "\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%" PRIu64
                  ",\"load_duration\":0,\"prompt_eval_count\":%" PRIu64
                  ",\"prompt_eval_duration\":%" PRIu64 ",\"eval_count\":%" PRIu64
                  ",\"eval_duration\":%" PRIu64 "}",
                  strcmp(choice->finish_reason, "length") == 0 ? "length" : "stop", total,
                  usage->prompt_tokens, prompt, usage->completion_tokens, total - prompt);
}

static void ollama_write_call(const char *name, size_t size, const struct buffer *arguments,
                              struct buffer *out)
{
    buffer_text(out, "{\"function\":{\"name\":");
    json_out_string(out, name, size);
    buffer_text(out, ",\"arguments\":");
    dialect_object(out, arguments->data, arguments->size);
    buffer_text(out, "}}");
}

/* ---- a stream ---- */

/* A call that was written in the meantime: its name, a NUL, its arguments. */
static void ollama_send_call(struct completion *completion)
{
    struct buffer *call = &completion->arguments, *out = &completion->json;
    if (!call->size)
        return;
    const size_t name = strlen(call->data);
    const struct buffer arguments = {.data = call->data + name + 1, .size = call->size - name - 1};
    buffer_clear(out);
    ollama_write_head(completion, out);
    buffer_text(out, "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[");
    ollama_write_call(call->data, name, &arguments, out);
    buffer_text(out, "]},\"done\":false}\n");
    out->failed |= call->failed;
    buffer_clear(call);
    dialect_send(completion, NULL);
}

/* True: it is part of a call, which waits for its end. */
static bool ollama_keep_call(struct completion *completion, const struct response_choice *shown)
{
    if (shown->part != REPLY_ARGUMENTS)
        ollama_send_call(completion);
    if (shown->part != REPLY_ARGUMENTS && shown->part != REPLY_CALL)
        return false;
    buffer_append(&completion->arguments, shown->text.data, shown->text.size);
    if (shown->part == REPLY_CALL)
        buffer_append(&completion->arguments, "", 1);
    return true;
}

static void ollama_chat_part(struct completion_choice *choice, const struct response_choice *shown)
{
    struct completion *completion = choice->completion;
    struct buffer *out = &completion->json;
    if (ollama_keep_call(completion, shown))
        return;
    buffer_clear(out);
    ollama_write_head(completion, out);
    buffer_text(out, shown->part == REPLY_REASONING
                         ? "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":"
                         : "\"message\":{\"role\":\"assistant\",\"content\":");
    json_out_string(out, shown->text.data, shown->text.size);
    buffer_text(out, "},\"done\":false}\n");
    dialect_send(completion, NULL);
}

static void ollama_generate_part(struct completion_choice *choice,
                                 const struct response_choice *shown)
{
    struct completion *completion = choice->completion;
    struct buffer *out = &completion->json;
    buffer_clear(out);
    ollama_write_head(completion, out);
    buffer_text(out, shown->part == REPLY_REASONING ? "\"response\":\"\",\"thinking\":"
                                                    : "\"response\":");
    json_out_string(out, shown->text.data, shown->text.size);
    buffer_text(out, ",\"done\":false}\n");
    dialect_send(completion, NULL);
}

static void ollama_chat_end(struct completion *completion, const struct response_usage *usage)
{
    struct buffer *out = &completion->json;
    ollama_send_call(completion);
    buffer_clear(out);
    ollama_write_head(completion, out);
    buffer_text(out, "\"message\":{\"role\":\"assistant\",\"content\":\"\"},");
    ollama_write_end(completion, usage, out);
    buffer_text(out, "\n");
    dialect_send(completion, NULL);
}

static void ollama_generate_end(struct completion *completion, const struct response_usage *usage)
{
    struct buffer *out = &completion->json;
    buffer_clear(out);
    ollama_write_head(completion, out);
    buffer_text(out, "\"response\":\"\",");
    ollama_write_end(completion, usage, out);
    buffer_text(out, "\n");
    dialect_send(completion, NULL);
}

/* ---- a whole answer ---- */

static void ollama_write_thinking(const struct chat_reply *reply, struct buffer *out)
{
    if (!reply->reasoning.size)
        return;
    buffer_text(out, ",\"thinking\":");
    json_out_string(out, reply->reasoning.data, reply->reasoning.size);
}

static void ollama_chat_whole(struct completion *completion, const struct response_choice *choice,
                              const struct response_usage *usage, struct buffer *out)
{
    const struct chat_reply *reply = choice->reply;
    ollama_write_head(completion, out);
    buffer_text(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    json_out_string(out, choice->text.data ? choice->text.data : "", choice->text.size);
    ollama_write_thinking(reply, out);
    buffer_text(out, reply->n_calls ? ",\"tool_calls\":[" : "");
    for (uint32_t i = 0; i < reply->n_calls; i++) {
        const struct chat_call *call = &reply->calls[i];
        buffer_text(out, i ? "," : "");
        ollama_write_call(call->name.data, call->name.size, &call->arguments, out);
    }
    buffer_text(out, reply->n_calls ? "]}," : "},");
    ollama_write_end(completion, usage, out);
}

static void ollama_generate_whole(struct completion *completion,
                                  const struct response_choice *choice,
                                  const struct response_usage *usage, struct buffer *out)
{
    ollama_write_head(completion, out);
    buffer_text(out, "\"response\":");
    json_out_string(out, choice->text.data ? choice->text.data : "", choice->text.size);
    ollama_write_thinking(choice->reply, out);
    buffer_text(out, ",");
    ollama_write_end(completion, usage, out);
}

static const struct dialect ollama_chat = {.id = "ollama",
                                           .lines = true,
                                           .read = ollama_read_chat,
                                           .part = ollama_chat_part,
                                           .end = ollama_chat_end,
                                           .whole = ollama_chat_whole};
static const struct dialect ollama_generate = {.id = "ollama",
                                               .lines = true,
                                               .read = ollama_read_generate,
                                               .part = ollama_generate_part,
                                               .end = ollama_generate_end,
                                               .whole = ollama_generate_whole};

void ollama_chat_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_CHAT, &ollama_chat);
}

void ollama_generate_handle(struct exchange *exchange)
{
    completion_handle_dialect(exchange, GENERATION_CHAT, &ollama_generate);
}
