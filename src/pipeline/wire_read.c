#include "base/bytes.h"
#include "pipeline/wire_format.h"
#include "request/sampler_bytes.h"

#include <assert.h>
#include <math.h>

struct wire_header {
    struct wire_route route;
    uint32_t at;
    uint64_t slowest_ns;
    uint32_t n_setups, n_operations, n_shares, n_rows;
    uint32_t type, flags, error_code, error_bytes;
};

static enum error_code wire_read_header(struct bytes_reader *reader, struct wire_header *header,
                                        struct error *err)
{
    uint32_t magic = bytes_get_u32(reader);
    header->at = bytes_get_u32(reader);
    header->route.instance = bytes_get(reader, 8);
    header->route.epoch = bytes_get(reader, 8);
    header->route.number = bytes_get(reader, 8);
    header->slowest_ns = bytes_get(reader, 8);
    header->n_setups = bytes_get_u32(reader);
    header->n_operations = bytes_get_u32(reader);
    header->n_shares = bytes_get_u32(reader);
    header->n_rows = bytes_get_u32(reader);
    header->type = (uint32_t)bytes_get(reader, 1);
    header->flags = (uint32_t)bytes_get(reader, 1);
    header->error_code = (uint32_t)bytes_get(reader, 2);
    header->error_bytes = bytes_get_u32(reader);
    if (reader->short_ || magic != WIRE_MAGIC)
        return error_set(err, ERROR_INVALID, "not a micro-batch");
    return ERROR_NONE;
}

enum error_code wire_read_route(const void *bytes, size_t size, struct wire_route *out,
                                struct error *err)
{
    struct bytes_reader reader = {bytes, size, false};
    struct wire_header header;
    enum error_code code = wire_read_header(&reader, &header, err);
    if (!code)
        *out = header.route;
    return code;
}

enum error_code wire_read_message(const void *bytes, size_t size, struct microbatch_message *out,
                                  struct error *err)
{
    struct bytes_reader reader = {bytes, size, false};
    struct wire_header header;
    enum error_code code = wire_read_header(&reader, &header, err);
    if (code)
        return code;
    *out = (struct microbatch_message){
        .route = header.route,
        .at = header.at,
        .n_rows = header.n_rows,
        .bytes = bytes,
        .size = size,
    };
    return ERROR_NONE;
}

static enum error_code wire_check_header(const struct wire_header *header,
                                         const struct wire_shape *shape, struct error *err)
{
    if (header->at > shape->n_stages)
        return error_set(err, ERROR_INVALID, "for stage %u of %u", header->at, shape->n_stages);
    if (header->n_setups > shape->n_slots || header->n_shares > shape->n_slots ||
        header->n_operations > shape->operations || header->n_rows > shape->rows)
        return error_set(err, ERROR_INVALID,
                         "%u setups, %u operations, %u shares and %u rows; at most %u, %u, %u, %u",
                         header->n_setups, header->n_operations, header->n_shares, header->n_rows,
                         shape->n_slots, shape->operations, shape->n_slots, shape->rows);
    if (header->type > ACTIVATION_Q8 ||
        !activation_type_fits((enum activation_type)header->type, wire_hidden_width(shape)))
        return error_set(err, ERROR_INVALID, "activation type %u for %u values", header->type,
                         wire_hidden_width(shape));
    if (header->error_bytes >= ERROR_TEXT_MAX || header->error_code > ERROR_INTERNAL)
        return error_set(err, ERROR_INVALID, "error %u with a text of %u bytes", header->error_code,
                         header->error_bytes);
    return ERROR_NONE;
}

static enum error_code wire_read_setup(struct bytes_reader *reader, const struct wire_shape *shape,
                                       struct pick_setup *setup, struct error *err)
{
    struct sampler_params *params = &setup->params;
    setup->slot = bytes_get_u32(reader);
    setup->n_top = bytes_get_u32(reader);
    setup->logprobs = bytes_get(reader, 1) != 0;
    sampler_get(reader, params);
    params->n_biases = bytes_get_u32(reader);
    params->biases = setup->biases;
    if (setup->slot >= shape->n_slots || setup->n_top > LIMIT_TOP_LOGPROBS ||
        setup->n_top > shape->n_vocab || params->n_biases > LIMIT_LOGIT_BIAS)
        return error_set(err, ERROR_INVALID, "slot %u of %u, %u most probable tokens, %u biases",
                         setup->slot, shape->n_slots, setup->n_top, params->n_biases);
    biases_get(reader, setup->biases, params->n_biases);
    return sampler_check(params, shape->n_vocab, err);
}

