/* Traces of requests, for who asks for them (--traces URL): when a completion is over, its record
 * goes as spans to a collector, as OTLP/HTTP JSON (OpenTelemetry protocol 1.3; the fields are
 * trace.proto's in its JSON mapping).
 *
 *     chat MODEL             the whole request          queue, prefill, decode    its parts
 *     pause                  a time without a driver    stage                     each machine's
 * part
 *
 * No prompt and no answer is in them. post.h sends them: nothing waits for the collector, and what
 * does not arrive is counted. On the loop's thread. */
#pragma once

#include "api/record.h"
#include "post/post.h"

struct trace_service {
    const char *name; /* of this node, for people; NULL: none */
};

/* The message of one record, whose trace context has a trace and a span. Pure. */
void traces_write(const struct request_record *record, const struct trace_service *service,
                  struct buffer *out);

/* Two messages as one: the spans of `more` go behind those of `into`. False: it would be longer
 * than TRACES_BATCH_BYTES, or there is no memory; then nothing has changed. Pure. */
enum { TRACES_BATCH_BYTES = 1 << 20 };
bool traces_join(struct buffer *into, const struct buffer *more);

struct traces;
/* `url` is where spans are taken, such as http://127.0.0.1:4318/v1/traces. */
enum error_code traces_open(const char *url, const char *service_name, struct traces **out,
                            struct error *err);
void traces_record(struct traces *traces,
                   const struct request_record *record); /* one that is over */
struct post_stats traces_stats(struct traces *traces);   /* NULL: zeros */
void traces_close(struct traces *traces);                /* NULL is fine */
