#include "topology/text.h"

#include <stdio.h>
#include <string.h>

struct short_text {
    char text[32];
};

/* Three digits and the unit in thousands: "118 MB/s". */
static struct short_text topology_text_scaled(double value, const char *const *units,
                                              unsigned n_units)
{
    unsigned unit = 0;
    while (value >= 999.5 && unit + 1 < n_units) {
        value /= 1000;
        unit++;
    }
    struct short_text out;
    snprintf(out.text, sizeof out.text, value >= 999.5 ? "%.0f %s" : "%.3g %s", value, units[unit]);
    return out;
}

static struct short_text topology_text_duration(double seconds)
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    return topology_text_scaled(seconds * 1e9, units, 4);
}

static struct short_text topology_text_bandwidth(double bytes_per_s)
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    return topology_text_scaled(bytes_per_s, units, 5);
}

static struct short_text topology_text_amount(double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    return topology_text_scaled(bytes, units, 7);
}

/* The length of the UTF-8 character that starts here (RFC 3629), 0 if there is none or it must not
 * be shown. */
static size_t topology_text_character(const unsigned char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t length = text[0] < 0x80   ? 1
                          : text[0] < 0xc0 ? 0
                          : text[0] < 0xe0 ? 2
                          : text[0] < 0xf0 ? 3
                                           : 4;
    if (!length || text[0] > 0xf4)
        return 0;
    uint32_t code = length == 1 ? text[0] : text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) /* the NUL at the end, too */
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    const bool is_valid =
        code >= least[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    const bool is_control =
        code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029;
    const bool turns_direction = code == 0x061c || code == 0x200e || code == 0x200f ||
                                 (code >= 0x202a && code <= 0x202e) ||
                                 (code >= 0x2066 && code <= 0x2069);
    return is_valid && !is_control && !turns_direction ? length : 0;
}

/* In a label of Graphviz the quote ends it, the backslash escapes and & begins an entity. */
static void append_name(struct buffer *text, const char *name, bool for_label)
{
    while (*name) {
        const size_t length = topology_text_character((const unsigned char *)name);
        if (!length)
            buffer_text(text, "?");
        else if (for_label && (*name == '"' || *name == '\\'))
            buffer_printf(text, "\\%c", *name);
        else if (for_label && *name == '&')
            buffer_text(text, "&amp;");
        else
            buffer_append(text, name, length);
        name += length ? length : 1;
    }
}

static void append_pair(struct buffer *text, const struct topology *topology, uint32_t from,
                        uint32_t to, const char *between)
{
    append_name(text, topology->names[from], false);
    buffer_text(text, between);
    append_name(text, topology->names[to], false);
}

static const char *topology_text_plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

static void append_class(struct buffer *text, const struct topology *topology, uint64_t bytes,
                         enum topology_class class)
{
    uint32_t n = 0;
    double latency_ns[2] = {INFINITY, 0}, bytes_per_s[2] = {INFINITY, 0};
    for (uint32_t i = 0; i < topology->n_links; i++) {
        const struct topology_link *link = &topology->links[i];
        if (link->class != class || link->from == link->to ||
            !topology_link_time(link, bytes).valid)
            continue;
        const double ns = (double)link->latency_ns.value,
                     rate = (double)topology_link_bandwidth(link).value;
        n++;
        latency_ns[0] = fmin(latency_ns[0], ns);
        latency_ns[1] = fmax(latency_ns[1], ns);
        bytes_per_s[0] = fmin(bytes_per_s[0], rate);
        bytes_per_s[1] = fmax(bytes_per_s[1], rate);
    }
    if (!n)
        return;
    buffer_printf(text, "%s: %u link%s, latency %s to %s, ",
                  class == TOPOLOGY_UNKNOWN ? "unknown class" : topology_class_name(class), n,
                  topology_text_plural(n), topology_text_duration(latency_ns[0] * 1e-9).text,
                  topology_text_duration(latency_ns[1] * 1e-9).text);
    buffer_printf(text, "bandwidth %s to %s\n", topology_text_bandwidth(bytes_per_s[0]).text,
                  topology_text_bandwidth(bytes_per_s[1]).text);
}

