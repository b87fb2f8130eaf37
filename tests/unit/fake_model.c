#include "fake_driver.h"

#include "base/mem.h"
#include "base/work_limit.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

const struct hyperparameters *model_hyperparameters(const struct model *model)
{
    return (const struct hyperparameters *)(const void *)model;
}

void fake_model_init(struct fake_model *fake, const char *id, const char *alias, uint32_t n_vocab,
                     struct driver *driver)
{
    *fake = (struct fake_model){.hyperparameters = {.n_vocab = n_vocab, .n_embd = FAKE_EMBD}};
    generator_of_driver(&fake->generator, driver);
    fake->api = (struct api_model){
        .id = id,
        .alias = alias,
        .model = (struct model *)(void *)&fake->hyperparameters,
        .tokenizer = (struct tokenizer *)(void *)fake, /* opaque, and not looked at */
        .chat_template = (struct chat_template *)(void *)fake,
        .generator = &fake->generator.base};
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_BOS;
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return true;
}

bool tokenizer_adds_eos(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return false;
}

int32_t tokenizer_infill(const struct tokenizer *tokenizer, enum tokenizer_infill_mark mark)
{
    (void)tokenizer;
    return "<|>"[mark];
}

int32_t tokenizer_end(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return FAKE_EOS;
}

int32_t tokenizer_separator(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return TOKEN_NONE;
}

bool tokenizer_adds_separator(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return false;
}

const char *tokenizer_family(const struct tokenizer *tokenizer)
{
    (void)tokenizer;
    return "bpe";
}

/* It has no file: nothing that asks it may be asked of it. */
const struct gguf_file *model_file(const struct model *model)
{
    (void)model;
    abort();
}

bool tokenizer_ends_generation(const struct tokenizer *tokenizer, int32_t id)
{
    (void)tokenizer;
    return id == FAKE_EOS;
}

void token_list_deinit(struct token_list *list)
{
    mem_free(list->ids);
    *list = (struct token_list){0};
}

enum error_code token_list_push(struct token_list *list, int32_t id, struct error *err)
{
    if (list->max && list->count == list->max)
        return error_set(err, ERROR_INVALID, "more than %zu tokens", list->max);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        int32_t *ids = mem_resize(list->ids, capacity, sizeof *ids);
        if (!ids)
            return error_set(err, ERROR_NO_MEMORY, "not enough memory for tokens");
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return ERROR_NONE;
}

enum error_code tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                 unsigned flags, struct token_list *out, struct error *err)
{
    (void)tokenizer;
    enum error_code code =
        flags & TOKENIZE_ADD_SPECIAL ? token_list_push(out, FAKE_BOS, err) : ERROR_NONE;
    for (size_t i = 0; i < size && !code; i++)
        code = token_list_push(out, (unsigned char)text[i], err);
    return code;
}

void tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, bool special,
                     struct buffer *out)
{
    (void)tokenizer;
    char byte = (char)id;
    if (id < 256)
        buffer_append(out, &byte, 1);
    else if (special)
        buffer_text(out, id == FAKE_EOS ? "</s>" : "<s>");
}

void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t n,
                      bool remove_special, bool unparse_special, struct buffer *out)
{
    (void)remove_special;
    for (size_t i = 0; i < n; i++)
        tokenizer_piece(tokenizer, ids[i], unparse_special, out);
}

/* Whole characters of valid UTF-8 only: the tests send nothing else through here. */
void token_stream_push(struct token_stream *stream, const struct tokenizer *tokenizer, int32_t id,
                       bool special, struct buffer *out)
{
    (void)tokenizer;
    (void)special;
    stream->pending[stream->n_pending++] = (char)id;
    unsigned char first = (unsigned char)stream->pending[0];
    uint32_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (stream->n_pending == length) {
        buffer_append(out, stream->pending, length);
        stream->n_pending = 0;
    }
}

void token_stream_finish(struct token_stream *stream, struct buffer *out)
{
    if (stream->n_pending)
        buffer_text(out, "\xef\xbf\xbd");
    stream->n_pending = 0;
}

static bool fake_template_goes_on(bool spins)
{
    if (!spins)
        usleep(1000);
    return work_limit_goes_on();
}

/* Of a model that writes calls as Hermes does, and reasons. */
const char *chat_template_text(const struct chat_template *chat_template, size_t *size)
{
    static const char text[] = "{% if tools %}<tool_call>{{ arguments | tojson }}<think></think>"
                               "{{ enable_thinking }}";
    (void)chat_template;
    *size = sizeof text - 1;
    return text;
}

/* The last message's content; one that says "refuse" is refused. "hold" takes until nobody wants it
 * any more, "spin" takes all the processor's time that it gets. */
enum error_code chat_template_render(struct chat_template *chat_template, const char *input_json,
                                     size_t input_size, struct buffer *out, struct error *err)
{
    (void)chat_template;
    yyjson_doc *doc = yyjson_read(input_json, input_size, 0);
    yyjson_val *messages = yyjson_obj_get(yyjson_doc_get_root(doc), "messages");
    yyjson_val *content = yyjson_obj_get(yyjson_arr_get_last(messages), "content");
    bool refuse = yyjson_equals_str(content, "refuse");
    bool spins = yyjson_equals_str(content, "spin");
    while ((spins || yyjson_equals_str(content, "hold")) && fake_template_goes_on(spins)) {
    }
    buffer_append(out, yyjson_get_str(content), yyjson_get_len(content));
    yyjson_doc_free(doc);
    return refuse ? error_set(err, ERROR_INVALID, "the template refuses this") : ERROR_NONE;
}
