/* A micro-batch as bytes (pipeline/wire.h): what is written is read again; what is wrong is
 * refused. */
#include "pipeline/pipeline.h"

#include "base/clock.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct wire_shape SHAPE = {
    .n_stages = 3,
    .n_slots = 4,
    .context = 100,
    .n_vocab = 50,
    .n_embd = 32,
    .rows = 20,
    .operations = 20,
    .checkpoints = 5,
    .picks = 8,
    .output_floats = 8 * 50,
};
static const struct wire_route ROUTE = {
    .instance = 11, .epoch = 22, .number = UINT64_C(0x1122334455667788)};
static struct pipeline pipeline = {.n_stages = 3};

static void open_microbatch(struct microbatch *microbatch)
{
    struct microbatch_sizes sizes = {.rows = SHAPE.rows,
                                     .shares = SHAPE.n_slots,
                                     .operations = SHAPE.operations,
                                     .picks = SHAPE.picks,
                                     .hidden_width = SHAPE.n_embd,
                                     .second_hidden = true,
                                     .output_floats = SHAPE.output_floats};
    assert_int_equal(microbatch_init(microbatch, &pipeline, &sizes, NULL), ERROR_NONE);
}

static void add_share(struct microbatch *microbatch, uint32_t slot, uint32_t position,
                      uint32_t n_rows, bool pick, bool gives_rows)
{
    struct share *share = &microbatch->shares[microbatch->n_shares++];
    *share = (struct share){.slot = slot,
                            .epoch = 5,
                            .position = position,
                            .n_rows = n_rows,
                            .sequence = 1000 + slot,
                            .pick = pick,
                            .n_picks = pick,
                            .first_pick = microbatch->n_picks,
                            .gives_rows = gives_rows};
    microbatch->n_picks += pick;
    for (uint32_t i = 0; i < n_rows; i++) {
        bool output = gives_rows || (pick && i + 1 == n_rows);
        microbatch->rows[microbatch->n_rows++] = (struct batch_row){
            slot, position + i, (int32_t)((slot * 7 + i) % SHAPE.n_vocab), output};
        share->n_outputs += output;
    }
}

/* A prompt chunk, a decode row, rows with outputs of their own, and one that failed before. */
static void fill(struct microbatch *microbatch, uint32_t at)
{
    microbatch_clear(microbatch);
    microbatch->at = at;
    struct sampler_params params = sampler_defaults();
    struct logit_bias biases[] = {{3, -100}, {7, 2.5f}};
    params.seed = UINT64_C(0xfedcba9876543210);
    params.biases = biases;
    params.n_biases = 2;
    pick_setup_fill(&microbatch->setups[microbatch->n_setups++], 2, &params, true, 5);
    microbatch->operations[microbatch->n_operations++] =
        (struct cache_operation){.slot = 0, .length = 9};
    microbatch->operations[microbatch->n_operations++] =
        (struct cache_operation){.slot = 1, .from = 2, .length = 30, .kind = CACHE_COPY};
    if (at == 2) { /* others are as an older version knows them */
        microbatch->operations[microbatch->n_operations++] = (struct cache_operation){
            .kind = CACHE_KEEP, .slot = 2, .length = 40, .checkpoint = 4, .checkpoint_id = 77};
        microbatch->operations[microbatch->n_operations++] = (struct cache_operation){
            .kind = CACHE_TAKE, .slot = 0, .length = 9, .checkpoint = 1, .checkpoint_id = 76};
        microbatch->knows_checkpoints = true;
    }
    add_share(microbatch, 0, 9, 6, false, false);
    add_share(microbatch, 2, 40, 1, true, false);
    add_share(microbatch, 1, 30, 3, true, true);
    for (uint32_t i = 0; i < microbatch->n_rows * SHAPE.n_embd; i++)
        microbatch->hidden[(at - 1) & 1][i] = (float)((int)(i % 61) - 30);
    for (uint32_t i = 0; i < 8 * SHAPE.n_vocab; i++)
        microbatch->outputs[i] = (float)i / 7;
}

/* Of the model that takes pictures: two rows of the first share, on the way to the second stage. */
static struct wire_shape picture_shape(void)
{
    struct wire_shape shape = SHAPE;
    shape.given_width = 2 * SHAPE.n_embd;
    shape.given_stages = 2;
    return shape;
}

static void write_message(const struct microbatch *microbatch, enum activation_type type,
                          struct buffer *out)
{
    float scratch[32];
    buffer_clear(out);
    wire_write(microbatch, &ROUTE, type, &SHAPE, scratch, out);
    assert_false(out->failed);
}

