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
                                           const struct hub_list *list, uint32_t index,
                                           struct error *err)
{
    char path[PATH_MAX];
    const struct hub_file *file;
    struct gather_file *out = &prepared->files[index];
    enum error_code code = hub_model_file(list, 0, index, &file, path, err);
    if (code)
        return code;
    gather_name_file(list, file, prepared->word, out);
    if (!digest_parse(file->sha256, &out->whole))
        return error_set(err, ERROR_UNSUPPORTED, "the hub gives no SHA-256 of %s", file->path);
    if (gather_file_check(out, err))
        return err->code = ERROR_UNSUPPORTED;
    return ERROR_NONE;
}

static enum error_code gather_prepare_files(struct gather_prepared *prepared,
                                            const struct hub_list *list, struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (list->n_models != 1)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s means %u models; say which, as in "
                         "hf:ORG/REPO:Q4_K_M",
                         prepared->word, list->n_models);
    const uint32_t n = list->models[0].n_files;
    if (n > GATHER_FILES)
        return error_set(err, ERROR_UNSUPPORTED, "%s is a model of %u files", prepared->word, n);
    prepared->files = mem_new_array(n, sizeof *prepared->files);
    prepared->header_bytes = mem_new_array(n, sizeof *prepared->header_bytes);
    prepared->header_digests = mem_new_array(n, sizeof *prepared->header_digests);
    if (!prepared->files || !prepared->header_bytes || !prepared->header_digests)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    prepared->n_files = n;
    for (uint32_t i = 0; i < n && !code; i++)
        code = gather_prepare_file(prepared, list, i, err);
    return code;
}

/* What of each file is header, and of several files its SHA-256: the one header that is made of
 * them is right if they turn out to be the hub's. */
static enum error_code gather_prepare_headers(struct gather_prepared *prepared, struct error *err)
{
    const struct gguf_file *file = model_file(prepared->model);
    const uint32_t n = prepared->n_files;
    uint64_t first = gguf_file_size(file);
    enum error_code code = ERROR_NONE;
    if (gguf_file_part_count(file) != n)
        return error_set(err, ERROR_INVALID, "the headers are of %u files, but the hub has %u",
                         gguf_file_part_count(file), n);
    for (uint32_t i = 0; i < n; i++)
        prepared->header_bytes[i] = prepared->files[i].bytes;
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++) {
        const uint64_t offset = gguf_file_tensor(file, i)->offset;
        uint32_t in;
        uint64_t at;
        if (!gguf_file_place(file, offset, &in, &at))
            return error_set(err, ERROR_INVALID, "a tensor lies in none of the files");
        first = offset < first ? offset : first;
        if (at < prepared->header_bytes[in])
            prepared->header_bytes[in] = at;
    }
    for (uint32_t i = 0; i < n && n > 1 && !code; i++)
        code = digest_file(gguf_file_part_descriptor(file, i), 0, prepared->header_bytes[i], NULL,
                           NULL, &prepared->header_digests[i], err);
    return code ? code : digest_of(gguf_file_bytes(file), (size_t)first, &prepared->header, err);
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
        code = gather_prepare_files(prepared, &list, err);
    const uint64_t begin_ns = clock_now_ns();
    if (!code)
        code = hub_headers_open(&list, 0, &prepared->headers, err);
    const double s = (double)(clock_now_ns() - begin_ns) * 1e-9;
    prepared->header_bytes_per_s = (double)prepared->headers.received / (s > 1e-3 ? s : 1e-3);
    if (!code)
        code = model_open(prepared->headers.path, &prepared->model, err);
    if (!code)
        code = gather_prepare_headers(prepared, err);
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
    mem_free(prepared->files);
    mem_free(prepared->header_bytes);
    mem_free(prepared->header_digests);
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

/* Each file's header and tensors, in the files' order. */
static void gather_ask_fill_units(struct gather_ask *ask, const struct model *model)
{
    const struct gguf_file *joined = model_file(model);
    uint32_t part = 1, n = 0;
    for (uint32_t file = 0; file < ask->n_files; file++) {
        uint32_t in;
        uint64_t at;
        ask->parts[n] = ask->n_files == 1 ? MANIFEST_HEADER : GATHER_NO_PART;
        ask->units[n++] = (struct gather_unit){
            .size = ask->prepared->header_bytes[file], .end = ask->files[file].bytes, .file = file};
        for (; part < ask->manifest.n_parts; part++) {
            const struct manifest_part *of = &ask->manifest.parts[part];
            if (!gguf_file_place(joined, of->offset, &in, &at) || in != file)
                break;
            ask->units[n - 1].end = at;
            ask->parts[n] = part;
            ask->units[n++] = (struct gather_unit){at, of->size, ask->files[file].bytes, file};
        }
    }
    ask->n_units = n;
}

static enum error_code gather_ask_units(struct gather_ask *ask, const struct model *model,
                                        struct error *err)
{
    const uint32_t n = ask->manifest.n_parts - 1 + ask->n_files;
    if (n > GATHER_UNITS)
        return error_set(err, ERROR_UNSUPPORTED, "a model of %u tensors", ask->manifest.n_parts);
    ask->units = mem_new_array(n, sizeof *ask->units);
    ask->parts = mem_new_array(n, sizeof *ask->parts);
    if (!ask->units || !ask->parts)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    gather_ask_fill_units(ask, model);
    return ask->n_units == n
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID, "the header is of other files than the hub's list");
}