/* It is compiled where tokens are picked: what is wrong with its text is the request's error. */
static enum error_code wire_read_grammar(struct bytes_reader *reader,
                                         const struct wire_shape *shape, struct pick_setup *setup,
                                         uint32_t *room, struct error *err)
{
    setup->answer = bytes_get_u32(reader);
    struct grammar_source source = {.kind = (enum grammar_kind)bytes_get(reader, 1)};
    source.annotate = bytes_get(reader, 1) != 0;
    source.size = bytes_get_u32(reader);
    if (setup->answer > shape->context || source.kind > GRAMMAR_CALLS || source.size > *room ||
        (source.kind == GRAMMAR_NONE && source.size))
        return error_set(err, ERROR_INVALID,
                         "a grammar of kind %d with %zu bytes from token %u; there is room for %u",
                         (int)source.kind, source.size, setup->answer, *room);
    source.text = bytes_take(reader, source.size);
    if (!source.text)
        return error_set(err, ERROR_INVALID, "it is too short");
    *room -= (uint32_t)source.size;
    return source.kind ? constraint_note(&source, &setup->constraint, err) : ERROR_NONE;
}

/* What only operations on kept states have. */
static bool wire_read_checkpoint(struct bytes_reader *reader, const struct wire_shape *shape,
                                 struct cache_operation *operation)
{
    const uint32_t kind = (uint32_t)bytes_get(reader, 1);
    operation->checkpoint = (uint32_t)bytes_get(reader, 1);
    operation->checkpoint_id = bytes_get_u32(reader);
    const bool has_source = kind == CACHE_COPY || kind == CACHE_TAKE,
               is_of_state = kind == CACHE_KEEP || kind == CACHE_TAKE;
    if (kind >= CACHE_OPERATION_KINDS || has_source != (operation->kind == CACHE_COPY) ||
        (is_of_state && (operation->checkpoint >= shape->checkpoints || !operation->checkpoint_id ||
                         !operation->length)))
        return false;
    operation->kind = (enum cache_operation_kind)kind;
    return true;
}

static enum error_code wire_read_operation(struct bytes_reader *reader, bool has_checkpoints,
                                           const struct wire_shape *shape,
                                           struct cache_operation *operation, struct error *err)
{
    *operation = (struct cache_operation){.slot = bytes_get_u32(reader),
                                          .length = bytes_get_u32(reader),
                                          .from = bytes_get_u32(reader)};
    operation->kind = operation->from != UINT32_MAX ? CACHE_COPY : CACHE_CUT;
    if (has_checkpoints && !wire_read_checkpoint(reader, shape, operation))
        return error_set(err, ERROR_INVALID, "state %u of slot %u; there are %u places",
                         operation->checkpoint, operation->slot, shape->checkpoints);
    if (operation->from == UINT32_MAX)
        operation->from = 0;
    if (operation->slot >= shape->n_slots || operation->from >= shape->n_slots ||
        operation->length > shape->context ||
        (operation->kind == CACHE_COPY && operation->from == operation->slot))
        return error_set(
            err, ERROR_INVALID, "%u tokens of slot %u to slot %u; there are %u slots of %u",
            operation->length, operation->from, operation->slot, shape->n_slots, shape->context);
    return ERROR_NONE;
}

/* A share with drafts wants tokens of its last rows, and nothing else. */
static enum error_code wire_check_drafts(const struct share *share, struct error *err)
{
    const bool fits = share->n_drafted < share->n_rows && share->n_picks <= share_picks_room(share);
    if (fits && (!share->n_drafted || (share->pick && !share->gives_rows)))
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID, "%u rows of slot %u with %u drafted and %u tokens picked",
                     share->n_rows, share->slot, share->n_drafted, share->n_picks);
}

