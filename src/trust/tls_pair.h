/* What a TLS server shows: a private key, its certificate, and those between it and a root; and the
 * settings of a server that anybody may speak to.
 *
 * Ownership: a pair is the caller's; tls_pair_deinit() wipes the key. Threads: none. */
#pragma once

#include "base/error.h"

#include <openssl/types.h>
#include <stdbool.h>
#include <stdint.h>

struct handshake_rate;
struct stack_st_X509;

/* Zeroed: none. */
struct tls_pair {
    EVP_PKEY *key;
    X509 *certificate;
    struct stack_st_X509 *chain; /* NULL: nothing in between */
};

void tls_pair_deinit(struct tls_pair *pair);

/* From PEM files: the certificate first, then those in between. ERROR_INVALID: a file is damaged,
 * the key has a password, or does not belong to the certificate. */
enum error_code tls_pair_read(const char *certificate_path, const char *key_path,
                              struct tls_pair *out, struct error *err);

/* The same from memory; `what` names it in messages. */
enum error_code tls_pair_parse(const void *certificates, size_t certificates_size, const void *key,
                               size_t key_size, struct tls_pair *out, struct error *err);

/* Makes a context one of a server that speaks TLS 1.3, or 1.2 with ephemeral keys and authenticated
 * ciphers, and nothing else: no resumption, no renegotiation, no compression. Each handshake is
 * shown what is in `pair` when it begins, unless there are too many for `rate`. The pair may be
 * exchanged between any two; both must outlive the context, which one thread uses. */
enum error_code tls_server_set_up(SSL_CTX *context, const struct tls_pair *pair,
                                  struct handshake_rate *rate, struct error *err);
