/* Messages as JSON, and JSON as messages: a field is the member of its name. In a field whose name
 * ends in `_json` is the member's JSON itself, as text; in one called `document_json` the whole
 * object. Members that no field is for are left out, and so are nulls.
 *
 * Pure; fuzzed. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <protobuf-c/protobuf-c.h>
#include <yyjson.h>

/* The fields that `message` has, as members of `object`. ERROR_INVALID names the field: what is in
 * a `_json` is none, or a text is no UTF-8. */
enum error_code transcode_to_json(const ProtobufCMessage *message, yyjson_mut_doc *doc,
                                  yyjson_mut_val *object, struct error *err);

/* The object as an encoded message of that kind, appended. A member of another type than its
 * field's is left out. out->failed without memory. */
void transcode_from_json(yyjson_val *object, const ProtobufCMessageDescriptor *kind,
                         struct buffer *out);
/* The message whose one field is that of the member `name`, which is `value`. False: there is none.
 */
bool transcode_from_member(const char *name, yyjson_val *value,
                           const ProtobufCMessageDescriptor *kind, struct buffer *out);
