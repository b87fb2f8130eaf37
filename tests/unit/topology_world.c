#include "topology_world.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

struct topology_link link_of(uint32_t from, uint32_t to, double latency_ns, double bytes_per_s)
{
    return (struct topology_link){.from = from,
                                  .to = to,
                                  .class = TOPOLOGY_ETHERNET,
                                  .up = true,
                                  .latency_ns = KNOWN(latency_ns),
                                  .jitter_ns = KNOWN(0),
                                  .overhead_ns = KNOWN(0),
                                  .loss_share = KNOWN(0),
                                  .bandwidth_bytes_per_s = KNOWN(bytes_per_s)};
}

struct topology topology_of(uint32_t n_nodes, const struct topology_link *links, uint32_t n_links)
{
    static char texts[LIMIT_TOPOLOGY_NODES + 1][8];
    static const char *names[LIMIT_TOPOLOGY_NODES + 1];
    for (uint32_t i = 0; i < n_nodes; i++) {
        snprintf(texts[i], sizeof texts[i], n_nodes <= 26 ? "%c" : "n%u",
                 n_nodes <= 26 ? 'a' + i : i);
        names[i] = texts[i];
    }
    struct topology topology;
    struct error err = {0};
    if (topology_init(&topology, names, n_nodes, links, n_links, &err))
        fail_msg("%s", err.text);
    return topology;
}

struct topology_paths paths_of(const struct topology *topology, uint64_t bytes)
{
    struct topology_paths paths;
    assert_int_equal(topology_paths_init(&paths, topology, bytes, NULL), ERROR_NONE);
    return paths;
}
