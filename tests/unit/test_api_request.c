/* api: requests from JSON, field by field; addresses; JSON strings. */
#include "api/address.h"
#include "api/client.h"
#include "api/json_out.h"
#include "api/limits.h"
#include "api/request_json.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 1000 };

#define CHAT "\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TEXT "\"model\":\"m\",\"prompt\":\"hi\""

/* As a server with a model does it. */
static bool read_generation(enum generation_kind kind, const char *body, size_t size,
                            struct generation_request *out, struct api_error *err)
{
    if (!generation_request_parse(kind, body, size, out, err))
        return false;
    if (generation_request_check(out, VOCAB, err))
        return true;
    generation_request_deinit(out);
    return false;
}

/* ---- what is refused, and which field is named ---- */

struct refusal {
    enum generation_kind kind;
    const char *body;
    const char *param; /* NULL: null */
};

static const struct refusal refusals[] = {
    {GENERATION_CHAT, "", NULL},
    {GENERATION_CHAT, "{", NULL},
    {GENERATION_CHAT, "[]", NULL},
    {GENERATION_CHAT, "{\"model\":\"\xff\"}", NULL},
    {GENERATION_CHAT, "{\"model\":\"\\ud800\"}", NULL},
    {GENERATION_CHAT, "{}", "model"},
    {GENERATION_CHAT, "{\"model\":null}", "model"},
    {GENERATION_CHAT, "{\"model\":5}", "model"},
    {GENERATION_CHAT, "{\"model\":\"m\"}", "messages"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":\"hi\"}", "messages"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[]}", "messages"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[1]}", "messages[0]"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[{\"content\":\"a\"}]}", "messages[0].role"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\"}]}",
     "messages[0].content"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":null}]}",
     "messages[0].content"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"tool\",\"content\":\"a\"}]}",
     "messages[0].tool_call_id"},
    {GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":1,\"content\":\"a\"}]}",
     "messages[0].role"},
    {GENERATION_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\","
     "\"content\":[{\"type\":"
     "\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}",
     "messages[1].content[0].image_url.url"},
    {GENERATION_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":3}"
     "]}]}",
     "messages[0].content[0].text"},
    {GENERATION_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":"
     "\"a\",\"x\":1}]}]}",
     "messages[0].content[0].x"},
    {GENERATION_CHAT,
     "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"tool_calls\":[{}]}]}",
     "messages[0].tool_calls[0]"},
    {GENERATION_CHAT, "{" CHAT ",\"max_tokens\":0}", "max_tokens"},
    {GENERATION_CHAT, "{" CHAT ",\"max_tokens\":1.5}", "max_tokens"},
    {GENERATION_CHAT, "{" CHAT ",\"max_tokens\":-1}", "max_tokens"},
    {GENERATION_CHAT, "{" CHAT ",\"max_tokens\":\"5\"}", "max_tokens"},
    {GENERATION_CHAT, "{" CHAT ",\"max_tokens\":1e300}", "max_tokens"},
    {GENERATION_CHAT, "{" CHAT ",\"max_tokens\":5,\"max_completion_tokens\":6}",
     "max_completion_tokens"},
    {GENERATION_CHAT, "{" CHAT ",\"temperature\":-0.1}", "temperature"},
    {GENERATION_CHAT, "{" CHAT ",\"temperature\":2.1}", "temperature"},
    {GENERATION_CHAT, "{" CHAT ",\"temperature\":\"hot\"}", "temperature"},
    {GENERATION_CHAT, "{" CHAT ",\"top_p\":1.1}", "top_p"},
    {GENERATION_CHAT, "{" CHAT ",\"min_p\":-1}", "min_p"},
    {GENERATION_CHAT, "{" CHAT ",\"typical_p\":2}", "typical_p"},
    {GENERATION_CHAT, "{" CHAT ",\"repeat_penalty\":0}", "repeat_penalty"},
    {GENERATION_CHAT, "{" CHAT ",\"frequency_penalty\":3}", "frequency_penalty"},
    {GENERATION_CHAT, "{" CHAT ",\"presence_penalty\":-3}", "presence_penalty"},
    {GENERATION_CHAT, "{" CHAT ",\"top_k\":-1}", "top_k"},
    {GENERATION_CHAT, "{" CHAT ",\"n\":0}", "n"},
    {GENERATION_CHAT, "{" CHAT ",\"n\":17}", "n"},
    {GENERATION_CHAT, "{" CHAT ",\"stream\":\"yes\"}", "stream"},
    {GENERATION_CHAT, "{" CHAT ",\"stream_options\":true}", "stream_options"},
    {GENERATION_CHAT, "{" CHAT ",\"stream_options\":{\"include_usage\":true}}", "stream_options"},
    {GENERATION_CHAT, "{" CHAT ",\"stream\":true,\"stream_options\":{\"x\":1}}",
     "stream_options.x"},
    {GENERATION_CHAT, "{" CHAT ",\"stop\":5}", "stop"},
    {GENERATION_CHAT, "{" CHAT ",\"stop\":[5]}", "stop"},
    {GENERATION_CHAT, "{" CHAT ",\"stop\":\"\"}", "stop"},
    {GENERATION_CHAT,
     "{" CHAT ",\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\","
     "\"d\",\"e\",\"f\","
     "\"g\",\"h\"]}",
     "stop"},
    {GENERATION_CHAT, "{" CHAT ",\"seed\":1.5}", "seed"},
    {GENERATION_CHAT, "{" CHAT ",\"logprobs\":5}", "logprobs"},
    {GENERATION_CHAT, "{" CHAT ",\"top_logprobs\":5}", "top_logprobs"},
    {GENERATION_CHAT, "{" CHAT ",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs"},
    {GENERATION_CHAT, "{" CHAT ",\"logit_bias\":[]}", "logit_bias"},
    {GENERATION_CHAT, "{" CHAT ",\"logit_bias\":{\"x\":1}}", "logit_bias.x"},
    {GENERATION_CHAT, "{" CHAT ",\"logit_bias\":{\"1000\":1}}", "logit_bias.1000"},
    {GENERATION_CHAT, "{" CHAT ",\"logit_bias\":{\"5\":101}}", "logit_bias.5"},
    {GENERATION_CHAT, "{" CHAT ",\"user\":5}", "user"},
    {GENERATION_CHAT, "{" CHAT ",\"tools\":{}}", "tools"},
    {GENERATION_CHAT, "{" CHAT ",\"tool_choice\":\"any\"}", "tool_choice"},
    {GENERATION_CHAT, "{" CHAT ",\"functions\":[]}", "functions"},
    {GENERATION_CHAT, "{" CHAT ",\"response_format\":{\"type\":\"xml\"}}", "response_format"},
    {GENERATION_CHAT, "{" CHAT ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":1}}",
     "response_format.json_schema"},
    {GENERATION_CHAT, "{" CHAT ",\"guided_choice\":\"a\"}", "guided_choice"},
    {GENERATION_CHAT, "{" CHAT ",\"guided_regex\":1}", "guided_regex"},
    {GENERATION_CHAT, "{" CHAT ",\"guided_json\":[]}", "guided_json"},
    {GENERATION_CHAT, "{" CHAT ",\"guided_regex\":\"a\",\"grammar\":\"b\"}", "grammar"},
    {GENERATION_CHAT, "{" CHAT ",\"audio\":{}}", "audio"},
    {GENERATION_CHAT, "{" CHAT ",\"modalities\":[\"audio\"]}", "modalities"},
    {GENERATION_CHAT, "{" CHAT ",\"store\":\"yes\"}", "store"},
    {GENERATION_CHAT, "{" CHAT ",\"metadata\":[]}", "metadata"},
    {GENERATION_CHAT, "{" CHAT ",\"colour\":1}", "colour"},
    {GENERATION_CHAT, "{" CHAT ",\"prompt\":\"x\"}", "prompt"},
    {GENERATION_CHAT, "{" CHAT ",\"model\":\"m\"}", "model"},
    {GENERATION_COMPLETION, "{\"model\":\"m\"}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":null}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[]}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":{}}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[\"a\",1]}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[1,\"a\"]}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[1,1000]}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[-1]}", "prompt"},
    {GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[1.5]}", "prompt"},
    {GENERATION_COMPLETION, "{" TEXT ",\"suffix\":5}", "suffix"},
    {GENERATION_COMPLETION, "{" TEXT ",\"best_of\":2}", "best_of"},
    {GENERATION_COMPLETION, "{" TEXT ",\"logprobs\":true}", "logprobs"},
    {GENERATION_COMPLETION, "{" TEXT ",\"logprobs\":21}", "logprobs"},
    {GENERATION_COMPLETION, "{" TEXT ",\"echo\":1}", "echo"},
    {GENERATION_COMPLETION, "{" TEXT ",\"messages\":[]}", "messages"},
};