/* ---- when all have said what is there -------------------------------------------------------- */

/* Whose bytes are there already has them, whoever is to hold the layer: the other gets them from it
 * over their link. */
static void gather_prefer_here(const struct gather_ask *ask, uint64_t bytes[GATHER_NODES])
{
    for (uint32_t unit = 0; unit < ask->n_units; unit++) {
        uint32_t *owner = &ask->owners[unit];
        if (gather_is_header(ask->units, unit))
            continue;
        const bool is_there =
            *owner != GATHER_ANYBODY && ask->nodes[*owner].has && ask->nodes[*owner].has[unit];
        for (uint32_t i = 0; i < ask->n_nodes && !is_there; i++) {
            if (ask->nodes[i].has && ask->nodes[i].has[unit])
                *owner = i;
        }
        if (*owner != GATHER_ANYBODY && !(ask->nodes[*owner].has && ask->nodes[*owner].has[unit]))
            bytes[*owner] += ask->units[unit].size;
    }
}

/* Headers, which all need; and of several files room for a second copy of the largest. */
static uint64_t gather_beside(const struct gather_ask *ask)
{
    uint64_t bytes = 0, most = 0;
    for (uint32_t unit = 0; unit < ask->n_units; unit++)
        bytes += gather_is_header(ask->units, unit) ? ask->units[unit].size : 0;
    for (uint32_t i = 0; i < ask->n_files && ask->n_files > 1; i++)
        most = ask->files[i].bytes > most ? ask->files[i].bytes : most;
    return bytes + most;
}

/* A node whose disk has no room for what it would have fetches from the others later. */
static void gather_check_rooms(struct gather_ask *ask, const uint64_t bytes[GATHER_NODES])
{
    const uint64_t beside = gather_beside(ask);
    for (uint32_t i = 0; i < ask->n_nodes; i++) {
        struct gather_node_of *node = &ask->nodes[i];
        const Node__Now *now;
        gather_may(ask->gathering->daemon, node->id, &now);
        if (!node->problem[0] && now && now->has_disk_room_bytes &&
            now->disk_room_bytes <
                bytes[i] + (beside < 2 * bytes[i] || ask->n_files == 1 ? beside : 2 * bytes[i]))
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
                                           .n_units = ask->n_units,
                                           .wholes = ask->wholes,
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
    dealing.owners = mem_new_array(ask->manifest.n_parts, sizeof *dealing.owners);
    ask->owners = mem_new_array(ask->n_units, sizeof *ask->owners);
    if (!ask->owners || !dealing.owners) {
        mem_free(dealing.owners);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    }
    for (uint32_t i = 0; i < ask->manifest.n_parts; i++)
        dealing.owners[i] = GATHER_ANYBODY;
    gather_ask_add(ask, ask->gathering->daemon->id); /* who asks registers the model */
    if (!ask->n_nodes) /* it lends nothing, and fetches all the same */
        memcpy(ask->nodes[ask->n_nodes++].id, ask->gathering->daemon->id, NODE_ID_TEXT);
    const enum error_code code = gather_foresee(ask, model, &dealing, err);
    for (uint32_t i = 0; i < ask->n_units; i++)
        ask->owners[i] =
            gather_is_header(ask->units, i) ? GATHER_ANYBODY : dealing.owners[ask->parts[i]];
    mem_free(dealing.owners);
    return code;
}

/* What the hub's answer says, taken over. */
static enum error_code gather_ask_files(struct gather_ask *ask, struct gather_prepared *prepared,
                                        struct error *err)
{
    ask->wholes = mem_new_array(prepared->n_files, sizeof *ask->wholes);
    if (!ask->wholes)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory to gather a model");
    ask->files = prepared->files;
    ask->n_files = prepared->n_files;
    ask->header = prepared->header;
    ask->headers = prepared->header_digests;
    prepared->files = NULL;
    prepared->header_digests = NULL;
    for (uint32_t i = 0; i < ask->n_files; i++) {
        ask->wholes[i] = ask->files[i].whole;
        ask->bytes += ask->files[i].bytes;
    }
    return ERROR_NONE;
}

enum error_code gather_ask_begin(struct gather_ask *ask, struct error *err)
{
    struct gather_prepared *prepared = ask->prepared;
    ask->header_bytes_per_s = prepared->header_bytes_per_s;
    enum error_code code = gather_ask_files(ask, prepared, err);
    if (!code)
        code = manifest_list(model_file(prepared->model), &ask->manifest, err);
    if (!code && ask->n_files == 1 && ask->manifest.size != ask->bytes)
        code = error_set(err, ERROR_INVALID, "the header is of another file than the hub's list");
    if (!code)
        code = gather_ask_units(ask, prepared->model, err);
    if (!code)
        code = gather_ask_wish(ask, prepared->model, err);
    return code;
}
