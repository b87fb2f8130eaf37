/* The OpenAPI document of the API: made by the build from the tables in openapi/, whose fields are
 * those of the code (tests/unit/test_openapi.c). */
#pragma once

#include <stddef.h>

extern const char openapi_document[]; /* JSON, without a NUL */
extern const size_t openapi_document_size;