static void assert_same_rows(const struct microbatch *a, const struct microbatch *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    for (uint32_t i = 0; i < a->n_rows; i++) {
        assert_int_equal(a->rows[i].slot, b->rows[i].slot);
        assert_int_equal(a->rows[i].position, b->rows[i].position);
        assert_int_equal(a->rows[i].token, b->rows[i].token);
        assert_int_equal(a->rows[i].output, b->rows[i].output);
    }
}

static void assert_same_shares(const struct microbatch *a, const struct microbatch *b)
{
    assert_int_equal(a->n_shares, b->n_shares);
    for (uint32_t i = 0; i < a->n_shares; i++) {
        assert_int_equal(a->shares[i].slot, b->shares[i].slot);
        assert_int_equal(a->shares[i].epoch, b->shares[i].epoch);
        assert_int_equal(a->shares[i].position, b->shares[i].position);
        assert_int_equal(a->shares[i].n_rows, b->shares[i].n_rows);
        assert_int_equal(a->shares[i].n_outputs, b->shares[i].n_outputs);
        assert_int_equal(a->shares[i].sequence, b->shares[i].sequence);
        assert_int_equal(a->shares[i].pick, b->shares[i].pick);
        assert_int_equal(a->shares[i].gives_rows, b->shares[i].gives_rows);
        assert_int_equal(a->shares[i].failed, b->shares[i].failed);
        assert_int_equal(a->shares[i].dropped, b->shares[i].dropped);
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    for (enum activation_type type = ACTIVATION_F32; type <= ACTIVATION_Q8; type++) {
        for (uint32_t at = 0; at < SHAPE.n_stages; at++) {
            fill(&sent, at);
            write_message(&sent, type, &message);
            struct wire_route route;
            assert_int_equal(wire_read_route(message.data, message.size, &route, NULL), ERROR_NONE);
            assert_memory_equal(&route, &ROUTE, sizeof route);
            struct error err = {0};
            if (wire_read(message.data, message.size, &SHAPE, &got, &err))
                fail_msg("%s", err.text);
            assert_int_equal(got.at, at);
            assert_same_shares(&sent, &got);
            assert_same_rows(&sent, &got);
            assert_int_equal(got.n_operations, sent.n_operations);
            assert_int_equal(got.knows_checkpoints, sent.knows_checkpoints);
            assert_memory_equal(got.operations, sent.operations,
                                sent.n_operations * sizeof *sent.operations);
            assert_int_equal(got.n_setups, 1);
            assert_int_equal(got.setups[0].params.seed, sent.setups[0].params.seed);
            assert_memory_equal(got.setups[0].biases, sent.setups[0].biases,
                                2 * sizeof *sent.setups[0].biases);
            for (uint32_t i = 0; at && i < sent.n_rows * SHAPE.n_embd; i++) {
                float bound = type == ACTIVATION_Q8 ? 30.0f / 127 : 0;
                assert_true(fabsf(got.hidden[(at - 1) & 1][i] - sent.hidden[(at - 1) & 1][i]) <=
                            bound);
            }
        }
    }
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

/* Behind the last stage: picks and wanted outputs return; what failed says why. */
static void test_the_way_back(void **state)
{
    (void)state;
    struct microbatch away, far;
    struct buffer message = {0};
    open_microbatch(&away);
    open_microbatch(&far);
    fill(&away, 1);
    fill(&far, 3);
    far.picks[0] =
        (struct pick){.token = 17, .logprob = -0.5f, .n_top = 2, .top = {{17, -0.5f}, {4, -1.5f}}};
    far.picks[1] = (struct pick){.token = 5};
    far.shares[0].failed = true;
    error_set(&far.error, ERROR_DEVICE, "stage 2 on tower/gpu0: it\nburns");
    memset(away.outputs, 0, SHAPE.output_floats * sizeof *away.outputs);
    write_message(&far, ACTIVATION_F16, &message);
    struct error err = {0};
    if (wire_read_back(message.data, message.size, &SHAPE, &away, &err))
        fail_msg("%s", err.text);
    assert_int_equal(away.at, 3);
    assert_true(away.shares[0].failed);
    assert_string_equal(away.error.text, "stage 2 on tower/gpu0: it?burns");
    assert_int_equal(away.picks[0].token, 17);
    assert_int_equal(away.picks[0].top[1].token, 4);
    assert_int_equal(away.picks[1].token, 5);
    /* the picked row's logits stay where they were computed; the three rows that were asked for are
     * here */
    assert_true(away.outputs[0] == 0);
    assert_memory_equal(away.outputs + SHAPE.n_vocab, far.outputs + SHAPE.n_vocab,
                        3 * SHAPE.n_vocab * sizeof(float));

    fill(&away, 1);
    away.shares[1].sequence++;
    assert_int_equal(wire_read_back(message.data, message.size, &SHAPE, &away, &err),
                     ERROR_INVALID);
    fill(&away, 3); /* it cannot come back to where it already is */
    assert_int_equal(wire_read_back(message.data, message.size, &SHAPE, &away, &err),
                     ERROR_INVALID);
    buffer_deinit(&message);
    microbatch_deinit(&away);
    microbatch_deinit(&far);
}

/* The grammar of slot 2, and a setup without one before it. */
static void fill_grammar(struct microbatch *microbatch, const char *text, enum grammar_kind kind)
{
    const struct grammar_source source = {.kind = kind, .text = text, .size = strlen(text)};
    const struct sampler_params params = sampler_defaults();
    fill(microbatch, 1);
    struct pick_setup *setup = &microbatch->setups[microbatch->n_setups++];
    pick_setup_deinit(setup);
    pick_setup_fill(setup, 2, &params, false, 0);
    setup->answer = 41;
    assert_int_equal(constraint_note(&source, &setup->constraint, NULL), ERROR_NONE);
    pick_setup_deinit(&microbatch->setups[0]);
    microbatch->setups[0].slot = 1;
}

static void test_grammars(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    struct error err = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    fill(&sent, 1);
    write_message(&sent, ACTIVATION_F16, &message);
    const size_t plain = message.size;
    fill_grammar(&sent, "[a-c]+", GRAMMAR_REGEX);
    write_message(&sent, ACTIVATION_F16, &message);
    assert_true(message.size > plain);
    for (int again = 0; again < 2; again++) {
        if (wire_read(message.data, message.size, &SHAPE, &got, &err))
            fail_msg("%s", err.text);
        assert_null(got.setups[0].constraint);
        assert_int_equal(got.setups[1].answer, 41);
        assert_ptr_equal(got.setups[1].constraint, sent.setups[1].constraint); /* shared */
    }
    assert_int_equal(constraint_compile(got.setups[1].constraint, &err), ERROR_NONE);
    fill(&sent, 1); /* the next without one leaves none behind */
    write_message(&sent, ACTIVATION_F16, &message);
    assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, &err), ERROR_NONE);
    assert_null(got.setups[0].constraint);
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

/* What cannot be compiled is read all the same, and says so whenever it is asked; what cannot be
 * is refused. */
static void test_grammars_of_a_stranger(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    struct error err = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    fill_grammar(&sent, "[a-c+", GRAMMAR_REGEX);
    write_message(&sent, ACTIVATION_F16, &message);
    assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, &err), ERROR_NONE);
    for (int again = 0; again < 2; again++) {
        err = (struct error){0};
        assert_int_equal(constraint_compile(got.setups[1].constraint, &err), ERROR_INVALID);
        assert_true(err.text[0]);
    }
    char *text = memmem(message.data, message.size, "[a-c+", 5);
    assert_non_null(text);
    static const struct { /* answer (4), kind (1), annotate (1), size (4), text */
        int at;
        unsigned char byte;
    } changes[] = {{-10, 101}, {-7, 1},    {-6, 0}, {-6, GRAMMAR_CALLS + 1},
                   {-4, 6},    {-1, 0x7f}, {-2, 8}};
    for (uint32_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *byte = text + changes[i].at;
        const char before = *byte;
        *byte = (char)changes[i].byte;
        assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, &err), ERROR_INVALID);
        *byte = before;
    }
    assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, &err), ERROR_NONE);
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

