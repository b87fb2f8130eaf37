/* Rows instead of tokens: what a request says of them, and that the embeddings of a prompt's own
 * tokens, given as a picture's rows, give the same bits as the tokens. */
#include "base/mem.h"
#include "request/request.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct prompt_picture *make_picture(uint32_t n_rows, uint32_t width, uint8_t name)
{
    uint8_t digest[PICTURE_DIGEST_BYTES];
    struct picture_rows rows = {.n_rows = n_rows, .width = width};
    struct prompt_picture *picture;
    struct error err = {0};
    for (size_t i = 0; i < sizeof digest; i++)
        digest[i] = (uint8_t)(name * 37 + i * 11);
    rows.rows = mem_new_array((size_t)n_rows * width, sizeof(float));
    assert_non_null(rows.rows);
    if (prompt_picture_new(&rows, digest, &picture, &err))
        fail_msg("%s", err.text);
    assert_null(rows.rows);
    return picture;
}

static void test_tokens_are_of_the_digest(void **state)
{
    (void)state;
    struct prompt_picture *a = make_picture(40, 3, 1), *same = make_picture(40, 2, 1),
                          *other = make_picture(40, 3, 2);
    int32_t of_a[40], of_same[40], of_other[40];
    prompt_picture_tokens(a, of_a);
    prompt_picture_tokens(same, of_same);
    prompt_picture_tokens(other, of_other);
    assert_memory_equal(of_a, of_same, sizeof of_a);
    for (int i = 0; i < 40; i++) {
        assert_true(of_a[i] >= PICTURE_TOKEN_FIRST);
        assert_int_not_equal(of_a[i], of_other[i]);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(of_a[i], of_a[k]);
    }
    prompt_picture_release(a);
    prompt_picture_release(same);
    prompt_picture_release(other);
}

static bool on_token(void *arg, const struct token_event *event)
{
    (void)arg;
    (void)event;
    return true;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    (void)arg;
    (void)reason;
    (void)usage;
    (void)err;
}

static void test_a_prompt_says_where_pictures_are(void **state)
{
    (void)state;
    struct prompt_picture *a = make_picture(3, 4, 1), *b = make_picture(2, 4, 2);
    int32_t prompt[8] = {1, 2};
    struct request_picture pictures[] = {{2, a}, {5, b}};
    prompt_picture_tokens(a, prompt + 2);
    prompt_picture_tokens(b, prompt + 5);
    prompt[7] = 3;
    struct request request = {.prompt = prompt,
                              .n_prompt = 8,
                              .pictures = pictures,
                              .n_pictures = 2,
                              .handlers = {.token = on_token, .done = on_done}};
    struct error err = {0};
    assert_int_equal(request_check(&request, 10, &err), ERROR_NONE);
    struct request copy;
    assert_int_equal(request_copy(&request, 0, &copy, &err), ERROR_NONE);
    assert_null(request_picture_at(copy.pictures, 2, 1));
    assert_ptr_equal(request_picture_at(copy.pictures, 2, 4)->picture, a);
    assert_ptr_equal(request_picture_at(copy.pictures, 2, 5)->picture, b);
    assert_null(request_picture_at(copy.pictures, 2, 7));
    request_copy_deinit(&copy);

    request.embeddings = true;
    assert_int_equal(request_check(&request, 10, &err), ERROR_UNSUPPORTED);
    request.embeddings = false;
    request.n_pictures = 1; /* then the second's tokens are nobody's */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    request.n_pictures = 2;
    pictures[1].at = 4; /* inside the first */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    pictures[1].at = 7; /* beyond the end */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    pictures[1].at = 5;
    prompt[6]++; /* not its token */
    assert_int_equal(request_check(&request, 10, &err), ERROR_INVALID);
    prompt_picture_release(a);
    prompt_picture_release(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_are_of_the_digest),
        cmocka_unit_test(test_a_prompt_says_where_pictures_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
