/* Stand-ins for the driver, the tokenizer, the chat template and the model, for tests of the API:
 * linked in their place. A token is a byte; the model writes its prompt's bytes again, then ends --
 * or, when the prompt begins with '!', writes them for ever. */
#pragma once

#include "api/server.h"
#include "model/model.h"
#include "pipeline/driver_generator.h"

#include <stdint.h>

enum { FAKE_EOS = 256, FAKE_BOS = 257, FAKE_VOCAB = 258, FAKE_EMBD = 4 };

struct fake_driver_options {
    uint32_t n_slots, queue_max, context;
    uint32_t token_us; /* one token of each running sequence in this time */
};

struct driver *fake_driver_open(struct fake_driver_options options);
void fake_driver_slow(struct driver *driver, uint32_t token_us); /* from now on */

/* A model whose parts are all fakes. */
struct fake_model {
    struct api_model api;
    struct hyperparameters hyperparameters;
    struct driver_generator generator;
};
/* `driver` as above, the caller's; n_vocab is FAKE_VOCAB or more. To end with
 * api_model_deinit(&fake->api). */
void fake_model_init(struct fake_model *fake, const char *id, const char *alias, uint32_t n_vocab,
                     struct driver *driver);
