/* Requests and answers from a node that breaks the rules: its link ends, or it is ignored; nobody
 * else notices. */
#include "relay_world.h"

#include "api/inbox.h"
#include "base/random.h"
#include "request/request_wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { VICTIM = 0, BYSTANDER = 1, VILLAIN = 2 };

static const struct relay_options DEFAULTS = {0};

static struct link *link_of(struct relay_world *world, int from, int to)
{
    return mesh_find(world->links->nodes[from].mesh, world->links->nodes[to].identity.node_id);
}

static void post(struct relay_world *world, struct buffer *run)
{
    struct frame_header header = {.type = FRAME_REQUEST, .length = (uint32_t)run->size};
    struct error err = {0};
    assert_false(run->failed);
    if (link_post(link_of(world, VILLAIN, VICTIM), NODE_CHANNEL_PIPELINE, &header, run->data, &err))
        fail_msg("%s", err.text);
    buffer_clear(run);
}

static uint32_t links_ended(const struct relay_world *world, int node)
{
    return world->links->nodes[node].n_down;
}

struct ending {
    struct relay_world *world;
    uint32_t n, n_theirs;
};

/* At both ends: what is posted on a link that has ended at the other is heard by nobody. */
static bool has_ended(void *arg)
{
    const struct ending *ending = arg;
    return links_ended(ending->world, VICTIM) > ending->n &&
           links_ended(ending->world, VILLAIN) > ending->n_theirs;
}

/* The run costs its sender the link; then it is linked again. */
static void assert_ends_link(struct relay_world *world, struct buffer *run)
{
    struct ending ending = {world, links_ended(world, VICTIM), links_ended(world, VILLAIN)};
    post(world, run);
    assert_true(link_world_run(world->links, has_ended, &ending, 5000));
    link_world_pass(world->links, 20);
    relay_world_link(world);
}

static void assert_ignored(struct relay_world *world, struct buffer *run)
{
    uint32_t n = links_ended(world, VICTIM);
    post(world, run);
    link_world_pass(world->links, 100);
    assert_int_equal(links_ended(world, VICTIM), n);
}

static struct request small_request(void)
{
    static const int32_t prompt[] = {1, 2, 3};
    return (struct request){
        .prompt = prompt, .n_prompt = 3, .n_predict = 280, .sampler = sampler_defaults()};
}

/* An honest request still runs. */
static void check_health(struct relay_world *world)
{
    static struct client client;
    client_init(&client, 5, 20, 10);
    assert_int_equal(relay_world_ask(world, BYSTANDER, &client, NULL), ERROR_NONE);
    assert_true(relay_world_wait(world, &client, 1));
    client_check(&client, RELAY_CONTEXT);
    assert_int_equal(client.reason, FINISH_LENGTH);
}

/* ---- to a node that serves ------------------------------------------------------------------ */

static void test_hostile_requests(void **state)
{
    (void)state;
    struct relay_world world;
    struct buffer run = {0};
    struct request request = small_request();
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, VICTIM);
    world.nodes[VILLAIN].is_deaf = true;
    buffer_text(&run, "GET / HTTP/1.1\r\n\r\n");
    assert_ends_link(&world, &run);
    request_write_submit(1, "toy", &request, &run);
    run.size--; /* truncated */
    assert_ends_link(&world, &run);
    request_write_submit(1, "toy", &request, &run);
    request_write_submit(1, "toy", &request, &run); /* the same id twice */
    assert_ends_link(&world, &run);
    request.sampler.temperature = -5;
    request_write_submit(2, "toy", &request, &run);
    assert_ends_link(&world, &run);
    request_write_cancel(77, &run); /* that nobody knows */
    request_write_accepted(77, &run);
    request_write_row(77, 1, (const float[]){1}, 1, &run);
    assert_ignored(&world, &run);
    bytes_put(&run, 20, REQUEST_LENGTH_BYTES);
    bytes_put(&run, 99, 1); /* a kind that nobody knows */
    buffer_text(&run, "nineteen bytes more");
    assert_ignored(&world, &run);
    request = small_request();
    uint32_t n_frames = world.nodes[VILLAIN].n_frames;
    request_write_submit(3, "another", &request, &run); /* refused */
    assert_ignored(&world, &run);
    assert_int_equal(world.nodes[VILLAIN].n_frames, n_frames + 1);
    check_health(&world);
    buffer_deinit(&run);
    relay_world_close(&world);
}