/* Instead of a token: that there is none, and why. */
static void test_no_tokens_on_the_way_back(void **state)
{
    (void)state;
    struct microbatch away, far;
    struct buffer message = {0};
    struct error err = {0};
    open_microbatch(&away);
    open_microbatch(&far);
    for (int32_t token = 0; token >= CONSTRAIN_REFUSED - 1; token--) {
        fill(&away, 1);
        fill(&far, 3);
        far.picks[0] = (struct pick){.token = token};
        far.picks[1] = (struct pick){.token = 5};
        error_set(&far.error, ERROR_UNSUPPORTED, "why");
        write_message(&far, ACTIVATION_F16, &message);
        const enum error_code code =
            wire_read_back(message.data, message.size, &SHAPE, &away, &err);
        assert_int_equal(code, token >= CONSTRAIN_REFUSED ? ERROR_NONE : ERROR_INVALID);
        if (code)
            continue;
        assert_int_equal(away.picks[0].token, token);
        assert_string_equal(away.error.text, "why");
    }
    buffer_deinit(&message);
    microbatch_deinit(&away);
    microbatch_deinit(&far);
}

/* A draft of three behind slot 2's own row: as far as it was right, and one token. */
static void fill_draft(struct microbatch *microbatch, uint32_t at, uint32_t n_picks)
{
    microbatch_clear(microbatch);
    microbatch->at = at;
    microbatch->has_stable_bits = true;
    add_share(microbatch, 0, 9, 1, true, false);
    add_share(microbatch, 2, 40, 4, true, false);
    struct share *share = &microbatch->shares[1];
    share->n_drafted = 3;
    share->n_picks = n_picks;
    share->n_outputs = 4;
    for (uint32_t i = 0; i < 4; i++)
        microbatch->rows[microbatch->n_rows - 1 - i].output = true;
    for (uint32_t i = 0; i < 5; i++)
        microbatch->picks[i] = (struct pick){.token = (int32_t)(10 + i)};
    for (uint32_t i = 0; i < microbatch->n_rows * SHAPE.n_embd; i++)
        microbatch->hidden[(at - 1) & 1][i] = 1;
}

