/* What a model's maker wants of requests: Ollama's parameters and system message, read from its
 * cache, and what a request makes of them. */
#include "api/chat_prompt.h"
#include "api/model_defaults.h"
#include "api/request_json.h"
#include "base/durable_file.h"
#include "base/limits.h"
#include "library/defaults.h"
#include "tools/tool_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define PARAMS "11112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define SYSTEM "22112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define LAYER(kind, hash)                                                                          \
    "{\"mediaType\":\"application/vnd.ollama.image." kind "\",\"digest\":\"sha256:" hash           \
    "\",\"size\":9}"

static char root[] = "/tmp/medley-defaults-XXXXXX";

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void put(const char *relative, const char *text)
{
    char path[512];
    struct error err;
    snprintf(path, sizeof path, "%s/%s", root, relative);
    if (durable_make_folder_of(path, &err))
        fail_msg("%s", err.text);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static struct library_defaults read_defaults(void)
{
    char path[512];
    struct error err;
    struct library_defaults found;
    snprintf(path, sizeof path, "%s/blobs/sha256-" MODEL, root);
    assert_int_equal(library_defaults_read(path, &found, &err), ERROR_NONE);
    return found;
}

#define ALL                                                                                        \
    "{\"layers\":[" LAYER("model", MODEL) "," LAYER("params", PARAMS) "," LAYER("system",          \
                                                                                SYSTEM) "]}"
#define BARE "{\"layers\":[" LAYER("model", MODEL) "]}"

static void test_ollamas_cache(void **state)
{
    (void)state;
    struct library_defaults found = read_defaults();
    assert_true(!found.json.size && !found.unused[0]); /* nobody names the file */
    put("manifests/registry/library/m/latest", ALL);
    put("blobs/sha256-" PARAMS, "{\"temperature\":0.6,\"stop\":[\"<a>\",\"<b>\"],\"num_ctx\":4096,"
                                "\"num_predict\":-1,\"num_gpu\":1,\"mirostat\":2,\"top_k\":\"x\"}");
    put("blobs/sha256-" SYSTEM, "You are \"kind\".");
    found = read_defaults();
    assert_string_equal(found.json.data, "{\"temperature\":0.6,\"stop\":[\"<a>\",\"<b>\"],"
                                         "\"num_ctx\":4096,\"system\":\"You are \\\"kind\\\".\"}");
    assert_string_equal(found.unused, "mirostat, top_k");
    assert_int_equal(library_defaults_context(found.json.data), 4096);
    library_defaults_deinit(&found);
    /* under another name, the same; then with none of it */
    put("manifests/registry/library/m/8b", ALL);
    found = read_defaults();
    assert_true(found.json.size > 0);
    library_defaults_deinit(&found);
    put("manifests/registry/me/mine/latest", BARE);
    found = read_defaults();
    assert_true(!found.json.size && strstr(found.unused, "several names"));
    library_defaults_deinit(&found);
}

/* As `medley pull` leaves them beside the file. */
static void test_what_was_pulled(void **state)
{
    (void)state;
    char path[512];
    struct error err;
    struct library_defaults found;
    put("pulled/latest.gguf.system", "Be kind.");
    snprintf(path, sizeof path, "%s/pulled/latest.gguf", root);
    assert_int_equal(library_defaults_read(path, &found, &err), ERROR_NONE);
    assert_string_equal(found.json.data, "{\"system\":\"Be kind.\"}");
    library_defaults_deinit(&found);
    put("pulled/latest.gguf.params", "{\"top_k\":3}");
    assert_int_equal(library_defaults_read(path, &found, &err), ERROR_NONE);
    assert_string_equal(found.json.data, "{\"top_k\":3,\"system\":\"Be kind.\"}");
    library_defaults_deinit(&found);
}

/* Whatever lies there, it is none or all of it. */
static void test_what_makes_no_sense(void **state)
{
    (void)state;
    static char long_text[LIMIT_MODEL_DEFAULTS_BYTES + 1];
    memset(long_text, 'a', sizeof long_text - 1);
    const struct {
        const char *params, *system, *unused;
    } cases[] = {
        {"rubbish", "", ""},
        {"[1]", "", ""},
        {"{\"stop\":[1]}", "", "stop"},
        {"{\"stop\":[]}", "", "stop"},
        {"{}", long_text, "all of them: they have more than 4095 bytes"},
        {"{\"temperature\":1}", "\xff\xfe", "all of them: the system message is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct buffer params = {.data = (char *)(uintptr_t)cases[i].params,
                                      .size = strlen(cases[i].params)},
                            system = {.data = (char *)(uintptr_t)cases[i].system,
                                      .size = strlen(cases[i].system)};
        struct library_defaults made = {0};
        struct error err;
        assert_int_equal(library_defaults_make(&params, &system, &made, &err), ERROR_NONE);
        assert_int_equal(made.json.size, 0);
        assert_string_equal(made.unused, cases[i].unused);
        library_defaults_deinit(&made);
    }
}

static void test_what_is_said(void **state)
{
    (void)state;
    struct buffer said = {0};
    library_defaults_say(NULL, &said);
    library_defaults_say("{}", &said);
    assert_int_equal(said.size, 0);
    library_defaults_say(
        "{\"temperature\":0.6,\"stop\":[\"<a>\",\"<b>\"],\"system\":\""
        "0123456789012345678901234567890123456789012345678901234567\u00e9\u00e9\"}",
        &said);
    assert_string_equal(said.data,
                        "temperature 0.6, stop \"<a>\" \"<b>\", system "
                        "\"0123456789012345678901234567890123456789012345678901234567é…\" "
                        "(62 bytes)");
    buffer_deinit(&said);
    assert_int_equal(library_defaults_context(NULL), 0);
    assert_int_equal(library_defaults_context("{\"num_ctx\":-5}"), 0);
    assert_int_equal(library_defaults_context("{\"num_ctx\":99999999999}"), 0);
}

/* ---- requests ----------------------------------------------------------------------------- */

static const char defaults[] =
    "{\"temperature\":0.5,\"top_k\":7,\"stop\":[\"<a>\",\"<b>\"],\"max_tokens\":9,\"top_p\":5,"
    "\"n\":3,\"num_ctx\":4096,\"messages\":[],\"system\":\"Be kind.\"}";

static void parse(const char *body, const char *json, struct generation_request *out)
{
    struct api_error err = {0};
    if (!generation_request_parse(GENERATION_CHAT, body, strlen(body), out, &err))
        fail_msg("%s", err.message);
    assert_true(model_defaults_apply(out, json));
}

#define USER "{\"role\":\"user\",\"content\":\"x\"}"
#define BODY(more) "{\"model\":\"m\",\"messages\":[" USER "]" more "}"

static void test_a_request_that_says_nothing(void **state)
{
    (void)state;
    struct generation_request request;
    parse(BODY(",\"temperature\":null"), defaults, &request);
    assert_true(request.sampler.temperature == 0.5f && request.sampler.top_k == 7);
    assert_true(request.has_max_tokens && request.max_tokens == 9);
    assert_int_equal(request.n_stops, 2);
    assert_memory_equal(request.stops[1].data, "<b>", 3);
    assert_true(request.sampler.top_p == 1 && request.n == 1); /* impossible; not theirs to say */
    generation_request_shrink(&request);
    assert_memory_equal(request.stops[0].data, "<a>", 3);
    generation_request_deinit(&request);
    parse(BODY(""), NULL, &request);
    assert_true(request.sampler.temperature == 1 && !request.n_stops && !request.system.data);
    generation_request_deinit(&request);
}

static void test_its_own_values_win(void **state)
{
    (void)state;
    struct generation_request request;
    parse(BODY(",\"temperature\":0,\"stop\":\"c\",\"max_completion_tokens\":4,\"top_k\":0"),
          defaults, &request);
    assert_true(request.sampler.temperature == 0 && request.sampler.top_k == 0);
    assert_true(request.n_stops == 1 && request.max_tokens == 4);
    generation_request_deinit(&request);
}

static void assert_prompt(const char *body, const char *wanted)
{
    const struct template_traits traits = {.format = tool_format_named("hermes"),
                                           .knows_tools = true};
    struct generation_request request;
    struct buffer out = {0};
    struct api_error err;
    parse(body, defaults, &request);
    assert_true(chat_prompt_write(&request, &traits, &out, &err));
    buffer_append(&out, "", 1);
    if (!strstr(out.data, wanted))
        fail_msg("%s", out.data);
    buffer_deinit(&out);
    generation_request_deinit(&request);
}

static void test_the_system_message(void **state)
{
    (void)state;
    assert_prompt(BODY(""),
                  "\"messages\":[{\"role\":\"system\",\"content\":\"Be kind.\"},{\"role\"");
    assert_prompt("{\"model\":\"m\",\"messages\":[{\"role\":\"system\",\"content\":\"Hm.\"}," USER
                  "]}",
                  "\"messages\":[{\"role\":\"system\",\"content\":\"Hm.\"},{\"role\":\"user\"");
}

static void test_what_is_shown(void **state)
{
    (void)state;
    struct buffer parameters = {0}, system = {0};
    model_defaults_show("{\"temperature\":0.5,\"stop\":[\"<a>\",\"<b>\"],\"max_tokens\":9,"
                        "\"system\":\"Be kind.\"}",
                        &parameters, &system);
    buffer_append(&parameters, "", 1);
    assert_string_equal(parameters.data, "temperature                    0.5\n"
                                         "stop                           \"<a>\"\n"
                                         "stop                           \"<b>\"\n"
                                         "num_predict                    9");
    assert_int_equal(system.size, 8);
    buffer_deinit(&parameters);
    buffer_deinit(&system);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ollamas_cache),
        cmocka_unit_test(test_what_was_pulled),
        cmocka_unit_test(test_what_makes_no_sense),
        cmocka_unit_test(test_what_is_said),
        cmocka_unit_test(test_a_request_that_says_nothing),
        cmocka_unit_test(test_its_own_values_win),
        cmocka_unit_test(test_the_system_message),
        cmocka_unit_test(test_what_is_shown),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
