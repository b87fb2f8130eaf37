#include "mesh/interface_class.h"

#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARPHRD_ETHERNET = 1, ARPHRD_LOOP = 772 };

/* ---- /sys ---------------------------------------------------------------------------------- */

static bool interface_class_has(const char *root, const char *name, const char *what)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/class/net/%s/%s", root, name, what);
    return access(path, F_OK) == 0;
}

/* The name of the driver that its device is bound to: the end of a symbolic link. */
static bool has_driver(const char *root, const char *name, const char *driver)
{
    char path[PATH_MAX], target[PATH_MAX];
    snprintf(path, sizeof path, "%s/class/net/%s/device/driver", root, name);
    const ssize_t size = readlink(path, target, sizeof target - 1);
    if (size <= 0)
        return false;
    target[size] = '\0';
    const char *last = strrchr(target, '/');
    return strcmp(last ? last + 1 : target, driver) == 0;
}

static long type_of(const char *root, const char *name)
{
    char path[PATH_MAX], text[32];
    snprintf(path, sizeof path, "%s/class/net/%s/type", root, name);
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    const bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    return read ? strtol(text, NULL, 10) : -1;
}

enum topology_class interface_class_of(const char *name, const char *root)
{
    if (!root)
        root = "/sys";
    if (!name[0] || strchr(name, '/') || name[0] == '.')
        return TOPOLOGY_UNKNOWN;
    if (interface_class_has(root, name, "wireless") || interface_class_has(root, name, "phy80211"))
        return TOPOLOGY_WIFI;
    if (has_driver(root, name, "thunderbolt-net") || has_driver(root, name, "thunderbolt_net"))
        return TOPOLOGY_THUNDERBOLT;
    if (interface_class_has(root, name, "device/infiniband"))
        return TOPOLOGY_RDMA;
    const long type = type_of(root, name);
    if (type == ARPHRD_LOOP)
        return TOPOLOGY_LOOPBACK;
    return type == ARPHRD_ETHERNET ? TOPOLOGY_ETHERNET : TOPOLOGY_UNKNOWN;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* ::ffff:a.b.c.d is a.b.c.d. */
static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    uint8_t bytes[2][16] = {0};
    const struct sockaddr *both[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (both[i]->sa_family == AF_INET6) {
            memcpy(bytes[i], &((const struct sockaddr_in6 *)both[i])->sin6_addr, 16);
        } else if (both[i]->sa_family == AF_INET) {
            bytes[i][10] = bytes[i][11] = 0xff;
            memcpy(bytes[i] + 12, &((const struct sockaddr_in *)both[i])->sin_addr, 4);
        } else {
            return false;
        }
    }
    return memcmp(bytes[0], bytes[1], 16) == 0;
}

enum topology_class interface_class(const struct sockaddr *local, const struct sockaddr *peer,
                                    const char *root)
{
    struct ifaddrs *all = NULL;
    enum topology_class class = TOPOLOGY_UNKNOWN;
    bool peer_is_here = false;
    if (getifaddrs(&all))
        return TOPOLOGY_UNKNOWN;
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr)
            continue;
        if (same_host(one->ifa_addr, local))
            class = interface_class_of(one->ifa_name, root);
        peer_is_here |= same_host(one->ifa_addr, peer);
    }
    freeifaddrs(all);
    /* All of 127.0.0.0/8 is here, though the interface has only one address of it. */
    return peer_is_here || class == TOPOLOGY_LOOPBACK ? TOPOLOGY_SAME_HOST : class;
}
