#include "pipeline/driver_form.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "engine/batch_shape.h"

#include <assert.h>
#include <string.h>

enum { FORM_ATTEMPTS = 60, FORM_AGAIN_MS = 1000 }; /* a minute, as long as a batch may wait */

/* ---- the baton ------------------------------------------------------------------------ */

static bool driver_has_wishes(const struct driver *driver)
{
    if (driver->completed || driver->incoming || driver->to_cancel || driver->has_guesses ||
        driver->drafter != driver->has_drafter)
        return true;
    if (driver->found && driver->n_in_flight)
        return false; /* what is under way has to end first, and this is asked again */
    return driver->found || driver->seeds ||
           (driver->quiesces && !driver->is_quiescent && !driver->n_in_flight);
}

/* With the lock. */
static void driver_take_wishes(struct driver *driver, struct driver_wishes *out)
{
    assert(driver->active); /* by the baton holder */
    if (driver->incoming) {
        *driver->queue_end = driver->incoming;
        driver->queue_end = driver->incoming_end;
    }
    driver->incoming = NULL;
    driver->incoming_end = &driver->incoming;
    struct sequence **at = &driver->cancelled;
    while (*at)
        at = &(*at)->cancel_next;
    *at = driver->to_cancel;
    driver->to_cancel = NULL;
    driver->has_guesses = false;
    if (driver->drafter != driver->has_drafter)
        pthread_cond_broadcast(&driver->draft_taken);
    driver->drafter = driver->has_drafter;
    const uint32_t n_whole = driver->n_microbatches - driver->n_small;
    driver->pipe.n_under_way =
        driver->n_small && driver->has_room_ahead ? 1 + driver->n_small : n_whole;
    out->quiesces = driver->quiesces;
    out->closes = driver->closing;
    out->waits = driver->found && driver->n_in_flight;
    if (out->waits)
        return;
    if (driver->found) {
        out->found = driver->lost;
        driver->lost = (struct error){0}; /* from now on it sends again */
        driver->found = false;
    }
    if (!out->seeds) {
        out->seeds = driver->seeds;
        driver->seeds = NULL;
    }
}

static void driver_add_served(struct driver_served *sum, const struct driver_served *more)
{
    sum->replies += more->replies;
    sum->reply_tokens += more->reply_tokens;
    sum->reply_ns += more->reply_ns;
    sum->prompts += more->prompts;
    sum->prompt_rows += more->prompt_rows;
    sum->prompt_ns += more->prompt_ns;
}

/* With the lock. */
static void driver_publish(struct driver *driver)
{
    struct driver_stats *stats = &driver->stats;
    const struct driver_gain *gain = &driver->gain;
    assert(stats->queued >= gain->n_admitted);
    stats->queued -= gain->n_admitted;
    stats->slots_busy += gain->n_admitted;
    stats->prompt_tokens_total += gain->prompt_tokens;
    stats->cached_tokens_total += gain->cached_tokens;
    stats->generated_tokens_total += gain->generated_tokens;
    stats->drafted_tokens_total += gain->drafted_tokens;
    stats->accepted_tokens_total += gain->accepted_tokens;
    stats->steps_total += gain->steps;
    stats->rows_total += gain->rows;
    stats->parked_total += gain->n_parked;
    stats->parked = 0;
    for (uint32_t i = 0; i < driver->slots.n_slots && driver->options.cells; i++)
        stats->parked += driver->slots.slots[i].parked;
    stats->cells_free = driver->slots.map.n_unused * KV_PADDING;
    stats->cells_shared = driver->slots.map.n_shared * KV_PADDING;
    driver_add_served(&stats->served, &gain->served);
    driver->gain = (struct driver_gain){0};
    assert(stats->slots_busy <= stats->slots_total);
}

/* One step. With the lock, which it gives up meanwhile. */
static void driver_step_locked(struct driver *driver)
{
    struct driver_wishes wishes = {0};
    struct microbatch *completed = driver->completed;
    const uint64_t n_ended = driver->n_ended;
    driver->completed = NULL;
    driver->completed_end = &driver->completed;
    driver_take_wishes(driver, &wishes);
    pthread_mutex_unlock(&driver->lock);
    while (completed) {
        struct microbatch *next = completed->next;
        step_complete(driver, completed);
        completed = next;
    }
    if (driver->n_ended != n_ended) {
        /* Whose `done` submitted the next request has it in this step's micro-batch. */
        pthread_mutex_lock(&driver->lock);
        driver_take_wishes(driver, &wishes);
        pthread_mutex_unlock(&driver->lock);
    }
    step_advance(driver, &wishes);
    mem_free(wishes.seeds);
    pthread_mutex_lock(&driver->lock);
    driver_publish(driver);
}

