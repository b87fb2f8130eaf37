#include "api/batch_run.h"

#include "api/exchange_impl.h"
#include "api/listener.h"
#include "base/clock.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "request/generator.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH_TICK_MS = 50,
    BATCH_PAUSE_MS = 1000,      /* after the server had no room for a line */
    BATCH_EXPIRES_AT_ONCE = 32, /* lines in one turn of the loop */
};

static uint64_t batches_now_ms(void)
{
    return clock_now_ns() / 1000000;
}

const char *batches_unavailable(const struct batches *batches)
{
    return !batches          ? "not enough memory for files and batches"
           : batches->why[0] ? batches->why
                             : NULL;
}

struct file_store *batches_files(struct batches *batches)
{
    return &batches->files;
}

static bool batch_is_open(const struct api_batch *batch)
{
    return batch->status == BATCH_IN_PROGRESS;
}

bool batches_reads_file(const struct batches *batches, const char *id)
{
    for (uint32_t i = 0; i < batches->n; i++) {
        if (batch_is_open(batches->batches[i]) && strcmp(batches->batches[i]->input_file, id) == 0)
            return true;
    }
    return false;
}

struct api_batch *batches_find(struct batches *batches, const char *id, const char *owner)
{
    for (uint32_t i = 0; i < batches->n; i++) {
        struct api_batch *batch = batches->batches[i];
        if (strcmp(batch->id, id) == 0 && strcmp(batch->owner, owner) == 0)
            return batch;
    }
    return NULL;
}

/* It runs again, later. */
static void batches_put_back(struct api_batch *batch, uint32_t index, uint64_t pause_ms)
{
    batch->lines[index].state = BATCH_LINE_WAITS;
    batch->next = index < batch->next ? index : batch->next;
    if (pause_ms)
        batch->not_before_ms = batches_now_ms() + pause_ms;
}

/* Those of a batch that are under way run again, or not at all. */
static void batches_take_back_lines(struct batches *batches, const struct api_batch *batch)
{
    for (uint32_t i = 0; i < BATCH_LANES; i++) {
        struct batch_lane *lane = &batches->lanes[i];
        if (lane->batch != batch)
            continue;
        batch_lane_end(lane);
        batches_put_back(lane->batch, lane->line, 0);
        lane->batch = NULL;
    }
}

/* ---- ending ---------------------------------------------------------------------------------- */

/* ID.output or ID.errors becomes a file. Again after a restart that came in between. */
static void batches_settle_file(struct batches *batches, const struct api_batch *batch,
                                const char *extension, const char *file_id)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct kept_file file = {.created_s = batch->ended_s};
    struct error err;
    batch_path(batches->folder, batch->id, extension, from);
    if (!file_id[0] || access(from, F_OK) != 0)
        return;
    snprintf(file.id, sizeof file.id, "%s", file_id);
    snprintf(file.owner, sizeof file.owner, "%s", batch->owner);
    snprintf(file.purpose, sizeof file.purpose, "batch_output");
    snprintf(file.name, sizeof file.name, "%s%s.jsonl", batch->id, extension);
    file.bytes = strcmp(extension, ".output") == 0 ? batch->output_bytes : batch->errors_bytes;
    file_store_data_path(batches->files.folder, file_id, to);
    if (batches->files.n == FILES_MAX || rename(from, to) != 0)
        log_line(LOG_WARN, "api", "%s is not kept as a file: %s", from,
                 batches->files.n == FILES_MAX ? "there are too many" : strerror(errno));
    else if (file_store_save(batches->files.folder, &file, NULL, &err))
        log_line(LOG_WARN, "api", "%s: %s", to, err.text);
    else
        file_store_add(&batches->files, &file);
}

static void batches_settle(struct batches *batches, const struct api_batch *batch)
{
    batches_settle_file(batches, batch, ".output", batch->output_file);
    batches_settle_file(batches, batch, ".errors", batch->error_file);
}