static void test_refusals_name_the_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct generation_request request;
        struct api_error err = {0};
        const struct refusal *r = &refusals[i];
        if (read_generation(r->kind, r->body, strlen(r->body), &request, &err))
            fail_msg("accepted: %s", r->body);
        assert_int_equal(err.status, 400);
        assert_string_equal(err.type, "invalid_request_error");
        assert_string_equal(err.param, r->param ? r->param : "");
        assert_true(strlen(err.message) > 0);
        assert_true(!r->param || strstr(err.message, r->param));
    }
}

static void test_malformed_json_says_where(void **state)
{
    (void)state;
    struct generation_request request;
    struct api_error err;
    const char *body = "{\"model\": \"m\",}";
    assert_false(generation_request_parse(GENERATION_CHAT, body, strlen(body), &request, &err));
    assert_non_null(strstr(err.message, "at byte 13"));
}

/* ---- what is accepted ---- */

static struct generation_request parse(enum generation_kind kind, const char *body)
{
    struct generation_request request;
    struct api_error err = {0};
    if (!read_generation(kind, body, strlen(body), &request, &err))
        fail_msg("refused: %s: %s", body, err.message);
    return request;
}

static void test_defaults_are_openai_s(void **state)
{
    (void)state;
    struct generation_request r = parse(GENERATION_CHAT, "{" CHAT "}");
    assert_int_equal(r.n, 1);
    assert_int_equal(r.n_prompts, 1);
    assert_false(r.stream || r.has_max_tokens || r.has_seed || r.logprobs || r.echo);
    assert_true(r.sampler.temperature == 1 && r.sampler.top_p == 1 && r.sampler.top_k == 0);
    assert_true(r.sampler.min_p == 0 && r.sampler.typical_p == 1 && r.sampler.repeat_penalty == 1);
    assert_string_equal(
        r.chat_json.data,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"add_generation_prompt\":true}");
    generation_request_deinit(&r);
}

