#include "api/request_json.h"

#include "api/chat_messages.h"
#include "api/json_in.h"
#include "api/request_grammar.h"
#include "api/request_tools.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool read_model(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    return json_in_text(in, name, value, &request->model);
}

static bool read_messages(struct json_in *in, const char *name, yyjson_val *value)
{
    (void)name;
    struct generation_request *request = in->out;
    request->n_prompts = 1;
    return chat_messages_read(in, value, &request->chat_json);
}

static bool read_prompt_field(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    return json_in_prompts(in, name, value, &request->prompts, &request->n_prompts);
}

static bool read_max_tokens(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    uint32_t before = request->max_tokens;
    bool again = request->has_max_tokens;
    uint32_t least = request->kind == GENERATION_CHAT ? 1 : 0;
    request->has_max_tokens = true;
    if (!json_in_u32(in, name, value, least, INT32_MAX, &request->max_tokens))
        return false;
    if (again && before != request->max_tokens)
        return api_error_field(
            in->err, name, "'max_tokens' and 'max_completion_tokens' are both given and differ");
    return true;
}

static bool read_n(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    return json_in_u32(in, name, value, 1, LIMIT_CHOICES, &request->n);
}

static bool read_best_of(struct json_in *in, const char *name, yyjson_val *value)
{
    if (!yyjson_is_int(value) || yyjson_get_sint(value) != 1)
        return api_error_field(in->err, name, "'best_of' is not supported beyond 1");
    return true;
}

static bool request_json_read_stream(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    return json_in_bool(in, name, value, &request->stream);
}

static bool read_stream_options(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    if (!yyjson_is_obj(value))
        return api_error_field(in->err, name, "'stream_options' must be an object");
    size_t index, max;
    yyjson_val *key, *option;
    yyjson_obj_foreach(value, index, max, key, option)
    {
        if (yyjson_equals_str(key, "include_usage")) {
            if (!yyjson_is_null(option) &&
                !json_in_bool(in, "stream_options.include_usage", option, &request->include_usage))
                return false;
        } else if (!(yyjson_equals_str(key, "include_obfuscation") && yyjson_is_false(option))) {
            char path[128];
            snprintf(path, sizeof path, "stream_options.%s", yyjson_get_str(key));
            return api_error_field(in->err, path, "'%s' is not supported", path);
        }
    }
    return true;
}

static bool add_stop(struct json_in *in, yyjson_val *value)
{
    struct generation_request *request = in->out;
    struct text *stop = &request->stops[request->n_stops];
    if (!json_in_text(in, "stop", value, stop))
        return false;
    if (stop->size == 0 || stop->size > LIMIT_STOP_BYTES)
        return api_error_field(in->err, "stop", "a stop string must have 1 to %d bytes",
                               LIMIT_STOP_BYTES);
    request->n_stops++;
    return true;
}

static bool read_stop(struct json_in *in, const char *name, yyjson_val *value)
{
    if (yyjson_is_str(value))
        return add_stop(in, value);
    if (!yyjson_is_arr(value))
        return api_error_field(in->err, name, "'stop' must be a string or an array of strings");
    if (yyjson_arr_size(value) > LIMIT_STOP_STRINGS)
        return api_error_field(in->err, name, "'stop' has more than %d strings",
                               LIMIT_STOP_STRINGS);
    size_t index, max;
    yyjson_val *element;
    yyjson_arr_foreach(value, index, max, element)
    {
        if (!add_stop(in, element))
            return false;
    }
    return true;
}

static bool read_seed(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    if (!yyjson_is_int(value))
        return api_error_field(in->err, name, "'seed' must be a 64-bit integer");
    request->has_seed = true;
    request->sampler.seed = yyjson_get_uint(value); /* a negative one as its two's complement */
    return true;
}

static bool read_logprobs(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    if (request->kind == GENERATION_CHAT)
        return json_in_bool(in, name, value, &request->logprobs);
    request->logprobs = true;
    return json_in_u32(in, name, value, 0, LIMIT_TOP_LOGPROBS, &request->n_top_logprobs);
}

static bool read_top_logprobs(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    return json_in_u32(in, name, value, 0, LIMIT_TOP_LOGPROBS, &request->n_top_logprobs);
}

static bool read_echo(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    return json_in_bool(in, name, value, &request->echo);
}

/* An empty one asks for nothing but a completion. */
static bool read_suffix(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    struct text suffix;
    if (!json_in_text(in, name, value, &suffix))
        return false;
    if (suffix.size)
        request->suffix = suffix;
    return true;
}

