/* Who there is to talk to: what discovery finds, what the book of members says, what the user gave.
 * A member's finder dials them and goes on to another address where one does not answer; before,
 * it only says whom discovery has found. On the loop's thread. */
#pragma once

#include "base/error.h"
#include "mesh/discovery.h"

struct daemon;
struct finder;

/* A member of some cluster, as discovery has found it. */
struct discovered_node {
    struct discovered_node *next;
    struct discovery_record record;
    char host[256];
    uint16_t port;
};

enum error_code finder_open(struct daemon *daemon, struct finder **out, struct error *err);
/* After the mesh has closed. Frees it; then `closed` is called, at once or later. */
void finder_close(struct finder *finder, void (*closed)(struct daemon *daemon));

void finder_announce(struct finder *finder); /* this node, as it is now, to the local networks */
/* The members that are to be dialled have changed. */
void finder_sync(struct finder *finder);
void finder_dial(struct finder *finder); /* now and then: another address of who does not answer */
void finder_look_at_network(struct finder *finder); /* now and then: has it changed? */

const struct discovered_node *finder_found(const struct finder *finder); /* a list; NULL: nobody */
bool finder_sees_a_cluster(const struct finder *finder);
bool finder_is_alone(const struct finder *finder); /* no member is reached, and that was told */
/* Why there is no link to a node though it answers: its version is too far from ours. ERROR_NONE:
 * not for that. */
struct error finder_version_problem(const struct finder *finder, const char *id);
/* Why dialling a node failed last, and where it was dialled: "192.168.1.5:7979". ERROR_NONE: it is
 * linked, or was not dialled from here. */
enum { FINDER_ADDRESS_BYTES = 288 };
struct error finder_dial_problem(const struct finder *finder, const char *id,
                                 char address[FINDER_ADDRESS_BYTES]);
