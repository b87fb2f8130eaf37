/* On the preparer: a request's JSON becomes a struct, its texts become tokens. */
#include "api/completion.h"

#include "api/chat_pictures.h"
#include "api/chat_prompt.h"
#include "api/chosen_call.h"
#include "api/dialect.h"
#include "api/forced_call.h"
#include "api/model_defaults.h"
#include "base/mem.h"
#include "model/chat_template.h"
#include "model/model.h"
#include "picture/sight.h"
#include "request/generator.h"

#include <string.h>

static void init_choice(struct completion *completion, uint32_t index)
{
    struct completion_choice *choice = &completion->choices[index];
    choice->completion = completion;
    choice->index = index;
    choice->prompt = index / completion->request.n;
    choice->item = (struct inbox_item){.inbox = &completion->work.server->inbox,
                                       .ready = completion_choice_ready,
                                       .owner = choice};
    choice->text.stop.strings = completion->request.stops;
    choice->text.stop.n_strings = completion->request.n_stops;
    choice->text.logprobs = completion->request.logprobs;
}

static bool completion_make_choices(struct completion *completion)
{
    const struct generation_request *request = &completion->request;
    const uint32_t n = request->n_prompts * request->n;
    completion->prompts = mem_new_array(request->n_prompts, sizeof *completion->prompts);
    completion->choices = mem_new_array(n, sizeof *completion->choices);
    if (request->echo)
        completion->echoes = mem_new_array(request->n_prompts, sizeof *completion->echoes);
    if (!completion->prompts || !completion->choices || (request->echo && !completion->echoes))
        return false;
    completion->n_choices = n;
    for (uint32_t i = 0; i < n; i++)
        init_choice(completion, i);
    return true;
}

void completion_parse(struct request_work *work)
{
    struct completion *completion = completion_of(work);
    struct buffer translated = {0};
    struct text body = {work->body.data ? work->body.data : "", work->body.size};
    if (completion->dialect &&
        !completion->dialect->read(completion, body.data, body.size, &translated, &work->err)) {
        buffer_deinit(&translated);
        return;
    }
    if (completion->dialect)
        body = (struct text){translated.data, translated.size};
    if (translated.failed)
        api_error_set(&work->err, 503, "server_error", "no_memory",
                      "not enough memory for the request");
    else if (generation_request_parse(completion->kind, body.data, body.size, &completion->request,
                                      &work->err) &&
             !completion_make_choices(completion))
        api_error_set(&work->err, 503, "server_error", "no_memory",
                      "not enough memory for the request");
    buffer_deinit(&translated);
    buffer_deinit(&work->body);
}

static bool completion_prepare_encode(struct completion *completion,
                                      const struct prompt_input *prompt, struct token_list *out)
{
    struct api_error *err = &completion->work.err;
    const struct text none = {"", 0}, *suffix = &completion->request.suffix;
    if (completion->fills_in || suffix->data
            ? !server_encode_infill(completion->use.model, prompt, suffix->data ? suffix : &none,
                                    out, err)
            : !server_encode_prompt(completion->use.model, prompt, out, err))
        return false;
    const char *field = completion->kind == GENERATION_CHAT ? "messages" : "prompt";
    return out->count || api_error_field(err, field, "'%s' has no tokens", field);
}

/* The prompt's end may have opened the reasoning already. */
static bool prompt_opens_thought(const struct think_marks *think, const struct buffer *prompt)
{
    size_t end = prompt->size;
    const size_t size = think ? strlen(think->begin) : 0;
    while (end && (prompt->data[end - 1] == '\n' || prompt->data[end - 1] == ' '))
        end--;
    return size && end >= size && memcmp(prompt->data + end - size, think->begin, size) == 0;
}

/* How the choices' texts are to be read. */
static void completion_prepare_replies(struct completion *completion, const struct buffer *prompt)
{
    const struct template_traits *traits = &completion->traits;
    const bool thinks_first = prompt_opens_thought(traits->think, prompt);
    for (uint32_t i = 0; i < completion->n_choices; i++) {
        struct completion_choice *choice = &completion->choices[i];
        choice->text.traits = traits;
        choice->reply.reply =
            (struct reply_reader){.format = traits->format,
                                  .think = traits->think,
                                  .thinks_first = thinks_first,
                                  .tools = tool_table_for_reply(&completion->tools),
                                  .event = completion_reply_event,
                                  .self = choice};
    }
}