static void test_drafts(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    struct error err = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    fill_draft(&sent, 1, 0);
    write_message(&sent, ACTIVATION_F16, &message);
    if (wire_read(message.data, message.size, &SHAPE, &got, &err))
        fail_msg("%s", err.text);
    assert_same_shares(&sent, &got);
    assert_same_rows(&sent, &got);
    assert_int_equal(got.shares[1].n_drafted, 3);
    assert_int_equal(got.shares[1].first_pick, 1);
    assert_true(got.has_stable_bits);
    for (uint32_t n_picks = 0; n_picks <= 5; n_picks++) {
        fill_draft(&sent, 3, n_picks);
        sent.has_stable_bits = n_picks != 2;
        fill_draft(&got, 1, 0);
        write_message(&sent, ACTIVATION_F16, &message);
        const enum error_code code = wire_read_back(message.data, message.size, &SHAPE, &got, &err);
        assert_int_equal(code, n_picks >= 1 && n_picks <= 4 ? ERROR_NONE : ERROR_INVALID);
        if (code)
            continue;
        assert_int_equal(got.shares[1].n_picks, n_picks);
        assert_int_equal(got.picks[0].token, 10);
        assert_int_equal(got.picks[1 + n_picks - 1].token, 10 + n_picks);
        assert_int_equal(got.has_stable_bits, n_picks != 2);
    }
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

/* Rows that cannot be drafted, and more tokens than there is room for. */
static void test_drafts_of_a_stranger(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    struct error err = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    for (int wrong = 0; wrong < 5; wrong++) {
        fill_draft(&sent, 1, 0);
        struct share *share = &sent.shares[1];
        share->n_drafted = wrong == 0 ? 4 : 3; /* of four rows */
        share->pick = wrong != 1;
        share->gives_rows = wrong == 2;
        sent.rows[wrong == 3 ? 2 : 0].output = wrong != 3;
        if (wrong == 4)
            add_share(&sent, 1, 0, 7, true, false);
        if (wrong == 4) {
            sent.shares[2].n_drafted = 3;
            for (uint32_t i = 0; i < 7; i++)
                sent.rows[sent.n_rows - 1 - i].output = true;
        }
        write_message(&sent, ACTIVATION_F16, &message);
        assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, &err), ERROR_INVALID);
    }
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

static void test_large_values_survive_f16(void **state)
{
    (void)state;
    float row[8] = {1e6f, -3.3e5f, 1.5f, 0, -7, 65504, 1e5f, 2}, got[8], scratch[8];
    char bytes[64];
    activation_encode(ACTIVATION_F16, row, 8, 1, scratch, bytes);
    assert_true(activation_decode(ACTIVATION_F16, bytes, 8, 1, got));
    for (int i = 0; i < 8; i++)
        assert_true(fabsf(got[i] - row[i]) <= 1e6f / 2048);
    row[3] = NAN;
    activation_encode(ACTIVATION_F16, row, 8, 1, scratch, bytes);
    assert_false(activation_decode(ACTIVATION_F16, bytes, 8, 1, got));
    row[3] = INFINITY;
    activation_encode(ACTIVATION_F16, row, 8, 1, scratch, bytes);
    assert_false(activation_decode(ACTIVATION_F16, bytes, 8, 1, got));
}

