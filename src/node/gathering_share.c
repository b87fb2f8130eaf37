/* What this node fetches for an asker, itself perhaps. */
#include "node/gathering_impl.h"

#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "mesh/frames.h"

#include <assert.h>
#include <string.h>

/* ---- telling --------------------------------------------------------------------------------- */

static void gather_share_send(struct gather_share *share, Node__Gathered *said)
{
    struct daemon *daemon = share->gathering->daemon;
    const struct peer *peer = daemon_peer(daemon, share->asker);
    struct buffer bytes = {0};
    said->has_id = said->has_round = true;
    said->id = share->id;
    said->round = share->round;
    share->told_ms = daemon_now_ms(daemon);
    if (strcmp(share->asker, daemon->id) == 0) {
        gather_ask_take(share->gathering, daemon->id, said);
        return;
    }
    message_encode(&said->base, &bytes);
    if (peer && peer->link && !bytes.failed)
        daemon_post(peer->link, FRAME_GATHERED, bytes.data, bytes.size);
    buffer_deinit(&bytes);
}

static void gather_share_fail(struct gather_share *share, const struct error *why)
{
    Node__Gathered said = NODE__GATHERED__INIT;
    if (!share->problem.code)
        share->problem = *why;
    if (share->was_told_problem)
        return;
    share->was_told_problem = true;
    said.problem = share->problem.text;
    log_line(LOG_WARN, "gather", "%s: %s", share->n_fetches ? share->fetches[0].file.name : "",
             share->problem.text);
    gather_share_send(share, &said);
}

static uint64_t gather_kept_bytes(const struct gather_share *share)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < share->n_own; i++) {
        const struct gather_unit *unit = &share->own[i].wanted.unit;
        bytes += share->own[i].is_kept ? unit->end - unit->offset : 0;
    }
    return bytes;
}

/* A report of the work, as a message. */
struct gather_telling {
    Node__GatherSum sums[GATHER_REPORT_UNITS], *list[GATHER_REPORT_UNITS];
    uint8_t digests[GATHER_REPORT_UNITS][DIGEST_BYTES];
    Node__GatherStep step;
    uint8_t chain[DIGEST_CHAIN_BYTES];
    Node__GatherRange ranges[GATHER_RANGES], *range_list[GATHER_RANGES];
};

static void gather_put_ranges(struct gather_telling *telling, const struct gather_report *report,
                              Node__Gathered *said)
{
    for (uint32_t i = 0; i < report->n_ranges; i++) {
        Node__GatherRange *range = &telling->ranges[i];
        node__gather_range__init(range);
        range->has_from = range->has_to = true;
        range->from = report->ranges[i].from;
        range->to = report->ranges[i].to;
        telling->range_list[i] = range;
    }
    said->has_looked = said->looked = true;
    said->ranges = telling->range_list;
    said->n_ranges = report->n_ranges;
}

static void gather_put_step(struct gather_telling *telling, const struct gather_step *step,
                            Node__Gathered *said)
{
    node__gather_step__init(&telling->step);
    digest_chain_write(&step->chain, telling->chain);
    telling->step.has_first = telling->step.has_end = telling->step.has_chain = true;
    telling->step.first = step->first;
    telling->step.end = step->end;
    telling->step.chain.data = telling->chain;
    telling->step.chain.len = sizeof telling->chain;
    said->step = &telling->step;
}

