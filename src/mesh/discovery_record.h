/* A node's record as DNS-SD's TXT data, and back. Pure; what is read may be anybody's. */
#pragma once

#include "mesh/discovery.h"

#include <avahi-common/address.h>
#include <avahi-common/strlst.h>

/* "id=…", "cluster=…", "version=1.0". NULL: no memory. avahi_string_list_free() it. */
AvahiStringList *discovery_record_write(const struct discovery_record *record);

/* False: it is not a node's, or not one of this protocol's shape. `name`: the service's. Unknown
 * keys are ignored. */
bool discovery_record_read(const char *name, uint16_t port, AvahiStringList *txt,
                           struct discovery_record *out);

/* False: an address of an unknown family, unspecified or multicast. */
bool discovery_address(const AvahiAddress *address, uint16_t port, uint32_t interface,
                       struct sockaddr_storage *out);
