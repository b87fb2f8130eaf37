#include "cli/links_graph.h"

#include "base/mem.h"
#include "cli/answer.h"
#include "topology/text.h"

#include <stdio.h>
#include <string.h>

struct links_graph {
    const char **names; /* the document's; room for both ends of every link */
    struct topology_link *links;
    uint32_t n_names, n_links;
};

static uint32_t links_graph_node(struct links_graph *graph, const char *name)
{
    uint32_t i = 0;
    while (i < graph->n_names && strcmp(graph->names[i], name) != 0)
        i++;
    if (i == graph->n_names)
        graph->names[graph->n_names++] = name;
    return i;
}

static enum topology_class links_graph_class(const char *name)
{
    enum topology_class class = TOPOLOGY_UNKNOWN;
    for (int i = 0; name && i < TOPOLOGY_CLASSES; i++) {
        if (!strcmp(name, topology_class_name((enum topology_class)i)))
            class = (enum topology_class)i;
    }
    return class;
}

static struct reading links_graph_reading(struct answer *answer, yyjson_val *link, const char *key,
                                          double scale)
{
    uint64_t value;
    const bool is_known = answer_count_if(answer, link, key, &value);
    return (struct reading){.value = is_known ? (double)value * scale : 0, .valid = is_known};
}

static void links_graph_add(struct links_graph *graph, struct answer *answer, yyjson_val *link)
{
    const char *from = answer_text(answer, link, "from"), *to = answer_text(answer, link, "to");
    graph->links[graph->n_links++] = (struct topology_link){
        .from = links_graph_node(graph, from),
        .to = links_graph_node(graph, to),
        .class = links_graph_class(answer_text_if(answer, link, "class")),
        .up = answer_flag(answer, link, "up"),
        .latency_ns = links_graph_reading(answer, link, "latency_ns", 1),
        .jitter_ns = links_graph_reading(answer, link, "jitter_ns", 1),
        .loss_share = links_graph_reading(answer, link, "loss_ppm", 1e-6),
        .bandwidth_bytes_per_s = links_graph_reading(answer, link, "bytes_per_s", 1),
    };
}

static enum error_code links_graph_print(const struct links_graph *graph, struct error *err)
{
    struct topology topology;
    struct buffer text = {0};
    enum error_code code =
        topology_init(&topology, graph->names, graph->n_names, graph->links, graph->n_links, err);
    if (code)
        return code;
    topology_dot(&text, &topology);
    if (text.failed)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    else if (fwrite(text.data, 1, text.size, stdout) != text.size)
        code = error_set(err, ERROR_IO, "the graph cannot be written");
    buffer_deinit(&text);
    topology_deinit(&topology);
    return code;
}

enum error_code links_print_graph(yyjson_doc *doc, struct error *err)
{
    struct answer answer = {0};
    yyjson_val *list = answer_list(&answer, yyjson_doc_get_root(doc), "links"), *link;
    const size_t n_links = yyjson_arr_size(list);
    struct links_graph graph = {.names = mem_new_array(2 * n_links + 1, sizeof *graph.names),
                                .links = mem_new_array(n_links + 1, sizeof *graph.links)};
    enum error_code code = ERROR_NONE;
    if (!graph.names || !graph.links)
        code = error_set(err, ERROR_NO_MEMORY, "out of memory");
    size_t i, n;
    yyjson_arr_foreach(list, i, n, link)
    {
        if (!code)
            links_graph_add(&graph, &answer, link);
    }
    if (!code)
        code = answer_failed(&answer, err);
    if (!code)
        code = links_graph_print(&graph, err);
    mem_free(graph.names);
    mem_free(graph.links);
    return code;
}
