/* An environment carries tokens, passwords and the paths to sockets of agents. What a driver reads
 * is named here; the rest stays behind. */
#include "sandbox/sandbox.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A name that ends in '_' stands for all that begin so. */
static const char *const kept_names[] = {
    "MEDLEY_LOG",
    "MEDLEY_BACKEND",
    "LD_LIBRARY_PATH",
    "LANG",
    "TZ",
    "LC_",
    /* ggml and its backends */
    "GGML_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "CUDA_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "HSA_",
    "AMD_",
    "GPU_",
    "SYCL_",
    "ONEAPI_",
    "UR_",
    "ZE_",
    "ZES_",
    "OCL_",
    "VK_",
    /* drivers */
    "MESA_",
    "GALLIUM_",
    "LP_",
    "RADV_",
    "ACO_",
    "ANV_",
    "INTEL_",
    "NOUVEAU_",
    "NVK_",
    "TU_",
    "PAN_",
    "LIBGL_",
    "__GL_",
    /* builds for tests */
    "ASAN_OPTIONS",
    "UBSAN_OPTIONS",
    "LSAN_OPTIONS",
    "TSAN_OPTIONS",
};

/* They would lead a driver into a user's own folders, or let it write into what other programs
 * trust: compiled shaders are programs. */
static const struct {
    const char *name, *below;
} folder_names[SANDBOX_FOLDERS] = {
    {"HOME", ""},
    {"TMPDIR", ""},
    {"XDG_CACHE_HOME", ""},
    {"MESA_SHADER_CACHE_DIR", "/mesa"},
    {"CUDA_CACHE_PATH", "/cuda"},
    {"__GL_SHADER_DISK_CACHE_PATH", ""},
};

static bool environment_is_folder(const char *variable)
{
    for (size_t i = 0; i < SANDBOX_FOLDERS; i++) {
        const size_t length = strlen(folder_names[i].name);
        if (strncmp(variable, folder_names[i].name, length) == 0 && variable[length] == '=')
            return true;
    }
    return false;
}

static bool environment_keeps(const char *variable)
{
    if (environment_is_folder(variable))
        return false;
    for (size_t i = 0; i < sizeof kept_names / sizeof *kept_names; i++) {
        const size_t length = strlen(kept_names[i]);
        if (strncmp(variable, kept_names[i], length) == 0 &&
            (kept_names[i][length - 1] == '_' || variable[length] == '='))
            return true;
    }
    return false;
}

void sandbox_environment_make(char *const *from, const char *folder,
                              struct sandbox_environment *out)
{
    assert(from && out);
    out->n = 0;
    for (uint32_t i = 0; folder && i < SANDBOX_FOLDERS; i++) {
        const int length = snprintf(out->folders[i], sizeof out->folders[i], "%s=%s%s",
                                    folder_names[i].name, folder, folder_names[i].below);
        if (length > 0 && (size_t)length < sizeof out->folders[i])
            out->variables[out->n++] = out->folders[i];
    }
    for (; *from && out->n < SANDBOX_VARIABLES_MAX; from++) {
        if (environment_keeps(*from))
            out->variables[out->n++] = *from;
    }
    out->variables[out->n] = NULL;
}
