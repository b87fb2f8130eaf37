#include "picture/exif.h"

#include <stdbool.h>
#include <string.h>

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, ENTRY_BYTES = 12, UPRIGHT = 1, TURNS = 8 };

struct exif_reader {
    const uint8_t *bytes;
    size_t size;
    bool is_big; /* the most significant byte first */
};

/* Zero beyond the end. */
static uint32_t exif_number(const struct exif_reader *from, size_t at, uint32_t n)
{
    uint32_t value = 0;
    if (at > from->size || from->size - at < n)
        return 0;
    for (uint32_t i = 0; i < n; i++)
        value = value << 8 | from->bytes[at + (from->is_big ? i : n - 1 - i)];
    return value;
}

uint32_t exif_orientation(const uint8_t *bytes, size_t size)
{
    struct exif_reader from = {bytes, size, false};
    if (size >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0) /* JPEG's begins with that */
        from = (struct exif_reader){bytes + 6, size - 6, false};
    if (from.size < 8)
        return UPRIGHT;
    from.is_big = from.bytes[0] == 'M';
    if (exif_number(&from, 2, 2) != 42)
        return UPRIGHT;
    const size_t directory = exif_number(&from, 4, 4);
    const uint32_t n_entries = exif_number(&from, directory, 2);
    for (uint32_t i = 0; i < n_entries; i++) {
        const size_t at = directory + 2 + (size_t)i * ENTRY_BYTES;
        if (exif_number(&from, at, 2) != TAG_ORIENTATION ||
            exif_number(&from, at + 2, 2) != TYPE_SHORT)
            continue;
        const uint32_t value = exif_number(&from, at + 8, 2);
        return value >= UPRIGHT && value <= TURNS ? value : UPRIGHT;
    }
    return UPRIGHT;
}