static void gather_share_tell(struct gather_share *share, uint32_t file,
                              const struct gather_report *report)
{
    static struct gather_telling telling; /* the loop's */
    Node__Gathered said = NODE__GATHERED__INIT;
    const uint64_t here = gather_fetches_here(share) + gather_kept_bytes(share);
    const uint64_t since_ms = daemon_now_ms(share->gathering->daemon) - share->told_ms;
    if (!report->n_sums && !report->has_step && !report->has_looked &&
        (since_ms < GATHERING_TELL_MS || (here == share->told_here && since_ms < 1000)))
        return;
    share->told_here = here;
    said.has_here_bytes = said.has_bytes_per_s = true;
    said.here_bytes = here;
    said.bytes_per_s = gather_fetches_speed(share);
    for (uint32_t i = 0; i < report->n_sums; i++) {
        Node__GatherSum *sum = &telling.sums[i];
        node__gather_sum__init(sum);
        sum->has_index = sum->has_sha256 = true;
        sum->index = report->sums[i].index;
        memcpy(telling.digests[i], report->sums[i].digest.bytes, DIGEST_BYTES);
        sum->sha256.data = telling.digests[i];
        sum->sha256.len = DIGEST_BYTES;
        telling.list[i] = sum;
    }
    said.sums = telling.list;
    said.n_sums = report->n_sums;
    said.has_file = report->has_looked;
    said.file = file;
    if (report->has_looked)
        gather_put_ranges(&telling, report, &said);
    if (report->has_looked && share->was_known) {
        said.has_model = true;
        said.model.data = share->known.bytes;
        said.model.len = DIGEST_BYTES;
    }
    if (report->has_step)
        gather_put_step(&telling, &report->step, &said);
    gather_share_send(share, &said);
}

/* ---- what was gathered before ---------------------------------------------------------------- */

/* STATE/gathered/SHA-256 OF THE FILE, or of several files' SHA-256: the model's identity, in
 * letters. */
static enum error_code gather_known_path(const struct gather_share *share, char out[PATH_MAX],
                                         struct error *err)
{
    char folder[PATH_MAX], name[DIGEST_TEXT];
    const enum error_code code =
        durable_path(share->gathering->daemon->folder, "gathered", "", folder, err);
    gather_share_name(share, name);
    return code ? code : durable_path(folder, name, "", out, err);
}

static void gather_share_remember(const struct gather_share *share)
{
    char path[PATH_MAX], text[DIGEST_TEXT];
    struct error err;
    enum error_code code = gather_known_path(share, path, &err);
    if (!code)
        code = durable_make_folder_of(path, &err);
    if (!code)
        code = durable_replace(path, digest_text(&share->facts.model, text), DIGEST_TEXT - 1, &err);
    if (code)
        log_line(LOG_WARN, "gather", "it would be fetched again: %s", err.text);
}

static void gather_share_recall(struct gather_share *share)
{
    char path[PATH_MAX];
    struct buffer text = {0};
    if (gather_known_path(share, path, NULL) || durable_read(path, DIGEST_TEXT, 0, &text, NULL))
        return;
    buffer_append(&text, "", 1);
    share->was_known = !text.failed && digest_parse(text.data, &share->known);
    buffer_deinit(&text);
}

/* ---- keeping what was right ------------------------------------------------------------------ */

/* It lets go of its bytes, or they are being taken in: until then no work is told anything. */
static bool gather_share_is_keeping(const struct gather_share *share)
{
    assert(!share->is_keeping || share->manifest.n_parts);
    return share->manifest.n_parts > 0;
}

static bool gather_share_has_kept_all(const struct gather_share *share)
{
    uint32_t i = 0;
    while (i < share->n_own && (share->own[i].is_kept || share->own[i].part == GATHER_NO_PART))
        i++;
    return i == share->n_own;
}

static void gather_tell_kept(struct gather_share *share)
{
    Node__Gathered said = NODE__GATHERED__INIT;
    share->has_kept = true;
    said.has_kept = said.kept = true;
    gather_share_send(share, &said);
}

static void on_share_adopted(void *arg, const struct weights_facts *facts, const struct error *err)
{
    struct gather_share *share = arg;
    share->is_keeping = false;
    if (!err) {
        share->facts = *facts;
        for (uint32_t i = 0; i < share->n_own; i++)
            share->own[i].is_kept |=
                share->own[i].has_digest && share->own[i].part != GATHER_NO_PART;
        gather_share_remember(share);
    }
    manifest_deinit(&share->manifest);
    if (share->gathering->is_closing)
        return;
    if (err)
        gather_share_fail(share, err);
    else if (gather_share_has_kept_all(share))
        gather_tell_kept(share);
}

