#include "hub/pull_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "trust/digest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PULL_TRIES = 4, PULL_SHARES = 16 };

/* ---- what the server has --------------------------------------------------------------------- */

static size_t pull_ask_on_body(char *bytes, size_t size, size_t count, void *arg)
{
    (void)bytes, (void)arg;
    return size * count <= 1 ? size * count : 0; /* the head is all that was wanted */
}

static enum error_code pull_ask_once(struct pull *pull, CURL *curl, struct http_get *get,
                                     struct error *err)
{
    struct curl_slist *headers = NULL;
    CURLcode came = CURLE_OK;
    get->headers = &headers;
    enum error_code code = http_prepare(curl, get, err);
    if (!code) {
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, pull_ask_on_body);
        came = curl_easy_perform(curl);
        if (came == CURLE_WRITE_ERROR && get->head->status == 200)
            came = CURLE_OK;
        if (came || get->head->status < 200 || get->head->status > 299)
            code = http_explain(came, get, pull->order->what, err);
    }
    if (code && http_judge(came, get->head->status) == HTTP_AGAIN)
        code = ERROR_BUSY; /* to be tried again; its text is there */
    curl_slist_free_all(headers);
    return code;
}

static enum error_code pull_ask(struct pull *pull, struct http_head *head, struct error *err)
{
    char problem[CURL_ERROR_SIZE];
    const uint32_t attempts = pull->order->attempts ? pull->order->attempts : PULL_ATTEMPTS;
    enum error_code code = ERROR_BUSY;
    CURL *curl = curl_easy_init();
    if (!curl)
        return error_set(err, ERROR_NO_MEMORY, "libcurl cannot begin: not enough memory");
    struct http_get get = {.url = pull->order->url,
                           .place = &pull->order->place,
                           .from = 0,
                           .to = 1,
                           .head = head,
                           .problem = problem};
    for (uint32_t attempt = 1; code == ERROR_BUSY && attempt <= attempts; attempt++) {
        if (attempt > 1) {
            const uint32_t pause_ms = http_pause_ms(attempt - 1, head->retry_after_s);
            http_tell_again(err, attempt - 1, attempts, pause_ms);
            curl_multi_poll(pull->multi, NULL, 0, (int)pause_ms, NULL);
        }
        code = pull_ask_once(pull, curl, &get, err);
    }
    curl_easy_cleanup(curl);
    return code ? err->code : ERROR_NONE;
}

enum error_code pull_learn(struct pull *pull, struct error *err)
{
    struct http_head head;
    const struct pull_order *order = pull->order;
    enum error_code code = pull_ask(pull, &head, err);
    if (code)
        return code;
    pull->has_ranges = head.status == 206 && head.has_range;
    const uint64_t size = pull->has_ranges  ? head.total
                          : head.has_length ? head.length
                                            : order->size;
    if (order->size && size != order->size)
        return error_set(err, ERROR_IO, "%s: %llu bytes at the server, %llu in its list",
                         order->what, (unsigned long long)size, (unsigned long long)order->size);
    code = pull_state_init(&pull->state, size, err);
    if (code)
        return error_wrap(err, "%s", order->what);
    snprintf(pull->state.url, sizeof pull->state.url, "%s", order->url);
    snprintf(pull->state.etag, sizeof pull->state.etag, "%s", head.etag);
    snprintf(pull->state.sha256, sizeof pull->state.sha256, "%s",
             order->sha256 ? order->sha256 : "");
    pull->n_streams = order->connections ? order->connections : PULL_CONNECTIONS;
    if (!pull->has_ranges)
        pull->n_streams = 1;
    for (uint32_t i = 0; i < pull->n_streams; i++)
        pull->streams[i].pull = pull;
    return ERROR_NONE;
}

/* ---- room ------------------------------------------------------------------------------------ */

