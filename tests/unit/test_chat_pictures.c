/* Pictures in requests: read, refused with the field's name, and written anew by dialects. */
#include "api/anthropic.h"
#include "api/chat_pictures.h"
#include "api/ollama.h"
#include "api/responses.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct generation_request parse(enum generation_kind kind, const char *body)
{
    struct generation_request request;
    struct api_error err = {0};
    if (!generation_request_parse(kind, body, strlen(body), &request, &err))
        fail_msg("%s", err.message);
    return request;
}

#define SHOWN(url)                                                                                 \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","      \
    "\"image_url\":{\"url\":" url "}}]}]}"

static void test_pictures_that_cannot_be_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *body, *param;
    } refusals[] = {
        {SHOWN("\"https://a.example/b.png\""), "messages[0].content[0].image_url.url"},
        {SHOWN("\"data:image/png,abc\""), "messages[0].content[0].image_url.url"},
        {SHOWN("\"data:text/plain;base64,YWJj\""), "messages[0].content[0].image_url.url"},
        {SHOWN("5"), "messages[0].content[0].image_url.url"},
        {SHOWN("\"data:image/png;base64,YWJj\",\"detail\":\"high\""),
         "messages[0].content[0].image_url.detail"},
        {SHOWN("\"data:image/png;base64,YWJj\",\"x\":1"), "messages[0].content[0].image_url.x"},
        {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}"
         "]}",
         "messages[0].content[0].image_url"},
        {"{\"model\":\"m\",\"messages\":[{\"content\":[{\"type\":\"image_url\",\"image_url\":{"
         "\"url\":"
         "\"data:image/png;base64,YWJj\"}}],\"role\":\"system\"}]}",
         "messages[0].content"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct generation_request request;
        struct api_error err = {0};
        const char *body = refusals[i].body;
        assert_false(generation_request_parse(GENERATION_CHAT, body, strlen(body), &request, &err));
        assert_string_equal(err.param, refusals[i].param);
    }
}

static void test_pictures_leave_marks(void **state)
{
    (void)state;
    struct generation_request r = parse(
        GENERATION_CHAT,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
        "\"text\":"
        "\"a\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,YWJj\","
        "\"detail\":\"auto\"}},{\"type\":\"text\",\"text\":\"b\"}]},{\"role\":\"user\",\"content\":"
        "["
        "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/webp;base64,ZA==\"}}]}]}");
    assert_string_equal(r.chat_json.data,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"a" CHAT_PICTURE_MARK
                        "b\"},{\"role\":\"user\",\"content\":\"" CHAT_PICTURE_MARK
                        "\"}],\"add_generation_prompt\":true}");
    assert_int_equal(r.n_pictures, 2);
    assert_int_equal(r.pictures[0].base64.size, 4);
    assert_memory_equal(r.pictures[0].base64.data, "YWJj", 4);
    assert_string_equal(r.pictures[0].path, "messages[0].content[1]");
    assert_memory_equal(r.pictures[1].base64.data, "ZA==", 4);
    assert_string_equal(r.pictures[1].path, "messages[1].content[0]");
    generation_request_deinit(&r);
}

