/* The driver where memory is short: batches go in parts, wait, or start over; no reply ends for it
 * and none changes. On the toy machine (fake_pipeline.h). */
#include "base/clock.h"
#include "base/random.h"
#include "driver_world.h"
#include "pipeline/driver_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 8, CONTEXT = 400, TRACES = 100, FORM_TRACES = 6 };

static struct client clients[CLIENTS];

static void submit_all(struct world *world, uint64_t seed)
{
    struct error err = {0};
    for (uint32_t i = 0; i < CLIENTS; i++) {
        client_init(&clients[i], seed + i, 1 + (uint32_t)(random_at(seed, i) % 250), 40);
        if (client_submit(&clients[i], world, &err))
            fail_msg("%s", err.text);
    }
}

static void check_all(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        client_wait(&clients[i]);
        assert_int_equal(clients[i].reason, FINISH_LENGTH);
        client_check(&clients[i], CONTEXT);
    }
}

static void open_world(struct world *world, uint32_t n_stages, uint32_t n_devices)
{
    world_open(world, n_stages, n_devices,
               &(struct driver_options){.n_slots = CLIENTS, .context = CONTEXT, .batch_rows = 64});
}

static void test_batches_go_in_parts(void **state)
{
    (void)state;
    for (uint32_t n_stages = 1; n_stages <= 4; n_stages *= 2) {
        struct world world;
        fake_set_memory(5);
        open_world(&world, n_stages, n_stages);
        submit_all(&world, 10 * n_stages);
        check_all();
        world_close(&world);
    }
    fake_set_memory(UINT32_MAX);
}

static void test_rows_and_embeddings_in_parts(void **state)
{
    (void)state;
    struct world world;
    fake_set_memory(3);
    open_world(&world, 2, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct error err = {0};
        client_init(&clients[i], 60 + i, 100, i ? 0 : 12);
        clients[i].request.want_all_logits = i == 0;
        clients[i].request.embeddings = i == 1;
        if (client_submit(&clients[i], &world, &err))
            fail_msg("%s", err.text);
    }
    for (uint32_t i = 0; i < 2; i++) {
        client_wait(&clients[i]);
        assert_int_not_equal(clients[i].reason, FINISH_ERROR);
        assert_true(clients[i].n_rows > 0);
        assert_int_equal(clients[i].n_bad_rows, 0);
    }
    world_close(&world);
    fake_set_memory(UINT32_MAX);
}

/* Longer than a batch waits: its sequences start over, again and again, until memory is back. */
static void test_none_at_all_ends_no_reply(void **state)
{
    (void)state;
    struct world world;
    struct error err = {0};
    static struct client refused[30];
    uint32_t n_asked = 0;
    open_world(&world, 2, 2);
    submit_all(&world, 77);
    assert_true(client_wait_tokens(&clients[0], 1));
    fake_set_memory(0);
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < 30 && code != ERROR_BUSY; i++) { /* down all steps */
        usleep(1000 * 1000);
        client_init(&refused[i], 5, 10, 10);
        code = client_submit(&refused[i], &world, &err);
        n_asked += code == ERROR_NONE;
    }
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_true(!client_is_done(&clients[i]) || clients[i].reason == FINISH_LENGTH);
    assert_int_equal(code, ERROR_BUSY);
    assert_non_null(strstr(err.text, "memory is short"));
    assert_non_null(strstr(err.text, "--context"));
    fake_set_memory(UINT32_MAX);
    check_all();
    for (uint32_t i = 0; i < n_asked; i++)
        client_wait(&refused[i]);
    world_close(&world);
}

/* Down to the step that gives back what nobody uses, by batches that went in parts. */
static void go_down(struct world *world)
{
    struct memory_watch *watch = &world->driver->memory;
    for (uint32_t i = 0; i < MEMORY_STEPS && !memory_watch_terms(watch).gives_back; i++)
        memory_watch_in_parts(watch);
    assert_true(memory_watch_terms(watch).gives_back);
}

static void open_pool(struct world *world)
{
    world_open(world, 2, 2,
               &(struct driver_options){
                   .n_slots = CLIENTS, .context = CONTEXT, .cells = 16 * 256, .batch_rows = 64});
}

/* Prefixes that slots have kept go when memory is short, and are computed again when they are asked
 * for; what is under way keeps its own. */
