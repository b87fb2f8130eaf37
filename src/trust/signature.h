/* Ed25519 signatures (RFC 8032) by a node's key or an authority's: of events of the log and of what
 * hands an authority on. Any thread. */
#pragma once

#include "trust/identity.h"

enum { SIGNATURE_BYTES = 64 };

/* `key` has its private half. ERROR_NO_MEMORY, or what OpenSSL says. */
enum error_code signature_make(EVP_PKEY *key, const void *bytes, size_t size,
                               uint8_t signature[SIGNATURE_BYTES], struct error *err);

/* A function of its arguments alone, which allocates nothing: every node comes to the same answer
 * (cluster/state.h). */
bool signature_is_good(const uint8_t public_key[PUBLIC_KEY_BYTES], const void *bytes, size_t size,
                       const uint8_t signature[SIGNATURE_BYTES]);
