/* JSON Merge Patch (RFC 7396): what turns one JSON value into another.
 *
 * In a patch null means "remove this member". So a value with a null member cannot be said, and
 * here such a member counts as missing: merge_patch_make() gives a patch that turns `from` into
 * `to` without the null members of its objects. Arrays are replaced whole.
 *
 *     patch of {"a": 1, "b": {"c": 2, "d": 3}} to {"b": {"c": 2, "d": 4}}:  {"a": null, "b": {"d":
 * 4}}
 *
 * Members that keep their order are compared in one pass. An object in which a name stands twice is
 * not for this. Pure. Applying is yyjson_mut_merge_patch(). */
#pragma once

#include <yyjson.h>

enum { MERGE_PATCH_DEPTH = 32 }; /* objects in objects that are compared; deeper: replaced whole */

/* In *patch, of `doc` and copied from `to`; NULL: they are the same. False: no memory. */
bool merge_patch_make(yyjson_mut_doc *doc, yyjson_mut_val *from, yyjson_mut_val *to,
                      yyjson_mut_val **patch);