static void test_idle_caches_are_given_back(void **state)
{
    (void)state;
    struct world world;
    const uint32_t n_given = fake_given_back();
    struct client again;
    open_pool(&world);
    submit_all(&world, 3);
    check_all();
    assert_true(driver_stats(world.driver).cells_free <= 8 * 256);
    assert_int_equal(fake_given_back(), n_given);
    go_down(&world);
    client_init(&again, 3 + 5, clients[5].request.n_prompt, 40);
    struct error err = {0};
    if (client_submit(&again, &world, &err))
        fail_msg("%s", err.text);
    client_wait(&again);
    client_check(&again, CONTEXT);
    assert_int_equal(again.usage.cached_tokens, 0);
    assert_true(driver_stats(world.driver).cells_free >= 14 * 256);
    assert_true(fake_given_back() > n_given);
    world_close(&world);
}

/* A machine with so much host memory left. */
static void set_host_memory(struct world *world, const char *name, uint32_t available_kib)
{
    char path[300];
    struct sysfs *machine = &world->driver->memory.machine;
    snprintf(machine->root, sizeof machine->root, "%s", name);
    snprintf(path, sizeof path, "%s/proc", name);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/proc/meminfo", name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "MemTotal: 64000000 kB\nMemAvailable: %u kB\n", available_kib);
    assert_int_equal(fclose(file), 0);
}

static void remove_host_memory(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, "%s/proc/meminfo", name);
    unlink(path);
    snprintf(path, sizeof path, "%s/proc", name);
    rmdir(path);
    rmdir(name);
}

/* A reply to a prompt that a slot has kept; how many of its tokens were still there. */
static uint32_t ask_again(struct world *world)
{
    struct client again;
    struct error err = {0};
    client_init(&again, 3 + 5, clients[5].request.n_prompt, 40);
    if (client_submit(&again, world, &err))
        fail_msg("%s", err.text);
    client_wait(&again);
    client_check(&again, CONTEXT);
    return again.usage.cached_tokens;
}

/* Devices with memory of their own: prefixes are kept in host memory, until that is short, too. */
static void test_idle_caches_go_to_host_memory(void **state)
{
    (void)state;
    struct world world;
    char name[] = "/tmp/medley-host-XXXXXX";
    const uint32_t n_given = fake_given_back();
    assert_non_null(mkdtemp(name));
    fake_set_caches(true, 0);
    open_pool(&world);
    set_host_memory(&world, name, 32000000);
    submit_all(&world, 3);
    check_all();
    go_down(&world);
    assert_true(ask_again(&world) > 0);
    assert_true(fake_given_back() > n_given);
    set_host_memory(&world, name, 1000);
    memory_watch_in_parts(&world.driver->memory); /* it looks at once */
    assert_int_equal(ask_again(&world), 0);
    fake_set_caches(false, 0);
    world_close(&world);
    remove_host_memory(name);
}

/* What a stage drops of host memory is computed again, to the same text. */
static void test_what_a_stage_dropped_is_computed_again(void **state)
{
    (void)state;
    struct world world;
    char name[] = "/tmp/medley-host-XXXXXX";
    assert_non_null(mkdtemp(name));
    fake_set_caches(true, 5);
    open_pool(&world);
    set_host_memory(&world, name, 1000);
    go_down(&world);
    submit_all(&world, 3);
    check_all();
    assert_int_equal(fake_caches_away(), 0);
    fake_set_caches(false, 0);
    world_close(&world);
    remove_host_memory(name);
}

/* Where each slot has cells of its own there is nothing to give, and no step for it. */
static void test_no_pool_gives_nothing_back(void **state)
{
    (void)state;
    struct world world;
    open_world(&world, 1, 1);
    struct memory_watch *watch = &world.driver->memory;
    for (uint32_t i = 0; i < MEMORY_STEPS; i++) {
        memory_watch_in_parts(watch);
        assert_false(memory_watch_terms(watch).gives_back);
    }
    world_close(&world);
}

/* ---- smaller forms of the stages ------------------------------------------------------------- */

static struct device *fallback;
static int allowed; /* precision */
static bool is_chosen;

static void open_forms(struct world *world, uint32_t n_stages)
{
    fallback = fake_device_open("cpu", 1000000, 0);
    world_open(world, n_stages, n_stages,
               &(struct driver_options){.n_slots = CLIENTS,
                                        .context = CONTEXT,
                                        .batch_rows = 64,
                                        .precision_allowed = allowed,
                                        .kv_is_chosen = is_chosen,
                                        .fallback = fallback});
}

static void close_forms(struct world *world)
{
    fake_set_room(UINT32_MAX);
    world_close(world);
    fake_device_close(fallback);
    assert_int_equal(fake_pins_open(), 0);
}

