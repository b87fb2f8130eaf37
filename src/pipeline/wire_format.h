/* The fixed parts of a micro-batch's message (wire.h), shared by its writer and its reader. */
#pragma once

#include "pipeline/wire.h"

enum { WIRE_MAGIC = 0x31424c4d }; /* "MLB1" */
enum { WIRE_EMBEDDINGS = 1 };
enum { WIRE_SHARE_PICK = 1, WIRE_SHARE_ROWS = 2, WIRE_SHARE_FAILED = 4, WIRE_SHARE_DROPPED = 8 };

static const uint32_t WIRE_OUTPUT_BIT = UINT32_C(1) << 31;
