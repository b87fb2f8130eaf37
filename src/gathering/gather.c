#include "gathering/gather.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

#define GATHER_MS UINT64_C(1000000)

struct gather_part { /* a unit's state */
    uint32_t owner;  /* GATHER_ANYBODY: of nobody who is there */
    bool is_here, has_digest;
    struct digest digest; /* has_digest: as it was said first in this round */
    struct digest before; /* in the round before */
};

struct gather_node {
    bool is_lost, must_order;
    bool headers[GATHER_FILES]; /* those that count */
    uint32_t n_headers;
    uint64_t bytes, hashed; /* of its units: all; those that count */
    uint64_t here, bytes_per_s;
    uint64_t moved_ns; /* it got on then, last */
    uint64_t peer_bytes_per_s;
};

struct gather {
    const struct gather_unit *units;
    uint32_t n_units, n_files, n_nodes, n_here; /* n_here: of units but headers */
    const struct digest *wholes;
    struct gather_part *parts;
    struct gather_node nodes[GATHER_NODES];
    uint32_t round, suspect;
    struct digest_chain chain;
    uint32_t chain_at, chain_end; /* the next unit; > chain_at: asked for up to there */
    uint32_t chain_node;
    uint64_t chain_ns, shared_ns, moved_ns;
    bool is_wrong, has_failed;
};

static uint64_t gather_bytes_of(const struct gather *gather, uint32_t unit)
{
    return gather->units[unit].end - gather->units[unit].offset;
}

bool gather_is_header(const struct gather_unit *units, uint32_t unit)
{
    return unit == 0 || units[unit].file != units[unit - 1].file;
}

static bool gather_is_everybodys(const struct gather *gather, uint32_t unit)
{
    return gather_is_header(gather->units, unit);
}

static bool gather_is_known(const struct gather *gather, uint32_t node)
{
    return node < gather->n_nodes && !gather->nodes[node].is_lost;
}

/* ---- who has what ---------------------------------------------------------------------------- */

static uint64_t gather_rest(const struct gather_node *node)
{
    const uint64_t here = node->here > node->hashed ? node->here : node->hashed;
    return node->bytes > here ? node->bytes - here : 0;
}

/* A node without a speed counts as the mean of the others, or as any. */
static double gather_speed(const struct gather *gather, uint32_t node)
{
    double sum = 0;
    uint32_t n = 0;
    if (gather->nodes[node].bytes_per_s)
        return (double)gather->nodes[node].bytes_per_s;
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        if (gather->nodes[i].bytes_per_s && !gather->nodes[i].is_lost) {
            sum += (double)gather->nodes[i].bytes_per_s;
            n++;
        }
    }
    return n ? sum / n : 1e6;
}

static void gather_take_away(struct gather *gather, uint32_t unit)
{
    struct gather_part *part = &gather->parts[unit];
    if (part->owner == GATHER_ANYBODY)
        return;
    struct gather_node *node = &gather->nodes[part->owner];
    node->bytes -= gather_bytes_of(gather, unit);
    if (part->is_here) {
        node->hashed -= gather_bytes_of(gather, unit);
        gather->n_here--;
    }
    node->must_order = true;
    part->owner = GATHER_ANYBODY;
    part->is_here = false;
}

static void gather_give(struct gather *gather, uint32_t unit, uint32_t node)
{
    assert(gather->parts[unit].owner == GATHER_ANYBODY && gather_is_known(gather, node));
    gather->parts[unit].owner = node;
    gather->nodes[node].bytes += gather_bytes_of(gather, unit);
    gather->nodes[node].must_order = true;
}

/* Units of nobody, each to who would have it first. */
static void gather_give_all(struct gather *gather)
{
    for (uint32_t unit = 1; unit < gather->n_units; unit++) {
        uint32_t best = GATHER_ANYBODY;
        double best_s = 0;
        if (gather->parts[unit].owner != GATHER_ANYBODY || gather_is_everybodys(gather, unit))
            continue;
        for (uint32_t i = 0; i < gather->n_nodes; i++) {
            const struct gather_node *node = &gather->nodes[i];
            const double s = (double)(gather_rest(node) + gather_bytes_of(gather, unit)) /
                             gather_speed(gather, i);
            if (node->is_lost || (best != GATHER_ANYBODY && s >= best_s))
                continue;
            best = i;
            best_s = s;
        }
        if (best != GATHER_ANYBODY)
            gather_give(gather, unit, best);
    }
}

