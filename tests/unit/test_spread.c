/* Which node keeps a spare copy of which layers, and what is survived. */
#include "placing/spread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 8, NODES = 4 };
#define MIB UINT64_C(1048576)

struct spread_world {
    struct spread_node nodes[NODES];
    double rates[NODES][NODES];
    struct spread_question question;
};

static double world_rate(void *self, uint32_t from, uint32_t to)
{
    return ((struct spread_world *)self)->rates[from][to];
}

/* All are up and have room for everything; node 0 has the file. */
static void world_begin(struct spread_world *world)
{
    *world =
        (struct spread_world){.question = {LAYERS, MIB, world->nodes, NODES, world_rate, world}};
    for (uint32_t i = 0; i < NODES; i++)
        world->nodes[i] = (struct spread_node){.up = true, .room_bytes = 100 * MIB};
    spread_add(&world->nodes[0], 0, LAYERS);
}

static void assert_copy(const struct spread_copy *copy, uint32_t node, uint32_t first, uint32_t n)
{
    assert_int_equal(copy->node, node);
    assert_int_equal(copy->first_layer, first);
    assert_int_equal(copy->n_layers, n);
}

static void the_nearest_keeps_all(void **state)
{
    struct spread_world world;
    struct spread_copy copies[LAYERS];
    world_begin(&world);
    world.rates[0][1] = 1e6;
    world.rates[0][2] = 1e9;
    world.rates[0][3] = 1e8;
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 1);
    assert_copy(&copies[0], 2, 0, LAYERS);
    /* what has come already changes nothing for the rest */
    spread_add(&world.nodes[2], 0, 3);
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 1);
    assert_copy(&copies[0], 2, 3, LAYERS - 3);
    spread_add(&world.nodes[2], 3, LAYERS - 3);
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 0);
}

static void what_two_have_is_left_alone(void **state)
{
    struct spread_world world;
    struct spread_copy copies[LAYERS];
    world_begin(&world);
    spread_add(&world.nodes[1], 2, 3);
    world.rates[0][1] = 1;
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 2);
    assert_copy(&copies[0], 1, 0, 2);
    assert_copy(&copies[1], 1, 5, 3);
    world.nodes[1].up = false; /* its copies do not count while it is away */
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 1);
    assert_copy(&copies[0], 2, 0, LAYERS);
}

/* Else all that a placement is about to fetch would be copied to a third node meanwhile. */
static void what_is_being_fetched_is_not_copied(void **state)
{
    struct spread_world world;
    struct spread_copy copies[LAYERS];
    uint32_t layer = 99;
    world_begin(&world);
    spread_expect(&world.nodes[3], 2, 4);
    world.rates[0][3] = 1;
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 2);
    assert_copy(&copies[0], 3, 0, 2); /* the nearest, for what it does not fetch by itself */
    assert_copy(&copies[1], 3, 6, 2);
    world.rates[0][1] = 2;
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 2);
    assert_copy(&copies[0], 1, 0, 2);
    assert_copy(&copies[1], 1, 6, 2);
    assert_int_equal(spread_copies(&world.question, &layer), 1); /* it is not there yet */
    assert_int_equal(layer, 0);
    world.nodes[3].up = false;
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 1);
    assert_copy(&copies[0], 1, 0, LAYERS);
}

static void rooms_are_respected(void **state)
{
    struct spread_world world;
    struct spread_copy copies[LAYERS];
    world_begin(&world);
    world.rates[0][1] = 3;
    world.rates[0][2] = 2;
    world.nodes[1].room_bytes = 3 * MIB + 5;
    world.nodes[2].room_bytes = 4 * MIB;
    world.nodes[3].room_bytes = MIB - 1;
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 2);
    assert_copy(&copies[0], 1, 0, 3);
    assert_copy(&copies[1], 2, 3, 4); /* the last layer has no place, and none is given one */
    assert_int_equal(spread_choose(&world.question, copies, 1), 1);
    assert_copy(&copies[0], 1, 0, 3);
}

static void what_nobody_has_is_nobodys(void **state)
{
    struct spread_world world;
    struct spread_copy copies[LAYERS];
    uint32_t layer = 99;
    world_begin(&world);
    memset(world.nodes[0].layers, 0, sizeof world.nodes[0].layers);
    spread_add(&world.nodes[0], 0, 4);
    assert_int_equal(spread_copies(&world.question, &layer), 0);
    assert_int_equal(layer, 4);
    assert_int_equal(spread_choose(&world.question, copies, LAYERS), 1);
    assert_int_equal(copies[0].n_layers, 4);
}

static void survival_is_the_least_of_three(void **state)
{
    static const struct {
        uint32_t copies; /* nodes that have all of it */
        uint64_t memory_mib[NODES];
        uint32_t voters, voters_up, survives;
        enum spread_limit limit;
    } rows[] = {
        {1, {99, 99, 99, 99}, 3, 3, 0, SPREAD_WEIGHTS},
        {2, {99, 99, 99, 99}, 3, 3, 1, SPREAD_WEIGHTS},
        {3, {99, 99, 99, 99}, 5, 5, 2, SPREAD_WEIGHTS},
        {3, {99, 99, 99, 99}, 3, 3, 1, SPREAD_LOG},
        {2, {99, 99, 99, 99}, 3, 2, 0, SPREAD_LOG},
        {2, {99, 99, 99, 99}, 3, 1, 0, SPREAD_LOG},
        {2, {99, 2, 3, 3}, 3, 3, 1, SPREAD_WEIGHTS}, /* 8 MiB are left without the largest */
        {2, {99, 2, 3, 2}, 3, 3, 0, SPREAD_MEMORY},
        {4, {8, 8, 8, 8}, 9, 9, 3, SPREAD_WEIGHTS},
        {4, {8, 8, 4, 3}, 9, 9, 1, SPREAD_MEMORY},
        {0, {99, 99, 99, 99}, 3, 3, 0, SPREAD_WEIGHTS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct spread_world world;
        enum spread_limit limit;
        uint64_t memory[NODES];
        world_begin(&world);
        for (uint32_t k = 0; k < NODES; k++) {
            memset(world.nodes[k].layers, 0, sizeof world.nodes[k].layers);
            memory[k] = rows[i].memory_mib[k] * MIB;
            if (k < rows[i].copies)
                spread_add(&world.nodes[k], 0, LAYERS);
        }
        assert_int_equal(
            spread_survives(&world.question, memory, rows[i].voters, rows[i].voters_up, &limit),
            rows[i].survives);
        assert_int_equal(limit, rows[i].limit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_keeps_all),
        cmocka_unit_test(what_two_have_is_left_alone),
        cmocka_unit_test(what_is_being_fetched_is_not_copied),
        cmocka_unit_test(rooms_are_respected),
        cmocka_unit_test(what_nobody_has_is_nobodys),
        cmocka_unit_test(survival_is_the_least_of_three),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
