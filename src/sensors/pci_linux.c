#include "sensors/pci.h"

#include "base/limits.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A hexadecimal field of `min` to `max` digits that ends at `end`; NULL when it is none. */
static const char *parse_field(const char *text, size_t min, size_t max, char end, uint32_t *out)
{
    size_t length = 0;
    uint32_t value = 0;
    for (; isxdigit((unsigned char)text[length]) && length < max; length++) {
        char digit = (char)tolower((unsigned char)text[length]);
        value = value * 16 + (uint32_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (length < min || text[length] != end)
        return NULL;
    *out = value;
    return text + length + 1;
}

bool pci_parse(const char *text, struct pci_address *out)
{
    struct pci_address address;
    text = parse_field(text, 4, 8, ':', &address.domain);
    text = text ? parse_field(text, 2, 2, ':', &address.bus) : NULL;
    text = text ? parse_field(text, 2, 2, '.', &address.device) : NULL;
    text = text ? parse_field(text, 1, 1, 0, &address.function) : NULL;
    if (!text || address.device > 0x1f || address.function > 7)
        return false;
    *out = address;
    return true;
}

void pci_name(const struct pci_address *address, char name[PCI_NAME_BYTES])
{
    snprintf(name, PCI_NAME_BYTES, "%04x:%02x:%02x.%x", address->domain, address->bus,
             address->device, address->function);
}

/* A file such as "vendor": "0x1002". */
static bool read_hex(const struct sysfs *fs, const char *name, const char *file, unsigned long *out)
{
    char text[32];
    if (sysfs_text(fs, text, sizeof text, "sys/bus/pci/devices/%s/%s", name, file) ||
        strncmp(text, "0x", 2) != 0)
        return false;
    char *end;
    *out = strtoul(text, &end, 16);
    return *end == 0 && end > text + 2;
}

bool pci_find(const struct sysfs *fs, const char *text, enum pci_vendor vendor,
              char name[PCI_NAME_BYTES])
{
    struct pci_address address;
    unsigned long found;
    if (!pci_parse(text, &address))
        return false;
    pci_name(&address, name);
    return read_hex(fs, name, "vendor", &found) && found == (unsigned long)vendor;
}

bool pci_driver_runs(const struct sysfs *fs, const char *driver)
{
    char folder[64], names[LIMIT_SENSOR_ENTRIES][SYSFS_NAME_BYTES];
    snprintf(folder, sizeof folder, "sys/bus/pci/drivers/%s", driver);
    uint32_t n = sysfs_list(fs, folder, "", names, LIMIT_SENSOR_ENTRIES);
    struct pci_address address;
    for (uint32_t i = 0; i < n; i++) {
        if (pci_parse(names[i], &address))
            return true;
    }
    return false;
}

uint32_t pci_count_displays(const struct sysfs *fs, enum pci_vendor vendor,
                            char name[PCI_NAME_BYTES])
{
    char names[LIMIT_SENSOR_ENTRIES][SYSFS_NAME_BYTES];
    uint32_t n = sysfs_list(fs, "sys/bus/pci/devices", "", names, LIMIT_SENSOR_ENTRIES);
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct pci_address address;
        unsigned long found, class;
        if (!pci_parse(names[i], &address) || !read_hex(fs, names[i], "vendor", &found) ||
            found != (unsigned long)vendor || !read_hex(fs, names[i], "class", &class) ||
            class >> 16 != 0x03)
            continue;
        if (!count++)
            pci_name(&address, name);
    }
    return count;
}