/* Any mutation of good messages: the link ends or it does not; the node goes on. (fuzz_request
 * looks at more: each end of a link makes the next dial wait longer.) */
static void test_mutated_requests(void **state)
{
    (void)state;
    struct relay_world world;
    struct buffer run = {0};
    const struct request request = small_request();
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, VICTIM);
    world.nodes[VILLAIN].is_deaf = true;
    for (uint32_t i = 0; i < 100 && links_ended(&world, VICTIM) < 7; i++) {
        request_write_submit(1000 + i, "toy", &request, &run);
        request_write_cancel(1000 + i, &run);
        for (uint32_t k = 0; k < 2; k++)
            run.data[random_at(i, k) % run.size] ^= (char)(1 << random_at(i, 10 + k) % 7);
        while (!link_of(&world, VILLAIN, VICTIM) || !link_of(&world, VICTIM, VILLAIN))
            link_world_pass(world.links, 5);
        post(&world, &run);
        link_world_pass(world.links, 3);
    }
    check_health(&world);
    buffer_deinit(&run);
    relay_world_close(&world);
}

static void test_too_many_requests(void **state)
{
    (void)state;
    struct relay_world world;
    struct buffer run = {0};
    const struct request request = small_request();
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, VICTIM);
    world.nodes[VILLAIN].is_deaf = true;
    fake_block(true);
    for (uint64_t id = 1; id <= LIMIT_RELAY_OF_PEER + 5; id++)
        request_write_submit(id, "toy", &request, &run);
    post(&world, &run);
    link_world_pass(world.links, 200);
    struct driver_stats stats = driver_stats(world.driver.driver);
    assert_int_equal(stats.queued + stats.slots_busy, LIMIT_RELAY_OF_PEER);
    struct error why = {.code = ERROR_IO, .text = "it is gone"};
    link_abort(link_of(&world, VICTIM, VILLAIN), &why);
    fake_block(false);
    for (int i = 0; i < 200 && stats.queued + stats.slots_busy; i++) {
        link_world_pass(world.links, 20);
        stats = driver_stats(world.driver.driver);
    }
    assert_int_equal(stats.queued + stats.slots_busy, 0); /* cancelled with their link */
    relay_world_link(&world);
    check_health(&world);
    buffer_deinit(&run);
    relay_world_close(&world);
}

/* ---- to a node that asks --------------------------------------------------------------------- */

static bool is_asked(void *arg)
{
    const struct relay_world *world = arg;
    return world->nodes[VILLAIN].n_frames > 0;
}

/* The villain has the driver, and the victim a request with it, whose id is 1: the first of its
 * relay. */
static void ask_villain(struct relay_world *world, struct client *client, uint32_t n_predict)
{
    relay_world_open(world, &DEFAULTS);
    relay_world_place(world, VILLAIN);
    world->nodes[VILLAIN].is_deaf = true;
    client_init(client, 1, 20, n_predict);
    assert_int_equal(relay_world_ask(world, VICTIM, client, NULL), ERROR_NONE);
    assert_true(link_world_run(world->links, is_asked, world, 5000));
    link_world_pass(world->links, 50);
    assert_true(world->nodes[VILLAIN].n_frames == 1);
}

/* The right answer, from a node that is honest now. */
static void finish_honestly(struct relay_world *world, const struct client *client)
{
    world->nodes[VILLAIN].is_deaf = false;
    assert_true(relay_world_wait(world, client, 1));
    client_check(client, RELAY_CONTEXT);
    assert_int_equal(client->reason, FINISH_LENGTH);
    relay_world_close(world);
}

static void write_token(uint64_t id, int32_t token, uint32_t index, struct buffer *run)
{
    size_t last = SIZE_MAX;
    request_write_token(id, &(struct token_event){.token = token, .index = index}, &last, run);
}

static void test_hostile_answers(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct buffer run = {0};
    int32_t expected[CLIENT_TOKENS];
    ask_villain(&world, &client, 4);
    client_expected(&client, RELAY_CONTEXT, expected);
    write_token(55, 1, 0, &run); /* an id that nobody has */
    assert_ignored(&world, &run);
    request_write_accepted(1, &run);
    write_token(1, expected[0], 0, &run);
    assert_ignored(&world, &run);
    assert_int_equal(client_tokens(&client), 1);
    write_token(1, 2, 7, &run); /* not the next */
    assert_ends_link(&world, &run);
    assert_int_equal(client_tokens(&client), 1);
    /* From now on ids 2, 3 …: it was asked anew each time, after what it had given. */
    link_world_pass(world.links, 300);
    for (uint32_t i = 0; i < 4; i++)
        write_token(2, expected[1 + i % 3], i, &run); /* one more than there may be */
    assert_ends_link(&world, &run);
    assert_int_equal(client_tokens(&client),
                     4); /* the rest were good; nothing is missing now but the end */
    assert_true(relay_world_wait(&world, &client, 1));
    assert_int_equal(client.reason, FINISH_LENGTH);
    buffer_deinit(&run);
    finish_honestly(&world, &client);
}

