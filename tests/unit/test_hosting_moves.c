/* A placement takes over what is in the caches of the one before it: which tokens need not be
 * computed again, that the text goes on as if nothing had been, and what happens when caches do not
 * come. */
#include "hosting_world.h"

#include "base/fnv.h"
#include "base/random.h"
#include "pipeline/cache_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { CLIENTS = 3, PROMPT = 40, N_PREDICT = 150 };
static struct client before[CLIENTS], after[CLIENTS];

static bool all_done(void *arg)
{
    const struct client *clients = arg;
    for (int i = 0; i < CLIENTS; i++) {
        if (!client_is_done(&clients[i]))
            return false;
    }
    return true;
}

static bool all_talk(void *arg)
{
    const struct client *clients = arg;
    for (int i = 0; i < CLIENTS; i++) {
        if (!client_is_done(&clients[i]) && !client_has_tokens(&clients[i], 5))
            return false;
    }
    return true;
}

static void submit(struct driver *driver)
{
    struct world world = {.driver = driver};
    for (uint32_t i = 0; i < CLIENTS; i++) {
        client_init(&before[i], i, PROMPT + 7 * i, N_PREDICT);
        before[i].request.sampler.seed = i;
        before[i].request.sampler.temperature = i & 1 ? 1.0f : 0.0f;
        before[i].request.sampler.repeat_penalty = i == 2 ? 1.3f : 1.0f;
        assert_int_equal(client_submit(&before[i], &world, NULL), ERROR_NONE);
    }
}

/* The same requests with what they have got so far, as the relay does it. Returns the tokens that
 * were not computed again. */
static uint32_t go_on(struct house *house, struct driver *driver, uint32_t *n_known)
{
    struct world world = {.driver = driver};
    uint32_t n_cached = 0;
    *n_known = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const uint32_t n_prompt = before[i].request.n_prompt, n = n_prompt + before[i].n_tokens;
        assert_true(before[i].reason == FINISH_CANCELLED || before[i].reason == FINISH_ERROR);
        client_check(&before[i], HOUSE_CONTEXT);
        client_init(&after[i], i, n_prompt, 20);
        memcpy(after[i].prompt + n_prompt, before[i].tokens, before[i].n_tokens * sizeof(int32_t));
        after[i].request.n_prompt = n;
        after[i].request.sampler = before[i].request.sampler;
        assert_int_equal(client_submit(&after[i], &world, NULL), ERROR_NONE);
        *n_known += n;
    }
    assert_true(house_run(house, all_done, after, 10000));
    for (uint32_t i = 0; i < CLIENTS; i++) {
        client_check(&after[i], HOUSE_CONTEXT);
        assert_int_equal(after[i].reason, FINISH_LENGTH);
        n_cached += after[i].usage.cached_tokens;
    }
    return n_cached;
}

struct serving {
    struct house *house;
    int node;
    uint64_t epoch;
};

static bool serves(void *arg)
{
    const struct serving *serving = arg;
    uint64_t epoch = 0;
    return hosting_driver(serving->house->nodes[serving->node].hosting, "i", &epoch) &&
           epoch == serving->epoch;
}

/* Moves in mid-sentence; returns the share of tokens, in percent, that the new driver did not
 * compute again. */
static uint32_t move(struct house *house, int from, const char *to, uint64_t ms)
{
    submit(house_driver(house, from));
    assert_true(house_run(house, all_talk, before, 10000));
    struct serving serving = {house, to[0] - '0', house_place(house, to)};
    assert_true(house_run(house, serves, &serving, ms));
    assert_true(house_run(house, all_done, before, 10000));
    uint32_t n_known, n_cached = go_on(house, house_driver(house, to[0] - '0'), &n_known);
    return 100 * (n_cached + CLIENTS) / n_known; /* the last token of each is always computed */
}

static bool is_small(void *arg)
{
    return fake_stages_open() == *(const uint32_t *)arg;
}

/* `state`: which nodes have processes for their devices. */
static void test_caches_go_along(void **state)
{
    static const char *const places[] = {"0a",     "0a1a",   "0a1b", "0b1a2a", "0a2a1b",
                                         "1a0a2b", "2a1a0a", "2b",   "0a1a2a", "0a1a2a"};
    struct house *house = house_open_with(*state);
    fake_set_faults((struct fake_faults){.delay_us_max = 2000});
    house_place(house, places[0]);
    for (size_t i = 1; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(move(house, places[i - 1][0] - '0', places[i], 5000), 100);
        uint32_t n = (uint32_t)strlen(places[i]) / 2;
        assert_true(house_run(house, is_small, &n, 5000));
    }
    fake_set_faults((struct fake_faults){0});
    house_close(house);
}