static void test_every_field_arrives(void **state)
{
    (void)state;
    struct generation_request r =
        parse(GENERATION_CHAT,
              "{" CHAT ",\"max_completion_tokens\":7,\"temperature\":0.5,\"top_p\":0.25,\"n\":3,"
              "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"stop\":[\"a\",\"bc\"],"
              "\"seed\":-5,\"logprobs\":true,\"top_logprobs\":4,\"frequency_penalty\":-1.5,"
              "\"presence_penalty\":1.5,\"logit_bias\":{\"7\":-100,\"9\":2.5},\"user\":\"u\","
              "\"top_k\":40,\"min_p\":0.125,\"typical_p\":0.75,\"repeat_penalty\":1.25,"
              "\"response_format\":{\"type\":\"text\"},\"store\":false,\"tools\":null}");
    assert_true(r.has_max_tokens && r.max_tokens == 7 && r.n == 3 && r.stream && r.include_usage);
    assert_true(r.has_seed && r.sampler.seed == (uint64_t)-5);
    assert_true(r.logprobs && r.n_top_logprobs == 4 && r.n_stops == 2 && r.stops[1].size == 2);
    assert_memory_equal(r.stops[1].data, "bc", 2);
    assert_true(r.sampler.temperature == 0.5f && r.sampler.top_p == 0.25f && r.sampler.top_k == 40);
    assert_true(r.sampler.frequency_penalty == -1.5f && r.sampler.presence_penalty == 1.5f);
    assert_true(r.sampler.min_p == 0.125f && r.sampler.typical_p == 0.75f &&
                r.sampler.repeat_penalty == 1.25f);
    assert_true(r.sampler.n_biases == 2 && r.sampler.biases[1].token == 9 &&
                r.sampler.biases[1].bias == 2.5f);
    generation_request_deinit(&r);
}

