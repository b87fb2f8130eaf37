/* What the hub is asked before a gathering, and who fetches what. */
#include "node/gathering_impl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "mesh/link.h"
#include "model/gguf_file.h"
#include "model/model.h"
#include "node/lead.h"
#include "placing/placing.h"
#include "weights/manifest_layers.h"
#include "weights/manifest_make.h"

#include <string.h>

/* ---- the hub, on a thread -------------------------------------------------------------------- */

/* The very file, whatever else the name means. */
static void gather_name_file(const struct hub_list *list, const struct hub_file *file,
                             const char *word, struct gather_file *out)
{
    const struct hub_name *name = &list->name;
    if (name->kind == HUB_HF)
        snprintf(out->name, sizeof out->name, "hf:%s/%s/%s", name->owner, name->model, file->path);
    else
        snprintf(out->name, sizeof out->name, "%s", word);
    out->bytes = file->size;
}

static enum error_code gather_prepare_file(struct gather_prepared *prepared,
                                           const struct hub_list *list, struct error *err)
{
    char path[PATH_MAX];
    const struct hub_file *file;
    if (list->n_models != 1)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s means %u models; say which, as in "
                         "hf:ORG/REPO:Q4_K_M",
                         prepared->word, list->n_models);
    enum error_code code = hub_one_file(list, 0, &file, path, err);
    if (code)
        return code;
    gather_name_file(list, file, prepared->word, &prepared->file);
    if (!digest_parse(file->sha256, &prepared->file.whole))
        return error_set(err, ERROR_UNSUPPORTED, "the hub gives no SHA-256 of %s", file->path);
    if (gather_file_check(&prepared->file, err))
        return err->code = ERROR_UNSUPPORTED;
    return ERROR_NONE;
}

static enum error_code gather_prepare_run(struct gather_prepared *prepared, struct error *err)
{
    struct hub_name name;
    struct hub_list list = {0};
    const struct hub_settings settings = {.stop = &prepared->stop};
    enum error_code code = hub_name_parse(prepared->word, &name, err);
    if (code || !hub_find(&name, prepared->path, NULL))
        return code;
    prepared->path[0] = '\0';
    if (name.kind == HUB_URL)
        return error_set(err, ERROR_UNSUPPORTED, "a file of a server without a SHA-256");
    code = hub_list(&name, &settings, &list, err);
    if (!code)
        code = gather_prepare_file(prepared, &list, err);
    const uint64_t begin_ns = clock_now_ns();
    if (!code)
        code = hub_headers_open(&list, 0, &prepared->headers, err);
    const double s = (double)(clock_now_ns() - begin_ns) * 1e-9;
    prepared->header_bytes_per_s = (double)prepared->headers.received / (s > 1e-3 ? s : 1e-3);
    if (!code)
        code = model_open(prepared->headers.path, &prepared->model, err);
    hub_list_deinit(&list);
    return code;
}

static void *gather_prepare_main(void *arg)
{
    struct gather_prepared *prepared = arg;
    gather_prepare_run(prepared, &prepared->err);
    atomic_store(&prepared->is_done, true);
    return NULL;
}

struct gather_prepared *gather_prepare(const char *word, struct error *err)
{
    struct gather_prepared *prepared = mem_new(sizeof *prepared);
    if (!prepared) {
        error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
        return NULL;
    }
    snprintf(prepared->word, sizeof prepared->word, "%s", word);
    if (pthread_create(&prepared->thread, NULL, gather_prepare_main, prepared) == 0)
        return prepared;
    error_set(err, ERROR_BUSY, "no thread to ask the hub with");
    mem_free(prepared);
    return NULL;
}

void gather_prepared_free(struct gather_prepared *prepared)
{
    if (!prepared)
        return;
    atomic_store(&prepared->stop, true);
    pthread_join(prepared->thread, NULL);
    model_close(prepared->model);
    hub_headers_close(&prepared->headers);
    mem_free(prepared);
}

/* ---- who may --------------------------------------------------------------------------------- */

static bool gather_may(const struct daemon *daemon, const char *id, const Node__Now **now)
{
    const struct peer *peer = daemon_peer(daemon, id);
    const bool is_self = strcmp(id, daemon->id) == 0;
    *now = is_self ? daemon->now : peer ? peer->now : NULL;
    if (*now && ((*now)->lends_nothing || (*now)->stops || (*now)->takes_no_part))
        return false;
    return is_self || (peer && peer->link && !peer->is_silent &&
                       link_version(peer->link).minor >= GATHERING_MINOR);
}