/* Steps until nothing is wished any more. The same. */
static void driver_run_locked(struct driver *driver)
{
    assert(!driver->active);
    driver->active = true;
    while (driver_has_wishes(driver)) {
        driver_step_locked(driver);
        if (!driver->has_settled || driver->is_quiescent)
            continue;
        assert(driver->quiesces && !driver->n_in_flight && !driver->queue);
        driver->is_quiescent = true;
        pthread_mutex_unlock(&driver->lock);
        driver->on_quiescent(driver->quiescent_arg);
        pthread_mutex_lock(&driver->lock);
    }
    driver->active = false;
    if (driver->form_is_due && !driver->n_in_flight)
        pthread_cond_signal(&driver->wake); /* the own thread changes it */
}

/* Closes the stages and opens them in the form that is due; then goes on with what is there. With
 * the lock, which it gives up meanwhile. */
static void driver_change_locked(struct driver *driver)
{
    struct error err = {0};
    assert(!driver->active);
    driver->active = true;
    pthread_mutex_unlock(&driver->lock);
    const bool is_there = driver_form_change(driver, &err);
    driver->n_unloaded = is_there ? 0 : driver->n_unloaded + 1;
    if (is_there)
        step_begin_over(driver);
    else if (driver->n_unloaded % FORM_ATTEMPTS == 0)
        step_end_all(driver, &err);
    pthread_mutex_lock(&driver->lock);
    driver_publish(driver);
    driver_step_locked(driver);
    driver->active = false;
}

/* For a second at most while there are no stages: nobody else would try again. */
static void driver_wait_locked(struct driver *driver)
{
    if (driver->form.is_unloaded)
        timed_wait(&driver->wake, &driver->lock,
                   clock_now_ns() + FORM_AGAIN_MS * UINT64_C(1000000));
    else
        pthread_cond_wait(&driver->wake, &driver->lock);
}

void *driver_own_thread(void *arg)
{
    struct driver *driver = arg;
    pthread_mutex_lock(&driver->lock);
    while (!driver->closing || driver->active || driver->live || driver->n_in_flight) {
        if (!driver->active && driver_has_wishes(driver))
            driver_run_locked(driver);
        else if (!driver->active && driver->live && driver_form_can_change(driver, clock_now_ns()))
            driver_change_locked(driver);
        else
            driver_wait_locked(driver);
    }
    assert(!driver->completed && !driver->incoming && !driver->queue && !driver->to_cancel);
    pthread_mutex_unlock(&driver->lock);
    return NULL;
}

/* On the last stage's device thread. */
static void driver_on_done(void *arg, struct microbatch *microbatch)
{
    struct driver *driver = arg;
    assert(microbatch->at == driver->pipeline.n_stages);
    pthread_mutex_lock(&driver->lock);
    assert(!microbatch->away);
    microbatch->next = NULL;
    *driver->completed_end = microbatch;
    driver->completed_end = &microbatch->next;
    if (!driver->active) {
        /* Only the baton's holder changes these. With others under way this device has more to
         * compute; but guesses can wait, and who waits for a token cannot. */
        if (driver->n_in_flight == 1 || driver->n_in_flight <= driver->n_ahead + 1)
            driver_run_locked(driver);
        else
            pthread_cond_signal(&driver->wake);
    }
    if (driver->closing)
        pthread_cond_signal(&driver->wake);
    pthread_mutex_unlock(&driver->lock);
}

void driver_on_guesses(void *arg)
{
    struct driver *driver = arg;
    pthread_mutex_lock(&driver->lock);
    driver->has_guesses = true;
    if (!driver->active && !driver->n_in_flight && !driver->closing)
        driver_run_locked(driver);
    else
        pthread_cond_signal(&driver->wake);
    pthread_mutex_unlock(&driver->lock);
}

/* ---- stages elsewhere ------------------------------------------------------------------ */