static void test_messages_become_plain(void **state)
{
    (void)state;
    struct generation_request r =
        parse(GENERATION_CHAT, "{\"model\":\"m\",\"messages\":[{\"role\":\"developer\",\"content\":"
                               "\"be \\\"brief\\\"\"},{\"role\":\"user\","
                               "\"name\":\"Ann\",\"content\":[{\"type\":\"text\",\"text\":\"a\\n\"}"
                               ",{\"text\":\"\\u20ac\",\"type\":\"text\"}]"
                               "},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":null}]}");
    assert_string_equal(
        r.chat_json.data,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be \\\"brief\\\"\"},{\"role\":\"user\","
        "\"content\":\"a\\n\xe2\x82\xac\",\"name\":\"Ann\"},{\"role\":\"assistant\",\"content\":"
        "\"\"}],"
        "\"add_generation_prompt\":true}");
    generation_request_deinit(&r);
}

static void test_prompts_in_every_form(void **state)
{
    (void)state;
    struct generation_request r =
        parse(GENERATION_COMPLETION, "{" TEXT ",\"max_tokens\":0,\"logprobs\":0}");
    assert_true(r.n_prompts == 1 && r.prompts[0].text.size == 2 && !r.prompts[0].tokens);
    assert_true(r.has_max_tokens && r.max_tokens == 0 && r.logprobs && r.n_top_logprobs == 0);
    generation_request_deinit(&r);
    r = parse(GENERATION_COMPLETION,
              "{\"model\":\"m\",\"prompt\":[\"a\",\"bc\",\"\"],\"best_of\":1}");
    assert_true(r.n_prompts == 3 && r.prompts[1].text.size == 2 && r.prompts[2].text.size == 0);
    generation_request_deinit(&r);
    r = parse(GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[1,2,999]}");
    assert_true(r.n_prompts == 1 && r.prompts[0].n_tokens == 3 && r.prompts[0].tokens[2] == 999);
    generation_request_deinit(&r);
    r = parse(GENERATION_COMPLETION, "{\"model\":\"m\",\"prompt\":[[1],[2,3]],\"echo\":true}");
    assert_true(r.n_prompts == 2 && r.prompts[1].n_tokens == 2 && r.echo);
    generation_request_deinit(&r);
}

static void test_too_many_prompts(void **state)
{
    (void)state;
    struct buffer body = {0};
    struct generation_request request;
    struct api_error err;
    buffer_text(&body, "{\"model\":\"m\",\"prompt\":[\"a\"");
    for (int i = 1; i < LIMIT_PROMPTS; i++)
        buffer_text(&body, ",\"a\"");
    size_t whole = body.size;
    buffer_text(&body, "]}");
    assert_true(
        generation_request_parse(GENERATION_COMPLETION, body.data, body.size, &request, &err));
    assert_int_equal(request.n_prompts, LIMIT_PROMPTS);
    generation_request_deinit(&request);
    body.size = whole;
    buffer_text(&body, "],\"n\":2}");
    assert_false(
        generation_request_parse(GENERATION_COMPLETION, body.data, body.size, &request, &err));
    assert_string_equal(err.param, "n");
    body.size = whole;
    buffer_text(&body, ",\"b\"]}");
    assert_false(
        generation_request_parse(GENERATION_COMPLETION, body.data, body.size, &request, &err));
    assert_string_equal(err.param, "prompt");
    buffer_deinit(&body);
}

static void test_rerank(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
    } bad[] = {
        {"{\"model\":\"m\",\"documents\":[\"a\"]}", "query"},
        {"{\"model\":\"m\",\"query\":\"q\"}", "documents"},
        {"{\"model\":\"m\",\"query\":\"q\",\"documents\":\"a\"}", "documents"},
        {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[]}", "documents"},
        {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[{}]}", "documents"},
        {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[{\"text\":\"a\",\"b\":1}]}", "documents"},
        {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\"],\"top_n\":0}", "top_n"},
        {"{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\"],\"other\":0}", "other"},
        {"{\"query\":\"q\",\"documents\":[\"a\"]}", "model"},
    };
    struct rerank_request request;
    struct api_error err;
    const char *body = "{\"model\":\"m\",\"query\":\"q\",\"documents\":[\"a\",{\"text\":\"bc\"}],"
                       "\"top_n\":1,\"return_documents\":true}";
    assert_true(rerank_request_parse(body, strlen(body), &request, &err));
    assert_true(request.n_documents == 2 && request.documents[1].size == 2);
    assert_true(request.top_n == 1 && request.return_documents);
    rerank_request_deinit(&request);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err = (struct api_error){0};
        assert_false(rerank_request_parse(bad[i].body, strlen(bad[i].body), &request, &err));
        assert_string_equal(err.param, bad[i].param);
    }
}

