/* What discovery.c, which decides, and discovery_responder.c, which talks to Avahi, share. */
#pragma once

#include "mesh/avahi_loop.h"
#include "mesh/discovery.h"

#include <avahi-common/address.h>
#include <avahi-common/defs.h>
#include <avahi-common/strlst.h>
#include <avahi-core/core.h>
#include <avahi-core/lookup.h>
#include <avahi-core/publish.h>

#define DISCOVERY_SERVICE "_medley._tcp"

struct discovery_sight { /* a name seen on one interface by one protocol */
    struct discovery_sight *next;
    struct discovery *discovery;
    AvahiIfIndex interface;
    AvahiProtocol protocol;
    char name[DISCOVERY_NAME_MAX];
    AvahiSServiceResolver *resolver;
};

struct discovery {
    struct avahi_loop avahi_loop;
    struct discovery_record own;
    char name[DISCOVERY_NAME_MAX]; /* own.name, or what was made of it when somebody else has it */
    struct discovery_handlers handlers;
    AvahiServer *server; /* NULL: not running; of it are */
    AvahiSEntryGroup *group;
    AvahiSServiceBrowser *browser;
    struct discovery_sight *sights;
    uv_timer_t again;                 /* the responder failed, or a name is taken: another try */
    bool name_taken, host_name_taken; /* another one is taken when the time is over */
    bool echo_possible;   /* of what was announced before: it reads as another node's claim */
    uint32_t n_doublings; /* of the time within which another name is taken */
    void (*closed)(void *arg);
    void *closed_arg;
};

/* ---- discovery.c: what happened ---- */
enum discovery_state {
    DISCOVERY_READY,
    DISCOVERY_NAME_TAKEN,
    DISCOVERY_HOST_NAME_TAKEN,
    DISCOVERY_FAILED
};
void discovery_on_state(struct discovery *discovery, enum discovery_state state,
                        const char *reason);
void discovery_on_browse(struct discovery *discovery, AvahiBrowserEvent event,
                         AvahiIfIndex interface, AvahiProtocol protocol, const char *name);
void discovery_on_resolved(struct discovery *discovery, AvahiIfIndex interface, const char *name,
                           const AvahiAddress *address, uint16_t port, AvahiStringList *txt);

/* ---- discovery_responder.c: Avahi's error codes, 0 is success ---- */

/* Makes the server; discovery_on_state() follows. */
int responder_start(struct discovery *discovery);
void responder_stop(struct discovery *discovery); /* frees what these functions made */
int responder_publish(struct discovery *discovery,
                      AvahiStringList *txt); /* replaces what there is */
/* The machine's name is another machine's, too. Every responder on this one takes the same other
 * name: what two of them say of the same addresses is then the same, and they get on. */
int responder_take_another_host_name(struct discovery *discovery);
int responder_browse(struct discovery *discovery);
AvahiSServiceResolver *responder_resolve(struct discovery *discovery, AvahiIfIndex interface,
                                         AvahiProtocol protocol, const char *name);
