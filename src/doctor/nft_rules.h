/* What a file of nftables' rules does to a port. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether incoming packets are dropped or refused unless a rule lets them in, and none names the
 * port, in a set or a range either. Rules of a service's name ("dport medley"), of named sets and
 * of included files are not followed: it is a hint. */
bool nft_rules_lack(const char *text, uint16_t port);
