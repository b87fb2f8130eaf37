/* From a text with marks to a prompt with pictures' rows. */
#include "model/picture.h"
#include "model/projector.h"
#include "picture/sight_impl.h"

#include <assert.h>
#include <string.h>

static enum error_code sight_append_text(const struct tokenizer *tokenizer, const char *text,
                                         size_t size, struct token_list *out, struct error *err)
{
    return size ? tokenizer_encode(tokenizer, text, size, TOKENIZE_PARSE_SPECIAL, out, err)
                : ERROR_NONE;
}

static enum error_code sight_append_bos(const struct tokenizer *tokenizer, struct token_list *out,
                                        struct error *err)
{
    const int32_t bos = tokenizer_bos(tokenizer);
    if (bos == TOKEN_NONE || !tokenizer_adds_bos(tokenizer) || (out->count && out->ids[0] == bos))
        return ERROR_NONE;
    enum error_code code = token_list_push(out, bos, err); /* at the end, then moved to the front */
    if (!code) {
        memmove(out->ids + 1, out->ids, (out->count - 1) * sizeof *out->ids);
        out->ids[0] = bos;
    }
    return code;
}

static enum error_code sight_append_picture(const struct sight *sight,
                                            const struct tokenizer *tokenizer,
                                            struct prompt_picture *picture, struct token_list *out,
                                            struct request_picture *at, struct error *err)
{
    const struct projector *projector = sight_projector(sight);
    const char *before = projector_text_before(projector), *after = projector_text_after(projector);
    const uint32_t n_rows = prompt_picture_rows(picture)->n_rows;
    enum error_code code = sight_append_text(tokenizer, before, strlen(before), out, err);
    *at = (struct request_picture){(uint32_t)out->count, picture};
    for (uint32_t i = 0; i < n_rows && !code; i++)
        code = token_list_push(out, PICTURE_TOKEN_FIRST, err);
    if (!code) {
        prompt_picture_tokens(picture, out->ids + at->at);
        code = sight_append_text(tokenizer, after, strlen(after), out, err);
    }
    return code;
}

static uint32_t sight_count_marks(const struct sight_text *text)
{
    const size_t size = strlen(text->mark);
    uint32_t n = 0;
    for (const char *at = text->text, *end = at + text->size;
         (at = memmem(at, (size_t)(end - at), text->mark, size)); at += size)
        n++;
    return n;
}

enum error_code sight_encode_here(const struct sight *sight, const struct tokenizer *tokenizer,
                                  const struct sight_text *text,
                                  struct prompt_picture *const *pictures, uint32_t n,
                                  struct token_list *out, struct request_picture *at,
                                  struct error *err)
{
    const char *from = text->text, *end = from + text->size;
    const uint32_t n_marks = sight_count_marks(text);
    enum error_code code = ERROR_NONE;
    assert(!out->count && text->mark[0]);
    if (n_marks != n)
        return error_set(
            err, ERROR_INVALID,
            "the prompt has room for %u pictures, and there are %u: the model's chat "
            "template leaves some out, or a text has the character that stands for one",
            n_marks, n);
    for (uint32_t i = 0; i <= n && !code; i++) {
        const char *mark =
            i < n ? memmem(from, (size_t)(end - from), text->mark, strlen(text->mark)) : end;
        code = sight_append_text(tokenizer, from, (size_t)(mark - from), out, err);
        if (!code && i == 0)
            code = sight_append_bos(tokenizer, out, err);
        if (!code && i < n)
            code = sight_append_picture(sight, tokenizer, pictures[i], out, &at[i], err);
        from = i < n ? mark + strlen(text->mark) : end;
    }
    return code;
}
