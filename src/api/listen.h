/* The socket that the API listens on. */
#pragma once

#include "api/address.h"
#include "base/error.h"

/* Resolves the host to a numeric address and listens there; host and port as bound are written
 * back. ERROR_NOT_FOUND: no such host. ERROR_IO: in use, not this machine's, or not permitted. */
enum error_code listen_open(struct api_address *address, int *fd, struct error *err);
/* The same, and closes it: to say why it cannot be listened on before something takes long. A port
 * of 0 stays 0. */
enum error_code listen_check(struct api_address *address, struct error *err);
