/* macOS: the machine's memory and load. Compiled on Apple systems only; not run here.
 *
 * Source: host_statistics64() and host_statistics() of Mach (mach/mach_host.h,
 * mach/vm_statistics.h). Temperature and power have no public interface there (powermetrics wants
 * root), so they stay unknown. */
#ifdef __APPLE__

#include "base/clock.h"
#include "base/mem.h"
#include "sensors/rate.h"
#include "sensors/sensor_impl.h"

#include <mach/mach.h>
#include <sys/sysctl.h>
#include <unistd.h>

struct macos {
    struct load_meter meter;
};

static enum error_code macos_open(const struct sensor_context *context, void **self,
                                  struct error *err)
{
    (void)context;
    *self = mem_new(sizeof(struct macos));
    return *self ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

static struct reading macos_read_load(struct macos *macos)
{
    host_cpu_load_info_data_t load;
    mach_msg_type_number_t count = HOST_CPU_LOAD_INFO_COUNT;
    if (host_statistics(mach_host_self(), HOST_CPU_LOAD_INFO, (host_info_t)&load, &count) !=
        KERN_SUCCESS)
        return reading_failed();
    uint64_t busy = (uint64_t)load.cpu_ticks[CPU_STATE_USER] + load.cpu_ticks[CPU_STATE_SYSTEM] +
                    load.cpu_ticks[CPU_STATE_NICE];
    return load_meter_update(&macos->meter, busy, busy + load.cpu_ticks[CPU_STATE_IDLE],
                             clock_now_ns());
}

static void macos_read_node(void *self, struct sensor_node *out)
{
    uint64_t total = 0;
    size_t size = sizeof total;
    out->cpu_utilisation_pct = macos_read_load(self);
    out->memory_total_bytes = out->memory_available_bytes = reading_failed();
    if (sysctlbyname("hw.memsize", &total, &size, NULL, 0) != 0 || !total)
        return;
    out->memory_total_bytes = reading_now_u64(UNIT_BYTES, total);
    vm_statistics64_data_t memory;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&memory, &count) ==
        KERN_SUCCESS)
        out->memory_available_bytes =
            reading_now_u64(UNIT_BYTES, ((uint64_t)memory.free_count + memory.inactive_count) *
                                            (uint64_t)getpagesize());
}

const struct sensor_impl sensor_impl_macos = {
    .name = "macos", .open = macos_open, .close = mem_free, .read_node = macos_read_node};

#else
typedef int sensors_macos_is_empty; /* ISO C wants something in every file */
#endif