static enum memory_form form_now(const struct world *world)
{
    struct memory_watch *watch = &world->driver->memory;
    pthread_mutex_lock(&watch->lock);
    const enum memory_form form = watch->form;
    pthread_mutex_unlock(&watch->lock);
    return form;
}

/* For each form the room that only it and those after it fit into: the driver takes it, computes
 * everything again, and every reply is whole and right. */
static void test_each_form_is_taken_when_memory_asks_for_it(void **state)
{
    (void)state;
    static const struct {
        uint32_t room;
        enum memory_form form;
        int allowed;
    } cases[] = {{16000, MEMORY_AS_PLACED},      {12000, MEMORY_SMALL_CACHES},
                 {10000, MEMORY_SMALLER_CACHES}, {6000, MEMORY_STREAMED},
                 {4000, MEMORY_ON_CPU},          {4000, MEMORY_LOWER, 12},
                 {6000, MEMORY_STREAMED, 12},    {100, MEMORY_ON_CPU, 12}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world world;
        allowed = cases[i].allowed;
        open_forms(&world, 1);
        fake_block(true); /* they are all under way when memory goes */
        submit_all(&world, 50 + i);
        fake_set_room(cases[i].room);
        fake_block(false);
        check_all();
        assert_int_equal(form_now(&world), cases[i].form);
        assert_int_equal(world.driver->form.precision, cases[i].form == MEMORY_LOWER ? 12 : 0);
        close_forms(&world);
    }
    allowed = 0;
}

/* Caches of a type that the owner chose stay as they are. */
static void test_a_chosen_cache_is_left(void **state)
{
    (void)state;
    struct world world;
    is_chosen = true;
    open_forms(&world, 1);
    fake_set_room(12000);
    submit_all(&world, 77);
    check_all();
    assert_int_equal(form_now(&world), MEMORY_STREAMED);
    close_forms(&world);
    is_chosen = false;
}

static void serve_until_grown(struct world *world, bool is_grown, uint64_t seed, uint32_t limit_s)
{
    for (uint32_t s = 0; world->driver->form.is_grown != is_grown && s < limit_s; s++) {
        submit_all(world, seed + s);
        check_all();
        usleep(1000 * 1000);
    }
    assert_true(world->driver->form.is_grown == is_grown);
}

/* Stages that were placed with streamed weights for want of memory have all of them in memory once
 * there is room, and give them up first; those of which the owner said so never have. */
static void test_what_was_short_at_first_grows(void **state)
{
    (void)state;
    struct world world;
    for (int may = 0; may < 2; may++) {
        world_open(&world, 1, 1,
                   &(struct driver_options){.n_slots = CLIENTS,
                                            .context = CONTEXT,
                                            .batch_rows = 64,
                                            .weights_max = 4000,
                                            .weights_may_grow = may});
        const uint64_t begun_ns = clock_now_ns();
        uint32_t n_grown = 0;
        fake_set_room(12000); /* not for all: it is tried, and taken back */
        while (clock_now_ns() - begun_ns < UINT64_C(7000000000)) {
            submit_all(&world, 4300);
            check_all();
            n_grown += world.driver->form.is_grown;
            usleep(100 * 1000);
        }
        assert_int_equal(n_grown, 0);
        assert_true((world.driver->memory.ladder.shrunk_ns > 0) == may);
        fake_set_room(UINT32_MAX);
        if (may)
            serve_until_grown(&world, true, 4200, 25);
        if (may)
            print_message("# all weights in memory %.0f s after the last attempt\n",
                          (double)(clock_now_ns() - world.driver->memory.ladder.shrunk_ns) / 1e9);
        assert_int_equal(form_now(&world), MEMORY_AS_PLACED);
        world_close(&world);
    }
}

/* A hot device's wish is answered where that is allowed, and taken back with it; every reply is
 * whole and right. */
static void test_lower_precision_while_a_device_is_hot(void **state)
{
    (void)state;
    for (int is_allowed = 0; is_allowed < 2; is_allowed++) {
        struct world world;
        allowed = is_allowed ? 12 : 0;
        open_forms(&world, 2);
        const struct device *hot = world.driver->form.plan[1].device;
        fake_block(true);
        submit_all(&world, 900);
        driver_ask_lower(world.driver, hot, true);
        driver_ask_lower(world.driver, fallback, true); /* has no stage here */
        fake_block(false);
        check_all();
        assert_int_equal(world.driver->form.precision, allowed);
        assert_int_equal(form_now(&world), MEMORY_AS_PLACED);
        driver_ask_lower(world.driver, hot, false);
        submit_all(&world, 901);
        check_all();
        assert_int_equal(world.driver->form.precision, 0);
        close_forms(&world);
    }
    allowed = 0;
}

