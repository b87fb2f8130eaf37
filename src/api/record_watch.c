/* What computes requests under way, seen now and then. */
#include "api/models.h"
#include "api/record.h"
#include "base/mem.h"

#include <string.h>

static uint32_t records_count_sharing(const struct request_records *records, const char *model)
{
    uint32_t n = 0;
    for (const struct request_record *at = records->under_way; at; at = at->next)
        n += at->submitted_ns && strcmp(at->model, model) == 0;
    return n;
}

static void records_see_model(struct request_records *records, const struct api_models *models,
                              const char *model, struct request_run *run, uint64_t now_ns)
{
    const uint32_t n_sharing = records_count_sharing(records, model);
    *run = (struct request_run){0};
    models->run(models->self, model, run);
    for (struct request_record *at = records->under_way; at; at = at->next) {
        if (at->submitted_ns && strcmp(at->model, model) == 0)
            api_record_see_run(at, run, n_sharing, now_ns);
    }
}

/* Different ones, at most RECORD_MODELS. */
static uint32_t records_list_models(const struct request_records *records, const char **names)
{
    uint32_t n = 0;
    for (const struct request_record *at = records->under_way; at && n < RECORD_MODELS;
         at = at->next) {
        uint32_t i = 0;
        while (i < n && strcmp(names[i], at->model) != 0)
            i++;
        if (i == n && at->submitted_ns)
            names[n++] = at->model;
    }
    return n;
}

void api_records_see_runs(struct request_records *records, const struct api_models *models,
                          uint64_t now_ns)
{
    const char *names[RECORD_MODELS];
    const uint32_t n = records_list_models(records, names);
    struct request_run *run = models->run && n ? mem_new(sizeof *run) : NULL;
    for (uint32_t i = 0; run && i < n; i++)
        records_see_model(records, models, names[i], run, now_ns);
    mem_free(run);
}

void api_record_see_last_run(struct request_records *records, struct request_record *record,
                             const struct api_models *models, uint64_t now_ns)
{
    struct request_run *run = models->run && record->submitted_ns ? mem_new(sizeof *run) : NULL;
    if (!run)
        return;
    models->run(models->self, record->model, run);
    api_record_see_run(record, run, records_count_sharing(records, record->model), now_ns);
    mem_free(run);
}
