/* The links of the cluster file. */
#include "clusterfile/cluster_file_parts.h"

#include "base/limits.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct link_reading {
    struct cluster *cluster;
    const struct cluster_node **by_name; /* [n_nodes], sorted: there may be a million links */
    /* [from * n_nodes + to]: 0, or twice the link's index and 2, and 1 more when it has an entry of
     * its own */
    uint32_t *said;
    struct topology_link link;
    char between[2][CLUSTER_NODE_MAX];
    uint32_t n_between;
    char from[CLUSTER_NODE_MAX], to[CLUSTER_NODE_MAX];
    bool one_way, is_assumed;
};

/* ---- fields ---------------------------------------------------------------------------------- */

#define READER(name)                                                                               \
    static enum error_code read_##name(void *into, yyjson_val *value,                              \
                                       const struct json_place *place, struct error *err)

READER(end)
{
    struct link_reading *r = into;
    if (r->n_between == 2)
        return json_wrong(place, err, "a link is between two nodes, not more");
    return json_read_text(value, r->between[r->n_between++], CLUSTER_NODE_MAX, place, err);
}

READER(between)
{
    struct link_reading *r = into;
    const enum error_code code = json_read_array(value, read_end, r, place, err);
    if (!code && r->n_between < 2)
        return json_wrong(place, err, "a link is between two nodes");
    return code;
}

READER(from)
{
    return json_read_text(value, ((struct link_reading *)into)->from, CLUSTER_NODE_MAX, place, err);
}

READER(to)
{
    return json_read_text(value, ((struct link_reading *)into)->to, CLUSTER_NODE_MAX, place, err);
}

READER(one_way)
{
    return json_read_bool(value, &((struct link_reading *)into)->one_way, place, err);
}

READER(assumed)
{
    return json_read_bool(value, &((struct link_reading *)into)->is_assumed, place, err);
}

READER(up)
{
    return json_read_bool(value, &((struct link_reading *)into)->link.up, place, err);
}

READER(class)
{
    struct link_reading *r = into;
    for (int class = 0; class < TOPOLOGY_CLASSES; class ++) {
        if (yyjson_equals_str(value, topology_class_name((enum topology_class) class))) {
            r->link.class = (enum topology_class) class;
            return ERROR_NONE;
        }
    }
    return json_wrong(
        place, err,
        "'%s' is none of ethernet, wifi, thunderbolt, rdma, same host, loopback and unknown",
        json_show(value).text);
}

static enum error_code read_ms(yyjson_val *value, struct reading *out,
                               const struct json_place *place, struct error *err)
{
    double ms = 0;
    const enum error_code code = json_read_number(value, 0, LIMIT_LINK_DELAY_MS, &ms, place, err);
    *out = code ? (struct reading){0} : reading_of(UNIT_DELAY_NS, round(ms * 1e6));
    return code;
}

READER(latency)
{
    return read_ms(value, &((struct link_reading *)into)->link.latency_ns, place, err);
}

READER(jitter)
{
    return read_ms(value, &((struct link_reading *)into)->link.jitter_ns, place, err);
}

READER(overhead)
{
    return read_ms(value, &((struct link_reading *)into)->link.overhead_ns, place, err);
}

READER(loss)
{
    double pct = 0;
    const enum error_code code = json_read_number(value, 0, 100, &pct, place, err);
    ((struct link_reading *)into)->link.loss_share =
        code ? (struct reading){0} : reading_of(UNIT_SHARE, round(pct * 1e4) * 1e-6);
    return code;
}

static enum error_code read_bandwidth_into(yyjson_val *value, struct reading *out,
                                           const struct json_place *place, struct error *err)
{
    double rate = 0;
    const struct sim_range range = {1e3, (double)LIMIT_LINK_GB_PER_S * 1e9, "1KB/s to 100TB/s"};
    const enum error_code code =
        cluster_read_amount(value, SIM_BYTES_PER_S, range, &rate, place, err);
    *out = code ? (struct reading){0} : reading_of(UNIT_BYTES_PER_S, floor(rate));
    return code;
}

READER(bandwidth)
{
    return read_bandwidth_into(value, &((struct link_reading *)into)->link.bandwidth_bytes_per_s,
                               place, err);
}