/* Both at once: what that form would stream is not. */
static void test_hot_and_short(void **state)
{
    (void)state;
    static const struct {
        uint32_t room;
        enum memory_form form;
    } cases[] = {{8000, MEMORY_SMALL_CACHES}, {5000, MEMORY_SMALLER_CACHES}, {3000, MEMORY_ON_CPU}};
    allowed = 12;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world world;
        open_forms(&world, 1);
        driver_ask_lower(world.driver, world.driver->form.plan[0].device, true);
        fake_set_room(cases[i].room);
        submit_all(&world, 31 + i);
        check_all();
        assert_int_equal(world.driver->form.precision, 12);
        assert_int_equal(form_now(&world), cases[i].form);
        close_forms(&world);
    }
    allowed = 0;
}

/* The way back, of a driver that is in use: as placed within 30 s of the last time that memory was
 * short, and replies go on all the while. */
static void test_back_up_when_memory_is_there_again(void **state)
{
    (void)state;
    struct world world;
    open_forms(&world, 1);
    fake_set_room(100);
    submit_all(&world, 5);
    check_all();
    assert_int_equal(form_now(&world), MEMORY_ON_CPU);
    fake_set_room(UINT32_MAX);
    uint32_t n_replies = 0, seconds = 0;
    for (; form_now(&world) != MEMORY_AS_PLACED && seconds < 30; seconds++, n_replies += CLIENTS) {
        submit_all(&world, 500 + seconds);
        check_all();
        usleep(1000 * 1000);
    }
    print_message("# as placed again after %u s, %u replies meanwhile\n", seconds, n_replies);
    assert_int_equal(form_now(&world), MEMORY_AS_PLACED);
    close_forms(&world);
}

/* Others take and give back whatever they like, at any moment. */
static void test_forms_lose_no_token_whatever_others_take(void **state)
{
    (void)state;
    static const uint32_t rooms[] = {UINT32_MAX, 16000, 12000, 8000, 100};
    uint32_t n_changes = 0;
    for (uint64_t seed = 0; seed < FORM_TRACES; seed++) {
        struct world world;
        enum memory_form before = MEMORY_AS_PLACED;
        open_forms(&world, 1 + (uint32_t)(seed % 2));
        submit_all(&world, 7000 * seed);
        for (uint64_t turn = 0; turn < 8; turn++) {
            fake_set_room(rooms[turn ? random_at(seed, turn) % 5 : 4]);
            usleep(1000 * (useconds_t)(turn ? random_at(~seed, turn) % 400 : 1200));
            n_changes += form_now(&world) != before;
            before = form_now(&world);
        }
        check_all();
        close_forms(&world);
    }
    print_message("# %u changes of form seen in %d traces\n", n_changes, FORM_TRACES);
    assert_true(n_changes >= FORM_TRACES / 2);
}

static void test_whatever_others_take(void **state)
{
    (void)state;
    static const uint32_t rows[] = {UINT32_MAX, 64, 20, 3, 1};
    for (uint64_t seed = 0; seed < TRACES; seed++) {
        struct world world;
        open_world(&world, 1 + (uint32_t)(seed % 3), 1 + (uint32_t)(seed % 2));
        submit_all(&world, 1000 * seed);
        for (uint64_t turn = 0; turn < 500 && !client_is_done(&clients[CLIENTS - 1]); turn++) {
            fake_set_memory(rows[random_at(seed, turn) % 5]);
            usleep((useconds_t)(random_at(~seed, turn) % 1000));
        }
        fake_set_memory(UINT32_MAX);
        check_all();
        world_close(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches_go_in_parts),
        cmocka_unit_test(test_rows_and_embeddings_in_parts),
        cmocka_unit_test(test_none_at_all_ends_no_reply),
        cmocka_unit_test(test_idle_caches_are_given_back),
        cmocka_unit_test(test_idle_caches_go_to_host_memory),
        cmocka_unit_test(test_what_a_stage_dropped_is_computed_again),
        cmocka_unit_test(test_no_pool_gives_nothing_back),
        cmocka_unit_test(test_each_form_is_taken_when_memory_asks_for_it),
        cmocka_unit_test(test_a_chosen_cache_is_left),
        cmocka_unit_test(test_what_was_short_at_first_grows),
        cmocka_unit_test(test_lower_precision_while_a_device_is_hot),
        cmocka_unit_test(test_hot_and_short),
        cmocka_unit_test(test_back_up_when_memory_is_there_again),
        cmocka_unit_test(test_forms_lose_no_token_whatever_others_take),
        cmocka_unit_test(test_whatever_others_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