void batches_end_batch(struct batches *batches, struct api_batch *batch, enum batch_status status)
{
    struct error err;
    assert(batch_is_open(batch) && status != BATCH_IN_PROGRESS);
    batches_take_back_lines(batches, batch);
    batch->status = status;
    batch->ended_s = server_wall_ms() / 1000;
    if (batch->output_bytes)
        file_id_draw("file-", batch->output_file);
    if (batch->errors_bytes)
        file_id_draw("file-", batch->error_file);
    mem_free(batch->lines);
    batch->lines = NULL;
    if (batch_save(batches->folder, batch, &err))
        log_line(LOG_WARN, "api", "%s: %s", batch->id, err.text);
    else
        batches_settle(batches, batch);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Where nobody will answer it any more, or nobody could. */
static void batches_refuse_line(struct batches *batches, struct api_batch *batch, uint32_t index,
                                const struct buffer *custom_id, const char *code, const char *text)
{
    struct error err;
    if (!batch_line_answer(batch, batches->folder, index, custom_id, 0, (struct text){0}, code,
                           text, &err))
        return;
    log_line(LOG_WARN, "api", "%s: %s", batch->id, err.text);
    batch->lines[index].state = BATCH_LINE_WAITS;
    batch->next = index < batch->next ? index : batch->next;
    batch->not_before_ms = batches_now_ms() + BATCH_PAUSE_MS;
}

static void batches_take_answer(struct batches *batches, struct api_batch *batch,
                                const struct batch_lane *lane, unsigned status, struct text body)
{
    struct error err;
    if (status == BATCH_LANE_TOO_LARGE || batch->output_bytes + body.size > BATCH_OUTPUT_BYTES) {
        const bool is_one = status == BATCH_LANE_TOO_LARGE;
        batches_refuse_line(batches, batch, lane->line, &lane->custom_id,
                            is_one ? "answer_too_large" : "output_full",
                            is_one ? "the answer has more than 4 MiB"
                                   : "the answers of this batch have 64 MiB together");
        return;
    }
    if (!batch_line_answer(batch, batches->folder, lane->line, &lane->custom_id, status, body, NULL,
                           NULL, &err))
        return;
    log_line(LOG_WARN, "api", "%s: %s", batch->id, err.text);
    batches_put_back(batch, lane->line, BATCH_PAUSE_MS);
}

static void batches_on_answer(struct batch_lane *lane, unsigned status, struct text body)
{
    struct batches *batches = lane->owner;
    struct api_batch *batch = lane->batch;
    struct batch_line *line = &batch->lines[lane->line];
    assert(batch_is_open(batch) && line->state == BATCH_LINE_RUNS);
    if (status == BATCH_LANE_CUT_OFF)
        batches_put_back(batch, lane->line, 0);
    else if (status == 429 || (status == 503 && ++line->n_tries < BATCH_TRIES))
        batches_put_back(batch, lane->line, BATCH_PAUSE_MS);
    else
        batches_take_answer(batches, batch, lane, status, body);
    lane->batch = NULL;
    batches_step(batches);
}

/* The next line of a batch that waits; false: none. */
static bool batch_next_line(struct api_batch *batch, uint32_t *index)
{
    while (batch->next < batch->total && batch->lines[batch->next].state != BATCH_LINE_WAITS)
        batch->next++;
    *index = batch->next;
    return *index < batch->total;
}

/* False: it could not begin, and nothing is to be tried now. */
static bool batches_begin_line(struct batches *batches, struct batch_lane *lane,
                               struct api_batch *batch, uint32_t index)
{
    struct buffer request = {0};
    struct error err;
    buffer_clear(&lane->custom_id);
    lane->batch = batch;
    lane->line = index;
    lane->owner = batches;
    lane->over = batches_on_answer;
    const enum error_code code =
        batch_line_request(batch, batches->files.folder, index, &request, &lane->custom_id, &err);
    if (code)
        log_line(LOG_WARN, "api", "%s: %s", batch->id, err.text);
    const bool has_begun = !code && batch_lane_begin(lane, batches->server, &request);
    buffer_deinit(&request);
    if (has_begun)
        batch->lines[index].state = BATCH_LINE_RUNS;
    else
        lane->batch = NULL;
    if (code)
        batch->not_before_ms = batches_now_ms() + BATCH_PAUSE_MS;
    return has_begun;
}

/* Whose line is next: they take turns. NULL: nobody's. */
static struct api_batch *batches_next(struct batches *batches, uint32_t *index)
{
    const uint64_t now_ms = batches_now_ms();
    for (uint32_t i = 0; i < batches->n; i++) {
        struct api_batch *batch = batches->batches[(batches->turn + i) % batches->n];
        if (!batch_is_open(batch) || now_ms < batch->not_before_ms ||
            !batch_next_line(batch, index))
            continue;
        batches->turn = (batches->turn + i + 1) % batches->n;
        return batch;
    }
    return NULL;
}

/* ---- when ------------------------------------------------------------------------------------ */

/* Requests of others, by all that is known here: those of this server, and what models do for
 * whoever reaches them otherwise. */
struct batches_load {
    uint64_t n_sequences;
};

static void batches_add_load(void *arg, const struct api_listed *model)
{
    struct batches_load *load = arg;
    if (!model->generator)
        return;
    const struct driver_stats stats = generator_stats(model->generator);
    load->n_sequences += stats.slots_busy + stats.queued;
}

static bool batches_others_ask(const struct batches *batches)
{
    for (const struct exchange *at = batches->server->exchanges; at; at = at->next) {
        if (route_computes(at->route) && at->state != EXCHANGE_ANSWERED && at->connection &&
            !at->connection->is_batch)
            return true;
    }
    return false;
}

static uint32_t batches_running(const struct batches *batches)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < BATCH_LANES; i++)
        n += batches->lanes[i].batch != NULL;
    return n;
}

