/* A gathering that this node has asked for: carries out what gather.h says. */
#include "node/gathering_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "hub/hub_name.h"
#include "mesh/frames.h"

#include <string.h>

#define GATHER_HASH_BPS 5e8 /* a processor without instructions for SHA-256 does as much */

/* ---- telling nodes --------------------------------------------------------------------------- */

static void gather_ask_send(struct gather_ask *ask, uint32_t node, Node__Gather *said)
{
    struct daemon *daemon = ask->gathering->daemon;
    const char *id = ask->nodes[node].id;
    const struct peer *peer = daemon_peer(daemon, id);
    struct buffer bytes = {0};
    said->has_id = said->has_round = true;
    said->id = ask->id;
    said->round = ask->gather ? gather_round(ask->gather) : 0;
    if (strcmp(id, daemon->id) == 0) {
        gather_share_take(ask->gathering, daemon->id, said);
        return;
    }
    message_encode(&said->base, &bytes);
    if (peer && peer->link && !bytes.failed)
        daemon_post(peer->link, FRAME_GATHER, bytes.data, bytes.size);
    buffer_deinit(&bytes);
}

/* What is gathered, said with orders; the two arrays are the caller's to free. */
struct gather_naming {
    Node__GatherFile *files, **list;
};

static bool gather_ask_name(struct gather_ask *ask, struct gather_naming *naming,
                            Node__Gather *said)
{
    naming->files = mem_new_array(ask->n_files, sizeof *naming->files);
    naming->list = mem_new_array(ask->n_files, sizeof *naming->list);
    if (!naming->files || !naming->list)
        return false;
    for (uint32_t i = 0; i < ask->n_files; i++) {
        Node__GatherFile *file = &naming->files[i];
        node__gather_file__init(file);
        file->name = ask->files[i].name;
        file->has_bytes = file->has_sha256 = true;
        file->bytes = ask->files[i].bytes;
        file->sha256.data = ask->files[i].whole.bytes;
        file->sha256.len = DIGEST_BYTES;
        naming->list[i] = file;
    }
    said->files = naming->list;
    said->n_files = ask->n_files;
    return true;
}

static void gather_naming_free(struct gather_naming *naming)
{
    mem_free(naming->files);
    mem_free(naming->list);
}

static void gather_ask_look(struct gather_ask *ask)
{
    struct gather_naming naming;
    ask->phase = ASK_LOOKS;
    ask->looks_ms = daemon_now_ms(ask->gathering->daemon);
    for (uint32_t i = 0; i < ask->n_nodes; i++) {
        Node__Gather said = NODE__GATHER__INIT;
        said.has_looks = said.looks = true;
        if (gather_ask_name(ask, &naming, &said))
            gather_ask_send(ask, i, &said);
        gather_naming_free(&naming);
    }
}

static void gather_ask_order(struct gather_ask *ask, uint32_t node)
{
    const uint32_t n_units = ask->n_units;
    struct gather_naming naming;
    Node__GatherUnit *units = mem_new_array(n_units, sizeof *units);
    Node__GatherUnit **list = mem_new_array(n_units, sizeof *list);
    Node__Gather said = NODE__GATHER__INIT;
    for (uint32_t i = 0; i < n_units && units && list; i++) {
        if (!gather_is_of(ask->gather, node, i))
            continue;
        Node__GatherUnit *unit = &units[said.n_units];
        node__gather_unit__init(unit);
        unit->has_index = unit->has_offset = unit->has_bytes = unit->has_end = true;
        unit->has_file = true;
        unit->has_part = ask->parts[i] != GATHER_NO_PART;
        unit->index = i;
        unit->offset = ask->units[i].offset;
        unit->bytes = ask->units[i].size;
        unit->end = ask->units[i].end;
        unit->file = ask->units[i].file;
        unit->part = ask->parts[i];
        list[said.n_units++] = unit;
    }
    said.units = list;
    if (gather_ask_name(ask, &naming, &said) && said.n_units)
        gather_ask_send(ask, node, &said);
    gather_naming_free(&naming);
    mem_free(list);
    mem_free(units);
}

static void gather_ask_chain(struct gather_ask *ask, const struct gather_action *action)
{
    uint8_t chain[DIGEST_CHAIN_BYTES];
    Node__Gather said = NODE__GATHER__INIT;
    Node__GatherStep step = NODE__GATHER_STEP__INIT;
    digest_chain_write(&action->chain, chain);
    step.has_first = step.has_end = step.has_from = step.has_to = step.has_chain = true;
    step.first = action->first;
    step.end = action->end;
    step.from = ask->units[action->first].offset;
    step.to = ask->units[action->end - 1].end;
    step.chain.data = chain;
    step.chain.len = sizeof chain;
    said.step = &step;
    gather_ask_send(ask, action->node, &said);
}

