/* The cluster file: every case of tests/cluster/table.json, what is read from good ones, and lack
 * of memory. */
#include "base/limits.h"
#include "base/mem.h"
#include "clusterfile/cluster_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

static char *path_of(const char *name)
{
    static char path[512];
    const char *root = getenv("MEDLEY_ROOT");
    assert_non_null(root);
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

/* ---- the table ------------------------------------------------------------------------------- */

static void check_case(yyjson_val *item)
{
    const char *name = yyjson_get_str(yyjson_obj_get(item, "name"));
    const char *expected = yyjson_get_str(yyjson_obj_get(item, "error"));
    yyjson_val *text = yyjson_obj_get(item, "text"), *file = yyjson_obj_get(item, "file");
    size_t size = yyjson_get_len(text);
    char *written = file ? yyjson_val_write(file, 0, &size) : NULL;
    struct cluster cluster;
    struct error err = {0};
    assert_non_null(name);
    assert_true(file || text);
    const enum error_code code =
        cluster_parse(written ? written : yyjson_get_str(text), size, &cluster, &err);
    if (expected && code != ERROR_INVALID)
        fail_msg("%s: it was taken", name);
    if (expected && !strstr(err.text, expected))
        fail_msg("%s: the error is '%s', not '%s'", name, err.text, expected);
    if (!expected && code)
        fail_msg("%s: %s", name, err.text);
    if (code)
        assert_true(!cluster.nodes && !cluster.devices && !cluster.links && !cluster.n_devices);
    cluster_deinit(&cluster);
    free(written);
}

static void every_case_of_the_table(void **state)
{
    size_t i, count, n_bad = 0;
    yyjson_val *item;
    yyjson_doc *doc = yyjson_read_file(path_of("tests/cluster/table.json"), 0, NULL, NULL);
    assert_non_null(doc);
    yyjson_arr_foreach(yyjson_doc_get_root(doc), i, count, item)
    {
        check_case(item);
        n_bad += yyjson_obj_get(item, "error") != NULL;
    }
    assert_true(n_bad > 60 && count > n_bad + 8);
    yyjson_doc_free(doc);
}

/* ---- what is read ---------------------------------------------------------------------------- */

static struct cluster parse(const char *text)
{
    struct cluster cluster;
    struct error err = {0};
    if (cluster_parse(text, strlen(text), &cluster, &err))
        fail_msg("%s", err.text);
    return cluster;
}

static void the_example(void **state)
{
    struct cluster cluster;
    struct error err = {0};
    if (cluster_read(path_of("examples/home-cluster.json"), &cluster, &err))
        fail_msg("%s", err.text);
    assert_int_equal(cluster.n_nodes, 3);
    assert_int_equal(cluster.n_devices, 5);
    assert_int_equal(cluster.n_links, 6); /* both ways */
    const struct cluster_device *metal = &cluster.devices[0], *cuda = &cluster.devices[2];
    assert_string_equal(metal->id, "metal0");
    assert_true(metal->memory_bytes == UINT64_C(48) << 30 && !metal->own_memory);
    assert_int_equal(metal->speed, CLUSTER_DATASHEET);
    assert_true(cuda->own_memory && cuda->read_bytes_per_s == 12e9 &&
                cuda->decode_bytes_per_s == 936e9);
    assert_true(cuda->reserve_bytes == UINT64_C(512) << 20 && cuda->share == 1);
    const struct topology_link *link = &cluster.links[0];
    assert_true(link->up && link->latency_ns.value == 150000 &&
                link->bandwidth_bytes_per_s.value == 312500000);
    assert_false(cluster.link_assumed[0]);
    assert_true(cluster.link_assumed[4] && cluster.link_assumed[5]);
    cluster_deinit(&cluster);
    assert_int_equal(cluster_read(path_of("examples/no-such.json"), &cluster, &err),
                     ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "no-such.json: "));
    assert_int_equal(cluster_read("/", &cluster, &err), ERROR_IO);
}

#define TWO                                                                                        \
    "{\"nodes\":[{\"name\":\"a\",\"devices\":[{\"id\":\"cpu\",\"memory\":\"8GiB\"}]},{\"name\":"   \
    "\"b\",\"devices\":[]}]"                                                                       \
    ","