/* It has come back, or never will: the shares say which. */
static void driver_end_early(struct driver *driver, struct microbatch *microbatch,
                             const struct error *err)
{
    assert(err->code);
    microbatch_fail(microbatch);
    microbatch->error = *err;
    microbatch->at = driver->pipeline.n_stages;
    microbatch_go_on(microbatch);
}

/* The end of sending: whether it failed (`lost` says so already), or the network was lost
 * meanwhile, so that the micro-batch is the caller's again. Its answer may have come and gone long
 * since. */
static bool driver_is_unsent(struct driver *driver, struct microbatch *microbatch, uint64_t number,
                             struct error *lost)
{
    bool unsent = false;
    pthread_mutex_lock(&driver->lock);
    if (microbatch->sending == number) {
        microbatch->sending = 0;
        if (!lost->code)
            *lost = driver->lost;
        unsent = microbatch->away && lost->code;
        if (unsent)
            microbatch->away = false;
    }
    pthread_mutex_unlock(&driver->lock);
    return unsent;
}

/* On its way to a lane, or to another machine. */
static void driver_leave(void *arg, struct microbatch *microbatch)
{
    struct driver *driver = arg;
    pthread_mutex_lock(&driver->lock);
    struct error lost = driver->lost;
    uint64_t number = microbatch->number = ++driver->last_number;
    microbatch->away = !lost.code;
    microbatch->sending = lost.code ? 0 : number;
    pthread_mutex_unlock(&driver->lock);
    if (!lost.code) {
        if (!pipeline_post(&driver->pipeline, microbatch, number))
            error_set(&lost, ERROR_NO_MEMORY, "not enough memory for a message to stage %u",
                      microbatch->at);
        if (!driver_is_unsent(driver, microbatch, number, &lost))
            return;
    }
    driver_end_early(driver, microbatch, &lost);
}

void driver_halt(struct driver *driver, struct microbatch *microbatch)
{
    pthread_mutex_lock(&driver->lock);
    assert(driver->active && microbatch->is_under_way); /* by the baton holder */
    atomic_store(&microbatch->is_halted, true);         /* before it leaves (pipeline_post()) … */
    const uint64_t number = microbatch->away ? microbatch->number : 0; /* … or it is told there */
    pthread_mutex_unlock(&driver->lock);
    if (number)
        pipeline_halt(&driver->pipeline, number);
}

/* The micro-batch with this number, which is then away no more. `was_sent`: there was one. */
static struct microbatch *driver_take_back(struct driver *driver, uint64_t number, bool *was_sent)
{
    struct microbatch *found = NULL;
    pthread_mutex_lock(&driver->lock);
    *was_sent = number > 0 && number <= driver->last_number;
    for (uint32_t i = 0; i < driver->n_microbatches && !found; i++) {
        struct microbatch *microbatch = &driver->microbatches[i];
        if (microbatch->away && microbatch->number == number)
            found = microbatch;
    }
    if (found)
        found->away = false;
    pthread_mutex_unlock(&driver->lock);
    return found;
}

/* One that is away, but for those that are being sent: who sends them sees the loss
 * (driver_is_unsent()). NULL: there is none. */
static struct microbatch *driver_give_up_one(struct driver *driver)
{
    struct microbatch *found = NULL;
    pthread_mutex_lock(&driver->lock);
    for (uint32_t i = 0; i < driver->n_microbatches && !found; i++) {
        if (driver->microbatches[i].away && !driver->microbatches[i].sending)
            found = &driver->microbatches[i];
    }
    if (found)
        found->away = false;
    pthread_mutex_unlock(&driver->lock);
    return found;
}

static enum error_code driver_arrive(void *arg, const struct microbatch_message *message,
                                     struct error *err)
{
    struct driver *driver = arg;
    const uint64_t number = message->route.number;
    bool was_sent;
    struct microbatch *microbatch = driver_take_back(driver, number, &was_sent);
    if (!microbatch && was_sent)
        return ERROR_NONE; /* given up in the meantime */
    if (!microbatch)
        return error_set(err, ERROR_INVALID, "micro-batch %llu was never sent",
                         (unsigned long long)number);
    enum error_code code =
        wire_read_back(message->bytes, message->size, &driver->pipeline.shape, microbatch, err);
    if (code) {
        struct error cause = {.code = code};
        error_set(&cause, ERROR_DEVICE, "%s", err ? err->text : "a wrong message");
        driver_end_early(driver, microbatch, &cause);
        return code;
    }
    microbatch_go_on(microbatch);
    return ERROR_NONE;
}

