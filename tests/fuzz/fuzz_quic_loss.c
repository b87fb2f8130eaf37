/* Fuzz target: acknowledgements that a QUIC peer sends, one after another: each byte below 64 is
 * the length of the next frame. Holds: no more is lost than was judged, and no frame judges more
 * packets than half of the window. */
#include "fuzz.h"

#include "mesh/quic_loss.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct quic_loss loss = {0};
    for (size_t at = 0; at < size;) {
        const size_t left = size - at - 1, length = data[at] % 64 < left ? data[at] % 64 : left;
        const uint64_t judged = loss.judged, lost = loss.lost;
        quic_loss_hear(&loss, data + at + 1, length);
        FUZZ_CHECK(loss.judged >= judged && loss.judged - judged <= QUIC_LOSS_WINDOW / 2);
        FUZZ_CHECK(loss.lost >= lost && loss.lost - lost <= loss.judged - judged);
        at += 1 + length;
    }
    return 0;
}