READER(peer_bandwidth)
{
    return read_bandwidth_into(
        value, &((struct link_reading *)into)->link.peer_bandwidth_bytes_per_s, place, err);
}

static enum error_code read_bandwidth_bytes_into(yyjson_val *value, struct reading *out,
                                                 const struct json_place *place, struct error *err)
{
    uint64_t rate = 0;
    const enum error_code code =
        json_read_whole(value, LIMIT_LINK_GB_PER_S * UINT64_C(1000000000), &rate, place, err);
    *out = code ? (struct reading){0} : reading_of(UNIT_BYTES_PER_S, (double)rate);
    return code;
}

READER(bandwidth_bytes)
{
    return read_bandwidth_bytes_into(
        value, &((struct link_reading *)into)->link.bandwidth_bytes_per_s, place, err);
}

READER(peer_bandwidth_bytes)
{
    return read_bandwidth_bytes_into(
        value, &((struct link_reading *)into)->link.peer_bandwidth_bytes_per_s, place, err);
}

READER(note)
{
    char note[1024];
    (void)into;
    return json_read_text(value, note, sizeof note, place, err);
}

enum { BETWEEN, FROM, TO, LATENCY = 6, BANDWIDTH = 10, BANDWIDTH_BYTES, PEER, PEER_BYTES };

static const struct json_member members[] = {
    [BETWEEN] = {"between", read_between},
    [FROM] = {"from", read_from},
    [TO] = {"to", read_to},
    {"one_way", read_one_way},
    {"up", read_up},
    {"class", read_class},
    [LATENCY] = {"latency_ms", read_latency},
    {"jitter_ms", read_jitter},
    {"overhead_ms", read_overhead},
    {"loss_pct", read_loss},
    [BANDWIDTH] = {"bandwidth", read_bandwidth},
    [BANDWIDTH_BYTES] = {"bandwidth_bytes_per_s", read_bandwidth_bytes},
    [PEER] = {"peer_bandwidth", read_peer_bandwidth},
    [PEER_BYTES] = {"peer_bandwidth_bytes_per_s", read_peer_bandwidth_bytes},
    {"note", read_note},
    {"assumed", read_assumed},
};
enum { MEMBERS = sizeof members / sizeof *members };

/* ---- what is not said ------------------------------------------------------------------------ */

static enum error_code cluster_links_assume(struct link_reading *r, bool *is_assumed,
                                            const struct json_place *place, struct error *err)
{
    struct topology_link *link = &r->link;
    *is_assumed = false;
    if (!link->up || cluster_link_assume(link, is_assumed)) {
        *is_assumed = *is_assumed || r->is_assumed;
        return ERROR_NONE;
    }
    return json_wrong(place, err,
                      "%s is missing (a class, such as \"ethernet\", would let it be assumed)",
                      link->latency_ns.valid ? "the bandwidth" : "latency_ms");
}

/* ---- nodes by name --------------------------------------------------------------------------- */

static int cluster_links_compare(const void *a, const void *b)
{
    const struct cluster_node *const *first = a, *const *second = b;
    return strcmp((*first)->name, (*second)->name);
}

static void sort_nodes(struct link_reading *r)
{
    for (uint32_t i = 0; i < r->cluster->n_nodes; i++)
        r->by_name[i] = &r->cluster->nodes[i];
    qsort(r->by_name, r->cluster->n_nodes, sizeof *r->by_name, cluster_links_compare);
}

static uint32_t cluster_links_find_node(const struct link_reading *r, const char *name)
{
    uint32_t low = 0, high = r->cluster->n_nodes;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(r->by_name[middle]->name, name);
        if (!order)
            return (uint32_t)(r->by_name[middle] - r->cluster->nodes);
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return UINT32_MAX;
}

/* ---- one link -------------------------------------------------------------------------------- */