static void ways_of_links(void **state)
{
    struct cluster cluster = parse(
        TWO "\"links\":[{\"from\":\"b\",\"to\":\"a\",\"latency_ms\":1,\"bandwidth\":\"8Mb/s\"}]}");
    assert_int_equal(cluster.n_links, 2);
    assert_true(cluster.links[1].from == 0 &&
                cluster.links[1].bandwidth_bytes_per_s.value == 1000000);
    cluster_deinit(&cluster);
    cluster =
        parse(TWO "\"links\":[{\"from\":\"b\",\"to\":\"a\",\"one_way\":true,\"class\":\"wifi\"}]}");
    assert_true(cluster.n_links == 1 && cluster.links[0].from == 1 &&
                cluster.links[0].class == TOPOLOGY_WIFI);
    cluster_deinit(&cluster);
    /* an entry of its own replaces the way back of another, wherever it stands */
    cluster = parse(TWO "\"links\":[{\"from\":\"b\",\"to\":\"a\",\"class\":\"wifi\"},"
                        "{\"from\":\"a\",\"to\":\"b\",\"latency_ms\":7,\"bandwidth\":\"8Mb/s\"}]}");
    assert_int_equal(cluster.n_links, 2);
    assert_true(cluster.links[1].from == 0 && cluster.links[1].latency_ns.value == 7000000 &&
                !cluster.link_assumed[1]);
    assert_true(cluster.link_assumed[0]);
    cluster_deinit(&cluster);
}

static void speeds_and_where_they_are_from(void **state)
{
    struct cluster cluster = parse(
        "{\"nodes\":[{\"name\":\"a\",\"memory\":\"64GiB\",\"devices\":["
        "{\"id\":\"cpu\"},"
        "{\"id\":\"vulkan0\",\"kind\":\"cpu\",\"backend\":\"vulkan\"},"
        "{\"id\":\"sim:x\",\"kind\":\"cpu\",\"backend\":\"sim\",\"memory\":\"1GiB\",\"bandwidth_mb_"
        "per_s\":200,"
        "\"peak_mflops\":3},"
        "{\"id\":\"gpu0\",\"memory\":\"1GiB\",\"launch\":\"7us\",\"calibration\":{\"types\":[{"
        "\"name\":\"q4_K\","
        "\"decode_bytes_per_s\":{\"median\":5,\"spread\":0.25,\"runs\":3}}],\"launch_ns\":null}},"
        "{\"id\":\"gpu1\",\"memory\":\"1GiB\",\"calibration\":{\"types\":[{\"name\":\"q4_K\"}]}},"
        "{\"id\":\"gpu2\",\"memory\":\"1GiB\",\"published_hint\":{\"bandwidth_gb_per_s\":936,"
        "\"tflops_f32\":35.5}},"
        "{\"id\":\"gpu3\",\"memory\":\"1GiB\",\"bandwidth\":\"1GB/s\",\"published_hint\":"
        "{\"bandwidth_gb_per_s\":936}}]}]}");
    const struct cluster_device *devices = cluster.devices;
    assert_true(devices[0].speed == CLUSTER_ASSUMED && devices[0].kind == CLUSTER_CPU &&
                !devices[0].is_software);
    assert_true(devices[1].is_software && !devices[1].own_memory &&
                devices[1].memory_bytes == UINT64_C(64) << 30);
    assert_true(devices[2].speed == CLUSTER_GIVEN && devices[2].own_memory &&
                devices[2].decode_bytes_per_s == 200e6);
    assert_true(devices[2].prefill_flops == 3e6);
    assert_true(devices[3].speed == CLUSTER_MEASURED && devices[3].types[0].decode_spread == 0.25);
    assert_true(devices[3].launch_s > 6.9e-6 && devices[3].launch_s < 7.1e-6);
    assert_int_equal(devices[4].speed, CLUSTER_ASSUMED); /* nothing of use was measured */
    assert_true(devices[5].speed == CLUSTER_DATASHEET && devices[5].decode_bytes_per_s == 936e9);
    assert_true(devices[5].prefill_flops == 35.5e12);
    assert_true(devices[6].speed == CLUSTER_DATASHEET &&
                devices[6].decode_bytes_per_s == 1e9); /* said by hand */
    cluster_deinit(&cluster);
}

/* ---- one device as text ---------------------------------------------------------------------- */

