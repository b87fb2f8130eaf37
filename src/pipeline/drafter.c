#include "pipeline/drafter.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model.h"
#include "pipeline/driver_generator.h"
#include "pipeline/driver_state.h"
#include "pipeline/latch.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    READ_BESIDE = 8,    /* tokens that are read in a pass that guesses anyway */
    READ_MEASURED = 32, /* so many tell how fast it reads */
    PAUSE_S = 1,        /* after a question that failed; doubled with each … */
    PAUSE_DOUBLINGS = 6,
};
static const double SHARE_USUAL = .125, DOUBT = .02;
/* Elsewhere: nobody waits longer than so many times what was expected, and this. */
static const double PATIENCE = 4, PATIENCE_LEAST_NS = 300e6;

enum drafter_state { DRAFTER_IDLE, DRAFTER_ASKED, DRAFTER_READY };

struct drafter_slot {
    struct drafter *drafter;
    _Atomic enum drafter_state state; /* the model's threads write what follows while it is asked */
    int32_t guesses[SPECULATION_DRAFT_MAX];
    uint8_t confidences[SPECULATION_DRAFT_MAX]; /* where something ends it */
    _Atomic uint32_t n_guesses;                 /* written already */
    bool has_failed;
    uint64_t answered_ns, held_up_ns;
    /* the asker's, and read by who minds it */
    _Atomic uint64_t request; /* its id; of an old one nobody knows */
    _Atomic uint64_t until_ns;
    _Atomic bool was_cut;
    /* the asker's */
    uint64_t sequence;
    uint32_t n_tokens; /* of the question: what its cache begins with, but for the last … */
    int32_t last;      /* … which may have been a guess */
    uint32_t n_read;
    bool streams, has_end;
    struct speculation_end end;
    uint64_t asked_ns, took_ns;
    bool is_learnt; /* took_ns is known, and what the answer tells */
};

struct drafter {
    struct driver *driver; /* its own; NULL: it is elsewhere */
    struct driver_generator own;
    struct generator *guesser; /* the own one, or that */
    bool is_apart;
    struct latch open; /* questions whose `done` has not returned; and itself */
    uint32_t n_vocab;  /* tokens that both know */
    double share;      /* what a token costs, of one of the model's */
    void (*ready)(void *arg);
    void *arg;
    int32_t (*instead)(void *arg, uint32_t position, int32_t guess, double *probability);
    void *instead_arg;
    double token_ns, row_ns; /* measured; 0: not yet */
    uint32_t n_failures;     /* since one went well */
    uint64_t failed_ns;      /* the last */
    _Atomic bool is_lost;    /* a stage of it is not there now */
    uint32_t n_slots;
    struct drafter_slot *slots;
};

/* ---- opening ---------------------------------------------------------------------------- */

static uint32_t drafter_context_of(const struct driver_draft *draft,
                                   const struct driver_options *options)
{
    const uint32_t reach = model_hyperparameters(draft->model)->n_context_train,
                   wanted = draft->context ? draft->context : options->context;
    return reach && reach < wanted ? reach : wanted;
}

static enum error_code drafter_open_driver(struct drafter *drafter,
                                           const struct driver_draft *draft,
                                           const struct driver_options *options, struct error *err)
{
    const struct driver_options own = {
        .n_slots = options->n_slots,
        .context = drafter_context_of(draft, options),
        .cells = draft->cells,
        .flash = options->flash,
        .no_repack = options->no_repack,
        .speculate = SPECULATE_OFF,
        .fallback = options->fallback,
        .stop = options->stop,
    };
    /* Nobody else is in its lanes: any numbers do. */
    const struct far far = {.type = ACTIVATION_F32,
                            .lanes = draft->lanes ? *draft->lanes : (struct lane_source){0}};
    enum error_code code = driver_open_far(draft->model, draft->stages, draft->n_stages, &own, &far,
                                           &drafter->driver, err);
    if (code)
        return error_wrap(err, "the draft model");
    drafter->driver->submits_at_once = true; /* no other thread is to be woken for each question */
    generator_of_driver(&drafter->own, drafter->driver);
    drafter->guesser = &drafter->own.base;
    return ERROR_NONE;
}