static bool gather_has_node(const struct gather *gather)
{
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        if (!gather->nodes[i].is_lost)
            return true;
    }
    return false;
}

/* ---- beginning ------------------------------------------------------------------------------- */

/* Whether the unit begins a file, the next one, or goes on where the one before ends. */
static bool gather_follows(const struct gather_unit *units, uint32_t i)
{
    if (gather_is_header(units, i))
        return units[i].offset == 0 && units[i].file == (i ? units[i - 1].file + 1 : 0);
    return units[i - 1].end == units[i].offset;
}

static bool gather_covers(const struct gather_options *options)
{
    bool holds = options->n_units >= 2 && options->n_units <= GATHER_UNITS && options->n_nodes &&
                 options->n_nodes <= GATHER_NODES;
    for (uint32_t i = 0; holds && i < options->n_units; i++) {
        const struct gather_unit *unit = &options->units[i];
        holds = unit->size && unit->end > unit->offset && unit->size <= unit->end - unit->offset &&
                unit->file < GATHER_FILES && gather_follows(options->units, i) &&
                (gather_is_header(options->units, i) || options->owners[i] == GATHER_ANYBODY ||
                 options->owners[i] < options->n_nodes);
    }
    return holds;
}

static uint64_t gather_header_bytes(const struct gather *gather)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < gather->n_units; i++)
        bytes += gather_is_everybodys(gather, i) ? gather_bytes_of(gather, i) : 0;
    return bytes;
}

enum error_code gather_new(const struct gather_options *options, uint64_t now_ns,
                           struct gather **out, struct error *err)
{
    *out = NULL;
    if (!gather_covers(options))
        return error_set(err, ERROR_INVALID, "the model's parts do not make up its files");
    struct gather *gather = mem_new(sizeof *gather);
    if (gather)
        gather->parts = mem_new_array(options->n_units, sizeof *gather->parts);
    if (!gather || !gather->parts) {
        mem_free(gather);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    }
    gather->units = options->units;
    gather->n_units = options->n_units;
    gather->n_nodes = options->n_nodes;
    gather->n_files = options->units[options->n_units - 1].file + 1;
    gather->wholes = options->wholes;
    gather->suspect = GATHER_ANYBODY;
    gather->moved_ns = gather->shared_ns = now_ns;
    digest_chain_begin(&gather->chain);
    for (uint32_t i = 0; i < gather->n_nodes; i++)
        gather->nodes[i] = (struct gather_node){
            .must_order = true,
            .bytes = gather_header_bytes(gather),
            .moved_ns = now_ns,
            .peer_bytes_per_s = options->peer_bytes_per_s ? options->peer_bytes_per_s[i] : 0};
    for (uint32_t i = 0; i < gather->n_units; i++)
        gather->parts[i].owner = GATHER_ANYBODY;
    for (uint32_t i = 1; i < gather->n_units; i++) {
        if (options->owners[i] != GATHER_ANYBODY && !gather_is_everybodys(gather, i))
            gather_give(gather, i, options->owners[i]);
    }
    gather_give_all(gather);
    *out = gather;
    return ERROR_NONE;
}

void gather_free(struct gather *gather)
{
    if (gather)
        mem_free(gather->parts);
    mem_free(gather);
}

