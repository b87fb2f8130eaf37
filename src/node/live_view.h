/* What the files that make the view share (live_view*.c). */
#pragma once

#include "cluster/replica.h"
#include "relay/relay_use.h"

#include "node.pb-c.h"

#include <yyjson.h>

struct cluster_device;
struct daemon;
struct live;

struct live_view {
    yyjson_mut_doc *doc;
    struct daemon *daemon;
    struct live *live;
    struct replica_status status;
    struct relay_uses uses;
    uint32_t n_up; /* nodes */
};

/* Each adds a member where it is known, and none where it is not. Texts are copied, keys are not.
 */
void view_text(struct live_view *view, yyjson_mut_val *object, const char *key, const char *text);
void view_whole(struct live_view *view, yyjson_mut_val *object, const char *key, bool known,
                uint64_t value);
void view_number(struct live_view *view, yyjson_mut_val *object, const char *key, bool known,
                 double value);
void view_flag(struct live_view *view, yyjson_mut_val *object, const char *key, bool value);
/* A member that is an object; its key is copied. */
yyjson_mut_val *view_object(struct live_view *view, yyjson_mut_val *object, const char *key);
/* A rate to three digits: more are noise that would be told again and again. */
double view_round(double value);

/* What a node told last; NULL: nothing. */
const Node__Now *view_now_of(const struct live_view *view, const char *node);

enum { VIEW_SECOND_MS = 1000 }; /* durations and beginnings are told in such steps */

/* ---- live_view_models.c ---- */
void view_put_models(struct live_view *view, yyjson_mut_val *root);
void view_put_instances(struct live_view *view, yyjson_mut_val *root);

/* The fastest that the device is with any weights, bytes a second; 0: not known. */
double view_decode_rate(const struct cluster_device *device);

/* ---- live_view_totals.c ---- */
void view_gather_totals(struct live_view *view); /* first */
void view_put_totals(struct live_view *view, yyjson_mut_val *root);
/* The fewest of the fastest devices whose free memory has room for so many bytes. */
void view_put_best(struct live_view *view, yyjson_mut_val *model, uint64_t bytes);
