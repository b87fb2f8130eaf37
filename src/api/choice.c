#include "api/choice.h"

#include "base/mem.h"

#include <string.h>

static bool choice_reserve(void **array, uint32_t *capacity, uint32_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    uint32_t larger = *capacity ? *capacity : 16;
    while (larger < needed)
        larger *= 2;
    void *moved = mem_resize(*array, larger, size);
    if (!moved)
        return false;
    *array = moved;
    *capacity = larger;
    return true;
}

static void keep_logprob(struct choice *choice, const struct token_record *token,
                         const struct token_logprob *tops, uint64_t offset)
{
    if (!choice_reserve((void **)&choice->shown, &choice->shown_capacity, choice->n_shown + 1,
                        sizeof *choice->shown) ||
        !choice_reserve((void **)&choice->tops, &choice->tops_capacity,
                        choice->n_tops + token->n_top, sizeof *choice->tops)) {
        choice->failed = true;
        return;
    }
    choice->shown[choice->n_shown++] = (struct shown_token){.token = token->token,
                                                            .logprob = token->logprob,
                                                            .top_first = choice->n_tops,
                                                            .n_top = token->n_top,
                                                            .text_offset = offset};
    if (token->n_top)
        memcpy(choice->tops + choice->n_tops, tops, token->n_top * sizeof *tops);
    choice->n_tops += token->n_top;
}

static void note_failures(struct choice *choice, const struct buffer *out)
{
    choice->failed = choice->failed || out->failed || choice->piece.failed;
}

/* Special tokens say nothing to a client, but a format's marks say where a call begins. */
static bool choice_shows(struct choice *choice, int32_t token)
{
    struct buffer *piece = &choice->piece;
    if (!choice->traits)
        return false;
    buffer_clear(piece);
    tokenizer_piece(choice->tokenizer, token, true, piece);
    return piece->size && template_traits_show(choice->traits, piece->data, piece->size);
}

bool choice_push(struct choice *choice, const struct token_record *token,
                 const struct token_logprob *tops, struct buffer *out)
{
    size_t before = out->size;
    const bool special = choice_shows(choice, token->token);
    buffer_clear(&choice->piece);
    token_stream_push(&choice->stream, choice->tokenizer, token->token, special, &choice->piece);
    if (choice->logprobs)
        keep_logprob(choice, token, tops, choice->n_decoded);
    choice->n_tokens++;
    choice->n_decoded += choice->piece.size;
    bool stopped = stop_push(&choice->stop, choice->piece.data, choice->piece.size, out);
    choice->n_released += out->size - before;
    note_failures(choice, out);
    return stopped;
}

void choice_begin_with(struct choice *choice, size_t n_bytes)
{
    choice->n_decoded = choice->n_released = n_bytes;
}

void choice_push_prompt(struct choice *choice, const struct token_record *token,
                        const struct token_logprob *tops)
{
    buffer_clear(&choice->piece);
    tokenizer_piece(choice->tokenizer, token->token, false, &choice->piece);
    /* Pieces may have a space more than the text that they came from: an offset stays inside. */
    uint64_t offset = choice->n_scored < choice->n_decoded ? choice->n_scored : choice->n_decoded;
    keep_logprob(choice, token, tops, offset);
    choice->n_scored += choice->piece.size;
}

bool choice_finish(struct choice *choice, struct buffer *out)
{
    size_t before = out->size;
    buffer_clear(&choice->piece);
    token_stream_finish(&choice->stream, &choice->piece);
    choice->n_decoded += choice->piece.size;
    bool stopped = stop_push(&choice->stop, choice->piece.data, choice->piece.size, out);
    stopped = stop_finish(&choice->stop, out) || stopped;
    choice->n_released += out->size - before;
    note_failures(choice, out);
    return stopped;
}

/* A token counts as out when all its text is, or, once a stop string has cut the text, when some
 * is. */
struct logprob_list choice_logprobs(const struct choice *choice)
{
    uint32_t n = 0;
    for (; n < choice->n_shown; n++) {
        uint64_t start = choice->shown[n].text_offset;
        uint64_t end =
            n + 1 < choice->n_shown ? choice->shown[n + 1].text_offset : choice->n_decoded;
        bool out =
            end <= choice->n_released || (choice->stop.stopped && start < choice->n_released);
        if (!out)
            break;
    }
    return (struct logprob_list){.tokens = choice->shown,
                                 .n_tokens = n,
                                 .tops = choice->tops,
                                 .tokenizer = choice->tokenizer};
}

void choice_drop_logprobs(struct choice *choice, size_t n_tokens)
{
    if (!n_tokens)
        return;
    uint32_t n = (uint32_t)n_tokens;
    uint32_t n_tops = n < choice->n_shown ? choice->shown[n].top_first : choice->n_tops;
    choice->n_shown -= n;
    choice->n_tops -= n_tops;
    memmove(choice->shown, choice->shown + n, choice->n_shown * sizeof *choice->shown);
    if (choice->tops)
        memmove(choice->tops, choice->tops + n_tops, choice->n_tops * sizeof *choice->tops);
    for (uint32_t i = 0; i < choice->n_shown; i++)
        choice->shown[i].top_first -= n_tops;
}

void choice_deinit(struct choice *choice)
{
    stop_deinit(&choice->stop);
    buffer_deinit(&choice->piece);
    mem_free(choice->shown);
    mem_free(choice->tops);
    *choice = (struct choice){0};
}
