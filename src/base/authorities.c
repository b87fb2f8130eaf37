#include "base/authorities.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

const char *authorities_file(void)
{
    static const char *const places[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, Red Hat */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* the same, since Fedora 43 */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/ssl/certs/ca-bundle.crt",                      /* NixOS */
        "/etc/ssl/cert.pem",                                 /* Alpine, Void */
    };
    const char *given = getenv("SSL_CERT_FILE");
    if (given && given[0])
        return given;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (access(places[i], R_OK) == 0)
            return places[i];
    }
    return NULL;
}