/* {"token id": bias} */
static bool read_logit_bias(struct json_in *in, const char *name, yyjson_val *value)
{
    struct generation_request *request = in->out;
    size_t n = yyjson_obj_size(value);
    if (!yyjson_is_obj(value))
        return api_error_field(in->err, name,
                               "'logit_bias' must be an object of token ids and numbers");
    if (n > LIMIT_LOGIT_BIAS)
        return api_error_field(in->err, name, "'logit_bias' has more than %d tokens",
                               LIMIT_LOGIT_BIAS);
    request->biases = mem_new_array(n, sizeof *request->biases);
    if (!request->biases)
        return json_in_no_memory(in);
    size_t index, max;
    yyjson_val *key, *bias;
    yyjson_obj_foreach(value, index, max, key, bias)
    {
        const char *digits = yyjson_get_str(key);
        char path[128];
        snprintf(path, sizeof path, "logit_bias.%s", digits);
        size_t length = strspn(digits, "0123456789");
        unsigned long id = length && length < 10 ? strtoul(digits, NULL, 10) : UINT32_MAX;
        if (length != yyjson_get_len(key) || id >= LIMIT_VOCAB)
            return api_error_field(in->err, path, "'%s': not a token id", path);
        request->biases[index].token = (int32_t)id;
        if (!json_in_float(in, path, bias, -100, 100, &request->biases[index].bias))
            return false;
    }
    request->sampler.biases = request->biases;
    request->sampler.n_biases = (uint32_t)n;
    return true;
}

struct sampler_range {
    double lowest, highest;
};

static bool read_sampler_float(struct json_in *in, const char *name, yyjson_val *value,
                               struct sampler_range range, float *out)
{
    return json_in_float(in, name, value, range.lowest, range.highest, out);
}

static bool read_sampler_u32(struct json_in *in, const char *name, yyjson_val *value,
                             struct sampler_range range, uint32_t *out)
{
    return json_in_u32(in, name, value, (uint32_t)range.lowest, (uint32_t)range.highest, out);
}

static struct sampler_range sampler_range(double lowest, double highest)
{
    return (struct sampler_range){lowest, highest};
}

#define SAMPLER_RANGE_API(lowest, highest) sampler_range(lowest, highest)
#define SAMPLER_RANGE_NOT_IN_API                                                                   \
    sampler_range(0, 0) /* nobody asks for it: see generation_fields                               \
                         */
