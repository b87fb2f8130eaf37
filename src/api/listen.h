/* Finding out, before libwebsockets does, whether an address can be listened on, to say why not. */
#pragma once

#include "api/address.h"
#include "base/error.h"

/* Resolves the host to a numeric address (written back) and tries to bind it. ERROR_NOT_FOUND: no
 * such host. ERROR_IO: in use, not this machine's, or not permitted. */
enum error_code listen_check(struct api_address *address, struct error *err);
