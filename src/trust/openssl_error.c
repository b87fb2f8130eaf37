#include "trust/openssl_error.h"

#include <openssl/err.h>

enum error_code openssl_error(struct error *err, const char *words)
{
    unsigned long first = ERR_peek_error();
    const char *reason = first ? ERR_reason_error_string(first) : NULL;
    enum error_code code = ERROR_INTERNAL;
    if (first && ERR_GET_REASON(first) == ERR_R_MALLOC_FAILURE)
        code = ERROR_NO_MEMORY;
    ERR_clear_error();
    return error_set(err, code, "%s: %s", words, reason ? reason : "OpenSSL refused");
}
