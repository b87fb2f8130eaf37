#include "api/response_json.h"

#include "api/chat_reply.h"
#include "api/json_out.h"
#include "model/tokenizer.h"

#include <inttypes.h>
#include <math.h>

/* Clients expect a number; OpenAI writes this one for "as good as impossible". NaN is a token that
 * nothing stands before, and is written as null. */
static float shown_logprob(float logprob)
{
    return isfinite(logprob) || isnan(logprob) ? logprob : -9999.0f;
}

static void response_json_write_head(const struct response_head *head, struct buffer *out)
{
    const char *object = head->kind == GENERATION_COMPLETION ? "text_completion"
                         : head->stream                      ? "chat.completion.chunk"
                                                             : "chat.completion";
    buffer_text(out, "{\"id\":");
    json_out_text(out, head->id);
    buffer_printf(out, ",\"object\":\"%s\",\"created\":%" PRIu64 ",\"model\":", object,
                  head->created);
    json_out_text(out, head->model);
}

static void write_usage(const struct response_usage *usage, struct buffer *out)
{
    buffer_printf(out,
                  "{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
                  ",\"total_tokens\":%" PRIu64
                  ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64 "}}",
                  usage->prompt_tokens, usage->completion_tokens,
                  usage->prompt_tokens + usage->completion_tokens, usage->cached_tokens);
}

void response_write_drafts(const struct response_usage *usage, struct buffer *out)
{
    if (usage->drafted_tokens)
        buffer_printf(out,
                      ",\"timings\":{\"draft_n\":%" PRIu64 ",\"draft_n_accepted\":%" PRIu64 "}",
                      usage->drafted_tokens, usage->accepted_tokens);
}

/* "token":…,"logprob":…,"bytes":[…] of one token. */
static void write_token(const struct tokenizer *tokenizer, int32_t token, float logprob,
                        struct buffer *piece, struct buffer *out)
{
    buffer_clear(piece);
    tokenizer_piece(tokenizer, token, true, piece);
    buffer_text(out, "\"token\":");
    json_out_string(out, piece->data, piece->size);
    buffer_text(out, ",\"logprob\":");
    json_out_float(out, shown_logprob(logprob));
    buffer_text(out, ",\"bytes\":");
    json_out_bytes(out, piece->data, piece->size);
}

static void write_chat_logprobs(const struct logprob_list *list, struct buffer *out)
{
    struct buffer piece = {0};
    buffer_text(out, "{\"content\":[");
    for (size_t i = 0; i < list->n_tokens; i++) {
        const struct shown_token *shown = &list->tokens[i];
        buffer_text(out, i ? ",{" : "{");
        write_token(list->tokenizer, shown->token, shown->logprob, &piece, out);
        buffer_text(out, ",\"top_logprobs\":[");
        for (uint32_t k = 0; k < shown->n_top; k++) {
            const struct token_logprob *top = &list->tops[shown->top_first + k];
            buffer_text(out, k ? ",{" : "{");
            write_token(list->tokenizer, top->token, top->logprob, &piece, out);
            buffer_text(out, "}");
        }
        buffer_text(out, "]}");
    }
    buffer_text(out, "],\"refusal\":null}");
    buffer_deinit(&piece);
}

static void response_json_write_piece(const struct tokenizer *tokenizer, int32_t token,
                                      struct buffer *piece, struct buffer *out)
{
    buffer_clear(piece);
    tokenizer_piece(tokenizer, token, true, piece);
    json_out_string(out, piece->data, piece->size);
}

/* {"text":logprob} of the most probable tokens, and of the chosen one if it is not among them. */
static void write_top_object(const struct logprob_list *list, const struct shown_token *shown,
                             struct buffer *piece, struct buffer *out)
{
    bool chosen_is_there = false;
    if (isnan(shown->logprob)) {
        buffer_text(out, "null");
        return;
    }
    buffer_text(out, "{");
    for (uint32_t k = 0; k < shown->n_top; k++) {
        const struct token_logprob *top = &list->tops[shown->top_first + k];
        chosen_is_there |= top->token == shown->token;
        buffer_text(out, k ? "," : "");
        response_json_write_piece(list->tokenizer, top->token, piece, out);
        buffer_text(out, ":");
        json_out_float(out, shown_logprob(top->logprob));
    }
    if (!chosen_is_there) {
        buffer_text(out, shown->n_top ? "," : "");
        response_json_write_piece(list->tokenizer, shown->token, piece, out);
        buffer_text(out, ":");
        json_out_float(out, shown_logprob(shown->logprob));
    }
    buffer_text(out, "}");
}