static void test_caches_that_cannot_be_read(void **state)
{
    struct house *house = house_open_with(*state);
    fake_set_faults((struct fake_faults){.delay_us_max = 2000, .read_fails = true});
    house_place(house, "0a1a");
    assert_in_range(move(house, 0, "0b1b", 5000), 0, 50);
    assert_in_range(move(house, 0, "1a0a", 5000), 0, 50);
    fake_set_faults((struct fake_faults){.delay_us_max = 2000});
    assert_int_equal(move(house, 1, "0a", 5000), 100);
    fake_set_faults((struct fake_faults){0});
    house_close(house);
}

/* Who has layers cannot reach who has them next. */
static void test_caches_that_do_not_come(void **state)
{
    struct house *house = house_open_with(*state);
    fake_set_faults((struct fake_faults){.delay_us_max = 2000});
    house_place(house, "0a1a");
    house_driver(house, 0);
    house_cut(house, 1, 2);
    assert_in_range(move(house, 0, "0a2a", 6000), 0, 50);
    house_mend(house, 1, 2);
    fake_set_faults((struct fake_faults){0});
    house_close(house);
}

/* Nobody is there who could offer anything: an idle instance, and one whose driver has just lost a
 * stage. */
static void test_nothing_to_take_over(void **state)
{
    (void)state;
    struct house *house = house_open();
    house_place(house, "0a1a");
    house_driver(house, 0);
    struct serving serving = {house, 1, house_place(house, "1b0b")};
    assert_true(house_run(house, serves, &serving, 1000));
    house_set_active(house, false);
    uint32_t none = 0;
    assert_true(house_run(house, is_small, &none, 5000));
    house_close(house);
}

static bool holds(void *arg)
{
    (void)arg;
    return fake_pins_open() > 0;
}

/* No memory for both: what the device keeps stays loaded while the old part makes room, and no
 * longer. */
static void test_weights_that_stay(void **state)
{
    static const char *const places[] = {"0a0b1a", "0a0b", "0b0a", "0b", "1a"};
    struct house *house = house_open_with(*state);
    house_place(house, "0a1a");
    house_driver(house, 0);
    house->replaces = true;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const int node = places[i][0] - '0';
        struct serving serving = {house, node, house_place(house, places[i])};
        if (node == 0 && i != 2) /* 0b0a: the other half each */
            assert_true(house_run(house, holds, NULL, 2000));
        assert_true(house_run(house, serves, &serving, 5000));
        house_pass(house, 100);
        assert_int_equal(fake_pins_open(), 0);
    }
    house_place(house, "0a1a"); /* given up before it is loaded */
    house_abandon_next(house);
    house_pass(house, 300);
    house_close(house);
    assert_int_equal(fake_pins_open(), 0);
}

/* ---- processes that die ------------------------------------------------------------------- */

static bool hands_over(void *arg)
{
    struct hosting_stage list[8];
    const uint32_t n = hosting_stage_list(((struct house_node *)arg)->hosting, list, 8);
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].state == WORKER_UNLOADING)
            return true;
    }
    return false;
}

/* While caches are handed over, or just before: whichever process it is, the text is computed anew,
 * and right. */
static void test_processes_that_die(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int node;
        char device;
    } cases[] = {
        {"0a1a", "1b0b", 0, 'a'}, /* who gives: the driver's node */
        {"0a1a", "1b0b", 1, 'a'}, /* who gives, elsewhere */
        {"0a1a", "1b0b", 0, 'b'}, /* who takes */
        {"0a1a", "1b0b", 1, 'b'}, /* who takes, of the new driver's node */
        {"0a", "0a1a", 0, 'a'},   /* both */
    };
    struct house *house = house_open_with("ccc");
    fake_set_faults((struct fake_faults){.delay_us_max = 2000, .strangers = true});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char device[8];
        struct house_node *node = &house->nodes[cases[i].node];
        struct serving serving = {house, cases[i].to[0] - '0', 0};
        snprintf(device, sizeof device, "toy%d%c", cases[i].node, cases[i].device);
        house_place(house, cases[i].from);
        submit(house_driver(house, cases[i].from[0] - '0'));
        assert_true(house_run(house, all_talk, before, 10000));
        serving.epoch = house_place(house, cases[i].to);
        assert_true(house_run(house, hands_over, &house->nodes[cases[i].from[0] - '0'], 5000));
        fake_children_kill(node->children, device);
        house_pass(house, 50);
        fake_children_start(node->children, device);
        assert_true(house_run(house, serves, &serving, 5000));
        assert_true(house_run(house, all_done, before, 10000));
        uint32_t n_known;
        go_on(house, house_driver(house, serving.node), &n_known); /* compares the text */
    }
    fake_set_faults((struct fake_faults){0});
    house_close(house);
}

