/* Two parts, a giver on node 1 and a taker on node 2, without clock, thread or device: their
 * effects are carried out by hand (hosting/handover.h). */
#include "base/mem.h"
#include "hosting/handover.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 3, TOKENS = 40, ROW = 16, OLD = 7, NEW = 9, SENT_MAX = 64 };

struct sent {
    bool by_taker, to_taker;
    struct buffer bytes;
};

static struct pair {
    uint64_t now_ms;
    struct handover_part from, to;
    struct cache_give give;
    struct cache_take take;
    struct sent sent[SENT_MAX]; /* in order; those of the offer last, if they are late */
    uint32_t n_sent;
    bool offer_is_late, taker_speaks;
    uint32_t drops_rows_at; /* the nth ROWS is lost; 0: none */
    uint32_t n_rows_messages, n_written[LAYERS][4], n_settled, n_begun;
    bool is_full, quiesces, retires, reads_fail;
} pair;

static void name(uint8_t id[NODE_ID_BYTES], uint8_t number)
{
    memset(id, 0, NODE_ID_BYTES);
    id[0] = number;
}

static struct handover_placement placed(uint64_t epoch, uint8_t node)
{
    struct handover_placement placement = {.epoch = epoch, .n_stages = 1};
    placement.stages[0].n_layers = LAYERS;
    name(placement.stages[0].node_id, node);
    return placement;
}

static void describe(struct handover_part *part, uint64_t epoch, uint8_t node)
{
    *part = (struct handover_part){.instance = 5,
                                   .of = placed(epoch, node),
                                   .row_bytes = {ROW},
                                   .n_slots = 4,
                                   .context = 100,
                                   .n_vocab = 1000,
                                   .is_loaded = true};
    name(part->node_id, node);
}

static int open_pair(void **state)
{
    (void)state;
    const struct handover_placement old = placed(OLD, 1), next = placed(NEW, 2);
    pair = (struct pair){.now_ms = 1000};
    describe(&pair.from, OLD, 1);
    describe(&pair.to, NEW, 2);
    pair.to.is_current = true;
    cache_give_init(&pair.give, &pair.from);
    cache_take_init(&pair.take, &pair.to);
    cache_take_open(&pair.take, &old);
    assert_true(cache_give_begin(&pair.give, pair.now_ms, &next, true));
    return 0;
}

static int close_pair(void **state)
{
    (void)state;
    mem_fail_nth(0);
    cache_give_clear(&pair.give);
    cache_take_clear(&pair.take);
    for (uint32_t i = 0; i < pair.n_sent; i++)
        buffer_deinit(&pair.sent[i].bytes);
    return 0;
}

/* ---- what the machines want --------------------------------------------------------------- */

static bool is_kind(const struct buffer *bytes, enum cache_kind kind)
{
    struct cache_message message;
    return cache_read(bytes->data, bytes->size, &message, NULL) == ERROR_NONE &&
           message.kind == kind;
}

static void post(struct handover_effect *effect)
{
    const bool is_rows = is_kind(&effect->message, CACHE_ROWS);
    pair.n_rows_messages += is_rows;
    if (is_rows && pair.n_rows_messages == pair.drops_rows_at)
        return;
    assert_true(pair.n_sent < SENT_MAX);
    pair.sent[pair.n_sent++] =
        (struct sent){pair.taker_speaks, effect->node_id[0] == 2, effect->message};
    effect->message = (struct buffer){0};
}

static void carry_out(struct handover_effect *effect)
{
    unsigned char row[ROW] = {0};
    switch (effect->type) {
    case HANDOVER_SEND:
        post(effect);
        break;
    case HANDOVER_QUIESCE:
        pair.quiesces = true;
        break;
    case HANDOVER_READ:
        for (uint32_t i = 0; i < effect->run.n_rows; i++)
            buffer_append(&effect->message, row, ROW);
        cache_give_read(&pair.give, effect, pair.reads_fail ? "the device is gone" : NULL);
        break;
    case HANDOVER_WRITE:
        assert_int_equal(effect->message.size, CACHE_ROWS_BYTES + effect->run.n_rows * ROW);
        assert_int_equal(effect->run.first, pair.n_written[effect->run.layer][effect->run.slot]);
        pair.n_written[effect->run.layer][effect->run.slot] += effect->run.n_rows;
        cache_take_written(&pair.take, effect, NULL);
        break;
    case HANDOVER_SETTLE:
        pair.n_settled++;
        cache_take_settled(&pair.take, NULL);
        break;
    case HANDOVER_BEGIN:
        pair.n_begun++;
        pair.is_full = effect->is_full;
        cache_take_begun(&pair.take, true);
        break;
    case HANDOVER_RETIRE:
        pair.retires = true;
        break;
    case HANDOVER_CHANGED:
    case HANDOVER_NOTE:
        break;
    }
}

