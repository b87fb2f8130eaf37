/* The driver's step: what happens between two micro-batches. By the baton's holder
 * (driver_state.h). */
#include "pipeline/driver_state.h"

#include "base/clock.h"
#include "base/mem.h"
#include "pipeline/settings.h"

#include <assert.h>
#include <string.h>

enum {
    MIXED_STEP_NS =
        200 * 1000 *
        1000,            /* how long the prompt rows of a step may take while streams are running */
    MIXED_ROWS_MIN = 32, /* below this a device does not get faster per step */
    MIXED_ROWS_FIRST = 64,  /* before anything has been measured */
    MEASURED_ROWS_MIN = 32, /* a micro-batch tells the speed of prompts from this size on */
};

/* ---- the end of a sequence ------------------------------------------------------------ */

static void finish(struct driver *driver, struct sequence *sequence, enum finish_reason reason,
                   const struct error *err)
{
    uint64_t now_ns = clock_now_ns();
    struct request_usage usage = {
        .prompt_tokens = sequence->request.n_prompt,
        .cached_tokens = sequence->cached,
        .generated_tokens = sequence->generated,
    };
    uint64_t admitted_ns = sequence->admitted_ns ? sequence->admitted_ns : now_ns;
    uint64_t first_ns = sequence->first_token_ns ? sequence->first_token_ns : now_ns;
    usage.queued_ns = admitted_ns - sequence->submitted_ns;
    usage.prefill_ns = first_ns - admitted_ns;
    usage.decode_ns = now_ns - first_ns;
    if (sequence->slot != SLOT_NONE)
        driver->slots.slots[sequence->slot].sequence = NULL;
    driver_retire(driver, sequence);
    sequence->request.handlers.done(sequence->request.arg, reason, &usage,
                                    reason == FINISH_ERROR ? err : NULL);
    sequence_free(sequence);
}

static void unqueue(struct driver *driver, const struct sequence *sequence)
{
    struct sequence **at = &driver->queue;
    while (*at && *at != sequence)
        at = &(*at)->queue_next;
    assert(*at);
    *at = sequence->queue_next;
    if (!*at)
        driver->queue_end = at;
}

static void finish_cancelled(struct driver *driver)
{
    struct sequence *sequence;
    while ((sequence = driver_next_cancelled(driver)) != NULL) {
        if (sequence->slot == SLOT_NONE)
            unqueue(driver, sequence);
        finish(driver, sequence, FINISH_CANCELLED, NULL);
    }
}

/* ---- slots ---------------------------------------------------------------------------- */

static void push_operation(struct driver *driver, struct cache_operation operation)
{
    assert(driver->n_operations < driver->pipeline.shape.operations);
    driver->operations[driver->n_operations++] = operation;
}

/* The newest of a slot counts. */
static void push_setup(struct driver *driver, uint32_t slot, const struct request *request)
{
    uint32_t at = 0;
    while (at < driver->n_setups && driver->setups[at].slot != slot)
        at++;
    if (at == driver->n_setups)
        driver->n_setups++;
    pick_setup_fill(&driver->setups[at], slot, &request->sampler, request->logprobs,
                    request->n_top_logprobs);
}

static void empty_slot(struct driver *driver, uint32_t index)
{
    struct slot *slot = &driver->slots.slots[index];
    if (slot->n_placed || slot->broken)
        push_operation(driver, (struct cache_operation){.slot = index});
    slot->n_placed = 0;
    slot->broken = false;
    slot->epoch++;
}

static void occupy(struct driver *driver, struct sequence *sequence,
                   const struct slot_choice *choice)
{
    struct slot *slot = &driver->slots.slots[choice->slot];
    if (choice->keep == 0) {
        empty_slot(driver, choice->slot);
    } else if (choice->keep < slot->n_placed) {
        push_operation(driver,
                       (struct cache_operation){.slot = choice->slot, .length = choice->keep});
        slot->n_placed = choice->keep;
    }
    if (choice->copy) {
        push_operation(driver, (struct cache_operation){.slot = choice->slot,
                                                        .from = choice->copy_from,
                                                        .length = choice->copy,
                                                        .copy = true});
        slot->n_placed = choice->copy;
    }
    if (sequence->request.n_predict)
        push_setup(driver, choice->slot, &sequence->request);
    memcpy(slot->tokens, sequence->request.prompt,
           sequence->request.n_prompt * sizeof *slot->tokens);
    slot->n_known = sequence->request.n_prompt;
    slot->sequence = sequence;
    slot->served = driver->n_sent;
    sequence->slot = choice->slot;
    sequence->cached = slot->n_placed;
    sequence->admitted_ns = clock_now_ns();
}

