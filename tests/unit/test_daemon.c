/* Whole nodes on one loop: they join by code and by hand, share a model, answer, go and come back;
 * and they end in order whatever they were at. */
#include "daemon_world.h"

#include "agreement/agreement.h"
#include "base/mem.h"
#include "node/history.h"
#include "node/peers.h"
#include "request/generator.h"
#include "request/request_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct daemon_world *w;
static struct error err;

static int setup(void **state)
{
    w = daemon_world_open();
    return 0;
}

static int teardown(void **state)
{
    daemon_world_close(w);
    return 0;
}

/* ---- beginning ---- */

static void start(int node, const struct daemon_options *options)
{
    if (daemon_world_start(w, node, options, &err))
        fail_msg("node %d: %s", node, err.text);
}

static const char *address_of(int node)
{
    static char text[NODES_MAX][32];
    snprintf(text[node], sizeof text[node], "127.0.0.1:%u", w->nodes[node].daemon->port);
    return text[node];
}

static void invite(int node, char code[16])
{
    const char *answer = ask(w, node, "{\"do\":\"invite\"}");
    if (sscanf(answer, "{\"code\":\"%15[^\"]\"", code) != 1)
        fail_msg("no code: %s", answer);
}

struct seen {
    int node;
    uint32_t n;
};

/* It sees so many nodes that are up, and one of them leads. */
static bool sees(void *arg)
{
    const struct seen *seen = arg;
    struct daemon *daemon = w->nodes[seen->node].daemon;
    const Cluster__State *root = daemon_state(daemon)->root;
    uint32_t n = 0;
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        const char *id = root->nodes[i]->node->id;
        const struct peer *peer = daemon_peer(daemon, id);
        n += root->nodes[i]->admitted && (strcmp(id, daemon->id) == 0 || (peer && peer->link));
    }
    const struct replica_status status = agreement_status(daemon->agreement);
    return root && root->n_nodes == seen->n && n == seen->n && status.leader;
}

static void await_nodes(int node, uint32_t n)
{
    if (!daemon_world_run(w, sees, &(struct seen){node, n}, 15000))
        fail_msg("node %d does not see %u nodes: %s", node, n, ask(w, node, "{\"do\":\"nodes\"}"));
}

/* A cluster of the first n nodes; the first is its admin, through which all have joined. */
static void start_cluster(int n)
{
    start(0, &(struct daemon_options){0});
    await_nodes(0, 1);
    for (int i = 1; i < n; i++) {
        char code[16];
        invite(0, code);
        start(i,
              &(struct daemon_options){.peers = {address_of(0)}, .n_peers = 1, .join_code = code});
        for (int j = 0; j <= i; j++)
            await_nodes(j, (uint32_t)i + 1);
    }
}

/* ---- a model ---- */

static struct talk *begin_place(int node, uint32_t context)
{
    char line[1024];
    struct talk *talk = talk_open(w, node);
    assert_non_null(getenv("MEDLEY_ROOT"));
    snprintf(line, sizeof line,
             "{\"do\":\"place\",\"model\":\"%s/models/demo.gguf\",\"streams\":8,\"context\":%u}\n",
             getenv("MEDLEY_ROOT"), context);
    talk_say(w, talk, line, strlen(line));
    return talk;
}

static void place(int node, uint32_t context) /* 0: as usual */
{
    struct talk *talk = begin_place(node, context);
    if (!talk_await(w, talk, "\"ready\":{", 20000))
        fail_msg("not placed: %s", talk->text);
    talk_close(talk);
}

enum { TOKENS = 24 };

static struct talk *begin_generate(int node, uint32_t n)
{
    static const char line[] = "{\"do\":\"generate\",\"model\":\"Medley Stories\"}\n";
    static const int32_t prompt[] = {2044, 5, 6, 7};
    struct request request = {
        .prompt = prompt, .n_prompt = 4, .n_predict = n, .sampler = sampler_defaults()};
    request.sampler.temperature = 0;
    struct buffer run = {0};
    struct talk *talk = talk_open(w, node);
    talk_say(w, talk, line, sizeof line - 1);
    if (!talk_await(w, talk, "\n", 15000) || strstr(talk->text, "\"error\":{"))
        fail_msg("no generation: %s", talk->text);
    request_write_submit(9, "Medley Stories", &request, &run);
    assert_false(run.failed);
    talk_say(w, talk, run.data, run.size);
    buffer_deinit(&run);
    return talk;
}

