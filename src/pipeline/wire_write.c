#include "base/bytes.h"
#include "pipeline/wire_format.h"
#include "request/sampler_bytes.h"

#include <assert.h>

static bool wire_setups_have_grammars(const struct microbatch *microbatch)
{
    uint32_t i = 0;
    while (i < microbatch->n_setups && !microbatch->setups[i].constraint)
        i++;
    return i < microbatch->n_setups;
}

static bool wire_shares_have_drafts(const struct microbatch *microbatch)
{
    uint32_t i = 0;
    while (i < microbatch->n_shares && !microbatch->shares[i].n_drafted)
        i++;
    return i < microbatch->n_shares;
}

static bool wire_keeps_states(const struct microbatch *microbatch)
{
    for (uint32_t i = 0; i < microbatch->n_operations; i++) {
        const enum cache_operation_kind kind = microbatch->operations[i].kind;
        if (kind == CACHE_KEEP || kind == CACHE_TAKE)
            return true;
    }
    return false;
}

static void wire_write_operation(const struct cache_operation *operation, bool has_checkpoints,
                                 struct buffer *out)
{
    const bool has_source = operation->kind == CACHE_COPY || operation->kind == CACHE_TAKE;
    bytes_put(out, operation->slot, 4);
    bytes_put(out, operation->length, 4);
    bytes_put(out, has_source ? operation->from : UINT32_MAX, 4);
    if (has_checkpoints) {
        bytes_put(out, operation->kind, 1);
        bytes_put(out, operation->checkpoint, 1);
        bytes_put(out, operation->checkpoint_id, 4);
    }
}

static void wire_write_header(const struct microbatch *microbatch, const struct wire_route *route,
                              enum activation_type type, bool behind, size_t error_bytes,
                              struct buffer *out)
{
    const bool has_grammars = !behind && wire_setups_have_grammars(microbatch),
               has_checkpoints = !behind && wire_keeps_states(microbatch);
    bytes_put(out, WIRE_MAGIC, 4);
    bytes_put(out, microbatch->at, 4);
    bytes_put(out, route->instance, 8);
    bytes_put(out, route->epoch, 8);
    bytes_put(out, route->number, 8);
    bytes_put(out, microbatch->slowest_ns, 8);
    bytes_put(out, behind ? 0 : microbatch->n_setups, 4);
    bytes_put(out, behind ? 0 : microbatch->n_operations, 4);
    bytes_put(out, microbatch->n_shares, 4);
    bytes_put(out, microbatch->n_rows, 4);
    bytes_put(out, type, 1);
    bytes_put(out,
              (microbatch->embeddings ? WIRE_EMBEDDINGS : 0U) |
                  (microbatch->times.n_stages ? WIRE_TIMES : 0U) |
                  (has_grammars ? WIRE_GRAMMARS : 0U) |
                  (wire_shares_have_drafts(microbatch) ? WIRE_DRAFTS : 0U) |
                  (microbatch->has_stable_bits ? WIRE_STABLE_BITS : 0U) |
                  (microbatch->knows_checkpoints ? WIRE_KNOWS_CHECKPOINTS : 0U) |
                  (has_checkpoints ? WIRE_CHECKPOINTS : 0U) |
                  (!behind && microbatch->has_places ? WIRE_PICTURES : 0U),
              1);
    bytes_put(out, error_bytes ? microbatch->error.code : 0, 2);
    bytes_put(out, error_bytes, 4);
}

static void wire_write_setup(const struct pick_setup *setup, struct buffer *out)
{
    const struct sampler_params *params = &setup->params;
    bytes_put(out, setup->slot, 4);
    bytes_put(out, setup->n_top, 4);
    bytes_put(out, setup->logprobs, 1);
    sampler_put(params, out);
    bytes_put(out, params->n_biases, 4);
    biases_put(setup->biases, params->n_biases, out);
}

static void wire_write_grammar(const struct pick_setup *setup, struct buffer *out)
{
    static const struct grammar_source none = {.kind = GRAMMAR_NONE};
    const struct grammar_source *source =
        setup->constraint ? constraint_source(setup->constraint) : &none;
    bytes_put(out, setup->answer, 4);
    bytes_put(out, source->kind, 1);
    bytes_put(out, source->annotate, 1);
    bytes_put(out, source->size, 4);
    if (source->size)
        buffer_append(out, source->text, source->size);
}

static void wire_write_share(const struct share *share, bool has_drafts, struct buffer *out)
{
    unsigned flags =
        (share->pick ? WIRE_SHARE_PICK : 0U) | (share->gives_rows ? WIRE_SHARE_ROWS : 0U) |
        (share->failed ? WIRE_SHARE_FAILED : 0U) | (share->dropped ? WIRE_SHARE_DROPPED : 0U);
    bytes_put(out, share->slot, 4);
    bytes_put(out, share->epoch, 4);
    bytes_put(out, share->position, 4);
    bytes_put(out, share->n_rows, 4);
    bytes_put(out, share->sequence, 8);
    bytes_put(out, flags, 1);
    if (has_drafts) {
        bytes_put(out, share->n_drafted, 2);
        bytes_put(out, share->n_picks, 2);
    }
}

static void wire_write_pick(const struct pick *pick, struct buffer *out)
{
    bytes_put(out, (uint32_t)pick->token, 4);
    bytes_put_float(out, pick->logprob);
    bytes_put(out, pick->n_top, 4);
    for (uint32_t i = 0; i < pick->n_top; i++) {
        bytes_put(out, (uint32_t)pick->top[i].token, 4);
        bytes_put_float(out, pick->top[i].logprob);
    }
}

