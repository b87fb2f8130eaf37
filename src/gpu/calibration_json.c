#include "gpu/calibration_json.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- strict reading -------------------------------------------------------------------- */

static bool is_kind(yyjson_val *value, enum json_kind kind)
{
    switch (kind) {
    case JSON_TEXT:
        return yyjson_is_str(value);
    case JSON_COUNT:
        return yyjson_is_uint(value);
    case JSON_NUMBER:
        return yyjson_is_num(value);
    case JSON_OBJECT:
        return yyjson_is_obj(value);
    case JSON_TRUE:
        return yyjson_is_true(value);
    case JSON_OBJECT_OR_NULL:
        return yyjson_is_obj(value) || yyjson_is_null(value);
    case JSON_ARRAY:
        return yyjson_is_arr(value);
    }
    return false;
}

bool json_fields(yyjson_val *object, const struct calibration_field *fields, uint32_t count)
{
    assert(count <= 16);
    if (!yyjson_is_obj(object) || yyjson_obj_size(object) != count)
        return false;
    unsigned seen = 0;
    yyjson_obj_iter iter = yyjson_obj_iter_with(object);
    for (yyjson_val *key; (key = yyjson_obj_iter_next(&iter));) {
        uint32_t i = 0;
        while (i < count && !yyjson_equals_str(key, fields[i].name))
            i++;
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        if (i == count || seen & 1u << i || !is_kind(value, fields[i].kind))
            return false;
        seen |= 1u << i;
        *fields[i].value = value;
    }
    return true; /* as many as there are, and none twice: all */
}

bool json_copy_text(yyjson_val *value, char *out, size_t size)
{
    size_t length = yyjson_get_len(value);
    const char *text = yyjson_get_str(value);
    if (!text || length >= size)
        return false;
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return false;
    }
    memcpy(out, text, length);
    out[length] = 0;
    return true;
}

/* ---- measurements ---------------------------------------------------------------------- */

static yyjson_mut_val *measurement_to_json(yyjson_mut_doc *doc,
                                           struct device_measurement measurement)
{
    if (measurement.n_runs == 0)
        return yyjson_mut_null(doc);
    yyjson_mut_val *object = yyjson_mut_obj(doc);
    yyjson_mut_obj_add_real(doc, object, "median", measurement.median);
    yyjson_mut_obj_add_real(doc, object, "spread", measurement.spread);
    yyjson_mut_obj_add_uint(doc, object, "runs", measurement.n_runs);
    return object;
}

static bool measurement_from_json(yyjson_val *value, struct device_measurement *out)
{
    *out = (struct device_measurement){0};
    if (yyjson_is_null(value))
        return true;
    yyjson_val *median, *spread, *runs;
    const struct calibration_field fields[] = {{"median", JSON_NUMBER, &median},
                                               {"spread", JSON_NUMBER, &spread},
                                               {"runs", JSON_COUNT, &runs}};
    if (!json_fields(value, fields, 3))
        return false;
    uint64_t n_runs = yyjson_get_uint(runs);
    *out = (struct device_measurement){yyjson_get_num(median), yyjson_get_num(spread),
                                       (uint32_t)n_runs};
    /* nothing computes 10^18 of anything in a second yet, and the negation finds what is not a
     * number too */
    return n_runs > 0 && n_runs <= UINT32_MAX && out->median > 0 && out->median < 1e18 &&
           out->spread >= 0 && out->spread < 1e18;
}

static bool add_measurement(yyjson_mut_doc *doc, yyjson_mut_val *object, const char *key,
                            struct device_measurement measurement)
{
    return yyjson_mut_obj_add_val(doc, object, key, measurement_to_json(doc, measurement));
}

/* ---- a calibration --------------------------------------------------------------------- */