static void test_hostile_rows_and_ends(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct buffer run = {0};
    const struct request_usage usage = {.cached_tokens = UINT32_MAX, .generated_tokens = 99};
    ask_villain(&world, &client, 50);
    request_write_row(1, 0, (const float[]){1}, 1, &run); /* not asked for */
    assert_ends_link(&world, &run);
    link_world_pass(world.links, 300);
    request_write_done(2, FINISH_ERROR, &usage, NULL, false, &run); /* an error without one */
    assert_ends_link(&world, &run);
    link_world_pass(world.links, 300);
    const struct error here = {ERROR_NOT_FOUND, "its driver is not here"};
    request_write_refused(3, &here, &run); /* asked again, soon */
    world.nodes[VILLAIN].is_deaf = false;
    assert_ignored(&world, &run);
    buffer_deinit(&run);
    finish_honestly(&world, &client);
}

static const struct error driver_gone = {ERROR_NOT_FOUND, "its driver is not here"};

/* What the API's node does with a row of logits: it scores the prompt's next token. */
static void test_row_of_one_value(void **state)
{
    (void)state;
    enum { N_PROMPT = 3, N_VOCAB = 32000 };
    static const int32_t prompt[N_PROMPT] = {1, 2, 3};
    struct relay_world world;
    struct inbox inbox;
    struct inbox_item item = {
        .inbox = &inbox, .prompt = prompt, .n_prompt = N_PROMPT, .n_vocab = N_VOCAB};
    struct client asking = {0};
    struct buffer run = {0};
    struct error err = {0};
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, VILLAIN);
    world.nodes[VILLAIN].is_deaf = true;
    assert_int_equal(inbox_init(&inbox, NULL, NULL, &err), ERROR_NONE);
    assert_int_equal(sampler_new(N_VOCAB, &item.scorer, &err), ERROR_NONE);
    asking.request = (struct request){.prompt = prompt,
                                      .n_prompt = N_PROMPT,
                                      .sampler = sampler_defaults(),
                                      .want_all_logits = true,
                                      .n_vocab = N_VOCAB,
                                      .handlers = inbox_scoring_handlers,
                                      .arg = &item};
    assert_int_equal(
        generator_submit(world.nodes[VICTIM].generator, &asking.request, &asking.id, &err),
        ERROR_NONE);
    assert_true(link_world_run(world.links, is_asked, &world, 5000));
    request_write_row(1, 0, (const float[]){1}, 1, &run);
    assert_ends_link(&world, &run);
    assert_int_equal(item.arriving.n_records, 0);
    link_world_pass(world.links, 300);
    request_write_done(2, FINISH_LENGTH, &(struct request_usage){0}, NULL, false, &run);
    assert_ends_link(&world, &run); /* the rows are missing */
    generator_cancel(world.nodes[VICTIM].generator, asking.id);
    link_world_pass(world.links, 300);
    assert_true(item.done && item.reason == FINISH_CANCELLED);
    /* And where a driver of this process breaks its word. */
    inbox_scoring_handlers.row(&item, 0, (const float[]){1}, 1);
    inbox_scoring_handlers.done(&item, FINISH_LENGTH, &(struct request_usage){0}, NULL);
    assert_true(item.reason == FINISH_ERROR && item.err.code == ERROR_INTERNAL);
    inbox_item_deinit(&item);
    inbox_deinit(&inbox);
    buffer_deinit(&run);
    relay_world_close(&world);
}

static void test_short_embeddings(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct buffer run = {0};
    const float values[FAKE_EMBD + 1] = {1};
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, VILLAIN);
    world.nodes[VILLAIN].is_deaf = true;
    client_init(&client, 1, 20, 0);
    client.request.embeddings = true;
    client.request.n_embd = FAKE_EMBD;
    assert_int_equal(relay_world_ask(&world, VICTIM, &client, NULL), ERROR_NONE);
    assert_true(link_world_run(world.links, is_asked, &world, 5000));
    request_write_row(1, 0, values, FAKE_EMBD - 1, &run);
    assert_ends_link(&world, &run);
    link_world_pass(world.links, 300);
    request_write_row(2, 0, values, FAKE_EMBD + 1, &run);
    assert_ends_link(&world, &run);
    assert_int_equal(client.n_rows, 0);
    link_world_pass(world.links, 300);
    request_write_refused(3, &driver_gone, &run);
    world.nodes[VILLAIN].is_deaf = false;
    assert_ignored(&world, &run);
    buffer_deinit(&run);
    finish_honestly(&world, &client);
}

