#include "trust/served_names.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *const served_suffixes[] = {"local",       "lan",      "home.arpa", "internal", "home",
                                       "localdomain", "intranet", "private",   "corp",     NULL};

/* ---- one name --------------------------------------------------------------------------- */

static bool served_label_is_good(const char *label, size_t size)
{
    if (size == 0 || size > 63 || label[0] == '-' || label[size - 1] == '-')
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isascii((unsigned char)label[i]) ||
            (!isalnum((unsigned char)label[i]) && label[i] != '-'))
            return false;
    }
    return true;
}

/* RFC 1123, section 2.1. A last label of digits alone would be taken for an address. */
static bool served_name_copy(const char *text, char out[SERVED_NAME_TEXT])
{
    size_t size = strlen(text);
    if (size && text[size - 1] == '.')
        size--;
    if (size == 0 || size >= SERVED_NAME_TEXT)
        return false;
    const char *label = text, *end = text + size;
    bool digits = true;
    while (label < end) {
        const char *dot = memchr(label, '.', (size_t)(end - label));
        const size_t length = (size_t)((dot ? dot : end) - label);
        if (!served_label_is_good(label, length) || (dot && dot + 1 == end))
            return false;
        digits = strspn(label, "0123456789") >= length;
        label += length + 1;
    }
    for (size_t i = 0; i < size; i++)
        out[i] = (char)tolower((unsigned char)text[i]);
    out[size] = 0;
    return !digits;
}

/* As inet_ntop() writes it, so that two spellings are one. */
static bool served_address_copy(const char *text, char out[SERVED_ADDRESS_TEXT])
{
    struct in6_addr bytes;
    for (int i = 0; i < 2; i++) {
        const int family = i ? AF_INET6 : AF_INET;
        if (inet_pton(family, text, &bytes) == 1)
            return inet_ntop(family, &bytes, out, SERVED_ADDRESS_TEXT) != NULL;
    }
    return false;
}

static bool served_add_address(struct served_names *names, const char *address)
{
    for (uint32_t i = 0; i < names->n_addresses; i++) {
        if (strcmp(names->addresses[i], address) == 0)
            return true;
    }
    if (names->n_addresses == SERVED_ADDRESSES_MAX)
        return false;
    memcpy(names->addresses[names->n_addresses++], address, strlen(address) + 1);
    return true;
}

bool served_names_add(struct served_names *names, const char *text)
{
    char name[SERVED_NAME_TEXT];
    if (served_address_copy(text, name))
        return served_add_address(names, name);
    if (!served_name_copy(text, name))
        return false;
    for (uint32_t i = 0; i < names->n_names; i++) {
        if (strcmp(names->names[i], name) == 0)
            return true;
    }
    if (names->n_names == SERVED_NAMES_MAX)
        return false;
    memcpy(names->names[names->n_names++], name, strlen(name) + 1);
    return true;
}

void served_names_add_machine(struct served_names *names, const char *name)
{
    char text[2 * SERVED_NAME_TEXT], full[SERVED_NAME_TEXT];
    if (!served_name_copy(name, full)) /* such as "Anna's laptop" */
        return;
    served_names_add(names, full);
    const size_t first = strcspn(full, ".");
    if (strcmp(full, "localhost") == 0)
        return;
    for (const char *const *suffix = served_suffixes; *suffix; suffix++) {
        snprintf(text, sizeof text, "%.*s.%s", (int)first, full, *suffix);
        served_names_add(names, text);
    }
}

/* ---- all of them ------------------------------------------------------------------------ */

static bool served_host_is_wildcard(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

/* A link-local address of IPv6 cannot be written in a URL without its interface's name, which
 * clients then compare with nothing. */
static void served_add_interfaces(struct served_names *names, bool with_v6)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list))
        return;
    for (const struct ifaddrs *at = list; at; at = at->ifa_next) {
        char text[SERVED_ADDRESS_TEXT];
        if (!at->ifa_addr || !(at->ifa_flags & IFF_UP))
            continue;
        if (at->ifa_addr->sa_family == AF_INET) {
            const struct sockaddr_in *v4 = (const struct sockaddr_in *)at->ifa_addr;
            if (inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text))
                served_names_add(names, text);
        } else if (at->ifa_addr->sa_family == AF_INET6 && with_v6) {
            const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at->ifa_addr;
            if (!IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) &&
                inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text))
                served_names_add(names, text);
        }
    }
    freeifaddrs(list);
}

static bool served_has_loopback(const struct served_names *names)
{
    for (uint32_t i = 0; i < names->n_addresses; i++) {
        if (strncmp(names->addresses[i], "127.", 4) == 0 || strcmp(names->addresses[i], "::1") == 0)
            return true;
    }
    return false;
}

void served_names_gather(struct served_names *names, const char *host, const char *node_name)
{
    char machine[256] = "";
    if (served_host_is_wildcard(host))
        served_add_interfaces(names, strchr(host, ':') != NULL);
    else
        served_names_add(names, host);
    if (served_has_loopback(names))
        served_names_add(names, "localhost");
    if (gethostname(machine, sizeof machine - 1) == 0)
        served_names_add_machine(names, machine);
    if (node_name)
        served_names_add_machine(names, node_name);
}

bool served_names_equal(const struct served_names *one, const struct served_names *other)
{
    if (one->n_names != other->n_names || one->n_addresses != other->n_addresses)
        return false;
    for (uint32_t i = 0; i < one->n_names; i++) {
        if (strcmp(one->names[i], other->names[i]) != 0)
            return false;
    }
    for (uint32_t i = 0; i < one->n_addresses; i++) {
        if (strcmp(one->addresses[i], other->addresses[i]) != 0)
            return false;
    }
    return true;
}

bool served_name_is_local(const char *name)
{
    const size_t size = strlen(name);
    if (strcmp(name, "localhost") == 0)
        return true;
    for (const char *const *suffix = served_suffixes; *suffix; suffix++) {
        const size_t length = strlen(*suffix);
        if (size > length + 1 && name[size - length - 1] == '.' &&
            strcmp(name + size - length, *suffix) == 0)
            return true;
    }
    return false;
}