static bool deliver_one(void)
{
    uint32_t i = 0;
    while (pair.offer_is_late && i + 1 < pair.n_sent && is_kind(&pair.sent[i].bytes, CACHE_OFFER))
        i++;
    if (!pair.n_sent)
        return false;
    struct sent sent = pair.sent[i];
    struct cache_message message;
    memmove(&pair.sent[i], &pair.sent[i + 1], (--pair.n_sent - i) * sizeof sent);
    assert_int_equal(cache_read(sent.bytes.data, sent.bytes.size, &message, NULL), ERROR_NONE);
    const struct handover_part *self = sent.to_taker ? &pair.to : &pair.from;
    const struct handover_part *peer = sent.by_taker ? &pair.to : &pair.from;
    handover_receive(sent.to_taker ? NULL : &pair.give, sent.to_taker ? &pair.take : NULL,
                     pair.now_ms, self->node_id, peer->node_id, &message, &sent.bytes);
    buffer_deinit(&sent.bytes);
    return true;
}

static bool next(struct handover_effect *effect)
{
    pair.taker_speaks = !cache_give_next(&pair.give, effect);
    return !pair.taker_speaks || cache_take_next(&pair.take, effect);
}

static void pump(void)
{
    struct handover_effect effect;
    do {
        while (next(&effect)) {
            carry_out(&effect);
            handover_effect_clear(&effect);
        }
    } while (deliver_one());
}

static void quiesce(uint32_t n_slots)
{
    static int32_t tokens[TOKENS];
    const struct cached_slot slots[] = {{1, TOKENS, tokens}, {3, TOKENS - 9, tokens}};
    pump();
    assert_true(pair.quiesces && cache_give_wants_slots(&pair.give));
    cache_give_quiesced(&pair.give, pair.now_ms, slots, n_slots, &(struct give_costs){0});
    pump();
}

static void wait_ms(uint64_t ms)
{
    for (const uint64_t until_ms = pair.now_ms + ms; pair.now_ms < until_ms; pair.now_ms += 100) {
        cache_give_tick(&pair.give, pair.now_ms);
        cache_take_tick(&pair.take, pair.now_ms, true);
        pump();
    }
}

static void assert_begun(bool is_full)
{
    assert_int_equal(pair.n_begun, 1);
    assert_int_equal(pair.is_full, is_full);
    assert_false(cache_take_is_open(&pair.take));
}

/* ---- tests -------------------------------------------------------------------------------- */

static void test_all_rows_of_all_layers_are_taken_over(void **state)
{
    (void)state;
    quiesce(2);
    assert_begun(true);
    for (int i = 0; i < LAYERS; i++)
        assert_true(pair.n_written[i][1] == TOKENS && pair.n_written[i][3] == TOKENS - 9);
    assert_true(pair.n_settled == 1 && pair.retires);
}

/* Of a windowed layer only what the next token sees goes over. */
static void test_windowed_layers_hand_over_their_window(void **state)
{
    (void)state;
    pair.from.window = pair.to.window = 12;
    pair.from.is_windowed[1] = pair.to.is_windowed[1] = true;
    pair.n_written[1][1] = TOKENS - 12; /* not sent, and so not written */
    pair.n_written[1][3] = TOKENS - 9 - 12;
    quiesce(2);
    assert_begun(true);
    for (int i = 0; i < LAYERS; i++)
        assert_true(pair.n_written[i][1] == TOKENS && pair.n_written[i][3] == TOKENS - 9);
    assert_true(pair.n_settled == 1 && pair.retires);
}

/* Of a recurrent layer its state goes over, of one size whatever the slot's length; of a layer
 * that keeps nothing, nothing. */
static void make_recurrent(struct handover_part *part, uint32_t state_rows)
{
    part->is_recurrent[0] = part->is_bare[2] = true;
    part->state_rows = state_rows;
}

static void test_states_go_over_whole(void **state)
{
    (void)state;
    enum { STATE_ROWS = LIMIT_CACHE_ROWS_BYTES / ROW + 100 }; /* in two messages */
    make_recurrent(&pair.from, STATE_ROWS);
    make_recurrent(&pair.to, STATE_ROWS);
    quiesce(2);
    assert_begun(true);
    assert_true(pair.n_written[0][1] == STATE_ROWS && pair.n_written[0][3] == STATE_ROWS);
    assert_true(pair.n_written[1][1] == TOKENS && pair.n_written[1][3] == TOKENS - 9);
    assert_true(!pair.n_written[2][1] && !pair.n_written[2][3]);
    assert_int_equal(pair.n_rows_messages, 2 * 2 + 2);
}

