#include "api/record.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const uint64_t RECORD_MS = 1000000;

const char *api_record_outcome_name(enum record_outcome outcome)
{
    static const char *const names[RECORD_OUTCOMES] = {NULL, "done", "stopped", "cancelled",
                                                       "failed"};
    assert(outcome < RECORD_OUTCOMES);
    return names[outcome];
}

struct request_record *api_record_begin(struct request_records *records, const char *id,
                                        const char *client, uint64_t started_ns, uint64_t wall_ms)
{
    struct request_record *record = mem_new(sizeof *record);
    if (!record)
        return NULL;
    snprintf(record->id, sizeof record->id, "%s", id);
    snprintf(record->client, sizeof record->client, "%s", client);
    record->started_ns = started_ns;
    record->started_ms = wall_ms;
    record->next = records->under_way;
    if (record->next)
        record->next->before = record;
    records->under_way = record;
    records->n_under_way++;
    return record;
}

void api_record_opened(struct request_record *record, const char *model)
{
    if (record)
        snprintf(record->model, sizeof record->model, "%s", model);
}

void api_record_submitted(struct request_record *record, uint32_t n_prompt, uint64_t now_ns)
{
    if (!record)
        return;
    record->submitted_ns = now_ns;
    record->prompt_tokens = n_prompt;
}

/* ---- pauses ---------------------------------------------------------------------------------- */

static struct record_pause *record_open_pause(struct request_record *record)
{
    struct record_pause *last = record->n_pauses ? &record->pauses[record->n_pauses - 1] : NULL;
    return last && !last->ended_ns ? last : NULL;
}

static void record_end_pause(struct request_record *record, uint64_t now_ns)
{
    struct record_pause *pause = record_open_pause(record);
    if (pause)
        pause->ended_ns = now_ns > pause->begun_ns ? now_ns : pause->begun_ns + 1;
}

/* A pause begins with the last thing that was heard of the request: what is told of its model may
 * be older than that, and of others. */
static void record_see_pause(struct request_record *record, const struct request_run *run)
{
    struct record_pause *pause = record_open_pause(record);
    uint64_t heard_ns = record->last_token_ns ? record->last_token_ns : record->submitted_ns;
    if (!pause && record->n_pauses == RECORD_PAUSES) {
        pause = &record->pauses[RECORD_PAUSES - 1];
        pause->ended_ns = 0;
    } else if (!pause) {
        pause = &record->pauses[record->n_pauses++];
        pause->begun_ns = run->paused_ns > heard_ns ? run->paused_ns : heard_ns;
    }
    snprintf(pause->why, sizeof pause->why, "%s", run->why);
}

void api_record_token(struct request_record *record, uint64_t now_ns)
{
    if (!record)
        return;
    record_end_pause(record, now_ns);
    if (!record->generated_tokens++)
        record->first_token_ns = now_ns;
    record->last_token_ns = now_ns;
}

/* ---- what computes it ------------------------------------------------------------------------ */

static void record_take_stages(struct request_record *record, const struct request_run *run)
{
    const size_t size = run->n_stages * sizeof *run->stages;
    if (!run->n_stages) /* nowhere now: what it was is what counts */
        return;
    if (record->n_stages != run->n_stages) {
        struct request_run_stage *stages = mem_new_array(run->n_stages, sizeof *stages);
        if (!stages)
            return;
        mem_free(record->stages);
        record->stages = stages;
        record->n_stages = run->n_stages;
    }
    memcpy(record->stages, run->stages, size);
    memcpy(record->driver, run->driver, sizeof record->driver);
    record->forecast_decode_tokens_per_s = run->forecast_decode_tokens_per_s;
}

/* The power of now stands for the time since the last look: at most a tick. */
static void record_count_energy(struct request_record *record, const struct request_run *run,
                                uint32_t n_sharing, uint64_t now_ns)
{
    const uint64_t since_ns = record->metered_ns ? record->metered_ns : record->submitted_ns;
    assert(n_sharing);
    if (!run->has_power || !since_ns)
        record->lacks_joules = true;
    else if (now_ns > since_ns)
        record->joules += run->power_w * (double)(now_ns - since_ns) * 1e-9 / n_sharing;
    record->metered_ns = now_ns;
}

