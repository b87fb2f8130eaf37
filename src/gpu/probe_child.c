/* The child's side of a verification. */
#include "gpu/backends.h"
#include "gpu/details.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/plugins.h"
#include "gpu/probe.h"
#include "gpu/verify.h"
#include "sandbox/sandbox.h"

#include "base/this_process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    ARGUMENTS = 9
}; /* program, PROBE_ARGUMENT, backend, index, name, the parent's pid, seconds, PROBE_FREE or "",
      the folder of shaders or "" */

/* Nobody must have to clean up after the child: it leaves no core file and does not outlive its
 * parent. */
static void probe_child_bind_to_parent(pid_t parent, unsigned limit_s)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    fcntl(PROBE_DESCRIPTOR, F_SETFD, FD_CLOEXEC);
    alarm(limit_s);
    this_process_dies_with(parent);
}

/* Before the first byte of a driver is loaded. */
static enum error_code probe_child_enter_sandbox(const char *backend, const char *is_free,
                                                 const char *folder, struct error *err)
{
    static struct sandbox_rules rules;
    const char *const files[] = {this_program(), plugins_folder()};
    const struct sandbox_need need = {.work = SANDBOX_DEVICE,
                                      .backend = backend,
                                      .folder = folder[0] ? folder : NULL,
                                      .files = files,
                                      .n_files = sizeof files / sizeof *files,
                                      .environment = environ};
    if (strcmp(is_free, PROBE_FREE) == 0)
        return ERROR_NONE;
    sandbox_rules_make(&need, &rules);
    return sandbox_enter(&rules, err);
}

/* Asks each device's driver what the parent will ask it. NVML and the kernel's files are left out:
 * the sandbox is made for drivers that compute, and the sensors open them in the parent, too. */
static void probe_child_describe(const struct device_impl *impl, const void *family, uint32_t count)
{
    static const struct details_places own;
    for (uint32_t i = 0; i < count; i++) {
        struct device_info info = {0}, *const infos[] = {&info};
        impl->get(family, i, &info);
        details_fill_vulkan(&own, infos, 1);
    }
}

static enum error_code probe_child_check(const char *backend, uint32_t index, const char *name,
                                         probe_lookup *lookup, struct error *err)
{
    const struct device_impl *impl;
    const void *family;
    enum error_code code = lookup(backend, &impl, &family, err);
    if (code)
        return code;
    struct device_info info = {0};
    uint32_t count = impl->list(family);
    if (!name[0]) {
        probe_child_describe(impl, family, count);
        return ERROR_NONE;
    }
    if (index < count)
        impl->get(family, index, &info);
    if (strcmp(info.name, name) != 0)
        return error_set(err, ERROR_DEVICE, "the driver lists different devices than a moment ago");
    const struct gpu_options options = {.n_cpu_threads = 1};
    void *self;
    code = impl->initialize(family, index, &options, &self, err);
    if (code)
        return code;
    code = verify_device(impl, self, err);
    impl->shutdown(self);
    return code;
}

static void probe_child_answer(enum error_code code, const struct error *err)
{
    char line[PROBE_LINE_MAX];
    int length = code ? snprintf(line, sizeof line, "medley-probe 1 failed %.400s", err->text)
                      : snprintf(line, sizeof line, "medley-probe 1 passed");
    for (int i = 0; i < length; i++) {
        if (line[i] == '\n')
            line[i] = ' ';
    }
    line[length++] = '\n';
    ssize_t written =
        write(PROBE_DESCRIPTOR, line, (size_t)length); /* below PIPE_BUF: whole or not at all */
    _exit(written == length ? 0 : 1);                  /* without the exit handlers of drivers */
}

void probe_main(int argc, char **argv, probe_lookup *lookup)
{
    if (argc != ARGUMENTS || strcmp(argv[1], PROBE_ARGUMENT) != 0)
        return;
    probe_child_bind_to_parent((pid_t)strtol(argv[5], NULL, 10),
                               (unsigned)strtoul(argv[6], NULL, 10));
    struct error err = {0};
    enum error_code code = probe_child_enter_sandbox(argv[2], argv[7], argv[8], &err);
    if (!code)
        code =
            probe_child_check(argv[2], (uint32_t)strtoul(argv[3], NULL, 10), argv[4], lookup, &err);
    probe_child_answer(code, &err);
}

static enum error_code lookup_ggml(const char *name, const struct device_impl **impl,
                                   const void **family, struct error *err)
{
    const struct backend *backend = backend_find(name);
    if (!backend)
        return error_set(err, ERROR_INVALID, "no backend '%.32s'", name);
    plugins_log_hook();
    char reason[256];
    if (!backend_load(backend_find("cpu"), reason, sizeof reason) ||
        !backend_load(backend, reason, sizeof reason))
        return error_set(err, ERROR_NOT_FOUND, "%s", reason);
    *impl = &device_impl_ggml;
    *family = backend;
    return ERROR_NONE;
}

void gpu_prober_main(int argc, char **argv)
{
    probe_main(argc, argv, lookup_ggml);
}
