/* yyjson's memory is ours (mem.h), so that a test can fail it: for yyjson_read_opts() and its like.
 * What was read or written with it is freed with mem_free(), documents with yyjson's own calls. */
#pragma once

#include <yyjson.h>

extern const yyjson_alc json_memory;
