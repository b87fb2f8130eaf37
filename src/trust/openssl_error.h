/* OpenSSL's queue of errors, as one of ours. */
#pragma once

#include "base/error.h"

/* ERROR_INTERNAL with "words: OpenSSL's reason". Empties the queue of this thread, which
 * SSL_get_error() of a later call would otherwise take for its own. */
enum error_code openssl_error(struct error *err, const char *words);
