#include "public/machine.h"

#include "base/mem.h"
#include "public/describe.h"

#include <assert.h>
#include <uv.h>

/* Backends are loaded into a registry that ggml has once per process, so two openings must not
 * meet. */
static uv_once_t registry_once = UV_ONCE_INIT;
static uv_mutex_t registry_lock;

static void make_lock(void)
{
    const int failure = uv_mutex_init(&registry_lock);
    assert(failure == 0); /* a mutex can always be made */
}

static void lock_registry(void)
{
    uv_once(&registry_once, make_lock);
    uv_mutex_lock(&registry_lock);
}

static void describe_all(struct machine *machine)
{
    machine->n_devices = gpu_device_count(machine->gpu);
    assert(machine->n_devices <= LIMIT_DEVICES);
    for (uint32_t i = 0; i < machine->n_devices; i++) {
        struct device *device = gpu_device(machine->gpu, i);
        machine->devices[i] =
            (struct machine_device){.device = device, .info = public_info(device_info(device))};
    }
    machine->n_rejected = gpu_rejected_count(machine->gpu);
    assert(machine->n_rejected <= LIMIT_DEVICES);
    for (uint32_t i = 0; i < machine->n_rejected; i++) {
        const struct device_rejected *rejected = gpu_rejected(machine->gpu, i);
        machine->rejected[i] = (struct machine_device){.info = public_info(&rejected->info),
                                                       .reason = rejected->reason};
    }
}

enum error_code machine_open(const struct gpu_options *options, struct machine **out,
                             struct error *err)
{
    struct machine *machine = mem_new(sizeof *machine);
    if (!machine)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    lock_registry();
    enum error_code code = gpu_open(options, &machine->gpu, err);
    uv_mutex_unlock(&registry_lock);
    if (code) {
        mem_free(machine);
        return code;
    }
    describe_all(machine);
    atomic_init(&machine->n_users, 1);
    atomic_init(&machine->n_open, 1);
    *out = machine;
    return ERROR_NONE;
}

void machine_retain(struct machine *machine)
{
    unsigned before = atomic_fetch_add(&machine->n_users, 1);
    assert(before > 0);
    atomic_fetch_add(&machine->n_open, 1);
}

void machine_leave(struct machine *machine)
{
    if (atomic_fetch_sub(&machine->n_open, 1) != 1)
        return;
    for (uint32_t i = 0; i < machine->n_devices; i++)
        device_interrupt(machine->devices[i].device);
}

bool machine_release(struct machine *machine)
{
    unsigned before = atomic_fetch_sub(&machine->n_users, 1);
    assert(before > 0);
    return before == 1;
}

void machine_close(struct machine *machine)
{
    lock_registry();
    gpu_close(machine->gpu);
    uv_mutex_unlock(&registry_lock);
    mem_free(machine);
}
