/* Micro-batches from other machines: any bytes. What is read is within the pipeline's shape, and
 * reads the same after it has been written again. */
#include "fuzz.h"

#include "pipeline/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct wire_shape SHAPE = {
    .n_stages = 3,
    .n_slots = 4,
    .context = 100,
    .n_vocab = 50,
    .n_embd = 32,
    .given_width = 64,
    .given_stages = 2,
    .rows = 20,
    .operations = 20,
    .checkpoints = 5,
    .picks = 8,
    .output_floats = 8 * 50,
};

static void open_microbatch(struct microbatch *microbatch)
{
    static struct pipeline pipeline = {.n_stages = 3};
    struct microbatch_sizes sizes = {.rows = SHAPE.rows,
                                     .shares = SHAPE.n_slots,
                                     .operations = SHAPE.operations,
                                     .picks = SHAPE.picks,
                                     .hidden_width = SHAPE.n_embd,
                                     .given_width = SHAPE.given_width,
                                     .second_hidden = true,
                                     .output_floats = SHAPE.output_floats};
    FUZZ_CHECK(!microbatch_init(microbatch, &pipeline, &sizes, NULL));
}

static void check(const struct microbatch *microbatch)
{
    FUZZ_CHECK(microbatch->at < SHAPE.n_stages && microbatch->n_rows <= SHAPE.rows);
    FUZZ_CHECK(microbatch->n_shares <= SHAPE.n_slots && microbatch->n_setups <= SHAPE.n_slots);
    FUZZ_CHECK(microbatch->n_operations <= SHAPE.operations);
    FUZZ_CHECK(microbatch->n_given <= microbatch->n_rows);
    for (uint32_t i = 0; i < microbatch->n_setups; i++) {
        const struct pick_setup *setup = &microbatch->setups[i];
        FUZZ_CHECK(!setup->constraint ||
                   (setup->answer <= SHAPE.context &&
                    constraint_source(setup->constraint)->size <= LIMIT_WIRE_GRAMMARS));
    }
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        FUZZ_CHECK(share->n_drafted < share->n_rows && share->n_picks <= share_picks_room(share) &&
                   share->first_pick + share_picks_room(share) <= SHAPE.picks);
    }
    for (uint32_t i = 0; i < microbatch->n_rows; i++) {
        const struct batch_row *row = &microbatch->rows[i];
        FUZZ_CHECK(row->slot < SHAPE.n_slots && row->position < SHAPE.context);
        FUZZ_CHECK(row->token >= 0);
        FUZZ_CHECK((uint32_t)row->token < SHAPE.n_vocab ||
                   (row->token >= PICTURE_TOKEN_FIRST && microbatch->has_places));
        FUZZ_CHECK(!microbatch->has_places || microbatch->places[i].ahead < microbatch->n_rows - i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct microbatch microbatch, again;
    if (!microbatch.rows) {
        open_microbatch(&microbatch);
        open_microbatch(&again);
    }
    struct wire_route route = {0};
    struct error err = {0};
    enum error_code code = wire_read(data, size, &SHAPE, &microbatch, &err);
    if (code) {
        FUZZ_CHECK(err.text[0] && !microbatch.n_shares && !microbatch.n_rows);
        return 0;
    }
    check(&microbatch);
    FUZZ_CHECK(!wire_read_route(data, size, &route, NULL));
    float scratch[32];
    struct buffer message = {0};
    wire_write(&microbatch, &route, ACTIVATION_F32, &SHAPE, scratch, &message);
    FUZZ_CHECK(!message.failed && !wire_read(message.data, message.size, &SHAPE, &again, &err));
    FUZZ_CHECK(again.n_rows == microbatch.n_rows && again.n_shares == microbatch.n_shares &&
               again.at == microbatch.at);
    for (uint32_t i = 0; i < microbatch.n_setups; i++) /* the same source is the same grammar */
        FUZZ_CHECK(again.setups[i].constraint == microbatch.setups[i].constraint);
    FUZZ_CHECK(wire_read_back(message.data, message.size, &SHAPE, &microbatch,
                              &err)); /* it is not ahead of itself */
    buffer_deinit(&message);
    return 0;
}