enum error_code drafter_open(const struct driver_draft *draft, const struct model *model,
                             const struct driver_options *options, void (*ready)(void *arg),
                             void *arg, struct drafter **out, struct error *err)
{
    struct drafter *drafter = mem_new(sizeof *drafter);
    if (!drafter)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a draft model");
    drafter->guesser = draft->elsewhere;
    drafter->is_apart = draft->is_apart;
    drafter->share = draft->share > 0 ? draft->share : SHARE_USUAL;
    drafter->n_vocab = model_hyperparameters(model)->n_vocab;
    if (draft->model && drafter->n_vocab > model_hyperparameters(draft->model)->n_vocab)
        drafter->n_vocab = model_hyperparameters(draft->model)->n_vocab;
    latch_init(&drafter->open, 1);
    drafter->ready = ready;
    drafter->arg = arg;
    drafter->instead = draft->instead;
    drafter->instead_arg = draft->arg;
    drafter->n_slots = options->n_slots;
    drafter->slots = mem_new_array(options->n_slots, sizeof *drafter->slots);
    enum error_code code = ERROR_NONE;
    if (!drafter->slots)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a draft model");
    for (uint32_t i = 0; drafter->slots && i < drafter->n_slots; i++)
        drafter->slots[i].drafter = drafter;
    if (!code && !draft->elsewhere)
        code = drafter_open_driver(drafter, draft, options, err);
    if (code) {
        drafter_close(drafter);
        return code;
    }
    *out = drafter;
    return ERROR_NONE;
}

static enum drafter_state drafter_state_of(const struct drafter_slot *slot)
{
    return atomic_load_explicit(&slot->state, memory_order_acquire);
}

/* Ends the questions that were to be answered by then. */
static void drafter_end_late(struct drafter *drafter, uint64_t by_ns)
{
    for (uint32_t i = 0; i < drafter->n_slots; i++) {
        struct drafter_slot *slot = &drafter->slots[i];
        if (drafter_state_of(slot) != DRAFTER_ASKED || atomic_load(&slot->until_ns) > by_ns)
            continue;
        atomic_store(&slot->was_cut, true);
        generator_cancel(drafter->guesser, atomic_load(&slot->request));
    }
}

void drafter_close(struct drafter *drafter)
{
    const struct error why = {.code = ERROR_CANCELLED, .text = "the draft model is being closed"};
    if (!drafter)
        return;
    if (drafter->driver)
        driver_lost(drafter->driver, &why); /* a process that is gone is not waited for */
    driver_close(drafter->driver);
    if (!drafter->driver && drafter->slots)
        drafter_end_late(drafter, UINT64_MAX);
    latch_arrive(&drafter->open);
    latch_wait(&drafter->open);
    mem_free(drafter->slots);
    mem_free(drafter);
}

void drafter_mind(struct drafter *drafter)
{
    if (!drafter->driver) {
        drafter_end_late(drafter, clock_now_ns());
        return;
    }
    struct pipeline *pipeline = driver_pipeline(drafter->driver);
    struct error why = {0};
    if (pipeline_take_loss(pipeline, &why)) {
        why.code = ERROR_IO;
        atomic_store(&drafter->is_lost, true);
        driver_lost(drafter->driver, &why);
    }
    if (atomic_load(&drafter->is_lost) && pipeline_look(pipeline, &why) == PIPELINE_LOADED) {
        driver_found(drafter->driver);
        atomic_store(&drafter->is_lost, false);
    }
}

/* ---- questions -------------------------------------------------------------------------- */

static bool drafter_on_token(void *arg, const struct token_event *event)
{
    struct drafter_slot *slot = arg;
    const struct drafter *drafter = slot->drafter;
    int32_t token = event->token;
    double probability = exp((double)event->logprob);
    const uint32_t n = atomic_load_explicit(&slot->n_guesses, memory_order_relaxed);
    assert(n < SPECULATION_DRAFT_MAX);
    if (drafter->instead)
        token = drafter->instead(drafter->instead_arg, slot->n_tokens + n, token, &probability);
    if (token < 0 || (uint32_t)token >= drafter->n_vocab)
        return false;
    slot->guesses[n] = token;
    slot->confidences[n] = (uint8_t)speculation_confidence(probability);
    atomic_store_explicit(&slot->n_guesses, n + 1, memory_order_release);
    if (slot->streams)
        drafter->ready(drafter->arg);
    return !slot->has_end || speculation_goes_on(&slot->end, slot->confidences, n + 1);
}

static void drafter_on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                            const struct error *err)
{
    struct drafter_slot *slot = arg;
    struct drafter *drafter = slot->drafter;
    const bool was_cut = reason == FINISH_CANCELLED && atomic_load(&slot->was_cut);
    slot->held_up_ns = usage->held_up_ns;
    slot->has_failed = reason == FINISH_ERROR || was_cut;
    if (slot->has_failed)
        log_line(LOG_WARN, "draft", "the draft model guesses nothing for a while: %s",
                 was_cut ? "it does not answer" : err->text);
    slot->answered_ns = clock_now_ns();
    atomic_store_explicit(&slot->state, DRAFTER_READY, memory_order_release);
    drafter->ready(drafter->arg);
    latch_arrive(&drafter->open);
}

