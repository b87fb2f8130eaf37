/* The inside of an exchange, for the files that speak to libwebsockets. */
#pragma once

#include "api/access.h"
#include "api/chunked.h"
#include "api/client.h"
#include "api/exchange.h"
#include "api/internal.h"
#include "api/resume.h"
#include "api/routes.h"
#include "api/sessions.h"
#include "api/site.h"
#include "api/trace_context.h"

enum {
    EXCHANGE_WRITE_BYTES = 64 * 1024,             /* of one lws_write() */
    EXCHANGE_HEAD_S = 30,                         /* for a head to arrive, handshake included */
    EXCHANGE_BODY_S = 300,                        /* for a body to arrive whole */
    EXCHANGE_BODY_TICK_S = 10,                    /* so often it is seen whether it moves … */
    EXCHANGE_BODY_TICK_BYTES = 8 * 1024,          /* … which is at least so much */
    EXCHANGE_MOVE_BYTES = 64 * 1024,              /* of a body: its client is not stalling … */
    EXCHANGE_STALLED_MS = 2 * 1000,               /* … nor is one that has moved so lately */
    EXCHANGE_STALL_S = 30,                        /* without any progress in sending */
    EXCHANGE_LINGER_S = 10,                       /* for an unwanted body to end after the answer */
    EXCHANGE_LINGER_BYTES = 8 * LIMIT_BODY_BYTES, /* and of that body at most */
};

enum exchange_state {
    EXCHANGE_BODY,     /* the body is coming */
    EXCHANGE_WORKING,  /* the handler has it */
    EXCHANGE_ANSWERED, /* the whole answer is in `out`, or already sent */
};

struct exchange {
    struct api_server *server;
    struct lws *wsi;
    struct connection *connection;
    struct exchange *next, *before;
    struct api_client client;
    struct access_grant grant; /* id 0: no token, or not let in yet */
    struct api_error *late;    /* what it is to be answered when its timer ends */
    uint32_t retry_after_s;
    bool asks_token; /* the answer says how to show one */
    enum exchange_state state;
    const struct route *route; /* NULL: none */
    const char *allow;
    enum http_method method;
    char method_name[8];
    char path[512];
    char request_id[LIMIT_REQUEST_ID_BYTES + 1];
    bool has_request_id; /* the client's own */
    bool has_last_event_id;
    char *last_event_id; /* NULL with has_last_event_id: nothing that could be read */
    struct trace_context trace;
    uint64_t started_ns;
    bool http_1_0;
    bool is_json; /* its Content-Type says so */
    enum site site;
    char host[GATE_NAME_MAX + 16]; /* its Host header; "": none */
    bool has_session;              /* of its cookie, where that counts */
    struct browser_session session;
    bool websocket; /* it asked for one */
    uint64_t body_expected, body_seen;
    uint64_t body_ticked; /* body_seen at the last tick */
    uint64_t moved_ns;    /* when its client last took or sent a good piece … */
    uint64_t moved_bytes; /* … and what it has sent since */
    uint64_t unread;      /* what of it server->unread_bytes counts */
    bool chunked;         /* then body_expected is unknown */
    struct chunked_decoder decoder;
    struct buffer body;
    void (*gone)(void *owner);
    void *owner;
    unsigned status;
    bool streaming;
    uint64_t spoke_ns;   /* when the stream's last event was written */
    const char *waiting; /* what the comments say while nothing else comes; NULL: none do */
    bool close_after;    /* the connection cannot be used again */
    bool linger;         /* answered before the body was read */
    bool flushed;        /* all is written; one more turn for the socket to have taken it */
    bool dead;           /* the connection is being closed */
    struct buffer more;  /* headers of the answer: name, NUL, value, NUL … */
    struct buffer head, out;
    size_t out_sent;
    size_t out_counted; /* of a whole answer, in server->memory */
};

/* Room for so many bytes more of this client in one of two pools: bodies that arrive, and answers
 * that are not read. Where there is none, connections whose clients have let them lie longest are
 * closed: the client's own when its share is full, else anybody's. False: there is no room, and
 * `err` says so. */
enum exchange_pool { EXCHANGE_BODIES, EXCHANGE_ANSWERS };
bool exchange_make_room(struct exchange *exchange, enum exchange_pool pool, uint64_t bytes,
                        struct api_error *err);

/* ---- exchange.c, for exchange_stream.c ---- */
void exchange_release_body(struct exchange *exchange);
/* Whether the server works on it, or waits for its client. */
void exchange_set_state(struct exchange *exchange, enum exchange_state state);
void exchange_count_unread(
    struct exchange *exchange);                       /* what its client has not read has changed */
void exchange_push(struct exchange *exchange);        /* what is in head and out is to be written */
void exchange_end_waiting(struct exchange *exchange); /* nothing is said while nothing comes */

/* Fills exchange->head; `length` is UINT64_MAX for a stream. */
void exchange_write_head(struct exchange *exchange, const char *content_type, uint64_t length);

/* server.c's callbacks. A false return means: close the connection. */
struct exchange *exchange_new(struct api_server *server, struct connection *connection);
void exchange_receive(struct exchange *exchange, const char *bytes, size_t size);
void exchange_ready(struct exchange *exchange); /* the body is complete */
bool exchange_writable(struct exchange *exchange, bool *over);
void exchange_tick(struct exchange *exchange); /* the timer of exchange_stream_wait() */
/* Answers so after a while, during which nothing else becomes of it. */
void exchange_fail_late(struct exchange *exchange, const struct api_error *err, uint32_t delay_ms);
/* Its token holds no more: its work is cancelled, and its client told. */
void exchange_revoke(struct exchange *exchange, const struct api_error *err);
void exchange_free(struct exchange *exchange); /* tells the owner if there is one */
void exchange_abort(
    struct exchange *exchange); /* the owner is told, the connection is closed soon */
