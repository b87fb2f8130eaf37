/* A node's files of weights: after a restart, missing, changed, of no use; lack of memory, and
 * those that ask for too much. */
#include "base/limits.h"
#include "base/mem.h"
#include "mesh/frames.h"
#include "model/model.h"
#include "weights/fetch_message.h"
#include "weights_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

static void test_everything_is_there_after_a_restart(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 1, 2);
    close_weights(&hosts[0]);
    close_weights(&hosts[1]);
    open_weights(&hosts[0]);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 1, 2),
                     WORKER_FETCHES); /* it is looked at */
    await_layers(&hosts[0], 1, 2);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 1), WORKER_LACKS);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, 0);
    check_bytes(&hosts[0], 1, 2);
    open_weights(&hosts[1]);
    await_layers(&hosts[1], 0, n_layers);
    struct weights_facts facts[4];
    assert_int_equal(weights_list(hosts[1].weights, facts, 4), 1);
    assert_true(digest_equal(&facts[0].model, &demo_id));
    world_close(2);
}

static void test_a_missing_file_is_not_forgotten(void **state)
{
    char away[PATH_MAX + 8];
    world_open(1);
    add_demo(&hosts[0]);
    close_weights(&hosts[0]);
    snprintf(away, sizeof away, "%s.away", hosts[0].file);
    assert_int_equal(rename(hosts[0].file, away), 0);
    open_weights(&hosts[0]);
    link_world_pass(world, 100);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 0), WORKER_LACKS);
    char golden[PATH_MAX];
    add_file(&hosts[0], weights_golden("llama", golden)); /* writes the list anew */
    assert_int_equal(hosts[0].err.code, 0);
    close_weights(&hosts[0]);
    assert_int_equal(rename(away, hosts[0].file), 0);
    open_weights(&hosts[0]);
    await_layers(&hosts[0], 0, n_layers);
    /* the same again is no other file */
    add_file(&hosts[0], hosts[0].file);
    assert_int_equal(hosts[0].err.code, 0);
    assert_int_equal(weights_list(hosts[0].weights, NULL, 0), 2);
    world_close(1);
}

static void test_files_that_cannot_be_added(void **state)
{
    char path[PATH_MAX];
    world_open(1);
    snprintf(path, sizeof path, "%.4000s/nothing.gguf", hosts[0].folder);
    add_file(&hosts[0], path);
    assert_int_equal(hosts[0].err.code, ERROR_NOT_FOUND);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs("this is no model", file);
    fclose(file);
    add_file(&hosts[0], path);
    assert_int_equal(hosts[0].err.code, ERROR_INVALID);
    assert_int_equal(weights_list(hosts[0].weights, NULL, 0), 0);
    snprintf(path, sizeof path, "%.4000s/files", hosts[0].folder);
    assert_int_not_equal(access(path, F_OK), 0);
    world_close(1);
}

/* Whoever asks makes it look at the file: what was hashed of the flipped one is another model. */
static bool has_demo_again(void *arg)
{
    struct host *host = arg;
    struct weights_facts facts[4];
    uint32_t n = weights_list(host->weights, facts, 4);
    for (uint32_t i = 0; i < n && i < 4; i++)
        weights_have(host->weights, &facts[i].model, 0, 1);
    return weights_have(host->weights, &demo_id, 0, 1) == WORKER_HAS_ALL;
}

static void test_a_changed_file_is_not_given_away(void **state)
{
    world_open(2);
    close_weights(&hosts[0]);
    hosts[0].options.patience_ms = 600;
    open_weights(&hosts[0]);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    const struct model *model = weights_model(hosts[1].weights, &demo_id);
    assert_non_null(model);
    weights_flip_byte(hosts[1].file, demo.parts[5].offset);
    assert_int_equal(weights_have(hosts[1].weights, &demo_id, 0, 1), WORKER_LACKS);
    assert_null(weights_model(hosts[1].weights, &demo_id));
    weights_fetch(hosts[0].weights, &demo_id, 0, 1);
    assert_true(link_world_run(world, has_problem, &hosts[0], 5000));
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes, 0);
    assert_int_equal(model_hyperparameters(model)->n_layers,
                     n_layers); /* who has it open keeps it */
    weights_release(hosts[1].weights, &demo_id);
    /* back as it was: it is noticed, hashed again, and given */
    weights_flip_byte(hosts[1].file, demo.parts[5].offset);
    assert_true(link_world_run(world, has_demo_again, &hosts[1], 10000));
    fetch_layers(&hosts[0], 0, 1);
    check_bytes(&hosts[0], 0, 1);
    world_close(2);
}