yyjson_mut_val *calibration_to_json(yyjson_mut_doc *doc,
                                    const struct device_calibration *calibration)
{
    yyjson_mut_val *object = yyjson_mut_obj(doc);
    bool ok = yyjson_mut_obj_add_uint(doc, object, "unix_s", calibration->unix_s) &&
              (!calibration->is_short || yyjson_mut_obj_add_bool(doc, object, "short", true));
    yyjson_mut_val *types = yyjson_mut_obj_add_arr(doc, object, "types");
    for (uint32_t i = 0; ok && i < calibration->n_types; i++) {
        const struct calibration_type *type = &calibration->types[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, types);
        ok = yyjson_mut_obj_add_strcpy(doc, item, "name", type->name) &&
             add_measurement(doc, item, "decode_bytes_per_s", type->decode_bytes_per_s) &&
             add_measurement(doc, item, "prefill_flops", type->prefill_flops);
    }
    ok = ok && add_measurement(doc, object, "write_bytes_per_s", calibration->write_bytes_per_s) &&
         add_measurement(doc, object, "read_bytes_per_s", calibration->read_bytes_per_s) &&
         add_measurement(doc, object, "launch_ns", calibration->launch_ns);
    yyjson_mut_val *peers = yyjson_mut_obj_add_arr(doc, object, "peers");
    for (uint32_t i = 0; ok && i < calibration->n_peers; i++) {
        const struct calibration_peer *peer = &calibration->peers[i];
        yyjson_mut_val *item = yyjson_mut_arr_add_obj(doc, peers);
        ok = yyjson_mut_obj_add_strcpy(doc, item, "id", peer->id) &&
             yyjson_mut_obj_add_strcpy(doc, item, "name", peer->name) &&
             add_measurement(doc, item, "bytes_per_s", peer->bytes_per_s);
    }
    return ok && types && peers ? object : NULL;
}

/* ggml's names: letters, digits, underscores. */
static bool is_type_name(const char *name)
{
    return name[0] &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

static bool calibration_json_read_types(yyjson_val *array, struct device_calibration *out)
{
    if (yyjson_arr_size(array) > CALIBRATION_TYPES_MAX)
        return false;
    size_t i, count;
    yyjson_val *item;
    yyjson_arr_foreach(array, i, count, item)
    {
        struct calibration_type *type = &out->types[i];
        yyjson_val *name, *decode, *prefill;
        const struct calibration_field fields[] = {
            {"name", JSON_TEXT, &name},
            {"decode_bytes_per_s", JSON_OBJECT_OR_NULL, &decode},
            {"prefill_flops", JSON_OBJECT_OR_NULL, &prefill}};
        if (!json_fields(item, fields, 3) || !json_copy_text(name, type->name, sizeof type->name) ||
            !is_type_name(type->name) ||
            !measurement_from_json(decode, &type->decode_bytes_per_s) ||
            !measurement_from_json(prefill, &type->prefill_flops))
            return false;
        for (size_t k = 0; k < i; k++) {
            if (strcmp(out->types[k].name, type->name) == 0)
                return false;
        }
        out->n_types++;
    }
    return true;
}

static bool read_peers(yyjson_val *array, struct device_calibration *out)
{
    if (yyjson_arr_size(array) > CALIBRATION_PEERS_MAX)
        return false;
    size_t i, count;
    yyjson_val *item;
    yyjson_arr_foreach(array, i, count, item)
    {
        struct calibration_peer *peer = &out->peers[i];
        yyjson_val *id, *name, *rate;
        const struct calibration_field fields[] = {{"id", JSON_TEXT, &id},
                                                   {"name", JSON_TEXT, &name},
                                                   {"bytes_per_s", JSON_OBJECT_OR_NULL, &rate}};
        if (!json_fields(item, fields, 3) || !json_copy_text(id, peer->id, sizeof peer->id) ||
            !json_copy_text(name, peer->name, sizeof peer->name) ||
            !measurement_from_json(rate, &peer->bytes_per_s))
            return false;
        out->n_peers++;
    }
    return true;
}

bool calibration_from_json(yyjson_val *value, struct device_calibration *out)
{
    *out = (struct device_calibration){0};
    yyjson_val *time, *types, *writing, *reading, *launch, *peers, *is_short = NULL;
    const struct calibration_field fields[] = {
        {"unix_s", JSON_COUNT, &time},
        {"types", JSON_ARRAY, &types},
        {"write_bytes_per_s", JSON_OBJECT_OR_NULL, &writing},
        {"read_bytes_per_s", JSON_OBJECT_OR_NULL, &reading},
        {"launch_ns", JSON_OBJECT_OR_NULL, &launch},
        {"peers", JSON_ARRAY, &peers},
        {"short", JSON_TRUE, &is_short}, /* last: only there where it is so */
    };
    if (!json_fields(value, fields, yyjson_obj_get(value, "short") ? 7 : 6))
        return false;
    out->is_short = is_short;
    out->unix_s = yyjson_get_uint(time);
    return calibration_json_read_types(types, out) && read_peers(peers, out) &&
           measurement_from_json(writing, &out->write_bytes_per_s) &&
           measurement_from_json(reading, &out->read_bytes_per_s) &&
           measurement_from_json(launch, &out->launch_ns);
}