void api_record_see_run(struct request_record *record, const struct request_run *run,
                        uint32_t n_sharing, uint64_t now_ns)
{
    if (!record || !record->submitted_ns)
        return;
    record_take_stages(record, run);
    record_count_energy(record, run, n_sharing, now_ns);
    if (!run->paused_ns)
        record_end_pause(record, now_ns);
    else if (now_ns - (record->last_token_ns ? record->last_token_ns : record->submitted_ns) >=
             RECORD_TICK_MS * RECORD_MS)
        record_see_pause(record, run);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void record_take_times(struct request_record *record, const struct request_times *times)
{
    if (!request_times_know(times))
        return;
    record->times = mem_new_array(times->n_stages, sizeof *record->times);
    if (!record->times)
        return;
    memcpy(record->times, times->stages, times->n_stages * sizeof *record->times);
    record->n_times = times->n_stages;
    record->back_ns = times->back_ns;
}

void api_record_usage(struct request_record *record, const struct request_usage *usage)
{
    if (!record || record->has_usage)
        return;
    record->has_usage = true;
    record->cached_tokens = usage->cached_tokens;
    record->queued_ns = usage->queued_ns;
    record->prefill_ns = usage->prefill_ns;
    record->decode_ns = usage->decode_ns;
    record->slowest_ns = usage->slowest_ns;
    record_take_times(record, &usage->times);
}

static void record_free(struct request_record *record)
{
    if (!record)
        return;
    mem_free(record->stages);
    mem_free(record->times);
    mem_free(record);
}

static void record_unlink(struct request_records *records, struct request_record *record)
{
    if (record->before)
        record->before->next = record->next;
    else
        records->under_way = record->next;
    if (record->next)
        record->next->before = record->before;
    record->next = record->before = NULL;
    assert(records->n_under_way);
    records->n_under_way--;
}

void api_record_end(struct request_records *records, struct request_record *record,
                    enum record_outcome outcome, uint64_t now_ns)
{
    if (!record)
        return;
    assert(record->outcome == RECORD_UNDER_WAY && outcome != RECORD_UNDER_WAY);
    struct request_record **place = &records->finished[records->n_finished++ % RECORDS_FINISHED];
    record_end_pause(record, now_ns);
    record_unlink(records, record);
    record->outcome = outcome;
    record->ended_ns = now_ns;
    record_free(*place);
    *place = record;
}

void api_records_deinit(struct request_records *records)
{
    while (records->under_way) {
        struct request_record *record = records->under_way;
        record_unlink(records, record);
        record_free(record);
    }
    for (uint32_t i = 0; i < RECORDS_FINISHED; i++)
        record_free(records->finished[i]);
    *records = (struct request_records){0};
}

/* ---- questions ------------------------------------------------------------------------------- */

double api_record_decode_tokens_per_s(const struct request_record *record)
{
    const uint64_t took_ns = record->last_token_ns - record->first_token_ns;
    return record->generated_tokens > 1 && took_ns
               ? (record->generated_tokens - 1) / ((double)took_ns * 1e-9)
               : 0;
}

double api_record_prefill_tokens_per_s(const struct request_record *record)
{
    if (!record->prefill_ns || record->cached_tokens >= record->prompt_tokens)
        return 0;
    return (record->prompt_tokens - record->cached_tokens) / ((double)record->prefill_ns * 1e-9);
}

const struct request_stage_time *api_record_stage_time(const struct request_record *record,
                                                       uint32_t index)
{
    assert(index < record->n_stages);
    return record->n_times == record->n_stages ? &record->times[index] : NULL;
}

const struct request_record *api_records_find(const struct request_records *records, struct text id)
{
    for (const struct request_record *at = records->under_way; at; at = at->next) {
        if (strlen(at->id) == id.size && memcmp(at->id, id.data, id.size) == 0)
            return at;
    }
    for (uint64_t i = 0; i < RECORDS_FINISHED; i++) {
        const struct request_record *at =
            records->finished[(records->n_finished + RECORDS_FINISHED - 1 - i) % RECORDS_FINISHED];
        if (at && strlen(at->id) == id.size && memcmp(at->id, id.data, id.size) == 0)
            return at; /* the newest, where an id was given twice */
    }
    return NULL;
}
