/* What the files of admission share. */
#pragma once

#include "join/admission.h"
#include "mesh/crowd.h"

/* One that wants to be let in. */
enum guest_phase {
    GUEST_TALKING,
    GUEST_COMPARING, /* two persons */
    GUEST_DECIDING,  /* the owner */
    GUEST_GRANTED,
    GUEST_OVER,
};

struct guest {
    struct admission *admission;
    struct guest *next;
    uint64_t id;
    struct stream_host host;
    struct join_channel *channel; /* NULL: closed */
    struct inviter machine;
    enum guest_phase phase;
    uint64_t since_ms, decide_by_ms;
    bool ask;  /* `decide` is to be raised */
    bool tell; /* `ended` is */
    struct error why;
};

struct admission {
    struct admission_options options;
    struct invite invite;
    struct guest *guests;
    uint32_t n_guests;
    uint64_t last_id;
    uv_timer_t turn; /* raises events, and takes away who has gone */
    bool changed, closing, turn_is_closed;
    void (*closed)(void *arg);
    void *closed_arg;
};

static inline uint64_t admission_now(const struct admission *admission)
{
    return join_clock_now(&admission->options.clock);
}

/* ---- admission.c ---- */

void admission_wake(struct admission *admission); /* for the turn, in which events are raised */

/* ---- admission_guest.c ---- */

/* Takes the stream. A guest that cannot be served is told why. */
enum error_code guest_welcome(struct admission *admission, struct stream *stream,
                              struct stream_host host, struct error *err);

/* What its machine said is carried out. */
void guest_advance(struct guest *guest, enum join_result result, const struct buffer *reply,
                   const struct error *err);
void guest_set_phase(struct guest *guest, enum guest_phase phase);
void guest_refuse(struct guest *guest, const char *why);
void guest_over(struct guest *guest, const struct error *why);