#define SAMPLER_READ_FLOAT(range, out) read_sampler_float(in, name, value, range, out)
#define SAMPLER_READ_U32(range, out) read_sampler_u32(in, name, value, range, out)
#define SAMPLER_READ_U64(range, out) read_seed(in, name, value)
#define SAMPLER_READ(TYPE, field, usual, off, lowest, highest, api, option)                        \
    if (strcmp(name, #field) == 0)                                                                 \
        return SAMPLER_READ_##TYPE(SAMPLER_RANGE_##api, &sampler->field);

/* Any row of SAMPLER_FIELDS. */
static bool read_sampler_field(struct json_in *in, const char *name, yyjson_val *value)
{
    struct sampler_params *sampler = &((struct generation_request *)in->out)->sampler;
    SAMPLER_FIELDS(SAMPLER_READ)
    return json_in_unsupported(in, name, value);
}

enum { CHAT = 1u << GENERATION_CHAT, TEXT = 1u << GENERATION_COMPLETION };

/* A field that the API does not have is of no kind of request: it is unknown there. */
#define SAMPLER_KINDS_API(lowest, highest) 0
#define SAMPLER_KINDS_NOT_IN_API (1u << 31)
#define SAMPLER_ROW(TYPE, field, usual, off, lowest, highest, api, option)                         \
    {#field, read_sampler_field, false, SAMPLER_KINDS_##api},

static const struct json_field generation_fields[] = {
    {"model", read_model, true, 0},
    {"messages", read_messages, true, CHAT},
    {"prompt", read_prompt_field, true, TEXT},
    {"max_tokens", read_max_tokens, false, 0},
    {"max_completion_tokens", read_max_tokens, false, CHAT},
    {"n", read_n, false, 0},
    {"stream", request_json_read_stream, false, 0},
    {"stream_options", read_stream_options, false, 0},
    {"stop", read_stop, false, 0},
    {"logprobs", read_logprobs, false, 0},
    {"top_logprobs", read_top_logprobs, false, CHAT},
    {"echo", read_echo, false, TEXT},
    {"suffix", read_suffix, false, TEXT},
    {"logit_bias", read_logit_bias, false, 0},
    {"user", json_in_ignored_text, false, 0},
    {"response_format", request_read_response_format, false, 0},
    {"guided_json", request_read_grammar, false, 0},
    {"guided_regex", request_read_grammar, false, 0},
    {"guided_choice", request_read_grammar, false, 0},
    {"guided_grammar", request_read_grammar, false, 0},
    {"grammar", request_read_grammar, false, 0},
    SAMPLER_FIELDS(SAMPLER_ROW)
    /* fields of OpenAI's that have a value which asks for nothing */
    {"best_of", read_best_of, false, TEXT},
    {"modalities", request_read_modalities, false, CHAT},
    {"verbosity", request_read_verbosity, false, CHAT},
    /* fields that do not change an answer */
    {"metadata", request_ignore_metadata, false, 0},
    {"store", request_ignore_bool, false, 0},
    {"service_tier", json_in_ignored_text, false, 0},
    {"prompt_cache_key", json_in_ignored_text, false, 0},
    {"prompt_cache_retention", json_in_ignored_text, false, 0},
    {"safety_identifier", json_in_ignored_text, false, 0},
    {"prediction", request_ignore_object, false, CHAT},
    /* tools and reasoning */
    {"tools", request_read_tools, false, CHAT},
    {"tool_choice", request_read_tool_choice, false, CHAT},
    {"parallel_tool_calls", request_read_parallel, false, CHAT},
    {"reasoning_effort", request_read_effort, false, CHAT},
    {"chat_template_kwargs", request_read_template_arguments, false, CHAT},
    /* fields of OpenAI's that Medley does not have */
    {"functions", json_in_unsupported, false, CHAT},
    {"function_call", json_in_unsupported, false, CHAT},
    {"audio", json_in_unsupported, false, CHAT},
    {"prediction", json_in_unsupported, false, CHAT},
    {"web_search_options", json_in_unsupported, false, CHAT},
    {0},
};
_Static_assert(sizeof generation_fields / sizeof *generation_fields <= 64,
               "json_in_object keeps a bit for each row");

const struct json_field *generation_request_fields(void)
{
    return generation_fields;
}

static bool request_json_prompts_are_texts(const struct generation_request *request)
{
    for (uint32_t i = 0; i < request->n_prompts; i++) {
        if (request->prompts[i].tokens)
            return false;
    }
    return true;
}

/* What no single field can tell. */
static bool check_together(struct generation_request *request, struct api_error *err)
{
    if (request->include_usage && !request->stream)
        return api_error_field(err, "stream_options",
                               "'stream_options' is only allowed when 'stream' is true");
    if (request->kind == GENERATION_CHAT && request->n_top_logprobs && !request->logprobs)
        return api_error_field(err, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    if (request->kind == GENERATION_CHAT && !request_check_tools(request, err))
        return false;
    if (request->suffix.data && !request_json_prompts_are_texts(request))
        return api_error_field(err, "suffix", "'suffix' needs a prompt that is a text");
    if (request->n_prompts * request->n > LIMIT_REQUEST_CHOICES)
        return api_error_field(err, "n", "%u prompts times n = %u are more than %d choices",
                               request->n_prompts, request->n, LIMIT_REQUEST_CHOICES);
    return true;
}

bool generation_request_parse(enum generation_kind kind, const char *body, size_t size,
                              struct generation_request *out, struct api_error *err)
{
    *out = (struct generation_request){.kind = kind, .n = 1};
    /* OpenAI's defaults: the model's own distribution, nothing cut. */
    out->sampler = sampler_off();
    struct json_in in = {.err = err, .out = out};
    if (json_in_object(&in, body, size, generation_fields, kind, &out->doc) &&
        check_together(out, err))
        return true;
    generation_request_deinit(out);
    return false;
}

static void keep_text(struct text *text, struct buffer *kept)
{
    const size_t at = kept->size;
    buffer_append(kept, text->data, text->size);
    buffer_append(kept, "", 1);
    text->data = kept->data + at;
}

void generation_request_shrink(struct generation_request *request)
{
    size_t size = request->model.size + request->tool_name.size + 2;
    struct buffer kept = {0};
    for (uint32_t i = 0; i < request->n_stops; i++)
        size += request->stops[i].size + 1;
    if (!buffer_extend(&kept, size)) /* room for all: the bytes must not move */
        return;
    buffer_clear(&kept);
    keep_text(&request->model, &kept);
    if (request->tool_name.data)
        keep_text(&request->tool_name, &kept);
    for (uint32_t i = 0; i < request->n_stops; i++)
        keep_text(&request->stops[i], &kept);
    prompt_inputs_free(request->prompts, request->n_prompts);
    request->prompts = NULL;
    buffer_deinit(&request->chat_json);
    buffer_deinit(&request->grammar_text);
    mem_free(request->pictures); /* they point into the document */
    request->pictures = NULL;
    request->n_pictures = 0;
    yyjson_doc_free(request->doc);
    yyjson_doc_free(request->defaults);
    request->doc = request->defaults = NULL;
    request->system = (struct text){0};
    request->tools = request->template_arguments = NULL;
    request->reasoning_effort = request->suffix = (struct text){0};
    request->kept = kept;
}

void generation_request_deinit(struct generation_request *request)
{
    prompt_inputs_free(request->prompts, request->n_prompts);
    buffer_deinit(&request->chat_json);
    buffer_deinit(&request->grammar_text);
    mem_free(request->biases);
    mem_free(request->pictures);
    buffer_deinit(&request->kept);
    yyjson_doc_free(request->doc);
    yyjson_doc_free(request->defaults);
    *request = (struct generation_request){0};
}
