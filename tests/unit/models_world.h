/* Models of the API that come and go, and open at once or late, as the test says: "first" (alias
 * "one", 64 tokens of context) and "second" (alias "two", 32 tokens, two tokens more in its
 * vocabulary), each with a fake driver of its own. Who asks for a model that was released, cancels
 * what does not wait, and the like ends the process. */
#pragma once

#include "base/error.h"

#include "request/request_run.h"

#include <stdbool.h>
#include <stdint.h>

void models_world_start(
    uint32_t waiting_ms);     /* the server, as api_world_start(); both models are there */
void models_world_stop(void); /* a second call does nothing */

void models_world_list(const char *id, bool listed); /* false: it cannot be asked for any more */
void models_world_be_late(bool late);                /* whether those who ask have to wait */
/* Answers those who wait: with their model, or with this error. Returns when they have been
 * told. */
void models_world_answer(enum error_code code);
/* Waits until so many askers wait and so many models are held, counted by holder; fails after 5
 * s. */
void models_world_wait(uint32_t n_waiting, uint32_t n_held);
void models_world_slow(uint32_t token_us); /* "first" takes so long for a token from now on */
uint32_t models_world_cancelled(void);     /* askers that have given up, so far */
uint32_t models_world_forgotten(
    void); /* models that were gone when their last holder released them, so far */
/* What is said of "first" and "second" from now on: copied; paused_ns is the time of this call
 * where it is not 0. */
void models_world_run(const struct request_run *run);