bool gather_again(struct gather *gather, uint64_t now_ns)
{
    if (!gather->is_wrong || gather->round + 1 >= GATHER_ROUNDS)
        return false;
    gather->round++;
    gather->is_wrong = false;
    gather->n_here = gather->chain_at = gather->chain_end = 0;
    gather->moved_ns = now_ns;
    digest_chain_begin(&gather->chain);
    for (uint32_t i = 0; i < gather->n_units; i++) {
        struct gather_part *part = &gather->parts[i];
        part->before = part->digest;
        part->is_here = part->has_digest = false;
    }
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        struct gather_node *node = &gather->nodes[i];
        node->must_order = true;
        memset(node->headers, 0, sizeof node->headers);
        node->n_headers = 0;
        node->here = node->hashed = 0;
        node->moved_ns = now_ns;
    }
    return true;
}

/* ---- what to do ------------------------------------------------------------------------------ */

static bool gather_is_chainable(const struct gather *gather, uint32_t node, uint32_t unit)
{
    return gather_is_everybodys(gather, unit)
               ? gather->nodes[node].headers[gather->units[unit].file]
               : gather->parts[unit].owner == node && gather->parts[unit].is_here;
}

/* Whether another can add the header, and goes on with what follows it. */
static bool gather_leaves_header(const struct gather *gather, uint32_t node, uint32_t header)
{
    const uint32_t file = gather->units[header].file;
    if (header + 1 == gather->n_units || gather->units[header + 1].file != file)
        return false;
    const uint32_t next = gather->parts[header + 1].owner;
    return next != GATHER_ANYBODY && next != node && gather->nodes[next].headers[file];
}

/* How far the node can add to the state, which is of one file. */
static uint32_t gather_chain_end(const struct gather *gather, uint32_t node, uint32_t first)
{
    uint32_t end = first;
    uint64_t bytes = 0;
    while (!gather->nodes[node].is_lost && end < gather->n_units && bytes < GATHER_CHAIN_BYTES &&
           gather->units[end].file == gather->units[first].file &&
           gather_is_chainable(gather, node, end))
        bytes += gather_bytes_of(gather, end++);
    if (end == first + 1 && gather_is_everybodys(gather, first) &&
        gather_leaves_header(gather, node, first))
        return first;
    return end;
}

static bool gather_next_chain(struct gather *gather, uint64_t now_ns, struct gather_action *out)
{
    const uint32_t first = gather->chain_at;
    if (first == gather->n_units || gather->chain_end > first)
        return false;
    for (uint32_t node = 0; node < gather->n_nodes; node++) {
        const uint32_t end = gather_chain_end(gather, node, first);
        if (end == first)
            continue;
        gather->chain_end = end;
        gather->chain_node = node;
        gather->chain_ns = now_ns;
        *out = (struct gather_action){GATHER_CHAIN, node, first, end, gather->chain};
        return true;
    }
    return false;
}

static double gather_needs_s(const struct gather *gather, uint32_t node)
{
    return (double)gather_rest(&gather->nodes[node]) / gather_speed(gather, node);
}

/* What an idle node takes over of one that needs the longest, from its end. */
static void gather_help(struct gather *gather, uint32_t helper, uint32_t slow)
{
    const double way = (double)gather->nodes[slow].peer_bytes_per_s;
    for (uint32_t unit = gather->n_units; unit-- > 1;) {
        const struct gather_part *part = &gather->parts[unit];
        const double bytes = (double)gather_bytes_of(gather, unit);
        if (part->owner != slow || part->is_here)
            continue; /* headers have no owner */
        const double helped_s =
            gather_needs_s(gather, helper) + bytes / gather_speed(gather, helper) + bytes / way;
        if (helped_s > 0.8 * gather_needs_s(gather, slow))
            return;
        gather_take_away(gather, unit);
        gather_give(gather, unit, helper);
    }
}

static void gather_share(struct gather *gather, uint64_t now_ns)
{
    if (now_ns - gather->shared_ns < GATHER_SHARE_MS * GATHER_MS)
        return;
    gather->shared_ns = now_ns;
    uint32_t slow = GATHER_ANYBODY;
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        const struct gather_node *node = &gather->nodes[i];
        if (!node->is_lost && node->bytes_per_s && node->peer_bytes_per_s &&
            gather_needs_s(gather, i) * 1e3 > GATHER_HELP_MS &&
            (slow == GATHER_ANYBODY || gather_needs_s(gather, i) > gather_needs_s(gather, slow)))
            slow = i;
    }
    for (uint32_t i = 0; slow != GATHER_ANYBODY && i < gather->n_nodes; i++) {
        const struct gather_node *node = &gather->nodes[i];
        if (i != slow && !node->is_lost && node->bytes_per_s && gather_rest(node) == 0)
            gather_help(gather, i, slow);
    }
}

