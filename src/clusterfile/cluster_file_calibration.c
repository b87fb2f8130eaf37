/* A device's calibration, as gpu/calibration_json.c writes it. A person may leave out what he does
 * not know. */
#include "clusterfile/cluster_file_parts.h"

#include "base/limits.h"

#include <math.h>
#include <string.h>

#define RATE_MAX 1e18

/* ---- measurements ---------------------------------------------------------------------------- */

struct measured {
    double median, spread;
    uint64_t runs;
};

static enum error_code read_median(void *into, yyjson_val *value, const struct json_place *place,
                                   struct error *err)
{
    struct measured *measured = into;
    const enum error_code code =
        json_read_number(value, 0, RATE_MAX, &measured->median, place, err);
    if (!code && !(measured->median > 0))
        return json_wrong(place, err, "a measurement of 0 is none: write null");
    return code;
}

static enum error_code read_spread(void *into, yyjson_val *value, const struct json_place *place,
                                   struct error *err)
{
    return json_read_number(value, 0, RATE_MAX, &((struct measured *)into)->spread, place, err);
}

static enum error_code read_runs(void *into, yyjson_val *value, const struct json_place *place,
                                 struct error *err)
{
    struct measured *measured = into;
    const enum error_code code = json_read_whole(value, UINT32_MAX, &measured->runs, place, err);
    return code || measured->runs
               ? code
               : json_wrong(place, err, "a measurement of 0 runs is none: write null");
}

static enum error_code read_measured(yyjson_val *value, struct measured *out,
                                     const struct json_place *place, struct error *err)
{
    static const struct json_member members[] = {
        {"median", read_median}, {"spread", read_spread}, {"runs", read_runs}};
    uint64_t seen;
    *out = (struct measured){0};
    const enum error_code code = json_read_object(value, members, 3, out, place, &seen, err);
    if (!code && !(seen & 1))
        return json_wrong(place, err, "the median is missing");
    return code;
}

static enum error_code read_rate(yyjson_val *value, double *out, const struct json_place *place,
                                 struct error *err)
{
    struct measured measured;
    const enum error_code code = read_measured(value, &measured, place, err);
    if (!code)
        *out = measured.median;
    return code;
}

/* ---- types ----------------------------------------------------------------------------------- */

static enum error_code read_type_name(void *into, yyjson_val *value, const struct json_place *place,
                                      struct error *err)
{
    struct cluster_type *type = into;
    return json_read_text(value, type->name, sizeof type->name, place, err);
}

static enum error_code read_type_decode(void *into, yyjson_val *value,
                                        const struct json_place *place, struct error *err)
{
    struct cluster_type *type = into;
    struct measured measured;
    const enum error_code code = read_measured(value, &measured, place, err);
    if (!code) {
        type->decode_bytes_per_s = measured.median;
        type->decode_spread = measured.spread;
    }
    return code;
}

static enum error_code read_type_prefill(void *into, yyjson_val *value,
                                         const struct json_place *place, struct error *err)
{
    return read_rate(value, &((struct cluster_type *)into)->prefill_flops, place, err);
}

static enum error_code cluster_calibration_read_type(void *into, yyjson_val *value,
                                                     const struct json_place *place,
                                                     struct error *err)
{
    static const struct json_member members[] = {{"name", read_type_name},
                                                 {"decode_bytes_per_s", read_type_decode},
                                                 {"prefill_flops", read_type_prefill}};
    struct cluster_device *device = into;
    if (device->n_types == CLUSTER_TYPES_MAX)
        return json_wrong(place, err, "more than %d types", CLUSTER_TYPES_MAX);
    struct cluster_type *type = &device->types[device->n_types];
    uint64_t seen;
    *type = (struct cluster_type){0};
    const enum error_code code = json_read_object(value, members, 3, type, place, &seen, err);
    if (code)
        return code;
    if (!(seen & 1))
        return json_wrong(place, err, "the name is missing");
    for (uint32_t i = 0; i < device->n_types; i++) {
        if (!strcmp(device->types[i].name, type->name))
            return json_wrong(place, err, "the type is there twice");
    }
    device->n_types++;
    return ERROR_NONE;
}

