/* What a node tells of itself and its devices all the time: temperature, power, load and the like,
 * as whole numbers in the steps in which they are told.
 *
 * Told is what differs by more than noise from what was told before (node.Vitals,
 * proto/node.proto): at first, and whenever the reader asks for it, all of it (`anew`). A value
 * that is not known any more is named as such. So a reader that has followed since `anew` has, of
 * every value, one that is right to within its noise.
 *
 * Unknown is VITALS_UNKNOWN, never zero. Zeroed memory is no vitals: vitals_clear() makes an empty
 * one. Pure; one thread. */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "node.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

#define VITALS_UNKNOWN INT32_MIN

enum { VITALS_ID_BYTES = 64 };

/* ROW(name, noise, noise in permille of the value, lowest, highest): told when it differs by both
 * noises or more; outside of lowest … highest it is not believed. d…: tenths. */
#define VITALS_OF_DEVICE(ROW)                                                                      \
    ROW(temperature_dc, 5, 0, -1000, 2000) /* 0.1 C */                                             \
    ROW(use_permille, 20, 0, 0, 1000)      /* of its time, as its driver says */                   \
    ROW(power_dw, 10, 20, 0, 1000000)      /* 0.1 W */                                             \
    ROW(clock_mhz, 25, 20, 0, 1000000)                                                             \
    ROW(free_mib, 1, 5, 0, INT32_MAX)     /* of its memory */                                      \
    ROW(duty_permille, 10, 0, 0, 1000)    /* that its governor gives it */                         \
    ROW(limit_dc, 1, 0, -1000, 2000)      /* that its governor keeps it below */                   \
    ROW(predicted_dc, 10, 0, -1000, 2000) /* in THERMAL_AHEAD_S, at the power of now */            \
    ROW(limit_in_s, 1, 100, 0, 86400)     /* at the power of now; unknown: also never */           \
    ROW(governor, 1, 0, 0, 255)           /* enum thermal_reason */

#define VITALS_OF_NODE(ROW)                                                                        \
    ROW(cpu_permille, 30, 0, 0, 1000)                                                              \
    ROW(memory_mib, 1, 5, 0, INT32_MAX) /* that its processes may have together */                 \
    ROW(memory_free_mib, 1, 10, 0, INT32_MAX)                                                      \
    ROW(pressure_permille, 10, 0, 0, 1000) /* PSI: of the last 10 s, some waited for memory */     \
    ROW(battery_percent, 1, 0, 0, 100)                                                             \
    ROW(charging, 1, 0, 0, 1)                                                                      \
    ROW(uptime_s, 60, 0, 0, INT32_MAX) /* of the process */

struct vitals_device {
    char id[VITALS_ID_BYTES];
#define VITALS_FIELD(name, ...) int32_t name;
    VITALS_OF_DEVICE(VITALS_FIELD)
};

struct vitals {
    uint32_t n_devices;
    struct vitals_device devices[LIMIT_DEVICES];
    VITALS_OF_NODE(VITALS_FIELD)
#undef VITALS_FIELD
};

void vitals_clear(struct vitals *vitals); /* nothing is known, and there are no devices */
void vitals_clear_device(struct vitals_device *device, const char *id);
const struct vitals_device *vitals_device_of(const struct vitals *vitals, const char *id);

/* A number in the steps of a field: VITALS_UNKNOWN where it is none, or not known. */
int32_t vitals_steps(bool known, double value);

/* What `now` has to be told to one who was told `told`; `anew`: all of it. Other devices than
 * before are told anew, too. *told is then what that one knows. The message points into `room` and
 * `now`. False: there is nothing to tell. */
struct vitals_room {
    Node__DeviceVitals devices[LIMIT_DEVICES], *list[LIMIT_DEVICES];
};
bool vitals_tell(struct vitals *told, const struct vitals *now, bool anew, struct vitals_room *room,
                 Node__Vitals *out);

/* The reader's side. ERROR_INVALID: more than a node can have, or a change of a device that was not
 * told; then nothing has changed. */
enum error_code vitals_hear(struct vitals *vitals, const Node__Vitals *said, struct error *err);
