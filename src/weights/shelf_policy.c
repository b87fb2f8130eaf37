#include "weights/shelf_policy.h"

#include <stdio.h>

const char *shelf_bytes_text(uint64_t bytes, char out[SHELF_BYTES_TEXT])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) {
        snprintf(out, SHELF_BYTES_TEXT, "%u bytes", (unsigned)bytes);
        return out;
    }
    double value = (double)bytes / 1024;
    int unit = 0;
    for (; value >= 1024 && unit < 5; unit++)
        value /= 1024;
    snprintf(out, SHELF_BYTES_TEXT, "%.1f %s", value, units[unit]);
    return out;
}

static uint64_t shelf_policy_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t shelf_policy_beyond(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static struct shelf_entry *shelf_policy_oldest(struct shelf_entry *entries, uint32_t n)
{
    struct shelf_entry *found = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!entries[i].in_use && !entries[i].evict &&
            (!found || entries[i].used_ns < found->used_ns))
            found = &entries[i];
    }
    return found;
}

enum error_code shelf_policy_choose(const struct shelf_room *room, struct shelf_entry *entries,
                                    uint32_t n, struct error *err)
{
    uint64_t used = 0, idle = 0;
    for (uint32_t i = 0; i < n; i++) {
        used = shelf_policy_sum(used, entries[i].bytes);
        idle += entries[i].in_use ? 0 : entries[i].bytes;
        entries[i].evict = false;
    }
    uint64_t over_limit =
        room->limit_bytes
            ? shelf_policy_beyond(shelf_policy_sum(used, room->need_bytes), room->limit_bytes)
            : 0;
    uint64_t over_disk = shelf_policy_beyond(shelf_policy_sum(room->need_bytes, room->spare_bytes),
                                             room->free_bytes);
    char need[SHELF_BYTES_TEXT], limit[SHELF_BYTES_TEXT], kept[SHELF_BYTES_TEXT],
        spare[SHELF_BYTES_TEXT];
    shelf_bytes_text(room->need_bytes, need);
    if (over_limit > idle)
        return error_set(err, ERROR_BUSY,
                         "needs %s; the limit for fetched models is %s, of which %s are in use: "
                         "raise the limit or unload a model",
                         need, shelf_bytes_text(room->limit_bytes, limit),
                         shelf_bytes_text(used - idle, kept));
    if (over_disk > idle)
        return error_set(err, ERROR_IO,
                         "the disk is too full: needs %s, %s are free, %s must stay free, and %s "
                         "of fetched models are "
                         "not in use",
                         need, shelf_bytes_text(room->free_bytes, limit),
                         shelf_bytes_text(room->spare_bytes, spare), shelf_bytes_text(idle, kept));
    uint64_t target = over_limit > over_disk ? over_limit : over_disk;
    for (uint64_t freed = 0; freed < target;) {
        struct shelf_entry *entry = shelf_policy_oldest(entries, n);
        entry->evict = true;
        freed += entry->bytes;
    }
    return ERROR_NONE;
}
