/* base/merge_patch.h: what it makes, applied by yyjson, gives the new value. */
#include "base/merge_patch.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static yyjson_mut_val *read_value(yyjson_mut_doc *doc, const char *text)
{
    yyjson_doc *read = yyjson_read(text, strlen(text), 0);
    assert_non_null(read);
    yyjson_mut_val *value = yyjson_val_mut_copy(doc, yyjson_doc_get_root(read));
    yyjson_doc_free(read);
    return value;
}

static char *text_of(yyjson_mut_val *value)
{
    return value ? yyjson_mut_val_write(value, 0, NULL) : NULL;
}

static void check_patch(const char *from, const char *to, const char *wanted)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *patch;
    assert_true(merge_patch_make(doc, read_value(doc, from), read_value(doc, to), &patch));
    char *text = text_of(patch);
    if (wanted)
        assert_string_equal(text, wanted);
    else
        assert_null(text);
    free(text);
    yyjson_mut_doc_free(doc);
}

static void test_the_patch_is_the_difference(void **state)
{
    check_patch("{\"a\":1}", "{\"a\":1}", NULL);
    check_patch("{\"a\":1}", "{\"a\":2}", "{\"a\":2}");
    check_patch("{\"a\":1}", "{\"a\":1,\"b\":{\"c\":2}}", "{\"b\":{\"c\":2}}");
    check_patch("{\"a\":1,\"b\":2}", "{\"b\":2}", "{\"a\":null}");
    check_patch("{\"a\":{\"b\":1,\"c\":2}}", "{\"a\":{\"b\":1,\"c\":3}}", "{\"a\":{\"c\":3}}");
    check_patch("{\"a\":[1,2]}", "{\"a\":[1,3]}", "{\"a\":[1,3]}");
    check_patch("{\"a\":{\"b\":1}}", "{\"a\":{}}", "{\"a\":{\"b\":null}}");
    check_patch("{\"a\":1}", "{\"a\":{}}", "{\"a\":{}}");
    check_patch("{\"a\":{\"b\":1}}", "{\"a\":7}", "{\"a\":7}");
    check_patch("[1]", "[2]", "[2]");
}

static void test_a_null_member_counts_as_missing(void **state)
{
    check_patch("{\"a\":1}", "{\"a\":null}", "{\"a\":null}");
    check_patch("{}", "{\"a\":null}", NULL);
}

/* ---- at random ---- */

struct patch_seed {
    uint64_t seed, n;
};

static uint64_t draw_number(struct patch_seed *random)
{
    return random_at(random->seed, random->n++);
}

static yyjson_mut_val *draw(yyjson_mut_doc *doc, struct patch_seed *random, int depth)
{
    char key[8];
    const uint64_t kind = draw_number(random) % 6;
    if (kind == 0)
        return yyjson_mut_uint(doc, draw_number(random) % 3);
    if (kind == 1)
        return yyjson_mut_real(doc, (double)(draw_number(random) % 4) / 8);
    if (kind == 2)
        return yyjson_mut_strcpy(doc, draw_number(random) % 2 ? "x" : "");
    if (kind == 3 || depth == 4) {
        yyjson_mut_val *list = yyjson_mut_arr(doc);
        for (uint64_t n = draw_number(random) % 3; n > 0; n--)
            yyjson_mut_arr_add_uint(doc, list, draw_number(random) % 2);
        return list;
    }
    yyjson_mut_val *object = yyjson_mut_obj(doc);
    for (uint64_t n = 0; n < 5; n++) {
        if (draw_number(random) % 3 == 0)
            continue;
        snprintf(key, sizeof key, "k%u", (unsigned)((n + draw_number(random) % 2) % 5));
        yyjson_mut_obj_put(object, yyjson_mut_strcpy(doc, key), draw(doc, random, depth + 1));
    }
    return object;
}

static void check_seed(uint64_t seed)
{
    struct patch_seed random = {seed, 0};
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *from = draw(doc, &random, 0), *to = draw(doc, &random, 0), *patch;
    assert_true(merge_patch_make(doc, from, to, &patch));
    yyjson_mut_val *got = patch ? yyjson_mut_merge_patch(doc, from, patch) : from;
    if (!yyjson_mut_equals(got, to))
        fail_msg("seed %llu: %s and %s give %s, not %s", (unsigned long long)seed, text_of(from),
                 text_of(patch), text_of(got), text_of(to));
    yyjson_mut_doc_free(doc);
}

static void test_applied_it_gives_the_new_value(void **state)
{
    unsigned first = 1, last = 3000;
    const char *seeds = getenv("MEDLEY_SEEDS");
    if (seeds)
        sscanf(seeds, "%u-%u", &first, &last);
    for (unsigned seed = first; seed <= last; seed++)
        check_seed(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_patch_is_the_difference),
        cmocka_unit_test(test_a_null_member_counts_as_missing),
        cmocka_unit_test(test_applied_it_gives_the_new_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
