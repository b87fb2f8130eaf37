/* The driver's step: what happens between two micro-batches. By the baton's holder
 * (driver_state.h). */
#include "pipeline/driver_form.h"

#include "base/clock.h"
#include "base/mem.h"
#include "engine/batch_shape.h"
#include "pipeline/settings.h"

#include <assert.h>
#include <string.h>

enum {
    MIXED_STEP_NS =
        200 * 1000 *
        1000,            /* how long the prompt rows of a step may take while streams are running */
    MIXED_ROWS_MIN = 32, /* below this a device does not get faster per step */
    MIXED_ROWS_FIRST = 64,   /* before anything has been measured */
    NO_MEMORY_REPEATS = 300, /* a minute: no other error ends a reply so late */
    MEASURED_ROWS_MIN = 32,  /* a micro-batch tells the speed of prompts from this size on */
};

/* ---- the end of a sequence ------------------------------------------------------------ */

/* A prompt without an answer has no first token. */
static void step_note_served(struct driver_served *served, const struct sequence *sequence,
                             const struct request_usage *usage)
{
    if (!sequence->first_token_ns)
        return;
    served->prompts++;
    served->prompt_rows += usage->prompt_tokens - usage->cached_tokens;
    served->prompt_ns += usage->prefill_ns;
    if (usage->generated_tokens < 2)
        return;
    served->replies++;
    served->reply_tokens += usage->generated_tokens - 1;
    served->reply_ns += usage->decode_ns;
}

static void step_finish(struct driver *driver, struct sequence *sequence, enum finish_reason reason,
                        const struct error *err)
{
    assert(sequence->slot == SLOT_NONE || driver->slots.slots[sequence->slot].sequence == sequence);
    uint64_t now_ns = clock_now_ns();
    struct request_usage usage = {
        .prompt_tokens = sequence->request.n_prompt,
        .cached_tokens = sequence->cached,
        .generated_tokens = sequence->generated,
        .slowest_ns = sequence->slowest_ns,
        .times = sequence->times,
    };
    uint64_t admitted_ns = sequence->admitted_ns ? sequence->admitted_ns : now_ns;
    uint64_t first_ns = sequence->first_token_ns ? sequence->first_token_ns : now_ns;
    usage.queued_ns = admitted_ns - sequence->submitted_ns;
    usage.prefill_ns = first_ns - admitted_ns;
    usage.decode_ns = now_ns - first_ns;
    step_note_served(&driver->gain.served, sequence, &usage);
    if (sequence->slot != SLOT_NONE) {
        driver->slots.slots[sequence->slot].sequence = NULL;
        driver->slots.slots[sequence->slot].parked = false;
    }
    if (sequence->generated && (reason == FINISH_STOP || reason == FINISH_LENGTH))
        answers_note(&driver->answers, sequence->generated);
    driver->n_ended++;
    driver_retire(driver, sequence);
    sequence->request.handlers.done(sequence->request.arg, reason, &usage,
                                    reason == FINISH_ERROR ? err : NULL);
    sequence_free(sequence);
}

static void step_unqueue(struct driver *driver, const struct sequence *sequence)
{
    struct sequence **at = &driver->queue;
    while (*at && *at != sequence)
        at = &(*at)->queue_next;
    assert(*at);
    *at = sequence->queue_next;
    if (!*at)
        driver->queue_end = at;
}

static void step_cancel(struct driver *driver)
{
    while (driver->cancelled) {
        struct sequence *sequence = driver->cancelled;
        if (sequence->slot == SLOT_NONE)
            step_unqueue(driver, sequence);
        step_finish(driver, sequence, FINISH_CANCELLED, NULL); /* and it is off the list */
        assert(driver->cancelled != sequence);
    }
}

/* ---- slots ---------------------------------------------------------------------------- */

void step_push_operation(struct driver *driver, struct cache_operation operation)
{
    assert(driver->n_operations < driver->pipeline.shape.operations);
    driver->operations[driver->n_operations++] = operation;
}

/* The newest of a slot counts. */
static void step_push_setup(struct driver *driver, uint32_t slot, const struct request *request)
{
    uint32_t at = 0;
    while (at < driver->n_setups && driver->setups[at].slot != slot)
        at++;
    if (at == driver->n_setups)
        driver->n_setups++;
    assert(driver->n_setups <= driver->options.n_slots); /* each slot once */
    pick_setup_fill(&driver->setups[at], slot, &request->sampler, request->logprobs,
                    request->n_top_logprobs);
    constraint_replace(&driver->setups[at].constraint, request->constraint);
    driver->setups[at].answer = request->n_prompt - request->n_answered;
}

