/* gguf: values of keys, their conversions and the refusals that name the key. */
#include "gguf_bytes.h"
#include "model/gguf_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct fixture {
    struct gguf_bytes bytes;
    struct gguf_file *file;
};

static int open_fixture(void **state)
{
    static struct fixture fixture;
    struct gguf_bytes *b = &fixture.bytes;
    gguf_bytes_u8(b, "u8", 200);
    gguf_bytes_i8(b, "i8", -5);
    gguf_bytes_u16(b, "u16", 60000);
    gguf_bytes_i16(b, "i16", 300);
    gguf_bytes_u32(b, "u32", UINT32_MAX);
    gguf_bytes_i32(b, "i32", INT32_MIN);
    gguf_bytes_u64(b, "u64", 7);
    gguf_bytes_u64(b, "u64 large", 1ULL << 32);
    gguf_bytes_i64(b, "i64", UINT32_MAX);
    gguf_bytes_i64(b, "i64 negative", -1);
    gguf_bytes_f32(b, "f32", 1e-6f);
    gguf_bytes_f32(b, "f32 nan", NAN);
    gguf_bytes_f64(b, "f64", 0.5);
    gguf_bytes_f64(b, "f64 large", 1e300);
    gguf_bytes_bool(b, "bool", true);
    gguf_bytes_bool(b, "bool no", false);
    gguf_bytes_text(b, "text", "hello");
    gguf_bytes_text(b, "text empty", "");
    gguf_bytes_text_sized(b, "text nul", "a\0b", 3);
    gguf_bytes_array(b, "u32s", GGUF_TYPE_UINT32, (uint32_t[]){1, 2, UINT32_MAX}, 3, 4);
    gguf_bytes_array(b, "i32s", GGUF_TYPE_INT32, (int32_t[]){-1, 5}, 2, 4);
    gguf_bytes_array(b, "i8s", GGUF_TYPE_INT8, (int8_t[]){-128, 127}, 2, 1);
    gguf_bytes_array(b, "u64s", GGUF_TYPE_UINT64, (uint64_t[]){1, UINT32_MAX}, 2, 8);
    gguf_bytes_array(b, "u64s large", GGUF_TYPE_UINT64, (uint64_t[]){1, 1ULL << 32}, 2, 8);
    gguf_bytes_array(b, "i64s small", GGUF_TYPE_INT64, (int64_t[]){INT32_MIN, INT32_MIN - 1LL}, 2,
                     8);
    gguf_bytes_array(b, "f32s", GGUF_TYPE_FLOAT32, (float[]){0.25f, -INFINITY}, 2, 4);
    gguf_bytes_array(b, "f32s nan", GGUF_TYPE_FLOAT32, (float[]){0.25f, NAN}, 2, 4);
    gguf_bytes_array(b, "f64s", GGUF_TYPE_FLOAT64, (double[]){0.75}, 1, 8);
    gguf_bytes_array(b, "bools", GGUF_TYPE_BOOL, (uint8_t[]){0, 1, 2}, 3, 1);
    gguf_bytes_array(b, "none", GGUF_TYPE_UINT32, "", 0, 4);
    gguf_bytes_texts(b, "texts", (const char *[]){"one", "", "three"}, 3);
    gguf_bytes_texts(b, "texts none", NULL, 0);
    const struct buffer *whole = gguf_bytes_finish(b);
    *state = &fixture;
    return (int)gguf_file_open_memory(whole->data, whole->size, &fixture.file, NULL);
}

static int close_fixture(void **state)
{
    struct fixture *fixture = *state;
    gguf_file_close(fixture->file);
    gguf_bytes_deinit(&fixture->bytes);
    return 0;
}

static const struct gguf_file *file_of(void **state)
{
    return ((struct fixture *)*state)->file;
}