enum error_code pull_check_room(const char *path, uint64_t bytes, struct error *err)
{
    struct statvfs disk;
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    while (statvfs(folder, &disk) != 0) { /* the next folder above that is there */
        char *slash = strrchr(folder, '/');
        if (!slash || slash == folder)
            return ERROR_NONE; /* nobody knows: then writing will say */
        *slash = '\0';
    }
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (room >= bytes + PULL_MARGIN_BYTES)
        return ERROR_NONE;
    return error_set(err, ERROR_IO,
                     "%s has %s free, and %s are still to come; make room, or set MEDLEY_STATE_DIR "
                     "to a folder of a larger disk",
                     folder, size_text(room).text, size_text(bytes).text);
}

/* ---- the hash -------------------------------------------------------------------------------- */

struct pull_hashing {
    struct pull *pull;
    uint64_t done;
};

static bool pull_on_hashed(void *arg, uint64_t bytes)
{
    struct pull_hashing *hashing = arg;
    hashing->done += bytes;
    pull_report(hashing->pull, hashing->done, true);
    return true;
}

static enum error_code pull_check_hash(struct pull *pull, bool *fits, struct error *err)
{
    struct pull_hashing hashing = {pull, 0};
    struct digest digest;
    char text[DIGEST_TEXT];
    *fits = !pull->state.sha256[0];
    if (*fits)
        return ERROR_NONE;
    enum error_code code = ERROR_NONE;
    while (pull->hash && !pull_hash_wait(pull->hash, PULL_REPORT_MS))
        pull_report(pull, pull_hash_done(pull->hash), true);
    if (!pull_hash_close(pull->hash, &digest))
        code = digest_file(pull->disk.part, 0, pull->state.size, pull_on_hashed, &hashing, &digest,
                           err);
    pull->hash = NULL;
    if (!code)
        *fits = strcasecmp(digest_text(&digest, text), pull->state.sha256) == 0;
    return code;
}

/* Fetches pieces again until each has come twice in a row with the same sum. sums[i]: what the
 * piece had before. */
static enum error_code pull_repair_share(struct pull *pull, uint32_t from, uint32_t to,
                                         uint64_t *sums, bool *differs, struct error *err)
{
    struct pull_state *state = &pull->state;
    enum error_code code = ERROR_NONE;
    bool goes_on = true;
    for (uint32_t i = from; i < to; i++)
        pull_disk_forget(&pull->disk, state, i);
    *differs = false;
    for (int again = 0; again < PULL_TRIES && goes_on && !code; again++) {
        code = pull_run(pull, err);
        goes_on = false;
        for (uint32_t i = from; i < to && !code; i++) {
            if (state->sums[i] == sums[i])
                continue;
            sums[i] = state->sums[i];
            goes_on = *differs = true;
            if (again + 1 < PULL_TRIES)
                pull_disk_forget(&pull->disk, state, i);
        }
    }
    return code;
}

/* The server sent wrong bytes somewhere. A share of the file after the other comes again; where it
 * differs, the hash says whether that was all. */
static enum error_code pull_repair(struct pull *pull, bool *fits, struct error *err)
{
    struct pull_state *state = &pull->state;
    const uint32_t share = (state->n_pieces + PULL_SHARES - 1) / PULL_SHARES;
    uint64_t *sums = mem_new_array(PULL_PIECES, sizeof *sums);
    enum error_code code = ERROR_NONE;
    if (!sums)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to pull a model");
    memcpy(sums, state->sums, sizeof state->sums);
    for (uint32_t from = 0; from < state->n_pieces && !code && !*fits; from += share) {
        const uint32_t to = from + share < state->n_pieces ? from + share : state->n_pieces;
        bool differs;
        code = pull_repair_share(pull, from, to, sums, &differs, err);
        if (differs && !code)
            code = pull_check_hash(pull, fits, err);
    }
    mem_free(sums);
    return code;
}

