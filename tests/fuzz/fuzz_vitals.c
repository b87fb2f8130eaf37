/* What another node says of itself while it is watched: messages of any bytes, one after another
 * (two bytes of length each). What was heard is plausible or unknown, whatever was said. */
#include "fuzz.h"

#include "cluster/event.h"
#include "vitals/vitals_sample.h"

#include <stdio.h>
#include <stdlib.h>

static void check_value(int32_t value, int32_t lowest, int32_t highest)
{
    FUZZ_CHECK(value == VITALS_UNKNOWN || (value >= lowest && value <= highest));
}

static void check_vitals(const struct vitals *vitals)
{
    FUZZ_CHECK(vitals->n_devices <= LIMIT_DEVICES);
    for (uint32_t i = 0; i < vitals->n_devices; i++) {
        FUZZ_CHECK(vitals->devices[i].id[0]);
#define CHECK(name, noise, permille, lowest, highest)                                              \
    check_value(vitals->devices[i].name, lowest, highest);
        VITALS_OF_DEVICE(CHECK)
#undef CHECK
        vitals_governor_text(vitals->devices[i].governor);
    }
#define CHECK(name, noise, permille, lowest, highest) check_value(vitals->name, lowest, highest);
    VITALS_OF_NODE(CHECK)
#undef CHECK
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct vitals vitals;
    vitals_clear(&vitals);
    while (size >= 2) {
        size_t length = (size_t)data[0] << 8 | data[1];
        ProtobufCMessage *message = NULL;
        struct error err;
        data += 2, size -= 2;
        length = length < size ? length : size;
        if (!message_decode(&node__vitals__descriptor, data, length, &message, &err)) {
            vitals_hear(&vitals, (Node__Vitals *)message, &err);
            message_free(message);
            check_vitals(&vitals);
        }
        data += length, size -= length;
    }
    return 0;
}
