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
    MIXED_ROWS_FIRST = 64, /* before anything has been measured */
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

void step_finish(struct driver *driver, struct sequence *sequence, enum finish_reason reason,
                 const struct error *err)
{
    assert(sequence->slot == SLOT_NONE || driver->slots.slots[sequence->slot].sequence == sequence);
    uint64_t now_ns = clock_now_ns();
    struct request_usage usage = {
        .prompt_tokens = sequence->request.n_prompt,
        .cached_tokens = sequence->cached,
        .generated_tokens = sequence->generated,
        .slowest_ns = sequence->slowest_ns,
        .held_up_ns = sequence->held_up_ns,
        .times = sequence->times,
        .drafted_tokens = sequence->drafted,
        .accepted_tokens = sequence->accepted,
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

void step_unqueue(struct driver *driver, const struct sequence *sequence)
{
    struct sequence **at = &driver->queue;
    while (*at && *at != sequence)
        at = &(*at)->queue_next;
    assert(*at);
    *at = sequence->queue_next;
    if (!*at)
        driver->queue_end = at;
}

static void step_cancel(struct driver *driver, bool closes)
{
    const bool any = driver->cancelled != NULL;
    while (driver->cancelled) {
        struct sequence *sequence = driver->cancelled;
        if (sequence->slot == SLOT_NONE)
            step_unqueue(driver, sequence);
        step_finish(driver, sequence, FINISH_CANCELLED, NULL); /* and it is off the list */
        assert(driver->cancelled != sequence);
    }
    if (any)
        step_halt(driver, closes);
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

void step_push_prefix(struct driver *driver, uint32_t slot, uint32_t from, uint32_t length,
                      uint32_t checkpoint)
{
    struct cache_operation operation = {.kind = from == slot ? CACHE_CUT : CACHE_COPY,
                                        .slot = slot,
                                        .from = from,
                                        .length = length};
    driver->slots.slots[slot].taken = 0;
    if (checkpoint != CHECKPOINT_NONE) {
        struct checkpoint *at = &driver->slots.checkpoints.list[checkpoint];
        assert(at->length == length && driver->may_keep_states);
        at->used = driver->n_sent + 1;
        driver->slots.slots[slot].taken = at->id;
        operation.kind = CACHE_TAKE;
        operation.checkpoint = checkpoint;
        operation.checkpoint_id = at->id;
    }
    step_push_operation(driver, operation);
}

/* Where states of it are to be kept. */
static void step_note_text(struct driver *driver, const struct sequence *sequence,
                           const struct slot_choice *choice)
{
    struct slot *slot = &driver->slots.slots[choice->slot];
    slot->text = (struct checkpoint_text){.n_prompt = sequence->request.n_prompt};
    if (choice->checkpoint == CHECKPOINT_NONE)
        slot->text.n_begun = slot->n_placed;
    if (choice->common >= slot->n_placed + CHECKPOINT_APART)
        slot->text.branch = choice->common;
}

static bool step_keeps_states(const struct driver *driver, const struct slot *slot)
{
    return driver->may_keep_states && slot->sequence && !sequence_wants_rows(slot->sequence) &&
           !atomic_load_explicit(&driver->pipeline.gives_back, memory_order_relaxed);
}

/* Before the next rows of the slot. */
static void step_keep_state(struct driver *driver, uint32_t index)
{
    struct slot_table *table = &driver->slots;
    const struct slot *slot = &table->slots[index];
    if (!step_keeps_states(driver, slot) || slot->broken ||
        !checkpoint_is_due(&table->checkpoints, &slot->text, index, slot->n_placed))
        return;
    const uint32_t at =
        checkpoint_add(&table->checkpoints, index, slot->n_placed, driver->n_sent + 1);
    step_push_operation(driver,
                        (struct cache_operation){.kind = CACHE_KEEP,
                                                 .slot = index,
                                                 .length = slot->n_placed,
                                                 .checkpoint = at,
                                                 .checkpoint_id = table->checkpoints.list[at].id});
}

/* Rows of the slot that are to be computed before a state is kept. */
static uint32_t step_rows_to_state(const struct driver *driver, const struct slot *slot,
                                   uint32_t waiting)
{
    if (!waiting || !step_keeps_states(driver, slot))
        return waiting;
    const uint32_t rows = checkpoint_next(&slot->text, slot->n_placed) - slot->n_placed;
    return rows < waiting ? rows : waiting;
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
        step_push_prefix(driver, choice->slot, choice->slot, choice->keep, choice->checkpoint);
        slot_table_cut(&driver->slots, choice->slot, choice->keep);
    }
    if (choice->copy) {
        step_push_prefix(driver, choice->slot, choice->copy_from, choice->copy, choice->checkpoint);
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
    step_note_text(driver, sequence, choice);
    step_draft_begin(driver, sequence);
    sequence->slot = choice->slot;
    sequence->cached = slot->n_placed;
    sequence->admitted_ns = clock_now_ns();
}

/* An admission takes two operations at most; three a slot are kept back for sequences that start
 * over, for slots that are given back, and for states that are kept. */
bool step_operations_are_full(const struct driver *driver)
{
    return driver->n_operations + 2 + 3 * driver->slots.n_slots > driver->pipeline.shape.operations;
}

/* What is copied must have cells, too (slot_table_copyable()). */
static uint32_t step_rounded(const struct driver *driver, const struct sequence *sequence,
                             bool is_copy, uint32_t length)
{
    for (uint32_t before = length + 1; length && length < before;) {
        before = length;
        length = sequence_resume_at(sequence, length);
        if (is_copy)
            length = slot_table_copyable(&driver->slots, length);
    }
    return length;
}

void step_round_to_pictures(const struct driver *driver, const struct sequence *sequence,
                            struct slot_choice *choice)
{
    const bool is_copy = choice->copy > 0;
    uint32_t *length = is_copy ? &choice->copy : &choice->keep;
    const uint32_t from = is_copy ? choice->copy_from : choice->slot;
    if (sequence_resume_at(sequence, *length) == *length)
        return;
    const uint32_t rounded = step_rounded(driver, sequence, is_copy, *length);
    const bool can_cut =
        !driver->slots.whole_only &&
        driver->slots.slots[from].start <= kv_window_start(driver->slots.window, rounded);
    *length = can_cut ? rounded : 0;
    choice->checkpoint = CHECKPOINT_NONE;
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
        step_round_to_pictures(driver, sequence, &choice);
        if (!choice.copy && !choice.keep)
            choice.checkpoint = CHECKPOINT_NONE;
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
        if (!slot->sequence || slot->parked || step_draft_is_awaited(driver, i))
            continue;
        /* more are placed than known while a draft is under way */
        uint32_t waiting = slot->n_known > slot->n_placed ? slot->n_known - slot->n_placed : 0;
        bool is_whole;
        waiting = sequence_rows_together(slot->sequence, slot->n_placed,
                                         step_rows_to_state(driver, slot, waiting), &is_whole);
        items[n] = (struct schedule_item){
            .waiting = waiting,
            .decoding = slot->sequence->generated && waiting <= 1,
            .embeddings = slot->sequence->request.embeddings,
            .whole = driver->reads_whole || is_whole,
            .output_all = slot->sequence->request.want_all_logits,
            .served = slot->served,
        };
        slots[n++] = i;
    }
    return n;
}

/* What the next row of the micro-batch is beside its token. */
static void step_add_picture(const struct driver *driver, struct microbatch *microbatch,
                             const struct sequence *sequence, uint32_t position)
{
    const size_t width = driver->pipeline.shape.given_width;
    if (!width)
        return;
    const float *values = sequence_row(sequence, position, &microbatch->places[microbatch->n_rows]);
    microbatch->has_places |= sequence->request.n_pictures > 0;
    if (values)
        memcpy(microbatch->given + width * microbatch->n_given++, values, width * sizeof *values);
}

void step_add_share(struct driver *driver, struct microbatch *microbatch, uint32_t index,
                    const struct step_draft *draft, uint32_t n_rows)
{
    struct slot *slot = &driver->slots.slots[index];
    struct sequence *sequence = slot->sequence;
    struct share *share = &microbatch->shares[microbatch->n_shares++];
    const uint32_t end =
        draft->is_ahead ? slot->n_placed + n_rows : slot->n_known + draft->n_tokens;
    assert(n_rows && slot->n_placed + n_rows <= end);
    *share = (struct share){.slot = index,
                            .epoch = slot->epoch,
                            .position = slot->n_placed,
                            .n_rows = n_rows,
                            .sequence = sequence->id,
                            .n_drafted = draft->n_tokens,
                            .n_match = draft->n_match,
                            .foreseen = draft->foreseen,
                            .foreseen_match = draft->foreseen_match,
                            .is_ahead = draft->is_ahead,
                            .n_cuts = slot->n_cuts,
                            .draft_ns = draft->took_ns};
    share->gives_rows = sequence_wants_rows(sequence);
    share->pick =
        sequence->request.n_predict && !sequence->last_row && slot->n_placed + n_rows == end;
    share->first_pick = microbatch->n_picks;
    microbatch->n_picks += share_picks_room(share);
    for (uint32_t i = 0; i < n_rows; i++) {
        uint32_t position = slot->n_placed + i;
        bool newest = position + 1 >= slot->n_known;
        bool output = share->gives_rows || (newest && share->pick);
        step_add_picture(driver, microbatch, sequence, position);
        microbatch->rows[microbatch->n_rows++] =
            (struct batch_row){index, position, slot->tokens[position], output};
        share->n_outputs += output;
    }
    slot_table_place(&driver->slots, index, n_rows);
    slot->served = driver->n_sent + 1;
}

/* May one more be under way? Decoding goes in as many micro-batches as there are devices: more
 * would only wait for each other. Guesses that follow others do not count. */
static bool step_has_room(const struct driver *driver)
{
    assert(driver->n_ahead <= driver->n_in_flight);
    if (driver->n_in_flight - driver->n_ahead < driver->n_devices)
        return true;
    for (uint32_t i = 0; i < driver->slots.n_slots; i++) {
        const struct slot *slot = &driver->slots.slots[i];
        if (slot->sequence && !slot->parked && slot->sequence->generated)
            return false;
    }
    return true;
}

/* Shorter while memory is short. */
static uint32_t step_batch_rows(struct driver *driver)
{
    const uint32_t rows = driver->options.batch_rows / memory_watch_terms(&driver->memory).divisor;
    return rows ? rows : 1;
}

/* One device computes for all at once, or they would go apart from here on. */
static bool step_waits_for_guesses(const struct driver *driver)
{
    for (uint32_t i = 0; i < driver->slots.n_slots && driver->n_devices == 1; i++) {
        if (step_draft_is_awaited(driver, i))
            return true;
    }
    return false;
}

/* What is to be done next, with guesses. */
static void step_schedule(struct driver *driver, const struct schedule_limits *limits,
                          struct schedule *schedule, uint32_t *slots, struct step_draft *drafts)
{
    do {
        do {
            struct schedule_item items[LIMIT_SEQUENCES];
            const uint32_t n_items = step_describe(driver, items, slots);
            schedule_next(items, n_items, limits, schedule);
        } while (!step_cells_make_room(driver, schedule, slots));
    } while (!step_draft(driver, schedule, slots, limits->rows, drafts));
}

/* Fills `microbatch` with what is to be done next; false when that is nothing. */
static bool step_form(struct driver *driver, struct microbatch *microbatch)
{
    uint32_t slots[LIMIT_SEQUENCES];
    uint64_t embedding_rows = driver->pipeline.shape.output_floats / driver->pipeline.shape.n_embd;
    struct schedule_limits limits = {
        .rows = step_batch_rows(driver),
        .devices = driver->n_devices,
        .chunk_rows = step_chunk_rows(driver),
        .prefill_rows_mixed = step_mixed_rows(driver),
        .output_all_rows = OUTPUT_ALL_ROWS,
        .embedding_rows = embedding_rows < UINT32_MAX ? (uint32_t)embedding_rows : UINT32_MAX,
    };
    struct schedule schedule;
    struct step_draft drafts[LIMIT_SEQUENCES];
    if (step_waits_for_guesses(driver))
        return false;
    step_schedule(driver, &limits, &schedule, slots, drafts);
    if ((!schedule.n_shares && !step_operations_are_full(driver)) || step_waits_for_guesses(driver))
        return false;
    microbatch_clear(microbatch);
    microbatch->embeddings = schedule.embeddings;
    for (uint32_t i = 0; i < schedule.n_shares; i++) {
        step_keep_state(driver, slots[schedule.shares[i].item]);
        step_add_share(driver, microbatch, slots[schedule.shares[i].item], &drafts[i],
                       schedule.shares[i].rows + drafts[i].n_tokens);
    }
    assert(microbatch->n_rows <= driver->options.batch_rows);
    step_add_operations(driver, microbatch);
    return true;
}

void step_add_operations(struct driver *driver, struct microbatch *microbatch)
{
    memcpy(microbatch->operations, driver->operations,
           driver->n_operations * sizeof *driver->operations);
    microbatch->n_operations = driver->n_operations;
    driver->n_operations = 0;
    for (uint32_t i = 0; i < driver->n_setups; i++)
        pick_setup_copy(&microbatch->setups[i], &driver->setups[i]);
    microbatch->n_setups = driver->n_setups;
    driver->n_setups = 0;
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

/* The first of those that are unused, which has been filled. */
static void step_send(struct driver *driver, struct microbatch **unused)
{
    struct microbatch *microbatch = microbatch_take(unused);
    assert(driver->n_in_flight < driver->n_microbatches);
    driver->n_in_flight++;
    microbatch->is_under_way = true;
    driver->n_ahead += microbatch->is_ahead;
    for (uint32_t i = 0; driver->n_ahead && i < driver->n_microbatches; i++)
        driver->microbatches[i].is_crowded = true;
    driver->n_sent++;
    driver->gain.steps++;
    driver->gain.rows += microbatch->n_rows;
    microbatch_send(microbatch);
}

void step_advance(struct driver *driver, const struct driver_wishes *wishes)
{
    step_cancel(driver, wishes->closes);
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
    while (driver->unused && step_has_room(driver) && step_form(driver, driver->unused)) {
        step_send(driver, &driver->unused);
        step_admit(driver); /* goes on where the list of operations was full */
    }
    struct microbatch **ahead = driver->n_small ? &driver->unused_small : &driver->unused;
    while (*ahead && step_ahead_form(driver, *ahead))
        step_send(driver, ahead);
    step_ask_beside(driver);
}
