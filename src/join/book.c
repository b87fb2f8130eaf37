#include "join/book.h"

#include "base/durable_file.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/event.h"

#include "node.pb-c.h"

#include <string.h>

/* Beside those of the state, those of before there were roles. */
enum { BOOK_REMOVED_MAX = 2 * LIMIT_CLUSTER_REMOVED };

struct book {
    char path[PATH_MAX];
    Node__Book *content;
};

/* ---- the file -------------------------------------------------------------------------- */

static void book_save(const struct book *book)
{
    struct buffer bytes = {0};
    struct error err;
    message_encode(&book->content->base, &bytes);
    if (bytes.failed)
        log_line(LOG_WARN, "book", "out of memory for writing %s", book->path);
    else if (durable_replace(book->path, bytes.data ? bytes.data : "", bytes.size, &err))
        log_line(LOG_WARN, "book", "%s", err.text);
    buffer_deinit(&bytes);
}

static bool is_sound(const Node__Book *content)
{
    uint8_t id[NODE_ID_BYTES];
    for (size_t i = 0; i < content->n_nodes; i++) {
        if (!content->nodes[i]->id || !id_parse(content->nodes[i]->id, id, sizeof id))
            return false;
    }
    for (size_t i = 0; i < content->n_removed; i++) {
        if (!id_parse(content->removed[i], id, sizeof id))
            return false;
    }
    return content->n_nodes <= LIMIT_CLUSTER_NODES;
}

static enum error_code book_decode(const void *bytes, size_t size, Node__Book **out,
                                   struct error *err)
{
    ProtobufCMessage *message = NULL;
    enum error_code code = message_decode(&node__book__descriptor, bytes, size, &message, err);
    if (!code && !is_sound((Node__Book *)message)) {
        message_free(message);
        code = error_set(err, ERROR_INVALID, "it is not a list of nodes");
    }
    *out = code ? NULL : (Node__Book *)message;
    return code;
}

enum error_code book_open(const char *path, struct book **out, struct error *err)
{
    struct buffer bytes = {0};
    struct book *book = mem_new(sizeof *book);
    if (!book)
        return error_set(err, ERROR_NO_MEMORY, "out of memory for the list of nodes");
    strncpy(book->path, path, sizeof book->path - 1);
    enum error_code code = durable_read(path, LIMIT_CLUSTER_SNAPSHOT_BYTES, 0, &bytes, err);
    if (code == ERROR_NOT_FOUND)
        code = ERROR_NONE;
    if (!code)
        code = book_decode(bytes.data ? bytes.data : "", bytes.size, &book->content, err);
    buffer_deinit(&bytes);
    if (code) {
        mem_free(book);
        return error_wrap(err, "%s: it is damaged; restore it, or remove it and join again", path);
    }
    *out = book;
    return ERROR_NONE;
}

void book_close(struct book *book)
{
    if (!book)
        return;
    message_free(&book->content->base);
    mem_free(book);
}

/* ---- changing it ------------------------------------------------------------------------ */

/* Takes `content`, but keeps who was removed. */
static void book_replace(struct book *book, Node__Book *content)
{
    for (size_t i = 0; i < book->content->n_removed; i++) {
        char *id = book->content->removed[i];
        for (size_t j = content->n_nodes; j-- > 0;) {
            if (strcmp(content->nodes[j]->id, id) == 0)
                message_free(&content->nodes[j]->base),
                    content->nodes[j] = content->nodes[--content->n_nodes];
        }
    }
    /* The lists change places, so that each is freed with the message that it is in. */
    char **removed = content->removed;
    size_t n_removed = content->n_removed;
    content->removed = book->content->removed;
    content->n_removed = book->content->n_removed;
    book->content->removed = removed;
    book->content->n_removed = n_removed;
    message_free(&book->content->base);
    book->content = content;
    book_save(book);
}

/* But for their ages. */
static bool book_is_same(const Node__Book *a, const Node__Book *b)
{
    struct buffer one = {0}, other = {0};
    message_encode(&a->base, &one);
    message_encode(&b->base, &other);
    bool same = !one.failed && !other.failed && one.size == other.size &&
                memcmp(one.data, other.data, one.size) == 0;
    buffer_deinit(&one);
    buffer_deinit(&other);
    return same;
}

