/* `medley run` and `medley plan` where a node runs on this machine: through it, and past it where
 * the user says so. The node answers from a table, and speaks request/request_wire.h. */
#include "base/bytes.h"
#include "fake_node.h"
#include "request/request_wire.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static char out[1 << 20];

static int medley(const char *words)
{
    char line[4096];
    snprintf(line, sizeof line, "cd \"$MEDLEY_GOLDEN/models\" && \"$MEDLEY_BINARY\" %s", words);
    FILE *pipe = popen(line, "r");
    assert_non_null(pipe);
    out[fread(out, 1, sizeof out - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(int status, const char *words, const char *part)
{
    char line[3800];
    snprintf(line, sizeof line, "%s 2>&1", words);
    const int ended = medley(line);
    if (ended != status || !strstr(out, part))
        fail_msg("medley %s: status %d, not %d; or no '%s' in\n%s", words, ended, status, part,
                 out);
}

/* ---- the node's end of {"do": "generate"} ---------------------------------------------------- */

enum { TOKENS = 5 };
static int32_t tokens[TOKENS]; /* what a driver of this process generates after "hello" */
static int32_t prompt[64];     /* and its prompt */
static uint32_t n_prompt;
static unsigned n_submits, n_cancels, n_wrong; /* what the node heard */

static bool read_all(int fd, void *bytes, size_t size)
{
    return !size || recv(fd, bytes, size, MSG_WAITALL) == (ssize_t)size;
}

/* The next message; false: the command has hung up. */
static bool hear(int fd, struct buffer *memory, struct request_message *message)
{
    unsigned char length[REQUEST_LENGTH_BYTES];
    struct error err;
    buffer_clear(memory);
    if (!read_all(fd, length, sizeof length))
        return false;
    const size_t size = bytes_load(length, sizeof length);
    if (!read_all(fd, buffer_extend(memory, size), size) ||
        request_read(memory->data, size, message, &err))
        return false;
    n_submits += message->kind == REQUEST_SUBMIT;
    n_cancels += message->kind == REQUEST_CANCEL;
    return true;
}

static void say(int fd, struct buffer *run)
{
    send(fd, run->data, run->size, MSG_NOSIGNAL);
    buffer_deinit(run);
}

static void say_tokens(int fd, uint64_t id, uint32_t n)
{
    struct buffer run = {0};
    size_t last = SIZE_MAX;
    for (uint32_t i = 0; i < n; i++)
        request_write_token(id, &(struct token_event){.token = tokens[i % TOKENS], .index = i},
                            &last, &run);
    say(fd, &run);
}

static void say_done(int fd, uint64_t id, enum finish_reason reason, const struct error *why)
{
    struct buffer run = {0};
    const struct request_usage usage = {n_prompt, 1, TOKENS, 1000000, 2000000, 40000000};
    request_write_done(id, reason, &usage, why, false, &run);
    say(fd, &run);
}

static bool is_as_asked(const struct request_message *message)
{
    const struct request *request = &message->submit.request;
    return strcmp(message->submit.instance, "llama-1") == 0 && request->n_predict == TOKENS &&
           request->n_prompt == n_prompt &&
           memcmp(request->prompt, prompt, n_prompt * sizeof *prompt) == 0 &&
           request->sampler.temperature <= 0 && request->n_stop_tokens >= 1;
}

/* Answers as it should, with a message of a newer node and one for another request between. */
static void talk_well(int fd)
{
    struct buffer memory = {0}, run = {0};
    struct request_message message;
    while (hear(fd, &memory, &message)) {
        if (message.kind == REQUEST_SUBMIT) {
            n_wrong += !is_as_asked(&message);
            request_write_accepted(message.id, &run);
            bytes_put(&run, 9, REQUEST_LENGTH_BYTES);
            bytes_put(&run, 200, 1);
            bytes_put(&run, message.id, 8);
            say(fd, &run);
            say_tokens(fd, message.id + 7, 3);
            say_tokens(fd, message.id, 2);
            struct token_event rest = {.index = 2};
            for (size_t last = SIZE_MAX; rest.index < TOKENS; rest.index++) {
                rest.token = tokens[rest.index];
                request_write_token(message.id, &rest, &last, &run);
            }
            say(fd, &run);
            say_done(fd, message.id, FINISH_LENGTH, NULL);
        }
        request_message_deinit(&message);
    }
    buffer_deinit(&memory);
}

/* The first time it goes after two tokens; then it must be given these, too, and says the rest. */
static void talk_comes_back(int fd)
{
    struct buffer memory = {0}, run = {0};
    struct request_message message;
    while (hear(fd, &memory, &message)) {
        const uint64_t id = message.id;
        const struct request *request = &message.submit.request;
        const bool is_back = n_submits > 1;
        n_wrong +=
            is_back && (request->n_prompt != n_prompt + 2 || request->n_predict != TOKENS - 2 ||
                        memcmp(request->prompt + n_prompt, tokens, 2 * sizeof *tokens) != 0);
        request_message_deinit(&message);
        if (!is_back) {
            say_tokens(fd, id, 2);
            break;
        }
        struct token_event rest = {.index = 0};
        for (size_t last = SIZE_MAX; rest.index < TOKENS - 2; rest.index++) {
            rest.token = tokens[rest.index + 2];
            request_write_token(id, &rest, &last, &run);
        }
        say(fd, &run);
        say_done(fd, id, FINISH_LENGTH, NULL);
    }
    buffer_deinit(&memory);
}

static void talk_once(int fd, void (*reply)(int fd, uint64_t id))
{
    struct buffer memory = {0};
    struct request_message message;
    if (hear(fd, &memory, &message)) {
        const uint64_t id = message.id;
        request_message_deinit(&message);
        reply(fd, id);
    }
    buffer_deinit(&memory);
}

#define TALK(name, ...)                                                                            \
    static void reply_##name(int fd, uint64_t id)                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }                                                                                              \
    static void talk_##name(int fd)                                                                \
    {                                                                                              \
        talk_once(fd, reply_##name);                                                               \
    }

TALK(refusal, {
    struct buffer run = {0};
    request_write_refused(id, &(struct error){ERROR_INVALID, "the prompt has a \x1b[2J in it"},
                          &run);
    say(fd, &run);
    recv(fd, &id, 1, 0);
})
TALK(failure, {
    say_tokens(fd, id, 2);
    say_done(fd, id, FINISH_ERROR, &(struct error){ERROR_DEVICE, "tower burns"});
})
TALK(hang_up, { say_tokens(fd, id, 1); })
TALK(half_a_message, {
    (void)id;
    send(fd, "\x20\0\0\0\4", 5, MSG_NOSIGNAL);
})
TALK(garbage, {
    (void)id;
    send(fd, "\x05\0\0\0hello", 9, MSG_NOSIGNAL);
    recv(fd, &id, 1, 0);
})
TALK(endless_message, {
    (void)id;
    send(fd, "\xff\xff\xff\xffhello", 9, MSG_NOSIGNAL);
    recv(fd, &id, 1, 0);
})
TALK(too_many_tokens, {
    say_tokens(fd, id, 65);
    recv(fd, &id, 1, 0);
})

/* Ctrl-C for whoever is at the other end, when it has a token; then its CANCEL. */
TALK(interrupt, {
    struct ucred peer;
    socklen_t size = sizeof peer;
    struct buffer memory = {0};
    struct request_message message;
    say_tokens(fd, id, 2);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    kill(peer.pid, SIGINT);
    while (hear(fd, &memory,
                &message)) /* the rest of a message may come; the command must end by itself */
        say_tokens(fd, id, 1);
    buffer_deinit(&memory);
})

#define PLACED                                                                                     \
    {"place", {"{\"state\":\"placing\"}\n{\"ready\":{\"instance\":\"llama-1\",\"stages\":[]}}\n"}}
#define GENERATES(talk)                                                                            \
    {"generate",                                                                                   \
     {"{\"context\":64,\"instance\":\"llama-1\",\"stages\":[{\"node\":\"tower\",\"device\":"       \
      "\"cuda0\","                                                                                 \
      "\"first_layer\":0,\"n_layers\":2,\"state\":\"ready\",\"problem\":null}]}\n"},               \
     talk}
#define ANSWERS(...)                                                                               \
    static const struct fake_answer answers[] = {__VA_ARGS__};                                     \
    n_submits = n_cancels = n_wrong = 0;                                                           \
    fake_node_answers(answers, sizeof answers / sizeof *answers)

#define HELLO "run llama.gguf --raw -p hello -n 5 --temp 0 "

/* ---- run ------------------------------------------------------------------------------------- */

static void test_run_through_the_node(void **state)
{
    (void)state;
    ANSWERS(PLACED, GENERATES(talk_well));
    assert_int_equal(medley(HELLO "--here -t 1 2>/dev/null"), 0);
    char *own = strdup(out);
    assert_string_equal(fake_node_heard(), "");
    assert_int_equal(medley(HELLO "-c 64 2>/dev/null"), 0);
    assert_string_equal(out, own);
    free(own);
    assert_int_equal(n_submits, 1);
    assert_int_equal(n_wrong, 0);
    char path[PATH_MAX], wanted[PATH_MAX + 256];
    snprintf(wanted, sizeof wanted, "%s/models/llama.gguf", getenv("MEDLEY_GOLDEN"));
    assert_non_null(realpath(wanted, path));
    snprintf(wanted, sizeof wanted,
             "{\"do\":\"place\",\"model\":\"%s\",\"context\":64,\"streams\":null,\"cells\":null,"
             "\"goal\":null,\"kv\":null,\"speculate\":null,\"draft\":null,\"draft_device\":null,"
             "\"precision\":null,"
             "\"allow_precision\":null,"
             "\"idle_s\":null,\"weights_memory\":null,\"score_weights\":null,"
             "\"time_limit_s\":null}\n"
             "{\"do\":\"generate\",\"model\":\"%s\"}\n",
             path, path);
    assert_string_equal(fake_node_heard(), wanted);
    expect(0, HELLO,
           "prompt 6 tokens (1 cached) 2500.0 tok/s, answer 5 tokens 100.0 tok/s; tower cuda0 "
           "layers 0-1\n");
}

static void test_run_goes_on_when_the_node_is_back(void **state)
{
    (void)state;
    ANSWERS(PLACED, GENERATES(talk_comes_back));
    assert_int_equal(medley(HELLO "--here -t 1 2>/dev/null"), 0);
    char *own = strdup(out);
    assert_int_equal(medley(HELLO "2>/dev/null"), 0);
    assert_string_equal(out, own);
    free(own);
    assert_int_equal(n_submits, 2);
    assert_int_equal(n_wrong, 0);
    n_submits = 0;
    expect(0, HELLO,
           "closed the connection in the middle of the answer, which goes on when it is back");
}

static void test_run_json(void **state)
{
    (void)state;
    ANSWERS(PLACED, GENERATES(talk_well));
    assert_int_equal(medley(HELLO "--json 2>/dev/null"), 0);
    yyjson_doc *doc = yyjson_read(out, strlen(out), 0);
    yyjson_val *root = yyjson_doc_get_root(doc),
               *stage = yyjson_arr_get_first(yyjson_obj_get(root, "stages"));
    assert_int_equal(yyjson_arr_size(yyjson_obj_get(root, "tokens")), TOKENS);
    assert_string_equal(yyjson_get_str(yyjson_obj_get(root, "finish_reason")), "length");
    assert_int_equal(yyjson_get_uint(yyjson_obj_get(root, "decode_ns")), 40000000);
    assert_true(yyjson_is_null(yyjson_obj_get(root, "forecast_decode_tokens_per_s")));
    assert_string_equal(yyjson_get_str(yyjson_obj_get(stage, "node")), "tower");
    yyjson_doc_free(doc);
}

static void test_conversation(void **state)
{
    (void)state;
    ANSWERS(PLACED, GENERATES(talk_well));
    assert_int_equal(medley("run llama.gguf -n 5 --temp 0 2>&1 <<E\nhello\nagain\n/exit\nE"), 0);
    assert_non_null(strstr(out, "tower cuda0"));
    assert_int_equal(n_submits, 2);
}

static void test_flags_that_say_where(void **state)
{
    (void)state;
    ANSWERS(PLACED, GENERATES(talk_well));
    static const char *const flags[] = {"--devices cpu", "-t 1",      "--kv f16", "--flash auto",
                                        "--slots 1",     "--batch 8", "--here"};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        char line[256];
        snprintf(line, sizeof line, HELLO "%s", flags[i]);
        expect(0, line, "cpu 2 layers");
    }
    assert_string_equal(fake_node_heard(), "");
    fake_node_stop();
    expect(0, HELLO, "cpu 2 layers"); /* a node that is not there any more */
}

static void test_run_ends_with_the_nodes_error(void **state)
{
    (void)state;
    static const struct {
        void (*talk)(int fd);
        int status;
        const char *says;
    } cases[] = {
        {talk_refusal, 2, "the prompt has a "},
        {talk_failure, 1, "tower burns"},
        {talk_hang_up, 1, "the node on this machine closed the connection"},
        {talk_half_a_message, 1, "the node on this machine closed the connection"},
        {talk_endless_message, 1, "a message from the node is longer than the limit"},
        {talk_garbage, 1, "a message from the node is malformed"},
        {talk_too_many_tokens, 1, "more tokens than were asked for"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct fake_answer answers[] = {PLACED, GENERATES(cases[i].talk)};
        fake_node_answers(answers, 2);
        expect(cases[i].status, HELLO, cases[i].says);
        fake_node_stop();
    }
}

static void test_interrupted(void **state)
{
    (void)state;
    ANSWERS(PLACED, GENERATES(talk_interrupt));
    assert_int_equal(medley(HELLO "--json"), 0);
    assert_non_null(strstr(out, "\"finish_reason\":\"cancelled\""));
    fake_node_stop();
    assert_int_equal(n_cancels, 1);
}

static void test_run_where_the_cluster_cannot(void **state)
{
    (void)state;
    ANSWERS({"place",
             {"{\"state\":\"placing\"}\n",
              "{\"error\":{\"code\":\"no_memory\",\"text\":\"it fits nowhere\"}}\n"}});
    expect(1, HELLO, "it fits nowhere");
    static const struct fake_answer wrong[] = {
        PLACED,
        {"generate", {"{\"context\":4294967295,\"instance\":\"x\",\"stages\":[]}\n"}, NULL}};
    fake_node_answers(wrong, 2);
    expect(1, HELLO, "exceeds a limit");
    expect(1, "run nothing.gguf -p x", "nothing.gguf");
}

/* ---- plan ------------------------------------------------------------------------------------ */

static char cluster[64 * 1024]; /* an example's file, in one line */

static void test_plan_for_the_nodes_cluster(void **state)
{
    (void)state;
    const struct fake_answer answers[] = {{"cluster", {cluster}, NULL}};
    char line[512], *by_file;
    fake_node_answers(answers, 1);
    snprintf(line, sizeof line,
             "plan llama.gguf --cluster \"$MEDLEY_ROOT/examples/two-machines.json\" --json | "
             "grep -v '_s\"'"); /* without times, which are never the same */
    assert_int_equal(medley(line), 0);
    by_file = strdup(out);
    assert_string_equal(fake_node_heard(), "");
    assert_int_equal(medley("plan llama.gguf --json | grep -v '_s\"'"), 0);
    assert_string_equal(out, by_file);
    assert_string_equal(fake_node_heard(), "{\"do\":\"cluster\"}\n");
    free(by_file);
    expect(0, "plan llama.gguf --here", "stage 0  cpu");
    expect(2, "plan llama.gguf --here --cluster x", "--cluster and --here exclude each other");
    assert_string_equal(fake_node_heard(), "{\"do\":\"cluster\"}\n");
    fake_node_stop();
    expect(0, "plan llama.gguf", "stage 0  cpu");
}

static void test_plan_where_the_node_fails(void **state)
{
    (void)state;
    ANSWERS({"cluster", {"{\"nodes\":[]}\n"}});
    expect(1, "plan llama.gguf",
           "the cluster (--here plans for this machine alone): no node has a device");
    static const struct fake_answer waits[] = {
        {"cluster",
         {"{\"error\":{\"code\":\"not_found\",\"text\":\"in no cluster yet\"}}\n"},
         NULL}};
    fake_node_answers(waits, 1);
    expect(1, "plan llama.gguf", "this machine alone): in no cluster yet");
}

/* ---- what is to be answered ------------------------------------------------------------------ */

static void take_ids(yyjson_val *list, int32_t *ids, uint32_t most, uint32_t *n)
{
    yyjson_val *id;
    size_t i, size;
    yyjson_arr_foreach(list, i, size, id)
    {
        assert_true(i < most);
        ids[i] = (int32_t)yyjson_get_int(id);
    }
    *n = (uint32_t)size;
}

static int set_up(void **state)
{
    (void)state;
    fake_node_begin();
    if (medley(HELLO "--devices cpu -t 1 --json 2>/dev/null"))
        return -1;
    uint32_t n_tokens;
    yyjson_doc *doc = yyjson_read(out, strlen(out), 0);
    take_ids(yyjson_obj_get(yyjson_doc_get_root(doc), "prompt_tokens"), prompt, 64, &n_prompt);
    take_ids(yyjson_obj_get(yyjson_doc_get_root(doc), "tokens"), tokens, TOKENS, &n_tokens);
    yyjson_doc_free(doc);
    char path[1024];
    snprintf(path, sizeof path, "%s/examples/two-machines.json", getenv("MEDLEY_ROOT"));
    doc = yyjson_read_file(path, 0, NULL, NULL);
    char *line = yyjson_write(doc, YYJSON_WRITE_NEWLINE_AT_END, NULL);
    snprintf(cluster, sizeof cluster, "%s", line ? line : "");
    free(line);
    yyjson_doc_free(doc);
    return n_tokens == TOKENS && cluster[0] ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fake_node_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_through_the_node),
        cmocka_unit_test(test_run_goes_on_when_the_node_is_back),
        cmocka_unit_test(test_run_json),
        cmocka_unit_test(test_conversation),
        cmocka_unit_test(test_flags_that_say_where),
        cmocka_unit_test(test_run_ends_with_the_nodes_error),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_run_where_the_cluster_cannot),
        cmocka_unit_test(test_plan_for_the_nodes_cluster),
        cmocka_unit_test(test_plan_where_the_node_fails),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