static bool batches_may_begin(struct batches *batches)
{
    const struct api_models *models = &batches->server->models;
    struct batches_load load = {0};
    if (batches_others_ask(batches))
        batches->busy_ms = batches_now_ms();
    if (batches_now_ms() - batches->busy_ms < BATCH_QUIET_MS)
        return false;
    models->list(models->self, batches_add_load, &load);
    return load.n_sequences <= batches_running(batches);
}

static void batches_begin_lines(struct batches *batches)
{
    for (uint32_t i = 0; i < BATCH_LANES && batches_may_begin(batches); i++) {
        uint32_t index;
        struct api_batch *batch = batches->lanes[i].batch ? NULL : batches_next(batches, &index);
        if (batch && !batches_begin_line(batches, &batches->lanes[i], batch, index))
            return;
    }
}

/* Their lines end as errors, some at a time. */
static void batches_expire(struct batches *batches, struct api_batch *batch)
{
    struct buffer request = {0}, custom_id = {0};
    struct error err;
    uint32_t index;
    batches_take_back_lines(batches, batch);
    for (uint32_t i = 0; i < BATCH_EXPIRES_AT_ONCE && batch_next_line(batch, &index); i++) {
        buffer_clear(&request);
        buffer_clear(&custom_id);
        if (batch_line_request(batch, batches->files.folder, index, &request, &custom_id, &err))
            buffer_text(&custom_id, "null");
        batches_refuse_line(batches, batch, index, &custom_id, "batch_expired",
                            "the completion window ended before this request's turn");
        if (batch->lines[index].state != BATCH_LINE_OVER)
            break;
    }
    buffer_deinit(&request);
    buffer_deinit(&custom_id);
}

static void batches_step_batch(struct batches *batches, struct api_batch *batch, uint64_t now_s)
{
    const bool is_late = now_s >= batch->expires_s;
    if (is_late)
        batches_expire(batches, batch);
    if (batch->completed + batch->failed == batch->total)
        batches_end_batch(batches, batch, is_late ? BATCH_EXPIRED : BATCH_COMPLETED);
}

static void batches_on_timer(uv_timer_t *timer)
{
    batches_step(timer->data);
}

