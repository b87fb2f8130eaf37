/* Reading JSON strictly: objects of known fields, values of known kinds, and errors that begin with
 * the place, such as "nodes[1].devices[0].memory: …". A null is as if the field were not there.
 * Private to the cluster file's reader. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

/* Where a value stands; lives on the stack of who reads it. The root's is zeroed. */
struct json_place {
    const struct json_place *above;
    const char *key; /* NULL: an element, the index-th */
    size_t index;
};

/* ERROR_INVALID: the place, then the text. Foreign text in it goes through json_show(). */
enum error_code json_wrong(const struct json_place *place, struct error *err, const char *format,
                           ...) __attribute__((format(printf, 3, 4)));
void json_place_text(const struct json_place *place, char *text, size_t size);

/* A text of the file as a message can show it: short, and printable. */
struct json_shown {
    char text[48];
};
struct json_shown json_show(yyjson_val *text);

/* ---- objects and lists ---------------------------------------------------------------------- */

struct json_member;
typedef enum error_code json_reader(void *into, yyjson_val *value, const struct json_place *place,
                                    struct error *err);

/* A field that may be there. `read` NULL: known, and not looked at. */
struct json_member {
    const char *name;
    json_reader *read;
};

/* Calls the readers in the order of the object. Refuses what is no object, unknown fields (with the
 * nearest known name) and a field that is there twice. *seen has a bit for each member that was
 * there and not null; may be NULL. At most 64 members. */
enum error_code json_read_object(yyjson_val *value, const struct json_member *members,
                                 size_t n_members, void *into, const struct json_place *place,
                                 uint64_t *seen, struct error *err);

/* An array, `read` for each of its elements. */
enum error_code json_read_array(yyjson_val *value, json_reader *read, void *into,
                                const struct json_place *place, struct error *err);

/* ---- values ---------------------------------------------------------------------------------- */

/* size counts the NUL. Refuses an empty text and control characters. */
enum error_code json_read_text(yyjson_val *value, char *out, size_t size,
                               const struct json_place *place, struct error *err);
enum error_code json_read_number(yyjson_val *value, double min, double max, double *out,
                                 const struct json_place *place, struct error *err);
enum error_code json_read_whole(yyjson_val *value, uint64_t max, uint64_t *out,
                                const struct json_place *place, struct error *err);
enum error_code json_read_bool(yyjson_val *value, bool *out, const struct json_place *place,
                               struct error *err);