/* ---- the calibration ------------------------------------------------------------------------- */

static enum error_code cluster_calibration_read_types(void *into, yyjson_val *value,
                                                      const struct json_place *place,
                                                      struct error *err)
{
    return json_read_array(value, cluster_calibration_read_type, into, place, err);
}

static enum error_code read_writing(void *into, yyjson_val *value, const struct json_place *place,
                                    struct error *err)
{
    return read_rate(value, &((struct cluster_device *)into)->write_bytes_per_s, place, err);
}

static enum error_code read_reading(void *into, yyjson_val *value, const struct json_place *place,
                                    struct error *err)
{
    return read_rate(value, &((struct cluster_device *)into)->read_bytes_per_s, place, err);
}

static enum error_code read_launch(void *into, yyjson_val *value, const struct json_place *place,
                                   struct error *err)
{
    struct measured measured;
    const enum error_code code = read_measured(value, &measured, place, err);
    if (code)
        return code;
    if (measured.median > 10e9)
        return json_wrong(place, err, "%g ns are more than 10 s", measured.median);
    ((struct cluster_device *)into)->launch_s = measured.median * 1e-9;
    return ERROR_NONE;
}

static enum error_code read_time(void *into, yyjson_val *value, const struct json_place *place,
                                 struct error *err)
{
    uint64_t unix_s;
    (void)into;
    return json_read_whole(value, UINT64_C(1) << 53, &unix_s, place, err);
}

/* ---- peers: checked, and not used (the engine's stages hand over through the host's memory) -- */

static enum error_code read_peer_id(void *into, yyjson_val *value, const struct json_place *place,
                                    struct error *err)
{
    char id[CLUSTER_ID_MAX];
    (void)into;
    return json_read_text(value, id, sizeof id, place, err);
}

static enum error_code read_peer_name(void *into, yyjson_val *value, const struct json_place *place,
                                      struct error *err)
{
    char name[160];
    (void)into;
    return json_read_text(value, name, sizeof name, place, err);
}

static enum error_code read_peer_rate(void *into, yyjson_val *value, const struct json_place *place,
                                      struct error *err)
{
    double bytes_per_s;
    (void)into;
    return read_rate(value, &bytes_per_s, place, err);
}

static enum error_code read_peer(void *into, yyjson_val *value, const struct json_place *place,
                                 struct error *err)
{
    static const struct json_member members[] = {
        {"id", read_peer_id}, {"name", read_peer_name}, {"bytes_per_s", read_peer_rate}};
    uint32_t *n_read = into;
    uint64_t seen;
    if (++*n_read > LIMIT_DEVICES)
        return json_wrong(place, err, "more than %d peers", LIMIT_DEVICES);
    const enum error_code code = json_read_object(value, members, 3, NULL, place, &seen, err);
    return code || seen & 1 ? code : json_wrong(place, err, "the id is missing");
}

static enum error_code check_peers(void *into, yyjson_val *value, const struct json_place *place,
                                   struct error *err)
{
    uint32_t n_read = 0;
    (void)into;
    return json_read_array(value, read_peer, &n_read, place, err);
}

enum error_code cluster_read_calibration(struct cluster_device *device, yyjson_val *value,
                                         const struct json_place *place, struct error *err)
{
    static const struct json_member members[] = {
        {"unix_s", read_time},
        {"types", cluster_calibration_read_types},
        {"write_bytes_per_s", read_writing},
        {"read_bytes_per_s", read_reading},
        {"launch_ns", read_launch},
        {"peers", check_peers},
    };
    return json_read_object(value, members, sizeof members / sizeof *members, device, place, NULL,
                            err);
}