/* The tokens so far; true: it has ended, well. */
static bool read_tokens(const struct talk *talk, int32_t *tokens, uint32_t *n)
{
    const char *from = memchr(talk->text, '\n', talk->n) + 1;
    struct bytes_reader run = {(const unsigned char *)from, talk->n - (size_t)(from - talk->text),
                               false};
    struct request_message message;
    const void *bytes = NULL;
    size_t size;
    *n = 0;
    while (request_next(&run, &bytes, &size, &err) == ERROR_NONE && bytes) {
        assert_int_equal(request_read(bytes, size, &message, &err), ERROR_NONE);
        const unsigned kind = message.kind;
        for (uint32_t i = 0; kind == REQUEST_TOKENS && i < message.tokens.count; i++) {
            struct token_event event;
            struct token_logprob top[LIMIT_TOP_LOGPROBS];
            request_next_token(&message, &event, top);
            assert_int_equal(event.index, *n);
            tokens[(*n)++] = event.token;
        }
        const bool failed = kind == REQUEST_DONE && message.done.reason == FINISH_ERROR;
        request_message_deinit(&message);
        if (failed || kind == REQUEST_REFUSED)
            fail_msg("the request failed");
        if (kind == REQUEST_DONE)
            return true;
    }
    return false;
}

struct generation {
    struct talk *talk;
    int32_t tokens[512];
    uint32_t n, least;
};

static bool has_tokens(void *arg)
{
    struct generation *generation = arg;
    talk_await(w, generation->talk, "\x01never", 0); /* hears what there is */
    return read_tokens(generation->talk, generation->tokens, &generation->n) ||
           (generation->least && generation->n >= generation->least);
}

static void generate(int node, struct generation *out)
{
    *out = (struct generation){.talk = begin_generate(node, TOKENS)};
    if (!daemon_world_run(w, has_tokens, out, 30000))
        fail_msg("only %u tokens", out->n);
    talk_close(out->talk);
    assert_true(out->n > 0);
}

/* ---- a cluster's life ---- */

static void test_life(void **state)
{
    struct generation first, again;
    start_cluster(3);
    place(0, 0);
    generate(0, &first);
    generate(2, &again);
    assert_int_equal(first.n, again.n);
    assert_memory_equal(first.tokens, again.tokens, first.n * sizeof first.tokens[0]);

    daemon_world_stop(w, 1);
    start(1, &(struct daemon_options){0});
    for (int i = 0; i < 3; i++)
        await_nodes(i, 3);
    generate(1, &again);
    assert_int_equal(first.n, again.n);
    assert_memory_equal(first.tokens, again.tokens, first.n * sizeof first.tokens[0]);

    assert_non_null(
        strstr(ask(w, 0, "{\"do\":\"remove\",\"node\":\"node2\"}"), "\"removed\":\"node2\""));
    await_nodes(0, 2);
    await_nodes(1, 2);
    daemon_world_pass(w, 300);
    assert_null(daemon_peer(w->nodes[0].daemon, w->nodes[2].daemon->id));
    assert_false(w->nodes[2].is_over);

    char id[NODE_ID_TEXT];
    strcpy(id, w->nodes[1].daemon->id);
    assert_non_null(strstr(ask(w, 1, "{\"do\":\"leave\"}"), "\"left\":\"node1\""));
    await_nodes(0, 1);
    for (int i = 0; i < 2000 && !w->nodes[1].is_over; i++)
        daemon_world_pass(w, 5);
    assert_true(w->nodes[1].is_over && !w->nodes[1].has_failed);
    daemon_world_stop(w, 1);
    start(1, &(struct daemon_options){0});
    await_nodes(1, 1);
    assert_string_not_equal(w->nodes[1].daemon->id, id);
}

/* ---- a model's text parts ---- */

struct opened {
    bool is_over;
    struct daemon_text *text;
    enum error_code code;
};

static void on_opened(void *arg, struct daemon_text *text, const struct error *why)
{
    *(struct opened *)arg = (struct opened){true, text, why ? why->code : ERROR_NONE};
}

static bool is_opened(void *arg)
{
    return ((struct opened *)arg)->is_over;
}

static struct opened open_text(int node)
{
    struct opened opened = {0};
    daemon_open_model(w->nodes[node].daemon, "Medley Stories", on_opened, &opened);
    assert_true(daemon_world_run(w, is_opened, &opened, 15000));
    return opened;
}