static void test_small_requests(void **state)
{
    (void)state;
    struct api_error err;
    struct embeddings_request e;
    const char *body = "{\"model\":\"m\",\"input\":[\"a\",\"b\"],\"encoding_format\":\"base64\"}";
    assert_true(embeddings_request_parse(body, strlen(body), &e, &err));
    assert_true(e.n_inputs == 2 && e.base64);
    embeddings_request_deinit(&e);
    body = "{\"model\":\"m\",\"input\":\"a\",\"dimensions\":3}";
    assert_true(embeddings_request_parse(body, strlen(body), &e, &err));
    assert_int_equal(e.dimensions, 3);
    embeddings_request_deinit(&e);
    body = "{\"model\":\"m\",\"input\":\"a\",\"dimensions\":0}";
    assert_false(embeddings_request_parse(body, strlen(body), &e, &err));
    assert_string_equal(err.param, "dimensions");
    struct tokenize_request t;
    body = "{\"content\":\"a\\u0000b\",\"add_special\":true}";
    assert_true(tokenize_request_parse(body, strlen(body), &t, &err));
    assert_true(t.content.size == 3 && t.add_special && t.parse_special);
    tokenize_request_deinit(&t);
    struct detokenize_request d;
    body = "{\"tokens\":[]}";
    assert_true(detokenize_request_parse(body, strlen(body), &d, &err));
    assert_int_equal(d.n_tokens, 0);
    detokenize_request_deinit(&d);
    body = "{\"tokens\":[1000]}";
    assert_true(detokenize_request_parse(body, strlen(body), &d, &err));
    assert_false(detokenize_request_check(&d, VOCAB, &err));
    assert_string_equal(err.param, "tokens");
    assert_string_equal(err.message, "'tokens': element 0 is not a token id from 0 to 999");
    assert_true(detokenize_request_check(&d, VOCAB + 1, &err));
    detokenize_request_deinit(&d);
    body = "{\"tokens\":[4194304]}"; /* no model has so many */
    assert_false(detokenize_request_parse(body, strlen(body), &d, &err));
    body = "{\"model\":\"m\",\"input\":[[1],[2,1000]]}";
    assert_true(embeddings_request_parse(body, strlen(body), &e, &err));
    assert_false(embeddings_request_check(&e, VOCAB, &err));
    assert_string_equal(err.param, "input");
    embeddings_request_deinit(&e);
    body = "{\"content\":\"a\",\"model\":\"m\"}";
    assert_true(tokenize_request_parse(body, strlen(body), &t, &err));
    assert_memory_equal(t.model.data, "m", 2);
    tokenize_request_deinit(&t);
}

static void test_no_memory_at_any_point(void **state)
{
    (void)state;
    const char *body = "{" TEXT ",\"logit_bias\":{\"1\":1},\"stop\":[\"a\"],\"n\":2}";
    const char *chat = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                       "\"text\",\"text\":"
                       "\"a\"}]}]}";
    for (int which = 0; which < 2; which++) {
        bool ok = false;
        for (unsigned nth = 1; !ok && nth < 50; nth++) {
            struct generation_request request;
            struct api_error err = {0};
            mem_fail_nth(nth);
            ok = which
                     ? generation_request_parse(GENERATION_CHAT, chat, strlen(chat), &request, &err)
                     : generation_request_parse(GENERATION_COMPLETION, body, strlen(body), &request,
                                                &err);
            mem_fail_nth(0);
            assert_true(ok || err.status == 503);
            assert_true(!ok || nth > 2); /* it has failed at least twice before */
            if (ok)
                generation_request_deinit(&request);
        }
        assert_true(ok);
    }
}

