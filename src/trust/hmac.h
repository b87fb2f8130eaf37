/* HMAC-SHA256 (RFC 2104), by which a receiver knows that a message came from who has the secret. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { HMAC_BYTES = 32, HMAC_TEXT = 2 * HMAC_BYTES + 1 };

/* As hexadecimal digits, with a NUL. Any thread. */
void hmac_text(const void *key, size_t key_size, const void *bytes, size_t size,
               char out[HMAC_TEXT]);