/* What the book keeps of a node: not its devices. */
static Cluster__Node short_of(const Cluster__Node *node)
{
    Cluster__Node out = CLUSTER__NODE__INIT;
    out.id = node->id;
    out.name = node->name;
    out.has_member = node->has_member;
    out.member = node->member;
    out.n_addresses = node->n_addresses;
    out.addresses = node->addresses;
    return out;
}

static void set_age(Node__Book *content, struct lineage lineage, uint64_t index)
{
    content->has_generation = content->has_founder = content->has_index = true;
    content->generation = lineage.generation;
    content->founder = lineage.founder;
    content->index = index;
}

static bool is_older(const Node__Book *content, struct lineage lineage, uint64_t index)
{
    const struct lineage own = {content->generation, content->founder};
    const int order = lineage_compare(lineage, own);
    return order < 0 || (order == 0 && index < content->index);
}

/* A message of these nodes that owns its memory: by way of its bytes; as old as `book`. NULL: no
 * memory. */
static Node__Book *book_copy_of(const Node__Book *book, Cluster__Node *shorts, size_t n,
                                char **removed, size_t n_removed)
{
    Node__Book view = NODE__BOOK__INIT, *out = NULL;
    struct buffer bytes = {0};
    Cluster__Node **list = mem_new_array(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++)
        list[i] = &shorts[i];
    view.n_nodes = list ? n : 0;
    view.nodes = list;
    view.n_removed = n_removed;
    view.removed = removed;
    set_age(&view, (struct lineage){book->generation, book->founder}, book->index);
    if (list)
        message_encode(&view.base, &bytes);
    if (list && !bytes.failed)
        book_decode(bytes.data ? bytes.data : "", bytes.size, &out, NULL);
    buffer_deinit(&bytes);
    mem_free(list);
    return out;
}

static bool id_is_among(char *const *ids, size_t n, const char *id)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(ids[i], id) == 0)
            return true;
    }
    return false;
}

/* The book's removed ids and these, each once; the oldest give way. Points into both. NULL: no
 * memory. */
static char **all_removed(const Node__Book *content, char *const *ids, size_t n_ids, size_t *n)
{
    uint8_t id[NODE_ID_BYTES];
    char **list = mem_new_array(content->n_removed + n_ids + 1, sizeof *list);
    *n = list ? content->n_removed : 0;
    for (size_t i = 0; i < *n; i++)
        list[i] = content->removed[i];
    for (size_t i = 0; list && i < n_ids; i++) {
        if (id_parse(ids[i], id, sizeof id) && !id_is_among(list, *n, ids[i]))
            list[(*n)++] = ids[i];
    }
    if (*n > BOOK_REMOVED_MAX) {
        memmove(list, list + (*n - BOOK_REMOVED_MAX), BOOK_REMOVED_MAX * sizeof *list);
        *n = BOOK_REMOVED_MAX;
    }
    return list;
}

static bool book_knows_removed(const struct book *book, char *const *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!book_was_removed(book, ids[i]))
            return false;
    }
    return true;
}

/* For good, and out of the list of those who are in. True: the book has changed. */
static bool book_remove_all(struct book *book, char *const *ids, size_t n_ids)
{
    Node__Book *content = book->content, *next = NULL;
    size_t n_removed = 0, n = 0;
    if (book_knows_removed(book, ids, n_ids))
        return false;
    char **removed = all_removed(content, ids, n_ids, &n_removed);
    Cluster__Node *shorts = mem_new_array(content->n_nodes + 1, sizeof *shorts);
    for (size_t i = 0; shorts && removed && i < content->n_nodes; i++) {
        if (!id_is_among(removed, n_removed, content->nodes[i]->id))
            shorts[n++] = short_of(content->nodes[i]);
    }
    if (shorts && removed)
        next = book_copy_of(content, shorts, n, removed, n_removed);
    mem_free(shorts);
    mem_free(removed);
    if (!next) {
        log_line(LOG_WARN, "book", "out of memory for recording that a node was removed");
        return false;
    }
    message_free(&content->base);
    book->content = next;
    book_save(book);
    return true;
}

