#include "topology/topology.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Errors name nodes by index: a name is foreign bytes. */
static enum error_code check_names(const char *const *names, uint32_t n, struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const size_t length = strnlen(names[i], LIMIT_NODE_NAME_BYTES + 1);
        if (!length || length > LIMIT_NODE_NAME_BYTES)
            return error_set(err, ERROR_INVALID, "topology: the name of node %u is %s", i,
                             length ? "too long" : "empty");
        for (uint32_t j = 0; j < i; j++) {
            if (!strcmp(names[i], names[j]))
                return error_set(err, ERROR_INVALID, "topology: nodes %u and %u have the same name",
                                 j, i);
        }
    }
    return ERROR_NONE;
}

static enum error_code topology_check(const char *const *names, uint32_t n_nodes,
                                      const struct topology_link *links, uint32_t n_links,
                                      struct error *err)
{
    if (n_nodes > LIMIT_TOPOLOGY_NODES || n_links > LIMIT_TOPOLOGY_LINKS)
        return error_set(err, ERROR_INVALID,
                         "topology: %u nodes and %u links, at most %d and %d are possible", n_nodes,
                         n_links, LIMIT_TOPOLOGY_NODES, LIMIT_TOPOLOGY_LINKS);
    for (uint32_t i = 0; i < n_links; i++) {
        if (links[i].from >= n_nodes || links[i].to >= n_nodes)
            return error_set(err, ERROR_INVALID,
                             "topology: link %u is from node %u to %u, there are %u nodes", i,
                             links[i].from, links[i].to, n_nodes);
    }
    return check_names(names, n_nodes, err);
}

/* A stable counting sort of `order` by one end of the links; `starts` gets where each node's
 * begin. */
static void sort_by(const struct topology_link *links, uint32_t n_links, uint32_t n_nodes,
                    bool by_from, const uint32_t *order, uint32_t *sorted, uint32_t *starts)
{
    memset(starts, 0, (n_nodes + 1) * sizeof *starts);
    for (uint32_t i = 0; i < n_links; i++)
        starts[(by_from ? links[i].from : links[i].to) + 1]++;
    for (uint32_t i = 0; i < n_nodes; i++)
        starts[i + 1] += starts[i];
    for (uint32_t i = 0; i < n_links; i++) {
        const struct topology_link *link = &links[order[i]];
        sorted[starts[by_from ? link->from : link->to]++] = order[i];
    }
    memmove(starts + 1, starts,
            n_nodes * sizeof *starts); /* each stands at its end, which is the next one's start */
    starts[0] = 0;
}

static enum error_code copy_links(struct topology *topology, const struct topology_link *links,
                                  struct error *err)
{
    const uint32_t n = topology->n_links;
    uint32_t *by_to = mem_new_array(n + 1, sizeof *by_to),
             *order = mem_new_array(n + 1, sizeof *order);
    enum error_code code = ERROR_NONE;
    if (!by_to || !order) {
        code = error_set(err, ERROR_NO_MEMORY, "topology: not enough memory for %u links", n);
        goto out;
    }
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    sort_by(links, n, topology->n_nodes, false, order, by_to, topology->first_link);
    sort_by(links, n, topology->n_nodes, true, by_to, order, topology->first_link);
    for (uint32_t i = 0; i < n; i++) {
        const struct topology_link link = topology->links[i] = topology_link_clean(links[order[i]]);
        if (i && link.from == topology->links[i - 1].from && link.to == topology->links[i - 1].to) {
            code = error_set(err, ERROR_INVALID, "topology: two links from node %u to %u",
                             link.from, link.to);
            goto out;
        }
    }
out:
    mem_free(by_to);
    mem_free(order);
    return code;
}

enum error_code topology_init(struct topology *topology, const char *const *names, uint32_t n_nodes,
                              const struct topology_link *links, uint32_t n_links,
                              struct error *err)
{
    *topology = (struct topology){0};
    enum error_code code = topology_check(names, n_nodes, links, n_links, err);
    if (code)
        return code;
    topology->n_nodes = n_nodes;
    topology->n_links = n_links;
    topology->names = mem_new_array(n_nodes + 1, sizeof *topology->names);
    topology->links = mem_new_array(n_links + 1, sizeof *topology->links);
    topology->first_link = mem_new_array(n_nodes + 1, sizeof *topology->first_link);
    bool has_memory = topology->names && topology->links && topology->first_link;
    for (uint32_t i = 0; has_memory && i < n_nodes; i++)
        has_memory = (topology->names[i] = mem_copy_text(names[i], strlen(names[i]))) != NULL;
    code = has_memory ? copy_links(topology, links, err)
                      : error_set(err, ERROR_NO_MEMORY, "topology: not enough memory for %u nodes",
                                  n_nodes);
    if (code)
        topology_deinit(topology);
    return code;
}

void topology_deinit(struct topology *topology)
{
    if (!topology)
        return;
    for (uint32_t i = 0; topology->names && i < topology->n_nodes; i++)
        mem_free(topology->names[i]);
    mem_free(topology->names);
    mem_free(topology->links);
    mem_free(topology->first_link);
    *topology = (struct topology){0};
}

const struct topology_link *topology_link(const struct topology *topology, uint32_t from,
                                          uint32_t to)
{
    assert(from < topology->n_nodes && to < topology->n_nodes);
    uint32_t low = topology->first_link[from], end = topology->first_link[from + 1], high = end;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (topology->links[middle].to < to)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && topology->links[low].to == to ? &topology->links[low] : NULL;
}
