/* A cluster that is written as a cluster file is read as the same cluster: those of the table, the
 * example, and random ones of all that a reader can give. With the argument `print` it prints a
 * list of those, for check_schema.py. */
#include "base/mem.h"
#include "clusterfile/cluster_file.h"
#include "clusterfile/cluster_write.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

static char *path_of(const char *name)
{
    static char path[512];
    assert_non_null(getenv("MEDLEY_ROOT"));
    snprintf(path, sizeof path, "%s/%s", getenv("MEDLEY_ROOT"), name);
    return path;
}

/* ---- the same -------------------------------------------------------------------------------- */

/* A decimal number loses the last bits of a double. */
static void expect_rate(double a, double b, const char *what)
{
    if (fabs(a - b) > 1e-14 * fabs(a))
        fail_msg("%s: %.17g became %.17g", what, a, b);
}

static void expect_device(const struct cluster_device *a, const struct cluster_device *b)
{
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->pci, b->pci);
    assert_true(a->node == b->node && a->kind == b->kind && a->is_software == b->is_software);
    assert_true(a->own_memory == b->own_memory && a->spare == b->spare && a->share == b->share);
    assert_true(a->memory_bytes == b->memory_bytes && a->reserve_bytes == b->reserve_bytes);
    assert_int_equal(a->speed, b->speed);
    assert_int_equal(a->n_types, b->n_types);
    for (uint32_t i = 0; i < a->n_types; i++) {
        assert_string_equal(a->types[i].name, b->types[i].name);
        assert_true(a->types[i].decode_bytes_per_s == b->types[i].decode_bytes_per_s);
        assert_true(a->types[i].prefill_flops == b->types[i].prefill_flops);
        assert_true(a->types[i].decode_bytes_per_s <= 0 ||
                    a->types[i].decode_spread == b->types[i].decode_spread);
    }
    expect_rate(a->decode_bytes_per_s, b->decode_bytes_per_s, "bandwidth");
    expect_rate(a->prefill_flops, b->prefill_flops, "flops");
    expect_rate(a->launch_s, b->launch_s, "launch");
    expect_rate(a->read_bytes_per_s, b->read_bytes_per_s, "reading");
    expect_rate(a->write_bytes_per_s, b->write_bytes_per_s, "writing");
}

static void expect_reading(struct reading a, struct reading b)
{
    assert_true(a.valid == b.valid && (!a.valid || a.value == b.value));
}

static void expect_same(const struct cluster *a, const struct cluster *b)
{
    assert_int_equal(a->n_nodes, b->n_nodes);
    assert_int_equal(a->n_devices, b->n_devices);
    assert_int_equal(a->n_links, b->n_links);
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        assert_string_equal(a->nodes[i].name, b->nodes[i].name);
        assert_true(a->nodes[i].memory_bytes == b->nodes[i].memory_bytes);
        assert_true(a->nodes[i].first_device == b->nodes[i].first_device &&
                    a->nodes[i].n_devices == b->nodes[i].n_devices);
    }
    for (uint32_t i = 0; i < a->n_devices; i++)
        expect_device(&a->devices[i], &b->devices[i]);
    for (uint32_t i = 0; i < a->n_links; i++) {
        const struct topology_link *x = &a->links[i], *y = &b->links[i];
        assert_true(x->from == y->from && x->to == y->to && x->class == y->class && x->up == y->up);
        assert_true(a->link_assumed[i] == b->link_assumed[i]);
        expect_reading(x->latency_ns, y->latency_ns);
        expect_reading(x->jitter_ns, y->jitter_ns);
        expect_reading(x->overhead_ns, y->overhead_ns);
        expect_reading(x->loss_share, y->loss_share);
        expect_reading(x->bandwidth_bytes_per_s, y->bandwidth_bytes_per_s);
        expect_reading(x->peer_bandwidth_bytes_per_s, y->peer_bandwidth_bytes_per_s);
    }
}

static void expect_round_trip(const struct cluster *cluster, const char *name)
{
    struct buffer json = {0};
    struct cluster back;
    struct error err = {0};
    cluster_write(cluster, &json);
    assert_false(json.failed);
    assert_null(strchr(json.data, '\n')); /* one line */
    if (cluster_parse(json.data, json.size, &back, &err))
        fail_msg("%s: %s in %s", name, err.text, json.data);
    expect_same(cluster, &back);
    cluster_deinit(&back);
    buffer_deinit(&json);
}