void step_empty_slot(struct driver *driver, uint32_t index)
{
    struct slot *slot = &driver->slots.slots[index];
    if (slot->n_placed || slot->broken)
        step_push_operation(driver, (struct cache_operation){.slot = index});
    slot_table_place(&driver->slots, index, 0);
    slot->broken = false;
    slot->epoch++;
}

static void step_occupy(struct driver *driver, struct sequence *sequence,
                        const struct slot_choice *choice)
{
    struct slot *slot = &driver->slots.slots[choice->slot];
    assert(!slot->sequence && sequence->slot == SLOT_NONE);
    assert(choice->keep <= slot->n_placed && (!choice->copy || !choice->keep));
    if (choice->keep == 0) {
        step_empty_slot(driver, choice->slot);
    } else if (choice->keep < slot->n_placed) {
        step_push_operation(driver,
                            (struct cache_operation){.slot = choice->slot, .length = choice->keep});
        slot_table_cut(&driver->slots, choice->slot, choice->keep);
    }
    if (choice->copy) {
        step_push_operation(driver, (struct cache_operation){.slot = choice->slot,
                                                             .from = choice->copy_from,
                                                             .length = choice->copy,
                                                             .copy = true});
        slot_table_copy(&driver->slots, choice->copy_from, choice->slot, choice->copy);
    }
    if (sequence->request.n_predict)
        step_push_setup(driver, choice->slot, &sequence->request);
    assert(slot->n_placed < sequence->request.n_prompt); /* the last token is computed */
    memcpy(slot->tokens, sequence->request.prompt,
           sequence->request.n_prompt * sizeof *slot->tokens);
    assert(!choice->keep || slot->cache_key == sequence->request.cache_key);
    slot->cache_key = sequence->request.cache_key;
    slot->n_known = sequence->request.n_prompt;
    slot->sequence = sequence;
    slot->served = driver->n_sent;
    sequence->slot = choice->slot;
    sequence->cached = slot->n_placed;
    sequence->admitted_ns = clock_now_ns();
}

/* An admission takes two operations at most; two a slot are kept back for sequences that start over
 * and for slots that are given back. */
bool step_operations_are_full(const struct driver *driver)
{
    return driver->n_operations + 2 + 2 * driver->slots.n_slots > driver->pipeline.shape.operations;
}

static void step_admit(struct driver *driver)
{
    if (!step_operations_are_full(driver) && !step_cells_resume(driver))
        return;
    while (driver->queue && !step_operations_are_full(driver)) {
        struct sequence *sequence = driver->queue;
        if (!step_grammar_fits(driver, sequence->request.constraint))
            return;
        /* The last prompt token is always computed: its logits are needed. */
        bool reuses = !driver->options.no_prefix_reuse && !sequence_wants_rows(sequence);
        struct slot_choice choice;
        if (!slot_table_choose(&driver->slots, sequence->request.prompt,
                               reuses ? sequence->request.n_prompt - 1 : 0,
                               sequence->request.cache_key, &choice))
            return;
        choice.copy = slot_table_copyable(&driver->slots, choice.copy);
        if (step_cells_is_coming(driver, sequence, reuses ? sequence->request.n_prompt - 1 : 0,
                                 &choice) ||
            !step_cells_admit(driver, sequence, &choice))
            return;
        step_unqueue(driver, sequence);
        step_occupy(driver, sequence, &choice);
        driver->gain.n_admitted++;
        driver->gain.prompt_tokens += sequence->request.n_prompt;
        driver->gain.cached_tokens += sequence->cached;
    }
}

/* ---- forming a micro-batch ------------------------------------------------------------ */

static uint32_t step_mixed_rows(const struct driver *driver)
{
    uint64_t rows =
        driver->prompt_row_ns ? MIXED_STEP_NS / driver->prompt_row_ns : MIXED_ROWS_FIRST;
    uint64_t half = driver->options.batch_rows > 1 ? driver->options.batch_rows / 2 : 1;
    if (rows < MIXED_ROWS_MIN)
        rows = MIXED_ROWS_MIN;
    return (uint32_t)(rows < half ? rows : half);
}

static uint32_t step_describe(const struct driver *driver, struct schedule_item *items,
                              uint32_t *slots)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        const struct slot *slot = &driver->slots.slots[i];
        if (!slot->sequence || slot->parked)
            continue;
        uint32_t waiting = slot->n_known - slot->n_placed;
        items[n] = (struct schedule_item){
            .waiting = waiting,
            .decoding = slot->sequence->generated && waiting <= 1,
            .embeddings = slot->sequence->request.embeddings,
            .whole = driver->reads_whole,
            .output_all = slot->sequence->request.want_all_logits,
            .served = slot->served,
        };
        slots[n++] = i;
    }
    return n;
}

