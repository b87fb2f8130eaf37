/* Where another node is, as people write it. Pure. */
#pragma once

#include "base/error.h"

#include <stdint.h>

enum { HOST_TEXT = 256 };

/* "HOST", "HOST:PORT", "[IPV6]", "[IPV6]:PORT", or an IPv6 address; without a port it is
 * `standard`. ERROR_INVALID. */
enum error_code host_port_parse(const char *text, uint16_t standard, char host[HOST_TEXT],
                                uint16_t *port, struct error *err);