/* As those of a node that knows no states, or has other ones. */
static void test_states_that_do_not_fit_are_computed_anew(void **state)
{
    static const uint32_t rows[][2] = {{50, 0}, {50, 49}, {49, 50}, {0, 50}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i][0])
            make_recurrent(&pair.from, rows[i][0]);
        if (rows[i][1])
            make_recurrent(&pair.to, rows[i][1]);
        quiesce(1);
        wait_ms(LIMIT_CACHE_PATIENCE_MS);
        assert_begun(false);
        assert_true(pair.retires);
        close_pair(state);
        open_pair(state);
    }
}

static uint64_t slow_link(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    (void)self;
    (void)node_id;
    return 1000;
}

/* A token takes 30 ms to compute and 16 ms to send, a state 0.8 s to send. So 90 tokens are sent,
 * and 20 are computed. */
static void test_slots_that_are_computed_sooner_stay(void **state)
{
    (void)state;
    static int32_t tokens[90];
    const struct cached_slot slots[] = {{1, 90, tokens}, {3, 20, tokens}};
    const struct give_costs costs = {.prompt_row_ns = 30000000, .link_bytes_per_s = slow_link};
    make_recurrent(&pair.from, 50);
    make_recurrent(&pair.to, 50);
    pump();
    cache_give_quiesced(&pair.give, pair.now_ms, slots, 2, &costs);
    pump();
    assert_begun(true);
    assert_true(pair.n_written[0][1] == 50 && pair.n_written[1][1] == 90);
    assert_true(pair.n_written[0][3] == 0 && pair.n_written[1][3] == 0);
}

static void test_a_slot_within_the_window_goes_over_whole(void **state)
{
    (void)state;
    pair.from.window = pair.to.window = TOKENS + 1;
    pair.from.is_windowed[1] = pair.to.is_windowed[1] = true;
    quiesce(1);
    assert_begun(true);
    assert_int_equal(pair.n_written[1][1], TOKENS);
}

static void test_rows_that_come_before_the_offer_are_kept(void **state)
{
    (void)state;
    pair.offer_is_late = true;
    quiesce(1);
    assert_begun(true);
}

static void test_a_partial_transfer_is_discarded(void **state)
{
    (void)state;
    pair.drops_rows_at = 2;
    quiesce(1);
    assert_int_equal(pair.n_begun, 0);
    wait_ms(LIMIT_CACHE_PATIENCE_MS);
    assert_begun(false);
    assert_true(pair.retires);
}

static void test_a_driver_that_is_offered_nothing_begins_empty(void **state)
{
    (void)state;
    wait_ms(LIMIT_CACHE_OFFER_MS + 200);
    assert_begun(false);
    assert_true(pair.retires); /* its driver did not come to an end */
}

static void test_without_slots_there_is_nothing_to_write(void **state)
{
    (void)state;
    quiesce(0);
    assert_begun(true);
    assert_int_equal(pair.n_written[0][1], 0);
}

/* Where streams shared their cells there may have been more of them. */
static void test_slots_that_the_new_driver_lacks_stay(void **state)
{
    (void)state;
    pair.give.next.n_slots = 3;
    quiesce(2); /* 1 and 3 */
    assert_begun(true);
    for (int i = 0; i < LAYERS; i++)
        assert_true(pair.n_written[i][1] == TOKENS && pair.n_written[i][3] == 0);
}

static void test_a_giver_that_cannot_read_says_so(void **state)
{
    (void)state;
    pair.reads_fail = true;
    quiesce(1);
    assert_begun(false);
    assert_true(pair.retires);
}

static void test_tokens_that_the_model_does_not_have_are_refused(void **state)
{
    (void)state;
    int32_t tokens[TOKENS] = {[5] = 1000};
    const struct cached_slot slot = {0, TOKENS, tokens};
    pump();
    cache_give_quiesced(&pair.give, pair.now_ms, &slot, 1, &(struct give_costs){0});
    pump();
    assert_begun(false);
}

/* A taker without driver, on node 2; the driver is on node 3, and gets no rows. */
static void take_as_runner(void)
{
    const struct handover_placement old = placed(OLD, 1);
    struct handover_placement *of = &pair.to.of;
    of->stages[1] = of->stages[0];
    of->n_stages = 2;
    of->stages[0].n_layers = 0;
    name(of->stages[0].node_id, 3);
    pair.to.row_bytes[1] = ROW;
    cache_give_clear(&pair.give);
    cache_give_init(&pair.give, &pair.from);
    cache_take_init(&pair.take, &pair.to);
    cache_take_open(&pair.take, &old);
    assert_true(cache_give_begin(&pair.give, pair.now_ms, of, true));
}