static void drafter_note_failure(struct drafter *drafter, uint64_t now_ns)
{
    drafter->n_failures++;
    drafter->failed_ns = now_ns;
}

static bool drafter_pauses(const struct drafter *drafter)
{
    const uint32_t n = drafter->n_failures;
    if (!n)
        return false;
    const uint32_t doublings = n > PAUSE_DOUBLINGS ? PAUSE_DOUBLINGS : n - 1;
    return clock_now_ns() < drafter->failed_ns + (UINT64_C(1000000000) * PAUSE_S << doublings);
}

static bool drafter_has_room(const struct drafter *drafter, uint32_t n_tokens)
{
    if (n_tokens > generator_context(drafter->guesser))
        return false;
    return !drafter->driver || (!atomic_load(&drafter->is_lost) &&
                                memory_watch_terms(&drafter->driver->memory).divisor <= 1);
}

/* It may have been asked about more, with guesses at the end: then all but the last token, which
 * was no guess, is the same. */
static uint32_t drafter_unread(const struct drafter_slot *slot, uint64_t sequence, uint32_t n)
{
    if (slot->sequence != sequence)
        return n;
    return slot->n_tokens < n ? n - slot->n_tokens : 1;
}

bool drafter_ask(struct drafter *drafter, const struct drafter_question *question)
{
    struct drafter_slot *slot = &drafter->slots[question->slot];
    assert(question->n_wanted && question->n_wanted <= SPECULATION_DRAFT_MAX);
    if (drafter_state_of(slot) == DRAFTER_ASKED || drafter_pauses(drafter) ||
        !drafter_has_room(drafter, question->n_tokens + question->n_wanted))
        return false;
    slot->n_read = drafter_unread(slot, question->sequence, question->n_tokens);
    slot->sequence = question->sequence;
    slot->n_tokens = question->n_tokens;
    slot->last = question->tokens[question->n_tokens - 1];
    slot->n_guesses = 0;
    slot->streams = question->streams;
    slot->has_end = question->end != NULL;
    if (question->end)
        slot->end = *question->end;
    slot->is_learnt = false;
    slot->asked_ns = clock_now_ns();
    atomic_store(&slot->was_cut, false);
    atomic_store(&slot->until_ns,
                 slot->asked_ns + (uint64_t)(PATIENCE * question->expected_ns + PATIENCE_LEAST_NS));
    const struct request request = {
        .prompt = question->tokens,
        .n_prompt = question->n_tokens,
        .n_predict = question->n_wanted,
        .sampler = *question->sampler,
        .cache_key = question->cache_key,
        .logprobs = slot->has_end,
        .never_waits = true,
        .handlers = {.token = drafter_on_token, .done = drafter_on_done},
        .arg = slot};
    uint64_t id = 0;
    latch_expect(&drafter->open);
    atomic_store_explicit(&slot->state, DRAFTER_ASKED, memory_order_release);
    if (!generator_submit(drafter->guesser, &request, &id, NULL)) {
        atomic_store(&slot->request, id);
        return true;
    }
    latch_arrive(&drafter->open);
    atomic_store_explicit(&slot->state, DRAFTER_IDLE, memory_order_relaxed);
    drafter_note_failure(drafter, slot->asked_ns);
    return false;
}

bool drafter_is_asked(const struct drafter *drafter, uint32_t slot, uint64_t sequence)
{
    return drafter->slots[slot].sequence == sequence && !drafter->slots[slot].streams &&
           drafter_state_of(&drafter->slots[slot]) == DRAFTER_ASKED;
}

/* One that was held up by others counts as little more than usual. */
static void drafter_note(double *mean, double ns)
{
    if (*mean > 0 && ns > 2 * *mean)
        ns = 2 * *mean;
    *mean = *mean > 0 ? (7 * *mean + ns) / 8 : ns;
}

/* The time without the reading; and what it tells. */
static uint64_t drafter_learn(struct drafter *drafter, const struct drafter_slot *slot)
{
    const uint64_t all_ns = slot->answered_ns - slot->asked_ns,
                   took_ns = all_ns > slot->held_up_ns ? all_ns - slot->held_up_ns : 1;
    if (slot->n_read <= READ_BESIDE) {
        if (slot->n_guesses)
            drafter_note(&drafter->token_ns, (double)took_ns / slot->n_guesses);
        return took_ns;
    }
    const double guessing_ns = drafter->token_ns * slot->n_guesses,
                 reading_ns = (double)took_ns - guessing_ns;
    if (slot->n_read >= READ_MEASURED && drafter->token_ns > 0 && reading_ns > 0)
        drafter_note(&drafter->row_ns, reading_ns / slot->n_read);
    return guessing_ns < (double)took_ns ? (uint64_t)guessing_ns : took_ns;
}

