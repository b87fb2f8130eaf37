/* Stages elsewhere where memory is short: each runner goes down a ladder of its own, and no reply
 * ends for it and none changes. On the toy machine, with a runner for each machine. */
#include "far_world.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 8, CONTEXT = 400, TRACES = 4, PER_LAYER = 2000 };

static struct client clients[CLIENTS];
static struct device *fallback;

static void submit_all(struct far_world *far, uint64_t seed)
{
    struct error err = {0};
    for (uint32_t i = 0; i < CLIENTS; i++) {
        client_init(&clients[i], seed + i, 1 + (uint32_t)(random_at(seed, i) % 200), 40);
        clients[i].request.sampler.seed = i;
        clients[i].request.sampler.temperature = i & 1 ? 1.0f : 0.0f;
        clients[i].request.sampler.repeat_penalty = i & 2 ? 1.3f : 1.0f;
        if (client_submit(&clients[i], &far->world, &err))
            fail_msg("%s", err.text);
    }
}

static void check_all(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        client_wait(&clients[i]);
        if (clients[i].reason != FINISH_LENGTH)
            fail_msg("client %u: %s", i, clients[i].error.text);
        client_check(&clients[i], CONTEXT);
    }
}

static void open_far(struct far_world *far, const char *machines)
{
    fallback = fake_device_open("cpu", 1000000, 0);
    far_world_mind_memory(fallback);
    far_world_open(
        far, machines, ACTIVATION_F16,
        &(struct driver_options){.n_slots = CLIENTS, .context = CONTEXT, .batch_rows = 64});
}

static void close_far(struct far_world *far)
{
    fake_set_room(UINT32_MAX);
    far_world_close(far);
    far_world_mind_memory(NULL);
    fake_device_close(fallback);
    assert_int_equal(fake_pins_open(), 0);
}

/* Two runners of four layers each: for each form the room that only it and those after it fit. */
static void test_each_form_is_taken_on_the_machine_that_is_short(void **state)
{
    (void)state;
    static const struct {
        uint32_t room;
        enum memory_form form;
    } cases[] = {{4 * PER_LAYER, MEMORY_AS_PLACED},
                 {4 * PER_LAYER / 4 * 3, MEMORY_SMALL_CACHES},
                 {5000, MEMORY_SMALLER_CACHES},
                 {4600, MEMORY_STREAMED},
                 {100, MEMORY_ON_CPU}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct far_world far;
        open_far(&far, "12");
        fake_block(true); /* they are all under way when memory goes */
        submit_all(&far, 50 + i);
        fake_set_room(cases[i].room);
        fake_block(false);
        check_all();
        for (uint32_t machine = 1; machine <= 2; machine++)
            assert_int_equal(far_world_machine(&far, machine).step.form, cases[i].form);
        close_far(&far);
    }
}

static void test_back_up_when_memory_is_there_again(void **state)
{
    (void)state;
    struct far_world far;
    open_far(&far, "12");
    fake_set_room(100);
    submit_all(&far, 5);
    check_all();
    assert_int_equal(far_world_machine(&far, 1).step.form, MEMORY_ON_CPU);
    fake_set_room(UINT32_MAX);
    uint32_t seconds = 0;
    while (far_world_machine(&far, 1).step.step && seconds < 30) {
        if (seconds++ == 3) { /* and nobody asks for anything from then on */
            submit_all(&far, 500);
            check_all();
        }
        usleep(1000 * 1000);
    }
    print_message("# as placed again after %u s\n", seconds);
    assert_int_equal(far_world_machine(&far, 1).step.form, MEMORY_AS_PLACED);
    submit_all(&far, 600);
    check_all();
    close_far(&far);
}

/* Others take and give back whatever they like, at any moment. */
static void test_forms_lose_no_token_whatever_others_take(void **state)
{
    (void)state;
    static const char *const splits[] = {"1", "12", "121", "12"};
    static const uint32_t rooms[] = {UINT32_MAX, 8000, 6000, 5000, 4600, 100};
    uint32_t n_changes = 0;
    for (uint64_t seed = 0; seed < TRACES; seed++) {
        struct far_world far;
        open_far(&far, splits[seed % 4]);
        submit_all(&far, 7000 * seed);
        for (uint64_t turn = 0; turn < 8; turn++) {
            fake_set_room(rooms[turn ? random_at(seed, turn) % 6 : 5]);
            usleep(1000 * (useconds_t)(turn ? random_at(~seed, turn) % 400 : 1200));
        }
        check_all();
        for (uint32_t machine = 1; machine < far.n_machines; machine++)
            n_changes += far_world_machine(&far, machine).n_changes;
        close_far(&far);
    }
    print_message("# %u changes of form in %d traces\n", n_changes, TRACES);
    assert_true(n_changes >= TRACES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_form_is_taken_on_the_machine_that_is_short),
        cmocka_unit_test(test_back_up_when_memory_is_there_again),
        cmocka_unit_test(test_forms_lose_no_token_whatever_others_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
