#include "gpu/details.h"

#include "gpu/driver_faults.h"

#include <stdio.h>

void details_set_text(char *text, size_t size, const char *said)
{
    if (text[0])
        return;
    snprintf(text, size, "%s", said);
    for (; *text; text++) {
        if (*text < ' ' || *text > '~')
            *text = '?';
    }
}

void details_set_number(struct reading *reading, enum unit unit, uint64_t value)
{
    if (!reading->valid)
        *reading = reading_of(unit, (double)value);
}

void details_fill(const struct details_places *places, struct device_info *const *infos,
                  uint32_t count)
{
    static const struct details_places own;
    places = places ? places : &own;
    details_fill_nvidia(places, infos, count);
    for (uint32_t i = 0; i < count; i++)
        details_fill_kernel(places, infos[i]);
    details_fill_vulkan(places, infos, count);
    for (uint32_t i = 0; i < count; i++)
        driver_fault_find(infos[i], infos[i]->driver_fault, sizeof infos[i]->driver_fault);
}
