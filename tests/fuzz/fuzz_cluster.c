/* Fuzz target: a cluster file. Holds: what is refused has a printable message; what is taken is
 * within its limits, names nothing twice, and makes a placement problem or says why not; written
 * again it is read as just as much. */
#include "fuzz.h"

#include "clusterfile/cluster_file.h"
#include "clusterfile/cluster_problem.h"
#include "clusterfile/cluster_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_device(const struct cluster *cluster, uint32_t index)
{
    const struct cluster_device *device = &cluster->devices[index];
    FUZZ_CHECK(device->id[0] && memchr(device->id, 0, sizeof device->id) &&
               device->node < cluster->n_nodes);
    FUZZ_CHECK(device->memory_bytes <= UINT64_C(1) << 50 &&
               device->reserve_bytes <= device->memory_bytes);
    FUZZ_CHECK(device->share >= 0 && device->share <= 1 && device->n_types <= CLUSTER_TYPES_MAX);
    FUZZ_CHECK(device->launch_s >= 0 && device->launch_s <= 10);
    FUZZ_CHECK(device->speed != CLUSTER_DATASHEET || device->decode_bytes_per_s > 0);
    FUZZ_CHECK(cluster_find_device(cluster, device->node, device->id) == index);
}

/* A model of two layers on it. */
static void make_problem(const struct cluster *cluster)
{
    static const struct placement_layer layers[2] = {{.bytes = {1 << 20, 1 << 24},
                                                      .bytes_per_token = {1 << 20, 1 << 24},
                                                      .flops_per_token = {0, 1e8},
                                                      .kv_bytes_per_token = 4096},
                                                     {.bytes = {1 << 20, 1 << 24},
                                                      .bytes_per_token = {1 << 20, 1 << 24},
                                                      .flops_per_token = {0, 1e8}}};
    static const struct placement_model model = {.n_types = 2,
                                                 .type_names = {"f32", "q4_0"},
                                                 .n_layers = 2,
                                                 .layers = layers,
                                                 .activation_bytes_per_token = 4096,
                                                 .compute_bytes = 1 << 20};
    static const struct placement_demand demand = {.context_tokens = 512, .streams = 1};
    struct cluster_problem problem;
    struct error err = {0};
    if (cluster->n_devices > 64 ||
        cluster->n_nodes > 64) /* squares and cubes of them: slow, and nothing new */
        return;
    const enum error_code code = cluster_problem_init(&problem, cluster, &model, &demand, &err);
    FUZZ_CHECK(!code && problem.problem.n_devices == cluster->n_devices);
    for (uint32_t i = 0; i < cluster->n_devices; i++)
        FUZZ_CHECK(problem.devices[i].memory_free_bytes <= cluster->devices[i].memory_bytes);
    cluster_problem_deinit(&problem);
}

static void write_again(const struct cluster *cluster)
{
    struct cluster back;
    struct buffer json = {0};
    struct error err = {0};
    cluster_write(cluster, &json);
    FUZZ_CHECK(!json.failed && (json.size > LIMIT_CLUSTER_FILE_BYTES ||
                                !cluster_parse(json.data, json.size, &back, &err)));
    if (json.size <= LIMIT_CLUSTER_FILE_BYTES) {
        FUZZ_CHECK(back.n_nodes == cluster->n_nodes && back.n_devices == cluster->n_devices);
        FUZZ_CHECK(back.n_links == cluster->n_links);
        for (uint32_t i = 0; i < cluster->n_devices; i++)
            FUZZ_CHECK(back.devices[i].memory_bytes == cluster->devices[i].memory_bytes &&
                       back.devices[i].speed == cluster->devices[i].speed &&
                       back.devices[i].share == cluster->devices[i].share);
        cluster_deinit(&back);
    }
    buffer_deinit(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cluster cluster;
    struct error err = {0};
    const enum error_code code = cluster_parse((const char *)data, size, &cluster, &err);
    if (code) {
        FUZZ_CHECK(code == ERROR_INVALID && err.code == code && err.text[0] && !cluster.devices &&
                   !cluster.n_nodes);
        for (const char *at = err.text; *at; at++)
            FUZZ_CHECK((unsigned char)*at >= ' ');
        return 0;
    }
    FUZZ_CHECK(cluster.n_devices >= 1 && cluster.n_devices <= LIMIT_PLACEMENT_DEVICES);
    FUZZ_CHECK(cluster.n_nodes >= 1 && cluster.n_nodes <= LIMIT_TOPOLOGY_NODES);
    for (uint32_t i = 0; i < cluster.n_devices; i++)
        check_device(&cluster, i);
    for (uint32_t i = 0; i < cluster.n_links; i++)
        FUZZ_CHECK(cluster.links[i].from < cluster.n_nodes &&
                   cluster.links[i].to < cluster.n_nodes &&
                   cluster.links[i].from != cluster.links[i].to);
    make_problem(&cluster);
    write_again(&cluster);
    cluster_deinit(&cluster);
    return 0;
}
