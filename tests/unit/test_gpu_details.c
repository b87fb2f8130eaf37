/* What the drivers tell of a device beside ggml, from stand-ins for their libraries and files. */
#include "gpu/details.h"
#include "gpu/driver_faults.h"
#include "sensors_world.h"
#include "standin_nvml.h"

#include <stdio.h>
#include <stdlib.h>

static const char nowhere[] = "/nonexistent/library";

static struct details_places places_of(const struct tree *tree)
{
    struct details_places places = {
        .vulkan_path = nowhere, .nvml_path = nowhere, .cuda_path = nowhere};
    snprintf(places.fs.root, sizeof places.fs.root, "%s", tree->root);
    return places;
}

static void fill(const struct details_places *places, struct device_info *info)
{
    struct device_info *const infos[] = {info};
    details_fill(places, infos, 1);
}

static struct device_info device(const char *backend, const char *vendor, const char *name,
                                 const char *pci)
{
    struct device_info info = {.kind = DEVICE_GPU};
    snprintf(info.backend, sizeof info.backend, "%s", backend);
    snprintf(info.vendor, sizeof info.vendor, "%s", vendor);
    snprintf(info.name, sizeof info.name, "%s", name);
    snprintf(info.pci, sizeof info.pci, "%s", pci);
    return info;
}

#define assert_known(reading, expected)                                                            \
    do {                                                                                           \
        assert_true((reading).valid);                                                              \
        assert_int_equal((reading).value, expected);                                               \
    } while (0)

/* ---- nobody tells ---------------------------------------------------------------------------- */

static void unknown_stays_unknown(void **state)
{
    struct tree tree;
    tree_open(&tree);
    struct details_places places = places_of(&tree);
    const char *const vendors[] = {"NVIDIA", "AMD", "Intel", "Apple", ""};
    const char *const backends[] = {"vulkan", "cuda", "hip"};
    for (size_t i = 0; i < 15; i++) {
        struct device_info info = device(backends[i % 3], vendors[i / 3], "A GPU", "0000:01:00.0");
        fill(&places, &info);
        assert_string_equal(info.architecture, "");
        assert_string_equal(info.driver, "");
        assert_string_equal(info.driver_fault, "");
        assert_false(info.compute_units.valid || info.clock_mhz.valid);
        assert_false(info.threads_per_block_max.valid || info.peer_to_peer.valid);
    }
    tree_close(&tree);
}

/* ---- Vulkan ------------------------------------------------------------------------------------
 */

static void vulkan_tells(void **state)
{
    struct tree tree;
    tree_open(&tree);
    struct details_places places = places_of(&tree);
    places.vulkan_path = STANDIN_VULKAN;
    struct device_info radeon = device("vulkan", "AMD", "renamed by ggml", "0000:c1:00.0");
    struct device_info mali = device("vulkan", "ARM", "Mali", "");
    struct device_info other = device("vulkan", "AMD", "AMD Radeon (RADV NAVI31)", "0000:c2:00.0");
    struct device_info cuda = device("cuda", "NVIDIA", "NVIDIA GeForce", "0000:01:00.0");
    struct device_info *const infos[] = {&radeon, &mali, &other, &cuda};
    details_fill(&places, infos, 4);
    assert_string_equal(radeon.driver_name, "radv");
    assert_string_equal(radeon.driver, "Mesa 25.0.7-2");
    assert_known(radeon.compute_units, 96);
    assert_known(radeon.threads_per_block_max, 1024);
    assert_known(radeon.peer_to_peer, 1);
    assert_non_null(strstr(radeon.driver_fault, "Mesa 26.0.5 mends it"));
    assert_string_equal(mali.driver, "Mesa 25.0?"); /* plain text */
    assert_known(mali.compute_units, 10);
    assert_false(mali.peer_to_peer.valid);
    assert_string_equal(other.driver, ""); /* the same name at another place is another card */
    assert_string_equal(cuda.driver, "");  /* Vulkan is not asked for others' devices */
    tree_close(&tree);
}

/* ---- NVIDIA ------------------------------------------------------------------------------------
 */

