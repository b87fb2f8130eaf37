/* What the node is asked and told: requests of docs/control.md. They come over STATE/control.sock,
 * which only its owner may open, from commands of the command line: one JSON object a line, both
 * ways. Or by daemon_begin_request() (daemon.h), from whoever opened the node: one request, and its
 * lines.
 *
 * Inside: a conversation is one request. Most are answered at once and it ends. Those that last
 * (join, place, events …) set `look`, `line` or `gone` and say control_end() when they are over.
 * A request's function does not know where its conversation comes from, but for
 * control_hears_more(). */
#pragma once

#include "node/daemon_state.h"

#include <yyjson.h>

struct conversation;

struct conversation_calls {
    void (*line)(struct conversation *conversation, yyjson_val *root); /* a further line */
    void (*bytes)(struct conversation *conversation, const uint8_t *bytes,
                  size_t size);                      /* instead of lines */
    void (*look)(struct conversation *conversation); /* something has changed */
    void (*event)(struct conversation *conversation, uint64_t index, const Cluster__Event *event,
                  bool applied);
    void (*gone)(
        struct conversation *conversation); /* it is over, whoever ended it: let go of `data` */
};

struct conversation {
    union { /* first */
        uv_handle_t handle;
        uv_pipe_t pipe;
        uv_timer_t timer; /* of daemon_begin_request(): it ends the conversation in the loop */
    };
    struct daemon_hearer
        hearer; /* of daemon_begin_request(); `line` NULL: it is one of the socket */
    struct conversation *next;
    struct control *control;
    struct daemon *daemon;
    struct buffer in;
    struct conversation_calls calls;
    void *data;
    char actor[AUDIT_WHO_TEXT]; /* "alice at tower": who is at the other end */
    struct place_demand wanted; /* of `place`, while its model is made known */
    uint64_t queued;            /* bytes on their way out */
    bool has_asked, closing, ends_when_sent;
};

struct control {
    uv_pipe_t pipe; /* first */
    struct daemon *daemon;
    struct conversation *conversations;
    void (*closed)(struct daemon *daemon);
    bool closing, pipe_closed;
    uint32_t n, n_heard; /* conversations; of daemon_begin_request() among them */
};

typedef void (*control_request_fn)(struct conversation *conversation, yyjson_val *root);
control_request_fn control_find(const char *name); /* control_commands.c; NULL: no such request */
/* Whether each member of a request that is known by its name has the type that it has in all of
 * them; those that are not known are ignored. control_commands.c. */
bool control_check_members(yyjson_val *request, struct error *err);

/* Whether a further line may come from the other end, such as `{"agree":true}`. */
bool control_hears_more(const struct conversation *conversation);

/* ---- answering ---- */
void control_send(struct conversation *conversation, const void *bytes, size_t size); /* copied */
/* The document's root as a line; takes the document. */
void control_answer(struct conversation *conversation, yyjson_mut_doc *doc);
void control_fail(struct conversation *conversation, const struct error *err); /* and ends it */
void control_end(struct conversation *conversation); /* when all is sent */
void control_answer_text(struct conversation *conversation, const char *key,
                         const char *text); /* {key: text}, the end */
yyjson_mut_val *
control_object(yyjson_mut_doc **doc); /* a new document with an object as its root */

/* ---- what several requests say ---- */
void control_put_instance(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *object,
                          const Cluster__Instance *instance);
/* `named` with the name of a model that the cluster knows; an absolute path is made known first. */
void control_name_model(struct conversation *conversation, const char *text,
                        void (*named)(struct conversation *conversation, const char *model));
/* The same for a name of a hub: the cluster fetches the model together (gathering.h), and lines say
 * how that goes. */
void control_gather(struct conversation *conversation, const char *text,
                    void (*named)(struct conversation *conversation, const char *model));
bool control_require_member(struct conversation *conversation); /* false: it has been told so */
/* What only an admin may change; false: it has been told why not, and whom to ask. */
bool control_require_admin(struct conversation *conversation);
const Cluster__Node *control_find_node(const struct daemon *daemon, const char *name,
                                       struct error *err); /* or id */
/* A change of the cluster; when it is agreed on the answer is {key: name}. */
void control_propose(struct conversation *conversation, Cluster__Event *event, const char *key,
                     const char *name);
/* The same with another answer, which it takes. */
void control_propose_answer(struct conversation *conversation, Cluster__Event *event,
                            const char *name, yyjson_mut_doc *answer);
/* A text of the request; NULL: not there, null, or no text. */
const char *control_text(yyjson_val *root, const char *key);
/* A type of weights (model/weight_type.h), as enum ggml_type; 0: not there, or as stored. False:
 * there is none of that name. */
bool control_weight_type(yyjson_val *root, const char *key, uint32_t *type, struct error *err);
/* What the request wants of an instance: all that `place` takes. False: it makes no sense, and the
 * conversation has ended with an error. control_wanted.c */
bool control_take_wanted(struct conversation *conversation, yyjson_val *request,
                         struct place_demand *wanted);
/* A whole number of the request, at most `max`; missing or null: `otherwise`. False: it is none,
 * and the conversation has ended with an error. */
bool control_number(struct conversation *conversation, yyjson_val *root, const char *key,
                    uint64_t max, uint64_t otherwise, uint64_t *out);

/* ---- requests, by file ---- */
void control_status(struct conversation *conversation, yyjson_val *root); /* control_show.c */
void control_nodes(struct conversation *conversation, yyjson_val *root);
void control_links(struct conversation *conversation, yyjson_val *root);
void control_cluster(struct conversation *conversation, yyjson_val *root);
void control_invite(struct conversation *conversation, yyjson_val *root); /* control_trust.c */
void control_join(struct conversation *conversation, yyjson_val *root);
void control_admit(struct conversation *conversation, yyjson_val *root);
void control_remove(struct conversation *conversation, yyjson_val *root);
void control_leave(struct conversation *conversation, yyjson_val *root);
void control_authority(struct conversation *conversation, yyjson_val *root);
void control_role(struct conversation *conversation, yyjson_val *root);
void control_add(struct conversation *conversation, yyjson_val *root); /* control_models.c */
void control_forget(struct conversation *conversation, yyjson_val *root);
void control_where(struct conversation *conversation, yyjson_val *root);
void control_place(struct conversation *conversation, yyjson_val *root);
void control_unload(struct conversation *conversation, yyjson_val *root);
void control_plan(struct conversation *conversation, yyjson_val *request); /* control_plan.c */
void control_drain(struct conversation *conversation, yyjson_val *root);   /* control_moves.c */
void control_moves(struct conversation *conversation, yyjson_val *root);
void control_move(struct conversation *conversation, yyjson_val *root);
/* `place` with the very stages that it is to have. */
void control_place_there(struct conversation *conversation, const char *model, yyjson_val *layers,
                         const struct place_demand *wanted);
void control_token(struct conversation *conversation, yyjson_val *root);  /* control_tokens.c */
void control_events(struct conversation *conversation, yyjson_val *root); /* control_events.c */
void control_live(struct conversation *conversation, yyjson_val *root);   /* control_live.c */
void control_alerts(struct conversation *conversation, yyjson_val *root); /* control_alerts.c */
void control_lend(struct conversation *conversation, yyjson_val *root);   /* lend.c */
void control_put_lending(const struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root);
void control_audit(struct conversation *conversation, yyjson_val *root);    /* control_audit.c */
void control_generate(struct conversation *conversation, yyjson_val *root); /* control_generate.c */