static void step_add_share(struct driver *driver, struct microbatch *microbatch, uint32_t index,
                           uint32_t n_rows)
{
    struct slot *slot = &driver->slots.slots[index];
    struct sequence *sequence = slot->sequence;
    struct share *share = &microbatch->shares[microbatch->n_shares++];
    assert(n_rows && slot->n_placed + n_rows <= slot->n_known);
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
    slot_table_place(&driver->slots, index, n_rows);
    slot->served = driver->n_sent + 1;
}

/* Shorter while memory is short. */
static uint32_t step_batch_rows(struct driver *driver)
{
    const uint32_t rows = driver->options.batch_rows / memory_watch_terms(&driver->memory).divisor;
    return rows ? rows : 1;
}

/* Fills `microbatch` with what is to be done next; false when that is nothing. */
static bool step_form(struct driver *driver, struct microbatch *microbatch)
{
    uint32_t slots[LIMIT_SEQUENCES];
    uint64_t embedding_rows = driver->pipeline.shape.output_floats / driver->pipeline.shape.n_embd;
    struct schedule_limits limits = {
        .rows = step_batch_rows(driver),
        .devices = driver->n_devices,
        .prefill_rows_mixed = step_mixed_rows(driver),
        .output_all_rows = OUTPUT_ALL_ROWS,
        .embedding_rows = embedding_rows < UINT32_MAX ? (uint32_t)embedding_rows : UINT32_MAX,
    };
    struct schedule schedule;
    do {
        struct schedule_item items[LIMIT_SEQUENCES];
        const uint32_t n_items = step_describe(driver, items, slots);
        schedule_next(items, n_items, &limits, &schedule);
    } while (!step_cells_make_room(driver, &schedule, slots));
    if (!schedule.n_shares && !step_operations_are_full(driver))
        return false;
    microbatch_clear(microbatch);
    microbatch->embeddings = schedule.embeddings;
    for (uint32_t i = 0; i < schedule.n_shares; i++)
        step_add_share(driver, microbatch, slots[schedule.shares[i].item], schedule.shares[i].rows);
    assert(microbatch->n_rows <= driver->options.batch_rows);
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
static void step_begin_anew(struct driver *driver, const struct error *why)
{
    assert(!driver->n_in_flight);
    driver->n_operations = driver->n_setups = 0;
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        struct slot *slot = &driver->slots.slots[i];
        if (slot->sequence)
            step_finish(driver, slot->sequence, FINISH_ERROR, why);
        slot_table_place(&driver->slots, i, 0);
        slot->broken = true;
        slot->epoch++;
        if (slot_table_is_pool(&driver->slots))
            step_empty_slot(driver, i); /* what a stage may still hold is nobody's */
    }
}

/* For a successor: what is in the slots stays there, and all requests end, those too that came a
 * moment ago: driver_submit() has refused since the wish was noted. */
static void step_come_to_rest(struct driver *driver)
{
    assert(!driver->n_in_flight && !driver->n_cached);
    uint32_t n_extents = 0; /* the successor has them one by one */
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        struct slot *slot = &driver->slots.slots[i];
        if (!slot->sequence)
            continue;
        n_extents += kv_map_extents(slot->n_placed);
        if (!slot->broken && slot->n_placed &&
            (!driver->options.cells || n_extents <= driver->slots.map.n_extents))
            driver->cached[driver->n_cached++] =
                (struct cached_slot){i, slot->n_placed, slot->tokens, slot->cache_key};
        step_finish(driver, slot->sequence, FINISH_CANCELLED, NULL);
    }
    while (driver->queue) {
        struct sequence *sequence = driver->queue;
        step_unqueue(driver, sequence);
        step_finish(driver, sequence, FINISH_CANCELLED, NULL);
    }
    driver->has_settled = true;
}

/* What was to be done with a slot is not, for it has been filled. */
static void step_drop_operations(struct driver *driver, uint32_t slot)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < driver->n_operations; i++) {
        if (driver->operations[i].slot != slot)
            driver->operations[kept++] = driver->operations[i];
    }
    driver->n_operations = kept;
}