const struct pipeline_owner driver_as_owner = {
    .leave = driver_leave,
    .done = driver_on_done,
    .arrive = driver_arrive,
};

enum error_code driver_receive(struct driver *driver, const void *bytes, size_t size,
                               struct error *err)
{
    struct microbatch_message message;
    enum error_code code = wire_read_message(bytes, size, &message, err);
    return code ? code : pipeline_receive(&driver->pipeline, &message, err);
}

void driver_lost(struct driver *driver, const struct error *why)
{
    assert(why->code);
    pthread_mutex_lock(&driver->lock);
    driver->lost = *why;
    driver->found = false;
    pthread_mutex_unlock(&driver->lock);
    struct microbatch *microbatch;
    while ((microbatch = driver_give_up_one(driver)) != NULL)
        driver_end_early(driver, microbatch, why);
}

void driver_set_room_ahead(struct driver *driver, bool has_room)
{
    pthread_mutex_lock(&driver->lock);
    driver->has_room_ahead = has_room;
    pthread_mutex_unlock(&driver->lock);
}

void driver_found(struct driver *driver)
{
    pthread_mutex_lock(&driver->lock);
    driver->found = driver->lost.code != ERROR_NONE;
    if (!driver->active)
        pthread_cond_signal(&driver->wake);
    pthread_mutex_unlock(&driver->lock);
}

/* ---- requests ------------------------------------------------------------------------- */

/* With the lock, which it may give up at its end. */
static void driver_accept(struct driver *driver, struct sequence *sequence, uint64_t *id)
{
    assert(!driver->closing && !driver->quiesces);
    sequence->id = ++driver->last_id;
    driver->picture_bytes += driver_picture_bytes(&sequence->request);
    if (id)
        *id = sequence->id; /* under the lock: it may be over, and freed, right after */
    sequence->live_next = driver->live;
    if (driver->live)
        driver->live->live_previous = sequence;
    driver->live = sequence;
    *driver->incoming_end = sequence;
    driver->incoming_end = &sequence->queue_next;
    driver->stats.queued++;
    driver->stats.requests_total++;
    if (!driver->active && driver->submits_at_once)
        driver_run_locked(driver);
    else if (!driver->active)
        pthread_cond_signal(&driver->wake);
}

/* Tokens are picked where the last stage is; grammars travel there down the stages. */
static enum error_code driver_check_constraint(struct driver *driver, const struct request *request,
                                               struct error *err)
{
    if (!request->constraint || !request->n_predict)
        return ERROR_NONE;
    if (!driver->pipeline.picker)
        return ERROR_NONE; /* what is wrong there ends the request later */
    return constrain_open_vocabulary(picker_constrain(driver->pipeline.picker), driver->model, err);
}

enum error_code driver_submit(struct driver *driver, const struct request *request, uint64_t *id,
                              struct error *err)
{
    struct sequence *sequence = NULL;
    enum error_code code = driver_check_constraint(driver, request, err);
    if (!code)
        code = sequence_new(request, driver->options.context, driver->pipeline.shape.n_vocab,
                            &sequence, err);
    if (!code)
        code = driver_check_pictures(driver, request, err);
    if (!code && driver->gives_no_logits && !request->embeddings)
        code = error_set(err, ERROR_UNSUPPORTED,
                         "this model generates no text: it makes vectors of texts or ranks them; "
                         "ask for embeddings or a ranking");
    if (!code && memory_watch_terms(&driver->memory).refuses)
        code = memory_watch_refusal(err);
    if (code) {
        sequence_free(sequence);
        return code;
    }
    sequence->submitted_ns = clock_now_ns();
    sequence->has_axes = driver->has_axes;
    const uint64_t picture_bytes = driver_picture_bytes(request);
    bool are_pictures_many = false;
    pthread_mutex_lock(&driver->lock);
    uint32_t free_slots = driver->stats.slots_total - driver->stats.slots_busy;
    if (driver->closing || driver->quiesces)
        code = ERROR_CANCELLED;
    else if (driver->stats.queued >= driver->options.queue_max + free_slots)
        code = ERROR_BUSY;
    else if (picture_bytes && driver->picture_bytes + picture_bytes > (uint64_t)LIMIT_PICTURES_MIB
                                                                          << 20)
        are_pictures_many = true;
    else
        driver_accept(driver, sequence, id);
    pthread_mutex_unlock(&driver->lock);
    if (!code && !are_pictures_many)
        return ERROR_NONE;
    sequence_free(sequence);
    if (are_pictures_many)
        return error_set(err, ERROR_BUSY,
                         "requests that wait or run have %d MiB of pictures, which is the limit",
                         LIMIT_PICTURES_MIB);
    if (code == ERROR_CANCELLED)
        return error_set(err, code, "the model is being closed");
    return error_set(err, code, "%u requests are already waiting, which is the limit",
                     driver->options.queue_max);
}

