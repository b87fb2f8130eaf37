/* This machine's node: a member of a cluster, or one that waits to become one.
 *
 * A service of node.h. It owns what makes the node (identity, list of members, links, the
 * replicated log, models, stages, requests) and joins these parts, none of which knows another: an
 * event of one becomes a call of the next.
 *
 *     STATE/identity/    keys (trust/identity_files.h)         STATE/cluster.db   the log
 *                        (cluster/store.h)
 *     STATE/nodes        the book of members (book.h)         STATE/models/ …    weights
 *                        (weights.h)
 *     STATE/control.sock commands (control.h)                 STATE/lock         one node a folder
 *     STATE/tokens-made  empty: the API asks for a token (daemon_tokens.c)
 *
 * First start: it listens for clusters on the local networks for a moment. Where there is one it
 * waits to be let in, by a join code or by hand; else it founds one. All on the loop's thread. */
#pragma once

#include "audit/note.h"
#include "base/live_feed.h"
#include "engine/activation.h"
#include "mesh/mesh.h"
#include "trust/pair_keeper.h"

#include <limits.h>

struct children;
struct daemon;
struct gpu;
struct heat;
struct generator;
struct model;
struct tokenizer;
struct chat_template;

enum { DAEMON_PORT = 7979, DAEMON_PEERS_MAX = 16 };

struct daemon_options {
    const char *folder; /* STATE; made when it is missing */
    const char *name;   /* of this machine, for people; NULL: its host name */
    const char *host;   /* to listen on, numeric; NULL: everywhere, IPv4 and IPv6 */
    uint16_t port;      /* 0: any free one */
    enum mesh_transport transport;
    enum activation_type wire; /* hidden states between machines */
    bool no_discovery;
    bool founds;                         /* do not look for a cluster first */
    const char *peers[DAEMON_PEERS_MAX]; /* HOST or HOST:PORT, dialled whatever discovery finds */
    uint32_t n_peers;
    const char *join_code; /* NULL: none */
    /* Where alerts are told while this node leads (alert_hook.h); NULL: nowhere. */
    const char *alert_webhook, *alert_webhook_file, *alert_secret_file;
    bool no_moves; /* as leader it moves no instance for gain */
    uint64_t
        patience_ms; /* how long a request waits for its instance; 0: LIMIT_RELAY_PATIENCE_MS */
    /* What the owner lends, beside what was said before (lending/lending.h); kept from now on. */
    struct daemon_lend {
        const char *setting, *value;
    } lends[8];
    uint32_t n_lends;
    uint64_t models_max_bytes; /* of fetched models; 0: no limit but the disk */
    struct gpu *gpu;           /* the devices to offer; outlives it */
    struct heat *heat;         /* NULL: not watched */
    bool no_calibrate;         /* devices are measured by hand alone */
    struct children *children; /* their processes; NULL: they compute in this one. Outlives it */
    bool says_to_terminal; /* `say` reaches a person, and is not kept: it may show a join code */
    /* A line for whoever sits at the terminal. */
    void (*say)(void *self, const char *line);
    /* The node is to be stopped now: it has left its cluster (why NULL), or cannot go on. Once;
     * from the loop. */
    void (*over)(void *self, const struct error *why);
    void *self;
};

/* ERROR_BUSY: a node runs in that folder. For who wants to know before anything is opened;
 * daemon_open() looks again.
 */
enum error_code daemon_check_folder(const char *folder, struct error *err);

enum error_code daemon_open(uv_loop_t *loop, const struct daemon_options *options,
                            struct daemon **out, struct error *err);
/* In order: requests end, links are closed. */
void daemon_stop(struct daemon *daemon, void (*stopped)(void *arg), void *arg);
void daemon_free(struct daemon *daemon);
/* All of that at once, running the loop: for a process that could not begin. */
void daemon_close_now(struct daemon *daemon);

/* What is watched live (node/live.h); good as long as the daemon. */
struct live_feed daemon_live_feed(struct daemon *daemon);

