#include "node/served.h"

#include "hosting/hosting.h"
#include "node/daemon_run.h"
#include "node/daemon_state.h"
#include "node/peers.h"
#include "pipeline/driver.h"

#include <stdio.h>
#include <string.h>

/* ---- adding up ------------------------------------------------------------------------------- */

static bool served_fell(const struct driver_served *before, const struct driver_served *now)
{
    return now->replies < before->replies || now->reply_tokens < before->reply_tokens ||
           now->reply_ns < before->reply_ns || now->prompts < before->prompts ||
           now->prompt_rows < before->prompt_rows || now->prompt_ns < before->prompt_ns;
}

void served_step(struct served_row *row, uint64_t epoch, const struct driver_served *now,
                 const struct run_forecast *forecast)
{
    struct served_sums *sums = &row->sums;
    if (row->epoch != epoch || served_fell(&row->seen, now)) {
        row->epoch = epoch;
        row->seen = (struct driver_served){0};
        *sums = (struct served_sums){0};
    }
    const struct driver_served was = row->seen;
    const double rate = forecast->stream_tokens_per_s, prefill = forecast->prefill_tokens_per_s;
    const double tokens = (double)(now->reply_tokens - was.reply_tokens),
                 rows = (double)(now->prompt_rows - was.prompt_rows),
                 prompts = (double)(now->prompts - was.prompts);
    row->seen = *now;
    if (rate > 0) {
        sums->measured.replies += now->replies - was.replies;
        sums->measured.reply_tokens += now->reply_tokens - was.reply_tokens;
        sums->measured.reply_ns += now->reply_ns - was.reply_ns;
        sums->forecast_reply_ns += (uint64_t)(tokens / rate * 1e9);
    }
    if (rate > 0 && prefill > 0) {
        sums->measured.prompts += now->prompts - was.prompts;
        sums->measured.prompt_rows += now->prompt_rows - was.prompt_rows;
        sums->measured.prompt_ns += now->prompt_ns - was.prompt_ns;
        sums->forecast_prompt_ns += (uint64_t)((rows / prefill + prompts / rate) * 1e9);
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

struct served_error served_compare(const struct served_sums *sums)
{
    const struct driver_served *measured = &sums->measured;
    const double tokens = (double)measured->reply_tokens, prompts = (double)measured->prompts;
    struct served_error out = {.n_replies = measured->replies};
    if (measured->reply_tokens >= SERVED_TOKENS_MIN && measured->reply_ns &&
        sums->forecast_reply_ns) {
        out.tokens_per_s = tokens / (double)measured->reply_ns * 1e9;
        out.forecast_tokens_per_s = tokens / (double)sums->forecast_reply_ns * 1e9;
    }
    if (measured->prompts && measured->prompt_ns && sums->forecast_prompt_ns) {
        out.first_token_s = (double)measured->prompt_ns * 1e-9 / prompts;
        out.forecast_first_token_s = (double)sums->forecast_prompt_ns * 1e-9 / prompts;
    }
    return out;
}

static bool served_ratio(double measured, double forecast, double *out)
{
    const bool known = measured > 0 && forecast > 0;
    *out = known ? measured / forecast - 1 : 0;
    return known;
}

bool served_decode_error(const struct served_error *served, double *out)
{
    return served_ratio(served->tokens_per_s, served->forecast_tokens_per_s, out);
}

bool served_first_token_error(const struct served_error *served, double *out)
{
    return served_ratio(served->first_token_s, served->forecast_first_token_s, out);
}

/* ---- telling --------------------------------------------------------------------------------- */

static void served_add(const struct served_row *row, struct served_told *told, Node__Now *now)
{
    const struct served_sums *sums = &row->sums;
    Node__Served *item = &told->items[now->n_served];
    node__served__init(item);
    item->instance = (char *)(uintptr_t)row->instance;
    item->has_epoch = item->has_replies = item->has_reply_tokens = item->has_reply_ns = true;
    item->has_prompts = item->has_prompt_rows = item->has_prompt_ns = true;
    item->has_forecast_reply_ns = item->has_forecast_prompt_ns = true;
    item->epoch = row->epoch;
    item->replies = sums->measured.replies;
    item->reply_tokens = sums->measured.reply_tokens;
    item->reply_ns = sums->measured.reply_ns;
    item->prompts = sums->measured.prompts;
    item->prompt_rows = sums->measured.prompt_rows;
    item->prompt_ns = sums->measured.prompt_ns;
    item->forecast_reply_ns = sums->forecast_reply_ns;
    item->forecast_prompt_ns = sums->forecast_prompt_ns;
    told->list[now->n_served++] = item;
}

/* Its row, or a free one, or that of an instance which is not driven here any more. */
static struct served_row *served_row_of(struct daemon *daemon, const char *instance)
{
    struct served_row *unused = NULL;
    for (uint32_t i = 0; i < SERVED_MAX; i++) {
        struct served_row *row = &daemon->served[i];
        if (strcmp(row->instance, instance) == 0)
            return row;
        if (!row->instance[0] || !hosting_driver(daemon->hosting, row->instance, NULL))
            unused = row;
    }
    if (unused) {
        *unused = (struct served_row){0};
        snprintf(unused->instance, sizeof unused->instance, "%s", instance);
    }
    return unused;
}

void served_tell(struct daemon *daemon, struct served_told *told, Node__Now *now)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    now->n_served = 0;
    now->served = told->list;
    for (size_t i = 0; root && i < root->n_instances && now->n_served < SERVED_MAX; i++) {
        const Cluster__Instance *instance = root->instances[i];
        const struct driver *driver =
            instance->current ? hosting_driver(daemon->hosting, instance->id, NULL) : NULL;
        const struct driver_served served =
            driver ? driver_stats(driver).served : (struct driver_served){0};
        struct served_row *row =
            served.prompts || served.replies ? served_row_of(daemon, instance->id) : NULL;
        if (!row)
            continue;
        served_step(row, instance->current->epoch, &served, daemon_run_forecast(daemon, instance));
        served_add(row, told, now);
    }
}

/* What that node says of the placement; foreign: any numbers. */
static struct served_sums served_heard(const Node__Now *now, const Cluster__Instance *instance)
{
    for (size_t i = 0; now && i < now->n_served; i++) {
        const Node__Served *item = now->served[i];
        if (item->instance && strcmp(item->instance, instance->id) == 0 &&
            item->epoch == instance->current->epoch)
            return (struct served_sums){
                .measured = {item->replies, item->reply_tokens, item->reply_ns, item->prompts,
                             item->prompt_rows, item->prompt_ns},
                .forecast_reply_ns = item->forecast_reply_ns,
                .forecast_prompt_ns = item->forecast_prompt_ns,
            };
    }
    return (struct served_sums){0};
}

struct served_error served_of(const struct daemon *daemon, const Cluster__Instance *instance)
{
    const Cluster__Placement *current = instance->current;
    if (!current || !current->n_stages)
        return (struct served_error){0};
    const char *node = current->stages[0]->node;
    const struct peer *peer = daemon_peer(daemon, node);
    const Node__Now *now = strcmp(node, daemon->id) == 0 ? daemon->now : peer ? peer->now : NULL;
    const struct served_sums sums = served_heard(now, instance);
    return served_compare(&sums);
}