/* ---- those of the table ---------------------------------------------------------------------- */

static void all_of_the_table(void **state)
{
    size_t i, count, n_good = 0;
    yyjson_val *item;
    yyjson_doc *doc = yyjson_read_file(path_of("tests/cluster/table.json"), 0, NULL, NULL);
    assert_non_null(doc);
    yyjson_arr_foreach(yyjson_doc_get_root(doc), i, count, item)
    {
        size_t size;
        struct cluster cluster;
        struct error err = {0};
        yyjson_val *file = yyjson_obj_get(item, "file");
        if (!file || yyjson_obj_get(item, "error"))
            continue;
        char *text = yyjson_val_write(file, 0, &size);
        if (cluster_parse(text, size, &cluster, &err))
            fail_msg("%s", err.text);
        expect_round_trip(&cluster, yyjson_get_str(yyjson_obj_get(item, "name")));
        cluster_deinit(&cluster);
        free(text);
        n_good++;
    }
    assert_true(n_good > 10);
    yyjson_doc_free(doc);
}

static void the_examples(void **state)
{
    static const char *const examples[] = {"examples/home-cluster.json",
                                           "examples/two-machines.json"};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        struct cluster cluster;
        struct error err = {0};
        if (cluster_read(path_of(examples[i]), &cluster, &err))
            fail_msg("%s", err.text);
        expect_round_trip(&cluster, examples[i]);
        cluster_deinit(&cluster);
    }
}

/* ---- random ones ----------------------------------------------------------------------------- */

static uint64_t seed;

static double draw(void) /* 0 to 1 */
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(seed >> 11) * 0x1p-53;
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)(draw() * n);
}

static double between(double low, double high) /* evenly on a logarithmic scale */
{
    return low * exp(draw() * log(high / low));
}

static void draw_rates(struct cluster_device *device)
{
    device->speed = (enum cluster_speed)below(4);
    const bool calibrated =
        device->speed == CLUSTER_MEASURED || (device->speed == CLUSTER_ASSUMED && below(2));
    if (device->speed == CLUSTER_GIVEN || device->speed == CLUSTER_DATASHEET) {
        device->decode_bytes_per_s = between(1e3, 1e15);
        device->prefill_flops = below(2) ? between(1e6, 1e18) : 0;
    }
    for (uint32_t i = 0, n = calibrated ? 1 + below(CLUSTER_TYPES_MAX) : 0; i < n; i++) {
        struct cluster_type *type = &device->types[device->n_types++];
        snprintf(type->name, sizeof type->name, "q%u_0", i);
        if (device->speed == CLUSTER_MEASURED && (!i || below(2))) {
            type->decode_bytes_per_s = between(1, 1e18);
            type->decode_spread = below(2) ? draw() : 0;
        }
        type->prefill_flops = below(2) ? between(1, 1e18) : 0;
    }
    device->launch_s = below(2) ? between(1e-9, 10) : 0;
    device->read_bytes_per_s = below(2) ? between(1e3, 1e15) : 0;
    device->write_bytes_per_s =
        calibrated && below(2) ? between(1e3, 1e15) : device->read_bytes_per_s;
}

static void draw_device(struct cluster_device *device, uint32_t index)
{
    snprintf(device->id, sizeof device->id, "x%u", index);
    if (below(2))
        snprintf(device->name, sizeof device->name, "%s",
                 below(2) ? "a \"card\" \\ of some sort" : "GPU");
    if (below(3) == 0)
        snprintf(device->pci, sizeof device->pci, "0000:%02x:00.0", below(256));
    device->kind = (enum cluster_kind)below(3);
    device->own_memory = device->kind == CLUSTER_GPU || below(4) == 0;
    device->is_software = device->kind == CLUSTER_CPU && !device->own_memory && below(2);
    device->memory_bytes = below(8) ? (uint64_t)between(1, 0x1p50) : 0;
    device->reserve_bytes = (uint64_t)(draw() * (double)device->memory_bytes);
    device->share = below(2) ? 1 : draw();
    device->spare = below(4) == 0;
    draw_rates(device);
}

