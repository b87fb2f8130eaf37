/* Battery and mains, Documentation/power/power_supply_class.rst and ABI/testing/sysfs-class-power
 * of the kernel.
 *
 * Batteries of mice and headsets (scope "Device") do not feed the machine. Of several batteries the
 * charge is the mean weighted by what each holds when full, where all say it in one unit. A desktop
 * has sockets too (USB-C, "online" 0): without a battery they say nothing of mains. The firmware
 * answers some of these questions, which can take long. */
#include "base/mem.h"
#include "sensors/sensor_impl.h"

#include <string.h>

enum { SUPPLIES_MAX = 32 };
static const uint64_t full_max = 1000000000; /* µWh or µAh: a thousand times a laptop's */

struct power_supply {
    const struct sysfs *fs;
};

/* Charges in percent, weighted by what the batteries hold in one unit. */
struct weighted {
    uint32_t n;
    uint64_t weight_sum, sum;
};

/* All that the supplies say, put together. */
struct supplies {
    uint32_t n_batteries, n_readable, n_mains;
    uint64_t pct_sum;
    struct weighted by_energy, by_charge; /* µWh; µAh */
    uint32_t n_charging, n_discharging, n_full, n_idle;
    bool on_mains;
};

static bool power_supply_read_name(const struct sysfs *fs, const char *supply, const char *file,
                                   char *text, size_t size)
{
    return sysfs_text(fs, text, size, "sys/class/power_supply/%s/%s", supply, file) == SYSFS_OK;
}

static bool read_number(const struct sysfs *fs, const char *supply, const char *file, uint64_t max,
                        uint64_t *out)
{
    return sysfs_u64(fs, out, max, "sys/class/power_supply/%s/%s", supply, file) == SYSFS_OK;
}

static void power_supply_weigh(const struct sysfs *fs, const char *supply, const char *file,
                               uint64_t pct, struct weighted *mean)
{
    uint64_t full;
    if (!read_number(fs, supply, file, full_max, &full) || !full)
        return;
    mean->n++;
    mean->weight_sum += full;
    mean->sum += full * pct;
}

static void add_battery(const struct sysfs *fs, const char *supply, struct supplies *all)
{
    char text[32];
    uint64_t present, pct;
    if (power_supply_read_name(fs, supply, "scope", text, sizeof text) &&
        strcmp(text, "Device") == 0)
        return;
    if (read_number(fs, supply, "present", 1, &present) && !present)
        return;
    all->n_batteries++;
    if (read_number(fs, supply, "capacity", 100, &pct)) {
        all->n_readable++;
        all->pct_sum += pct;
        power_supply_weigh(fs, supply, "energy_full", pct, &all->by_energy);
        power_supply_weigh(fs, supply, "charge_full", pct, &all->by_charge);
    }
    if (!power_supply_read_name(fs, supply, "status", text, sizeof text))
        return;
    all->n_charging += strcmp(text, "Charging") == 0;
    all->n_discharging += strcmp(text, "Discharging") == 0;
    all->n_full += strcmp(text, "Full") == 0;
    all->n_idle += strcmp(text, "Not charging") == 0;
}

static struct supplies read_supplies(const struct sysfs *fs)
{
    struct supplies all = {0};
    char names[SUPPLIES_MAX][SYSFS_NAME_BYTES], type[32];
    uint32_t n = sysfs_list(fs, "sys/class/power_supply", "", names, SUPPLIES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t online;
        if (!power_supply_read_name(fs, names[i], "type", type, sizeof type))
            continue;
        if (strcmp(type, "Battery") == 0) {
            add_battery(fs, names[i], &all);
        } else if ((strcmp(type, "Mains") == 0 || strncmp(type, "USB", 3) == 0) &&
                   read_number(fs, names[i], "online", 2, &online)) {
            all.n_mains++;
            all.on_mains |= online > 0; /* 2: online with a fixed voltage */
        }
    }
    return all;
}

static enum error_code power_supply_open(const struct sensor_context *context, void **self,
                                         struct error *err)
{
    struct supplies all = read_supplies(&context->fs);
    if (!all.n_batteries && !all.n_mains)
        return error_set(err, ERROR_NOT_FOUND,
                         "this machine reports neither battery nor mains; nothing to fix");
    struct power_supply *supply = mem_new(sizeof *supply);
    if (!supply)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    supply->fs = &context->fs;
    *self = supply;
    return ERROR_NONE;
}

static struct reading state_of(const struct supplies *all)
{
    if (all->n_discharging)
        return reading_now(UNIT_COUNT, BATTERY_DISCHARGING);
    if (all->n_charging)
        return reading_now(UNIT_COUNT, BATTERY_CHARGING);
    if (all->n_idle)
        return reading_now(UNIT_COUNT, BATTERY_NOT_CHARGING);
    return all->n_full ? reading_now(UNIT_COUNT, BATTERY_FULL) : reading_failed();
}

static struct reading on_ac(const struct supplies *all)
{
    if (all->on_mains)
        return reading_now(UNIT_COUNT, 1);
    if (all->n_discharging || all->n_charging) /* a charger that is not listed feeds it, too */
        return reading_now(UNIT_COUNT, !all->n_discharging);
    return all->n_batteries && all->n_mains ? reading_now(UNIT_COUNT, 0) : reading_failed();
}

static struct reading charge_of(const struct supplies *all)
{
    if (!all->n_readable || all->n_readable < all->n_batteries)
        return reading_failed();
    const struct weighted *mean =
        all->by_energy.n == all->n_readable ? &all->by_energy : &all->by_charge;
    return reading_now_u64(UNIT_PCT, mean->n == all->n_readable ? mean->sum / mean->weight_sum
                                                                : all->pct_sum / all->n_readable);
}

static void power_supply_read_node(void *self, struct sensor_node *out)
{
    struct supplies all = read_supplies(((const struct power_supply *)self)->fs);
    out->on_ac = on_ac(&all);
    out->battery_state = state_of(&all);
    out->battery_pct = charge_of(&all);
}

const struct sensor_impl sensor_impl_power_supply = {.name = "power_supply",
                                                     .may_block = true,
                                                     .open = power_supply_open,
                                                     .close = mem_free,
                                                     .read_node = power_supply_read_node};
