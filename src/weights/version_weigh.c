#include "weights/version_weigh.h"

#include "base/clock.h"
#include "base/mem.h"
#include "model/weight_type.h"

#include <math.h>
#include <unistd.h>

enum { WEIGH_COLUMNS = 1024, WEIGH_ROWS = 16, WEIGH_NS = 20 * 1000 * 1000 };
#define WEIGH_SOONER 1.2

struct version_times version_weigh(const struct version_rates *rates)
{
    struct version_times times = {INFINITY, INFINITY, false};
    if (rates->came > 0)
        times.smaller_s = (double)rates->smaller_bytes / rates->came;
    if (rates->link > 0 && rates->own > 0)
        times.stored_s =
            (double)rates->stored_bytes / rates->link + (double)rates->made_bytes / rates->own;
    times.is_stored_sooner =
        times.smaller_s < INFINITY && WEIGH_SOONER * times.stored_s < times.smaller_s;
    return times;
}

double version_own_rate(int type)
{
    const uint64_t row_bytes = weight_type_row_bytes(type, WEIGH_COLUMNS);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    float *rows = mem_new_array(WEIGH_COLUMNS * WEIGH_ROWS, sizeof *rows);
    float *scratch = mem_new_array(WEIGH_COLUMNS * WEIGH_ROWS, sizeof *scratch);
    uint8_t *out = mem_new_array(WEIGH_ROWS, row_bytes);
    uint32_t seed = 1, n = 0;
    int floats = 0;
    for (int i = 0; rows && i < WEIGH_COLUMNS * WEIGH_ROWS; i++) {
        seed = seed * 1664525 + 1013904223;
        rows[i] = (float)(seed >> 8) / (1 << 24) - 0.5f;
    }
    const uint64_t begun_ns = clock_now_ns();
    bool ok = rows && scratch && out && !weight_type_find("f32", &floats, NULL);
    while (ok && clock_now_ns() - begun_ns < WEIGH_NS) {
        ok =
            !weight_type_convert(floats, rows, type, out, WEIGH_ROWS, WEIGH_COLUMNS, scratch, NULL);
        n++;
    }
    const double took_s = (double)(clock_now_ns() - begun_ns) / 1e9;
    mem_free(rows);
    mem_free(scratch);
    mem_free(out);
    return ok && took_s > 0
               ? (double)(n * WEIGH_ROWS * row_bytes) / took_s * (double)(online > 0 ? online : 1)
               : 0;
}
