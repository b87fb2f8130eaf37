#include "base/merge_patch.h"

#include <assert.h>

/* The member's value in the other object; null counts as missing. */
static yyjson_mut_val *merge_patch_find(yyjson_mut_obj_iter *in, yyjson_mut_val *key)
{
    yyjson_mut_val *value =
        yyjson_mut_obj_iter_getn(in, yyjson_mut_get_str(key), yyjson_mut_get_len(key));
    return yyjson_mut_is_null(value) ? NULL : value;
}

static bool merge_patch_put(yyjson_mut_doc *doc, yyjson_mut_val *patch, yyjson_mut_val *key,
                            yyjson_mut_val *value)
{
    yyjson_mut_val *name = yyjson_mut_val_mut_copy(doc, key);
    return name && value && yyjson_mut_obj_add(patch, name, value);
}

static bool merge_patch_level(yyjson_mut_doc *doc, yyjson_mut_val *from, yyjson_mut_val *to,
                              int depth, yyjson_mut_val **patch);

/* What `from` has and `to` has not is removed. */
static bool merge_patch_remove(yyjson_mut_doc *doc, yyjson_mut_val *from, yyjson_mut_val *to,
                               yyjson_mut_val *patch)
{
    yyjson_mut_obj_iter old, other;
    yyjson_mut_val *key;
    yyjson_mut_obj_iter_init(from, &old);
    yyjson_mut_obj_iter_init(to, &other);
    while ((key = yyjson_mut_obj_iter_next(&old))) {
        if (!merge_patch_find(&other, key) &&
            !merge_patch_put(doc, patch, key, yyjson_mut_null(doc)))
            return false;
    }
    return true;
}

static bool merge_patch_objects(yyjson_mut_doc *doc, yyjson_mut_val *from, yyjson_mut_val *to,
                                int depth, yyjson_mut_val *patch)
{
    yyjson_mut_obj_iter new, other;
    yyjson_mut_val *key, *member;
    if (!merge_patch_remove(doc, from, to, patch))
        return false;
    yyjson_mut_obj_iter_init(to, &new);
    yyjson_mut_obj_iter_init(from, &other);
    while ((key = yyjson_mut_obj_iter_next(&new))) {
        yyjson_mut_val *value = yyjson_mut_obj_iter_get_val(key);
        if (yyjson_mut_is_null(value))
            continue;
        if (!merge_patch_level(doc, merge_patch_find(&other, key), value, depth + 1, &member))
            return false;
        if (member && !merge_patch_put(doc, patch, key, member))
            return false;
    }
    return true;
}

static bool merge_patch_level(yyjson_mut_doc *doc, yyjson_mut_val *from, yyjson_mut_val *to,
                              int depth, yyjson_mut_val **patch)
{
    *patch = NULL;
    if (yyjson_mut_is_obj(from) && yyjson_mut_is_obj(to) && depth < MERGE_PATCH_DEPTH) {
        yyjson_mut_val *found = yyjson_mut_obj(doc);
        if (!found || !merge_patch_objects(doc, from, to, depth, found))
            return false;
        *patch = yyjson_mut_obj_size(found) ? found : NULL;
        return true;
    }
    if (from && yyjson_mut_equals(from, to))
        return true;
    *patch = yyjson_mut_val_mut_copy(doc, to);
    return *patch;
}

bool merge_patch_make(yyjson_mut_doc *doc, yyjson_mut_val *from, yyjson_mut_val *to,
                      yyjson_mut_val **patch)
{
    assert(doc && from && to && patch);
    return merge_patch_level(doc, from, to, 0, patch);
}