static enum error_code wire_read_share(struct bytes_reader *reader, const struct wire_shape *shape,
                                       bool has_drafts, struct share *share, struct error *err)
{
    *share = (struct share){.slot = bytes_get_u32(reader)};
    share->epoch = bytes_get_u32(reader);
    share->position = bytes_get_u32(reader);
    share->n_rows = bytes_get_u32(reader);
    share->sequence = bytes_get(reader, 8);
    unsigned flags = (unsigned)bytes_get(reader, 1);
    share->pick = flags & WIRE_SHARE_PICK;
    share->gives_rows = flags & WIRE_SHARE_ROWS;
    share->failed = flags & WIRE_SHARE_FAILED;
    share->dropped = flags & WIRE_SHARE_DROPPED;
    share->n_picks = share->pick;
    if (has_drafts) {
        share->n_drafted = (uint32_t)bytes_get(reader, 2);
        share->n_picks = (uint32_t)bytes_get(reader, 2);
    }
    if (share->slot >= shape->n_slots || !share->n_rows || share->n_rows > shape->rows ||
        (uint64_t)share->position + share->n_rows > shape->context)
        return error_set(err, ERROR_INVALID, "%u rows from %u of slot %u; there are %u slots of %u",
                         share->n_rows, share->position, share->slot, shape->n_slots,
                         shape->context);
    return wire_check_drafts(share, err);
}

/* The rows of the shares that are not void. */
static enum error_code wire_read_rows(struct bytes_reader *reader, const struct wire_shape *shape,
                                      struct microbatch *microbatch, const struct share *share,
                                      uint32_t *n_outputs, struct error *err)
{
    *n_outputs = 0;
    for (uint32_t i = 0; i < share->n_rows; i++) {
        uint32_t bits = bytes_get_u32(reader);
        struct batch_row row = {share->slot, share->position + i,
                                (int32_t)(bits & ~WIRE_OUTPUT_BIT), (bits & WIRE_OUTPUT_BIT) != 0};
        microbatch->n_given += row.token >= PICTURE_TOKEN_FIRST && microbatch->has_places;
        if ((uint32_t)row.token >= shape->n_vocab &&
            (row.token < PICTURE_TOKEN_FIRST || !microbatch->has_places))
            return error_set(err, ERROR_INVALID, "token %d; the vocabulary has %u", row.token,
                             shape->n_vocab);
        microbatch->rows[microbatch->n_rows++] = row;
        *n_outputs += row.output;
    }
    for (uint32_t i = 0; i < share_picks_room(share); i++) {
        if (!microbatch->rows[microbatch->n_rows - 1 - i].output || microbatch->embeddings)
            return error_set(err, ERROR_INVALID, "slot %u wants a token without logits",
                             share->slot);
    }
    if (share->n_drafted && *n_outputs != share_picks_room(share))
        return error_set(err, ERROR_INVALID, "slot %u has %u outputs and wants %u tokens",
                         share->slot, *n_outputs, share_picks_room(share));
    return ERROR_NONE;
}

static enum error_code wire_read_places(struct bytes_reader *reader, struct microbatch *microbatch,
                                        struct error *err)
{
    for (uint32_t i = 0; i < microbatch->n_rows; i++) {
        struct row_place *place = &microbatch->places[i];
        bool fits = true;
        place->ahead = bytes_get_u32(reader);
        for (int axis = 0; axis < 3; axis++) {
            place->behind[axis] = bytes_get_u32(reader);
            fits &= place->behind[axis] <= microbatch->rows[i].position;
        }
        if (!fits || place->ahead >= microbatch->n_rows - i)
            return error_set(err, ERROR_INVALID, "row %u of %u sees %u rows more", i,
                             microbatch->n_rows, place->ahead);
    }
    return ERROR_NONE;
}

