/* Bodies of API requests: any bytes. The first byte chooses the endpoint. What is accepted is
 * answered as far as that goes without a model: every text goes through the JSON writer, and must
 * read back as JSON. */
#include "fuzz.h"

#include "api/json_out.h"
#include "api/request_json.h"
#include "base/work_limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

enum { VOCAB = 320 };

static void check_json(struct buffer *json)
{
    yyjson_doc *doc = yyjson_read(json->data, json->size, 0);
    FUZZ_CHECK(!json->failed && doc);
    yyjson_doc_free(doc);
    buffer_deinit(json);
}

static void check_text(struct text text)
{
    struct buffer json = {0};
    json_out_string(&json, text.data, text.size);
    check_json(&json);
}

static void check_error(const struct api_error *err)
{
    struct buffer json = {0};
    FUZZ_CHECK(err->status == 400 && err->message[0]);
    api_error_write(err, &json);
    check_json(&json);
}

static void check_prompts(const struct prompt_input *prompts, uint32_t count, bool checked)
{
    FUZZ_CHECK(count >= 1 && count <= LIMIT_PROMPTS);
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < prompts[i].n_tokens; k++)
            FUZZ_CHECK(prompts[i].tokens[k] >= 0 &&
                       prompts[i].tokens[k] < (checked ? VOCAB : LIMIT_VOCAB));
        if (!prompts[i].tokens)
            check_text(prompts[i].text);
    }
}

/* The same body where there is little memory: whatever fails, nothing stays behind, and what was
 * kept can be used. */
static void fuzz_tight(enum generation_kind kind, const char *body, size_t size)
{
    struct memory_total total = {.limit = 1 << 20};
    struct work_limit limit = {.total = &total, .bytes_max = 256 + 3 * size};
    struct generation_request request;
    struct api_error err = {0};
    work_limit_enter(&limit);
    const bool parsed = generation_request_parse(kind, body, size, &request, &err);
    if (parsed)
        generation_request_shrink(&request);
    work_limit_leave();
    FUZZ_CHECK(parsed || err.status == 400 || (err.status == 503 && limit.stop));
    for (uint32_t i = 0; parsed && i < request.n_stops; i++)
        check_text(request.stops[i]);
    if (parsed)
        check_text(request.model);
    work_limit_join(&limit);
    if (parsed)
        generation_request_deinit(&request);
    work_limit_leave();
    FUZZ_CHECK(limit.bytes == 0 && memory_total_used(&total) == 0);
}

static void fuzz_generation(enum generation_kind kind, const char *body, size_t size)
{
    struct generation_request request;
    struct api_error err = {0};
    if (!generation_request_parse(kind, body, size, &request, &err)) {
        check_error(&err);
        return;
    }
    bool checked = generation_request_check(&request, VOCAB, &err);
    if (!checked)
        check_error(&err);
    FUZZ_CHECK(request.n >= 1 && request.n * request.n_prompts <= LIMIT_REQUEST_CHOICES);
    FUZZ_CHECK(request.n_stops <= LIMIT_STOP_STRINGS &&
               request.n_top_logprobs <= LIMIT_TOP_LOGPROBS);
    check_text(request.model);
    for (uint32_t i = 0; i < request.n_stops; i++)
        check_text(request.stops[i]);
    if (kind == GENERATION_CHAT)
        check_json(&request.chat_json);
    else
        check_prompts(request.prompts, request.n_prompts, checked);
    for (uint32_t i = 0; checked && i < request.sampler.n_biases; i++)
        FUZZ_CHECK(request.biases[i].token >= 0 && request.biases[i].token < VOCAB);
    generation_request_deinit(&request);
}

static void fuzz_small(unsigned which, const char *body, size_t size)
{
    struct api_error err = {0};
    struct embeddings_request embeddings;
    struct tokenize_request tokenize;
    struct detokenize_request detokenize;
    if (which == 0 && embeddings_request_parse(body, size, &embeddings, &err)) {
        bool checked = embeddings_request_check(&embeddings, VOCAB, &err);
        if (!checked)
            check_error(&err);
        check_prompts(embeddings.inputs, embeddings.n_inputs, checked);
        embeddings_request_deinit(&embeddings);
    } else if (which == 1 && tokenize_request_parse(body, size, &tokenize, &err)) {
        check_text(tokenize.content);
        tokenize_request_deinit(&tokenize);
    } else if (which == 2 && detokenize_request_parse(body, size, &detokenize, &err)) {
        if (!detokenize_request_check(&detokenize, VOCAB, &err))
            check_error(&err);
        detokenize_request_deinit(&detokenize);
    } else {
        check_error(&err);
    }
}

static void fuzz_rerank(const char *body, size_t size)
{
    struct api_error err = {0};
    struct rerank_request rerank;
    if (!rerank_request_parse(body, size, &rerank, &err)) {
        check_error(&err);
        return;
    }
    check_text(rerank.query);
    for (uint32_t i = 0; i < rerank.n_documents; i++)
        check_text(rerank.documents[i]);
    rerank_request_deinit(&rerank);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    const char *body = (const char *)data + 1;
    struct text raw = {(const char *)data, size};
    check_text(raw); /* bytes that no parser has seen become valid UTF-8 too */
    unsigned which = data[0] % 5;
    if (which < 2)
        fuzz_tight(which ? GENERATION_COMPLETION : GENERATION_CHAT, body, size - 1);
    if (which < 2)
        fuzz_generation(which ? GENERATION_COMPLETION : GENERATION_CHAT, body, size - 1);
    else
        fuzz_small(which - 2, body, size - 1);
    if (which == 2)
        fuzz_rerank(body, size - 1);
    return 0;
}