void batches_step(struct batches *batches)
{
    const uint64_t now_s = server_wall_ms() / 1000;
    bool any = false;
    if (batches->is_stopping || !batches->timer)
        return;
    for (uint32_t i = 0; i < batches->n; i++) {
        if (batch_is_open(batches->batches[i]))
            batches_step_batch(batches, batches->batches[i], now_s);
        any |= batch_is_open(batches->batches[i]);
    }
    if (!any) {
        uv_timer_stop(batches->timer);
        return;
    }
    batches_begin_lines(batches);
    if (!uv_is_active((uv_handle_t *)batches->timer))
        uv_timer_start(batches->timer, batches_on_timer, BATCH_TICK_MS, BATCH_TICK_MS);
}

/* Their connections end, and with them what they have under way; each lane is told. */
static void batches_give_up_lines(struct batches *batches)
{
    struct connections *connections = &batches->server->connections;
    for (struct connection *at = connections->first, *next; at; at = next) {
        next = at->next;
        if (at->is_batch)
            listener_close_connection(batches->server, at);
    }
}

void batches_yield(struct batches *batches)
{
    if (!batches || !batches->n)
        return;
    batches->busy_ms = batches_now_ms();
    if (batches_running(batches))
        batches_give_up_lines(batches);
}

/* ---- the list -------------------------------------------------------------------------------- */

bool batches_have_room(const struct batches *batches, const char *owner, struct api_error *err)
{
    uint32_t open = 0, own = 0;
    for (uint32_t i = 0; i < batches->n; i++) {
        const bool is_open = batch_is_open(batches->batches[i]);
        open += is_open;
        own += is_open && strcmp(batches->batches[i]->owner, owner) == 0;
    }
    if (own >= BATCHES_OPEN_MAX / 2)
        return api_error_set(err, 429, "rate_limit_error", "too_many_batches",
                             "a client may have %d batches under way: wait for one to end",
                             BATCHES_OPEN_MAX / 2);
    return open < BATCHES_OPEN_MAX ||
           api_error_set(err, 503, "server_error", "batches_full",
                         "this node has %d batches under way, as many as it takes: try later",
                         BATCHES_OPEN_MAX);
}

/* The oldest that has ended; of `owner`, or, with NULL, of anybody. */
static void batches_forget_oldest(struct batches *batches, const char *owner)
{
    for (uint32_t i = 0; i < batches->n; i++) {
        struct api_batch *batch = batches->batches[i];
        if (batch_is_open(batch) || (owner && strcmp(batch->owner, owner) != 0))
            continue;
        batch_remove(batches->folder, batch->id);
        batch_free(batch);
        batches->n--;
        memmove(&batches->batches[i], &batches->batches[i + 1],
                (batches->n - i) * sizeof *batches->batches);
        return;
    }
}

bool batches_add(struct batches *batches, struct api_batch *batch, struct api_error *err)
{
    uint32_t own = 0, at;
    if (!batches_have_room(batches, batch->owner, err))
        return false;
    for (uint32_t i = 0; i < batches->n; i++)
        own += strcmp(batches->batches[i]->owner, batch->owner) == 0;
    if (own >= BATCHES_OF_OWNER_MAX)
        batches_forget_oldest(batches, batch->owner);
    else if (batches->n == BATCHES_MAX)
        batches_forget_oldest(batches, NULL);
    assert(batches->n < BATCHES_MAX);
    for (at = batches->n; at && batches->batches[at - 1]->created_s > batch->created_s; at--)
        batches->batches[at] = batches->batches[at - 1];
    batches->batches[at] = batch;
    batches->n++;
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* One that was under way goes on after the answers that it has. */
static enum error_code batches_go_on(struct batches *batches, struct api_batch *batch,
                                     struct error *err)
{
    enum error_code code = batch_read_lines(batch, batches->files.folder, err);
    if (!code && batch->status != BATCH_IN_PROGRESS)
        code = error_set(err, ERROR_INVALID, "its file is not the one that was checked");
    return code ? code : batch_read_answers(batch, batches->folder, err);
}

static void batches_load_one(struct batches *batches, const char *id)
{
    struct error err;
    struct api_error full;
    struct api_batch *batch = batch_load(batches->folder, id, &err);
    if (batch && batch_is_open(batch) && batches_go_on(batches, batch, &err)) {
        log_line(LOG_WARN, "api", "%s does not go on: %s", id, err.text);
        batch->status = BATCH_FAILED;
        batch->ended_s = server_wall_ms() / 1000;
        batch_save(batches->folder, batch, &err);
    } else if (!batch) {
        log_line(LOG_WARN, "api", "%s is left out: %s", id, err.text);
        return;
    }
    if (!batch_is_open(batch))
        batches_settle(batches, batch);
    if (!batches_add(batches, batch, &full)) {
        log_line(LOG_WARN, "api", "%s is left out: %s", id, full.message);
        batch_free(batch);
    }
}

static void batches_load_all(struct batches *batches)
{
    char id[FILE_ID_TEXT];
    DIR *dir = opendir(batches->folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".json") != 0 || strncmp(entry->d_name, "batch_", 6) != 0 ||
            dot - entry->d_name >= FILE_ID_TEXT)
            continue;
        snprintf(id, sizeof id, "%.*s", (int)(dot - entry->d_name), entry->d_name);
        batches_load_one(batches, id);
    }
    if (dir)
        closedir(dir);
}

