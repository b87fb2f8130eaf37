#include "doctor/facts.h"
#include "doctor/nft_rules.h"

#include <arpa/inet.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

/* ---- files ------------------------------------------------------------------------------- */

static void facts_path(const char *root, const char *path, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s%s", root, path);
}

static bool facts_exists(const char *root, const char *path)
{
    char full[PATH_MAX];
    facts_path(root, path, full);
    return access(full, F_OK) == 0;
}

/* The last "KEY=value" of a file; `out` stays as it is where there is none. */
static void facts_read_setting(const char *path, const char *key, char *out, size_t size)
{
    FILE *file = fopen(path, "re");
    char line[256];
    const size_t length = strlen(key);
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) != 0 || line[length] != '=')
            continue;
        line[strcspn(line, " \t\r\n")] = 0;
        snprintf(out, size, "%s", line + length + 1);
    }
    if (file)
        fclose(file);
}

/* Calls `each` with the files of a pattern below root. */
static void facts_glob(const char *root, const char *pattern,
                       void (*each)(const char *path, void *user), void *user)
{
    char full[PATH_MAX];
    glob_t found;
    facts_path(root, pattern, full);
    if (glob(full, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            each(found.gl_pathv[i], user);
    }
    globfree(&found);
}

/* ---- clock, disk ------------------------------------------------------------------------- */

static void facts_read_clock(struct machine_facts *out)
{
    struct timex clock = {0};
    const int state = adjtimex(&clock);
    if (state < 0)
        return;
    out->clock_synchronised =
        state == TIME_ERROR || (clock.status & STA_UNSYNC) ? FACT_NO : FACT_YES;
    out->clock_error_s = (double)clock.esterror * 1e-6;
}

static void facts_read_disk(const char *state, struct machine_facts *out)
{
    struct stat folder;
    struct statvfs disk;
    char path[PATH_MAX];
    snprintf(out->state, sizeof out->state, "%s", state);
    snprintf(path, sizeof path, "%s", state);
    out->state_exists = stat(path, &folder) == 0 ? FACT_YES : FACT_NO;
    if (out->state_exists == FACT_YES) {
        out->state_mode = folder.st_mode & 07777;
        out->state_is_others = folder.st_uid != geteuid();
    }
    /* the first of the folders above it that there is */
    while (path[0] && statvfs(path, &disk) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        slash[slash == path && slash[1]] = 0;
    }
    if (!path[0])
        return;
    out->disk_known = FACT_YES;
    out->disk_free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
}

/* ---- power ------------------------------------------------------------------------------- */

static void facts_take_logind(const char *path, void *user)
{
    struct machine_facts *out = user;
    facts_read_setting(path, "IdleAction", out->idle_action, sizeof out->idle_action);
    facts_read_setting(path, "HandleLidSwitch", out->lid_action, sizeof out->lid_action);
}

static void facts_take_battery(const char *path, void *user)
{
    struct machine_facts *out = user;
    FILE *file = fopen(path, "re");
    char text[16] = "";
    if (file && fgets(text, sizeof text, file) && strncmp(text, "Battery", 7) == 0)
        out->has_battery = true;
    if (file)
        fclose(file);
}

static bool facts_is_masked(const char *root, const char *unit)
{
    char path[PATH_MAX], target[64];
    facts_path(root, unit, path);
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return false;
    target[length] = 0;
    return strcmp(target, "/dev/null") == 0;
}

static void facts_read_power(const char *root, struct machine_facts *out)
{
    /* in the order in which logind reads them */
    facts_glob(root, "/usr/lib/systemd/logind.conf.d/*.conf", facts_take_logind, out);
    facts_glob(root, "/etc/systemd/logind.conf", facts_take_logind, out);
    facts_glob(root, "/etc/systemd/logind.conf.d/*.conf", facts_take_logind, out);
    facts_glob(root, "/sys/class/power_supply/*/type", facts_take_battery, out);
    out->sleep_is_masked = facts_is_masked(root, "/etc/systemd/system/sleep.target") ||
                                   facts_is_masked(root, "/etc/systemd/system/suspend.target")
                               ? FACT_YES
                               : FACT_NO;
    out->has_desktop = facts_exists(root, "/usr/bin/gnome-session") ||
                       facts_exists(root, "/usr/bin/startplasma-wayland") ||
                       facts_exists(root, "/usr/bin/startplasma-x11");
}

/* ---- network ----------------------------------------------------------------------------- */

static void facts_read_interfaces(struct machine_facts *out)
{
    struct ifaddrs *list;
    if (getifaddrs(&list) != 0)
        return;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP) ||
            (at->ifa_flags & IFF_LOOPBACK))
            continue;
        out->n_interfaces++;
        out->n_multicast_interfaces += (at->ifa_flags & IFF_MULTICAST) != 0;
    }
    freeifaddrs(list);
}

