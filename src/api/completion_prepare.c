/* On the preparer's thread: a request's texts become tokens. */
#include "api/completion.h"

#include "model/chat_template.h"

static bool completion_prepare_encode(struct completion *completion,
                                      const struct prompt_input *prompt, struct token_list *out)
{
    struct error cause;
    if (server_encode_prompt(completion->use.model, prompt, out, &cause) != ERROR_NONE)
        return api_error_from(&completion->err, &cause);
    const char *field = completion->request.kind == GENERATION_CHAT ? "messages" : "prompt";
    if (out->count == 0)
        return api_error_field(&completion->err, field, "'%s' has no tokens", field);
    return server_check_length(completion->use.model, out->count, &completion->err);
}

static void render_and_encode(struct completion *completion)
{
    struct buffer text = {0};
    struct error cause;
    const struct buffer *input = &completion->request.chat_json;
    if (chat_template_render(completion->use.model->chat_template, input->data, input->size, &text,
                             &cause) != ERROR_NONE) {
        api_error_from(&completion->err, &cause);
        if (cause.code == ERROR_INVALID ||
            cause.code == ERROR_BUSY) /* the template refused, or ran into its limits */
            api_error_field(&completion->err, "messages", "the model's chat template: %s",
                            cause.text);
    } else {
        struct prompt_input prompt = {.text = {text.data, text.size}};
        completion_prepare_encode(completion, &prompt, &completion->prompts[0]);
    }
    buffer_deinit(&text);
}

void completion_prepare(struct preparer_job *job)
{
    struct completion *completion = job->item.owner;
    const struct generation_request *request = &completion->request;
    if (request->kind == GENERATION_CHAT) {
        render_and_encode(completion);
        return;
    }
    for (uint32_t i = 0; i < request->n_prompts; i++) {
        if (!completion_prepare_encode(completion, &request->prompts[i], &completion->prompts[i]))
            return;
    }
}
