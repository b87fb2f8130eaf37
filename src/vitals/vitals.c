#include "vitals/vitals.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what there is --------------------------------------------------------------------------- */

void vitals_clear_device(struct vitals_device *device, const char *id)
{
    *device = (struct vitals_device){0};
    snprintf(device->id, sizeof device->id, "%s", id);
#define VITALS_FORGET(name, ...) device->name = VITALS_UNKNOWN;
    VITALS_OF_DEVICE(VITALS_FORGET)
#undef VITALS_FORGET
}

void vitals_clear(struct vitals *vitals)
{
    vitals->n_devices = 0;
#define VITALS_FORGET(name, ...) vitals->name = VITALS_UNKNOWN;
    VITALS_OF_NODE(VITALS_FORGET)
#undef VITALS_FORGET
}

const struct vitals_device *vitals_device_of(const struct vitals *vitals, const char *id)
{
    for (uint32_t i = 0; vitals && i < vitals->n_devices; i++) {
        if (strcmp(vitals->devices[i].id, id) == 0)
            return &vitals->devices[i];
    }
    return NULL;
}

int32_t vitals_steps(bool known, double value)
{
    if (!known || !(fabs(value) < INT32_MAX))
        return VITALS_UNKNOWN;
    return (int32_t)lround(value);
}

/* ---- telling --------------------------------------------------------------------------------- */

static bool vitals_differs(int32_t told, int32_t now, int32_t noise, int32_t permille)
{
    if (told == VITALS_UNKNOWN || now == VITALS_UNKNOWN)
        return told != now;
    const int64_t apart = llabs((int64_t)now - told);
    return apart >= noise && apart * 1000 >= llabs((int64_t)told) * permille;
}

/* The numbers of the fields in the messages follow the order of the tables. */
enum {
    VITALS_BIT_BEFORE_DEVICE = 0,
#define VITALS_BIT(name, ...) VITALS_DEVICE_BIT_##name,
    VITALS_OF_DEVICE(VITALS_BIT)
#undef VITALS_BIT
};
enum {
    VITALS_BIT_BEFORE_NODE = 0,
#define VITALS_BIT(name, ...) VITALS_NODE_BIT_##name,
    VITALS_OF_NODE(VITALS_BIT)
#undef VITALS_BIT
};

static bool vitals_tell_device(struct vitals_device *told, const struct vitals_device *now,
                               Node__DeviceVitals *out)
{
    bool any = false;
#define VITALS_TELL(name, noise, permille, ...)                                                    \
    if (vitals_differs(told->name, now->name, noise, permille)) {                                  \
        any = true;                                                                                \
        told->name = now->name;                                                                    \
        out->has_##name = now->name != VITALS_UNKNOWN;                                             \
        out->name = out->has_##name ? now->name : 0;                                               \
        out->lost |= out->has_##name ? 0 : 1u << VITALS_DEVICE_BIT_##name;                         \
    }
    VITALS_OF_DEVICE(VITALS_TELL)
#undef VITALS_TELL
    out->has_lost = out->lost != 0;
    return any;
}

static bool vitals_tell_node(struct vitals *told, const struct vitals *now, Node__Vitals *out)
{
    bool any = false;
#define VITALS_TELL(name, noise, permille, ...)                                                    \
    if (vitals_differs(told->name, now->name, noise, permille)) {                                  \
        any = true;                                                                                \
        told->name = now->name;                                                                    \
        out->has_##name = now->name != VITALS_UNKNOWN;                                             \
        out->name = out->has_##name ? now->name : 0;                                               \
        out->lost |= out->has_##name ? 0 : 1u << VITALS_NODE_BIT_##name;                           \
    }
    VITALS_OF_NODE(VITALS_TELL)
#undef VITALS_TELL
    out->has_lost = out->lost != 0;
    return any;
}

static bool vitals_has_same_devices(const struct vitals *one, const struct vitals *other)
{
    if (one->n_devices != other->n_devices)
        return false;
    for (uint32_t i = 0; i < one->n_devices; i++) {
        if (strcmp(one->devices[i].id, other->devices[i].id) != 0)
            return false;
    }
    return true;
}

