/* A request that is kept: who keeps it owns what it points to. And what everybody checks who keeps
 * one. */
#pragma once

#include "pipeline/driver.h"

/* Handlers for what it asks for, and room for the prompt in the context, with an answer.
 * ERROR_INVALID. */
enum error_code request_check_room(const struct request *request, uint32_t context,
                                   struct error *err);

/* `more`: tokens for which there is room behind the prompt's. ERROR_NO_MEMORY; *out is
 * deinitialised then. */
enum error_code request_copy(const struct request *request, uint32_t more, struct request *out,
                             struct error *err);
void request_copy_deinit(struct request *copy); /* zeroed is fine */