static void wire_write_outputs(const struct microbatch *microbatch, uint32_t width,
                               struct buffer *out)
{
    const float *outputs = microbatch->outputs;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        if (share_is_void(share))
            continue;
        size_t n = (size_t)share->n_outputs * width;
        if (share->gives_rows)
            buffer_append(out, outputs, n * sizeof *outputs);
        outputs += n;
    }
}

static void wire_write_place(const struct row_place *place, struct buffer *out)
{
    bytes_put(out, place->ahead, 4);
    for (int axis = 0; axis < 3; axis++)
        bytes_put(out, place->behind[axis], 4);
}

static void wire_pad(size_t begin, struct buffer *out)
{
    bytes_put(out, 0, (unsigned)(-(out->size - begin) & 7));
}

static void wire_write_hidden(const struct microbatch *microbatch, enum activation_type type,
                              uint32_t width, float *scratch, struct buffer *out)
{
    void *room = buffer_extend(out, activation_bytes(type, width, microbatch->n_rows));
    if (room)
        activation_encode(type, microbatch->hidden[(microbatch->at - 1) & 1], width,
                          microbatch->n_rows, scratch, room);
}

enum { /* what wire_write_setup(), wire_write_share(), wire_write_pick() and an operation take at
          most */
       SETUP_BYTES = 57 + 8 * LIMIT_LOGIT_BIAS + 10,
       SHARE_BYTES = 29,
       PICK_BYTES = 12 + 8 * LIMIT_TOP_LOGPROBS,
       OPERATION_BYTES = 18,
       PLACE_BYTES = 16,
};

uint64_t wire_bytes_max(const struct wire_shape *shape)
{
    const uint64_t given = (uint64_t)shape->rows * shape->given_width,
                   hidden = (uint64_t)shape->rows * wire_hidden_width(shape) +
                            (shape->given_stages > 1 ? given : 0),
                   inner = hidden > given ? hidden : given,
                   most = inner > shape->output_floats ? inner : shape->output_floats;
    return WIRE_HEADER_BYTES + (uint64_t)shape->n_slots * (SETUP_BYTES + SHARE_BYTES) +
           (uint64_t)shape->picks * PICK_BYTES + (uint64_t)shape->operations * OPERATION_BYTES +
           (uint64_t)shape->rows * (shape->given_width ? 4 + PLACE_BYTES : 4) + ERROR_TEXT_MAX + 8 +
           most * sizeof(float) + LIMIT_WIRE_GRAMMARS + WIRE_TIMES_BYTES_MAX;
}

void wire_write_notice(const struct wire_route *route, struct buffer *out)
{
    const struct wire_route nothing = {route->instance, route->epoch, 0};
    const struct microbatch empty = {0};
    wire_write_header(&empty, &nothing, ACTIVATION_F32, false, 0, out);
}

bool wire_is_notice(const struct wire_route *route)
{
    return route->number == 0;
}

void wire_write(const struct microbatch *microbatch, const struct wire_route *route,
                enum activation_type type, const struct wire_shape *shape, float *scratch,
                struct buffer *out)
{
    assert(microbatch->at <= shape->n_stages && microbatch->n_rows <= shape->rows);
    assert(microbatch->n_shares <= shape->n_slots && microbatch->n_operations <= shape->operations);
    size_t begin = out->size;
    bool behind = microbatch->at == shape->n_stages;
    size_t error_bytes = strlen(microbatch->error.text);
    wire_write_header(microbatch, route, type, behind, error_bytes, out);
    const bool has_grammars = wire_setups_have_grammars(microbatch);
    for (uint32_t i = 0; i < microbatch->n_setups && !behind; i++) {
        wire_write_setup(&microbatch->setups[i], out);
        if (has_grammars)
            wire_write_grammar(&microbatch->setups[i], out);
    }
    const bool has_checkpoints = wire_keeps_states(microbatch);
    for (uint32_t i = 0; i < microbatch->n_operations && !behind; i++)
        wire_write_operation(&microbatch->operations[i], has_checkpoints, out);
    const bool has_drafts = wire_shares_have_drafts(microbatch);
    for (uint32_t i = 0; i < microbatch->n_shares; i++)
        wire_write_share(&microbatch->shares[i], has_drafts, out);
    for (uint32_t i = 0; i < microbatch->n_rows && !behind; i++)
        bytes_put(out,
                  (uint32_t)microbatch->rows[i].token |
                      (microbatch->rows[i].output ? WIRE_OUTPUT_BIT : 0),
                  4);
    for (uint32_t i = 0; i < microbatch->n_rows && !behind && microbatch->has_places; i++)
        wire_write_place(&microbatch->places[i], out);
    for (uint32_t i = 0; i < microbatch->n_shares && behind; i++) {
        const struct share *share = &microbatch->shares[i];
        for (uint32_t k = 0; k < share->n_picks && !share_is_void(share); k++)
            wire_write_pick(&microbatch->picks[share->first_pick + k], out);
    }
    buffer_append(out, microbatch->error.text, error_bytes);
    wire_pad(begin, out);
    if (behind)
        wire_write_outputs(microbatch, microbatch->embeddings ? shape->n_embd : shape->n_vocab,
                           out);
    else if (microbatch->at)
        wire_write_hidden(microbatch, type, wire_hidden_width(shape), scratch, out);
    if (microbatch->at < shape->given_stages)
        buffer_append(out, microbatch->given,
                      (size_t)microbatch->n_given * shape->given_width * sizeof(float));
    if (microbatch->times.n_stages)
        wire_write_times(microbatch, out);
}
