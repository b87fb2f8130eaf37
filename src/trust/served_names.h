/* Under which names and addresses clients reach this machine's API: what its certificate is made
 * out to, and what a request's Host may say.
 *
 * From the address that is listened on, the machine's names and what the operator adds. Names are
 * in lower case; what is no host name (RFC 1123) or no address is left out. A machine called
 * "tower" is tower, and tower under each of the suffixes that local networks use (tower.local,
 * tower.lan, …; served_suffixes). Threads: none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    SERVED_NAMES_MAX = 48,
    SERVED_NAME_TEXT = 254,
    SERVED_ADDRESSES_MAX = 64,
    SERVED_ADDRESS_TEXT = 46, /* INET6_ADDRSTRLEN */
};

/* Suffixes of names that mean something on the local network only: reserved for that, or never to
 * be delegated (RFC 6762, appendix G; RFC 8375; ICANN's "internal"). NULL ends them. */
extern const char *const served_suffixes[];

/* Zeroed: none. */
struct served_names {
    char names[SERVED_NAMES_MAX][SERVED_NAME_TEXT];
    uint32_t n_names;
    char addresses[SERVED_ADDRESSES_MAX][SERVED_ADDRESS_TEXT]; /* numeric, without a scope */
    uint32_t n_addresses;
};

/* False: it is no host name or address, or there is no more room. Twice the same is kept once. */
bool served_names_add(struct served_names *names, const char *name_or_address);

/* A machine's name, with the suffixes. */
void served_names_add_machine(struct served_names *names, const char *name);

/* Of an API that listens on the numeric address `host`: its address, or all of this machine's where
 * it is a wildcard; the host name, `node_name` (may be NULL), and localhost where the loopback is
 * among the addresses. */
void served_names_gather(struct served_names *names, const char *host, const char *node_name);

bool served_names_equal(const struct served_names *one, const struct served_names *other);

/* Does the name end in one of served_suffixes? */
bool served_name_is_local(const char *name);
