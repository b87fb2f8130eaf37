/* A calibration as JSON: in the registry, and in what `medley devices --json` prints. */
#pragma once

#include "gpu/gpu.h"

#include <yyjson.h>

/* NULL when memory runs out. Texts are copied into the document. */
yyjson_mut_val *calibration_to_json(yyjson_mut_doc *doc,
                                    const struct device_calibration *calibration);

/* False unless every field is there once, of its type, and a value that a measurement can have. */
bool calibration_from_json(yyjson_val *value, struct device_calibration *out);

/* ---- strict reading: objects of known fields ------------------------------------------- */

enum json_kind {
    JSON_TEXT,
    JSON_COUNT,
    JSON_NUMBER,
    JSON_TRUE,
    JSON_OBJECT,
    JSON_OBJECT_OR_NULL,
    JSON_ARRAY
};

struct calibration_field {
    const char *name;
    enum json_kind kind;
    yyjson_val **value;
};

/* True when `object` has exactly these fields, each once and of its kind. At most 16. */
bool json_fields(yyjson_val *object, const struct calibration_field *fields, uint32_t count);

/* Copies a text that fits, with no control characters in it. */
bool json_copy_text(yyjson_val *value, char *out, size_t size);