static void step_take_seeds(struct driver *driver, const struct driver_seeds *seeds)
{
    for (uint32_t i = 0; i < seeds->n; i++) {
        const struct cached_slot *seed = &seeds->slots[i];
        struct slot *slot = &driver->slots.slots[seed->slot];
        assert(!slot->sequence);
        memcpy(slot->tokens, seed->tokens, seed->n_tokens * sizeof *slot->tokens);
        const bool is_known =
            seed->n_tokens &&
            (!driver->options.cells || kv_map_need(&driver->slots.map, seed->slot, 0,
                                                   seed->n_tokens) <= driver->slots.map.n_unused);
        slot->broken = !is_known;
        if (!is_known) { /* given back at once: stages may hold more than is counted here */
            slot->n_known = 0;
            step_empty_slot(driver, seed->slot);
            continue;
        }
        step_drop_operations(driver, seed->slot);
        slot_table_place(&driver->slots, seed->slot, seed->n_tokens);
        slot->n_known = seed->n_tokens;
        slot->start = kv_window_start(driver->slots.window, seed->n_tokens);
        slot->cache_key = seed->cache_key;
        slot->epoch++;
    }
}

void step_advance(struct driver *driver, const struct driver_wishes *wishes)
{
    step_cancel(driver);
    if (wishes->found.code)
        step_begin_anew(driver, &wishes->found);
    if (wishes->seeds) /* after that: who seeds has seen that the stages are back */
        step_take_seeds(driver, wishes->seeds);
    if (wishes->waits)
        return; /* what is under way ends soon, and then the wish is taken */
    if (wishes->quiesces) {
        if (!driver->has_settled && !driver->n_in_flight)
            step_come_to_rest(driver);
        return;
    }
    if (driver_form_is_due(driver))
        return; /* the driver's own thread sees to it once nothing is under way */
    step_cells_give_back(driver);
    step_admit(driver);
    while (driver->unused && step_form(driver, driver->unused)) {
        struct microbatch *microbatch = driver->unused;
        assert(driver->n_in_flight < driver->n_devices);
        driver->unused = microbatch->next;
        driver->n_in_flight++;
        driver->n_sent++;
        driver->gain.steps++;
        driver->gain.rows += microbatch->n_rows;
        microbatch_send(microbatch);
        step_admit(driver); /* goes on where the list of operations was full */
    }
}

/* ---- taking a micro-batch back -------------------------------------------------------- */

/* Its place in the cache was lost before it had computed anything of its own: from the
 * beginning. */
static void step_start_over(struct driver *driver, struct sequence *sequence)
{
    struct slot *slot = &driver->slots.slots[sequence->slot];
    slot->broken = true;
    step_empty_slot(driver, sequence->slot);
    sequence->cached = 0;
}

/* Hands a token to the request; false when it wants no more. */
static bool step_give_token(const struct sequence *sequence, const struct pick *pick)
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
static void step_decode(struct driver *driver, struct sequence *sequence, const struct pick *pick)
{
    struct slot *slot = &driver->slots.slots[sequence->slot];
    const struct request *request = &sequence->request;
    if (!sequence->first_token_ns)
        sequence->first_token_ns = clock_now_ns();
    if (pick->token == CONSTRAIN_FAILS) {
        struct error err;
        error_set(&err, ERROR_UNSUPPORTED,
                  "the grammar cannot go on: the model has no token for what must come next, or "
                  "the grammar is too ambiguous here");
        step_finish(driver, sequence, FINISH_ERROR, &err);
        return;
    }
    if (pick->token == CONSTRAIN_ENDS || sequence_is_stop(sequence, pick->token)) {
        step_finish(driver, sequence, FINISH_STOP, NULL);
        return;
    }
    assert(slot->n_known < driver->options.context); /* there is room for it */
    bool go_on = step_give_token(sequence, pick);
    slot->tokens[slot->n_known++] = pick->token;
    sequence->generated++;
    driver->gain.generated_tokens++;
    if (!go_on)
        step_finish(driver, sequence, FINISH_STOP, NULL);
    else if (sequence->generated < request->n_predict && slot->n_known < driver->options.context)
        return;
    else if (request->want_all_logits)
        sequence->last_row = true;
    else
        step_finish(driver, sequence, FINISH_LENGTH, NULL);
}

