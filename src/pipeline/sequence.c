#include "pipeline/sequence.h"

#include "base/mem.h"

enum error_code sequence_new(const struct request *request, uint32_t context, uint32_t n_vocab,
                             struct sequence **out, struct error *err)
{
    enum error_code code = request_check_room(request, context, err);
    if (!code)
        code = request_check(request, n_vocab, err);
    if (code)
        return code;
    struct sequence *sequence = mem_new(sizeof *sequence);
    if (!sequence)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a request of %u tokens",
                         request->n_prompt);
    sequence->slot = SLOT_NONE;
    code = request_copy(request, 0, &sequence->request, err);
    if (code)
        mem_free(sequence);
    else
        *out = sequence;
    return code;
}

void sequence_free(struct sequence *sequence)
{
    if (!sequence)
        return;
    request_copy_deinit(&sequence->request);
    mem_free(sequence);
}

bool sequence_wants_rows(const struct sequence *sequence)
{
    return sequence->request.embeddings || sequence->request.want_all_logits;
}

bool sequence_is_stop(const struct sequence *sequence, int32_t token)
{
    for (uint32_t i = 0; i < sequence->request.n_stop_tokens; i++) {
        if (sequence->request.stop_tokens[i] == token)
            return true;
    }
    return false;
}
