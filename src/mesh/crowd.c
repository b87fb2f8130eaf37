#include "mesh/crowd.h"

#include <assert.h>

static bool crowd_same_host(struct stream_host one, struct stream_host other)
{
    return one.network == other.network && one.interface == other.interface;
}

static uint32_t crowd_count_host(const struct crowd_member *members, uint32_t n,
                                 struct stream_host host)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += crowd_same_host(members[i].host, host);
    return count;
}

static uint32_t crowd_count_network(const struct crowd_member *members, uint32_t n,
                                    struct stream_host host)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += members[i].host.network == host.network;
    return count;
}

/* The newcomer counts as if it were in: who opens one connection after the other pushes out their
 * own, and not the next busiest's. */
static int crowd_busiest(const struct crowd_member *members, uint32_t n,
                         struct stream_host newcomer)
{
    int chosen = CROWD_FULL;
    uint32_t most_network = 0, most_host = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct stream_host host = members[i].host;
        if (!members[i].may_go)
            continue;
        const uint32_t network =
            crowd_count_network(members, n, host) + (host.network == newcomer.network);
        const uint32_t of_host =
            crowd_count_host(members, n, host) + crowd_same_host(host, newcomer);
        if (network > most_network || (network == most_network && of_host > most_host)) {
            chosen = (int)i;
            most_network = network;
            most_host = of_host;
        }
    }
    return chosen;
}

int crowd_choose(const struct crowd_member *members, uint32_t n, const struct crowd_limits *limits,
                 struct stream_host newcomer)
{
    assert(limits->of_host > 0 && limits->of_host <= limits->all);
    if (crowd_count_host(members, n, newcomer) >= limits->of_host) {
        for (uint32_t i = 0; i < n; i++) {
            if (members[i].may_go && crowd_same_host(members[i].host, newcomer))
                return (int)i;
        }
        return CROWD_FULL;
    }
    return n < limits->all ? CROWD_ROOM : crowd_busiest(members, n, newcomer);
}