/* ---- addresses and JSON out ---- */

static void test_addresses(void **state)
{
    (void)state;
    struct api_address a;
    struct error err;
    assert_int_equal(api_address_parse("127.0.0.1:8080", &a, &err), ERROR_NONE);
    assert_string_equal(a.host, "127.0.0.1");
    assert_int_equal(a.port, 8080);
    assert_int_equal(api_address_parse(":81", &a, &err), ERROR_NONE);
    assert_string_equal(a.host, "127.0.0.1");
    assert_int_equal(api_address_parse("[::1]:0", &a, &err), ERROR_NONE);
    assert_string_equal(a.host, "::1");
    static const char *const bad[] = {"8080",  "a:",      "a:b",  "a:65536", "::1:80",
                                      "[::1]", "[::1:80", "a:1x", ""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(api_address_parse(bad[i], &a, &err), ERROR_INVALID);
    assert_true(api_address_is_loopback("127.3.4.5") && api_address_is_loopback("::1"));
    assert_false(api_address_is_loopback("0.0.0.0") || api_address_is_loopback("::") ||
                 api_address_is_loopback("192.168.1.1"));
}

static void check_grammar(const char *field, enum grammar_kind kind, const char *text)
{
    char body[512];
    struct generation_request r;
    struct api_error err = {0};
    snprintf(body, sizeof body, "{" CHAT ",%s}", field);
    assert_true(generation_request_parse(GENERATION_CHAT, body, strlen(body), &r, &err));
    assert_int_equal(r.grammar.kind, kind);
    assert_int_equal(r.grammar.size, strlen(text));
    assert_memory_equal(r.grammar.size ? r.grammar.text : "", text, strlen(text));
    generation_request_deinit(&r);
}

static void test_grammars_are_kept(void **state)
{
    (void)state;
    check_grammar("\"response_format\":{\"type\":\"json_object\"}", GRAMMAR_JSON_OBJECT, "");
    check_grammar("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"a\","
                  "\"strict\":true,\"schema\":{\"type\":\"null\"}}}",
                  GRAMMAR_JSON_SCHEMA, "{\"type\":\"null\"}");
    check_grammar("\"guided_json\":\"{}\"", GRAMMAR_JSON_SCHEMA, "{}");
    check_grammar("\"guided_regex\":\"a+\"", GRAMMAR_REGEX, "a+");
    check_grammar("\"guided_choice\":[\"a\", \"b\"]", GRAMMAR_CHOICE, "[\"a\",\"b\"]");
    check_grammar("\"guided_grammar\":\"root ::= \\\"a\\\"\"", GRAMMAR_GBNF, "root ::= \"a\"");
    check_grammar("\"grammar\":\"x\"", GRAMMAR_GBNF, "x");
}

static void test_limits_are_set_by_name(void **state)
{
    static const char *const bad[] = {"memory",
                                      "memory=",
                                      "memory=1 apple",
                                      "memory=-1",
                                      "memory=1MB/s",
                                      "memory=64s",
                                      "memory=1",
                                      "waiting=0",
                                      "waiting=1KiB",
                                      "prepare-time=9",
                                      "=5",
                                      "body=9999999999999999999",
                                      "memory=99999999999GiB",
                                      "nothing=5",
                                      "Memory=1GiB"};
    struct api_limits limits = {0};
    struct error err;
    (void)state;
    assert_int_equal(api_limits_set(&limits, "memory=1GiB", &err), ERROR_NONE);
    assert_int_equal(api_limits_set(&limits, "prepare-time=2s", &err), ERROR_NONE);
    assert_int_equal(api_limits_set(&limits, "waiting=7", &err), ERROR_NONE);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(api_limits_set(&limits, bad[i], &err), ERROR_INVALID);
    api_limits_fill(&limits);
    assert_true(limits.memory == 1 << 30 && limits.prepare_time == 2000 && limits.waiting == 7);
    assert_true(limits.request_memory == 256 << 20 && limits.body == 32 << 20);
    struct api_error said;
    assert_false(API_LIMIT_ERROR(&said, 503, &limits, memory, "too much"));
    assert_string_equal(said.message, "too much (limit memory: 1 GiB); try again later");
    assert_false(API_LIMIT_ERROR(&said, 413, &limits, prepare_time, "it takes long"));
    assert_string_equal(said.message, "it takes long (limit prepare-time: 2 s)");
}

/* docs/api-limits.md has every row, as it is in the table. */
static void test_limits_are_documented(void **state)
{
    char path[512], text[16 * 1024], row[512];
    (void)state;
    snprintf(path, sizeof path, "%s/docs/api-limits.md", getenv("MEDLEY_ROOT"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    text[size] = '\0';
    fclose(file);
    for (size_t i = 0; i < n_api_limit_rows; i++) {
        const struct api_limit_row *limit = &api_limit_rows[i];
        snprintf(row, sizeof row, "| %s | %s | %s |", limit->name,
                 api_limit_text(limit, limit->standard).text, limit->help);
        if (!strstr(text, row))
            fail_msg("docs/api-limits.md does not have: %s", row);
    }
}

/* Who shares a portion of the server with whom. */
static void test_client_shares(void **state)
{
    static const char *const cases[][2] = {
        {"127.0.0.1", "loopback"},
        {"127.200.0.9", "loopback"},
        {"::1", "loopback"},
        {"::ffff:127.0.0.1", "loopback"},
        {"203.0.113.7", "203.0.113.7"},
        {"::ffff:203.0.113.7", "203.0.113.7"},
        {"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
        {"2001:db8:1:2::9", "2001:db8:1:2::/64"},
        {"2001:db8:1:3::9", "2001:db8:1:3::/64"},
        {"fe80::1%eth0", "fe80::/64"},
        {"", "unknown"},
        {"a unix socket, or whatever else that is longer than an address is", "unknown"},
        {NULL, "unknown"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(api_client_of_address(cases[i][0]).share, cases[i][1]);
    struct api_client one = api_client_of_address("2001:db8:1:2::1");
    struct api_client same = api_client_of_address("2001:db8:1:2:ffff::1");
    struct api_client other = api_client_of_address("2001:db8:1:3::1");
    assert_true(api_client_is_same(&one, &same) && !api_client_is_same(&one, &other));
    one = api_client_of_token(1);
    other = api_client_of_token(2);
    assert_false(api_client_is_same(&one, &other));
}

static void test_json_strings_are_always_utf8(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a\"\\\n\x01\x7f", "\"a\\\"\\\\\\n\\u0001\\u007f\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff", "\"\xef\xbf\xbd\""},
        {"a\xc3", "\"a\xef\xbf\xbd\""},
        {"\xe2\x82"
         "b",
         "\"\xef\xbf\xbd"
         "b\""},
        {"\xf0\x9f\x98", "\"\xef\xbf\xbd\""},
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* a surrogate */
        {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* too long a form */
        {"\xf4\x90\x80\x80",
         "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* beyond U+10FFFF */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer out = {0};
        json_out_string(&out, rows[i][0], strlen(rows[i][0]));
        assert_string_equal(out.data, rows[i][1]);
        buffer_deinit(&out);
    }
}

static void test_floats_read_back_the_same(void **state)
{
    (void)state;
    static const float values[] = {0.1f, 1.0f / 3, 1e-30f, -123456.789f, 16777217.0f};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        struct buffer out = {0};
        float back;
        json_out_float(&out, values[i]);
        assert_int_equal(sscanf(out.data, "%f", &back), 1);
        assert_true(back == values[i]);
        buffer_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rerank),
        cmocka_unit_test(test_grammars_are_kept),
        cmocka_unit_test(test_limits_are_set_by_name),
        cmocka_unit_test(test_limits_are_documented),
        cmocka_unit_test(test_client_shares),
        cmocka_unit_test(test_refusals_name_the_field),
        cmocka_unit_test(test_malformed_json_says_where),
        cmocka_unit_test(test_defaults_are_openai_s),
        cmocka_unit_test(test_every_field_arrives),
        cmocka_unit_test(test_messages_become_plain),
        cmocka_unit_test(test_prompts_in_every_form),
        cmocka_unit_test(test_too_many_prompts),
        cmocka_unit_test(test_small_requests),
        cmocka_unit_test(test_no_memory_at_any_point),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_json_strings_are_always_utf8),
        cmocka_unit_test(test_floats_read_back_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