static void gather_ask_end_all(struct gather_ask *ask, bool drops)
{
    for (uint32_t i = 0; i < ask->n_nodes; i++) {
        Node__Gather said = NODE__GATHER__INIT;
        said.has_ends = said.ends = true;
        said.has_drops = said.drops = drops;
        gather_ask_send(ask, i, &said);
    }
}

/* ---- its end --------------------------------------------------------------------------------- */

static void gather_ask_over(struct gather_ask *ask, const char *model, const char *path,
                            const struct error *err, bool drops)
{
    const struct gathering_hearer hearer = ask->hearer;
    ask->hearer = (struct gathering_hearer){0};
    if (ask->phase != ASK_OVER && ask->phase != ASK_PREPARES)
        gather_ask_end_all(ask, drops);
    ask->phase = ASK_OVER;
    if (ask->prepared)
        atomic_store(&ask->prepared->stop, true);
    if (hearer.done)
        hearer.done(hearer.self, model, path, err);
}

void gathering_cancel(struct gather_ask *ask)
{
    ask->hearer = (struct gathering_hearer){0};
    if (ask->phase != ASK_REGISTERS && ask->phase != ASK_OVER)
        gather_ask_over(ask, NULL, NULL, NULL, false);
}

void gather_ask_free(struct gather_ask *ask)
{
    if (ask->phase != ASK_OVER) {
        struct error err;
        error_set(&err, ERROR_CANCELLED, "this node is stopping");
        gather_ask_over(ask, NULL, NULL, &err, false);
    }
    gather_prepared_free(ask->prepared);
    gather_free(ask->gather);
    manifest_deinit(&ask->manifest);
    for (uint32_t i = 0; i < ask->n_nodes; i++)
        mem_free(ask->nodes[i].has);
    mem_free(ask->owners);
    mem_free(ask->units);
    mem_free(ask->parts);
    mem_free(ask->files);
    mem_free(ask->wholes);
    mem_free(ask->headers);
    mem_free(ask);
}

/* ---- what nodes say -------------------------------------------------------------------------- */

static uint32_t gather_ask_node(const struct gather_ask *ask, const char *id)
{
    uint32_t i = 0;
    while (i < ask->n_nodes && strcmp(ask->nodes[i].id, id) != 0)
        i++;
    return i;
}

static bool gather_ask_is_lost(const struct gather_ask *ask, uint32_t node)
{
    return ask->gather ? gather_progress(ask->gather, node).is_lost : ask->nodes[node].problem[0];
}

static void gather_ask_drop(struct gather_ask *ask, uint32_t node, const char *why)
{
    snprintf(ask->nodes[node].problem, sizeof ask->nodes[node].problem, "%s", why);
    log_line(LOG_INFO, "gather", "%s: going on without %s: %s", ask->files[0].name,
             daemon_name_of(ask->gathering->daemon, ask->nodes[node].id), why);
    if (!ask->gather)
        return; /* it is left out from the beginning */
    gather_lost(ask->gather, clock_now_ns(), node);
    if (ask->phase == ASK_KEEPS && gather_status(ask->gather) == GATHER_RUNNING)
        ask->phase = ASK_FETCHES;
}

void gather_ask_lost(struct gather_ask *ask, const char *id)
{
    const uint32_t node = gather_ask_node(ask, id);
    if (node == ask->n_nodes || gather_ask_is_lost(ask, node))
        return;
    if (ask->phase == ASK_LOOKS || ask->phase == ASK_FETCHES || ask->phase == ASK_KEEPS)
        gather_ask_drop(ask, node, "its link is down");
}

/* It was gathered before, and the cluster has it. */
static void gather_ask_take_known(struct gather_ask *ask, const ProtobufCBinaryData *model)
{
    const Cluster__State *root = daemon_state(ask->gathering->daemon)->root;
    for (size_t i = 0; root && i < root->n_models; i++) {
        const ProtobufCBinaryData *manifest = &root->models[i]->manifest;
        if (model->len == DIGEST_BYTES && manifest->len == DIGEST_BYTES &&
            memcmp(model->data, manifest->data, DIGEST_BYTES) == 0)
            snprintf(ask->known, sizeof ask->known, "%s", root->models[i]->name);
    }
}