static void write_text_logprobs(const struct logprob_list *list, struct buffer *out)
{
    struct buffer piece = {0};
    buffer_text(out, "{\"tokens\":[");
    for (size_t i = 0; i < list->n_tokens; i++) {
        buffer_text(out, i ? "," : "");
        response_json_write_piece(list->tokenizer, list->tokens[i].token, &piece, out);
    }
    buffer_text(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < list->n_tokens; i++) {
        buffer_text(out, i ? "," : "");
        json_out_float(out, shown_logprob(list->tokens[i].logprob));
    }
    buffer_text(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < list->n_tokens; i++) {
        buffer_text(out, i ? "," : "");
        write_top_object(list, &list->tokens[i], &piece, out);
    }
    buffer_text(out, "],\"text_offset\":[");
    for (size_t i = 0; i < list->n_tokens; i++)
        buffer_printf(out, "%s%" PRIu64, i ? "," : "", list->tokens[i].text_offset);
    buffer_text(out, "]}");
    buffer_deinit(&piece);
}

static void write_call(const char *id, struct text name, struct text arguments, struct buffer *out)
{
    buffer_text(out, "\"id\":");
    json_out_text(out, id);
    buffer_text(out, ",\"type\":\"function\",\"function\":{\"name\":");
    json_out_string(out, name.data, name.size);
    buffer_text(out, ",\"arguments\":");
    json_out_string(out, arguments.data ? arguments.data : "", arguments.size);
    buffer_text(out, "}");
}

static void write_chat_calls(const struct chat_reply *reply, struct buffer *out)
{
    buffer_text(out, ",\"tool_calls\":[");
    for (uint32_t i = 0; i < reply->n_calls; i++) {
        const struct chat_call *call = &reply->calls[i];
        buffer_text(out, i ? ",{" : "{");
        write_call(call->id, (struct text){call->name.data, call->name.size},
                   (struct text){call->arguments.data, call->arguments.size}, out);
        buffer_text(out, "}");
    }
    buffer_text(out, "]");
}