static uint32_t gather_ask_find(const struct gather_ask *ask, const char *id)
{
    uint32_t i = 0;
    while (i < ask->n_nodes && strcmp(ask->nodes[i].id, id) != 0)
        i++;
    return i < ask->n_nodes ? i : GATHER_ANYBODY;
}

/* Its number; GATHER_ANYBODY: it is left out. */
static uint32_t gather_ask_add(struct gather_ask *ask, const char *id)
{
    const Node__Now *now;
    const uint32_t known = gather_ask_find(ask, id);
    if (known != GATHER_ANYBODY || ask->n_nodes == GATHER_NODES ||
        !gather_may(ask->gathering->daemon, id, &now))
        return known;
    struct gather_node_of *node = &ask->nodes[ask->n_nodes];
    *node = (struct gather_node_of){0};
    snprintf(node->id, sizeof node->id, "%s", id);
    return ask->n_nodes++;
}

/* How fast the quickest of the others gives it something. */
static uint64_t gather_peer_speed(const struct gather_ask *ask, uint32_t node)
{
    const Cluster__State *root = daemon_state(ask->gathering->daemon)->root;
    uint64_t best = 0;
    for (size_t i = 0; root && i < root->n_links; i++) {
        const Cluster__Link *link = root->links[i];
        if (link->from && link->to && strcmp(link->to, ask->nodes[node].id) == 0 &&
            gather_ask_find(ask, link->from) != GATHER_ANYBODY && link->bytes_per_s > best)
            best = link->bytes_per_s;
    }
    return best;
}

/* ---- who fetches what ------------------------------------------------------------------------ */

/* Parts of one stage alone are its node's; of those of several, each goes where the least is. */
struct gather_dealing {
    uint32_t *owners;
    uint64_t bytes[GATHER_NODES];
};

static void gather_deal(const struct gather_ask *ask, const struct part_set *sets,
                        uint32_t n_stages, const uint32_t *nodes, struct gather_dealing *dealing)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t part = 1; part < ask->manifest.n_parts; part++) {
            const uint64_t bytes = ask->manifest.parts[part].size;
            uint32_t best = GATHER_ANYBODY, n = 0;
            for (uint32_t i = 0; i < n_stages; i++) {
                if (nodes[i] == GATHER_ANYBODY || !part_set_has(&sets[i], part))
                    continue;
                n++;
                if (best == GATHER_ANYBODY || dealing->bytes[nodes[i]] < dealing->bytes[best])
                    best = nodes[i];
            }
            if (best == GATHER_ANYBODY || (n > 1) != (pass == 1))
                continue;
            dealing->owners[part] = best;
            dealing->bytes[best] += bytes;
        }
    }
}

static enum error_code gather_foresee(struct gather_ask *ask, const struct model *model,
                                      struct gather_dealing *dealing, struct error *err)
{
    static struct placing_foreseen foreseen; /* the loop's */
    struct daemon *daemon = ask->gathering->daemon;
    struct part_set sets[LIMIT_STAGES] = {0};
    uint32_t nodes[LIMIT_STAGES];
    Cluster__Demand demand;
    struct error why;
    struct place_demand wanted = ask->wanted;
    cluster__demand__init(&demand);
    wanted.context = wanted.context ? wanted.context : 1; /* the model is not known by name yet */
    daemon_demand(daemon, "", &wanted, &demand);
    demand.context_tokens = ask->wanted.context;
    if (placing_foresee(daemon_placing_view(daemon), model, &demand, &foreseen, &why))
        foreseen.n_stages = 0; /* where it goes is found later: all fetch */
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < foreseen.n_stages && !code; i++) {
        const struct placing_foreseen_stage *stage = &foreseen.stages[i];
        nodes[i] = gather_ask_add(ask, stage->node);
        code = part_set_init(&sets[i], ask->manifest.n_parts, err);
        if (!code)
            code = manifest_add_layers(&ask->manifest, model, stage->first_layer, stage->n_layers,
                                       &sets[i], err);
    }
    if (!code)
        gather_deal(ask, sets, foreseen.n_stages, nodes, dealing);
    for (uint32_t i = 0; i < foreseen.n_stages; i++)
        part_set_deinit(&sets[i]);
    for (const struct peer *peer = daemon->peers; peer && !foreseen.n_stages; peer = peer->next)
        gather_ask_add(ask, peer->id);
    return code;
}

