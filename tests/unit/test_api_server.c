/* The API server over real sockets, with a fake driver that writes the prompt again. */
#include "api_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static const struct fake_driver_options usual = {
    .n_slots = 4, .queue_max = 8, .context = 64, .token_us = 1000};

static int start(void **state)
{
    (void)state;
    api_world_start(usual);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    api_world_stop();
    return 0;
}

static void expect_error(const char *path, const char *json, int status, const char *code,
                         const char *param)
{
    struct api_reply reply = api_once(path, json);
    assert_int_equal(reply.status, status);
    assert_string_equal(api_json_at(&reply.body, "/error/code"), code);
    assert_string_equal(api_json_at(&reply.body, "/error/param"), param);
    api_reply_clear(&reply);
}

static void test_plain_completion(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":\"h\xc3\xa9llo\"}");
    assert_int_equal(reply.status, 200);
    assert_string_equal(api_json_at(&reply.body, "/object"), "text_completion");
    assert_string_equal(api_json_at(&reply.body, "/model"), "fake-model");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/text"), "h\xc3\xa9llo");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/finish_reason"), "stop");
    assert_string_equal(api_json_at(&reply.body, "/usage/prompt_tokens"), "7");
    assert_string_equal(api_json_at(&reply.body, "/usage/completion_tokens"), "6");
    assert_string_equal(api_json_at(&reply.body, "/usage/total_tokens"), "13");
    assert_string_equal(api_json_at(&reply.body, "/usage/prompt_tokens_details/cached_tokens"),
                        "1");
    api_reply_clear(&reply);
}

static void test_chat_with_everything(void **state)
{
    (void)state;
    struct api_reply reply = api_once(
        "/v1/chat/completions", CHAT("ab.cd", ",\"n\":2,\"stop\":[\".\",\"zz\"],\"logprobs\":true,"
                                              "\"top_logprobs\":2"));
    assert_int_equal(reply.status, 200);
    assert_string_equal(api_json_at(&reply.body, "/object"), "chat.completion");
    assert_string_equal(api_json_at(&reply.body, "/choices/1/index"), "1");
    assert_string_equal(api_json_at(&reply.body, "/choices/1/message/role"), "assistant");
    assert_string_equal(api_json_at(&reply.body, "/choices/1/message/content"), "ab");
    assert_string_equal(api_json_at(&reply.body, "/choices/1/finish_reason"), "stop");
    /* the token of the stop string is not shown, its rivals neither */
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/content/1/token"), "b");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/content/1/bytes"), "[98]");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/content/1/logprob"), "-0.25");
    assert_string_equal(
        api_json_at(&reply.body, "/choices/0/logprobs/content/1/top_logprobs/1/token"), "x");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/content/1/top_logprobs/2"),
                        "(none)");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/content/2"), "(none)");
    assert_string_equal(api_json_at(&reply.body, "/usage/prompt_tokens"),
                        "6"); /* once, not for each choice */
    assert_string_equal(api_json_at(&reply.body, "/usage/completion_tokens"), "6");
    api_reply_clear(&reply);
}

static void test_length_and_echo_and_many_prompts(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":[\"abc\",[100,101,102]],\"max_"
                                    "tokens\":2,\"echo\":true,\"n\":2}");
    assert_int_equal(reply.status, 200);
    assert_string_equal(api_json_at(&reply.body, "/choices/1/text"), "abcab");
    assert_string_equal(api_json_at(&reply.body, "/choices/2/text"), "defde");
    assert_string_equal(api_json_at(&reply.body, "/choices/3/finish_reason"), "length");
    assert_string_equal(api_json_at(&reply.body, "/usage/prompt_tokens"), "7");
    api_reply_clear(&reply);
    reply = api_once("/v1/completions",
                     "{\"model\":\"fake\",\"prompt\":\"abc\",\"max_tokens\":2,\"logprobs\":1}");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/tokens"), "[\"a\",\"b\"]");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/text_offset"), "[0,1]");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/top_logprobs/1"),
                        "{\"b\":-0.25}");
    api_reply_clear(&reply);
}