static enum error_code pull_check(struct pull *pull, struct error *err)
{
    bool fits = false;
    uint32_t n_damaged = 1;
    enum error_code code = pull_check_hash(pull, &fits, err);
    for (int i = 0; i < PULL_TRIES && !code && !fits && n_damaged; i++) {
        code = pull_disk_find_damage(&pull->disk, &pull->state, &n_damaged, err);
        if (code || !n_damaged)
            break;
        log_line(LOG_WARN, "hub", "%s: %u pieces are not as they came; fetching them again",
                 pull->order->what, n_damaged);
        code = pull_run(pull, err);
        if (!code)
            code = pull_check_hash(pull, &fits, err);
    }
    if (!code && !fits) {
        log_line(LOG_WARN, "hub",
                 "%s: its bytes do not have its SHA-256; looking for the wrong "
                 "ones by fetching again",
                 pull->order->what);
        code = pull_repair(pull, &fits, err);
    }
    if (code || fits)
        return code;
    pull_disk_discard(&pull->disk);
    return error_set(
        err, ERROR_INVALID,
        "%s: the server's bytes do not have the SHA-256 that was promised, twice; they "
        "were removed",
        pull->order->what);
}

/* A page that says why not may come with 200: nothing that is no GGUF file is a model. */
static enum error_code pull_check_kind(const struct pull *pull, struct error *err)
{
    char magic[4] = "";
    if (pread(pull->disk.part, magic, sizeof magic, 0) == (ssize_t)sizeof magic &&
        memcmp(magic, "GGUF", sizeof magic) == 0)
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID, "%s is not a GGUF file", pull->order->what);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static enum error_code pull_all(struct pull *pull, struct pull_result *out, struct error *err)
{
    struct stat part;
    enum error_code code = pull_learn(pull, err);
    if (!code)
        code = pull_disk_open(&pull->disk, pull->order->path, err);
    if (!code)
        code = pull_disk_begin(&pull->disk, &pull->state, &out->resumed, err);
    if (!code && fstat(pull->disk.part, &part) == 0) {
        const uint64_t here = (uint64_t)part.st_blocks * 512, size = pull->state.size;
        code = pull_check_room(pull->order->path, here < size ? size - here : 0, err);
    }
    if (!code && pull->has_ranges && pull->state.sha256[0])
        code = pull_hash_open(pull->disk.part, pull->state.size, &pull->hash, err);
    const uint64_t received = pull_disk_received(&pull->disk);
    if (!code)
        code = pull_run(pull, err);
    if (!code)
        code = pull_check(pull, err);
    if (!code && (code = pull_check_kind(pull, err)))
        pull_disk_discard(&pull->disk);
    out->size = pull->state.size;
    out->received = received + pull->received;
    out->is_checked = pull->state.sha256[0];
    if (!code)
        code = pull_disk_finish(&pull->disk, err);
    else if (code == ERROR_CANCELLED && !pull->state.sha256[0])
        pull_disk_discard(&pull->disk); /* of a version that is no more */
    return code;
}

void pull_free(struct pull *pull)
{
    for (uint32_t i = 0; i < PULL_CONNECTIONS_MAX; i++) {
        pull_stream_stop(&pull->streams[i]);
        curl_easy_cleanup(pull->streams[i].easy);
    }
    curl_multi_cleanup(pull->multi);
    pull_hash_close(pull->hash, NULL);
    pull_disk_close(&pull->disk);
    mem_free(pull);
}

enum error_code pull_file(const struct pull_order *order, const struct pull_watch *watch,
                          struct pull_result *out, struct error *err)
{
    *out = (struct pull_result){0};
    assert(order->connections <= PULL_CONNECTIONS_MAX);
    enum error_code code = http_url_check(order->url, order->place.plain, err);
    if (code)
        return error_wrap(err, "%s", order->what);
    struct pull *pull = mem_new(sizeof *pull);
    if (!pull)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to pull a model");
    pull->order = order;
    pull->watch = watch;
    pull->multi = curl_multi_init();
    code = pull->multi ? pull_all(pull, out, err)
                       : error_set(err, ERROR_NO_MEMORY, "libcurl cannot begin: not enough memory");
    pull_free(pull);
    return code;
}
