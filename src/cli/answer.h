/* Fields of the node's answers. Nothing is believed: a field that is missing or of another type is
 * a failure, which is remembered, so that a command may take many fields and ask once:
 *
 *     struct answer answer = {0};
 *     const char *name = answer_text(&answer, node, "name");
 *     uint64_t bytes = answer_count(&answer, node, "bytes");
 *     if (answer_failed(&answer, &err)) … "the node's answer cannot be understood: 'bytes' is not a
 *     whole number"
 *
 * A text is the document's. It may hold control characters: tables (table.h) and answer_clean()
 * make them harmless. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

struct answer {
    bool failed;
    struct error error;
};

/* Whether something was wrong; the first thing is in *err then, with its code. */
enum error_code answer_failed(const struct answer *answer, struct error *err);

/* They must be there and of the type. After a failure "", 0, false or NULL (which all of these take
 * as an object). */
const char *answer_text(struct answer *answer, yyjson_val *object, const char *key);
uint64_t answer_count(struct answer *answer, yyjson_val *object, const char *key);
double answer_number(struct answer *answer, yyjson_val *object, const char *key);
bool answer_flag(struct answer *answer, yyjson_val *object, const char *key);
yyjson_val *answer_list(struct answer *answer, yyjson_val *object, const char *key);
yyjson_val *answer_object(struct answer *answer, yyjson_val *object, const char *key);

/* These may be null or missing: NULL, or false and *out is 0. */
const char *answer_text_if(struct answer *answer, yyjson_val *object, const char *key);
bool answer_count_if(struct answer *answer, yyjson_val *object, const char *key, uint64_t *out);
yyjson_val *answer_object_if(struct answer *answer, yyjson_val *object, const char *key);

/* What {"error": {"code", "text"}} says; ERROR_NONE when the object has no such member. */
enum error_code answer_error(yyjson_val *root, struct error *err);

/* Appends the text with all that could move the cursor made harmless. */
void answer_clean(struct buffer *out, const char *text);

/* Prints it on stdout for programs, as it came: in many lines, or in one. */
enum error_code answer_print_json(yyjson_doc *doc, bool one_line, struct error *err);
