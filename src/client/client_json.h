/* What a client asks as JSON, and what the node's answers say. Pure; fuzzed. */
#pragma once

#include "base/buffer.h"

#include <medley/client.h>
#include <yyjson.h>

/* False: *err says what is wrong; `body` may have become anything. */
bool client_json_ask_forecast(const struct medley_forecast_question *question, struct buffer *body,
                              struct medley_error *err);
bool client_json_ask_generation(const struct medley_generation *generation, struct buffer *body,
                                struct medley_error *err);

bool client_json_fail(struct medley_error *err, enum medley_error_code code, const char *format,
                      ...) __attribute__((format(printf, 3, 4)));
/* The error of an answer with that status, or in a stream (0). */
void client_json_read_error(unsigned http_status, yyjson_val *root, struct medley_error *err);

/* Arrays are made with mem_new_array(); what they point to is the document's. False: *err. */
bool client_json_read_models(yyjson_val *root, struct medley_model **models, uint32_t *n,
                             struct medley_error *err);
bool client_json_read_forecast(yyjson_val *root, struct medley_forecast *forecast,
                               struct medley_forecast_stage **stages, struct medley_error *err);
/* One event of a stream; `tell` is called for each piece. */
void client_json_read_event(yyjson_val *root, struct medley_client_request *request,
                            void (*tell)(void *self, const struct medley_piece *piece), void *self);