static void append_connection(struct buffer *text, const struct topology *topology,
                              const struct topology_metrics *metrics)
{
    if (!metrics->n_apart) {
        buffer_text(text, "every node reaches every other\n");
        return;
    }
    buffer_printf(text, "not connected: %u group%s, %u pair%s without a path, the first ",
                  metrics->n_groups, topology_text_plural(metrics->n_groups), metrics->n_apart,
                  topology_text_plural(metrics->n_apart));
    append_pair(text, topology, metrics->apart[0], metrics->apart[1], " to ");
    buffer_text(text, "\n");
}

void topology_summary(struct buffer *text, const struct topology *topology,
                      const struct topology_paths *paths)
{
    const struct topology_metrics metrics = topology_measure(topology, paths);
    const uint32_t *ends = metrics.diameter;
    buffer_printf(text, "%u node%s, %u link%s: %u usable, %u down, %u without an estimate\n",
                  topology->n_nodes, topology_text_plural(topology->n_nodes), metrics.n_links,
                  topology_text_plural(metrics.n_links), metrics.n_usable, metrics.n_down,
                  metrics.n_links - metrics.n_usable - metrics.n_down);
    append_connection(text, topology, &metrics);
    if (ends[0] != ends[1]) {
        buffer_printf(text, "a message of %s takes at most %s: ",
                      topology_text_amount((double)paths->bytes).text,
                      topology_text_duration(metrics.diameter_s).text);
        append_pair(text, topology, ends[0], ends[1], " to ");
        const uint32_t n_hops = topology_paths_hops(paths, ends[0], ends[1]);
        buffer_printf(text, ", %u hop%s\n", n_hops, topology_text_plural(n_hops));
    }
    if (metrics.bottleneck) {
        buffer_printf(
            text, "bandwidth %s on average, %s at the narrowest: ",
            topology_text_bandwidth(metrics.average_bytes_per_s).text,
            topology_text_bandwidth((double)topology_link_bandwidth(metrics.bottleneck).value)
                .text);
        append_pair(text, topology, metrics.bottleneck->from, metrics.bottleneck->to, " to ");
        buffer_printf(text, " (%s)\n", topology_class_name(metrics.bottleneck->class));
    }
    for (int class = 0; class < TOPOLOGY_CLASSES; class ++)
        append_class(text, topology, paths->bytes, (enum topology_class) class);
    if (metrics.n_floors)
        buffer_printf(text, "times are lower bounds: %u link%s without jitter, loss or overhead\n",
                      metrics.n_floors, topology_text_plural(metrics.n_floors));
}

static void append_edge(struct buffer *text, const struct topology_link *link)
{
    const struct reading rate = topology_link_bandwidth(link);
    buffer_printf(text, "  n%u -> n%u [label=\"%s", link->from, link->to,
                  topology_class_name(link->class));
    if (link->latency_ns.valid)
        buffer_printf(text, "\\n%s",
                      topology_text_duration((double)link->latency_ns.value * 1e-9).text);
    if (rate.valid)
        buffer_printf(text, "\\n%s", topology_text_bandwidth((double)rate.value).text);
    buffer_text(text, link->up ? "\"" : "\\ndown\"");
    buffer_text(text, topology_link_time(link, 0).valid ? "];\n" : ", style=dashed];\n");
}

void topology_dot(struct buffer *text, const struct topology *topology)
{
    buffer_text(text, "digraph topology {\n  charset=\"UTF-8\";\n  node [shape=box];\n");
    for (uint32_t i = 0; i < topology->n_nodes; i++) {
        buffer_printf(text, "  n%u [label=\"", i);
        append_name(text, topology->names[i], true);
        buffer_text(text, "\"];\n");
    }
    for (uint32_t i = 0; i < topology->n_links; i++)
        append_edge(text, &topology->links[i]);
    buffer_text(text, "}\n");
}