static bool gather_own_is_right(const struct gather_share *share, const struct gather_own *own)
{
    const struct manifest_part *part =
        own->part < share->manifest.n_parts ? &share->manifest.parts[own->part] : NULL;
    if (own->part == GATHER_NO_PART && share->n_fetches > 1)
        return own->has_digest; /* all files' make one header, which is checked when it is made */
    return own->has_digest && part && part->size == own->wanted.unit.size &&
           (share->n_fetches > 1 || part->offset == own->wanted.unit.offset) &&
           digest_equal(&part->digest, &own->digest);
}

/* What was ordered since the manifest came, as another machine was lost, is fetched first, and is
 * kept with the next manifest. */
enum error_code gather_share_right(const struct gather_share *share, struct part_set *out,
                                   struct error *err)
{
    enum error_code code = part_set_init(out, share->manifest.n_parts, err);
    for (uint32_t i = 0; i < share->n_own && !code; i++) {
        const struct gather_own *own = &share->own[i];
        if (own->is_kept || (share->must_order && !own->has_digest))
            continue;
        if (!gather_own_is_right(share, own))
            code = error_set(err, ERROR_INVALID, "the manifest is not of what is here");
        else
            part_set_add(out, own->part == GATHER_NO_PART ? MANIFEST_HEADER : own->part);
    }
    return code;
}

static void gather_share_adopt(struct gather_share *share)
{
    const char *paths[GATHER_FILES];
    struct part_set has = {0};
    struct error err;
    if (gather_share_right(share, &has, &err)) {
        gather_share_fail(share, &err);
        manifest_deinit(&share->manifest);
    } else {
        for (uint32_t i = 0; i < share->n_fetches; i++)
            paths[i] = share->fetches[i].released;
        share->is_keeping = true;
        weights_adopt(share->gathering->daemon->weights, &share->manifest, &has, paths,
                      share->n_fetches, on_share_adopted, share);
    }
    part_set_deinit(&has);
}

static void gather_share_keep(struct gather_share *share, const ProtobufCBinaryData *bytes)
{
    struct part_set has = {0};
    struct error err;
    if (gather_share_is_keeping(share))
        return; /* said twice */
    enum error_code code = manifest_read(bytes->data, bytes->len, &share->manifest, &err);
    if (!code && share->n_fetches == 1 && share->manifest.size != share->fetches[0].file.bytes)
        code = error_set(&err, ERROR_INVALID, "the manifest is of another file");
    if (!code)
        code = gather_share_right(share, &has, &err);
    part_set_deinit(&has);
    if (code) {
        manifest_deinit(&share->manifest);
        gather_share_fail(share, &err);
    } else if (gather_has_work(share)) {
        gather_release_all(share);
    } else {
        manifest_deinit(&share->manifest);
        gather_tell_kept(share);
    }
}

/* ---- orders ---------------------------------------------------------------------------------- */

static enum error_code gather_share_read(const struct gather_share *share, const Node__Gather *said,
                                         struct gather_own *own, struct error *err)
{
    for (size_t i = 0; i < said->n_units; i++) {
        const Node__GatherUnit *unit = said->units[i];
        if (i && unit->index <= said->units[i - 1]->index)
            return error_set(err, ERROR_INVALID, "an order out of order");
        if (unit->file >= share->n_fetches)
            return error_set(err, ERROR_INVALID, "an order of file %u of %u", unit->file + 1,
                             share->n_fetches);
        own[i].wanted =
            (struct gather_wanted){unit->index, {unit->offset, unit->bytes, unit->end, unit->file}};
        own[i].part = unit->has_part ? unit->part : GATHER_NO_PART;
    }
    return ERROR_NONE;
}