static enum error_code find_ends(struct link_reading *r, uint64_t seen,
                                 const struct json_place *place, struct error *err)
{
    const bool between = seen >> BETWEEN & 1, from = seen >> FROM & 1, to = seen >> TO & 1;
    if (between == (from || to) || from != to)
        return json_wrong(place, err,
                          "a link has either \"between\": [A, B], or \"from\" and \"to\"");
    const char *const names[2] = {between ? r->between[0] : r->from,
                                  between ? r->between[1] : r->to};
    uint32_t ends[2];
    for (int i = 0; i < 2; i++) {
        ends[i] = cluster_links_find_node(r, names[i]);
        if (ends[i] == UINT32_MAX)
            return json_wrong(place, err, "there is no node '%s'", names[i]);
    }
    if (ends[0] == ends[1])
        return json_wrong(place, err, "it leads from '%s' to itself", names[0]);
    if (between && r->one_way)
        return json_wrong(place, err,
                          "one_way needs \"from\" and \"to\": \"between\" is both ways");
    r->link.from = ends[0];
    r->link.to = ends[1];
    return ERROR_NONE;
}

static enum error_code cluster_links_check_pairs(uint64_t seen, const struct json_place *place,
                                                 struct error *err)
{
    static const int pairs[][2] = {{BANDWIDTH, BANDWIDTH_BYTES}, {PEER, PEER_BYTES}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (seen >> pairs[i][0] & 1 && seen >> pairs[i][1] & 1)
            return json_wrong(place, err, "%s and %s say the same: leave one out",
                              members[pairs[i][0]].name, members[pairs[i][1]].name);
    }
    return ERROR_NONE;
}

/* `own`: the file says it of this way; else it is the way back of another, and holds until it has
 * its own entry. */
static enum error_code add_way(struct link_reading *r, bool way_back, bool own, bool is_assumed,
                               const struct json_place *place, struct error *err)
{
    struct cluster *cluster = r->cluster;
    const uint32_t from = way_back ? r->link.to : r->link.from,
                   to = way_back ? r->link.from : r->link.to;
    uint32_t *said = &r->said[(size_t)from * cluster->n_nodes + to];
    if (*said && !own)
        return ERROR_NONE;
    if (*said & 1)
        return json_wrong(place, err, "there is a link from '%s' to '%s' already",
                          cluster->nodes[from].name, cluster->nodes[to].name);
    struct topology_link *link =
        *said ? &cluster->links[*said / 2 - 1] : cluster_add_link(cluster, is_assumed);
    if (!link)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster");
    const uint32_t index = (uint32_t)(link - cluster->links);
    *said = 2 * index + 2 + own;
    *link = r->link;
    link->from = from;
    link->to = to;
    cluster->link_assumed[index] = is_assumed;
    return ERROR_NONE;
}

static enum error_code cluster_links_read_link(void *into, yyjson_val *value,
                                               const struct json_place *place, struct error *err)
{
    struct link_reading *r = into;
    uint64_t seen;
    bool is_assumed;
    r->link = (struct topology_link){.up = true};
    r->n_between = 0;
    r->one_way = r->is_assumed = false;
    enum error_code code = json_read_object(value, members, MEMBERS, r, place, &seen, err);
    if (!code)
        code = find_ends(r, seen, place, err);
    if (!code)
        code = cluster_links_check_pairs(seen, place, err);
    if (!code)
        code = cluster_links_assume(r, &is_assumed, place, err);
    if (!code)
        code = add_way(r, false, true, is_assumed, place, err);
    return code || r->one_way ? code
                              : add_way(r, true, seen >> BETWEEN & 1, is_assumed, place, err);
}

enum error_code cluster_read_links(struct cluster *cluster, yyjson_val *value,
                                   const struct json_place *place, struct error *err)
{
    const size_t n = cluster->n_nodes;
    struct link_reading reading = {.cluster = cluster,
                                   .by_name = mem_new_array(n + 1, sizeof *reading.by_name),
                                   .said = mem_new_array(n * n + 1, sizeof *reading.said)};
    enum error_code code = ERROR_NO_MEMORY;
    if (reading.by_name && reading.said) {
        sort_nodes(&reading);
        code = json_read_array(value, cluster_links_read_link, &reading, place, err);
    } else {
        error_set(err, code, "not enough memory for the cluster");
    }
    mem_free(reading.said);
    mem_free(reading.by_name);
    return code;
}