static void test_echo_scores_the_prompt(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":[97,98,100],\"max_tokens\":1,"
                                    "\"echo\":true,\"logprobs\":1}");
    assert_int_equal(reply.status, 200);
    assert_string_equal(api_json_at(&reply.body, "/choices/0/text"), "abda");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/tokens"),
                        "[\"a\",\"b\",\"d\",\"a\"]");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/text_offset"), "[0,1,2,3]");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/token_logprobs"),
                        "[null,0,-1000,-0.25]");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/top_logprobs"),
                        "[null,{\"b\":0},{\"c\":0,\"d\":-1000},{\"a\":-0.25}]");
    api_reply_clear(&reply);
    reply = api_once(
        "/v1/completions",
        "{\"model\":\"fake\",\"prompt\":\"ab\",\"max_tokens\":0,\"echo\":true,\"logprobs\":0}");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/text"), "ab");
    assert_string_equal(api_json_at(&reply.body, "/choices/0/logprobs/tokens"),
                        "[\"<s>\",\"a\",\"b\"]");
    assert_string_equal(api_json_at(&reply.body, "/usage/completion_tokens"), "0");
    api_reply_clear(&reply);
}

/* The events of a stream put together: all must be JSON but the last. */
struct stream {
    char text[1024];
    char roles[64], reasons[64], usage[64];
    unsigned n_events, n_logprobs;
    bool done;
};

static void take_event(struct stream *stream, const char *data, size_t size)
{
    yyjson_doc *doc = yyjson_read(data, size, 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc), *choice = yyjson_ptr_get(root, "/choices/0");
    yyjson_val *text = yyjson_ptr_get(choice, "/delta/content"),
               *role = yyjson_ptr_get(choice, "/delta/role");
    yyjson_val *reason = yyjson_ptr_get(choice, "/finish_reason"),
               *n = yyjson_ptr_get(root, "/usage/total_tokens");
    text = text ? text : yyjson_ptr_get(choice, "/text");
    strcat(stream->text, text ? yyjson_get_str(text) : "");
    strcat(stream->roles, role ? yyjson_get_str(role) : "");
    strcat(stream->reasons, yyjson_is_str(reason) ? yyjson_get_str(reason) : "");
    if (n)
        snprintf(stream->usage, sizeof stream->usage, "%d", yyjson_get_int(n));
    stream->n_logprobs += (unsigned)yyjson_arr_size(yyjson_ptr_get(choice, "/logprobs/content"));
    stream->n_events++;
    yyjson_doc_free(doc);
}

static struct stream read_stream(const struct buffer *body)
{
    struct stream stream = {0};
    const char *from = body->data, *end;
    while (from && (end = strstr(from, "\n\n"))) {
        assert_false(stream.done);
        from = strncmp(from, "id: ", 4) == 0 ? strchr(from, '\n') + 1 : from;
        assert_memory_equal(from, "data: ", 6);
        if (strncmp(from + 6, "[DONE]", 6) == 0)
            stream.done = true;
        else
            take_event(&stream, from + 6, (size_t)(end - from - 6));
        from = end + 2;
    }
    assert_true(from && !*from);
    return stream;
}

static void test_stream(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/chat/completions", CHAT("\xf0\x9f\x98\x80 ab\xe2\x82\xac.x",
                                              ",\"stream\":true,\"stream_options\":{\"include_"
                                              "usage\":true},\"stop\":\".\",\"logprobs\":true"));
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.head.data, "text/event-stream"));
    struct stream stream = read_stream(&reply.body);
    assert_true(stream.done);
    assert_string_equal(stream.roles, "assistant");
    assert_string_equal(stream.text, "\xf0\x9f\x98\x80 ab\xe2\x82\xac");
    assert_string_equal(stream.reasons, "stop");
    assert_string_equal(stream.usage,
                        "24"); /* 13 of the prompt, 10 of the text, and the stop string's */
    assert_int_equal(stream.n_logprobs, 10);
    api_reply_clear(&reply);
    reply = api_once("/v1/completions",
                     "{\"model\":\"fake\",\"prompt\":\"abc\",\"stream\":true,\"echo\":true}");
    stream = read_stream(&reply.body);
    assert_true(stream.done);
    assert_string_equal(stream.text, "abcabc");
    api_reply_clear(&reply);
}