static struct reading draw_reading(double most)
{
    return (struct reading){floor(between(1, most)), true};
}

static void draw_link(struct cluster *cluster, uint32_t from, uint32_t to)
{
    const bool up = below(5) != 0;
    struct topology_link *link = cluster_add_link(cluster, up && below(3) == 0);
    *link = (struct topology_link){from, to, (enum topology_class)below(TOPOLOGY_CLASSES), up,
                                   .loss_share = {0}};
    if (up || below(2))
        link->latency_ns = draw_reading(6e10);
    if (below(2))
        link->jitter_ns = draw_reading(6e10);
    if (below(2))
        link->overhead_ns = draw_reading(6e10);
    if (below(2))
        link->loss_share = (struct reading){floor(between(1, 1e6)) * 1e-6, true};
    if (up)
        link->bandwidth_bytes_per_s = draw_reading(1e14);
    if (below(2))
        link->peer_bandwidth_bytes_per_s = draw_reading(1e14);
}

static struct cluster draw_cluster(void)
{
    struct cluster cluster = {0};
    const uint32_t n_nodes = 1 + below(5);
    for (uint32_t i = 0; i < n_nodes; i++) {
        struct cluster_node *node = cluster_add_node(&cluster);
        snprintf(node->name, sizeof node->name, "node!%u", i);
        node->memory_bytes = below(2) ? (uint64_t)between(0x1p20, 0x1p49) : 0;
        for (uint32_t k = 0, n = below(4) + !i; k < n; k++)
            draw_device(cluster_add_device(&cluster), k);
    }
    for (uint32_t i = 0; i < n_nodes * n_nodes; i++) {
        if (i / n_nodes != i % n_nodes && below(3))
            draw_link(&cluster, i / n_nodes, i % n_nodes);
    }
    return cluster;
}

static void random_clusters(void **state)
{
    for (uint32_t i = 0; i < 2000; i++) {
        char name[32];
        seed = i;
        snprintf(name, sizeof name, "cluster of seed %u", i);
        struct cluster cluster = draw_cluster();
        expect_round_trip(&cluster, name);
        cluster_deinit(&cluster);
    }
}

/* ---- what has no word ------------------------------------------------------------------------ */

static void what_cannot_be_said(void **state)
{
    struct cluster cluster = {0}, back;
    struct buffer json = {0};
    struct error err = {0};
    strcpy(cluster_add_node(&cluster)->name, "a");
    struct cluster_device *device = cluster_add_device(&cluster);
    *device = (struct cluster_device){.id = "x",
                                      .name = "a\x1b[2J\xff",
                                      .kind = CLUSTER_GPU,
                                      .share = 1,
                                      .launch_s = NAN,
                                      .read_bytes_per_s = 12};
    cluster_write(&cluster, &json);
    if (cluster_parse(json.data, json.size, &back, &err))
        fail_msg("%s", err.text);
    assert_string_equal(back.devices[0].name, "a?[2J?");
    assert_int_equal(back.devices[0].kind, CLUSTER_INTEGRATED_GPU);
    assert_true(back.devices[0].launch_s == 0 && !back.devices[0].own_memory);
    cluster_deinit(&back);
    buffer_deinit(&json);
    mem_fail_nth(1);
    cluster_write(&cluster, &json);
    mem_fail_nth(0);
    assert_true(json.failed);
    buffer_deinit(&json);
    cluster_deinit(&cluster);
}

static int print_some(void)
{
    struct buffer json = {0};
    for (seed = 1; seed < 200; seed++) {
        const uint64_t own = seed;
        struct cluster cluster = draw_cluster();
        buffer_text(&json, own == 1 ? "[" : ",\n");
        cluster_write(&cluster, &json);
        cluster_deinit(&cluster);
        seed = own;
    }
    buffer_text(&json, "]\n");
    fputs(json.data, stdout);
    buffer_deinit(&json);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "print"))
        return print_some();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_of_the_table),
        cmocka_unit_test(the_examples),
        cmocka_unit_test(random_clusters),
        cmocka_unit_test(what_cannot_be_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