/* An admission takes two operations at most; one a slot is kept back for sequences that start
 * over. */
static bool operations_are_full(const struct driver *driver)
{
    return driver->n_operations + 2 + driver->slots.n_slots > driver->pipeline.shape.operations;
}

static void admit(struct driver *driver)
{
    while (driver->queue && !operations_are_full(driver)) {
        struct sequence *sequence = driver->queue;
        /* The last prompt token is always computed: its logits are needed. */
        bool reuses = !driver->options.no_prefix_reuse && !sequence_wants_rows(sequence);
        struct slot_choice choice;
        if (!slot_table_choose(&driver->slots, sequence->request.prompt,
                               reuses ? sequence->request.n_prompt - 1 : 0, &choice))
            return;
        unqueue(driver, sequence);
        occupy(driver, sequence, &choice);
        pthread_mutex_lock(&driver->lock);
        driver->stats.queued--;
        driver->stats.slots_busy++;
        driver->stats.prompt_tokens_total += sequence->request.n_prompt;
        driver->stats.cached_tokens_total += sequence->cached;
        pthread_mutex_unlock(&driver->lock);
    }
}

/* ---- forming a micro-batch ------------------------------------------------------------ */

static uint32_t mixed_rows(const struct driver *driver)
{
    uint64_t rows =
        driver->prompt_row_ns ? MIXED_STEP_NS / driver->prompt_row_ns : MIXED_ROWS_FIRST;
    uint64_t half = driver->options.batch_rows > 1 ? driver->options.batch_rows / 2 : 1;
    if (rows < MIXED_ROWS_MIN)
        rows = MIXED_ROWS_MIN;
    return (uint32_t)(rows < half ? rows : half);
}

static uint32_t describe(const struct driver *driver, struct schedule_item *items, uint32_t *slots)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        const struct slot *slot = &driver->slots.slots[i];
        if (!slot->sequence)
            continue;
        uint32_t waiting = slot->n_known - slot->n_placed;
        items[n] = (struct schedule_item){
            .waiting = waiting,
            .decoding = slot->sequence->generated && waiting <= 1,
            .embeddings = slot->sequence->request.embeddings,
            .output_all = slot->sequence->request.want_all_logits,
            .served = slot->served,
        };
        slots[n++] = i;
    }
    return n;
}

static void add_share(struct driver *driver, struct microbatch *microbatch, uint32_t index,
                      uint32_t n_rows)
{
    struct slot *slot = &driver->slots.slots[index];
    struct sequence *sequence = slot->sequence;
    struct share *share = &microbatch->shares[microbatch->n_shares++];
    *share = (struct share){.slot = index,
                            .epoch = slot->epoch,
                            .position = slot->n_placed,
                            .n_rows = n_rows,
                            .sequence = sequence->id};
    share->gives_rows = sequence_wants_rows(sequence);
    share->pick = sequence->request.n_predict && !sequence->last_row &&
                  slot->n_placed + n_rows == slot->n_known;
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t position = slot->n_placed + i;
        bool newest = position + 1 == slot->n_known;
        bool output = share->gives_rows || (newest && share->pick);
        microbatch->rows[microbatch->n_rows++] =
            (struct batch_row){index, position, slot->tokens[position], output};
        share->n_outputs += output;
    }
    slot->n_placed += n_rows;
    slot->served = driver->n_sent + 1;
}