/* An answer that is bound by a grammar begins at once: reasoning that the prompt has opened is
 * closed, empty, as templates with a switch for it do. */
static void completion_open_answer(struct completion *completion, struct buffer *prompt)
{
    static const char final_message[] = "<|channel|>final<|message|>";
    struct template_traits *traits = &completion->traits;
    if (!completion->constraint)
        return;
    if (prompt_opens_thought(traits->think, prompt))
        buffer_printf(prompt, "\n%s\n\n", traits->think->end);
    if (forced_call_is_wanted(&completion->request)) {
        forced_call_open(&completion->request, traits, prompt, &completion->opening);
    } else if (traits->format->style == TOOL_STYLE_CHANNELS) {
        buffer_text(prompt, final_message);
        buffer_text(&completion->opening, final_message);
    }
    if (prompt->failed || completion->opening.failed)
        api_error_set(&completion->work.err, 503, "server_error", "no_memory",
                      "not enough memory for the prompt");
}

/* Those that the model may choose to make. */
static bool completion_hold_calls(struct completion *completion, const struct buffer *prompt)
{
    const struct template_traits *traits = &completion->traits;
    return chosen_call_compile(&completion->request, traits,
                               prompt_opens_thought(traits->think, prompt), &completion->constraint,
                               &completion->work.err);
}

/* ---- pictures ---- */

static bool completion_check_sight(struct completion *completion)
{
    const struct generation_request *request = &completion->request;
    if (!request->n_pictures || completion->use.model->sight)
        return true;
    const char *path = request->pictures[0].path;
    return api_error_field(&completion->work.err, path,
                           "'%s' is a picture, and model '%s' runs without a projector, so that it "
                           "cannot see it. Send text alone, or serve it by `medley serve MODEL "
                           "--projector FILE`",
                           path, completion->use.model->id);
}

static bool completion_look_at(struct completion *completion, uint32_t i)
{
    const struct chat_picture *picture = &completion->request.pictures[i];
    struct api_error *err = &completion->work.err;
    struct buffer bytes = {0};
    struct error cause;
    bool ok = chat_picture_bytes(picture, &bytes, err);
    if (ok && sight_look(completion->use.model->sight, bytes.data, bytes.size,
                         &completion->shown->pictures[i], &cause))
        ok = cause.code == ERROR_INVALID
                 ? api_error_field(err, picture->path, "'%s': %s", picture->path, cause.text)
                 : api_error_from(err, &cause);
    buffer_deinit(&bytes);
    return ok;
}

static bool completion_look(struct completion *completion)
{
    bool ok = true;
    completion->shown = mem_new(sizeof *completion->shown);
    if (!completion->shown)
        return api_error_set(&completion->work.err, 503, "server_error", "no_memory",
                             "not enough memory for the pictures");
    completion->shown->n = completion->request.n_pictures;
    for (uint32_t i = 0; i < completion->shown->n && ok; i++)
        ok = completion_look_at(completion, i);
    return ok;
}

static void completion_render(struct completion *completion, const struct buffer *input,
                              struct buffer *text)
{
    struct error cause;
    struct api_error *err = &completion->work.err;
    if (chat_template_render(completion->use.model->chat_template, input->data, input->size, text,
                             &cause) != ERROR_NONE) {
        api_error_from(err, &cause);
        if (cause.code == ERROR_INVALID ||
            cause.code == ERROR_BUSY) /* the template refused, or ran into its limits */
            api_error_field(err, "messages", "the model's chat template: %s", cause.text);
    } else {
        completion_open_answer(completion, text);
        if (err->status || !completion_hold_calls(completion, text))
            return;
        struct prompt_input prompt = {.text = {text->data, text->size}};
        if (completion->dialect && completion->dialect->prepared)
            buffer_append(&completion->rendered, text->data, text->size);
        if (!completion->request.n_pictures)
            completion_prepare_encode(completion, &prompt, &completion->prompts[0]);
        else if (completion_look(completion))
            server_encode_shown(completion->use.model, &prompt.text, completion->shown,
                                &completion->prompts[0], err);
    }
}