/* Of its guesses, those behind these tokens; false: the tokens are others than it guessed. */
static bool drafter_follow(const struct drafter_slot *slot, const int32_t *tokens,
                           uint32_t n_tokens, uint32_t n_guesses, uint32_t *n_since)
{
    if (n_tokens < slot->n_tokens || tokens[slot->n_tokens - 1] != slot->last)
        return false;
    *n_since = n_tokens - slot->n_tokens;
    const uint32_t n = *n_since < n_guesses ? *n_since : n_guesses;
    return memcmp(tokens + slot->n_tokens, slot->guesses, n * sizeof *tokens) == 0;
}

static struct drafter_guesses drafter_guesses_from(const struct drafter_slot *slot, uint32_t first,
                                                   uint32_t n_guesses)
{
    return (struct drafter_guesses){
        .tokens = slot->guesses + first,
        .n = n_guesses - first,
        .is_rest = first > 0,
        .end = slot->has_end ? &slot->end : NULL,
        .confidences = slot->has_end ? slot->confidences + first : NULL,
        .took_ns = first || slot->streams ? 0 : slot->took_ns, /* paid once */
    };
}

bool drafter_recall(const struct drafter *drafter, uint32_t index, uint64_t sequence,
                    const int32_t *tokens, uint32_t n_tokens, struct drafter_guesses *out)
{
    const struct drafter_slot *slot = &drafter->slots[index];
    uint32_t n_since;
    if (drafter_state_of(slot) != DRAFTER_READY || !slot->has_end || slot->sequence != sequence ||
        !drafter_follow(slot, tokens, n_tokens, slot->n_guesses, &n_since) ||
        n_since >= slot->n_guesses)
        return false;
    *out = drafter_guesses_from(slot, n_since, slot->n_guesses);
    return true;
}

bool drafter_answer(struct drafter *drafter, uint32_t index, uint64_t sequence,
                    const int32_t *tokens, uint32_t n_tokens, struct drafter_guesses *out)
{
    struct drafter_slot *slot = &drafter->slots[index];
    const enum drafter_state state = drafter_state_of(slot);
    uint32_t n_since = 0;
    if (state == DRAFTER_IDLE || (state == DRAFTER_ASKED && !slot->streams))
        return false;
    const uint32_t n_guesses = atomic_load_explicit(&slot->n_guesses, memory_order_acquire);
    const bool follows =
        slot->sequence == sequence && drafter_follow(slot, tokens, n_tokens, n_guesses, &n_since);
    if (state == DRAFTER_ASKED && !follows)
        generator_cancel(drafter->guesser, atomic_load(&slot->request)); /* then asked again */
    if (state == DRAFTER_READY && !slot->is_learnt) {
        if (slot->has_failed)
            drafter_note_failure(drafter, slot->answered_ns);
        else
            drafter->n_failures = 0;
        slot->took_ns = drafter_learn(drafter, slot);
        slot->is_learnt = true;
    }
    if (!follows || (n_since >= n_guesses && (n_since || state == DRAFTER_ASKED)))
        return false;
    *out = drafter_guesses_from(slot, n_since, n_guesses);
    return true;
}

bool drafter_is_apart(const struct drafter *drafter)
{
    return drafter->is_apart;
}

uint64_t drafter_bytes(const struct drafter *drafter)
{
    struct pipeline *pipeline = drafter->driver ? driver_pipeline(drafter->driver) : NULL;
    uint64_t bytes = 0;
    for (uint32_t i = 0; pipeline && i < pipeline->n_stages; i++)
        bytes += pipeline_stage_bytes(pipeline, i);
    return bytes;
}

/* ---- what it takes ------------------------------------------------------------------------ */

double drafter_token_ns(const struct drafter *drafter, double pass_ns)
{
    return drafter->token_ns > 0 ? drafter->token_ns : drafter->share * pass_ns;
}

void drafter_doubt(struct drafter *drafter, double pass_ns)
{
    const double usual = drafter->share * pass_ns;
    if (drafter->token_ns > usual)
        drafter->token_ns += (usual - drafter->token_ns) * DOUBT;
}

double drafter_reading_ns(const struct drafter *drafter, uint32_t index, uint64_t sequence,
                          uint32_t n, double pass_ns, double row_ns)
{
    const uint32_t n_read = drafter_unread(&drafter->slots[index], sequence, n);
    const double usual = drafter->share * (row_ns > 0 ? row_ns : pass_ns / 4);
    return n_read <= READ_BESIDE ? 0 : n_read * (drafter->row_ns > 0 ? drafter->row_ns : usual);
}