static void write_chat_message(const struct response_choice *choice, struct buffer *out)
{
    const struct chat_reply *reply = choice->reply;
    buffer_text(out, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (reply && reply->n_calls && !choice->text.size)
        buffer_text(out, "null");
    else
        json_out_string(out, choice->text.data, choice->text.size);
    if (reply && reply->reasoning.size) {
        buffer_text(out, ",\"reasoning_content\":");
        json_out_string(out, reply->reasoning.data, reply->reasoning.size);
    }
    if (reply && reply->n_calls)
        write_chat_calls(reply, out);
    buffer_text(out, ",\"refusal\":null}");
}

static void write_call_delta(const struct response_choice *choice, struct buffer *out)
{
    buffer_printf(out, "\"tool_calls\":[{\"index\":%u,", choice->call);
    if (choice->part == REPLY_CALL) {
        write_call(choice->call_id, choice->text, (struct text){"", 0}, out);
    } else {
        buffer_text(out, "\"function\":{\"arguments\":");
        json_out_string(out, choice->text.data, choice->text.size);
        buffer_text(out, "}");
    }
    buffer_text(out, "}]");
}

static void write_chat_text(const struct response_head *head, const struct response_choice *choice,
                            struct buffer *out)
{
    if (!head->stream) {
        write_chat_message(choice, out);
        return;
    }
    buffer_text(out, ",\"delta\":{");
    if (choice->first)
        buffer_text(out, "\"role\":\"assistant\",");
    if (choice->part == REPLY_CALL || choice->part == REPLY_ARGUMENTS) {
        write_call_delta(choice, out);
    } else if (choice->first || choice->text.size || !choice->finish_reason) {
        /* The last chunk has an empty delta unless some text was still held back. */
        buffer_text(out,
                    choice->part == REPLY_REASONING ? "\"reasoning_content\":" : "\"content\":");
        json_out_string(out, choice->text.data, choice->text.size);
    }
    buffer_text(out, "}");
}

static void write_choice(const struct response_head *head, const struct response_choice *choice,
                         struct buffer *out)
{
    buffer_printf(out, "{\"index\":%u", choice->index);
    if (head->kind == GENERATION_CHAT) {
        write_chat_text(head, choice, out);
    } else {
        buffer_text(out, ",\"text\":");
        json_out_string(out, choice->text.data, choice->text.size);
    }
    buffer_text(out, ",\"logprobs\":");
    if (!choice->logprobs)
        buffer_text(out, "null");
    else if (head->kind == GENERATION_CHAT)
        write_chat_logprobs(choice->logprobs, out);
    else
        write_text_logprobs(choice->logprobs, out);
    buffer_text(out, ",\"finish_reason\":");
    json_out_text(out, choice->finish_reason);
    buffer_text(out, "}");
}

void response_chunk(const struct response_head *head, const struct response_choice *choice,
                    bool usage_asked, struct buffer *out)
{
    response_json_write_head(head, out);
    buffer_text(out, ",\"choices\":[");
    write_choice(head, choice, out);
    buffer_text(out, usage_asked ? "],\"usage\":null}" : "]}");
}

void response_usage_chunk(const struct response_head *head, const struct response_usage *usage,
                          struct buffer *out)
{
    response_json_write_head(head, out);
    buffer_text(out, ",\"choices\":[],\"usage\":");
    write_usage(usage, out);
    response_write_drafts(usage, out);
    buffer_text(out, "}");
}

void response_whole(const struct response_head *head, const struct response_choice *choices,
                    uint32_t n_choices, const struct response_usage *usage, struct buffer *out)
{
    response_json_write_head(head, out);
    buffer_text(out, ",\"choices\":[");
    for (uint32_t i = 0; i < n_choices; i++) {
        buffer_text(out, i ? "," : "");
        write_choice(head, &choices[i], out);
    }
    buffer_text(out, "],\"usage\":");
    write_usage(usage, out);
    response_write_drafts(usage, out);
    buffer_text(out, "}");
}

/* RFC 4648, section 4. */
static void write_base64(const unsigned char *bytes, size_t size, struct buffer *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    buffer_text(out, "\"");
    for (size_t i = 0; i < size; i += 3) {
        size_t left = size - i < 3 ? size - i : 3;
        uint32_t bits = (uint32_t)bytes[i] << 16;
        bits |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        bits |= left > 2 ? (uint32_t)bytes[i + 2] : 0;
        char quad[4] = {digits[bits >> 18], digits[bits >> 12 & 63], digits[bits >> 6 & 63],
                        digits[bits & 63]};
        for (size_t k = left + 1; k < 4; k++)
            quad[k] = '=';
        buffer_append(out, quad, 4);
    }
    buffer_text(out, "\"");
}

void response_embeddings(const char *model, const float *vectors, uint32_t n, uint32_t n_values,
                         bool base64, uint64_t prompt_tokens, struct buffer *out)
{
    buffer_text(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < n; i++) {
        const float *vector = vectors + (size_t)i * n_values;
        buffer_printf(out, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i ? "," : "",
                      i);
        if (base64) { /* little-endian floats, as every machine that ggml runs on has them */
            write_base64((const unsigned char *)vector, n_values * sizeof *vector, out);
        } else {
            for (uint32_t k = 0; k < n_values; k++) {
                buffer_text(out, k ? "," : "[");
                json_out_float(out, vector[k]);
            }
            buffer_text(out, "]");
        }
        buffer_text(out, "}");
    }
    buffer_text(out, "],\"model\":");
    json_out_text(out, model);
    buffer_printf(out, ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
                  prompt_tokens, prompt_tokens);
}

void response_model(const char *id, uint64_t created, struct buffer *out)
{
    buffer_text(out, "{\"id\":");
    json_out_text(out, id);
    buffer_printf(out, ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"medley\"}",
                  created);
}

void response_tokens(const int32_t *tokens, size_t count, struct buffer *out)
{
    buffer_text(out, "{\"tokens\":[");
    for (size_t i = 0; i < count; i++)
        buffer_printf(out, "%s%" PRId32, i ? "," : "", tokens[i]);
    buffer_text(out, "]}");
}
