#include "pipeline/sequence.h"

#include "base/mem.h"

#include <assert.h>

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

static uint32_t picture_larger_side(const struct picture_rows *rows)
{
    return rows->grid_width > rows->grid_height ? rows->grid_width : rows->grid_height;
}

/* By how much positions of text are less than tokens, behind the pictures before `position`: a
 * picture takes as many positions as its larger side has rows (Qwen2-VL, arXiv:2409.12191, 2.1). */
static uint32_t sequence_lag(const struct sequence *sequence, uint32_t position)
{
    const struct request *request = &sequence->request;
    uint32_t lag = 0;
    for (uint32_t i = 0; sequence->has_axes && i < request->n_pictures; i++) {
        const struct picture_rows *rows = prompt_picture_rows(request->pictures[i].picture);
        if (request->pictures[i].at + rows->n_rows > position)
            break;
        lag += rows->n_rows - picture_larger_side(rows);
    }
    return lag;
}

const float *sequence_row(const struct sequence *sequence, uint32_t position,
                          struct row_place *place)
{
    const struct request *request = &sequence->request;
    const struct request_picture *picture =
        request_picture_at(request->pictures, request->n_pictures, position);
    const uint32_t lag = sequence_lag(sequence, picture ? picture->at : position);
    *place = (struct row_place){.behind = {lag, lag, lag}};
    if (!picture)
        return NULL;
    const struct picture_rows *rows = prompt_picture_rows(picture->picture);
    const uint32_t row = position - picture->at;
    if (sequence->has_axes) {
        place->behind[0] += row;
        place->behind[1] += row - row / rows->grid_width;
        place->behind[2] += row - row % rows->grid_width;
    }
    place->ahead = rows->is_whole ? rows->n_rows - 1 - row : 0;
    return rows->rows + (size_t)row * rows->width;
}

uint32_t sequence_resume_at(const struct sequence *sequence, uint32_t length)
{
    const struct request *request = &sequence->request;
    const struct request_picture *picture =
        request_picture_at(request->pictures, request->n_pictures, length);
    return picture ? picture->at : length;
}

uint32_t sequence_rows_together(const struct sequence *sequence, uint32_t position,
                                uint32_t waiting, bool *is_whole)
{
    const struct request *request = &sequence->request;
    *is_whole = false;
    for (uint32_t i = 0; i < request->n_pictures; i++) {
        const struct request_picture *picture = &request->pictures[i];
        const struct picture_rows *rows = prompt_picture_rows(picture->picture);
        if (!rows->is_whole || picture->at + rows->n_rows <= position)
            continue;
        assert(position <= picture->at);
        *is_whole = position == picture->at && waiting;
        if (*is_whole)
            return rows->n_rows;
        return waiting < picture->at - position ? waiting : picture->at - position;
    }
    return waiting;
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
