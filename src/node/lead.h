/* What the leader does: keeps the state's records of nodes true, says who replicates the log, and
 * runs the master, which places instances. Every node has one, which is idle while another leads;
 * and every node looks at the cluster as the master does, to show it and for placements by hand. On
 * the loop's thread. */
#pragma once

#include "cluster/master.h"

struct daemon;
struct lead;
struct placing_view;

struct lead *lead_new(struct daemon *daemon); /* NULL: no memory */
void lead_stop(struct lead *lead);            /* plans no more; NULL is fine */
void lead_free(struct lead *lead);

void daemon_lead(struct daemon *daemon);                 /* a step: something may have changed */
bool lead_is(const struct lead *lead);                   /* this node leads */
void lead_anew(struct lead *lead, const char *instance); /* what it has failed in is forgotten */

/* Why instances could not be placed, of a leader. At most n; how many. Good until the next step. */
struct lead_problem {
    const char *instance, *text;
};
uint32_t lead_problems(const struct lead *lead, struct lead_problem *out, uint32_t n);
/* The same of one, as the leader says, whoever that is; NULL: nothing. */
const char *lead_problem_of(const struct daemon *daemon, const char *instance);

/* What placing knows, brought up to date. */
const struct placing_view *daemon_placing_view(struct daemon *daemon);
/* What the master sees, as this node does; the view's lists are good until the next call. */
void daemon_master_view(struct daemon *daemon, struct master_view *out);
