/* The options of TLS for the API, the same for `medley up` and `medley serve`:
 *
 *     static const struct option_section sections[] = {…, TLS_SECTION(struct up, api_options.tls)};
 */
#pragma once

#include "api/server.h"
#include "cli/options.h"

enum { TLS_OPTIONS = 3 };
extern const struct option_row tls_options[TLS_OPTIONS];

#define TLS_SECTION(type, field)                                                                   \
    .title = "\nTLS for the API (docs/api-tls.md):\n", .rows = tls_options, .n_rows = TLS_OPTIONS, \
    .offset = offsetof(type, field), .column = 19