/* Who asks gets the context that the instance has now, however long its vocabulary has been
 * open. */
static void test_context_anew(void **state)
{
    start_cluster(1);
    place(0, 256);
    const struct opened first = open_text(0);
    assert_non_null(first.text);
    assert_int_equal(generator_context(first.text->generator), 256);
    place(0, 512);
    const struct opened again = open_text(0);
    assert_ptr_equal(again.text, first.text);
    assert_int_equal(generator_context(again.text->generator), 512);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* What failed for want of memory is tried again, and leaks nothing. */
static void test_open_again(void **state)
{
    uint32_t n_late = 0;
    start_cluster(1);
    place(0, 0);
    daemon_world_run(w, never, NULL, 1000); /* what is written down of that is written then */
    for (unsigned nth = 1; nth <= 8; nth++) {
        struct opened opened = {0};
        mem_fail_nth(nth);
        daemon_open_model(w->nodes[0].daemon, "Medley Stories", on_opened, &opened);
        const bool is_late = !opened.is_over;
        if (is_late)
            usleep(
                100 *
                1000); /* the loop stands still: it is the vocabulary's reader whose memory fails */
        mem_fail_nth(0);
        assert_true(daemon_world_run(w, is_opened, &opened, 15000));
        assert_int_equal(opened.code, ERROR_NO_MEMORY);
        n_late += is_late;
    }
    assert_true(n_late >= 4);
    assert_non_null(open_text(0).text);
}

/* A node that has begun without its cluster: who asks waits for that, but not for ever. */
static void test_open_early(void **state)
{
    struct opened early = {0}, given_up = {0}, late = {0}, unknown = {0};
    start_cluster(2);
    place(0, 0);
    const uint16_t port = w->nodes[0].daemon->port;
    daemon_world_stop(w, 0);
    daemon_world_stop(w, 1);
    start(1, &(struct daemon_options){0}); /* the other votes alone */
    struct daemon *daemon = w->nodes[1].daemon;
    daemon_open_model(daemon, "Medley Stories", on_opened, &early);
    daemon_open_model(daemon, "Medley Stories", on_opened, &given_up);
    daemon_open_model(daemon, "another", on_opened, &unknown);
    daemon_cancel_open(daemon, &given_up);
    daemon_world_pass(w, 700);
    assert_false(early.is_over || given_up.is_over || unknown.is_over);

    daemon->opened_ms -= LIMIT_EARLY_MS;
    assert_true(daemon_world_run(w, is_opened, &early, 5000));
    assert_int_equal(early.code, ERROR_BUSY);
    assert_true(unknown.is_over && unknown.code == ERROR_BUSY);
    daemon_open_model(daemon, "Medley Stories", on_opened, &late);
    assert_true(late.is_over && late.code == ERROR_BUSY);

    daemon->opened_ms += LIMIT_EARLY_MS;
    early = (struct opened){0};
    daemon_open_model(daemon, "another", on_opened, &early);
    daemon_world_stop(w, 1);
    assert_true(early.is_over && early.code == ERROR_CANCELLED);

    start(1, &(struct daemon_options){0});
    daemon = w->nodes[1].daemon;
    early = unknown = (struct opened){0};
    daemon_open_model(daemon, "Medley Stories", on_opened, &early);
    daemon_open_model(daemon, "another", on_opened, &unknown);
    start(0, &(struct daemon_options){.port = port});
    assert_true(daemon_world_run(w, is_opened, &early, 20000));
    assert_non_null(early.text);
    assert_true(daemon_world_run(w, is_opened, &unknown, 5000));
    assert_int_equal(unknown.code, ERROR_NOT_FOUND);
    assert_false(given_up.is_over);
}

/* ---- joining ---- */

/* A wrong code is tried once, not until the right one is void. */
static void test_wrong_code(void **state)
{
    char code[16], line[128], wrong[16];
    start_cluster(1);
    invite(0, code);
    strcpy(wrong, code);
    wrong[0] = wrong[0] == '1' ? '2' : '1';
    start(1, &(struct daemon_options){.peers = {address_of(0)}, .n_peers = 1, .join_code = wrong});
    for (int i = 0; i < 1000 && !strstr(w->nodes[1].said, "--join: "); i++)
        daemon_world_pass(w, 10);
    assert_non_null(strstr(w->nodes[1].said, "--join: "));
    for (int i = 0; i < 1000 && !strstr(ask(w, 0, "{\"do\":\"nodes\"}"), "waiting"); i++)
        daemon_world_pass(w, 10); /* by hand, from now on */
    snprintf(line, sizeof line, "{\"do\":\"join\",\"code\":\"%s\",\"host\":\"%s\"}", code,
             address_of(0));
    const char *answer = ask(w, 1, line);
    if (!strstr(answer, "\"joined\":{"))
        fail_msg("%s", answer);
    await_nodes(0, 2);
    await_nodes(1, 2);
}

static void test_by_hand(void **state)
{
    start_cluster(1);
    start(1, &(struct daemon_options){.peers = {address_of(0)}, .n_peers = 1});
    for (int i = 0; i < 500 && !strstr(ask(w, 0, "{\"do\":\"nodes\"}"), "waiting"); i++)
        daemon_world_pass(w, 20);
    struct talk *member = talk_open(w, 0), *stranger = talk_open(w, 1);
    talk_say(w, member, "{\"do\":\"admit\",\"node\":\"node1\"}\n", 30);
    talk_say(w, stranger, "{\"do\":\"join\"}\n", 14);
    assert_true(talk_await(w, member, "\"words\":", 5000) &&
                talk_await(w, stranger, "\"words\":", 5000));
    char one[64], other[64];
    assert_int_equal(sscanf(strstr(member->text, "\"words\":"), "\"words\":\"%63[^\"]", one), 1);
    assert_int_equal(sscanf(strstr(stranger->text, "\"words\":"), "\"words\":\"%63[^\"]", other),
                     1);
    assert_string_equal(one, other);
    talk_say(w, member, "{\"agree\":true}\n", 15);
    talk_say(w, stranger, "{\"agree\":true}\n{\"agree\":false}\n", 31);
    assert_true(talk_await(w, stranger, "\"joined\":{", 10000));
    assert_true(talk_await(w, member, "\"admitted\":\"node1\"", 10000));
    talk_close(member);
    talk_close(stranger);
    await_nodes(0, 2);
    await_nodes(1, 2);
}

/* It has joined, and cannot listen: it says so, and is a member when it starts again. */
static void test_cannot_listen(void **state)
{
    char code[16];
    start_cluster(1);
    invite(0, code);
    const struct daemon_options options = {.peers = {address_of(0)},
                                           .n_peers = 1,
                                           .join_code = code,
                                           .port = w->nodes[0].daemon->port};
    start(1, &options);
    for (int i = 0; i < 2000 && !w->nodes[1].is_over; i++)
        daemon_world_pass(w, 5);
    assert_true(w->nodes[1].has_failed);
    assert_non_null(strstr(w->nodes[1].why.text, "--listen"));
    daemon_world_stop(w, 1);
    start(1, &(struct daemon_options){.peers = {address_of(0)}, .n_peers = 1});
    await_nodes(0, 2);
    await_nodes(1, 2);
}

/* ---- stopping, whatever is under way ---- */

static void test_stop_joining(void **state)
{
    for (uint32_t ms = 0; ms < 360; ms += 120) {
        char code[16];
        if (!w->nodes[0].daemon)
            start_cluster(1);
        invite(0, code);
        start(1,
              &(struct daemon_options){.peers = {address_of(0)}, .n_peers = 1, .join_code = code});
        daemon_world_pass(w, 450 + ms);
        daemon_world_stop(w, ms % 240 ? 0 : 1); /* the one that lets in, or the one that comes in */
        if (w->nodes[1].daemon)
            daemon_world_stop(w, 1);
        else
            daemon_world_pass(w, 50);
        char line[128];
        snprintf(line, sizeof line, "rm -rf %s/1", w->folder);
        assert_int_equal(system(line), 0);
        if (w->nodes[0].daemon)
            daemon_world_stop(w, 0);
        snprintf(line, sizeof line, "rm -rf %s/0", w->folder);
        assert_int_equal(system(line), 0);
    }
}

static void test_stop_loading(void **state)
{
    start_cluster(2);
    for (uint32_t ms = 0; ms < 400; ms += 200) {
        struct talk *talk = begin_place(1, 0);
        daemon_world_pass(w, ms);
        daemon_world_stop(w, 1);
        talk_close(talk);
        start(1, &(struct daemon_options){0});
        await_nodes(0, 2);
        await_nodes(1, 2);
    }
}

static void test_stop_generating(void **state)
{
    start_cluster(2);
    place(0, 0);
    for (int i = 0; i < 2; i++) {
        struct generation mine = {.talk = begin_generate(0, 200), .least = 3},
                          theirs = {.talk = begin_generate(1, 200), .least = 3};
        assert_true(daemon_world_run(w, has_tokens, &mine, 20000));
        assert_true(daemon_world_run(w, has_tokens, &theirs, 20000));
        if (i == 1)
            shutdown(theirs.talk->fd, 2);
        daemon_world_stop(w, i & 1);
        daemon_world_pass(w, 200);
        talk_close(mine.talk);
        talk_close(theirs.talk);
        start(i & 1, &(struct daemon_options){0});
        await_nodes(0, 2);
        await_nodes(1, 2);
        daemon_world_pass(w, 500);
    }
}

/* ---- the last minute of a device ---- */

struct minute {
    uint32_t n_told;
    struct error why;
};

static void on_minute(void *arg, const char *text, size_t size, const struct error *why)
{
    struct minute *minute = arg;
    assert_non_null(why); /* no sensors here */
    assert_null(text);
    minute->n_told++;
    minute->why = *why;
}

static bool is_told(void *arg)
{
    return ((struct minute *)arg)->n_told > 0;
}

/* Asked again where a link has broken: two that meet become one. */
static void expect_minute(const char *node, const char *device, enum error_code code,
                          const char *words)
{
    struct minute minute;
    for (int i = 0; i < 5; i++) {
        minute = (struct minute){0};
        history_ask(w->nodes[0].daemon, node, device, on_minute, &minute);
        assert_true(daemon_world_run(w, is_told, &minute, 10000));
        assert_int_equal(minute.n_told, 1);
        if (minute.why.code == code && strstr(minute.why.text, words))
            return;
        if (minute.why.code != ERROR_IO)
            break;
        daemon_world_pass(w, 500);
    }
    fail_msg("'%s' is not in: %s", words, minute.why.text);
}

/* The cluster has heard of its device. */
static bool has_device(void *arg)
{
    const Cluster__NodeRecord *record = state_node(daemon_state(w->nodes[0].daemon), arg);
    return record && state_device(record, "sim:chip");
}

/* Whoever asks is told why there is none, once; or nothing, if he no longer waits. */
static void test_minutes_of_devices(void **state)
{
    struct minute many = {0}, last = {0}, broken = {0};
    start_cluster(2);
    struct daemon *daemon = w->nodes[0].daemon;
    char other[NODE_ID_TEXT]; /* of a daemon that is freed before the end */
    memcpy(other, w->nodes[1].daemon->id, sizeof other);
    assert_true(daemon_world_run(w, has_device, other, 20000));
    expect_minute("no id", "sim:chip", ERROR_NOT_FOUND, "no node of that id");
    expect_minute(daemon->id, "sim:chip", ERROR_NOT_FOUND, "has no such device");
    expect_minute(other, "none", ERROR_NOT_FOUND, "node1 has no such device");
    expect_minute(other, "sim:chip", ERROR_NOT_FOUND, "that machine has no such device");

    for (int i = 0; i < HISTORY_ASKED_MAX; i++)
        history_ask(daemon, other, "sim:chip", on_minute, &many);
    history_ask(daemon, other, "sim:chip", on_minute, &last);
    assert_int_equal(last.why.code, ERROR_BUSY);
    assert_int_equal(last.n_told, 1);
    history_cancel(daemon, &many);
    daemon_world_pass(w, 200);
    assert_int_equal(many.n_told, 0);

    history_ask(daemon, other, "sim:chip", on_minute, &broken);
    link_abort(daemon_peer(daemon, other)->link, &(struct error){ERROR_IO, "a test"});
    assert_true(daemon_world_run(w, is_told, &broken, 5000));
    assert_string_equal(broken.why.text, "the link to the machine broke");
    daemon_world_stop(w, 1);
    expect_minute(other, "sim:chip", ERROR_IO, "node1 cannot be reached");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_context_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_open_early, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_code, setup, teardown),
        cmocka_unit_test_setup_teardown(test_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cannot_listen, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_joining, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_loading, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stop_generating, setup, teardown),
        cmocka_unit_test_setup_teardown(test_minutes_of_devices, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
