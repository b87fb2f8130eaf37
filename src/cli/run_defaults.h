/* What `medley run` begins with where its options do not say otherwise: what the model's maker
 * wants (library/defaults.h). */
#pragma once

#include "cli/reply.h"

#define RUN_GIVEN(TYPE, field, ...) bool field;
struct run_sampler_given { /* whether an option says it */
    SAMPLER_FIELDS(RUN_GIVEN)
};
#undef RUN_GIVEN

struct run_sampling {
    struct sampler_params params;
    struct run_sampler_given given;
};

struct run_given {
    const struct run_sampler_given *sampling;
    bool n_predict, system, context;
};

struct run_defaults { /* a zeroed one is empty */
    char *system;     /* a system message; NULL: none, or one was given */
};
void run_defaults_deinit(struct run_defaults *defaults);

/* Takes from session->defaults what was not given, and says in one line of stderr what that is and
 * how to change it. Of the texts that end an answer those count that are one token: they join
 * session->stop_tokens. */
enum error_code run_defaults_take(struct session *session, const struct run_given *given,
                                  struct reply_options *reply, struct run_defaults *out,
                                  struct error *err);
