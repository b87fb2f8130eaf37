/* The model of one request: asked for by its name, there at once or later, held until the request
 * is over. Part of the request's own struct; a zeroed one is valid for model_use_end(). On the
 * loop's thread. Private to the api room.
 */
#pragma once

#include "api/access.h"
#include "api/internal.h"

struct model_use {
    struct api_server *server;
    struct api_model *model; /* NULL: not open, or not yet */
    void *owner;
    void (*opened)(struct model_use *use); /* once: `model` is open, or `err` says why it is not */
    struct api_error err;                  /* status 0: none */
    struct text name;                      /* the owner's; data NULL: none was given */
    struct inbox_item item;    /* brings an answer that came later into the server's turn */
    struct access_grant grant; /* of who asks: a token may be bound to other models */
    bool asking;               /* the model's owner has not answered */
    bool within;               /* model_use_begin() is up the stack */
};

/* Calls `opened` before it returns or later. `owner` and `opened` are set by the caller before. The
 * name's bytes have a NUL after them and live as long as the use. */
void model_use_begin(struct model_use *use, const struct exchange *exchange, struct text name);
/* Gives the model back, or up. `opened` will not be called. */
void model_use_end(struct model_use *use);
