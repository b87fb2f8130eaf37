/* Manifests from other nodes and from the disk: any bytes. What is read is as manifest_check()
 * says, and is written as the same bytes. */
#include "fuzz.h"

#include "base/limits.h"
#include "weights/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest manifest;
    struct error err = {0};
    if (manifest_read(data, size, &manifest, &err)) {
        FUZZ_CHECK(err.text[0] && !manifest.parts);
        for (const char *at = err.text; *at; at++)
            FUZZ_CHECK(*at >= ' ' && *at <= '~');
        return 0;
    }
    FUZZ_CHECK(!manifest_check(&manifest, NULL) && manifest.n_parts <= LIMIT_MODEL_TENSORS + 1);
    struct buffer again = {0};
    manifest_write(&manifest, &again);
    FUZZ_CHECK(again.size == size && memcmp(again.data, data, size) == 0);
    buffer_deinit(&again);
    manifest_deinit(&manifest);
    return 0;
}