/* Units of the file of which all bytes are in the ranges, which are in order. */
static void gather_ask_take_look(struct gather_ask *ask, uint32_t node, const Node__Gathered *said)
{
    struct gather_node_of *of = &ask->nodes[node];
    size_t at = 0;
    if (said->file >= ask->n_files || of->looked[said->file] ||
        (!of->has && !(of->has = mem_new_array(ask->n_units, sizeof *of->has))))
        return;
    of->looked[said->file] = true;
    of->has_looked = ++of->n_looked == ask->n_files;
    if (said->has_model)
        gather_ask_take_known(ask, &said->model);
    for (uint32_t unit = 0; unit < ask->n_units; unit++) {
        const struct gather_unit *want = &ask->units[unit];
        if (want->file != said->file)
            continue;
        while (at < said->n_ranges && said->ranges[at]->to < want->end)
            at++;
        of->has[unit] = at < said->n_ranges && said->ranges[at]->from <= want->offset;
    }
}

static void gather_ask_take_sums(struct gather_ask *ask, uint32_t node, const Node__Gathered *said)
{
    for (size_t i = 0; i < said->n_sums; i++) {
        struct digest digest;
        if (said->sums[i]->sha256.len != DIGEST_BYTES)
            continue;
        memcpy(digest.bytes, said->sums[i]->sha256.data, DIGEST_BYTES);
        gather_hashed(ask->gather, clock_now_ns(), node, said->sums[i]->index, &digest);
    }
}