/* Whether somebody else shows that bytes come. */
static bool gather_others_go_on(const struct gather *gather, uint64_t now_ns, uint32_t node)
{
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        const struct gather_node *other = &gather->nodes[i];
        if (i != node && !other->is_lost &&
            (gather_rest(other) == 0 || now_ns - other->moved_ns < GATHER_STALL_MS / 4 * GATHER_MS))
            return true;
    }
    return false;
}

static void gather_look(struct gather *gather, uint64_t now_ns)
{
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        struct gather_node *node = &gather->nodes[i];
        const bool chains = gather->chain_end > gather->chain_at && gather->chain_node == i;
        const bool waits = node->hashed < node->bytes || node->n_headers < gather->n_files;
        if (node->is_lost || (!waits && !chains))
            continue;
        const uint64_t since_ns =
            now_ns -
            (chains && gather->chain_ns > node->moved_ns ? gather->chain_ns : node->moved_ns);
        if (since_ns > GATHER_STALL_MS * GATHER_MS && gather_others_go_on(gather, now_ns, i))
            gather_lost(gather, now_ns, i);
    }
    gather->has_failed |=
        !gather_has_node(gather) || now_ns - gather->moved_ns > GATHER_PATIENCE_MS * GATHER_MS;
}

struct gather_action gather_next(struct gather *gather, uint64_t now_ns)
{
    struct gather_action action = {0};
    if (gather_status(gather) != GATHER_RUNNING)
        return action;
    gather_look(gather, now_ns);
    gather_share(gather, now_ns);
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        struct gather_node *node = &gather->nodes[i];
        if (!node->must_order || node->is_lost)
            continue;
        node->must_order = false;
        action.kind = GATHER_ORDER;
        action.node = i;
        return action;
    }
    gather_next_chain(gather, now_ns, &action);
    return action;
}

bool gather_is_of(const struct gather *gather, uint32_t node, uint32_t unit)
{
    assert(node < gather->n_nodes && unit < gather->n_units);
    return gather_is_everybodys(gather, unit) || gather->parts[unit].owner == node;
}

/* ---- what happened --------------------------------------------------------------------------- */

static void gather_moved(struct gather *gather, uint64_t now_ns, uint32_t node)
{
    gather->nodes[node].moved_ns = gather->moved_ns = now_ns;
}

bool gather_told(struct gather *gather, uint64_t now_ns, uint32_t node, uint64_t bytes,
                 uint64_t bytes_per_s)
{
    if (!gather_is_known(gather, node) || bytes > gather->nodes[node].bytes)
        return false; /* of an older order, or of nothing */
    struct gather_node *told = &gather->nodes[node];
    if (bytes != told->here)
        gather_moved(gather, now_ns, node);
    told->here = bytes;
    if (bytes_per_s)
        told->bytes_per_s = bytes_per_s;
    return true;
}

/* Whether the unit has one digest in all rounds' worth of saying. */
static bool gather_agree(struct gather *gather, uint32_t node, uint32_t unit,
                         const struct digest *digest)
{
    static const struct digest none;
    struct gather_part *part = &gather->parts[unit];
    if (part->has_digest)
        return digest_equal(&part->digest, digest);
    part->has_digest = true;
    part->digest = *digest;
    if (gather->round && !digest_equal(&part->before, &none) &&
        !digest_equal(&part->before, digest))
        gather->suspect = node;
    return true;
}

