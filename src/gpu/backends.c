#include "gpu/backends.h"

#include "gpu/plugin_package.h"
#include "gpu/plugins.h"

#include <ggml.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RENDER_GROUP "sudo usermod -aG render \"$USER\", then log in again"

/* In the order of preference where no platform says otherwise. The needs of a backend that
 * Debian does not package are those of ggml's own build documentation. */
static const struct backend backends[] = {
    {
        .name = "cuda",
        .registry = {"CUDA"},
        .stem = "cuda",
        .package = "libggml0-backend-cuda",
        .device_files = "/dev/nvidia[0-9]*",
        .needs = "an NVIDIA GPU and its driver (libcuda.so.1)",
        .mend_plugin = "sudo apt install libggml0-backend-cuda (contrib; of the same version as "
                       "libggml0), else build ggml "
                       "with -DGGML_CUDA=ON",
        .mend_device = "check the driver with nvidia-smi",
        .mend_permission = "sudo usermod -aG video \"$USER\", then log in again",
        .mend_driver = "update the NVIDIA driver (nvidia-smi shows which it is)",
        .support = SUPPORT_EXPECTED,
    },
    {
        .name = "hip",
        .registry = {"ROCm", "HIP"},
        .stem = "hip",
        .package = "libggml0-backend-hip",
        .device_files = "/dev/kfd",
        .needs = "an AMD GPU with the amdgpu driver and ROCm",
        .mend_plugin = "sudo apt install libggml0-backend-hip, else build ggml with -DGGML_HIP=ON",
        .mend_device = "check the driver with rocminfo",
        .mend_permission = RENDER_GROUP,
        .support = SUPPORT_EXPECTED,
    },
    {
        .name = "vulkan",
        .registry = {"Vulkan"},
        .stem = "vulkan",
        .package = "libggml0-backend-vulkan",
        .device_files = "/dev/dri/renderD*",
        .needs = "a GPU with a Vulkan driver",
        .mend_plugin = "sudo apt install libggml0-backend-vulkan",
        .mend_device =
            "sudo apt install mesa-vulkan-drivers brings drivers; "
            "GGML_VK_VISIBLE_DEVICES=0 makes a software one appear (slow, for trying things out)",
        .mend_permission = RENDER_GROUP,
        .support = SUPPORT_TESTED,
    },
    {
        .name = "metal",
        .registry = {"MTL", "Metal"},
        .stem = "metal",
        .needs = "an Apple GPU",
        .mend_plugin = "build ggml with -DGGML_METAL=ON",
        .mend_device = "check it in System Information",
        .support = SUPPORT_EXPECTED,
    },
    {
        .name = "sycl",
        .registry = {"SYCL"},
        .stem = "sycl",
        .device_files = "/dev/dri/renderD*",
        .needs = "an Intel GPU with the oneAPI runtime",
        .mend_plugin = "build ggml with -DGGML_SYCL=ON (needs Intel oneAPI); the vulkan backend "
                       "drives Intel GPUs too",
        .mend_device = "check the runtime with sycl-ls",
        .mend_permission = RENDER_GROUP,
        .support = SUPPORT_EXPERIMENTAL,
    },
    {
        .name = "opencl",
        .registry = {"OpenCL"},
        .stem = "opencl",
        .device_files = "/dev/dri/renderD*",
        .needs = "a GPU with an OpenCL driver",
        .mend_plugin = "build ggml with -DGGML_OPENCL=ON; the vulkan backend drives most GPUs too",
        .mend_device = "check the driver with clinfo",
        .mend_permission = RENDER_GROUP,
        .support = SUPPORT_EXPERIMENTAL,
    },
    {
        .name = "cpu",
        .registry = {"CPU"},
        .stem = "cpu",
        .needs = "nothing",
        .mend_plugin = "sudo apt install libggml0",
        .mend_device = "reinstall libggml0",
        .support = SUPPORT_TESTED,
    },
};