static struct device_info ask_nvidia(const char *mode, const char *backend, bool cuda)
{
    struct tree tree;
    tree_open(&tree);
    struct details_places places = places_of(&tree);
    places.nvml_path = STANDIN_NVML;
    places.cuda_path = cuda ? STANDIN_CUDA : nowhere;
    struct device_info info = device(backend, "NVIDIA", "GeForce", "0000:01:00.0");
    setenv("MEDLEY_STANDIN_NVML", mode, 1);
    fill(&places, &info);
    tree_close(&tree);
    return info;
}

static void nvidia_tells(void **state)
{
    struct device_info info = ask_nvidia("normal", "cuda", true);
    assert_string_equal(info.architecture, "compute capability 8.9");
    assert_string_equal(info.driver, "570.86.16");
    assert_string_equal(info.driver_name, "NVIDIA");
    assert_known(info.clock_mhz, 2520);
    assert_known(info.compute_units, 128);
    assert_known(info.threads_per_block_max, 1024);
    assert_known(info.peer_to_peer, 1);
    assert_string_equal(info.driver_fault, "");
    info = ask_nvidia("normal", "vulkan", true);
    assert_false(info.compute_units.valid); /* CUDA is not started for a Vulkan device */
    assert_known(info.clock_mhz, 2520);
}

static void nvidia_does_not_tell(void **state)
{
    static const char *const modes[] = {"no_driver", "mismatch", "errors", "lost"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct device_info info = ask_nvidia(modes[i], "cuda", false);
        assert_string_equal(info.architecture, "");
        assert_string_equal(info.driver, "");
        assert_false(info.clock_mhz.valid || info.compute_units.valid || info.peer_to_peer.valid);
    }
    struct device_info info = ask_nvidia("nonsense", "cuda", false);
    assert_string_equal(info.architecture, "");
    assert_string_equal(info.driver, "?[31m");
    assert_false(info.clock_mhz.valid);
    assert_known(info.peer_to_peer, 0);
}

/* ---- AMD, Intel
 * ---------------------------------------------------------------------------------- */

static void add_kfd(const struct tree *tree, int node, int simds, int place, const char *rest)
{
    char text[256];
    snprintf(text, sizeof text,
             "cpu_cores_count 0\nsimd_count %d\nsimd_per_cu 2\ngfx_target_version 110001\n"
             "location_id %d\ndomain 0\nmax_engine_clk_fcompute 2500\n%s",
             simds, place, rest);
    tree_write(tree, text, "sys/class/kfd/kfd/topology/nodes/%d/properties", node);
}

static void amd_tells(void **state)
{
    struct tree tree;
    tree_open(&tree);
    const struct details_places places = places_of(&tree);
    tree_add_radeon(&tree, "0000:c1:00.0");
    tree_write(&tree, "6.12.57\n", "proc/sys/kernel/osrelease");
    add_kfd(&tree, 0, 0, 0, "");
    add_kfd(&tree, 1, 24, 0xc100, "max_engine_clk_ccompute 5000\n");
    struct device_info info = device("hip", "AMD", "Radeon", "0000:c1:00.0");
    fill(&places, &info);
    assert_string_equal(info.architecture, "gfx1101");
    assert_known(info.compute_units, 12);
    assert_known(info.clock_mhz, 2500);
    assert_string_equal(info.driver_name, "amdgpu");
    assert_string_equal(info.driver, "Linux 6.12.57");
    assert_false(info.peer_to_peer.valid); /* there is no other GPU */
    assert_false(info.threads_per_block_max.valid);

    add_kfd(&tree, 2, 64, 0x0300, "");
    tree_folder(&tree, "sys/class/kfd/kfd/topology/nodes/1/p2p_links");
    tree_write(&tree, "6.10.5\n", "sys/module/amdgpu/version");
    info = device("hip", "AMD", "Radeon", "0000:c1:00.0");
    fill(&places, &info);
    assert_known(info.peer_to_peer, 0);
    assert_string_equal(info.driver, "6.10.5");
    tree_write(&tree, "type 2\nnode_to 2\n",
               "sys/class/kfd/kfd/topology/nodes/1/p2p_links/0/properties");
    info = device("hip", "AMD", "Radeon", "0000:c1:00.0");
    fill(&places, &info);
    assert_known(info.peer_to_peer, 1);
    tree_close(&tree);
}