void gather_ask_take(struct gathering *gathering, const char *from, const Node__Gathered *said)
{
    struct digest_chain chain;
    struct gather_ask *ask = gathering->asks;
    while (ask && ask->id != said->id)
        ask = ask->next;
    const uint32_t node = ask ? gather_ask_node(ask, from) : 0;
    if (!ask || node == ask->n_nodes || ask->phase == ASK_PREPARES || ask->phase == ASK_OVER ||
        gather_ask_is_lost(ask, node) ||
        said->round != (ask->gather ? gather_round(ask->gather) : 0))
        return;
    if (said->problem) {
        gather_ask_drop(ask, node, said->problem);
        return;
    }
    if (said->looked && ask->phase == ASK_LOOKS)
        gather_ask_take_look(ask, node, said);
    if (!ask->gather)
        return;
    if (said->has_here_bytes)
        gather_told(ask->gather, clock_now_ns(), node, said->here_bytes, said->bytes_per_s);
    gather_ask_take_sums(ask, node, said);
    if (said->step &&
        !digest_chain_read(said->step->chain.data, said->step->chain.len, &chain, NULL))
        gather_chained(ask->gather, clock_now_ns(), node, said->step->first, said->step->end,
                       &chain);
    ask->nodes[node].has_kept |= said->kept && ask->phase == ASK_KEEPS;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void gather_ask_prepared(struct gather_ask *ask)
{
    struct gather_prepared *prepared = ask->prepared;
    struct error err = prepared->err;
    char path[PATH_MAX];
    memcpy(path, prepared->path, sizeof path);
    if (!err.code && !path[0])
        gather_ask_begin(ask, &err);
    gather_prepared_free(prepared);
    ask->prepared = NULL;
    if (err.code) /* nothing was fetched: whoever asks may pull it */
        err.code = ERROR_UNSUPPORTED;
    if (err.code || path[0])
        gather_ask_over(ask, NULL, err.code ? NULL : path, err.code ? &err : NULL, false);
    else
        gather_ask_look(ask);
}

static void gather_ask_look_done(struct gather_ask *ask)
{
    struct error err;
    const uint64_t since_ms = daemon_now_ms(ask->gathering->daemon) - ask->looks_ms;
    for (uint32_t i = 0; i < ask->n_nodes; i++) {
        if (!ask->nodes[i].has_looked && !ask->nodes[i].problem[0] && since_ms < GATHERING_LOOK_MS)
            return;
    }
    if (ask->known[0]) {
        gather_ask_over(ask, ask->known, NULL, NULL, false);
        return;
    }
    if (gather_ask_deal(ask, &err)) {
        gather_ask_over(ask, NULL, NULL, &err, false);
        return;
    }
    ask->phase = ASK_FETCHES;
    ask->seen_ms = 0; /* the forecast is said before anything large is fetched */
}

static enum error_code gather_ask_manifest(struct gather_ask *ask, struct buffer *out,
                                           struct error *err)
{
    if (ask->n_files > 1)
        ask->manifest.parts[MANIFEST_HEADER].digest = ask->header;
    for (uint32_t i = 0; i < ask->n_units; i++) {
        const struct digest *digest = gather_digest(ask->gather, i);
        if (ask->parts[i] != GATHER_NO_PART)
            ask->manifest.parts[ask->parts[i]].digest = *digest;
        else if (!digest_equal(digest, &ask->headers[ask->units[i].file]))
            return error_set(err, ERROR_INVALID,
                             "%s: the hub gave another header before; ask again",
                             ask->files[ask->units[i].file].name);
    }
    manifest_write(&ask->manifest, out);
    if (out->failed)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a manifest");
    return out->size <= GATHERING_MANIFEST_BYTES
               ? ERROR_NONE
               : error_set(err, ERROR_UNSUPPORTED, "a manifest of %zu bytes", out->size);
}

static void gather_ask_keep(struct gather_ask *ask)
{
    struct buffer bytes = {0};
    struct error err;
    ask->phase = ASK_KEEPS;
    ask->keeps_ms = daemon_now_ms(ask->gathering->daemon);
    if (gather_ask_manifest(ask, &bytes, &err)) {
        buffer_deinit(&bytes);
        gather_ask_over(ask, NULL, NULL, &err, false);
        return;
    }
    log_line(LOG_INFO, "gather", "%s: all of it is here and has the hub's SHA-256",
             ask->files[0].name);
    for (uint32_t i = 0; i < ask->n_nodes; i++) {
        Node__Gather said = NODE__GATHER__INIT;
        ask->nodes[i].has_kept = false;
        if (gather_progress(ask->gather, i).is_lost)
            continue;
        said.has_manifest = true;
        said.manifest.data = (uint8_t *)bytes.data;
        said.manifest.len = bytes.size;
        gather_ask_send(ask, i, &said);
    }
    buffer_deinit(&bytes);
}

static void on_gathered_registered(void *arg, const char *model, const struct error *err)
{
    struct gather_ask *ask = arg;
    gather_ask_over(ask, model, NULL, err, false);
}

static void gather_ask_look_kept(struct gather_ask *ask)
{
    const struct weights_facts *facts = gather_share_facts(ask->gathering, ask->id);
    struct error err;
    const uint64_t copying_ms = ask->n_files > 1 ? ask->bytes / (GATHERING_KEEP_BPS / 1000) : 0;
    const bool is_late =
        daemon_now_ms(ask->gathering->daemon) - ask->keeps_ms > GATHERING_KEEP_MS + copying_ms;
    for (uint32_t i = 0; i < ask->n_nodes; i++) {
        if (gather_progress(ask->gather, i).is_lost || ask->nodes[i].has_kept)
            continue;
        if (is_late)
            gather_ask_drop(ask, i, "it does not keep what is there");
        return;
    }
    if (!facts) {
        error_set(&err, ERROR_IO, "this machine could not keep its part of %s: %s",
                  ask->files[0].name, ask->nodes[0].problem);
        gather_ask_over(ask, NULL, NULL, &err, false);
        return;
    }
    ask->phase = ASK_REGISTERS;
    daemon_register(ask->gathering->daemon, facts, ask->actor, on_gathered_registered, ask);
}

static void gather_ask_wrong(struct gather_ask *ask)
{
    struct error err;
    if (gather_again(ask->gather, clock_now_ns())) {
        log_line(LOG_WARN, "gather",
                 "%s: what came does not have the hub's SHA-256: all of it is fetched again",
                 ask->files[0].name);
        return;
    }
    error_set(&err, ERROR_INVALID,
              "%s: what came does not have the SHA-256 that the hub says, twice; it was removed",
              ask->files[0].name);
    gather_ask_over(ask, NULL, NULL, &err, true);
}

static void gather_ask_failed(struct gather_ask *ask)
{
    struct error err;
    error_set(&err, ERROR_IO, "%s: no machine could fetch it: %s", ask->files[0].name,
              ask->nodes[0].problem[0] ? ask->nodes[0].problem : "nothing comes");
    gather_ask_over(ask, NULL, NULL, &err, false);
}

static void gather_ask_go_on(struct gather_ask *ask)
{
    struct gather_action action;
    while ((action = gather_next(ask->gather, clock_now_ns())).kind != GATHER_NOTHING) {
        if (action.kind == GATHER_ORDER)
            gather_ask_order(ask, action.node);
        else
            gather_ask_chain(ask, &action);
    }
    switch (gather_status(ask->gather)) {
    case GATHER_RUNNING:
        break;
    case GATHER_DONE:
        if (gather_suspect(ask->gather) != GATHER_ANYBODY)
            log_line(
                LOG_WARN, "gather", "%s: %s had wrong bytes before", ask->files[0].name,
                daemon_name_of(ask->gathering->daemon, ask->nodes[gather_suspect(ask->gather)].id));
        gather_ask_keep(ask);
        break;
    case GATHER_WRONG:
        gather_ask_wrong(ask);
        break;
    case GATHER_FAILED:
        gather_ask_failed(ask);
        break;
    }
}

/* ---- being seen ------------------------------------------------------------------------------ */

/* Until all is fetched and hashed: by what came, else by the header's speed. */
static double gather_ask_forecast(const struct gather_ask *ask, bool *is_measured)
{
    double left_s = gather_left_s(ask->gather);
    *is_measured = left_s >= 0;
    for (uint32_t i = 0; i < ask->n_nodes && !*is_measured; i++) {
        const struct gather_progress of = gather_progress(ask->gather, i);
        const double s = (double)(of.bytes - of.here) / (ask->header_bytes_per_s + 1);
        left_s = !of.is_lost && s > left_s ? s : left_s;
    }
    return left_s + (double)ask->bytes / GATHER_HASH_BPS;
}

static void gather_ask_show(struct gather_ask *ask)
{
    static struct gathering_seen seen; /* the loop's */
    struct daemon *daemon = ask->gathering->daemon;
    const uint64_t now_ms = daemon_now_ms(daemon);
    if (!ask->hearer.seen || (ask->seen_ms && now_ms - ask->seen_ms < 1000))
        return;
    ask->seen_ms = now_ms;
    seen = (struct gathering_seen){.state = ask->phase <= ASK_LOOKS     ? "asking the hub"
                                            : ask->phase == ASK_FETCHES ? "fetching"
                                                                        : "keeping",
                                   .file = ask->n_files ? ask->files[0].name : "",
                                   .bytes = ask->bytes,
                                   .forecast_s = -1};
    if (ask->gather && ask->phase == ASK_FETCHES)
        seen.forecast_s = gather_ask_forecast(ask, &seen.is_forecast_measured);
    for (uint32_t i = 0; ask->gather && i < ask->n_nodes; i++) {
        const struct gather_progress of = gather_progress(ask->gather, i);
        const char *problem = ask->nodes[i].problem;
        seen.nodes[seen.n_nodes++] =
            (struct gathering_node){daemon_name_of(daemon, ask->nodes[i].id),
                                    of.bytes,
                                    of.here,
                                    of.bytes_per_s,
                                    of.is_lost,
                                    problem[0] ? problem : NULL};
    }
    ask->hearer.seen(ask->hearer.self, &seen);
}

void gather_ask_step(struct gather_ask *ask)
{
    switch (ask->phase) {
    case ASK_PREPARES:
        if (atomic_load(&ask->prepared->is_done))
            gather_ask_prepared(ask);
        break;
    case ASK_LOOKS:
        gather_ask_look_done(ask);
        break;
    case ASK_FETCHES:
        gather_ask_go_on(ask);
        break;
    case ASK_KEEPS:
        gather_ask_look_kept(ask);
        break;
    case ASK_REGISTERS:
        return;
    case ASK_OVER:
        if (ask->prepared && atomic_load(&ask->prepared->is_done)) {
            gather_prepared_free(ask->prepared);
            ask->prepared = NULL;
        }
        return;
    }
    if (ask->phase != ASK_OVER)
        gather_ask_show(ask);
}

/* ---- beginning ------------------------------------------------------------------------------- */

enum error_code gathering_begin(struct daemon *daemon, const char *word,
                                const struct place_demand *wanted, const char *actor,
                                const struct gathering_hearer *hearer, struct gather_ask **out,
                                struct error *err)
{
    struct gathering *gathering = daemon->gathering;
    struct hub_name name;
    uint32_t n = 0;
    *out = NULL;
    for (const struct gather_ask *ask = gathering ? gathering->asks : NULL; ask; ask = ask->next)
        n++;
    enum error_code code = hub_name_parse(word, &name, err);
    if (!code && strlen(word) >= GATHER_NAME)
        code = error_set(err, ERROR_INVALID, "the model's name is too long");
    if (!code && (!gathering || gathering->is_closing || n >= GATHERING_ASKS_MAX))
        code = error_set(err, ERROR_BUSY, "this machine asks for %u models already", n);
    struct gather_ask *ask = code ? NULL : mem_new(sizeof *ask);
    if (!code && !ask)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    if (!code && !(ask->prepared = gather_prepare(word, err)))
        code = err->code;
    if (code) {
        mem_free(ask);
        return code;
    }
    ask->gathering = gathering;
    ask->hearer = *hearer;
    ask->wanted = *wanted;
    ask->wanted.actor = NULL;
    ask->id = ++gathering->next_id;
    audit_text(ask->actor, sizeof ask->actor, actor);
    ask->next = gathering->asks;
    gathering->asks = ask;
    gathering_wake(gathering);
    *out = ask;
    return ERROR_NONE;
}