static enum error_code batches_lock(struct batches *batches, struct error *err)
{
    char path[PATH_MAX];
    enum error_code code = durable_path(batches->folder, "lock", "", path, err);
    if (!code)
        code = durable_make_folder(batches->folder, err);
    if (code)
        return code;
    batches->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (batches->lock_fd < 0)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    return durable_lock(batches->lock_fd, 0, err) == ERROR_BUSY
               ? error_set(err, ERROR_BUSY,
                           "another server of this machine keeps files and batches in %s",
                           batches->folder)
               : ERROR_NONE;
}

static enum error_code batches_open_folders(struct batches *batches, const char *state_folder,
                                            struct error *err)
{
    char files[PATH_MAX];
    if (!state_folder || !state_folder[0])
        return error_set(err, ERROR_NOT_FOUND,
                         "this server keeps no files: it has no state folder (MEDLEY_STATE_DIR)");
    enum error_code code = durable_path(state_folder, "api-batches", "", batches->folder, err);
    if (!code)
        code = durable_path(state_folder, "api-files", "", files, err);
    if (!code)
        code = batches_lock(batches, err);
    if (!code)
        code = file_store_open(&batches->files, files, server_wall_ms() / 1000, err);
    return code;
}

struct batches *batches_open(struct api_server *server, const char *state_folder)
{
    struct batches *batches = mem_new(sizeof *batches);
    struct error err;
    if (!batches)
        return NULL;
    batches->server = server;
    batches->lock_fd = -1;
    batches->timer = mem_new(sizeof *batches->timer);
    if (!batches->timer || uv_timer_init(server->uv_loop, batches->timer)) {
        mem_free(batches->timer);
        mem_free(batches);
        return NULL;
    }
    batches->timer->data = batches;
    if (batches_open_folders(batches, state_folder, &err)) {
        snprintf(batches->why, sizeof batches->why, "%s", err.text);
        return batches;
    }
    batches_load_all(batches);
    batches_step(batches);
    return batches;
}

void batches_stop(struct batches *batches)
{
    if (!batches || batches->is_stopping)
        return;
    batches->is_stopping = true;
    uv_timer_stop(batches->timer);
    batches_give_up_lines(batches);
}

static void batches_on_timer_closed(uv_handle_t *handle)
{
    mem_free(handle);
}

void batches_close(struct batches *batches)
{
    if (!batches || !batches->timer)
        return;
    batches_stop(batches);
    for (uint32_t i = 0; i < BATCH_LANES; i++)
        batch_lane_end(&batches->lanes[i]);
    uv_close((uv_handle_t *)batches->timer, batches_on_timer_closed);
    batches->timer = NULL;
}

void batches_free(struct batches *batches)
{
    if (!batches)
        return;
    for (uint32_t i = 0; i < BATCH_LANES; i++)
        buffer_deinit(&batches->lanes[i].custom_id);
    for (uint32_t i = 0; i < batches->n; i++)
        batch_free(batches->batches[i]);
    if (batches->lock_fd >= 0)
        close(batches->lock_fd);
    mem_free(batches);
}
