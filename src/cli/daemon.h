/* A connection to the node that runs on this machine (`medley up`), over its control socket:
 * control.sock in the state folder (base/state_folder.h). Each side writes JSON objects, one a
 * line; the connection's end is the end.
 *
 *     struct daemon_client *node;
 *     if (daemon_client_open(&node, &err)) …
 *     yyjson_mut_doc *question = daemon_question("join");
 *     daemon_question_text(question, "host", NULL);
 *     if (daemon_client_send(node, question, &err) || daemon_client_receive(node, &answer, &err)) …
 *
 * What the node says is checked like anything foreign: a line that is longer than
 * LIMIT_CONTROL_LINE_BYTES, that is not a JSON object, or that ends in the middle is an error. One
 * thread at a time, but for daemon_client_write() beside one that reads. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

struct daemon_client;

/* ERROR_NOT_FOUND: no node runs here, and how to start one. */
enum error_code daemon_client_open(struct daemon_client **out, struct error *err);
void daemon_client_close(struct daemon_client *client); /* NULL is fine */

/* {"do": name}; more is added to its root. NULL when there is no memory, which daemon_client_send()
 * takes. */
yyjson_mut_doc *daemon_question(const char *name);
void daemon_question_text(yyjson_mut_doc *question, const char *key,
                          const char *text); /* copied; NULL: null */
void daemon_question_count(yyjson_mut_doc *question, const char *key,
                           uint32_t count); /* UINT32_MAX: null */

/* Writes the object as a line, and frees it. */
enum error_code daemon_client_send(struct daemon_client *client, yyjson_mut_doc *object,
                                   struct error *err);

/* The next line, as an object to be freed with yyjson_doc_free(). The node's own {"error": …} is
 * returned as that error. Waits as long as the node takes, or as daemon_client_hurry() says. At the
 * end ERROR_IO, or NULL where the end is an answer (daemon_client_receive_or_end()). */
enum error_code daemon_client_receive(struct daemon_client *client, yyjson_doc **out,
                                      struct error *err);
enum error_code daemon_client_receive_or_end(struct daemon_client *client, yyjson_doc **out,
                                             struct error *err);

/* From now on a node that is silent for LIMIT_CONTROL_ANSWER_MS is given up (ERROR_IO). */
void daemon_client_hurry(struct daemon_client *client);

/* Sends the question and receives its one answer, over a connection of its own. */
enum error_code daemon_ask(yyjson_mut_doc *question, bool hurry, yyjson_doc **out,
                           struct error *err);

/* Bytes as they are, for what follows the lines of {"do": "generate"}. daemon_client_read() waits
 * for all of them; ERROR_IO at the end. daemon_client_wait() waits until there is something to
 * read, or the descriptor `wake` has something; *woken says that it has. daemon_client_hang_up()
 * ends both, from any thread; the client must still be closed. */
enum error_code daemon_client_write(struct daemon_client *client, const void *bytes, size_t size,
                                    struct error *err);
enum error_code daemon_client_read(struct daemon_client *client, void *bytes, size_t size,
                                   struct error *err);
enum error_code daemon_client_wait(struct daemon_client *client, int wake, bool *woken,
                                   struct error *err);
void daemon_client_hang_up(struct daemon_client *client);