static void test_no_numbers_fail_the_shares(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    fill(&sent, 1);
    sent.hidden[0][3] = NAN;
    write_message(&sent, ACTIVATION_F32, &message);
    assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, NULL), ERROR_NONE);
    assert_int_equal(got.n_rows, 0);
    assert_true(got.shares[0].failed && got.shares[2].failed);
    assert_non_null(strstr(got.error.text, "not a number"));
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

static void set_times(struct microbatch *microbatch)
{
    microbatch->times = (struct request_times){
        .n_stages = 3,
        .stages = {{100, 10, 1, 0}, {200, 20, REQUEST_TIME_UNKNOWN, 5000}, {300, 30, 3, 6000}}};
    microbatch->since_ns = clock_now_ns() - 1000000;
}

/* Every beginning of a message is refused; with any byte changed it is refused, or is a micro-batch
 * within the shape.
 */
static void test_damaged_messages(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    fill(&sent, 1);
    set_times(&sent);
    write_message(&sent, ACTIVATION_F16, &message);
    for (size_t size = 0; size < message.size; size++) {
        char *part =
            malloc(size + 1); /* its own block, so that a sanitizer sees a read beyond it */
        memcpy(part, message.data, size);
        struct error err = {0};
        assert_int_equal(wire_read(part, size, &SHAPE, &got, &err), ERROR_INVALID);
        assert_true(err.text[0] && !got.n_shares && !got.n_rows);
        free(part);
    }
    uint32_t n_refused = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        size_t at = random_at(1, 2 * i) % message.size;
        char before = message.data[at];
        message.data[at] = (char)random_at(1, 2 * i + 1);
        if (wire_read(message.data, message.size, &SHAPE, &got, NULL))
            n_refused++;
        else
            assert_true(got.n_rows <= SHAPE.rows && got.n_shares <= SHAPE.n_slots &&
                        got.at < SHAPE.n_stages);
        message.data[at] = before;
    }
    assert_true(n_refused > 1000);
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

/* What the stages took comes along, and how long the message was under way is added; who carries it
 * turns its time into another clock's, or takes it away for a peer that does not know times. */
static void test_times(void **state)
{
    (void)state;
    struct microbatch sent, got;
    struct buffer message = {0};
    open_microbatch(&sent);
    open_microbatch(&got);
    for (uint32_t at = 0; at < 3; at++) {
        fill(&sent, at ? at : 1);
        sent.at = at;
        set_times(&sent);
        write_message(&sent, ACTIVATION_F16, &message);
        assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, NULL), ERROR_NONE);
        assert_int_equal(got.times.n_stages, 3);
        assert_memory_equal(got.times.stages, sent.times.stages, at * sizeof *got.times.stages);
        assert_in_range(got.times.stages[at].link_ns, 1000000, 1000000000);
        assert_int_equal(got.times.stages[at].link_bytes, message.size);
        assert_true(got.since_ns > sent.since_ns);
        wire_shift_times(&message, -2000000); /* a clock behind this one */
        assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, NULL), ERROR_NONE);
        assert_in_range(got.times.stages[at].link_ns, 3000000, 1000000000);
        wire_shift_times(&message, 3600 * INT64_C(1000000000)); /* from the future: at once */
        assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, NULL), ERROR_NONE);
        assert_int_equal(got.times.stages[at].link_ns, 0);
        wire_hide_times(&message);
        assert_int_equal(wire_read(message.data, message.size, &SHAPE, &got, NULL), ERROR_NONE);
        assert_true(got.times.stages[at].link_ns == REQUEST_TIME_UNKNOWN);
    }
    buffer_deinit(&message);
    microbatch_deinit(&sent);
    microbatch_deinit(&got);
}

