/* How fast one stream decodes where its text repeats itself, so that most guesses are right
 * (docs/speculation.md). How often a text does that, nobody knows before it is there: what decoding
 * will be lies between this and the speed without guesses.
 *
 * A pass of n rows, all but the first of them guesses, takes what the stages take for n rows of one
 * sequence (placement_stage_s(), by measured rates) and the links, and with the share a of guesses
 * that turn out right gives
 *
 *     (1 - a^n) / (1 - a)                  tokens (Leviathan, Kalman, Matias 2023, equation 1)
 *
 * Through several stages passes follow each other without waiting, `under way` at most:
 *
 *     1 / (1 - a) tokens in pass(n) + gap a^n / (1 - a^n)
 *     gap = max(slowest stage(n), pass(n) / under way)
 *
 * (pipeline/speculation_train.h). n is the best of 1 to 32; a is PLACEMENT_GUESSED_SHARE, an
 * assumption. Where FLOP/s are unknown, so is this (placement_forecast() leaves it out). A model
 * with recurrent layers is not guessed for. Whether the devices allow guesses (GPUs do not) is the
 * caller's to know.
 *
 * With a draft model beside, which takes guess_s for a token: the stage waits for its n - 1 guesses
 * of each pass; or, through several stages, it guesses while the known token travels, so that
 *
 *     1 / (1 - a) tokens in pass(1) + a (pass(n) - pass(1)) + gap a / (1 - a^n)
 *     gap = max(slowest stage(n), pass(n) / under way, n guess_s)
 *
 * Where it is on the first stage's device, that does one after the other: its part of the gap is
 * first stage(n) + n guess_s. Where it is on another machine, the question and the answer take
 * ask_s beside: once for each pass that waits, or a ask_s of a train, whose first guess comes so
 * much later. There it may also guess while the only stage computes, if n guesses are ready by then
 * (pipeline/speculation_train.h):
 *
 *     1 / (1 - a) tokens in pass(1) + pass(n) a / (1 - a^n)
 *
 * a is PLACEMENT_DRAFTED_SHARE then, an assumption, too: it depends on both models and the text.
 * Pure. */
#pragma once

#include "placement/problem.h"

#define PLACEMENT_GUESSED_SHARE 0.95
#define PLACEMENT_DRAFTED_SHARE 0.7
enum {
    PLACEMENT_GUESSED_ROWS = 32,
    PLACEMENT_DRAFTED_ROWS = 16, /* a model is asked for no more at once */
    PLACEMENT_GUESSED_UNDER_WAY = 17,
};

struct placement_guessed { /* tokens a second of one stream alone */
    double without, repeating;
    double drafted; /* with its draft model; 0: it has none, or that is not known */
    double guess_s; /* what one of its guesses takes then */
};
/* Of a placement that placement_check() accepted. */
void placement_guessed(const struct placement_problem *problem, const struct placement *placement,
                       struct placement_guessed *out);
enum { PLACEMENT_DRAFTED_ASKED = 4 }; /* guesses that share a question's way, usually */
struct placement_drafter {
    double guess_s, ask_s;
    bool has_own_device; /* else it has the first stage's */
    bool is_apart;       /* on machines that have no stage */
};
/* Adds `drafted` and guess_s to what that has filled. Not below what is without. */
void placement_drafted(const struct placement_problem *problem, const struct placement *placement,
                       const struct placement_drafter *drafter, struct placement_guessed *out);
/* Worth a word: where a text repeats itself it is faster by a twentieth. */
bool placement_guesses_gain(const struct placement_guessed *guessed);