static void picture_parts_append(struct buffer *body, int n)
{
    buffer_text(body, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[");
    for (int i = 0; i < n; i++)
        buffer_printf(body,
                      "%s{\"type\":\"image_url\",\"image_url\":{\"url\":"
                      "\"data:image/png;base64,YQ==\"}}",
                      i ? "," : "");
    buffer_text(body, "]}]}");
}

static void test_pictures_have_limits(void **state)
{
    (void)state;
    struct buffer body = {0}, large = {0};
    struct generation_request r;
    struct api_error err = {0};
    picture_parts_append(&body, LIMIT_PROMPT_PICTURES);
    assert_true(generation_request_parse(GENERATION_CHAT, body.data, body.size, &r, &err));
    assert_int_equal(r.n_pictures, LIMIT_PROMPT_PICTURES);
    generation_request_deinit(&r);
    buffer_clear(&body);
    picture_parts_append(&body, LIMIT_PROMPT_PICTURES + 1);
    assert_false(generation_request_parse(GENERATION_CHAT, body.data, body.size, &r, &err));
    assert_string_equal(err.param, "messages[0].content[64]");
    buffer_text(&large, "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                        "\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,");
    const size_t n = (size_t)LIMIT_PICTURE_BYTES / 3 * 4 + 16;
    memset(buffer_extend(&large, n), 'A', n);
    buffer_text(&large, "\"}}]}]}");
    assert_false(generation_request_parse(GENERATION_CHAT, large.data, large.size, &r, &err));
    assert_non_null(strstr(err.message, "20971520 bytes. Scale the picture down"));
    buffer_deinit(&large);
    buffer_deinit(&body);
}

/* What dialects write anew is what the chats' reader takes. */
static void test_dialects_show_pictures(void **state)
{
    (void)state;
    static const struct {
        bool (*read)(struct completion *completion, const char *body, size_t size,
                     struct buffer *out, struct api_error *err);
        const char *body;
        const char *content, *base64; /* of the user's message, of its first picture */
        const char *param;            /* NULL: it is taken */
    } cases[] = {
        {anthropic_read,
         "{\"model\":\"m\",\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{"
         "\"type\":"
         "\"text\",\"text\":\"a\"},{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_"
         "type\":"
         "\"image/jpeg\",\"data\":\"YWJj\"}},{\"type\":\"text\",\"text\":\"b\"}]}]}",
         "\"a" CHAT_PICTURE_MARK "b\"", "YWJj", NULL},
        {anthropic_read,
         "{\"model\":\"m\",\"max_tokens\":5,\"messages\":[{\"role\":\"user\",\"content\":[{"
         "\"type\":"
         "\"image\",\"source\":{\"type\":\"url\",\"url\":\"https://a.example/b.png\"}}]}]}",
         NULL, NULL, "messages[0].content[0]"},
        {responses_read,
         "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\","
         "\"image_url\":\"data:image/"
         "png;base64,YWJj\"},{\"type\":\"input_text\",\"text\":\"b\"}]}]}",
         "\"" CHAT_PICTURE_MARK "b\"", "YWJj", NULL},
        {responses_read,
         "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\","
         "\"file_id\":\"f\"}]}]}",
         NULL, NULL, "input[0][0]"},
        {responses_read,
         "{\"model\":\"m\",\"input\":[{\"role\":\"system\",\"content\":[{\"type\":\"input_image\","
         "\"image_url\":\"data:image/png;base64,YWJj\"}]}]}",
         NULL, NULL, "input[0]"},
        {ollama_read_chat,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[\"YWJj\","
         "\"ZA==\"]}]}",
         "\"" CHAT_PICTURE_MARK CHAT_PICTURE_MARK "a\"", "YWJj", NULL},
        {ollama_read_generate, "{\"model\":\"m\",\"prompt\":\"a\",\"images\":[\"YWJj\"]}",
         "\"" CHAT_PICTURE_MARK "a\"", "YWJj", NULL},
        {ollama_read_generate,
         "{\"model\":\"m\",\"prompt\":\"a\",\"raw\":true,\"images\":[\"YWJj\"]}", NULL, NULL,
         "images"},
        {ollama_read_chat,
         "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[5]}]}",
         NULL, NULL, "messages[0].images"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct completion completion = {.kind = GENERATION_CHAT};
        struct buffer out = {0};
        struct api_error err = {0};
        struct generation_request r;
        const bool ok =
            cases[i].read(&completion, cases[i].body, strlen(cases[i].body), &out, &err);
        if (cases[i].param) {
            assert_false(ok);
            assert_string_equal(err.param, cases[i].param);
        } else {
            assert_true(ok &&
                        generation_request_parse(GENERATION_CHAT, out.data, out.size, &r, &err));
            assert_non_null(strstr(r.chat_json.data, cases[i].content));
            assert_memory_equal(r.pictures[0].base64.data, cases[i].base64,
                                strlen(cases[i].base64));
            generation_request_deinit(&r);
        }
        buffer_deinit(&completion.history);
        buffer_deinit(&out);
    }
}

static bool bytes_of(const char *base64, struct buffer *out, struct api_error *err)
{
    const struct chat_picture picture = {.base64 = {base64, strlen(base64)}, .path = "here"};
    buffer_clear(out);
    return chat_picture_bytes(&picture, out, err);
}

/* RFC 4648's vectors, and what is none. */
static void test_base64_is_read(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"", ""},           {"Zg==", "f"},         {"Zm8=", "fo"},      {"Zm9v", "foo"},
        {"Zm9vYg", "foob"}, {"Zm9vYmE=", "fooba"}, {"/+8=", "\xff\xef"}};
    static const char *const bad[] = {"Z", "Zg=a", "Zm9v!", "Zm=8", "Zg===", "_-8="};
    struct buffer out = {0};
    struct api_error err = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(bytes_of(good[i][0], &out, &err));
        assert_int_equal(out.size, strlen(good[i][1]));
        if (out.size)
            assert_memory_equal(out.data, good[i][1], out.size);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_false(bytes_of(bad[i], &out, &err));
        assert_string_equal(err.param, "here");
    }
    buffer_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pictures_that_cannot_be_are_named),
        cmocka_unit_test(test_pictures_leave_marks),
        cmocka_unit_test(test_pictures_have_limits),
        cmocka_unit_test(test_dialects_show_pictures),
        cmocka_unit_test(test_base64_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