static void amd_tells_nonsense(void **state)
{
    struct tree tree;
    tree_open(&tree);
    const struct details_places places = places_of(&tree);
    tree_write(&tree, "simd_count 18446744073709551616\nsimd_per_cu\nlocation_id x\n\n",
               "sys/class/kfd/kfd/topology/nodes/0/properties");
    tree_write(&tree, "simd_count 24\nsimd_per_cu 0\nlocation_id 49408\ngfx_target_version 0\n",
               "sys/class/kfd/kfd/topology/nodes/1/properties");
    struct device_info info = device("hip", "AMD", "Radeon", "0000:c1:00.0");
    fill(&places, &info);
    assert_string_equal(info.architecture, "");
    assert_false(info.compute_units.valid || info.clock_mhz.valid);
    tree_close(&tree);
}

static void intel_tells(void **state)
{
    struct tree tree;
    tree_open(&tree);
    const struct details_places places = places_of(&tree);
    tree_add_arc(&tree, "0000:03:00.0");
    tree_write(&tree, "6.12.57\n", "proc/sys/kernel/osrelease");
    tree_folder(&tree, "sys/bus/pci/devices/0000:03:00.0/drm/card1");
    tree_write(&tree, "2850\n", "sys/bus/pci/devices/0000:03:00.0/tile0/gt0/freq0/rp0_freq");
    struct device_info info = device("sycl", "Intel", "Arc", "0000:03:00.0");
    fill(&places, &info);
    assert_known(info.clock_mhz, 2850);
    assert_string_equal(info.driver_name, "xe");
    assert_string_equal(info.driver, "Linux 6.12.57");
    tree_write(&tree, "1150\n", "sys/bus/pci/devices/0000:03:00.0/drm/card1/gt_RP0_freq_mhz");
    info = device("vulkan", "Intel", "Iris", "0000:03:00.0");
    fill(&places, &info);
    assert_known(info.clock_mhz, 1150);
    assert_string_equal(info.driver, ""); /* Vulkan's own driver is another one */
    tree_close(&tree);
}

/* ---- faults
 * ---------------------------------------------------------------------------------------- */

static void faults_are_named(void **state)
{
    static const struct {
        const char *backend, *name, *version, *fault; /* "": none */
    } rows[] = {
        {"vulkan", "radv", "Mesa 25.0.7-2+deb13u1", "26.0.5"},
        {"vulkan", "radv", "Mesa 25.3.10", "26.0.5"},
        {"vulkan", "radv", "Mesa 26.0.5", ""},
        {"vulkan", "radv", "Mesa 25.0.6", ""}, /* nobody said so */
        {"vulkan", "radv", "", ""},
        {"vulkan", "radv", "git-main", ""},
        {"vulkan", "llvmpipe", "Mesa 25.0.7-2", ""},
        {"vulkan", "AMD open-source driver", "2025.Q2.1", "RADV"},
        {"cuda", "NVIDIA", "470.256.02", "525.60.13"},
        {"cuda", "NVIDIA", "525.60.13", ""},
        {"cuda", "NVIDIA", "99999999999999999999.1", ""},
        {"vulkan", "NVIDIA", "470.256.02", ""}, /* CUDA alone needs a newer one */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct device_info info = device(rows[i].backend, "", "", "");
        snprintf(info.driver_name, sizeof info.driver_name, "%s", rows[i].name);
        snprintf(info.driver, sizeof info.driver, "%s", rows[i].version);
        char text[192];
        driver_fault_find(&info, text, sizeof text);
        if (!rows[i].fault[0])
            assert_string_equal(text, "");
        else if (!strstr(text, rows[i].fault) || !strstr(text, "; "))
            fail_msg("%s %s: \"%s\"", rows[i].name, rows[i].version, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_stays_unknown),
        cmocka_unit_test(vulkan_tells),
        cmocka_unit_test(nvidia_tells),
        cmocka_unit_test(nvidia_does_not_tell),
        cmocka_unit_test(amd_tells),
        cmocka_unit_test(amd_tells_nonsense),
        cmocka_unit_test(intel_tells),
        cmocka_unit_test(faults_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