/* The outputs of one share. */
static void step_deliver(struct driver *driver, struct sequence *sequence,
                         const struct share *share, uint32_t width, const float *outputs,
                         const struct pick *pick)
{
    const struct request *request = &sequence->request;
    uint32_t end = share->position + share->n_rows;
    assert(end <= driver->slots.slots[share->slot].n_known);
    for (uint32_t i = 0; i < share->n_rows && share->gives_rows; i++) {
        if (share->position + i >= sequence->n_rows_given)
            request->handlers.row(request->arg, share->position + i, outputs + (size_t)i * width,
                                  width);
    }
    if (share->gives_rows && end > sequence->n_rows_given)
        sequence->n_rows_given = end;
    if (end < driver->slots.slots[share->slot].n_known)
        return;
    if (share->pick)
        step_decode(driver, sequence, pick);
    else
        step_finish(driver, sequence, FINISH_LENGTH, NULL);
}

static void step_measure(struct driver *driver, const struct microbatch *microbatch)
{
    if (microbatch->n_rows < MEASURED_ROWS_MIN)
        return;
    uint64_t row_ns = microbatch->slowest_ns / microbatch->n_rows + 1;
    driver->prompt_row_ns =
        driver->prompt_row_ns ? (3 * driver->prompt_row_ns + row_ns) / 4 : row_ns;
}

/* A lack of memory passes: what others took, they give back. Each attempt waits 0.2 s for that
 * (stage_device.c), and requests may be cancelled between two. */
static bool step_may_repeat(struct sequence *sequence, const struct error *err)
{
    return err->code == ERROR_NO_MEMORY && sequence->n_no_memory++ < NO_MEMORY_REPEATS;
}

/* Its grammar is of no use where tokens are picked. */
static void step_refuse(struct driver *driver, struct sequence *sequence, const struct error *why)
{
    struct error err = *why;
    if (!err.code)
        error_set(&err, ERROR_UNSUPPORTED, "the grammar was refused where tokens are picked");
    step_finish(driver, sequence, FINISH_ERROR, &err);
}

static void step_settle(struct driver *driver, struct microbatch *microbatch, uint32_t index,
                        uint32_t width, const float *outputs)
{
    const struct share *share = &microbatch->shares[index];
    struct slot *slot = &driver->slots.slots[share->slot];
    if (slot->epoch != share->epoch)
        return; /* the slot has been emptied since */
    struct sequence *sequence = slot->sequence;
    if (share->failed || share->dropped) {
        slot->broken = true;
        if (sequence && share->failed && sequence->id == share->sequence &&
            !step_may_repeat(sequence, &microbatch->error))
            step_finish(driver, sequence, FINISH_ERROR, &microbatch->error);
        else if (sequence)
            step_start_over(driver, sequence);
        return;
    }
    if (sequence && sequence->id == share->sequence) {
        sequence->slowest_ns += microbatch->slowest_ns;
        request_times_add(&sequence->times, &microbatch->times);
        sequence->n_no_memory = 0;
        if (share->pick && microbatch->picks[index].token == CONSTRAIN_REFUSED)
            step_refuse(driver, sequence, &microbatch->error);
        else
            step_deliver(driver, sequence, share, width, outputs, &microbatch->picks[index]);
    }
}

void step_begin_over(struct driver *driver)
{
    assert(!driver->n_in_flight);
    driver->n_operations = 0; /* of caches that are gone */
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        struct slot *slot = &driver->slots.slots[i];
        if (slot->sequence)
            step_start_over(driver, slot->sequence);
        else
            step_empty_slot(driver, i);
    }
}

void step_end_all(struct driver *driver, const struct error *why)
{
    assert(!driver->n_in_flight);
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        if (driver->slots.slots[i].sequence)
            step_finish(driver, driver->slots.slots[i].sequence, FINISH_ERROR, why);
    }
    while (driver->queue) {
        struct sequence *sequence = driver->queue;
        step_unqueue(driver, sequence);
        step_finish(driver, sequence, FINISH_ERROR, why);
    }
}

void step_complete(struct driver *driver, struct microbatch *microbatch)
{
    assert(driver->n_in_flight && microbatch->at == driver->pipeline.n_stages);
    step_measure(driver, microbatch);
    if (microbatch->error.code == ERROR_NO_MEMORY)
        memory_watch_failed(&driver->memory);
    else if (microbatch->was_short)
        memory_watch_in_parts(&driver->memory);
    uint32_t width =
        microbatch->embeddings ? driver->pipeline.shape.n_embd : driver->pipeline.shape.n_vocab;
    const float *outputs = microbatch->outputs;
    for (uint32_t i = 0; i < microbatch->n_shares; i++) {
        const struct share *share = &microbatch->shares[i];
        step_settle(driver, microbatch, i, width, outputs);
        if (!share->failed && !share->dropped)
            outputs += (size_t)share->n_outputs * width;
    }
    driver->n_in_flight--;
    microbatch->next = driver->unused;
    driver->unused = microbatch;
}
