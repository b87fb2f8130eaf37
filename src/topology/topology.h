/* The nodes (machines, or devices of machines) and the links that were measured between them.
 *
 * A snapshot: it copies what it is made from and does not change; new measurements make a new one.
 * At most one link leads from one node to another. Zeroed it is empty and valid. Pure; any thread
 * may read. */
#pragma once

#include "base/error.h"
#include "topology/link.h"

struct topology {
    uint32_t n_nodes;
    uint32_t n_links;
    char **names; /* [n_nodes], as given: foreign bytes (topology/text.h shows them safely) */
    struct topology_link *links; /* [n_links], clean, by (from, to) */
    uint32_t
        *first_link; /* [n_nodes + 1]: those of node i are first_link[i] to first_link[i + 1] */
};

/* ERROR_INVALID: an empty, too long or double name; a link to a node that is not there; a second
 * link from one to another; too many of them (base/limits.h). ERROR_NO_MEMORY. On error it is left
 * empty. O(nodes + links), and nodes^2 comparisons of names. */
enum error_code topology_init(struct topology *topology, const char *const *names, uint32_t n_nodes,
                              const struct topology_link *links, uint32_t n_links,
                              struct error *err);
void topology_deinit(struct topology *topology); /* NULL is fine */

/* The link from one node to another, NULL when there is none. O(log links of a node). */
const struct topology_link *topology_link(const struct topology *topology, uint32_t from,
                                          uint32_t to);