/* Back at the driver; and a wrong number of stages is refused. */
static void test_times_on_the_way_back(void **state)
{
    (void)state;
    struct microbatch away, far;
    struct buffer message = {0};
    struct error err = {0};
    open_microbatch(&away);
    open_microbatch(&far);
    fill(&away, 1);
    fill(&far, 3);
    set_times(&far);
    write_message(&far, ACTIVATION_F16, &message);
    assert_int_equal(wire_read_back(message.data, message.size, &SHAPE, &away, &err), ERROR_NONE);
    assert_int_equal(away.times.n_stages, 3);
    assert_memory_equal(away.times.stages, far.times.stages, 3 * sizeof *away.times.stages);
    assert_in_range(away.times.back_ns, 1000000, 1000000000);
    message.data[message.size - 4] = 2;
    fill(&away, 1);
    assert_int_equal(wire_read_back(message.data, message.size, &SHAPE, &away, &err),
                     ERROR_INVALID);
    assert_string_equal(err.text,
                        "a micro-batch that comes back: times of 2 stages before stage 3");
    buffer_deinit(&message);
    microbatch_deinit(&away);
    microbatch_deinit(&far);
}

static void open_picture_batch(struct microbatch *microbatch)
{
    struct microbatch_sizes sizes = {.rows = SHAPE.rows,
                                     .shares = SHAPE.n_slots,
                                     .operations = SHAPE.operations,
                                     .picks = SHAPE.picks,
                                     .hidden_width = SHAPE.n_embd,
                                     .given_width = 2 * SHAPE.n_embd,
                                     .second_hidden = true,
                                     .output_floats = SHAPE.output_floats};
    assert_int_equal(microbatch_init(microbatch, &pipeline, &sizes, NULL), ERROR_NONE);
}

static void fill_picture(struct microbatch *microbatch, uint32_t at)
{
    fill(microbatch, at);
    microbatch->has_places = true;
    microbatch->n_given = 2;
    for (uint32_t i = 0; i < 2; i++) {
        microbatch->rows[2 + i].token = PICTURE_TOKEN_FIRST + 1000 * (int32_t)i;
        microbatch->places[2 + i] = (struct row_place){.ahead = 1 - i, .behind = {1, 2, i}};
    }
    for (uint32_t i = 0; i < 4 * SHAPE.n_embd; i++)
        microbatch->given[i] = (float)i / 3;
}

static void test_pictures_go_as_far_as_stages_take_them(void **state)
{
    (void)state;
    const struct wire_shape shape = picture_shape();
    struct microbatch out, back;
    struct buffer message = {0};
    struct error err = {0};
    float scratch[32];
    open_picture_batch(&out);
    open_picture_batch(&back);
    for (uint32_t at = 1; at < 3; at++) {
        fill_picture(&out, at);
        buffer_clear(&message);
        wire_write(&out, &ROUTE, ACTIVATION_F32, &shape, scratch, &message);
        assert_true(message.size <= wire_bytes_max(&shape));
        if (wire_read(message.data, message.size, &shape, &back, &err))
            fail_msg("%s", err.text);
        assert_int_equal(back.n_given, at == 1 ? 2 : 0);
        assert_true(back.has_places);
        assert_int_equal(back.rows[3].token, PICTURE_TOKEN_FIRST + 1000);
        assert_memory_equal(back.places + 2, out.places + 2, 2 * sizeof *out.places);
        if (at == 1)
            assert_memory_equal(back.given, out.given, 4 * SHAPE.n_embd * sizeof(float));
    }
    /* a model without pictures, values that are no numbers, a row that sees too far */
    assert_int_equal(wire_read(message.data, message.size, &SHAPE, &back, &err), ERROR_INVALID);
    fill_picture(&out, 1);
    out.given[70] = NAN;
    buffer_clear(&message);
    wire_write(&out, &ROUTE, ACTIVATION_F32, &shape, scratch, &message);
    assert_int_equal(wire_read(message.data, message.size, &shape, &back, &err), ERROR_NONE);
    assert_true(back.shares[0].failed);
    assert_int_equal(back.n_given, 0);
    out.places[2].ahead = SHAPE.rows;
    buffer_clear(&message);
    wire_write(&out, &ROUTE, ACTIVATION_F32, &shape, scratch, &message);
    assert_int_equal(wire_read(message.data, message.size, &shape, &back, &err), ERROR_INVALID);
    microbatch_deinit(&out);
    microbatch_deinit(&back);
    buffer_deinit(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_the_way_back),
        cmocka_unit_test(test_grammars),
        cmocka_unit_test(test_grammars_of_a_stranger),
        cmocka_unit_test(test_no_tokens_on_the_way_back),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_times_on_the_way_back),
        cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_drafts_of_a_stranger),
        cmocka_unit_test(test_large_values_survive_f16),
        cmocka_unit_test(test_no_numbers_fail_the_shares),
        cmocka_unit_test(test_damaged_messages),
        cmocka_unit_test(test_pictures_go_as_far_as_stages_take_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
