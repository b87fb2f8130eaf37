#include "clusterfile/cluster_file_parts.h"

#include "placement/problem.h"

#include <string.h>

const struct sim_range cluster_bandwidth_range = {1e3, 1e15, "1KB/s to 1000TB/s"};
const struct sim_range cluster_flops_range = {1e6, 1e18, "1MFLOP/s to 1000PFLOP/s"};
const struct sim_range cluster_launch_range = {0, 10, "0s to 10s"};
static const struct sim_range memory_range = {0x1p20, PLACEMENT_BYTES_MAX, "1MiB to 1024TiB"};

enum error_code cluster_read_name(yyjson_val *value, char *out, size_t size,
                                  const struct json_place *place, struct error *err)
{
    const enum error_code code = json_read_text(value, out, size, place, err);
    for (const char *at = out; !code && *at; at++) {
        if (*at <= ' ' || *at > '~' || *at == '/' || *at == ',')
            return json_wrong(place, err,
                              "'%s': only letters, digits and signs but '/' and ',' are possible",
                              json_show(value).text);
    }
    return code;
}

enum error_code cluster_read_amount(yyjson_val *value, enum sim_unit unit, struct sim_range range,
                                    double *out, const struct json_place *place, struct error *err)
{
    char at[160];
    if (yyjson_is_num(value))
        return json_wrong(place, err, "a number says no unit: write it as a text, such as %s",
                          unit == SIM_BYTES     ? "\"24GiB\""
                          : unit == SIM_FLOPS   ? "\"20TFLOP/s\""
                          : unit == SIM_SECONDS ? "\"20us\""
                                                : "\"400GB/s\" or \"2.5Gb/s\"");
    if (!yyjson_is_str(value))
        return json_wrong(place, err, "must be a text with a number and its unit");
    json_place_text(place, at, sizeof at);
    return sim_value_parse(at, (struct sim_text){yyjson_get_str(value), yyjson_get_len(value)},
                           unit, range, out, err);
}

enum error_code cluster_read_bytes(yyjson_val *value, uint64_t *out, const struct json_place *place,
                                   struct error *err)
{
    double bytes;
    const enum error_code code =
        cluster_read_amount(value, SIM_BYTES, memory_range, &bytes, place, err);
    if (!code)
        *out = (uint64_t)bytes;
    return code;
}