/* ---- messages that are wrong, or too late -------------------------------------------------- */

static void post(struct house *house, int to, int from, struct buffer *message,
                 enum error_code wanted)
{
    struct error err = {0};
    uint8_t node_id[NODE_ID_BYTES];
    assert_true(id_parse(house->nodes[from].id, node_id, NODE_ID_BYTES));
    assert_int_equal(
        hosting_cache(house->nodes[to].hosting, node_id, message->data, message->size, &err),
        wanted);
    assert_int_equal(err.text[0] != 0, wanted != ERROR_NONE);
    buffer_clear(message);
}

/* An instance's number on the wire is its driver's: taken from a message of a move. */
static void flood(struct house *house, const struct cache_route *route)
{
    static const int32_t tokens[300];
    struct cache_offer offer = {.patience_ms = 1000, .n_slots = 1};
    struct buffer message = {0};
    const uint64_t rows[20] = {0};
    offer.slots[0].n_tokens = 20;
    offer.slots[0].tokens = (const unsigned char *)tokens;
    for (int from = 1; from < WORLD_NODES; from++) {
        for (uint32_t layer = 0; layer < FAKE_LAYERS; layer++) {
            cache_write_offer(route, &offer, &message);
            post(house, 0, from, &message, ERROR_NONE);
            cache_write_rows(route, &(struct kv_run){layer, layer % 4, 0, 20}, 8, &message);
            buffer_append(&message, rows, sizeof rows);
            post(house, 0, from, &message, ERROR_NONE);
            cache_write_taken(route, &message);
            post(house, 0, from, &message, ERROR_NONE);
            cache_write_done(route, layer & 1, &message);
            post(house, 0, from, &message, ERROR_NONE);
        }
    }
    buffer_append(&message, "rubbish", 7);
    post(house, 0, 1, &message, ERROR_INVALID);
    buffer_deinit(&message);
}

static uint64_t key_of(const char *instance) /* part_key(): on every wire the same */
{
    return random_mix(fnv_text(FNV_BASIS, instance));
}

static void test_messages_that_are_too_late(void **state)
{
    struct house *house = house_open_with(*state);
    fake_set_faults((struct fake_faults){.delay_us_max = 2000});
    const uint64_t old = house_place(house, "0a1a");
    assert_true(old);
    assert_int_equal(move(house, 0, "0b1b", 5000), 100);
    const uint64_t new = house_current(house)->epoch;
    const struct cache_route routes[] = {{key_of("i"), old, new},
                                         {key_of("i"), new, new + 1},
                                         {key_of("i"), 0, new},
                                         {key_of("j"), old, new}};
    submit(house_driver(house, 0));
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        flood(house, &routes[i]);
        house_pass(house, 20);
    }
    assert_true(house_run(house, all_done, before, 10000));
    for (int i = 0; i < CLIENTS; i++) {
        client_check(&before[i], HOUSE_CONTEXT);
        assert_int_equal(before[i].reason, FINISH_LENGTH);
    }
    fake_set_faults((struct fake_faults){0});
    house_close(house);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    static char none[] = "", all[] = "ccc", first[] = "c", others[] = ".cc";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_caches_go_along, none),
        cmocka_unit_test_prestate(test_caches_go_along, all),
        cmocka_unit_test_prestate(test_caches_go_along, first),
        cmocka_unit_test_prestate(test_caches_that_cannot_be_read, none),
        cmocka_unit_test_prestate(test_caches_that_cannot_be_read, all),
        cmocka_unit_test_prestate(test_caches_that_do_not_come, others),
        cmocka_unit_test(test_nothing_to_take_over),
        cmocka_unit_test_prestate(test_weights_that_stay, none),
        cmocka_unit_test_prestate(test_weights_that_stay, all),
        cmocka_unit_test(test_processes_that_die),
        cmocka_unit_test_prestate(test_messages_that_are_too_late, none),
        cmocka_unit_test_prestate(test_messages_that_are_too_late, first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
