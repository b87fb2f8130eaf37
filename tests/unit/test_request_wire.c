/* A request's messages: what is written reads the same, and nothing else is read. */
#include "base/mem.h"
#include "request/request_wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct token_logprob TOP[3] = {{5, -0.5f}, {6, -1.5f}, {-1, -INFINITY}};

static struct request make_request(void)
{
    static const int32_t prompt[] = {3, 1, 4, 1, 5, 92};
    static const int32_t stops[] = {2, 7};
    static const struct logit_bias biases[] = {{9, -100}, {10, 2.5f}, {11, 100}};
    return (struct request){
        .prompt = prompt,
        .n_prompt = 6,
        .cache_key = UINT64_C(0x8877665544332211),
        .n_predict = 77,
        .sampler = {.temperature = 0.7f,
                    .top_k = 11,
                    .top_p = 0.9f,
                    .min_p = 0.1f,
                    .typical_p = 0.8f,
                    .repeat_penalty = 1.1f,
                    .frequency_penalty = -0.5f,
                    .presence_penalty = 0.25f,
                    .penalty_last_n = 64,
                    .seed = UINT64_C(0x123456789abcdef0),
                    .biases = biases,
                    .n_biases = 3},
        .stop_tokens = stops,
        .n_stop_tokens = 2,
        .logprobs = true,
        .n_top_logprobs = 3,
    };
}

/* The only message of a run. */
static enum error_code read_one(const struct buffer *run, struct request_message *out,
                                struct error *err)
{
    struct bytes_reader reader = {(const unsigned char *)run->data, run->size, false};
    const void *message;
    size_t size;
    assert_int_equal(request_next(&reader, &message, &size, err), ERROR_NONE);
    assert_non_null(message);
    assert_int_equal(reader.left, 0);
    return request_read(message, size, out, err);
}

static void assert_same_request(const struct request *a, const struct request *b)
{
    assert_int_equal(a->n_predict, b->n_predict);
    assert_int_equal(a->logprobs, b->logprobs);
    assert_int_equal(a->want_all_logits, b->want_all_logits);
    assert_int_equal(a->embeddings, b->embeddings);
    assert_int_equal(a->n_top_logprobs, b->n_top_logprobs);
    assert_true(a->cache_key == b->cache_key);
    assert_int_equal(a->n_prompt, b->n_prompt);
    assert_memory_equal(a->prompt, b->prompt, a->n_prompt * sizeof *a->prompt);
    assert_int_equal(a->n_stop_tokens, b->n_stop_tokens);
    assert_memory_equal(a->stop_tokens, b->stop_tokens, a->n_stop_tokens * sizeof *a->stop_tokens);
    struct sampler_params x = a->sampler, y = b->sampler;
    assert_int_equal(x.n_biases, y.n_biases);
    assert_memory_equal(x.biases, y.biases, x.n_biases * sizeof *x.biases);
#define SAME(TYPE, field, ...) assert_true(x.field == y.field);
    SAMPLER_FIELDS(SAME)
#undef SAME
}

