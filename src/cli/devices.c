/* medley devices: list what can compute here, and what is missing. */
#include "base/mem.h"
#include "base/this_process.h"
#include "cli/commands.h"
#include "cli/devices_calibration.h"
#include "cli/devices_view.h"
#include "cli/notice.h"
#include "gpu/gpu.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley devices [--json] [--backend NAME] [--sim FILE] [--verify] [--calibrate]\n"
    "\n"
    "Lists every device that can compute: id, name, memory, measured speed, temperature, power\n"
    "and clock where known, and what all of them are together. Each device was verified: written,\n"
    "read back, and made to compute. Devices that failed are listed with the reason; missing\n"
    "backends and sensors with the command that mends them. docs/gpu-guide.md tells more.\n"
    "\n"
    "  --backend NAME   only this backend and the CPU: cuda, hip, vulkan, metal, sycl,\n"
    "                   opencl or cpu (the environment's MEDLEY_BACKEND does the same)\n"
    "  --sim FILE       simulated devices too (docs/simulated-devices.md)\n"
    "  --json           for programs; what is unknown is null\n"
    "  --verify         verify every device again, including those whose driver once crashed or\n"
    "                   hung. Otherwise a device that passed is trusted until something about it\n"
    "                   changes\n"
    "  --calibrate      measure how fast each device is and remember it: layers are then shared\n"
    "                   out by speed. Takes some seconds per device, longer the first time, when\n"
    "                   the driver compiles\n"
    "\n"
    "`medley run --devices` takes the ids, such as cpu,vulkan0. Results are kept in devices.json\n"
    "in MEDLEY_STATE_DIR, else in XDG_STATE_HOME/medley, else in ~/.local/state/medley. An empty\n"
    "MEDLEY_STATE_DIR keeps nothing.\n";

static int cmd_devices_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'},      {"backend", required_argument, NULL, 'b'},
        {"verify", no_argument, NULL, 'v'},    {"calibrate", no_argument, NULL, 'c'},
        {"sim", required_argument, NULL, 's'}, {NULL, 0, NULL, 0}};
    char registry[PATH_MAX];
    gpu_registry_path(registry, sizeof registry);
    struct gpu_options wanted = {.registry = registry, .prober = this_program()};
    bool json = false, calibrate = false;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'j')
            json = true;
        else if (option == 'b')
            wanted.backend = optarg;
        else if (option == 'v')
            wanted.verify = true;
        else if (option == 'c')
            calibrate = true;
        else if (option == 's')
            wanted.sim_file = optarg;
        else
            return command_misused(&command_devices, "unknown or incomplete option '%s'",
                                   argv[optind - 1]);
    }
    if (optind < argc)
        return command_misused(&command_devices, "unexpected argument '%s'", argv[optind]);
    struct gpu *gpu;
    struct error err;
    struct notice notice;
    notice_begin(&notice, "verifying the devices …");
    enum error_code failure = gpu_open(&wanted, &gpu, &err);
    notice_end(&notice);
    if (failure)
        return command_fail(&command_devices, &err);
    failure = calibrate ? devices_calibrate(gpu, &err)
                        : ERROR_NONE; /* what was measured is shown all the same */
    struct devices_view *view = devices_view_read(gpu, failure ? NULL : &err);
    bool shown = view && (!json || devices_print_json(view));
    if (view && !json)
        devices_print_text(view);
    if (!view && !failure)
        failure = err.code;
    mem_free(view);
    gpu_close(gpu);
    if (!shown && !failure)
        failure = error_set(&err, ERROR_NO_MEMORY, "out of memory");
    if ((fflush(stdout) != 0 || ferror(stdout)) && !failure)
        failure = error_set(&err, ERROR_IO, "cannot write the list: %s", strerror(errno));
    return failure ? command_fail(&command_devices, &err) : EXIT_OK;
}

const struct command command_devices = {
    .name = "devices",
    .summary = "list what can compute here, and what is missing",
    .usage = usage,
    .run = cmd_devices_run,
};