uint32_t backend_count(void)
{
    return sizeof backends / sizeof *backends;
}

const struct backend *backend_at(uint32_t index)
{
    return &backends[index];
}

const struct backend *backend_find(const char *name)
{
    for (uint32_t i = 0; i < backend_count(); i++) {
        if (strcmp(backends[i].name, name) == 0)
            return &backends[i];
    }
    return NULL;
}

void backend_names(char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < backend_count() && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", backends[i].name);
}

ggml_backend_reg_t backend_registry(const struct backend *backend)
{
    for (size_t i = 0; i < 2 && backend->registry[i]; i++) {
        ggml_backend_reg_t reg = ggml_backend_reg_by_name(backend->registry[i]);
        if (reg)
            return reg;
    }
    return NULL;
}

bool backend_fits(const struct backend *backend, char *reason, size_t size)
{
    const char *folder = plugins_folder();
    char words[96];
    const bool is_packaged = backend->package && (strncmp(folder, "/usr/lib/", 9) == 0 ||
                                                  strncmp(folder, "/lib/", 5) == 0);
    if (!is_packaged || backend_registry(backend) || !plugin_is_there(backend->stem) ||
        plugin_package_fits("/var/lib/dpkg/status", backend->package, ggml_version(), words,
                            sizeof words))
        return true;
    snprintf(reason, size, "%s%s; mend: sudo apt install %s of ggml's version", words,
             strcmp(backend->name, "vulkan") == 0
                 ? ""
                 : ": the vulkan backend serves its GPUs meanwhile",
             backend->package);
    return false;
}

bool backend_load(const struct backend *backend, char *reason, size_t size)
{
    if (backend_registry(backend))
        return true;
    struct error err;
    enum error_code code = plugin_load(backend->stem, &err);
    if (!code && !backend_registry(backend))
        code = error_set(&err, ERROR_UNSUPPORTED,
                         "its plugin registers under a name that Medley does not know");
    if (code == ERROR_NOT_FOUND)
        snprintf(reason, size, "%s; mend: %s", err.text, backend->mend_plugin);
    else if (code)
        snprintf(reason, size, "%.140s; needs %s; %s", err.text, backend->needs,
                 backend->mend_device);
    return code == ERROR_NONE;
}

bool backend_has_device_files(const struct backend *backend)
{
    glob_t found;
    if (!backend->device_files)
        return true;
    const bool any = glob(backend->device_files, 0, NULL, &found) != GLOB_NOMATCH;
    globfree(&found);
    return any;
}

/* The first file of the pattern that exists and may not be used; false when there is none. */
static bool find_forbidden(const char *pattern, char *path, size_t size)
{
    glob_t found;
    bool forbidden = false;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !forbidden; i++) {
            forbidden = access(found.gl_pathv[i], R_OK | W_OK) != 0;
            if (forbidden)
                snprintf(path, size, "%s", found.gl_pathv[i]);
        }
    }
    globfree(&found);
    return forbidden;
}

/* The runtimes of CUDA and HIP: "CUDA driver version is insufficient for CUDA runtime version". */
static bool says_driver_too_old(const char *words)
{
    return strstr(words, "driver") && strstr(words, "insufficient");
}

void backend_explain_no_device(const struct backend *backend, const char *words, char *reason,
                               size_t size)
{
    char path[64];
    if (backend->device_files && find_forbidden(backend->device_files, path, sizeof path))
        snprintf(reason, size, "no permission to use %s; mend: %s", path, backend->mend_permission);
    else if (says_driver_too_old(words))
        snprintf(reason, size, "its driver is too old (%.120s); mend: %s", words,
                 backend->mend_driver ? backend->mend_driver : backend->mend_device);
    else if (words[0])
        snprintf(reason, size, "loaded, but it finds no device (%.120s): needs %s; %s", words,
                 backend->needs, backend->mend_device);
    else
        snprintf(reason, size, "loaded, but it finds no device: needs %s; %s", backend->needs,
                 backend->mend_device);
}