static void test_a_runner_takes_no_rows_once_its_driver_has_begun(void **state)
{
    (void)state;
    take_as_runner();
    pair.drops_rows_at = LAYERS; /* the last one is still on its way */
    quiesce(1);
    assert_true(pair.take.state == TAKE_OFFERED && pair.n_written[1][1] == TOKENS);
    cache_take_used(&pair.take);
    pump();
    assert_false(cache_take_is_open(&pair.take));
    const struct cache_route route = {5, OLD, NEW};
    const struct kv_run run = {LAYERS - 1, 1, 0, TOKENS};
    static const unsigned char rows[TOKENS * ROW];
    struct cache_message message;
    struct buffer bytes = {0};
    cache_write_rows(&route, &run, ROW, &bytes);
    buffer_append(&bytes, rows, sizeof rows);
    assert_int_equal(cache_read(bytes.data, bytes.size, &message, NULL), ERROR_NONE);
    assert_false(handover_receive(NULL, &pair.take, pair.now_ms, pair.to.node_id, pair.from.node_id,
                                  &message, &bytes));
    pump();
    assert_true(!pair.n_written[LAYERS - 1][1] && !pair.n_settled);
    buffer_deinit(&bytes);
}

static void test_messages_of_its_pipeline_do_not_end_what_a_driver_takes(void **state)
{
    (void)state;
    cache_take_used(&pair.take);
    quiesce(2);
    assert_begun(true);
}

static void test_planted_faults_are_faults(void **state)
{
    (void)state;
    pair.to.bug = HANDOVER_NO_LAYER;
    quiesce(1);
    assert_begun(true);
    assert_int_equal(pair.n_written[LAYERS - 1][1], 0);
}

/* Each allocation fails once: whatever it was for, the driver begins, and the giver ends. */
static void test_memory_that_lacks_ends_it_and_nothing_else(void **state)
{
    for (unsigned nth = 1; nth < 60; nth++) {
        mem_fail_nth(nth);
        quiesce(2);
        mem_fail_nth(0);
        wait_ms(2 * LIMIT_CACHE_PATIENCE_MS);
        assert_int_equal(pair.n_begun, 1);
        assert_true(pair.retires);
        close_pair(state);
        open_pair(state);
    }
}

#define TEST(of) cmocka_unit_test_setup_teardown(of, open_pair, close_pair)

/* Layers 1, 3 and 4 see 1; 2 and 5 see 2. A stage needs each once. */
static void test_a_stage_is_given_what_its_layers_share_once(void **state)
{
    (void)state;
    static struct handover_part part = {.sees = {[3] = 2, [4] = 2, [5] = 3}};
    static struct handover_placement to = {
        .n_stages = 2,
        .stages = {{.first_layer = 0, .n_layers = 3}, {.first_layer = 3, .n_layers = 3}}};
    static const uint32_t apart[] = {9, 9, 9, 9, 0, 9}, together[] = {9, 9, 9, 0, 0, 0};
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(handover_span_rows(handover_span(&part, &to, i, 9)), apart[i]);
    to.n_stages = 1;
    to.stages[0].n_layers = 6;
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(handover_span_rows(handover_span(&part, &to, i, 9)), together[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_all_rows_of_all_layers_are_taken_over),
        TEST(test_windowed_layers_hand_over_their_window),
        TEST(test_states_go_over_whole),
        TEST(test_a_stage_is_given_what_its_layers_share_once),
        TEST(test_states_that_do_not_fit_are_computed_anew),
        TEST(test_slots_that_are_computed_sooner_stay),
        TEST(test_a_slot_within_the_window_goes_over_whole),
        TEST(test_rows_that_come_before_the_offer_are_kept),
        TEST(test_a_partial_transfer_is_discarded),
        TEST(test_a_driver_that_is_offered_nothing_begins_empty),
        TEST(test_without_slots_there_is_nothing_to_write),
        TEST(test_slots_that_the_new_driver_lacks_stay),
        TEST(test_a_giver_that_cannot_read_says_so),
        TEST(test_tokens_that_the_model_does_not_have_are_refused),
        TEST(test_a_runner_takes_no_rows_once_its_driver_has_begun),
        TEST(test_messages_of_its_pipeline_do_not_end_what_a_driver_takes),
        TEST(test_planted_faults_are_faults),
        TEST(test_memory_that_lacks_ends_it_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