/* What is known of a unit that stays its own stays, too. */
static enum error_code gather_share_order(struct gather_share *share, const Node__Gather *said,
                                          struct error *err)
{
    if (said->n_units > GATHER_UNITS)
        return error_set(err, ERROR_INVALID, "an order of %zu units", said->n_units);
    struct gather_own *own = mem_new_array(said->n_units + 1, sizeof *own);
    if (!own)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather");
    const enum error_code code = gather_share_read(share, said, own, err);
    if (code) {
        mem_free(own);
        return code;
    }
    for (size_t i = 0; i < said->n_units; i++) {
        const struct gather_own *old = gather_own_find(share, own[i].wanted.index);
        const struct gather_unit *unit = &own[i].wanted.unit;
        if (old && old->wanted.unit.offset == unit->offset && old->wanted.unit.size == unit->size &&
            old->wanted.unit.end == unit->end && old->wanted.unit.file == unit->file &&
            old->part == own[i].part)
            own[i] = *old;
    }
    mem_free(share->own);
    share->own = own;
    share->n_own = (uint32_t)said->n_units;
    share->must_order = true;
    share->has_kept = false;
    return ERROR_NONE;
}

static enum error_code gather_share_step_of(const Node__GatherStep *said, struct gather_step *out,
                                            struct error *err)
{
    *out = (struct gather_step){
        .first = said->first, .end = said->end, .from = said->from, .to = said->to};
    return digest_chain_read(said->chain.data, said->chain.len, &out->chain, err);
}

/* What was gathered is wrong. */
static void gather_share_again(struct gather_share *share, uint32_t round)
{
    share->round = round;
    gather_drop_all(share);
    share->must_order = true;
    for (uint32_t i = 0; i < share->n_own; i++)
        share->own[i].has_digest = share->own[i].is_kept = false;
}

static struct gather_share *gather_share_find(struct gathering *gathering, const char *asker,
                                              uint64_t id)
{
    for (struct gather_share *share = gathering->shares; share; share = share->next) {
        if (share->id == id && strcmp(share->asker, asker) == 0)
            return share;
    }
    return NULL;
}

static struct gather_share *gather_share_make(struct gathering *gathering, const char *asker,
                                              const Node__Gather *said)
{
    struct gather_share *share = mem_new(sizeof *share);
    struct error err = {0};
    uint32_t n = 0, n_all = 0;
    for (const struct gather_share *other = gathering->shares; other; other = other->next) {
        n += !other->has_ended && !other->problem.code;
        n_all++;
    }
    if (!share || n_all >= GATHERING_KEPT_MAX) {
        mem_free(share);
        return NULL;
    }
    snprintf(share->asker, sizeof share->asker, "%s", asker);
    share->gathering = gathering;
    share->id = said->id;
    share->next = gathering->shares;
    gathering->shares = share;
    gather_fetches_read(said, &share->fetches, &share->n_fetches, &err);
    if (n >= GATHERING_SHARES_MAX)
        error_set(&err, ERROR_BUSY, "this machine gathers %u models already", n);
    if (err.code)
        gather_share_fail(share, &err);
    else
        gather_share_recall(share);
    return share;
}

