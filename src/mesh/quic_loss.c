#include "mesh/quic_loss.h"

#include <string.h>

enum { ACK = 2, ACK_ECN = 3 }; /* types of frames */

struct quic_ack {
    const uint8_t *at, *end;
    uint64_t first, last; /* the range that was read last */
    uint64_t n_ranges;    /* that follow */
};

/* RFC 9000, section 16: the first two bits say how many bytes. */
static bool quic_ack_number(struct quic_ack *ack, uint64_t *out)
{
    if (ack->at == ack->end)
        return false;
    const size_t size = (size_t)1 << (*ack->at >> 6);
    if ((size_t)(ack->end - ack->at) < size)
        return false;
    *out = *ack->at & 0x3f;
    for (size_t i = 1; i < size; i++)
        *out = *out << 8 | ack->at[i];
    ack->at += size;
    return true;
}

static bool quic_ack_open(struct quic_ack *ack, const uint8_t *frame, size_t size)
{
    uint64_t type, delay, length;
    *ack = (struct quic_ack){.at = frame, .end = frame + size};
    if (!quic_ack_number(ack, &type) || (type != ACK && type != ACK_ECN) ||
        !quic_ack_number(ack, &ack->last) || !quic_ack_number(ack, &delay) ||
        !quic_ack_number(ack, &ack->n_ranges) || !quic_ack_number(ack, &length) ||
        length > ack->last)
        return false;
    ack->first = ack->last - length;
    return true;
}

static bool quic_ack_next(struct quic_ack *ack)
{
    uint64_t gap, length;
    if (!ack->n_ranges || !quic_ack_number(ack, &gap) || !quic_ack_number(ack, &length) ||
        ack->first < gap + 2 || ack->first - gap - 2 < length)
        return false;
    ack->last = ack->first - gap - 2;
    ack->first = ack->last - length;
    ack->n_ranges--;
    return true;
}

/* ---- the last packets ---------------------------------------------------------------------- */

static void quic_loss_set(struct quic_loss *loss, uint64_t number, bool acked)
{
    const uint64_t bit = UINT64_C(1) << number % 64;
    uint64_t *word = &loss->acked[number % QUIC_LOSS_WINDOW / 64];
    *word = acked ? *word | bit : *word & ~bit;
}

static bool quic_loss_is_acked(const struct quic_loss *loss, uint64_t number)
{
    return loss->acked[number % QUIC_LOSS_WINDOW / 64] >> number % 64 & 1;
}

/* What came before the first acknowledgement is not judged, nor what a jump passes over. */
static void quic_loss_begin(struct quic_loss *loss, uint64_t largest)
{
    loss->begun = true;
    loss->largest = largest;
    memset(loss->acked, 0xff, sizeof loss->acked);
}

void quic_loss_hear(struct quic_loss *loss, const uint8_t *frame, size_t size)
{
    struct quic_ack ack;
    if (!quic_ack_open(&ack, frame, size))
        return;
    const uint64_t before = loss->largest, largest = ack.last;
    if (!loss->begun || (largest > before && largest - before > QUIC_LOSS_WINDOW / 2)) {
        quic_loss_begin(loss, largest);
        return;
    }
    for (uint64_t i = before + 1; i <= largest; i++)
        quic_loss_set(loss, i, false);
    loss->largest = largest > before ? largest : before;
    const uint64_t oldest =
        loss->largest >= QUIC_LOSS_WINDOW ? loss->largest - QUIC_LOSS_WINDOW + 1 : 0;
    do {
        for (uint64_t i = ack.first > oldest ? ack.first : oldest; i <= ack.last; i++)
            quic_loss_set(loss, i, true);
    } while (ack.first > oldest && quic_ack_next(&ack));
    for (uint64_t i = before + 1; i <= loss->largest; i++) {
        if (i < QUIC_LOSS_BEHIND)
            continue;
        loss->judged++;
        loss->lost += !quic_loss_is_acked(loss, i - QUIC_LOSS_BEHIND);
    }
}
