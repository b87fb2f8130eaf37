#include "base/size_text.h"

#include <stdio.h>

struct amount_text size_text(uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    struct amount_text out;
    if (bytes < 1024) {
        snprintf(out.text, sizeof out.text, "%u B", (unsigned)bytes);
        return out;
    }
    double n = (double)bytes / 1024;
    int unit = 0;
    while (n >= 1023.95 && unit < 3) { /* what would be written 1024.0 */
        n /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, "%.1f %s", n, units[unit]);
    return out;
}

struct amount_text time_text(double seconds)
{
    struct amount_text out;
    const double ms = 1e3 * seconds;
    if (ms >= 9999.5)
        snprintf(out.text, sizeof out.text, "%.1f s", seconds);
    else if (ms < 0.0995)
        snprintf(out.text, sizeof out.text, "%.0f us", 1e3 * ms);
    else
        snprintf(out.text, sizeof out.text, "%.*f ms", ms < 0.995 ? 2 : ms < 99.95 ? 1 : 0, ms);
    return out;
}

struct amount_text bandwidth_text(double bytes_per_s)
{
    struct amount_text out;
    const double mbit = bytes_per_s * 8e-6;
    if (mbit < 999.5)
        snprintf(out.text, sizeof out.text, "%.3g Mb/s", mbit);
    else
        snprintf(out.text, sizeof out.text, "%.3g Gb/s", mbit * 1e-3);
    return out;
}