void gather_share_take(struct gathering *gathering, const char *asker, const Node__Gather *said)
{
    struct error err = {0};
    struct gather_step step;
    struct gather_share *share = gather_share_find(gathering, asker, said->id);
    if (!share && !said->ends && (said->n_units || said->looks))
        share = gather_share_make(gathering, asker, said);
    if (!share || share->has_ended || gathering->is_closing)
        return;
    gathering_wake(gathering);
    if (said->ends) {
        share->has_ended = true;
        share->drops = said->drops;
        return;
    }
    if (share->problem.code)
        return;
    if (said->round > share->round && !gather_has_dropped(share) && !gather_share_is_keeping(share))
        gather_share_again(share, said->round);
    if (said->looks)
        share->looks = share->must_order = true;
    enum error_code code = said->n_units ? gather_share_order(share, said, &err) : ERROR_NONE;
    const struct gather_fetch *fetch =
        said->step ? gather_fetch_of(share, said->step->first) : NULL;
    if (!code && said->step && !(fetch && fetch->work))
        code = error_set(&err, ERROR_INVALID, "a step of the hash before anything is here");
    if (!code && said->step)
        code = gather_share_step_of(said->step, &step, &err);
    if (!code && said->step)
        code = gather_work_chain(fetch->work, &step, &err);
    if (code)
        gather_share_fail(share, &err);
    else if (said->has_manifest)
        gather_share_keep(share, &said->manifest);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Of several files the headers are wanted again with whatever is: they show the files as one. */
static enum error_code gather_share_begin(struct gather_share *share, struct error *err)
{
    bool is_wanted = share->looks || gather_has_work(share);
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < share->n_own; i++)
        is_wanted |= !share->own[i].is_kept && share->own[i].part != GATHER_NO_PART;
    for (uint32_t i = 0; i < share->n_fetches && is_wanted && !code; i++)
        code = gather_fetch_order(share, i, err);
    share->must_order = share->looks = false;
    return code;
}

static void gather_share_note(struct gather_share *share, const struct gather_report *report)
{
    for (uint32_t i = 0; i < report->n_sums; i++) {
        struct gather_own *own = gather_own_find(share, report->sums[i].index);
        if (!own)
            continue;
        own->has_digest = true;
        own->digest = report->sums[i].digest;
    }
}

/* False: it cannot go on. */
static bool gather_share_look_at(struct gather_share *share, uint32_t file)
{
    static struct gather_report report; /* the loop's */
    struct gather_fetch *fetch = &share->fetches[file];
    gather_work_poll(fetch->work, &report);
    gather_share_note(share, &report);
    if (report.problem.code) {
        gather_share_fail(share, &report.problem);
        return false;
    }
    fetch->here = report.here;
    fetch->bytes_per_s = report.bytes_per_s;
    gather_share_tell(share, file, &report);
    if (!report.is_released)
        return true;
    gather_work_close(fetch->work, false); /* its threads have ended */
    fetch->work = NULL;
    memcpy(fetch->released, report.part, sizeof fetch->released);
    return true;
}

static void gather_share_look(struct gather_share *share)
{
    bool had_work = false, goes_on = true;
    for (uint32_t i = 0; i < share->n_fetches && goes_on; i++) {
        if (!share->fetches[i].work)
            continue;
        had_work = true;
        goes_on = gather_share_look_at(share, i);
    }
    if (had_work && goes_on && !gather_has_work(share))
        gather_share_adopt(share);
}

void gather_share_step(struct gather_share *share)
{
    struct error err;
    const bool is_over = share->has_ended || share->problem.code;
    gather_fetches_end(share, is_over);
    if (is_over)
        return;
    if (share->must_order && !gather_has_dropped(share) && !gather_share_is_keeping(share) &&
        gather_share_begin(share, &err))
        gather_share_fail(share, &err);
    else
        gather_share_look(share);
}

void gather_share_leave(struct gather_share *share)
{
    share->has_ended = true;
}

bool gather_share_is_over(const struct gather_share *share)
{
    return share->has_ended && !gather_has_work(share) && !gather_has_dropped(share) &&
           !share->is_keeping;
}

void gather_share_free(struct gather_share *share)
{
    gather_fetches_close(share);
    manifest_deinit(&share->manifest);
    mem_free(share->fetches);
    mem_free(share->own);
    mem_free(share);
}

const struct weights_facts *gather_share_facts(const struct gathering *gathering, uint64_t id)
{
    const char *own = gathering->daemon->id;
    for (const struct gather_share *share = gathering->shares; share; share = share->next) {
        if (share->id == id && share->has_kept && strcmp(share->asker, own) == 0)
            return &share->facts;
    }
    return NULL;
}
