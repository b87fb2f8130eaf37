/* A fetch at work: its requests, what comes of them, its end. */
#include "weights/weights_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/model_precision.h"

#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

static struct weights_holder *holder_at(struct weights_entry *entry, uint32_t index)
{
    struct weights_holder *holder = entry->holders;
    while (holder && !(holder->in_fetch && holder->index == index))
        holder = holder->next;
    assert(holder && holder->peer); /* a peer that is away is asked nothing */
    return holder;
}

static bool send_request(struct weights_entry *entry, const struct fetch_action *action)
{
    struct weights *weights = entry->weights;
    struct weights_ask *ask = mem_new(sizeof *ask);
    if (!ask)
        return false;
    struct weights_holder *holder = holder_at(entry, action->peer);
    *ask = (struct weights_ask){.next = weights->asks,
                                .entry = entry,
                                .holder = holder,
                                .peer = holder->peer,
                                .wire_id = weights->next_wire_id++,
                                .id = action->id};
    weights->asks = ask;
    struct fetch_message message = {.type = entry->version ? FETCH_MESSAGE_REQUEST_CONVERTED
                                                           : FETCH_MESSAGE_REQUEST,
                                    .id = ask->wire_id,
                                    .model = *weights_asked_id(entry)};
    message.request.part = entry->fetching.is_manifest ? FETCH_MANIFEST : action->part;
    message.request.offset = action->offset;
    message.request.size = action->size;
    message.request.weight_type = entry->version ? entry->version->type : 0;
    weights_post(ask->peer, &message);
    weights_spread_asked(entry, ask->peer->link, action->size);
    return true;
}

/* Takes those that match out of the list. `tell`: the peer is told that it need not answer. */
static void end_asks(struct weights_entry *entry, const struct weights_holder *holder,
                     const uint32_t *id, bool tell)
{
    struct weights_ask **at = &entry->weights->asks;
    while (*at) {
        struct weights_ask *ask = *at;
        if (ask->entry != entry || (holder && ask->holder != holder) || (id && ask->id != *id)) {
            at = &ask->next;
            continue;
        }
        *at = ask->next;
        if (tell)
            weights_post(ask->peer,
                         &(struct fetch_message){.type = FETCH_MESSAGE_CANCEL, .id = ask->wire_id});
        mem_free(ask);
    }
}

/* The request that the peer answers; taken out of the list. */
static bool take_ask(struct weights_peer *peer, uint32_t wire_id, struct weights_ask *out)
{
    for (struct weights_ask **at = &peer->weights->asks; *at; at = &(*at)->next) {
        struct weights_ask *ask = *at;
        if (ask->peer != peer || ask->wire_id != wire_id)
            continue;
        *out = *ask;
        *at = ask->next;
        mem_free(ask);
        return true;
    }
    return false; /* cancelled meanwhile, or never asked */
}

/* ---- who is asked ---------------------------------------------------------------------------- */

/* What the holder has of what is being fetched. False: memory. */
static bool set_of(const struct weights_entry *entry, const struct weights_holder *holder,
                   struct part_set *out)
{
    const struct weights_fetching *fetching = &entry->fetching;
    const struct manifest *manifest =
        fetching->is_manifest ? &fetching->whole : shelf_model_manifest(entry->here.shelf);
    if (part_set_init(out, manifest->n_parts, NULL))
        return false;
    if (fetching->is_manifest && holder->manifest_bytes == manifest->size)
        part_set_add(out, 0);
    for (uint32_t i = 0; !fetching->is_manifest && holder->has.n_parts == manifest->n_parts &&
                         i < manifest->n_parts;
         i++) {
        if (part_set_has(&holder->has, i))
            part_set_add(out, i);
    }
    return true;
}

void weights_fetch_have(struct weights_entry *entry, struct weights_holder *holder)
{
    struct fetch *fetch = entry->fetching.fetch;
    struct part_set has;
    uint64_t now_ns = clock_now_ns();
    if (!fetch || holder->has_lied || !holder->peer || !set_of(entry, holder, &has))
        return;
    const struct topology_link link = link_measured(holder->peer->link);
    if (!holder->in_fetch) {
        holder->in_fetch = !fetch_peer_add(fetch, now_ns, &link, &has, &holder->index, NULL);
    } else {
        if (holder->was_away)
            fetch_peer_back(fetch, now_ns, holder->index, &link);
        fetch_peer_has(fetch, now_ns, holder->index, &has);
    }
    holder->was_away = false;
    part_set_deinit(&has);
}

