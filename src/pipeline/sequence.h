/* A sequence: one accepted request and how far it has come.
 *
 * It owns copies of everything the request points to. `id`, `is_cancelled` and the links of the
 * live list belong to the driver's lock, and cancel_next until a step takes that list; the rest to
 * the thread that runs the driver's step. */
#pragma once

#include "engine/stage.h"
#include "pipeline/speculation.h"
#include "request/request.h"

enum { SLOT_NONE = UINT32_MAX };

/* How the text goes on, for guesses of micro-batches that follow each other (step_ahead.c). */
struct draft_train {
    bool is_of_model;  /* a draft model says it; else the text so far does: */
    uint32_t distance; /* tokens back that the text goes on likewise; 0: nowhere */
    uint32_t n_match;  /* tokens alike … */
    uint32_t n_known;  /* … when so many were known */
};

struct sequence {
    uint64_t id;
    bool is_cancelled;
    struct sequence *cancel_next;               /* those that are to be cancelled */
    struct sequence *live_next, *live_previous; /* all accepted requests */
    struct sequence *queue_next;                /* those without a slot */

    struct request request; /* its pointers are our copies */
    uint32_t slot;          /* SLOT_NONE while it waits */
    uint32_t cached;        /* prompt tokens taken over from a slot */
    uint32_t generated;
    uint32_t drafted, accepted; /* tokens, by the driver and by the sampler */
    struct speculation speculation;
    struct draft_train train;
    bool has_axes; /* pictures' rows have positions on several axes (model/architecture.h) */
    bool last_row; /* all tokens are there; only the last one's own row is still wanted
                      (want_all_logits) */
    uint64_t submitted_ns, admitted_ns, first_token_ns;
    uint64_t slowest_ns; /* request_usage's, as are … */
    struct request_times times;
    uint64_t held_up_ns;
    uint32_t n_rows_given; /* of handlers.row: the first position that was not given yet */
    uint32_t n_no_memory;  /* times that it started over for lack of memory, since its last row */
};

/* Checks the request against the limits and copies it. */
enum error_code sequence_new(const struct request *request, uint32_t context, uint32_t n_vocab,
                             struct sequence **out, struct error *err);
void sequence_free(struct sequence *sequence);

/* ---- pictures ---- */

/* What a row is beside its token: its place, and its values; NULL: its token's embedding. */
const float *sequence_row(const struct sequence *sequence, uint32_t position,
                          struct row_place *place);
/* The prompt goes on at `length` or before: a picture is taken over as a whole. */
uint32_t sequence_resume_at(const struct sequence *sequence, uint32_t length);
/* Of `waiting` rows from a position on, those that go together: none ends in the middle of a
 * picture that is seen whole, and such a picture goes alone (*is_whole). */
uint32_t sequence_rows_together(const struct sequence *sequence, uint32_t position,
                                uint32_t waiting, bool *is_whole);

bool sequence_wants_rows(const struct sequence *sequence); /* an output for each of its rows */
bool sequence_is_stop(const struct sequence *sequence, int32_t token);
