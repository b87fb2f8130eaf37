#include "sensors_tree.h"

#include <assert.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 512 };

static void must(int done)
{
    if (!done) {
        perror("sensors_tree");
        abort();
    }
}

__attribute__((format(printf, 3, 0))) static void
make_path(const struct tree *tree, char path[PATH_BYTES], const char *format, va_list args)
{
    int used = snprintf(path, PATH_BYTES, "%s/", tree->root);
    vsnprintf(path + used, (size_t)(PATH_BYTES - used), format, args);
}

#define MAKE_PATH(path, tree, format)                                                              \
    do {                                                                                           \
        va_list args;                                                                              \
        va_start(args, format);                                                                    \
        make_path(tree, path, format, args);                                                       \
        va_end(args);                                                                              \
    } while (0)

/* Makes every folder that stands before a slash of the path. */
static void make_parents(const struct tree *tree, char *path)
{
    for (char *slash = path + strlen(tree->root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        mkdir(path, 0755);
        *slash = '/';
    }
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status, (void)type, (void)ftw;
    return remove(path);
}

void tree_open(struct tree *tree)
{
    snprintf(tree->root, sizeof tree->root, "/tmp/medley-sensors-XXXXXX");
    must(mkdtemp(tree->root) != NULL);
}

void tree_close(struct tree *tree)
{
    nftw(tree->root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void tree_write(const struct tree *tree, const char *text, const char *format, ...)
{
    char path[PATH_BYTES];
    MAKE_PATH(path, tree, format);
    make_parents(tree, path);
    FILE *file = fopen(path, "w");
    must(file != NULL);
    must(fputs(text, file) >= 0);
    must(fclose(file) == 0);
}

void tree_folder(const struct tree *tree, const char *format, ...)
{
    char path[PATH_BYTES];
    MAKE_PATH(path, tree, format);
    make_parents(tree, path);
    must(mkdir(path, 0755) == 0);
}

void tree_pipe(const struct tree *tree, const char *format, ...)
{
    char path[PATH_BYTES];
    MAKE_PATH(path, tree, format);
    make_parents(tree, path);
    must(mkfifo(path, 0644) == 0);
}

void tree_remove(const struct tree *tree, const char *format, ...)
{
    char path[PATH_BYTES];
    MAKE_PATH(path, tree, format);
    must(nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

/* ---- machines ------------------------------------------------------------------------------ */

/* A folder's files: "name", "text" … up to NULL. */
static void write_files(const struct tree *tree, const char *folder, const char *const *files)
{
    for (; files[0]; files += 2)
        tree_write(tree, files[1], "%s/%s", folder, files[0]);
}

void tree_add_laptop(const struct tree *tree)
{
    write_files(tree, "sys/class/hwmon/hwmon0",
                (const char *const[]){"name", "nvme\n", "temp1_input", "99000\n", NULL});
    write_files(tree, "sys/class/hwmon/hwmon2",
                (const char *const[]){"name", "coretemp\n", "temp1_label", "Package id 0\n",
                                      "temp1_input", "61000\n", "temp1_crit", "100000\n",
                                      "temp2_label", "Core 0\n", "temp2_input", "77000\n", NULL});
    write_files(tree, "sys/class/hwmon/hwmon10",
                (const char *const[]){"name", "coretemp\n", "temp1_label", "Package id 1\n",
                                      "temp1_input", "64000\n", "temp1_crit", "98000\n", NULL});
    for (int i = 0; i < 2; i++) {
        char folder[64], name[16];
        snprintf(folder, sizeof folder, "sys/class/powercap/intel-rapl:%d", i);
        snprintf(name, sizeof name, "package-%d\n", i);
        write_files(tree, folder,
                    (const char *const[]){"name", name, "energy_uj", "1000000\n",
                                          "max_energy_range_uj", "262143328850\n",
                                          "constraint_0_power_limit_uw", "45000000\n", NULL});
    }
    write_files(tree, "sys/class/powercap/intel-rapl:0:0",
                (const char *const[]){"name", "core\n", "energy_uj", "900000\n", NULL});
    write_files(tree, "sys/class/powercap/intel-rapl-mmio:0",
                (const char *const[]){"name", "package-0\n", "energy_uj", "1000000\n", NULL});
    for (int i = 0; i < 4; i++) {
        char khz[16];
        snprintf(khz, sizeof khz, "%d\n", (i + 1) * 1000000);
        tree_write(tree, khz, "sys/devices/system/cpu/cpufreq/policy%d/scaling_cur_freq", i);
    }
    write_files(tree, "sys/class/power_supply/BAT0",
                (const char *const[]){"type", "Battery\n", "present", "1\n", "capacity", "80\n",
                                      "energy_full", "50000000\n", "status", "Discharging\n",
                                      NULL});
    write_files(tree, "sys/class/power_supply/AC",
                (const char *const[]){"type", "Mains\n", "online", "0\n", NULL});
    write_files(tree, "sys/class/power_supply/hidpp_battery_0",
                (const char *const[]){"type", "Battery\n", "scope", "Device\n", "capacity", "5\n",
                                      "status", "Discharging\n", NULL});
    tree_write(tree,
               "some avg10=1.53 avg60=0.90 avg300=0.20 total=12345\nfull avg10=0.25 avg60=0.00 "
               "avg300=0.00 total=99\n",
               "proc/pressure/memory");
    tree_write(tree, "cpu  1000 0 1000 8000 0 0 0 0 0 0\ncpu0 1000 0 1000 8000 0 0 0 0 0 0\n",
               "proc/stat");
    tree_write(
        tree,
        "MemTotal:       16777216 kB\nMemFree:         1000000 kB\nMemAvailable:    8388608 kB\n",
        "proc/meminfo");
}

void tree_add_radeon(const struct tree *tree, const char *pci)
{
    char folder[64], hwmon[96];
    snprintf(folder, sizeof folder, "sys/bus/pci/devices/%s", pci);
    snprintf(hwmon, sizeof hwmon, "%s/hwmon/hwmon5", folder);
    write_files(tree, folder,
                (const char *const[]){"vendor", "0x1002\n", "class", "0x030000\n",
                                      "gpu_busy_percent", "87\n", "mem_info_vram_total",
                                      "17179869184\n", "mem_info_vram_used", "3221225472\n", NULL});
    write_files(
        tree, hwmon,
        (const char *const[]){
            "name",        "amdgpu\n",       "temp1_label", "edge\n",      "temp1_input",
            "60000\n",     "temp1_crit",     "100000\n",    "temp2_label", "junction\n",
            "temp2_input", "71000\n",        "temp2_crit",  "110000\n",    "temp2_emergency",
            "115000\n",    "power1_average", "180000000\n", "power1_cap",  "250000000\n",
            "freq1_input", "2100000000\n",   NULL});
    tree_write(tree, "", "sys/bus/pci/drivers/amdgpu/%s/uevent", pci);
}

void tree_add_arc(const struct tree *tree, const char *pci)
{
    char folder[64], hwmon[96];
    snprintf(folder, sizeof folder, "sys/bus/pci/devices/%s", pci);
    snprintf(hwmon, sizeof hwmon, "%s/hwmon/hwmon6", folder);
    write_files(tree, folder,
                (const char *const[]){"vendor", "0x8086\n", "class", "0x030000\n",
                                      "tile0/gt0/freq0/act_freq", "2400\n", NULL});
    write_files(tree, hwmon,
                (const char *const[]){"name",          "xe\n",          "temp2_label",
                                      "pkg\n",         "temp2_input",   "55000\n",
                                      "temp3_label",   "vram\n",        "temp3_input",
                                      "80000\n",       "energy1_label", "card\n",
                                      "energy1_input", "7000000\n",     "energy2_label",
                                      "pkg\n",         "energy2_input", "5000000\n",
                                      "power2_max",    "190000000\n",   NULL});
    tree_write(tree, "", "sys/bus/pci/drivers/xe/%s/uevent", pci);
}