void weights_fetch_away(struct weights_entry *entry, struct weights_holder *holder)
{
    holder->peer = NULL;
    holder->was_away = true;
    end_asks(entry, holder, NULL, false);
    if (holder->in_fetch)
        fetch_peer_gone(entry->fetching.fetch, clock_now_ns(), holder->index);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void weights_fetch_start(struct weights_entry *entry, const struct manifest *manifest,
                                const struct part_set *wanted)
{
    struct weights_fetching *fetching = &entry->fetching;
    const bool is_slow = entry->is_spread && !fetching->is_manifest;
    const struct fetch_settings settings = {
        .chunk_bytes = is_slow          ? LIMIT_SPREAD_CHUNK_BYTES
                       : entry->version ? LIMIT_CONVERTED_CHUNK_BYTES
                                        : 0,
        .bytes_in_flight = is_slow ? LIMIT_SPREAD_CHUNK_BYTES : LIMIT_WEIGHTS_FLIGHT_BYTES,
        .patience_ns = 6 * weights_search_ns(entry->weights)};
    struct error err = {0};
    fetching->generation++;
    fetching->kept_ns = clock_now_ns();
    enum error_code code =
        fetch_new(manifest, wanted, &settings, fetching->kept_ns, &fetching->fetch, &err);
    if (!code && !fetching->is_manifest && !fetching->unkept) {
        fetching->unkept = mem_new_array(manifest->n_parts, sizeof *fetching->unkept);
        code = fetching->unkept ? ERROR_NONE : error_set(&err, ERROR_NO_MEMORY, "out of memory");
    }
    if (code) {
        weights_step_failed(entry, &err);
        return;
    }
    for (struct weights_holder *holder = entry->holders; holder; holder = holder->next) {
        holder->in_fetch = false;
        weights_fetch_have(entry, holder);
    }
    weights_fetch_pump(entry);
}

void weights_fetch_begin(struct weights_entry *entry)
{
    entry->fetching.is_manifest = false;
    if (weights_version_puts_header(entry) || weights_version_converts(entry))
        return;
    weights_fetch_start(entry, shelf_model_manifest(entry->here.shelf), &entry->fetching.wanted);
}

void weights_fetch_begin_manifest(struct weights_entry *entry, uint64_t bytes)
{
    struct weights_fetching *fetching = &entry->fetching;
    struct part_set one = {0};
    struct error err = {0};
    fetching->is_manifest = true;
    manifest_deinit(&fetching->whole);
    fetching->whole = (struct manifest){
        .size = bytes, .n_parts = 1, .parts = mem_new(sizeof *fetching->whole.parts)};
    buffer_clear(&fetching->bytes);
    if (!fetching->whole.parts || !buffer_extend(&fetching->bytes, (size_t)bytes) ||
        part_set_init(&one, 1, NULL)) {
        error_set(&err, ERROR_NO_MEMORY, "out of memory for a manifest of %llu bytes",
                  (unsigned long long)bytes);
        weights_step_failed(entry, &err);
        return;
    }
    fetching->whole.parts[0] =
        (struct manifest_part){.name = "the manifest", .size = bytes, .digest = entry->id};
    part_set_add(&one, 0);
    weights_fetch_start(entry, &fetching->whole, &one);
    part_set_deinit(&one);
}

void weights_fetch_stop(struct weights_entry *entry)
{
    struct weights_fetching *fetching = &entry->fetching;
    if (!fetching->fetch)
        return;
    end_asks(entry, NULL, NULL, true);
    for (struct weights_holder *holder = entry->holders; holder; holder = holder->next) {
        if (holder->in_fetch && fetch_peer_notes(fetching->fetch, holder->index).has_lied) {
            char name[DIGEST_TEXT];
            holder->has_lied = true; /* the next step does not ask it again */
            struct digest id;
            memcpy(id.bytes, holder->node_id, sizeof id.bytes);
            log_line(LOG_WARN, "weights", "node %.12s sent wrong bytes of a model",
                     digest_text(&id, name));
        }
        holder->in_fetch = false;
    }
    fetching->progress = fetch_progress(fetching->fetch);
    fetching->generation++;
    fetching->is_ending = false;
    fetch_free(fetching->fetch);
    fetching->fetch = NULL;
}

/* Everything is verified. */
static void weights_fetch_end(struct weights_entry *entry)
{
    struct weights_fetching *fetching = &entry->fetching;
    if (fetching->is_manifest) {
        struct buffer bytes = fetching->bytes;
        fetching->bytes = (struct buffer){0};
        weights_fetch_stop(entry);
        weights_shelf_look(entry, &bytes);
        return;
    }
    fetching->is_ending = true;
    if (fetching->n_unkept) {
        weights_shelf_keep(entry, false);
    } else if (!fetching->n_keeping) {
        char name[DIGEST_TEXT];
        weights_fetch_stop(entry);
        log_line(LOG_INFO, "weights", "model %.12s %s: fetched %u parts, %llu bytes",
                 digest_text(weights_asked_id(entry), name),
                 model_precision_name(entry->version ? entry->version->type : 0),
                 fetching->progress.n_verified,
                 (unsigned long long)fetching->progress.verified_bytes);
        weights_step(entry);
    }
}

void weights_fetch_kept(struct weights_entry *entry)
{
    if (entry->fetching.is_ending)
        weights_fetch_end(entry);
}

static bool weights_fetch_act(struct weights_entry *entry, const struct fetch_action *action)
{
    switch (action->kind) {
    case FETCH_NOTHING:
        break;
    case FETCH_ASK:
        return send_request(entry, action);
    case FETCH_CANCEL:
        end_asks(entry, NULL, &action->id, true);
        break;
    case FETCH_VERIFY:
        return weights_shelf_verify(entry, action->part);
    }
    return true;
}

void weights_fetch_pump(struct weights_entry *entry)
{
    struct weights *weights = entry->weights;
    struct fetch *fetch = entry->fetching.fetch;
    struct error err = {0};
    if (!fetch || entry->fetching.is_ending)
        return;
    uint64_t now_ns = clock_now_ns();
    bool has_memory = true, is_idle = false;
    while (has_memory && !is_idle && weights->backlog_bytes < LIMIT_WEIGHTS_BACKLOG_BYTES &&
           !weights_spread_rests(entry, now_ns)) {
        const struct fetch_action action = fetch_next(fetch, now_ns);
        is_idle = action.kind == FETCH_NOTHING;
        has_memory = weights_fetch_act(entry, &action);
    }
    enum fetch_status status = fetch_status(fetch, &err);
    if (!has_memory)
        error_set(&err, ERROR_NO_MEMORY, "out of memory while fetching");
    if (!has_memory || status == FETCH_FAILED)
        weights_step_failed(entry, &err);
    else if (status == FETCH_DONE)
        weights_fetch_end(entry);
    else if (is_idle && fetch_wake_ns(fetch, now_ns) != UINT64_MAX)
        weights_wake_at(weights, fetch_wake_ns(fetch, now_ns));
}

/* ---- what comes ------------------------------------------------------------------------------ */

/* Converted bytes are taken for nothing else, and nothing else for them. */
static bool is_asked_kind(const struct weights_ask *ask, const struct fetch_message *message)
{
    return (message->type == FETCH_MESSAGE_CHUNK_CONVERTED) == (ask->entry->version != NULL);
}

void weights_fetch_chunk(struct weights_peer *peer, const struct fetch_message *message,
                         struct weights_write *memory)
{
    struct weights *weights = peer->weights;
    struct weights_ask ask;
    struct fetch_action where;
    weights->counts.received_bytes += message->chunk.size;
    enum fetch_take take = FETCH_IGNORE;
    if (take_ask(peer, message->id, &ask))
        take = fetch_chunk(ask.entry->fetching.fetch, clock_now_ns(), ask.holder->index, ask.id,
                           is_asked_kind(&ask, message) ? message->chunk.size : 0, &where);
    else
        ask.entry = NULL;
    if (take == FETCH_WRITE && ask.entry->version &&
        !weights_version_note(ask.entry, where.part, where.offset, where.size,
                              &message->chunk.digest)) {
        const struct error none = {ERROR_NO_MEMORY, "out of memory while fetching"};
        weights_step_failed(ask.entry, &none);
        take = FETCH_IGNORE;
    }
    if (take == FETCH_WRITE && ask.entry->fetching.is_manifest) {
        memcpy(ask.entry->fetching.bytes.data + where.offset, message->chunk.bytes, where.size);
    } else if (take == FETCH_WRITE) {
        memory->entry = ask.entry;
        memory->part = where.part;
        memory->offset = where.offset;
        memory->size = where.size;
        memory->bytes = message->chunk.bytes;
        weights_shelf_write(memory);
        memory = NULL;
    }
    weights_memory_give(weights, memory);
    if (ask.entry)
        weights_fetch_pump(ask.entry);
}

void weights_fetch_refused(struct weights_peer *peer, const struct fetch_message *message)
{
    struct weights_ask ask;
    if (!take_ask(peer, message->id, &ask))
        return;
    fetch_refused(ask.entry->fetching.fetch, clock_now_ns(), ask.holder->index, ask.id,
                  message->refusal != FETCH_REFUSE_BUSY);
    weights_fetch_pump(ask.entry);
}

void weights_fetch_verified(struct weights_entry *entry, uint32_t part, bool is_good)
{
    struct weights_fetching *fetching = &entry->fetching;
    uint64_t now_ns = clock_now_ns();
    fetch_verified(fetching->fetch, now_ns, part, is_good);
    if (is_good && !fetching->is_manifest) {
        fetching->unkept[fetching->n_unkept++] = part;
        fetching->unkept_bytes += shelf_model_manifest(entry->here.shelf)->parts[part].size;
        uint64_t keep_ns = fetching->kept_ns + LIMIT_WEIGHTS_KEEP_MS * 1000000ull;
        if (fetching->unkept_bytes >= LIMIT_WEIGHTS_KEEP_BYTES || now_ns >= keep_ns)
            weights_shelf_keep(entry, false);
        else
            weights_wake_at(entry->weights, keep_ns);
    }
    weights_fetch_pump(entry);
}
