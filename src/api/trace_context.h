/* Which trace a request belongs to: the client's, by its header `traceparent` (W3C Trace Context,
 * section 3.2), else one of its own. Pure but for trace_context_make(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACE_ID_TEXT = 33, TRACE_SPAN_TEXT = 17, TRACE_PARENT_BYTES = 55 };

struct trace_context {
    char trace_id[TRACE_ID_TEXT]; /* lower-case hexadecimal; "": there is none */
    char parent[TRACE_SPAN_TEXT]; /* the client's span; "": none */
    uint64_t span;                /* of the request; its parts' follow from it */
    bool is_unwanted;             /* the client does not sample its trace */
};

/* Foreign text of any size. False: it is none, and *out is empty. */
bool trace_context_read(const char *text, size_t size, struct trace_context *out);
/* Fills in what is missing: a span, and a trace where there is none. False: no random numbers. */
bool trace_context_make(struct trace_context *context);
void trace_span_text(uint64_t span, char out[TRACE_SPAN_TEXT]);