static void vitals_begin(struct vitals *told, const struct vitals *now)
{
    vitals_clear(told);
    told->n_devices = now->n_devices;
    for (uint32_t i = 0; i < now->n_devices; i++)
        vitals_clear_device(&told->devices[i], now->devices[i].id);
}

bool vitals_tell(struct vitals *told, const struct vitals *now, bool anew, struct vitals_room *room,
                 Node__Vitals *out)
{
    assert(now->n_devices <= LIMIT_DEVICES);
    anew = anew || !vitals_has_same_devices(told, now);
    node__vitals__init(out);
    out->devices = room->list;
    if (anew)
        vitals_begin(told, now);
    out->has_anew = out->anew = anew;
    for (uint32_t i = 0; i < now->n_devices; i++) {
        Node__DeviceVitals *device = &room->devices[out->n_devices];
        node__device_vitals__init(device);
        if (!vitals_tell_device(&told->devices[i], &now->devices[i], device) && !anew)
            continue;
        device->id = anew ? (char *)(uintptr_t)now->devices[i].id : NULL;
        device->has_at = !anew;
        device->at = i;
        room->list[out->n_devices++] = device;
    }
    const bool of_node = vitals_tell_node(told, now, out);
    return anew || of_node || out->n_devices;
}

/* ---- hearing --------------------------------------------------------------------------------- */

static int32_t vitals_believed(int32_t value, int32_t lowest, int32_t highest)
{
    return value >= lowest && value <= highest ? value : VITALS_UNKNOWN;
}

static void vitals_hear_device(struct vitals_device *device, const Node__DeviceVitals *said)
{
    const uint32_t lost = said->has_lost ? said->lost : 0;
#define VITALS_HEAR(name, noise, permille, lowest, highest)                                        \
    if (said->has_##name)                                                                          \
        device->name = vitals_believed(said->name, lowest, highest);                               \
    else if (lost >> VITALS_DEVICE_BIT_##name & 1)                                                 \
        device->name = VITALS_UNKNOWN;
    VITALS_OF_DEVICE(VITALS_HEAR)
#undef VITALS_HEAR
}

static void vitals_hear_node(struct vitals *vitals, const Node__Vitals *said)
{
    const uint32_t lost = said->has_lost ? said->lost : 0;
#define VITALS_HEAR(name, noise, permille, lowest, highest)                                        \
    if (said->has_##name)                                                                          \
        vitals->name = vitals_believed(said->name, lowest, highest);                               \
    else if (lost >> VITALS_NODE_BIT_##name & 1)                                                   \
        vitals->name = VITALS_UNKNOWN;
    VITALS_OF_NODE(VITALS_HEAR)
#undef VITALS_HEAR
}

static bool vitals_check_anew(const Node__Vitals *said)
{
    if (said->n_devices > LIMIT_DEVICES)
        return false;
    for (size_t i = 0; i < said->n_devices; i++) {
        const char *id = said->devices[i]->id;
        if (!id || !*id || strlen(id) >= VITALS_ID_BYTES)
            return false;
    }
    return true;
}

static bool vitals_check_change(const struct vitals *vitals, const Node__Vitals *said)
{
    for (size_t i = 0; i < said->n_devices; i++) {
        if (!said->devices[i]->has_at || said->devices[i]->at >= vitals->n_devices)
            return false;
    }
    return said->n_devices <= LIMIT_DEVICES;
}

enum error_code vitals_hear(struct vitals *vitals, const Node__Vitals *said, struct error *err)
{
    const bool anew = said->has_anew && said->anew;
    if (anew ? !vitals_check_anew(said) : !vitals_check_change(vitals, said))
        return error_set(
            err, ERROR_INVALID,
            "a node tells of more devices than it can have, or of one it did not name");
    if (anew)
        vitals_clear(vitals);
    for (size_t i = 0; anew && i < said->n_devices; i++)
        vitals_clear_device(&vitals->devices[vitals->n_devices++], said->devices[i]->id);
    for (size_t i = 0; i < said->n_devices; i++)
        vitals_hear_device(&vitals->devices[anew ? i : said->devices[i]->at], said->devices[i]);
    vitals_hear_node(vitals, said);
    return ERROR_NONE;
}