static enum error_code wire_read_all_rows(struct bytes_reader *reader,
                                          const struct wire_header *header,
                                          const struct wire_shape *shape,
                                          struct microbatch *microbatch, struct share *shares,
                                          struct error *err)
{
    uint64_t n_rows = 0, n_outputs = 0;
    for (uint32_t i = 0; i < header->n_shares; i++)
        n_rows += share_is_void(&shares[i]) ? 0 : shares[i].n_rows;
    if (n_rows != header->n_rows)
        return error_set(err, ERROR_INVALID, "%u rows; its shares have %llu", header->n_rows,
                         (unsigned long long)n_rows);
    microbatch->n_rows = microbatch->n_given = 0;
    microbatch->embeddings = header->flags & WIRE_EMBEDDINGS;
    microbatch->has_places = header->flags & WIRE_PICTURES;
    if (microbatch->has_places && !shape->given_width)
        return error_set(err, ERROR_INVALID, "it has pictures, which the model does not take");
    for (uint32_t i = 0; i < header->n_shares; i++) {
        if (share_is_void(&shares[i]))
            continue;
        enum error_code code =
            wire_read_rows(reader, shape, microbatch, &shares[i], &shares[i].n_outputs, err);
        if (code)
            return code;
        n_outputs += shares[i].n_outputs;
    }
    uint64_t width = microbatch->embeddings ? shape->n_embd : shape->n_vocab;
    if (n_outputs > shape->output_floats / width)
        return error_set(err, ERROR_INVALID,
                         "%llu outputs of %llu values; there is room for %llu values",
                         (unsigned long long)n_outputs, (unsigned long long)width,
                         (unsigned long long)shape->output_floats);
    return microbatch->has_places ? wire_read_places(reader, microbatch, err) : ERROR_NONE;
}

static enum error_code wire_read_pick(struct bytes_reader *reader, const struct wire_shape *shape,
                                      struct pick *pick, struct error *err)
{
    pick->token = (int32_t)bytes_get_u32(reader);
    pick->logprob = bytes_get_float(reader);
    pick->n_top = bytes_get_u32(reader);
    const bool is_none = pick->token < 0 && pick->token >= CONSTRAIN_REFUSED && !pick->n_top;
    if ((!is_none && (uint32_t)pick->token >= shape->n_vocab) || pick->n_top > LIMIT_TOP_LOGPROBS)
        return error_set(err, ERROR_INVALID, "token %d with %u others; the vocabulary has %u",
                         pick->token, pick->n_top, shape->n_vocab);
    for (uint32_t i = 0; i < pick->n_top; i++) {
        pick->top[i].token = (int32_t)bytes_get_u32(reader); /* -1: none */
        pick->top[i].logprob = bytes_get_float(reader);
    }
    return ERROR_NONE;
}

static void wire_read_error(struct bytes_reader *reader, const struct wire_header *header,
                            struct error *out)
{
    const char *text = bytes_take(reader, header->error_bytes);
    *out = (struct error){.code = (enum error_code)header->error_code};
    for (uint32_t i = 0; text && i < header->error_bytes; i++)
        out->text[i] =
            (unsigned char)text[i] < ' ' ? '?' : text[i]; /* it ends up in logs and on terminals */
}

static void wire_read_outputs(struct bytes_reader *reader, const struct wire_shape *shape,
                              struct microbatch *microbatch)
{
    float *outputs = microbatch->outputs;
    size_t width = microbatch->embeddings ? shape->n_embd : shape->n_vocab;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        if (share_is_void(&microbatch->shares[i]))
            continue;
        size_t n = microbatch->shares[i].n_outputs * width;
        const void *values =
            microbatch->shares[i].gives_rows ? bytes_take(reader, n * sizeof *outputs) : NULL;
        if (values)
            memcpy(outputs, values, n * sizeof *outputs);
        outputs += n;
    }
}

/* No numbers: whoever computed them is broken, and what would come of them is worth nothing. */
static void wire_fail_shares(struct microbatch *microbatch)
{
    microbatch_fail(microbatch);
    error_set(&microbatch->error, ERROR_DEVICE, "what came from before stage %u is not a number",
              microbatch->at);
}

static void wire_read_hidden(struct bytes_reader *reader, const struct wire_header *header,
                             const struct wire_shape *shape, struct microbatch *microbatch)
{
    enum activation_type type = (enum activation_type)header->type;
    const void *bytes =
        bytes_take(reader, activation_bytes(type, wire_hidden_width(shape), microbatch->n_rows));
    if (bytes && !activation_decode(type, bytes, wire_hidden_width(shape), microbatch->n_rows,
                                    microbatch->hidden[(microbatch->at - 1) & 1]))
        wire_fail_shares(microbatch);
}

/* The values of pictures' rows, where the stage it goes to takes them. */
static void wire_read_given(struct bytes_reader *reader, const struct wire_shape *shape,
                            uint32_t n_given, struct microbatch *microbatch)
{
    const size_t n = (size_t)n_given * shape->given_width;
    microbatch->n_given = 0;
    if (microbatch->at >= shape->given_stages)
        return;
    const void *bytes = n ? bytes_take(reader, n * sizeof(float)) : NULL;
    if (!bytes)
        return;
    memcpy(microbatch->given, bytes, n * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(microbatch->given[i])) {
            wire_fail_shares(microbatch);
            return;
        }
    }
    if (microbatch->n_rows)
        microbatch->n_given = n_given;
}