static void render_and_encode(struct completion *completion)
{
    struct buffer text = {0}, input = {0};
    const struct generation_request *request = &completion->request;
    struct api_error *err = &completion->work.err;
    completion->traits = chat_prompt_traits(completion->use.model);
    if (request->tools && request->tool_choice != TOOL_CHOICE_NONE &&
        !tool_table_make(&completion->tools, request->tools))
        api_error_set(err, 503, "server_error", "no_memory", "not enough memory for the tools");
    else if (chat_prompt_write(request, &completion->traits, &input, err))
        completion_render(completion, &input, &text);
    completion_prepare_replies(completion, &text);
    buffer_deinit(&input);
    buffer_deinit(&text);
}

static bool completion_prepare_echo(struct completion *completion,
                                    const struct prompt_input *prompt, struct buffer *out)
{
    if (prompt->tokens)
        tokenizer_decode(completion->use.model->tokenizer, prompt->tokens, prompt->n_tokens, false,
                         true, out);
    else
        buffer_append(out, prompt->text.data, prompt->text.size);
    return !out->failed || api_error_set(&completion->work.err, 503, "server_error", "no_memory",
                                         "not enough memory for the prompt");
}

/* The driver's queue has a copy of its prompt for each choice. */
static bool completion_check_rows(struct completion *completion)
{
    const struct generation_request *request = &completion->request;
    uint64_t rows = 0;
    for (uint32_t i = 0; i < request->n_prompts; i++)
        rows += (uint64_t)completion->prompts[i].count * request->n;
    return completion->n_choices == 1 || rows <= LIMIT_REQUEST_ROWS ||
           api_error_field(&completion->work.err, "n",
                           "the prompts of all choices have %llu tokens; at most %d are allowed",
                           (unsigned long long)rows, LIMIT_REQUEST_ROWS);
}

static bool completion_compile(struct completion *completion)
{
    const struct generation_request *request = &completion->request;
    struct api_error *err = &completion->work.err;
    struct error cause;
    if (forced_call_is_wanted(request))
        return forced_call_compile(request, &completion->constraint, err);
    if (!request->grammar.kind ||
        !constraint_open(&request->grammar, &completion->constraint, &cause))
        return true;
    if (cause.code == ERROR_NO_MEMORY)
        return api_error_from(err, &cause);
    return api_error_field(err, request->grammar_field, "'%s': %s", request->grammar_field,
                           cause.text);
}

static bool completion_take_defaults(struct completion *completion)
{
    if (!model_defaults_apply(&completion->request, completion->use.model->defaults))
        return api_error_set(&completion->work.err, 503, "server_error", "no_memory",
                             "not enough memory for the request");
    for (uint32_t i = 0; i < completion->n_choices; i++)
        completion->choices[i].text.stop.n_strings = completion->request.n_stops;
    return true;
}

void completion_prepare(struct request_work *work)
{
    struct completion *completion = completion_of(work);
    struct generation_request *request = &completion->request;
    const struct api_model *model = completion->use.model;
    if (!completion_take_defaults(completion) ||
        !generation_request_check(request, model_hyperparameters(model->model)->n_vocab,
                                  &work->err) ||
        !completion_compile(completion))
        return;
    if (!completion_check_sight(completion))
        return;
    if (request->kind == GENERATION_CHAT)
        render_and_encode(completion);
    for (uint32_t i = 0; request->prompts && i < request->n_prompts; i++) {
        const struct prompt_input *prompt = &request->prompts[i];
        if (!completion_prepare_encode(completion, prompt, &completion->prompts[i]) ||
            (request->echo && !completion_prepare_echo(completion, prompt, &completion->echoes[i])))
            return;
    }
    if (!work->err.status && completion_check_rows(completion))
        generation_request_shrink(request);
}