static void test_a_grammar(void **state)
{
    (void)state;
    const struct grammar_source source = {GRAMMAR_REGEX, true, "[ab]+", 5};
    struct request request = make_request(), copy;
    struct request_message message;
    struct buffer run = {0};
    struct error err = {0};
    assert_int_equal(constraint_open(&source, &request.constraint, &err), ERROR_NONE);
    request.n_answered = 4;
    request_write_submit(7, "x", &request, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_same_request(&message.submit.request, &request);
    assert_ptr_equal(message.submit.request.constraint, request.constraint); /* known here */
    assert_int_equal(message.submit.request.n_answered, 4);
    assert_int_equal(request_copy(&message.submit.request, 0, &copy, &err), ERROR_NONE);
    request_message_deinit(&message);
    assert_int_equal(constraint_source(copy.constraint)->size, 5);
    request_copy_deinit(&copy);
    request.n_answered = request.n_prompt; /* of something it must be the answer */
    buffer_clear(&run);
    request_write_submit(7, "x", &request, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_INVALID);
    buffer_deinit(&run);
    constraint_release(request.constraint);
}

static struct prompt_picture *new_picture(float value)
{
    static const uint8_t digest[PICTURE_DIGEST_BYTES] = {3, 1, 4};
    struct picture_rows rows = {
        .n_rows = 2, .width = 3, .grid_width = 2, .grid_height = 1, .is_whole = true};
    struct prompt_picture *picture;
    rows.rows = mem_new_array(6, sizeof(float));
    assert_non_null(rows.rows);
    for (int i = 0; i < 6; i++)
        rows.rows[i] = value * (float)i;
    assert_int_equal(prompt_picture_new(&rows, digest, &picture, NULL), ERROR_NONE);
    return picture;
}

/* Those of a request fit into one message, or it is said how much they take. */
static void test_pictures_too_large(void **state)
{
    (void)state;
    enum { ROWS = 4096, WIDTH = 3072 }; /* 48 MiB */
    static const uint8_t digest[PICTURE_DIGEST_BYTES] = {2};
    struct request request = make_request();
    struct picture_rows rows = {.n_rows = ROWS, .width = WIDTH};
    struct prompt_picture *picture;
    struct error err = {0};
    rows.rows = mem_new_array((size_t)ROWS * WIDTH, sizeof(float));
    assert_non_null(rows.rows);
    assert_int_equal(prompt_picture_new(&rows, digest, &picture, NULL), ERROR_NONE);
    const struct request_picture twice[] = {{0, picture}, {ROWS, picture}};
    request.pictures = twice;
    request.n_pictures = 1;
    assert_int_equal(request_check_travels(&request, &err), ERROR_NONE);
    request.n_pictures = 2;
    assert_int_equal(request_check_travels(&request, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "take 96 MiB, and 78 may travel to another node"));
    prompt_picture_release(picture);
    constraint_release(request.constraint);
}

static void test_pictures(void **state)
{
    (void)state;
    struct request request = make_request();
    struct request_message message;
    struct buffer run = {0};
    struct error err = {0};
    struct prompt_picture *picture = new_picture(0.5f), *wrong = new_picture(NAN);
    int32_t prompt[6] = {3, 1, 0, 0, 5, 92};
    struct request_picture at = {2, picture};
    prompt_picture_tokens(picture, prompt + 2);
    request.prompt = prompt;
    request.pictures = &at;
    request.n_pictures = 1;
    assert_int_equal(request_check_travels(&request, &err), ERROR_NONE);
    request_write_submit(7, "x", &request, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_same_request(&message.submit.request, &request);
    assert_int_equal(message.submit.request.n_pictures, 1);
    assert_int_equal(message.submit.request.pictures[0].at, 2);
    const struct picture_rows *rows =
        prompt_picture_rows(message.submit.request.pictures[0].picture);
    assert_int_equal(rows->n_rows, 2);
    assert_true(rows->is_whole && rows->grid_width == 2 && rows->grid_height == 1);
    assert_memory_equal(rows->rows, prompt_picture_rows(picture)->rows, 6 * sizeof(float));
    request_message_deinit(&message);
    /* without all of it, the tokens are nobody's: an older node refuses them so */
    const size_t size = run.size - REQUEST_LENGTH_BYTES;
    for (size_t n = size; n-- > size - 81;)
        assert_int_equal(request_read(run.data + REQUEST_LENGTH_BYTES, n, &message, &err),
                         ERROR_INVALID);
    for (unsigned i = 1; i < 5; i++) {
        mem_fail_nth(i);
        assert_int_equal(read_one(&run, &message, &err), ERROR_NO_MEMORY);
    }
    mem_fail_nth(0);
    at.picture = wrong;
    buffer_clear(&run);
    request_write_submit(7, "x", &request, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_INVALID);
    buffer_deinit(&run);
    prompt_picture_release(picture);
    prompt_picture_release(wrong);
}

static void test_a_request(void **state)
{
    (void)state;
    struct request request = make_request();
    struct request_message message;
    struct buffer run = {0};
    struct error err = {0};
    request_write_submit(UINT64_C(1) << 40, "llama-1", &request, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_int_equal(message.kind, REQUEST_SUBMIT);
    assert_true(message.id == UINT64_C(1) << 40);
    assert_string_equal(message.submit.instance, "llama-1");
    assert_same_request(&message.submit.request, &request);
    request_message_deinit(&message);
    request.n_predict = 0;
    request.embeddings = true;
    request.sampler = (struct sampler_params){.temperature = NAN}; /* not asked */
    buffer_clear(&run);
    request_write_submit(7, "x", &request, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_true(message.submit.request.embeddings);
    assert_int_equal(sampler_check(&message.submit.request.sampler, 100, &err), ERROR_NONE);
    request_message_deinit(&message);
    mem_fail_nth(1);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NO_MEMORY);
    mem_fail_nth(0);
    buffer_deinit(&run);
}

static void test_answers(void **state)
{
    (void)state;
    static const float values[] = {1.5f, -2, NAN, INFINITY};
    struct request_usage usage = {10, 4, 3, 100, 200, UINT64_C(1) << 50, 77};
    usage.drafted_tokens = 5;
    usage.accepted_tokens = 2;
    usage.times = (struct request_times){
        .n_stages = 2, .stages = {{1, 2, 3, 4}, {5, 6, REQUEST_TIME_UNKNOWN, 8}}, .back_ns = 9};
    const struct error why = {ERROR_DEVICE, "it burns\x1b[31m"};
    struct request_message message;
    struct buffer run = {0};
    struct error err = {0};
    request_write_row(9, 12, values, 4, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_int_equal(message.row.position, 12);
    assert_int_equal(message.row.n_values, 4);
    assert_memory_equal(message.row.values, values, sizeof values);
    buffer_clear(&run);
    request_write_done(9, FINISH_ERROR, &usage, &why, true, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_true(message.done.lost && message.done.reason == FINISH_ERROR &&
                message.error.code == ERROR_DEVICE);
    assert_string_equal(message.error.text, "it burns?[31m");
    const struct request_usage *got = &message.done.usage;
    assert_true(got->prompt_tokens == 10 && got->cached_tokens == 4 && got->generated_tokens == 3);
    assert_true(got->queued_ns == 100 && got->prefill_ns == 200 &&
                got->decode_ns == UINT64_C(1) << 50 && got->slowest_ns == 77);
    assert_true(got->drafted_tokens == 5 && got->accepted_tokens == 2);
    assert_memory_equal(&got->times, &usage.times, sizeof usage.times);
    usage.times.is_partial = true; /* not known of all micro-batches */
    buffer_clear(&run);
    request_write_done(9, FINISH_LENGTH, &usage, NULL, false, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_true(!message.done.lost && message.done.reason == FINISH_LENGTH && !message.error.code);
    assert_int_equal(message.done.usage.times.n_stages, 0);
    buffer_clear(&run);
    request_write_refused(9, &why, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_int_equal(message.error.code, ERROR_DEVICE);
    buffer_clear(&run);
    request_write_accepted(9, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_int_equal(message.kind, REQUEST_ACCEPTED);
    buffer_clear(&run);
    request_write_cancel(9, &run);
    assert_int_equal(read_one(&run, &message, &err), ERROR_NONE);
    assert_int_equal(message.kind, REQUEST_CANCEL);
    buffer_deinit(&run);
}

/* How many messages; of the last its id and count of tokens. */
static uint32_t count_messages(const struct buffer *run, uint64_t *id, uint32_t *count)
{
    struct bytes_reader reader = {(const unsigned char *)run->data, run->size, false};
    const void *bytes;
    size_t size;
    uint32_t n = 0;
    while (!request_next(&reader, &bytes, &size, NULL) && bytes) {
        struct request_message message;
        assert_int_equal(request_read(bytes, size, &message, NULL), ERROR_NONE);
        *id = message.id;
        *count = message.tokens.count;
        n++;
    }
    assert_int_equal(reader.left, 0);
    return n;
}

static void test_tokens_share_a_message(void **state)
{
    (void)state;
    struct request_message message;
    struct buffer run = {0};
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
    size_t last = SIZE_MAX;
    uint64_t id = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < 5; i++)
        request_write_token(
            3, &(struct token_event){(int32_t)i + 40, i, -0.25f, TOP, i == 4 ? 3 : 0}, &last, &run);
    assert_int_equal(read_one(&run, &message, NULL), ERROR_NONE);
    assert_int_equal(message.tokens.count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        struct token_event event;
        request_next_token(&message, &event, top);
        assert_true(event.token == (int32_t)i + 40 && event.index == i && event.logprob == -0.25f);
        assert_int_equal(event.n_top, i == 4 ? 3 : 0);
    }
    assert_memory_equal(top, TOP, sizeof TOP);
    request_write_token(4, &(struct token_event){.token = 1}, &last, &run); /* another's */
    assert_int_equal(count_messages(&run, &id, &count), 2);
    request_write_accepted(4, &run); /* the last is no tokens */
    request_write_token(4, &(struct token_event){.token = 1}, &last, &run);
    assert_int_equal(count_messages(&run, &id, &count), 4);
    for (uint32_t i = 1; i < LIMIT_REQUEST_TOKENS; i++)
        request_write_token(4, &(struct token_event){.token = 1}, &last, &run);
    assert_int_equal(count_messages(&run, &id, &count), 4);
    assert_int_equal(count, LIMIT_REQUEST_TOKENS);
    request_write_token(4, &(struct token_event){.token = 1}, &last, &run); /* full */
    assert_int_equal(count_messages(&run, &id, &count), 5);
    assert_int_equal(count, 1);
    buffer_deinit(&run);
}

/* Every beginning of a message is refused, and one with more behind it is read. */
static void test_lengths(void **state)
{
    (void)state;
    struct request request = make_request();
    const struct request_usage usage = {.slowest_ns = 7};
    const struct error why = {ERROR_BUSY, "later"};
    struct buffer runs[5] = {0};
    size_t last = SIZE_MAX;
    request_write_submit(1, "a", &request, &runs[0]);
    request_write_refused(1, &why, &runs[1]);
    request_write_token(1, &(struct token_event){.token = 1, .top = TOP, .n_top = 3}, &last,
                        &runs[2]);
    request_write_row(1, 0, (const float[]){1, 2, 3}, 3, &runs[3]);
    request_write_done(1, FINISH_ERROR, &usage, &why, false, &runs[4]);
    for (int i = 0; i < 5; i++) {
        struct request_message message;
        struct error err = {0};
        const char *bytes = runs[i].data + REQUEST_LENGTH_BYTES;
        size_t size = runs[i].size - REQUEST_LENGTH_BYTES;
        for (size_t n = 0; n < size; n++) {
            err = (struct error){0};
            /* before there was a cache key, a grammar, and pictures */
            if (i == 0 && (n == size - 22 || n == size - 14 || n == size - 4)) {
                assert_int_equal(request_read(bytes, n, &message, &err), ERROR_NONE);
                assert_true((message.submit.request.cache_key == 0) == (n == size - 22));
                request_message_deinit(&message);
                continue;
            }
            /* before there was the slowest stage's time, those of all, and what was guessed */
            if (i == 4 && (n == size - 28 || n == size - 20 || n == size - 8)) {
                assert_int_equal(request_read(bytes, n, &message, &err), ERROR_NONE);
                assert_true(message.done.usage.slowest_ns == (n == size - 28 ? 0 : 7));
                assert_int_equal(message.done.usage.times.n_stages, 0);
                continue;
            }
            assert_int_equal(request_read(bytes, n, &message, &err), ERROR_INVALID);
            assert_true(err.text[0]);
        }
        buffer_text(&runs[i], "from a newer version");
        assert_int_equal(
            request_read(runs[i].data + REQUEST_LENGTH_BYTES, size + 20, &message, &err),
            ERROR_NONE);
        request_message_deinit(&message);
        buffer_deinit(&runs[i]);
    }
}

static void test_what_is_refused(void **state)
{
    (void)state;
    const struct request good = make_request();
    struct request request = good;
    struct error err = {0};
    const int32_t outside[] = {LIMIT_VOCAB};
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_NONE);
    request.prompt = outside;
    request.n_prompt = 1;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    request = good;
    request.n_prompt = LIMIT_CONTEXT + 1;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    request = good;
    request.n_stop_tokens = LIMIT_STOP_TOKENS + 1;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    request = good;
    request.sampler.n_biases = LIMIT_LOGIT_BIAS + 1;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    request = good;
    request.n_top_logprobs = LIMIT_TOP_LOGPROBS + 1;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    request = good;
    request.sampler.top_p = NAN;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "top_p"));
    request = good;
    request.embeddings = true;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    request.n_predict = 0;
    request.want_all_logits = true;
    assert_int_equal(request_check(&request, LIMIT_VOCAB, &err), ERROR_INVALID);
    unsigned char bytes[16] = {0};
    struct bytes_reader reader = {bytes, 3, false};
    const void *message;
    size_t size;
    assert_int_equal(request_next(&reader, &message, &size, &err), ERROR_NONE); /* not whole */
    assert_null(message);
    assert_int_equal(reader.left, 3);
    bytes_store(bytes, 4, LIMIT_REQUEST_BYTES + 1);
    reader.left = 16;
    assert_int_equal(request_next(&reader, &message, &size, &err), ERROR_INVALID);
    bytes_store(bytes, 4, 13);
    assert_int_equal(request_next(&reader, &message, &size, &err),
                     ERROR_NONE); /* one byte is missing */
    assert_null(message);
    bytes[0] = 200; /* a kind of a newer version */
    struct request_message newer;
    assert_int_equal(request_read(bytes, sizeof bytes, &newer, &err), ERROR_NONE);
    assert_int_equal(newer.kind, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_request),
        cmocka_unit_test(test_pictures),
        cmocka_unit_test(test_pictures_too_large),
        cmocka_unit_test(test_a_grammar),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_tokens_share_a_message),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