static void test_tokens_of_no_vocabulary(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct buffer run = {0};
    size_t last = SIZE_MAX;
    const struct token_logprob top = {.token = FAKE_VOCAB, .logprob = -1};
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, VILLAIN);
    world.nodes[VILLAIN].is_deaf = true;
    client_init(&client, 1, 20, 50);
    client.request.n_vocab = FAKE_VOCAB;
    client.request.logprobs = true;
    client.request.n_top_logprobs = 1;
    assert_int_equal(relay_world_ask(&world, VICTIM, &client, NULL), ERROR_NONE);
    assert_true(link_world_run(world.links, is_asked, &world, 5000));
    write_token(1, FAKE_VOCAB, 0, &run);
    assert_ends_link(&world, &run);
    link_world_pass(world.links, 300);
    request_write_token(2, &(struct token_event){.token = 1, .top = &top, .n_top = 1}, &last, &run);
    assert_ends_link(&world, &run);
    link_world_pass(world.links, 300);
    last = SIZE_MAX;
    request_write_token(3, &(struct token_event){.token = 1, .logprob = NAN}, &last, &run);
    assert_ends_link(&world, &run);
    assert_int_equal(client_tokens(&client), 0);
    link_world_pass(world.links, 300);
    request_write_refused(4, &driver_gone, &run);
    world.nodes[VILLAIN].is_deaf = false;
    assert_ignored(&world, &run);
    buffer_deinit(&run);
    finish_honestly(&world, &client);
}

static void test_usage_beyond_time(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct buffer run = {0};
    const struct request_usage usage = {.prompt_tokens = 7,
                                        .cached_tokens = UINT32_MAX,
                                        .generated_tokens = UINT32_MAX,
                                        .queued_ns = UINT64_MAX,
                                        .prefill_ns = UINT64_MAX,
                                        .decode_ns = 12};
    const uint64_t minute_ns = UINT64_C(60000000000);
    ask_villain(&world, &client, 50);
    request_write_accepted(1, &run);
    write_token(1, 1, 0, &run);
    request_write_done(1, FINISH_STOP, &usage, NULL, false, &run);
    assert_ignored(&world, &run);
    assert_true(relay_world_wait(&world, &client, 1));
    assert_true(client.usage.prompt_tokens == 20 && client.usage.cached_tokens <= 20 &&
                client.usage.generated_tokens == 1);
    assert_true(client.usage.queued_ns < minute_ns && client.usage.prefill_ns < minute_ns &&
                client.usage.decode_ns < minute_ns);
    buffer_deinit(&run);
    relay_world_close(&world);
}

/* The villain knows the id of a request that is with another node. */
static void test_somebody_elses_request(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct buffer run = {0};
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, BYSTANDER);
    fake_set_faults((struct fake_faults){.delay_us_max = 4000, .seed = 1});
    client_init(&client, 1, 20, 200);
    assert_int_equal(relay_world_ask(&world, VICTIM, &client, NULL), ERROR_NONE);
    assert_true(relay_world_wait_tokens(&world, &client, 3));
    const struct request_usage usage = {0};
    write_token(1, 5, client_tokens(&client), &run);
    request_write_done(1, FINISH_STOP, &usage, NULL, false, &run);
    assert_ignored(&world, &run);
    assert_false(client_is_done(&client));
    fake_set_faults((struct fake_faults){0});
    buffer_deinit(&run);
    finish_honestly(&world, &client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile_requests),
        cmocka_unit_test(test_mutated_requests),
        cmocka_unit_test(test_too_many_requests),
        cmocka_unit_test(test_hostile_answers),
        cmocka_unit_test(test_hostile_rows_and_ends),
        cmocka_unit_test(test_somebody_elses_request),
        cmocka_unit_test(test_row_of_one_value),
        cmocka_unit_test(test_short_embeddings),
        cmocka_unit_test(test_tokens_of_no_vocabulary),
        cmocka_unit_test(test_usage_beyond_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