static void test_other_routes(void **state)
{
    (void)state;
    struct api_reply reply = api_once("/v1/models", NULL);
    assert_string_equal(api_json_at(&reply.body, "/data/0/id"), "fake-model");
    api_reply_clear(&reply);
    reply = api_once("/v1/models/fake-model", NULL);
    assert_string_equal(api_json_at(&reply.body, "/object"), "model");
    api_reply_clear(&reply);
    reply = api_once("/tokenize", "{\"content\":\"a\xc3\xa9\",\"add_special\":true}");
    assert_string_equal(api_json_at(&reply.body, "/tokens"), "[257,97,195,169]");
    api_reply_clear(&reply);
    reply = api_once("/detokenize", "{\"tokens\":[97,195,169,255]}");
    assert_string_equal(api_json_at(&reply.body, "/content"), "a\xc3\xa9\xef\xbf\xbd");
    api_reply_clear(&reply);
    reply = api_once("/metrics", NULL);
    assert_non_null(strstr(reply.body.data, "\nmedley_slots{model=\"fake-model\"} 4\n"));
    assert_non_null(strstr(reply.body.data, "route=\"/v1/models\",status=\"200\"} "));
    api_reply_clear(&reply);
}

/* Rows are (token, 1, 0, -1): tokens 257 and 2 add up to (259, 2, 0, -2). */
static void test_embeddings(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/embeddings", "{\"model\":\"fake\",\"input\":[[257,2],[1]]}");
    assert_int_equal(reply.status, 200);
    float v[4];
    assert_int_equal(sscanf(api_json_at(&reply.body, "/data/0/embedding"), "[%f,%f,%f,%f]", &v[0],
                            &v[1], &v[2], &v[3]),
                     4);
    assert_true(v[0] > 0.9999f && v[0] < 1 && v[2] == 0 && v[1] == -v[3]);
    float norm = v[0] * v[0] + v[1] * v[1] + v[3] * v[3];
    assert_true(norm > 0.999999f && norm < 1.000001f);
    assert_string_equal(api_json_at(&reply.body, "/usage/prompt_tokens"), "3");
    api_reply_clear(&reply);
    reply = api_once("/v1/embeddings",
                     "{\"model\":\"fake\",\"input\":\"a\",\"encoding_format\":\"base64\"}");
    assert_int_equal(strlen(api_json_at(&reply.body, "/data/0/embedding")), 24); /* 16 bytes */
    api_reply_clear(&reply);
}

static void test_errors(void **state)
{
    (void)state;
    expect_error("/v1/chat/completions", CHAT("a", ",\"colour\":1"), 400, "null", "colour");
    expect_error("/v1/chat/completions", CHAT("refuse", ""), 400, "null", "messages");
    expect_error("/v1/completions", "{\"model\":\"other\",\"prompt\":\"a\"}", 404,
                 "model_not_found", "model");
    expect_error("/v1/completions", "{\"model\":", 400, "invalid_json", "null");
    expect_error("/v1/completions", "{\"model\":\"\xff\"}", 400, "invalid_json", "null");
    expect_error("/v1/completions",
                 "{\"model\":\"fake\",\"prompt\":\"a prompt that is longer than the sixty-four "
                 "tokens of the context\"}",
                 400, "context_length_exceeded", "null");
    expect_error("/v1/completions", NULL, 405, "method_not_allowed", "null");
    expect_error("/v1/nothing", "{}", 404, "unknown_url", "null");
    expect_error("/v1/models/other", NULL, 404, "model_not_found", "model");
}

static void test_many_at_once(void **state)
{
    (void)state;
    int fds[8];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            char json[128];
            fds[i] = api_connect();
            snprintf(json, sizeof json,
                     "{\"model\":\"fake\",\"prompt\":\"number %d of them\",\"max_tokens\":50%s}", i,
                     i % 2 ? ",\"stream\":true" : "");
            api_post(fds[i], "/v1/completions", json);
        }
        for (int i = 0; i < 8; i++) {
            char expected[64];
            snprintf(expected, sizeof expected, "number %d of them", i);
            struct api_reply reply = api_receive(fds[i]);
            assert_int_equal(reply.status, 200);
            if (i % 2)
                assert_string_equal(read_stream(&reply.body).text, expected);
            else
                assert_string_equal(api_json_at(&reply.body, "/choices/0/text"), expected);
            api_reply_clear(&reply);
            close(fds[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_completion),
        cmocka_unit_test(test_chat_with_everything),
        cmocka_unit_test(test_length_and_echo_and_many_prompts),
        cmocka_unit_test(test_echo_scores_the_prompt),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_other_routes),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_many_at_once),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
