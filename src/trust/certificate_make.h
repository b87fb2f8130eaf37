/* Making a certificate from what it is to say: RFC 5280. For the files of this room. */
#pragma once

#include "base/error.h"

#include <openssl/types.h>
#include <stddef.h>
#include <stdint.h>

enum { SERIAL_BYTES = 16 };

/* What a certificate says; a NULL value ends the extensions, which are in OpenSSL's notation
 * (x509v3_config(5)). */
struct certificate_statement {
    const char *subject, *issuer; /* common names */
    const uint8_t *serial;        /* SERIAL_BYTES; NULL: random */
    uint64_t from_unix_s, until_unix_s;
    struct {
        int nid;
        const char *value;
    } extensions[8];
};

/* issuer NULL: self-signed. With an ECDSA signer the signature's nonce is RFC 6979's, so that the
 * same statement and key give the same bytes. NULL: OpenSSL's queue says why. */
X509 *certificate_make(const struct certificate_statement *what, EVP_PKEY *public_key, X509 *issuer,
                       EVP_PKEY *signer);