static void test_integers_of_any_width(void **state)
{
    static const struct {
        const char *key;
        uint32_t value;
    } cases[] = {{"u8", 200},         {"u16", 60000}, {"i16", 300},
                 {"u32", UINT32_MAX}, {"u64", 7},     {"i64", UINT32_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t value = 0;
        assert_int_equal(gguf_file_u32(file_of(state), cases[i].key, &value, NULL), ERROR_NONE);
        assert_int_equal(value, cases[i].value);
    }
}

static void test_integers_refused(void **state)
{
    static const struct {
        const char *key;
        enum error_code code;
        const char *text;
    } cases[] = {
        {"i8", ERROR_INVALID, "key 'i8' is -5; it must not be negative"},
        {"i32", ERROR_INVALID, "key 'i32' is -2147483648; it must not be negative"},
        {"i64 negative", ERROR_INVALID, "key 'i64 negative' is -1; it must not be negative"},
        {"u64 large", ERROR_INVALID, "key 'u64 large' is 4294967296; it must fit in 32 bits"},
        {"f32", ERROR_INVALID, "key 'f32' must be an integer, but is f32"},
        {"bool", ERROR_INVALID, "key 'bool' must be an integer, but is bool"},
        {"text", ERROR_INVALID, "key 'text' must be an integer, but is str"},
        {"u32s", ERROR_INVALID, "key 'u32s' must be an integer, but is an array of u32"},
        {"nothing", ERROR_NOT_FOUND, "key 'nothing' is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t value = 42;
        struct error err = {0};
        assert_int_equal(gguf_file_u32(file_of(state), cases[i].key, &value, &err), cases[i].code);
        assert_string_equal(err.text, cases[i].text);
        assert_int_equal(value, 42);
    }
}

static void test_floats(void **state)
{
    float value = 0;
    struct error err;
    assert_int_equal(gguf_file_f32(file_of(state), "f32", &value, NULL), ERROR_NONE);
    assert_true(value == 1e-6f);
    assert_int_equal(gguf_file_f32(file_of(state), "f64", &value, NULL), ERROR_NONE);
    assert_true(value == 0.5f);
    assert_int_equal(gguf_file_f32(file_of(state), "f32 nan", &value, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "'f32 nan'"));
    assert_non_null(strstr(err.text, "must be a finite f32"));
    assert_int_equal(gguf_file_f32(file_of(state), "f64 large", &value, &err), ERROR_INVALID);
    assert_string_equal(err.text, "key 'f64 large' is 1e+300; it must be a finite f32");
    assert_int_equal(gguf_file_f32(file_of(state), "u32", &value, &err), ERROR_INVALID);
    assert_int_equal(gguf_file_f32(file_of(state), "absent", &value, &err), ERROR_NOT_FOUND);
    assert_true(value == 0.5f);
}

static void test_bools_and_texts(void **state)
{
    bool truth = false;
    const char *text;
    size_t size;
    struct error err;
    assert_int_equal(gguf_file_bool(file_of(state), "bool", &truth, NULL), ERROR_NONE);
    assert_true(truth);
    assert_int_equal(gguf_file_bool(file_of(state), "bool no", &truth, NULL), ERROR_NONE);
    assert_false(truth);
    assert_int_equal(gguf_file_bool(file_of(state), "u8", &truth, &err), ERROR_INVALID);
    assert_string_equal(err.text, "key 'u8' must be a bool, but is u8");
    assert_int_equal(gguf_file_text(file_of(state), "text", &text, &size, NULL), ERROR_NONE);
    assert_string_equal(text, "hello");
    assert_int_equal(size, 5);
    assert_int_equal(gguf_file_text(file_of(state), "text empty", &text, &size, NULL), ERROR_NONE);
    assert_string_equal(text, "");
    assert_int_equal(gguf_file_text(file_of(state), "text nul", &text, &size, NULL), ERROR_NONE);
    assert_int_equal(size, 3);
    assert_memory_equal(text, "a\0b", 4);
    assert_int_equal(gguf_file_text(file_of(state), "texts", &text, &size, &err), ERROR_INVALID);
    assert_string_equal(err.text, "key 'texts' must be a text, but is an array of str");
}

static void test_arrays_of_numbers(void **state)
{
    const struct gguf_file *file = file_of(state);
    uint64_t length;
    uint32_t all[3];
    float reals[2];
    assert_int_equal(gguf_file_array(file, "u32s", GGUF_ARRAY_U32, &length, NULL), ERROR_NONE);
    assert_int_equal(length, 3);
    assert_int_equal(gguf_file_array_u32(file, "u32s", 2), UINT32_MAX);
    gguf_file_array_u32s(file, "u32s", all);
    assert_int_equal(all[0], 1);
    assert_int_equal(all[2], UINT32_MAX);
    assert_int_equal(gguf_file_array(file, "i32s", GGUF_ARRAY_U32, &length, NULL), ERROR_NONE);
    assert_int_equal((int32_t)gguf_file_array_u32(file, "i32s", 0), -1);
    assert_int_equal(gguf_file_array(file, "i8s", GGUF_ARRAY_U32, &length, NULL), ERROR_NONE);
    assert_int_equal((int32_t)gguf_file_array_u32(file, "i8s", 0), -128);
    assert_int_equal(gguf_file_array(file, "u64s", GGUF_ARRAY_U32, &length, NULL), ERROR_NONE);
    assert_int_equal(gguf_file_array_u32(file, "u64s", 1), UINT32_MAX);
    assert_int_equal(gguf_file_array(file, "none", GGUF_ARRAY_U32, &length, NULL), ERROR_NONE);
    assert_int_equal(length, 0);
    assert_int_equal(gguf_file_array(file, "f32s", GGUF_ARRAY_F32, &length, NULL), ERROR_NONE);
    assert_true(gguf_file_array_f32(file, "f32s", 0) == 0.25f);
    gguf_file_array_f32s(file, "f32s", reals);
    assert_true(reals[1] == -INFINITY);
    assert_int_equal(gguf_file_array(file, "f64s", GGUF_ARRAY_F32, &length, NULL), ERROR_NONE);
    assert_true(gguf_file_array_f32(file, "f64s", 0) == 0.75f);
    assert_int_equal(gguf_file_array(file, "bools", GGUF_ARRAY_BOOL, &length, NULL), ERROR_NONE);
    assert_false(gguf_file_array_bool(file, "bools", 0));
    assert_true(gguf_file_array_bool(file, "bools", 2));
}

static void test_arrays_refused(void **state)
{
    static const struct {
        const char *key;
        enum gguf_array_kind kind;
        enum error_code code;
        const char *text;
    } cases[] = {
        {"u64s large", GGUF_ARRAY_U32, ERROR_INVALID,
         "key 'u64s large': element 1 does not fit in 32 bits"},
        {"i64s small", GGUF_ARRAY_U32, ERROR_INVALID,
         "key 'i64s small': element 1 does not fit in 32 bits"},
        {"f32s nan", GGUF_ARRAY_F32, ERROR_INVALID, "key 'f32s nan': element 1 is not a number"},
        {"u32", GGUF_ARRAY_U32, ERROR_INVALID,
         "key 'u32' must be an array of integers, but is u32"},
        {"texts", GGUF_ARRAY_U32, ERROR_INVALID,
         "key 'texts' must be an array of integers, but is an array of str"},
        {"u32s", GGUF_ARRAY_F32, ERROR_INVALID,
         "key 'u32s' must be an array of floats, but is an array of u32"},
        {"u32s", GGUF_ARRAY_BOOL, ERROR_INVALID,
         "key 'u32s' must be an array of bools, but is an array of u32"},
        {"u32s", GGUF_ARRAY_TEXT, ERROR_INVALID,
         "key 'u32s' must be an array of texts, but is an array of u32"},
        {"absent", GGUF_ARRAY_TEXT, ERROR_NOT_FOUND, "key 'absent' is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t length = 42;
        struct error err = {0};
        assert_int_equal(
            gguf_file_array(file_of(state), cases[i].key, cases[i].kind, &length, &err),
            cases[i].code);
        assert_string_equal(err.text, cases[i].text);
        assert_int_equal(length, 42);
    }
}

struct collected {
    char text[64];
    uint64_t count;
};

static void collect(void *arg, uint64_t index, const char *text, size_t size)
{
    struct collected *all = arg;
    assert_int_equal(index, all->count++);
    strncat(all->text, text, size);
    strcat(all->text, ";");
}

static void test_arrays_of_texts(void **state)
{
    struct collected all = {0};
    uint64_t length;
    assert_int_equal(gguf_file_array(file_of(state), "texts", GGUF_ARRAY_TEXT, &length, NULL),
                     ERROR_NONE);
    assert_int_equal(length, 3);
    gguf_file_array_texts(file_of(state), "texts", collect, &all);
    assert_int_equal(all.count, 3);
    assert_string_equal(all.text, "one;;three;");
    gguf_file_array_texts(file_of(state), "texts none", collect, &all);
    assert_int_equal(all.count, 3);
}

static void test_values_as_text(void **state)
{
    static const struct {
        const char *key;
        const char *shown;
    } cases[] = {
        {"u8", "200"},
        {"i8", "-5"},
        {"u64 large", "4294967296"},
        {"f64", "0.5"},
        {"bool", "true"},
        {"text", "hello"},
        {"text nul", "a?b"},
        {"u32s", "3 x u32: 1, 2, 4294967295"},
        {"none", "0 x u32:"},
        {"f64s", "1 x f64: 0.75"},
        {"bools", "3 x bool: false, true, true"},
        {"texts", "3 x str: one, , three"},
    };
    const struct gguf_file *file = file_of(state);
    size_t found = 0;
    for (uint64_t k = 0; k < gguf_file_key_count(file); k++) {
        char shown[40];
        const char *key = gguf_file_key(file, k, shown, sizeof shown);
        assert_true(gguf_file_has(file, key));
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            if (strcmp(cases[i].key, key) == 0) {
                assert_string_equal(shown, cases[i].shown);
                found++;
            }
        }
    }
    assert_int_equal(found, sizeof cases / sizeof cases[0]);
}

static void test_values_as_text_are_cut(void **state)
{
    const struct gguf_file *file = file_of(state);
    for (size_t room = 1; room <= 40; room++) {
        for (uint64_t k = 0; k < gguf_file_key_count(file); k++) {
            char shown[41];
            memset(shown, 'x', sizeof shown);
            gguf_file_key(file, k, shown, room);
            assert_true(strnlen(shown, room) < room);
            assert_int_equal(shown[room], 'x');
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_integers_of_any_width),
        cmocka_unit_test(test_integers_refused),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_bools_and_texts),
        cmocka_unit_test(test_arrays_of_numbers),
        cmocka_unit_test(test_arrays_refused),
        cmocka_unit_test(test_arrays_of_texts),
        cmocka_unit_test(test_values_as_text),
        cmocka_unit_test(test_values_as_text_are_cut),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
