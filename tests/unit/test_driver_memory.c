/* The driver where memory is short: batches go in parts, wait, or start over; no reply ends for it
 * and none changes. On the toy machine (fake_pipeline.h). */
#include "base/random.h"
#include "driver_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 8, CONTEXT = 400, TRACES = 100 };

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
    struct client refused;
    open_world(&world, 2, 2);
    submit_all(&world, 77);
    assert_true(client_wait_tokens(&clients[0], 1));
    fake_set_memory(0);
    usleep(4500 * 1000);
    for (uint32_t i = 0; i < CLIENTS; i++)
        assert_true(!client_is_done(&clients[i]) || clients[i].reason == FINISH_LENGTH);
    client_init(&refused, 5, 10, 10);
    assert_int_equal(client_submit(&refused, &world, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "memory is short"));
    assert_non_null(strstr(err.text, "--context"));
    fake_set_memory(UINT32_MAX);
    check_all();
    world_close(&world);
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
        cmocka_unit_test(test_whatever_others_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
