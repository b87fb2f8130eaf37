/* The units with which systemd runs `medley up`: systemd.service(5), systemd.socket(5),
 * systemd.exec(5). Pure. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* Where the machine's own service keeps its state; the manager makes it, and only root enters. */
#define SERVICE_STATE_FOLDER "/var/lib/medley"

struct service_unit {
    bool for_user;       /* of one user, rather than of the machine */
    const char *program; /* an absolute path */
    char *const *words;  /* what follows `medley up` */
    size_t n_words;
    const char *listen; /* numeric HOST:PORT that the manager listens on; NULL: nothing */
    const char *groups; /* that devices belong to, "render video"; "": none */
};

/* ERROR_INVALID: a word that no unit can carry. ERROR_NO_MEMORY. */
enum error_code service_unit_text(const struct service_unit *unit, struct buffer *out,
                                  struct error *err);
/* `unit->listen` is there. */
enum error_code service_socket_text(const struct service_unit *unit, struct buffer *out,
                                    struct error *err);