static void wire_skip_padding(struct bytes_reader *reader, size_t size)
{
    bytes_take(reader, -(size - reader->left) & 7);
}

static enum error_code wire_finish(const struct bytes_reader *reader, struct error *err)
{
    if (reader->short_)
        return error_set(err, ERROR_INVALID, "it is too short");
    if (reader->left)
        return error_set(err, ERROR_INVALID, "%zu bytes too many", reader->left);
    return ERROR_NONE;
}

static enum error_code wire_read_shares(struct bytes_reader *reader,
                                        const struct wire_header *header,
                                        const struct wire_shape *shape, struct share *shares,
                                        struct error *err)
{
    bool seen[LIMIT_SEQUENCES] = {false};
    uint32_t n_picks = 0;
    for (uint32_t i = 0; i < header->n_shares; i++) {
        enum error_code code =
            wire_read_share(reader, shape, header->flags & WIRE_DRAFTS, &shares[i], err);
        if (code)
            return code;
        shares[i].first_pick = n_picks;
        n_picks += share_picks_room(&shares[i]);
        if (n_picks > shape->picks)
            return error_set(err, ERROR_INVALID, "it wants more than %u tokens", shape->picks);
        if (seen[shares[i].slot])
            return error_set(err, ERROR_INVALID, "slot %u twice", shares[i].slot);
        seen[shares[i].slot] = true;
    }
    return ERROR_NONE;
}

static enum error_code wire_read_changes(struct bytes_reader *reader,
                                         const struct wire_header *header,
                                         const struct wire_shape *shape,
                                         struct microbatch *microbatch, struct error *err)
{
    enum error_code code = ERROR_NONE;
    uint32_t room = LIMIT_WIRE_GRAMMARS;
    for (uint32_t i = 0; !code && i < header->n_setups; i++) {
        pick_setup_deinit(&microbatch->setups[i]);
        code = wire_read_setup(reader, shape, &microbatch->setups[i], err);
        if (!code && header->flags & WIRE_GRAMMARS)
            code = wire_read_grammar(reader, shape, &microbatch->setups[i], &room, err);
    }
    for (uint32_t i = 0; !code && i < header->n_operations; i++)
        code = wire_read_operation(reader, header->flags & WIRE_CHECKPOINTS, shape,
                                   &microbatch->operations[i], err);
    microbatch->n_setups = header->n_setups;
    microbatch->n_operations = header->n_operations;
    return code;
}

enum error_code wire_read(const void *bytes, size_t size, const struct wire_shape *shape,
                          struct microbatch *microbatch, struct error *err)
{
    struct bytes_reader reader = {bytes, size, false};
    struct wire_header header;
    microbatch_clear(microbatch);
    enum error_code code = wire_read_header(&reader, &header, err);
    if (!code)
        code = wire_check_header(&header, shape, err);
    if (!code && header.at == shape->n_stages)
        code = error_set(err, ERROR_INVALID, "behind the last stage");
    if (!code)
        code = wire_read_changes(&reader, &header, shape, microbatch, err);
    if (!code)
        code = wire_read_shares(&reader, &header, shape, microbatch->shares, err);
    if (!code)
        code = wire_read_all_rows(&reader, &header, shape, microbatch, microbatch->shares, err);
    if (!code) {
        microbatch->n_shares = header.n_shares;
        microbatch->at = header.at;
        microbatch->slowest_ns = header.slowest_ns;
        microbatch->has_stable_bits = header.flags & WIRE_STABLE_BITS;
        microbatch->knows_checkpoints = header.flags & WIRE_KNOWS_CHECKPOINTS;
        const uint32_t n_given = microbatch->n_given;
        wire_read_error(&reader, &header, &microbatch->error);
        wire_skip_padding(&reader, size);
        if (header.at)
            wire_read_hidden(&reader, &header, shape, microbatch);
        wire_read_given(&reader, shape, n_given, microbatch);
        code = wire_read_times(&reader, header.flags, shape->n_stages, size, microbatch, err);
    }
    if (!code)
        code = wire_finish(&reader, err);
    if (code) {
        microbatch_clear(microbatch);
        error_wrap(err, "a micro-batch");
    }
    return code;
}

