/* The patch from one JSON value to another, two lines of any bytes: applied to the first it gives
 * the second, and again it gives nothing more to do. */
#include "fuzz.h"

#include "base/merge_patch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static yyjson_mut_val *merged(yyjson_mut_doc *doc, yyjson_mut_val *onto, yyjson_mut_val *patch)
{
    yyjson_mut_val *value = yyjson_mut_merge_patch(doc, onto, patch);
    FUZZ_CHECK(value);
    return value;
}

/* Names that stand twice are not for it, and values deeper than yyjson compares without a stack. */
static bool is_plain(yyjson_mut_val *value, int depth)
{
    yyjson_mut_obj_iter in;
    yyjson_mut_arr_iter list;
    yyjson_mut_val *at;
    if (depth > 64)
        return false;
    yyjson_mut_arr_iter_init(value, &list);
    while ((at = yyjson_mut_arr_iter_next(&list))) {
        if (!is_plain(at, depth + 1))
            return false;
    }
    yyjson_mut_obj_iter_init(value, &in);
    while ((at = yyjson_mut_obj_iter_next(&in))) {
        yyjson_mut_val *member = yyjson_mut_obj_iter_get_val(at);
        const bool is_first =
            yyjson_mut_obj_getn(value, yyjson_mut_get_str(at), yyjson_mut_get_len(at)) == member;
        if (!is_first || !is_plain(member, depth + 1))
            return false;
    }
    return true;
}

static yyjson_mut_val *read_line(yyjson_mut_doc *doc, const char *line, size_t size)
{
    yyjson_doc *read = yyjson_read(line, size, 0);
    yyjson_mut_val *value = read ? yyjson_val_mut_copy(doc, yyjson_doc_get_root(read)) : NULL;
    yyjson_doc_free(read);
    return value && is_plain(value, 0) ? value : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    if (!end || size > 64 * 1024)
        return 0;
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    const size_t first = (size_t)(end - data);
    yyjson_mut_val *from = read_line(doc, (const char *)data, first), *patch = NULL;
    yyjson_mut_val *to = read_line(doc, (const char *)end + 1, size - first - 1);
    if (from && to) {
        /* What a patch can say has no null members in its objects. */
        yyjson_mut_val *sayable = yyjson_mut_is_obj(to) ? merged(doc, yyjson_mut_obj(doc), to) : to;
        FUZZ_CHECK(merge_patch_make(doc, from, to, &patch));
        yyjson_mut_val *got = patch ? merged(doc, from, patch) : from;
        if (patch || !yyjson_mut_is_obj(from))
            FUZZ_CHECK(yyjson_mut_equals(got, sayable));
        FUZZ_CHECK(merge_patch_make(doc, got, to, &patch) && !patch);
    }
    yyjson_mut_doc_free(doc);
    return 0;
}
