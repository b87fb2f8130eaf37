/* The book of members: which nodes may talk to this one, and where they are.
 *
 * The cluster's state says so (book_follow()), but it is not there when it is needed first: a node
 * that has just been let in has no log yet, and one that starts again does not know what of its log
 * is agreed on before it has talked to others. So the book is a file of its own, in the state
 * folder: what the state said last.
 *
 * Who was removed is never let in again, also if the cluster is founded anew by nodes that had not
 * heard of it: those ids are only ever added, here and from the state, which has them also in a
 * snapshot; of very many the oldest give way (cluster/state.h says why that does no harm). A
 * machine that comes back joins with another key, and so another id.
 *
 * One thread. The file is written by the calls that change it. */
#pragma once

#include "base/buffer.h"
#include "cluster/lineage.h"
#include "cluster/state.h"
#include "trust/identity.h"

struct book;

/* No file, an empty book. ERROR_INVALID: damaged; the text says what to do. */
enum error_code book_open(const char *path, struct book **out, struct error *err);
void book_close(struct book *book);  /* NULL is fine */
void book_forget(struct book *book); /* the node has left its cluster: empty, and so is the file */

/* The admitted nodes of the state as it was at `index` of that lineage's log. An empty one says
 * nothing, nor does one that is older than what the book says already: a node that starts again, or
 * is new, sees all of the log's past before it sees who is a member now, and must not turn those
 * away who tell it. True: the book has changed. */
bool book_follow(struct book *book, const struct state *state, struct lineage lineage,
                 uint64_t index);
/* What a member gave a new one (book_encode()). ERROR_INVALID. */
enum error_code book_take(struct book *book, const void *bytes, size_t size, struct error *err);
/* One node more, before the state says so: who lets it in has to know it. */
void book_add(struct book *book, const char *id, const char *name);
void book_remove(struct book *book, const char *id); /* for good */

/* Ids, names, members and addresses, of as many nodes as fit into `size_max` bytes; and how old
 * that is. */
void book_encode(const struct book *book, size_t size_max, struct buffer *out);

bool book_admits(const struct book *book, const uint8_t node_id[NODE_ID_BYTES]);
bool book_was_removed(const struct book *book, const char *id);
size_t book_size(const struct book *book);
const Cluster__Node *book_at(const struct book *book, size_t i);
const Cluster__Node *book_find(const struct book *book, const char *id); /* NULL: unknown */
