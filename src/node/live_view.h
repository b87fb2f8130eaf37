/* What the files that make the view share (live_view*.c). */
#pragma once

#include "cluster/replica.h"
#include "relay/relay_use.h"

#include <yyjson.h>

struct daemon;
struct live;

struct live_view {
    yyjson_mut_doc *doc;
    struct daemon *daemon;
    struct live *live;
    struct replica_status status;
    struct relay_uses uses;
};

/* Each adds a member where it is known, and none where it is not. Texts are copied, keys are not.
 */
void view_text(struct live_view *view, yyjson_mut_val *object, const char *key, const char *text);
void view_whole(struct live_view *view, yyjson_mut_val *object, const char *key, bool known,
                uint64_t value);
void view_number(struct live_view *view, yyjson_mut_val *object, const char *key, bool known,
                 double value);
