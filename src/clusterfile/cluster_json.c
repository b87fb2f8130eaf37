#include "clusterfile/cluster_json.h"

#include "base/buffer.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- places and messages --------------------------------------------------------------------- */

void json_place_text(const struct json_place *place, char *text, size_t size)
{
    if (!place || !place->above) {
        snprintf(text, size, "%s", "");
        return;
    }
    json_place_text(place->above, text, size);
    const size_t used = strlen(text);
    if (place->key)
        snprintf(text + used, size - used, "%s%s", used ? "." : "", place->key);
    else
        snprintf(text + used, size - used, "[%zu]", place->index);
}

enum error_code json_wrong(const struct json_place *place, struct error *err, const char *format,
                           ...)
{
    char at[160], text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_place_text(place, at, sizeof at);
    return error_set(err, ERROR_INVALID, "%s%s%s", at, at[0] ? ": " : "", text);
}

struct json_shown json_show(yyjson_val *text)
{
    struct json_shown shown = {0};
    const char *bytes = yyjson_get_str(text);
    const size_t size = yyjson_get_len(text), room = sizeof shown.text - sizeof " …";
    for (size_t i = 0; bytes && i < size && i < room; i++)
        shown.text[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    if (size > room)
        memcpy(shown.text + room, " …", sizeof " …");
    return shown;
}

static const char *cluster_json_kind_of(yyjson_val *value)
{
    if (yyjson_is_str(value))
        return "a text";
    if (yyjson_is_num(value))
        return "a number";
    if (yyjson_is_bool(value))
        return "true or false";
    if (yyjson_is_arr(value))
        return "a list";
    return yyjson_is_obj(value) ? "an object" : "null";
}

/* ---- objects --------------------------------------------------------------------------------- */

/* Letters to change, put in or take out (Levenshtein 1966); names are short. */
static size_t cluster_json_distance(const char *a, const char *b)
{
    enum { MAX = 48 };
    const size_t n_a = strlen(a), n_b = strlen(b);
    size_t row[MAX + 1];
    if (n_a > MAX || n_b > MAX)
        return MAX;
    for (size_t j = 0; j <= n_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            const size_t above = row[j];
            size_t least = diagonal + (a[i - 1] != b[j - 1]);
            least = above + 1 < least ? above + 1 : least;
            row[j] = row[j - 1] + 1 < least ? row[j - 1] + 1 : least;
            diagonal = above;
        }
    }
    return row[n_b];
}

static enum error_code unknown_member(yyjson_val *key, const struct json_member *members,
                                      size_t n_members, const struct json_place *place,
                                      struct error *err)
{
    const struct json_shown name = json_show(key);
    const char *nearest = "";
    size_t least = strlen(name.text) / 2 + 1;
    for (size_t i = 0; i < n_members; i++) {
        const size_t far = cluster_json_distance(name.text, members[i].name);
        if (far < least) {
            least = far;
            nearest = members[i].name;
        }
    }
    if (nearest[0])
        return json_wrong(place, err, "there is no field '%s'; is '%s' meant?", name.text, nearest);
    return json_wrong(place, err, "there is no field '%s'", name.text);
}

enum error_code json_read_object(yyjson_val *value, const struct json_member *members,
                                 size_t n_members, void *into, const struct json_place *place,
                                 uint64_t *seen, struct error *err)
{
    assert(n_members <= 64);
    uint64_t found = 0, filled = 0;
    if (!yyjson_is_obj(value))
        return json_wrong(place, err, "must be an object, not %s", cluster_json_kind_of(value));
    yyjson_obj_iter iter = yyjson_obj_iter_with(value);
    for (yyjson_val *key; (key = yyjson_obj_iter_next(&iter));) {
        size_t i = 0;
        while (i < n_members && !yyjson_equals_str(key, members[i].name))
            i++;
        if (i == n_members)
            return unknown_member(key, members, n_members, place, err);
        if (found & UINT64_C(1) << i)
            return json_wrong(place, err, "the field '%s' is there twice", members[i].name);
        found |= UINT64_C(1) << i;
        yyjson_val *member = yyjson_obj_iter_get_val(key);
        if (yyjson_is_null(member))
            continue;
        filled |= UINT64_C(1) << i;
        const struct json_place below = {.above = place, .key = members[i].name};
        const enum error_code code =
            members[i].read ? members[i].read(into, member, &below, err) : ERROR_NONE;
        if (code)
            return code;
    }
    if (seen)
        *seen = filled;
    return ERROR_NONE;
}

enum error_code json_read_array(yyjson_val *value, json_reader *read, void *into,
                                const struct json_place *place, struct error *err)
{
    if (!yyjson_is_arr(value))
        return json_wrong(place, err, "must be a list, not %s", cluster_json_kind_of(value));
    size_t i, count;
    yyjson_val *element;
    yyjson_arr_foreach(value, i, count, element)
    {
        const struct json_place below = {.above = place, .index = i};
        const enum error_code code = read(into, element, &below, err);
        if (code)
            return code;
    }
    return ERROR_NONE;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum error_code json_read_text(yyjson_val *value, char *out, size_t size,
                               const struct json_place *place, struct error *err)
{
    const char *text = yyjson_get_str(value);
    const size_t length = yyjson_get_len(value);
    if (!text)
        return json_wrong(place, err, "must be a text, not %s", cluster_json_kind_of(value));
    if (!length || length >= size)
        return json_wrong(place, err, "'%s' is %s; 1 to %zu bytes are possible",
                          json_show(value).text, length ? "too long" : "empty", size - 1);
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return json_wrong(place, err, "'%s' has control characters", json_show(value).text);
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return ERROR_NONE;
}

enum error_code json_read_number(yyjson_val *value, double min, double max, double *out,
                                 const struct json_place *place, struct error *err)
{
    const double number = yyjson_get_num(value);
    if (!yyjson_is_num(value))
        return json_wrong(place, err, "must be a number, not %s", cluster_json_kind_of(value));
    if (!(number >= min && number <= max)) /* also what is no number at all */
        return json_wrong(place, err, "%g is out of range: %g to %g are possible", number, min,
                          max);
    *out = number;
    return ERROR_NONE;
}

enum error_code json_read_whole(yyjson_val *value, uint64_t max, uint64_t *out,
                                const struct json_place *place, struct error *err)
{
    if (!yyjson_is_num(value))
        return json_wrong(place, err, "must be a whole number, not %s",
                          cluster_json_kind_of(value));
    const double number = yyjson_get_num(value);
    if (!yyjson_is_uint(value) && !(number >= 0 && number <= 0x1p53 && number == floor(number)))
        return json_wrong(place, err, "%g is no whole number from 0 on", number);
    *out = yyjson_is_uint(value) ? yyjson_get_uint(value) : (uint64_t)number;
    if (*out > max)
        return json_wrong(place, err, "%g is more than %g, the most that is possible", number,
                          (double)max);
    return ERROR_NONE;
}

enum error_code json_read_bool(yyjson_val *value, bool *out, const struct json_place *place,
                               struct error *err)
{
    if (!yyjson_is_bool(value))
        return json_wrong(place, err, "must be true or false, not %s", cluster_json_kind_of(value));
    *out = yyjson_get_bool(value);
    return ERROR_NONE;
}
