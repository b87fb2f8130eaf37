#include "trust/handshake_rate.h"

static const uint64_t ns_per_s = UINT64_C(1000000000);

static bool bucket_has_room(uint64_t empty_ns, uint64_t now_ns, uint64_t per_s)
{
    return empty_ns <= now_ns + (HANDSHAKES_AT_ONCE - 1) * (ns_per_s / per_s);
}

static void bucket_fill(uint64_t *empty_ns, uint64_t now_ns, uint64_t per_s)
{
    *empty_ns = (*empty_ns > now_ns ? *empty_ns : now_ns) + ns_per_s / per_s;
}

/* What is refused fills no bucket: else who asks too often would never get anything. */
bool handshake_rate_take(struct handshake_rate *rate, uint64_t host, uint64_t now_ns)
{
    uint64_t mixed = host * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing (Knuth, 6.4) */
    uint64_t *of_host_ns = &rate->of_host_ns[(mixed >> 32) % HANDSHAKE_HOSTS];
    if (!bucket_has_room(rate->all_ns, now_ns, HANDSHAKES_PER_S) ||
        !bucket_has_room(*of_host_ns, now_ns, HANDSHAKES_OF_HOST_PER_S))
        return false;
    bucket_fill(&rate->all_ns, now_ns, HANDSHAKES_PER_S);
    bucket_fill(of_host_ns, now_ns, HANDSHAKES_OF_HOST_PER_S);
    return true;
}