/* Binds, and lets go at once. */
static enum tristate facts_port_is_free(uint16_t port, int type)
{
    const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return FACT_UNKNOWN;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (type == SOCK_STREAM) /* what a connection that has ended leaves is no program */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    const bool bound = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return bound ? FACT_YES : FACT_NO;
}

/* The kernel's rules are root's to read; the file that they are loaded from mostly is not. */
static enum tristate facts_nft_lacks(const char *root, uint16_t port)
{
    enum { RULES_BYTES = 64 * 1024 };
    char path[PATH_MAX];
    if (!facts_exists(root, "/etc/systemd/system/sysinit.target.wants/nftables.service") &&
        !facts_exists(root, "/etc/systemd/system/multi-user.target.wants/nftables.service"))
        return FACT_UNKNOWN;
    facts_path(root, "/etc/nftables.conf", path);
    FILE *file = fopen(path, "re");
    if (!file) {
        facts_path(root, "/etc/sysconfig/nftables.conf", path);
        file = fopen(path, "re");
    }
    char *text = file ? malloc(RULES_BYTES + 1) : NULL;
    const size_t size = text ? fread(text, 1, RULES_BYTES, file) : 0;
    enum tristate lacks = FACT_UNKNOWN;
    if (text && size < RULES_BYTES) { /* half of the rules say nothing */
        text[size] = 0;
        lacks = nft_rules_lack(text, port) ? FACT_YES : FACT_NO;
    }
    free(text);
    if (file)
        fclose(file);
    return lacks;
}

static void facts_read_network(const struct facts_wanted *wanted, const char *root,
                               struct machine_facts *out)
{
    char path[PATH_MAX], ufw[8] = "";
    facts_path(root, "/etc/ufw/ufw.conf", path);
    facts_read_setting(path, "ENABLED", ufw, sizeof ufw);
    out->has_ufw = strcmp(ufw, "yes") == 0;
    out->has_firewalld =
        facts_exists(root, "/run/firewalld") || facts_exists(root, "/run/firewalld.pid");
    out->port = wanted->port;
    out->nft_lacks_port = facts_nft_lacks(root, wanted->port);
    out->node_runs = wanted->node_runs;
    if (!wanted->node_runs) {
        const enum tristate tcp = facts_port_is_free(wanted->port, SOCK_STREAM);
        const enum tristate udp = facts_port_is_free(wanted->port, SOCK_DGRAM);
        out->port_is_free = tcp < udp ? tcp : udp;
    }
    facts_read_interfaces(out);
}

/* ---- GPUs -------------------------------------------------------------------------------- */

static unsigned long facts_read_hex(const char *folder, const char *name)
{
    char path[PATH_MAX], text[16] = "";
    snprintf(path, sizeof path, "%.3000s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file && !fgets(text, sizeof text, file))
        text[0] = 0;
    if (file)
        fclose(file);
    return strtoul(text, NULL, 16);
}

static void facts_take_pci(const char *path, void *user)
{
    enum { DISPLAY_CONTROLLER = 0x03, NVIDIA = 0x10de, AMD = 0x1002, INTEL = 0x8086 };
    struct machine_facts *out = user;
    if (facts_read_hex(path, "class") >> 16 != DISPLAY_CONTROLLER)
        return;
    const unsigned long vendor = facts_read_hex(path, "vendor");
    out->n_nvidia += vendor == NVIDIA;
    out->n_amd += vendor == AMD;
    out->n_intel += vendor == INTEL;
}

void facts_read(const struct facts_wanted *wanted, struct machine_facts *out)
{
    const char *root = wanted->root ? wanted->root : "";
    *out = (struct machine_facts){0};
    facts_read_clock(out);
    if (wanted->state[0])
        facts_read_disk(wanted->state, out);
    facts_read_power(root, out);
    facts_read_network(wanted, root, out);
    facts_glob(root, "/sys/bus/pci/devices/*", facts_take_pci, out);
    out->has_nvidia_module = facts_exists(root, "/sys/module/nvidia/version");
}