bool gather_hashed(struct gather *gather, uint64_t now_ns, uint32_t node, uint32_t unit,
                   const struct digest *digest)
{
    if (!gather_is_known(gather, node) || unit >= gather->n_units || gather->is_wrong)
        return false;
    struct gather_node *has = &gather->nodes[node];
    struct gather_part *part = &gather->parts[unit];
    const uint32_t file = gather->units[unit].file;
    const bool is_header = gather_is_everybodys(gather, unit);
    if (is_header ? has->headers[file] : part->owner != node || part->is_here)
        return false; /* given to another meanwhile, or said twice */
    gather_moved(gather, now_ns, node);
    if (!gather_agree(gather, node, unit, digest)) {
        gather->is_wrong = true;
        return true;
    }
    has->hashed += gather_bytes_of(gather, unit);
    if (is_header) {
        has->headers[file] = true;
        has->n_headers++;
    } else {
        part->is_here = true;
        gather->n_here++;
    }
    return true;
}

bool gather_chained(struct gather *gather, uint64_t now_ns, uint32_t node, uint32_t first,
                    uint32_t end, const struct digest_chain *chain)
{
    struct digest digest;
    if (!gather_is_known(gather, node) || gather->chain_end <= gather->chain_at ||
        gather->chain_node != node || first != gather->chain_at || end != gather->chain_end ||
        chain->length != gather->units[end - 1].end)
        return false;
    gather_moved(gather, now_ns, node);
    gather->chain = *chain;
    gather->chain_at = end;
    if (end == gather->n_units || gather_is_everybodys(gather, end)) { /* a file ends there */
        digest_chain_end(chain, &digest);
        gather->is_wrong |= !digest_equal(&digest, &gather->wholes[gather->units[first].file]);
        digest_chain_begin(&gather->chain);
    }
    return true;
}

void gather_lost(struct gather *gather, uint64_t now_ns, uint32_t node)
{
    if (!gather_is_known(gather, node))
        return;
    struct gather_node *lost = &gather->nodes[node];
    lost->is_lost = true;
    lost->must_order = false;
    if (gather->chain_end > gather->chain_at && gather->chain_node == node)
        gather->chain_end = gather->chain_at;
    for (uint32_t unit = 1; unit < gather->n_units; unit++) {
        if (gather->parts[unit].owner == node)
            gather_take_away(gather, unit);
    }
    lost->must_order = false;
    gather->moved_ns = now_ns;
    gather_give_all(gather);
    gather->has_failed |= !gather_has_node(gather);
}

/* ---- how it stands --------------------------------------------------------------------------- */

enum gather_status gather_status(const struct gather *gather)
{
    if (gather->has_failed)
        return GATHER_FAILED;
    if (gather->is_wrong)
        return GATHER_WRONG;
    if (gather->n_here + gather->n_files < gather->n_units || gather->chain_at < gather->n_units)
        return GATHER_RUNNING;
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        if (!gather->nodes[i].is_lost && gather->nodes[i].n_headers < gather->n_files)
            return GATHER_RUNNING;
    }
    return GATHER_DONE;
}

uint32_t gather_round(const struct gather *gather)
{
    return gather->round;
}

const struct digest *gather_digest(const struct gather *gather, uint32_t unit)
{
    assert(unit < gather->n_units && gather->parts[unit].has_digest);
    return &gather->parts[unit].digest;
}

uint32_t gather_suspect(const struct gather *gather)
{
    return gather->suspect;
}

struct gather_progress gather_progress(const struct gather *gather, uint32_t node)
{
    const struct gather_node *of = &gather->nodes[node];
    assert(node < gather->n_nodes);
    return (struct gather_progress){.bytes = of->bytes,
                                    .here = of->bytes - gather_rest(of),
                                    .bytes_per_s = of->bytes_per_s,
                                    .is_lost = of->is_lost};
}

double gather_left_s(const struct gather *gather)
{
    double most = 0;
    bool is_known = false;
    for (uint32_t i = 0; i < gather->n_nodes; i++)
        is_known |= gather->nodes[i].bytes_per_s != 0;
    for (uint32_t i = 0; i < gather->n_nodes; i++) {
        const double s = gather->nodes[i].is_lost ? 0 : gather_needs_s(gather, i);
        most = s > most ? s : most;
    }
    return is_known ? most : -1;
}