/* For the status: where the HTTP API listens; NULL: nowhere. Copied. */
void daemon_set_api(struct daemon *daemon, const char *url);
/* What the API needs for its certificate: the cluster's authority, as long as the daemon lives, and
 * the name of this machine. */
struct pair_source daemon_api_source(struct daemon *daemon);
const char *daemon_own_name(const struct daemon *daemon);
const char *daemon_own_id(const struct daemon *daemon);

/* Places a model's file over the cluster and says how that went through `say`. */
void daemon_serve_file(struct daemon *daemon, const char *path);

/* ---- requests of docs/control.md (control.h), asked otherwise than over the socket ---- */

struct conversation;
struct daemon_hearer {
    void (*line)(void *self, const char *line, size_t size); /* a JSON object and a line feed */
    void (*ended)(void *self); /* nothing more comes; not after daemon_cancel_request() */
    void *self;
};
/* Asks `name` with the fields of `body`, a JSON object of at most 64 KiB ("": none). `actor` is who
 * asks, for the record: "token ci". Lines come at once or later. ERROR_INVALID, ERROR_BUSY,
 * ERROR_NO_MEMORY: it was not asked, and the hearer hears nothing. *out: to cancel it; NULL: it has
 * ended already. */
enum error_code daemon_begin_request(struct daemon *daemon, const char *name, const char *body,
                                     size_t size, const char *actor,
                                     const struct daemon_hearer *hearer, struct conversation **out,
                                     struct error *err);
/* Nobody listens any more: what it still waits for is let go of. Before it has ended. */
void daemon_cancel_request(struct conversation *conversation);

/* Where a part of this node tells what is to be recorded (audit/note.h). */
struct audit_sink daemon_audit_sink(struct daemon *daemon);

/* ---- access tokens (trust/access_token.h) ---- */

struct access_grant;
bool daemon_find_token(const struct daemon *daemon, const uint8_t *hash, struct access_grant *out);
/* Whether the cluster has, or once had, a token, as far as this node ever knew: also in the moment
 * after a start in which it does not have the cluster's state yet. */
bool daemon_has_had_tokens(const struct daemon *daemon);
/* The same of a node that does not run. */
bool daemon_folder_has_had_tokens(const char *folder);
/* Whether it has the cluster's state, and so the tokens. */
bool daemon_knows_tokens(const struct daemon *daemon);
/* Whether the token's bindings let it use the model where that runs now; `lists`: know of it.
 * False: `why` names what it is bound to. A model that is not loaded may be placed anywhere, so a
 * token that is bound to machines cannot have it loaded. */
bool daemon_token_may_use(const struct daemon *daemon, const uint8_t *hash, const char *model,
                          bool lists, struct error *why);

struct metrics_page;
/* What this node knows, for /metrics (metrics/table.h says who shows what). */
void daemon_write_metrics(struct daemon *daemon, struct metrics_page *page);

/* ---- the models that can be asked for ---- */

struct request_run;
/* What computes the model's requests now, and whether they wait: for their records. */
void daemon_describe_run(struct daemon *daemon, const char *model, struct request_run *out);

void daemon_list_models(struct daemon *daemon, void (*each)(void *arg, const char *name),
                        void *arg);

struct daemon_text { /* what turns words into a model's tokens and back, and who generates */
    const char *name;
    const struct model *model;
    struct tokenizer *tokenizer;
    struct chat_template *chat_template;
    struct generator *generator;
    const char *defaults; /* what requests begin with (library/defaults.h); NULL: nothing */
};
/* Of a model of the cluster; good until the loop goes on. NULL: none. */
const char *daemon_model_defaults(const struct daemon *daemon, const char *name);
/* `opened` comes once, at once or later, unless daemon_cancel_open(). ERROR_NOT_FOUND: there is no
 * such model. */
void daemon_open_model(struct daemon *daemon, const char *name,
                       void (*opened)(void *arg, struct daemon_text *text, const struct error *err),
                       void *arg);
void daemon_cancel_open(struct daemon *daemon, void *arg);