/* Fills `microbatch` with what is to be done next; false when that is nothing. */
static bool form(struct driver *driver, struct microbatch *microbatch)
{
    struct schedule_item items[LIMIT_SEQUENCES];
    uint32_t slots[LIMIT_SEQUENCES];
    uint32_t n_items = describe(driver, items, slots);
    uint64_t embedding_rows = driver->pipeline.shape.output_floats / driver->pipeline.shape.n_embd;
    struct schedule_limits limits = {
        .rows = driver->options.batch_rows,
        .devices = driver->n_devices,
        .prefill_rows_mixed = mixed_rows(driver),
        .output_all_rows = OUTPUT_ALL_ROWS,
        .embedding_rows = embedding_rows < UINT32_MAX ? (uint32_t)embedding_rows : UINT32_MAX,
    };
    struct schedule schedule;
    schedule_next(items, n_items, &limits, &schedule);
    if (!schedule.n_shares && !operations_are_full(driver))
        return false;
    microbatch_clear(microbatch);
    microbatch->embeddings = schedule.embeddings;
    for (uint32_t i = 0; i < schedule.n_shares; i++)
        add_share(driver, microbatch, slots[schedule.shares[i].item], schedule.shares[i].rows);
    memcpy(microbatch->operations, driver->operations,
           driver->n_operations * sizeof *driver->operations);
    microbatch->n_operations = driver->n_operations;
    driver->n_operations = 0;
    for (uint32_t i = 0; i < driver->n_setups; i++)
        pick_setup_copy(&microbatch->setups[i], &driver->setups[i]);
    microbatch->n_setups = driver->n_setups;
    driver->n_setups = 0;
    return true;
}

/* The stages elsewhere are back, with nothing that can be relied on: every slot begins anew. */
static void begin_anew(struct driver *driver)
{
    const struct error why = driver_take_found(driver);
    if (!why.code)
        return;
    driver->n_operations = driver->n_setups = 0;
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        struct slot *slot = &driver->slots.slots[i];
        if (slot->sequence)
            finish(driver, slot->sequence, FINISH_ERROR, &why);
        slot->n_placed = 0;
        slot->broken = true;
        slot->epoch++;
    }
}

/* For a successor: what is in the slots stays there, and all requests end, those too that came a
 * moment ago. */
static void driver_note_cached(struct driver *driver)
{
    finish_cancelled(driver); /* takes what came in */
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        struct slot *slot = &driver->slots.slots[i];
        if (!slot->sequence)
            continue;
        if (!slot->broken && slot->n_placed)
            driver->cached[driver->n_cached++] =
                (struct cached_slot){i, slot->n_placed, slot->tokens};
        finish(driver, slot->sequence, FINISH_CANCELLED, NULL);
    }
    while (driver->queue) {
        struct sequence *sequence = driver->queue;
        unqueue(driver, sequence);
        finish(driver, sequence, FINISH_CANCELLED, NULL);
    }
    driver_become_quiescent(driver);
}

static void take_seeds(struct driver *driver)
{
    struct driver_seeds *seeds = driver_take_seeds(driver);
    for (uint32_t i = 0; seeds && i < seeds->n; i++) {
        const struct cached_slot *seed = &seeds->slots[i];
        struct slot *slot = &driver->slots.slots[seed->slot];
        assert(!slot->sequence);
        memcpy(slot->tokens, seed->tokens, seed->n_tokens * sizeof *slot->tokens);
        slot->n_known = slot->n_placed = seed->n_tokens;
        slot->broken = seed->n_tokens == 0;
        slot->epoch++;
    }
    mem_free(seeds);
}

void step_advance(struct driver *driver)
{
    finish_cancelled(driver);
    if (driver_is_found(driver)) {
        if (driver->n_in_flight)
            return; /* it ends soon, and this is called again */
        begin_anew(driver);
    }
    take_seeds(driver);
    if (driver->is_quiescent || driver_quiesces(driver)) {
        if (!driver->is_quiescent && !driver->n_in_flight)
            driver_note_cached(driver);
        return;
    }
    admit(driver);
    while (driver->unused && form(driver, driver->unused)) {
        struct microbatch *microbatch = driver->unused;
        driver->unused = microbatch->next;
        driver->n_in_flight++;
        driver->n_sent++;
        pthread_mutex_lock(&driver->lock);
        driver->stats.steps_total++;
        driver->stats.rows_total += microbatch->n_rows;
        pthread_mutex_unlock(&driver->lock);
        microbatch_send(microbatch);
        admit(driver); /* goes on where the list of operations was full */
    }
}

/* ---- taking a micro-batch back -------------------------------------------------------- */

/* Its place in the cache was lost before it had computed anything of its own: from the
 * beginning. */
