/* The live view of the cluster for commands: follows {"do":"live"} of this machine's node. */
#pragma once

#include "cli/daemon.h"

struct live_client { /* zeroed at first */
    yyjson_mut_doc *view;
    bool is_whole; /* every node that is up tells its readings, or had the time to */
    uint32_t n_changes;
};

/* The next line of the node; *changed: the view is another. */
enum error_code live_client_take(struct live_client *live, struct daemon_client *client,
                                 bool *changed, struct error *err);
void live_client_deinit(struct live_client *live);

/* Asks, and takes lines until it is whole. */
enum error_code live_client_begin(struct live_client *live, struct daemon_client *client,
                                  struct error *err);
