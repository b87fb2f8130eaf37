#include "mesh/discovery_record.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

AvahiStringList *discovery_record_write(const struct discovery_record *record)
{
    AvahiStringList *txt = avahi_string_list_add_printf(
        NULL, "version=%u.%u", record->version_major, record->version_minor);
    if (txt)
        txt = avahi_string_list_add_pair(txt, "cluster", record->cluster);
    return txt ? avahi_string_list_add_pair(txt, "id", record->id) : NULL;
}

static bool is_plain(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (text[i] < ' ' || text[i] > '~')
            return false;
    }
    return true;
}

/* The value of a key, copied; false when it is not there, too long, or not plain text. */
static bool discovery_record_read_value(AvahiStringList *txt, const char *key, char *out,
                                        size_t out_size)
{
    size_t key_size = strlen(key);
    for (; txt; txt = avahi_string_list_get_next(txt)) {
        const char *pair = (const char *)avahi_string_list_get_text(txt);
        size_t size = avahi_string_list_get_size(txt);
        if (size <= key_size || strncmp(pair, key, key_size) != 0 || pair[key_size] != '=')
            continue;
        size -= key_size + 1;
        if (size >= out_size || !is_plain(pair + key_size + 1, size))
            return false;
        memcpy(out, pair + key_size + 1, size);
        out[size] = '\0';
        return true;
    }
    return false;
}

static bool read_version(const char *text, uint32_t *major, uint32_t *minor)
{
    unsigned a, b;
    char rest;
    if (strlen(text) > 11 || sscanf(text, "%u.%u%c", &a, &b, &rest) != 2)
        return false;
    *major = a;
    *minor = b;
    return true;
}

bool discovery_record_read(const char *name, uint16_t port, AvahiStringList *txt,
                           struct discovery_record *out)
{
    char version[16];
    *out = (struct discovery_record){.port = port};
    size_t name_size = strlen(name);
    if (!port || !name_size || name_size >= sizeof out->name || !is_plain(name, name_size))
        return false;
    memcpy(out->name, name, name_size + 1);
    return discovery_record_read_value(txt, "id", out->id, sizeof out->id) && out->id[0] &&
           discovery_record_read_value(txt, "cluster", out->cluster, sizeof out->cluster) &&
           discovery_record_read_value(txt, "version", version, sizeof version) &&
           read_version(version, &out->version_major, &out->version_minor);
}

bool discovery_address(const AvahiAddress *address, uint16_t port, uint32_t interface,
                       struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){0};
    if (address->proto == AVAHI_PROTO_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        v4->sin_addr.s_addr = address->data.ipv4.address;
        uint32_t host = ntohl(v4->sin_addr.s_addr);
        return host != INADDR_ANY && !IN_MULTICAST(host);
    }
    if (address->proto != AVAHI_PROTO_INET6)
        return false;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    memcpy(&v6->sin6_addr, address->data.ipv6.address, sizeof v6->sin6_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr))
        v6->sin6_scope_id = interface;
    return !IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) && !IN6_IS_ADDR_MULTICAST(&v6->sin6_addr);
}
