/* The model's tokens as a grammar's vocabulary. */
#include "base/buffer.h"
#include "base/mem.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "pipeline/constrain.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t vocabulary_lock = PTHREAD_MUTEX_INITIALIZER; /* of its making */

/* A plain token with the byte that tells special ones gets no bytes, so that none is taken for
 * one. */
static void vocabulary_add(const struct tokenizer *tokenizer, int32_t id, struct buffer *bytes)
{
    const bool is_special = tokenizer_is_special(tokenizer, id);
    const char mark = (char)GRAMMAR_SPECIAL;
    const size_t from = bytes->size;
    if (is_special)
        buffer_append(bytes, &mark, 1);
    tokenizer_piece(tokenizer, id, is_special, bytes);
    if (is_special)
        buffer_append(bytes, &mark, 1);
    else if (bytes->size > from && memchr(bytes->data + from, mark, bytes->size - from))
        bytes->size = from;
}

static enum error_code vocabulary_fill(const struct tokenizer *tokenizer, uint32_t n_vocab,
                                       struct grammar_vocabulary **out, struct error *err)
{
    struct buffer bytes = {0};
    uint64_t *starts = mem_new_array((size_t)n_vocab + 1, sizeof *starts);
    int32_t *ends = mem_new_array((size_t)n_vocab + 1, sizeof *ends);
    uint32_t n_ends = 0;
    enum error_code code = ERROR_NONE;
    for (uint32_t id = 0; starts && ends && id < n_vocab; id++) {
        starts[id] = bytes.size;
        if (tokenizer_ends_generation(tokenizer, (int32_t)id))
            ends[n_ends++] = (int32_t)id;
        else if (id < tokenizer_size(tokenizer))
            vocabulary_add(tokenizer, (int32_t)id, &bytes);
    }
    if (!starts || !ends || bytes.failed) {
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the model's tokens");
    } else {
        starts[n_vocab] = bytes.size;
        code = grammar_vocabulary_new(bytes.data ? bytes.data : "", starts, n_vocab, ends, n_ends,
                                      out, err);
    }
    buffer_deinit(&bytes);
    mem_free(starts);
    mem_free(ends);
    return code;
}

enum error_code constrain_open_vocabulary(struct constrain *constrain, const struct model *model,
                                          struct error *err)
{
    struct tokenizer *tokenizer = NULL;
    struct grammar_vocabulary *vocabulary = NULL;
    enum error_code code = ERROR_NONE;
    pthread_mutex_lock(&vocabulary_lock);
    if (!constrain_has_vocabulary(constrain)) {
        code = tokenizer_open(model_file(model), &tokenizer, err);
        if (!code)
            code =
                vocabulary_fill(tokenizer, model_hyperparameters(model)->n_vocab, &vocabulary, err);
        if (!code)
            constrain_give_vocabulary(constrain, vocabulary);
        tokenizer_close(tokenizer);
    }
    pthread_mutex_unlock(&vocabulary_lock);
    return code;
}