/* ---- one that comes back --------------------------------------------------------------- */

static bool wire_same_share(const struct share *a, const struct share *b)
{
    return a->slot == b->slot && a->epoch == b->epoch && a->position == b->position &&
           a->n_rows == b->n_rows && a->sequence == b->sequence && a->pick == b->pick &&
           a->n_drafted == b->n_drafted && a->gives_rows == b->gives_rows;
}

/* Takes over what happened to the shares on the way. */
static enum error_code wire_match_shares(struct microbatch *microbatch,
                                         const struct wire_header *header,
                                         const struct share *shares, struct error *err)
{
    if (header->n_shares != microbatch->n_shares)
        return error_set(err, ERROR_INVALID, "%u shares came back of %u", header->n_shares,
                         microbatch->n_shares);
    for (uint32_t i = 0; i < header->n_shares; i++) {
        struct share *share = &microbatch->shares[i];
        if (!wire_same_share(share, &shares[i]) ||
            (share_is_void(share) && !share_is_void(&shares[i])))
            return error_set(err, ERROR_INVALID, "share %u is not the one that was sent", i);
        share->failed = shares[i].failed;
        share->dropped = shares[i].dropped;
        share->n_picks = shares[i].n_picks;
    }
    return ERROR_NONE;
}

static enum error_code wire_read_picks(struct bytes_reader *reader, const struct wire_shape *shape,
                                       struct microbatch *microbatch, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < microbatch->n_shares && !code; i++) {
        const struct share *share = &microbatch->shares[i];
        if (!share->pick || share_is_void(share))
            continue;
        if (!share->n_picks)
            code = error_set(err, ERROR_INVALID, "slot %u came back without a token", share->slot);
        for (uint32_t k = 0; k < share->n_picks && !code; k++)
            code = wire_read_pick(reader, shape, &microbatch->picks[share->first_pick + k], err);
    }
    return code;
}

enum error_code wire_read_back(const void *bytes, size_t size, const struct wire_shape *shape,
                               struct microbatch *microbatch, struct error *err)
{
    assert(microbatch->at <= shape->n_stages && shape->n_slots <= LIMIT_SEQUENCES);
    struct bytes_reader reader = {bytes, size, false};
    struct wire_header header;
    struct share shares[LIMIT_SEQUENCES];
    enum error_code code = wire_read_header(&reader, &header, err);
    if (!code)
        code = wire_check_header(&header, shape, err);
    if (!code && header.at <= microbatch->at)
        code = error_set(err, ERROR_INVALID, "it is before stage %u and was at %u when it left",
                         header.at, microbatch->at);
    bool behind = !code && header.at == shape->n_stages;
    if (!code)
        code = wire_read_changes(&reader, &header, shape, microbatch, err); /* for a stage here */
    if (!code)
        code = wire_read_shares(&reader, &header, shape, shares, err);
    if (!code)
        code = wire_match_shares(microbatch, &header, shares, err);
    if (!code && behind)
        code = wire_read_picks(&reader, shape, microbatch, err);
    else if (!code)
        code = wire_read_all_rows(&reader, &header, shape, microbatch, shares, err);
    if (!code) {
        microbatch->at = header.at;
        if (header.slowest_ns > microbatch->slowest_ns)
            microbatch->slowest_ns = header.slowest_ns;
        microbatch->has_stable_bits =
            microbatch->has_stable_bits && header.flags & WIRE_STABLE_BITS;
        microbatch->knows_checkpoints =
            microbatch->knows_checkpoints && header.flags & WIRE_KNOWS_CHECKPOINTS;
        const uint32_t n_given = microbatch->n_given;
        wire_read_error(&reader, &header, &microbatch->error);
        wire_skip_padding(&reader, size);
        if (behind) {
            wire_read_outputs(&reader, shape, microbatch);
        } else {
            wire_read_hidden(&reader, &header, shape, microbatch);
            wire_read_given(&reader, shape, n_given, microbatch);
        }
        code = wire_read_times(&reader, header.flags, shape->n_stages, size, microbatch, err);
    }
    if (!code)
        code = wire_finish(&reader, err);
    return code ? error_wrap(err, "a micro-batch that comes back") : ERROR_NONE;
}