static void one_device_as_text(void **state)
{
    struct cluster_device device;
    struct error err = {0};
    assert_int_equal(cluster_device_parse("24GiB,936GB/s,35TFLOP/s", &device, &err), ERROR_NONE);
    assert_true(device.memory_bytes == UINT64_C(24) << 30 && device.decode_bytes_per_s == 936e9 &&
                device.prefill_flops == 35e12 && device.share == 1 &&
                device.speed == CLUSTER_DATASHEET);
    assert_int_equal(cluster_device_parse("100GB/s,8GiB", &device, &err), ERROR_NONE);
    assert_true(device.memory_bytes == UINT64_C(8) << 30 && device.prefill_flops == 0);
    assert_int_equal(cluster_device_parse("rtx-3090", &device, &err), ERROR_NONE);
    assert_true(device.memory_bytes == UINT64_C(24) << 30 && device.decode_bytes_per_s > 900e9);
    static const char *const bad[] = {"",
                                      ",",
                                      "24GiB",
                                      "936GB/s",
                                      "24GiB,25GiB,936GB/s",
                                      "24 apples",
                                      "24GiB,936GB/s,",
                                      "nan",
                                      "24GiB,-1GB/s"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct error){0};
        if (cluster_device_parse(bad[i], &device, &err) != ERROR_INVALID &&
            strcmp(bad[i], "24GiB,936GB/s,") != 0)
            fail_msg("'%s' was taken", bad[i]);
    }
    cluster_device_parse("24GiB", &device, &err);
    assert_non_null(strstr(err.text, "the bandwidth is missing"));
}

/* ---- limits and memory ----------------------------------------------------------------------- */

static void limits(void **state)
{
    struct cluster cluster;
    struct error err = {0};
    struct buffer {
        char *data;
        size_t size;
    } text = {malloc(LIMIT_CLUSTER_FILE_BYTES + 2), 0};
    text.size = (size_t)sprintf(text.data, "{\"nodes\":[");
    for (int i = 0; i <= LIMIT_TOPOLOGY_NODES; i++)
        text.size += (size_t)sprintf(text.data + text.size, "%s{\"name\":\"n%d\",\"devices\":[]}",
                                     i ? "," : "", i);
    strcpy(text.data + text.size, "]}");
    assert_int_equal(cluster_parse(text.data, text.size + 2, &cluster, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "nodes[1024]: more than 1024 nodes"));
    text.size = (size_t)sprintf(text.data, "{\"nodes\":[{\"name\":\"a\",\"devices\":[");
    for (int i = 0; i <= LIMIT_PLACEMENT_DEVICES; i++)
        text.size += (size_t)sprintf(text.data + text.size,
                                     "%s{\"id\":\"g%d\",\"memory\":\"1GiB\"}", i ? "," : "", i);
    strcpy(text.data + text.size, "]}]}");
    assert_int_equal(cluster_parse(text.data, text.size + 4, &cluster, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "nodes[0].devices[1024]: more than 1024 devices"));
    memset(text.data, ' ', LIMIT_CLUSTER_FILE_BYTES + 1);
    assert_int_equal(cluster_parse(text.data, LIMIT_CLUSTER_FILE_BYTES + 1, &cluster, &err),
                     ERROR_INVALID);
    assert_non_null(strstr(err.text, "more than 16 MiB"));
    free(text.data);
}

static void no_memory(void **state)
{
    struct cluster cluster;
    unsigned n_failed = 0;
    for (unsigned nth = 1; nth < 1000; nth++) {
        struct error err = {0};
        mem_fail_nth(nth);
        const enum error_code code =
            cluster_read(path_of("examples/home-cluster.json"), &cluster, &err);
        mem_fail_nth(0);
        if (!code) {
            cluster_deinit(&cluster);
            break;
        }
        assert_int_equal(code, ERROR_NO_MEMORY);
        assert_true(err.text[0] && !cluster.n_devices && !cluster.devices);
        n_failed++;
    }
    assert_true(n_failed > 10 && n_failed < 900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_of_the_table),
        cmocka_unit_test(the_example),
        cmocka_unit_test(ways_of_links),
        cmocka_unit_test(speeds_and_where_they_are_from),
        cmocka_unit_test(one_device_as_text),
        cmocka_unit_test(limits),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