static enum error_code gather_ask_units(struct gather_ask *ask, struct error *err)
{
    const struct manifest *manifest = &ask->manifest;
    if (manifest->n_parts > GATHER_UNITS)
        return error_set(err, ERROR_UNSUPPORTED, "a model of %u tensors", manifest->n_parts);
    ask->units = mem_new_array(manifest->n_parts, sizeof *ask->units);
    if (!ask->units)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    for (uint32_t i = 0; i < manifest->n_parts; i++) {
        const struct manifest_part *part = &manifest->parts[i];
        const bool is_last = i + 1 == manifest->n_parts;
        ask->units[i] = (struct gather_unit){
            part->offset, part->size, is_last ? manifest->size : manifest->parts[i + 1].offset};
    }
    return ERROR_NONE;
}

/* ---- when all have said what is there -------------------------------------------------------- */

/* Whose bytes are there already has them, whoever is to hold the layer: the other gets them from it
 * over their link. */
static void gather_prefer_here(const struct gather_ask *ask, uint64_t bytes[GATHER_NODES])
{
    for (uint32_t unit = 1; unit < ask->manifest.n_parts; unit++) {
        uint32_t *owner = &ask->owners[unit];
        const bool is_there = *owner != GATHER_ANYBODY && ask->nodes[*owner].has_looked &&
                              ask->nodes[*owner].has[unit];
        for (uint32_t i = 0; i < ask->n_nodes && !is_there; i++) {
            if (ask->nodes[i].has_looked && ask->nodes[i].has[unit])
                *owner = i;
        }
        if (*owner != GATHER_ANYBODY && !(ask->nodes[*owner].has && ask->nodes[*owner].has[unit]))
            bytes[*owner] += ask->manifest.parts[unit].size;
    }
}

/* A node whose disk has no room for what it would have fetches from the others later. */
static void gather_check_rooms(struct gather_ask *ask, const uint64_t bytes[GATHER_NODES])
{
    for (uint32_t i = 0; i < ask->n_nodes; i++) {
        struct gather_node_of *node = &ask->nodes[i];
        const Node__Now *now;
        gather_may(ask->gathering->daemon, node->id, &now);
        if (!node->problem[0] && now && now->has_disk_room_bytes &&
            now->disk_room_bytes < bytes[i] + ask->manifest.parts[0].size)
            snprintf(node->problem, sizeof node->problem, "its disk lacks room");
        if (node->problem[0])
            gather_lost(ask->gather, clock_now_ns(), i);
    }
}

enum error_code gather_ask_deal(struct gather_ask *ask, struct error *err)
{
    uint64_t speeds[GATHER_NODES], bytes[GATHER_NODES] = {0};
    gather_prefer_here(ask, bytes);
    for (uint32_t i = 0; i < ask->n_nodes; i++)
        speeds[i] = gather_peer_speed(ask, i);
    const struct gather_options options = {.units = ask->units,
                                           .n_units = ask->manifest.n_parts,
                                           .whole = ask->file.whole,
                                           .n_nodes = ask->n_nodes,
                                           .owners = ask->owners,
                                           .peer_bytes_per_s = speeds};
    const enum error_code code = gather_new(&options, clock_now_ns(), &ask->gather, err);
    if (!code)
        gather_check_rooms(ask, bytes);
    return code;
}

static enum error_code gather_ask_wish(struct gather_ask *ask, const struct model *model,
                                       struct error *err)
{
    struct gather_dealing dealing = {0};
    ask->owners = mem_new_array(ask->manifest.n_parts, sizeof *ask->owners);
    if (!ask->owners)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    for (uint32_t i = 0; i < ask->manifest.n_parts; i++)
        ask->owners[i] = GATHER_ANYBODY;
    dealing.owners = ask->owners;
    gather_ask_add(ask, ask->gathering->daemon->id); /* who asks registers the model */
    if (!ask->n_nodes) /* it lends nothing, and fetches all the same */
        memcpy(ask->nodes[ask->n_nodes++].id, ask->gathering->daemon->id, NODE_ID_TEXT);
    return gather_foresee(ask, model, &dealing, err);
}

enum error_code gather_ask_begin(struct gather_ask *ask, struct error *err)
{
    const struct gather_prepared *prepared = ask->prepared;
    ask->file = prepared->file;
    ask->header_bytes_per_s = prepared->header_bytes_per_s;
    enum error_code code = manifest_list(model_file(prepared->model), &ask->manifest, err);
    if (!code && ask->manifest.size != ask->file.bytes)
        code = error_set(err, ERROR_INVALID, "the header is of another file than the hub's list");
    if (!code)
        code = gather_ask_units(ask, err);
    if (!code)
        code = gather_ask_wish(ask, prepared->model, err);
    return code;
}