/* With the lock. */
static void driver_note_cancelled(struct driver *driver, struct sequence *sequence)
{
    if (sequence->is_cancelled)
        return;
    sequence->is_cancelled = true;
    sequence->cancel_next = driver->to_cancel;
    driver->to_cancel = sequence;
}

void driver_cancel(struct driver *driver, uint64_t id)
{
    pthread_mutex_lock(&driver->lock);
    struct sequence *sequence = driver->live;
    while (sequence && sequence->id != id)
        sequence = sequence->live_next;
    if (sequence)
        driver_note_cancelled(driver, sequence);
    if (sequence && !driver->active)
        pthread_cond_signal(&driver->wake);
    pthread_mutex_unlock(&driver->lock);
}

void driver_stop(struct driver *driver)
{
    assert(!driver->stopped);
    pthread_mutex_lock(&driver->lock);
    driver->closing = true;
    for (struct sequence *sequence = driver->live; sequence; sequence = sequence->live_next)
        driver_note_cancelled(driver, sequence);
    pthread_cond_signal(&driver->wake);
    pthread_mutex_unlock(&driver->lock);
    pthread_join(driver->thread, NULL); /* it leaves when nothing is live or under way */
    driver->stopped = true;             /* only for driver_close(), which comes after this */
}

/* It may be on the list that the step has taken, or on the one that it has not seen yet. */
static bool driver_drop_cancelled(struct sequence **at, const struct sequence *sequence)
{
    while (*at && *at != sequence)
        at = &(*at)->cancel_next;
    const bool is_there = *at != NULL;
    if (is_there)
        *at = sequence->cancel_next;
    return is_there;
}

void driver_retire(struct driver *driver, struct sequence *sequence)
{
    pthread_mutex_lock(&driver->lock);
    assert(driver->active); /* by the baton holder */
    if (sequence->is_cancelled && !driver_drop_cancelled(&driver->cancelled, sequence))
        driver_drop_cancelled(&driver->to_cancel, sequence);
    if (sequence->live_next)
        sequence->live_next->live_previous = sequence->live_previous;
    if (sequence->live_previous)
        sequence->live_previous->live_next = sequence->live_next;
    else
        driver->live = sequence->live_next;
    uint32_t *count =
        sequence->slot == SLOT_NONE ? &driver->stats.queued : &driver->stats.slots_busy;
    driver->picture_bytes -= driver_picture_bytes(&sequence->request);
    assert(*count); /* an admission is published before its sequence can end */
    --*count;
    pthread_mutex_unlock(&driver->lock);
}

struct driver_stats driver_stats(const struct driver *driver)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&driver->lock; /* reading needs the lock, too */
    pthread_mutex_lock(lock);
    struct driver_stats stats = driver->stats;
    pthread_mutex_unlock(lock);
    stats.prompt_row_ns = driver->prompt_row_ns;
    return stats;
}

void driver_memory_step(struct driver *driver, struct memory_step *out)
{
    memory_watch_step(&driver->memory, out);
}

/* ---- facts ---------------------------------------------------------------------------- */

const struct driver_options *driver_options(const struct driver *driver)
{
    return &driver->options;
}

const struct stage *driver_stage(const struct driver *driver, uint32_t index)
{
    return index < driver->pipeline.n_stages ? driver->pipeline.stages[index].stage : NULL;
}

struct pipeline *driver_pipeline(struct driver *driver)
{
    return &driver->pipeline;
}

uint64_t driver_stage_busy_ns(const struct driver *driver, uint32_t index)
{
    if (index >= driver->pipeline.n_stages)
        return 0;
    return atomic_load_explicit(&driver->pipeline.stages[index].busy_ns, memory_order_relaxed);
}