/* Whatever allocation fails, there is an answer, and another attempt succeeds. */
static void test_lack_of_memory(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    for (unsigned nth = 1; nth < 60; nth += 1 + nth / 8) {
        struct awaited awaited = {&hosts[0], 1, 1};
        close_weights(&hosts[0]);
        weights_folder_remove(hosts[0].folder);
        hosts[0].options.patience_ms = 900;
        open_weights(&hosts[0]);
        mem_fail_nth(nth);
        for (int attempt = 0; attempt < 10 && !has_layers_or_problem(&awaited); attempt++) {
            weights_fetch(hosts[0].weights, &demo_id, 1, 1);
            link_world_run(world, has_layers_or_problem, &awaited, 300);
        }
        mem_fail_nth(0);
        if (!host_is_linked(&hosts[0]))
            link_world_run(world, host_is_linked, &hosts[0], 3000);
        for (int attempt = 0; attempt < 3 && weights_problem(hosts[0].weights, &demo_id);
             attempt++) {
            weights_fetch(hosts[0].weights, &demo_id, 1, 1);
            link_world_run(world, has_layers_or_problem, &awaited, 3000);
        }
        weights_fetch(hosts[0].weights, &demo_id, 1, 1);
        await_layers(&hosts[0], 1, 1);
        check_bytes(&hosts[0], 1, 1);
    }
    world_close(2);
}

static void post(struct host *host, const struct fetch_message *message)
{
    struct buffer bytes = {0};
    fetch_message_write(message, &bytes);
    const struct frame_header header = {.type = FRAME_WEIGHTS, .length = (uint32_t)bytes.size};
    assert_int_equal(link_post(host->node->link, NODE_CHANNEL_WEIGHTS, &header, bytes.data, NULL),
                     0);
    buffer_deinit(&bytes);
}

static bool all_answered(void *arg)
{
    return hosts[0].n_chunks + hosts[0].n_refused == 200;
}

/* Host 0 is one that asks for more than it should. */
static void test_requests_are_bounded(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    close_weights(&hosts[0]);
    for (uint32_t i = 0; i < 200; i++) {
        struct fetch_message request = {.type = FETCH_MESSAGE_REQUEST, .id = i, .model = demo_id};
        request.request.part = 1;
        request.request.size = 64;
        post(&hosts[0], &request);
    }
    assert_true(link_world_run(world, all_answered, NULL, 5000));
    assert_true(hosts[0].n_chunks >= LIMIT_WEIGHTS_ASKED && hosts[0].n_refused > 0);
    world_close(2);
}

static bool no_link(void *arg)
{
    return !((struct host *)arg)->node->link;
}

static void test_garbage_ends_the_link(void **state)
{
    world_open(2);
    connect_hosts(0, 1);
    close_weights(&hosts[0]);
    struct fetch_message nonsense = {
        .type = FETCH_MESSAGE_REFUSE, .id = 77, .refusal = FETCH_REFUSE_LACKS};
    post(&hosts[0], &nonsense); /* of what was never asked: ignored */
    nonsense = (struct fetch_message){
        .type = FETCH_MESSAGE_CHUNK, .id = 5, .chunk = {(const uint8_t *)"abc", 3}};
    post(&hosts[0], &nonsense);
    post(&hosts[0], &(struct fetch_message){.type = FETCH_MESSAGE_ASK_HAVE, .model = demo_id});
    for (int i = 0; i < 50 && !hosts[0].n_have; i++)
        link_world_pass(world, 10);
    assert_int_equal(hosts[0].n_have, 1);
    assert_non_null(hosts[0].node->link);
    const struct frame_header header = {.type = FRAME_WEIGHTS, .length = 3};
    assert_int_equal(link_post(hosts[0].node->link, NODE_CHANNEL_WEIGHTS, &header, "\1\3\0", NULL),
                     0);
    assert_true(link_world_run(world, no_link, &hosts[0], 5000));
    world_close(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_is_there_after_a_restart),
        cmocka_unit_test(test_a_missing_file_is_not_forgotten),
        cmocka_unit_test(test_files_that_cannot_be_added),
        cmocka_unit_test(test_a_changed_file_is_not_given_away),
        cmocka_unit_test(test_lack_of_memory),
        cmocka_unit_test(test_requests_are_bounded),
        cmocka_unit_test(test_garbage_ends_the_link),
    };
    return cmocka_run_group_tests(tests, hosts_set_up, hosts_tear_down);
}
