#include "model/infill.h"

static bool infill_is_known(const struct tokenizer *tokenizer)
{
    return tokenizer_infill(tokenizer, INFILL_PREFIX) != TOKEN_NONE &&
           tokenizer_infill(tokenizer, INFILL_SUFFIX) != TOKEN_NONE &&
           tokenizer_infill(tokenizer, INFILL_MIDDLE) != TOKEN_NONE;
}

enum error_code infill_encode(const struct tokenizer *tokenizer, const struct infill *infill,
                              struct token_list *out, struct error *err)
{
    const int32_t bos = tokenizer_adds_bos(tokenizer) ? tokenizer_bos(tokenizer) : TOKEN_NONE;
    if (!infill_is_known(tokenizer))
        return error_set(err, ERROR_UNSUPPORTED,
                         "this model cannot fill in the middle of a text: its vocabulary has no "
                         "tokens for prefix, suffix and middle");
    enum error_code code = bos != TOKEN_NONE ? token_list_push(out, bos, err) : ERROR_NONE;
    if (!code)
        code = token_list_push(out, tokenizer_infill(tokenizer, INFILL_PREFIX), err);
    if (!code)
        code = tokenizer_encode(tokenizer, infill->prefix, infill->prefix_size, 0, out, err);
    if (!code)
        code = token_list_push(out, tokenizer_infill(tokenizer, INFILL_SUFFIX), err);
    if (!code)
        code = tokenizer_encode(tokenizer, infill->suffix, infill->suffix_size, 0, out, err);
    return code ? code : token_list_push(out, tokenizer_infill(tokenizer, INFILL_MIDDLE), err);
}