static void start_over(struct driver *driver, struct sequence *sequence)
{
    struct slot *slot = &driver->slots.slots[sequence->slot];
    slot->broken = true;
    empty_slot(driver, sequence->slot);
    sequence->cached = 0;
}

/* Hands a token to the request; false when it wants no more. */
static bool give_token(const struct sequence *sequence, const struct pick *pick)
{
    const struct request *request = &sequence->request;
    if (!request->handlers.token)
        return true;
    struct token_event event = {
        .token = pick->token,
        .index = sequence->generated,
        .logprob = pick->logprob,
        .top = pick->top,
        .n_top = pick->n_top,
    };
    return request->handlers.token(request->arg, &event);
}

/* Takes the next token, and ends the sequence where it ends. */
static void decode(struct driver *driver, struct sequence *sequence, const struct pick *pick)
{
    struct slot *slot = &driver->slots.slots[sequence->slot];
    const struct request *request = &sequence->request;
    if (!sequence->first_token_ns)
        sequence->first_token_ns = clock_now_ns();
    if (sequence_is_stop(sequence, pick->token)) {
        finish(driver, sequence, FINISH_STOP, NULL);
        return;
    }
    bool go_on = give_token(sequence, pick);
    slot->tokens[slot->n_known++] = pick->token;
    sequence->generated++;
    driver->n_generated++;
    if (!go_on)
        finish(driver, sequence, FINISH_STOP, NULL);
    else if (sequence->generated < request->n_predict && slot->n_known < driver->options.context)
        return;
    else if (request->want_all_logits)
        sequence->last_row = true;
    else
        finish(driver, sequence, FINISH_LENGTH, NULL);
}

/* The outputs of one share. */
static void deliver(struct driver *driver, struct sequence *sequence, const struct share *share,
                    uint32_t width, const float *outputs, const struct pick *pick)
{
    const struct request *request = &sequence->request;
    uint32_t end = share->position + share->n_rows;
    if (share->gives_rows) {
        for (uint32_t i = 0; i < share->n_rows; i++)
            request->handlers.row(request->arg, share->position + i, outputs + (size_t)i * width,
                                  width);
    }
    if (end < driver->slots.slots[share->slot].n_known)
        return;
    if (share->pick)
        decode(driver, sequence, pick);
    else
        finish(driver, sequence, FINISH_LENGTH, NULL);
}

static void measure(struct driver *driver, const struct microbatch *microbatch)
{
    if (microbatch->n_rows < MEASURED_ROWS_MIN)
        return;
    uint64_t row_ns = microbatch->slowest_ns / microbatch->n_rows + 1;
    driver->prompt_row_ns =
        driver->prompt_row_ns ? (3 * driver->prompt_row_ns + row_ns) / 4 : row_ns;
}

static void settle(struct driver *driver, struct microbatch *microbatch, uint32_t index,
                   uint32_t width, const float *outputs)
{
    const struct share *share = &microbatch->shares[index];
    struct slot *slot = &driver->slots.slots[share->slot];
    if (slot->epoch != share->epoch)
        return; /* the slot has been emptied since */
    struct sequence *sequence = slot->sequence;
    if (share->failed || share->dropped) {
        slot->broken = true;
        if (sequence && share->failed && sequence->id == share->sequence)
            finish(driver, sequence, FINISH_ERROR, &microbatch->error);
        else if (sequence)
            start_over(driver, sequence);
        return;
    }
    if (sequence && sequence->id == share->sequence)
        deliver(driver, sequence, share, width, outputs, &microbatch->picks[index]);
}

void step_complete(struct driver *driver, struct microbatch *microbatch)
{
    measure(driver, microbatch);
    uint32_t width =
        microbatch->embeddings ? driver->pipeline.shape.n_embd : driver->pipeline.shape.n_vocab;
    const float *outputs = microbatch->outputs;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        settle(driver, microbatch, i, width, outputs);
        if (!share->failed && !share->dropped)
            outputs += (size_t)share->n_outputs * width;
    }
    driver->n_in_flight--;
    microbatch->next = driver->unused;
    driver->unused = microbatch;
    pthread_mutex_lock(&driver->lock);
    driver->stats.generated_tokens_total = driver->n_generated;
    pthread_mutex_unlock(&driver->lock);
}