void book_remove(struct book *book, const char *id)
{
    char *const one = (char *)(uintptr_t)id;
    book_remove_all(book, &one, 1);
}

bool book_follow(struct book *book, const struct state *state, struct lineage lineage,
                 uint64_t index)
{
    const Cluster__State *root = state->root;
    if (!root || !root->n_nodes || is_older(book->content, lineage, index))
        return false;
    set_age(book->content, lineage, index); /* on the disk when something else has changed, too */
    const bool removes = book_remove_all(book, root->removed, root->n_removed);
    Cluster__Node *shorts = mem_new_array(root->n_nodes, sizeof *shorts);
    size_t n = 0;
    for (size_t i = 0; shorts && i < root->n_nodes; i++) {
        if (root->nodes[i]->admitted && !book_was_removed(book, root->nodes[i]->node->id))
            shorts[n++] = short_of(root->nodes[i]->node);
    }
    Node__Book *content = shorts ? book_copy_of(book->content, shorts, n, book->content->removed,
                                                book->content->n_removed)
                                 : NULL;
    mem_free(shorts);
    if (!content || book_is_same(content, book->content)) {
        message_free(content ? &content->base : NULL);
        return removes;
    }
    book_replace(book, content);
    return true;
}

enum error_code book_take(struct book *book, const void *bytes, size_t size, struct error *err)
{
    Node__Book *content = NULL;
    enum error_code code = book_decode(bytes, size, &content, err);
    if (!code)
        book_replace(book, content);
    return code;
}

void book_add(struct book *book, const char *id, const char *name)
{
    size_t n = book->content->n_nodes;
    if (book_find(book, id))
        return;
    Cluster__Node *shorts = mem_new_array(n + 1, sizeof *shorts);
    for (size_t i = 0; shorts && i < n; i++)
        shorts[i] = short_of(book->content->nodes[i]);
    if (shorts) {
        cluster__node__init(&shorts[n]);
        shorts[n].id = (char *)(uintptr_t)id;
        shorts[n].name = (char *)(uintptr_t)name;
    }
    Node__Book *content = shorts ? book_copy_of(book->content, shorts, n + 1,
                                                book->content->removed, book->content->n_removed)
                                 : NULL;
    mem_free(shorts);
    if (content)
        book_replace(book, content);
}

void book_forget(struct book *book)
{
    Node__Book *nothing = NULL;
    if (book_decode("", 0, &nothing, NULL))
        return;
    message_free(&book->content->base);
    book->content = nothing;
    book_save(book);
}

/* ---- asking it --------------------------------------------------------------------------- */

void book_encode(const struct book *book, size_t size_max, struct buffer *out)
{
    Node__Book view = NODE__BOOK__INIT;
    view.nodes = book->content->nodes;
    view.n_nodes = book->content->n_nodes;
    set_age(&view, (struct lineage){book->content->generation, book->content->founder},
            book->content->index);
    while (view.n_nodes && node__book__get_packed_size(&view) > size_max)
        view.n_nodes--;
    message_encode(&view.base, out);
}

bool book_was_removed(const struct book *book, const char *id)
{
    for (size_t i = 0; i < book->content->n_removed; i++) {
        if (strcmp(book->content->removed[i], id) == 0)
            return true;
    }
    return false;
}

size_t book_size(const struct book *book)
{
    return book->content->n_nodes;
}

const Cluster__Node *book_at(const struct book *book, size_t i)
{
    return book->content->nodes[i];
}

const Cluster__Node *book_find(const struct book *book, const char *id)
{
    for (size_t i = 0; i < book->content->n_nodes; i++) {
        if (strcmp(book->content->nodes[i]->id, id) == 0)
            return book->content->nodes[i];
    }
    return NULL;
}

bool book_admits(const struct book *book, const uint8_t node_id[NODE_ID_BYTES])
{
    char id[NODE_ID_TEXT];
    id_text(node_id, NODE_ID_BYTES, id);
    return !book_was_removed(book, id) && book_find(book, id);
}
