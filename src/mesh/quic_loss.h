/* Loss of a QUIC connection's packets, from the acknowledgements that its peer sends: RFC 9000,
 * section 19.3. OpenSSL has no counters for it, but shows the frames that it receives.
 *
 * A packet counts once the largest that was acknowledged is QUIC_LOSS_BEHIND ahead of it: as lost,
 * where nobody has acknowledged it by then. Packets that were only late are not counted, unlike by
 * RFC 9002's detection, which goes by 3. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QUIC_LOSS_BEHIND = 64, QUIC_LOSS_WINDOW = 1024 };

/* Zeroed: nothing has been acknowledged. */
struct quic_loss {
    uint64_t judged, lost;                 /* packets */
    uint64_t largest;                      /* that was acknowledged */
    uint64_t acked[QUIC_LOSS_WINDOW / 64]; /* bits of the last packets, a ring */
    bool begun;
};

/* A frame as it came. What is not a whole ACK frame is left alone. */
void quic_loss_hear(struct quic_loss *loss, const uint8_t *frame, size_t size);
