/* A member lets another machine in: first the cluster agrees on it, then it is told. */
#include "node/daemon_state.h"

#include "agreement/agreement.h"
#include "base/log.h"
#include "base/mem.h"
#include "join/admission.h"
#include "join/book.h"
#include "node/daemon_audit.h"
#include "node/roles.h"

#include <stdio.h>
#include <string.h>

struct letting_in {
    struct daemon *daemon;
    uint64_t channel;           /* admission.h's id of the attempt */
    char actor[AUDIT_WHO_TEXT]; /* by whose word */
    char id[NODE_ID_TEXT];
    char name[JOIN_NAME_TEXT];
    bool as_admin;
};

static void daemon_admit_refuse(struct letting_in *in, const char *why)
{
    struct error err;
    log_line(LOG_WARN, "node", "%s was not let in: %s", in->name, why);
    if (admission_refuse(in->daemon->admission, in->channel, why, &err))
        log_line(LOG_INFO, "node", "%s", err.text);
    mem_free(in);
}

static void daemon_admit_grant(struct letting_in *in)
{
    struct daemon *daemon = in->daemon;
    struct buffer list = {0};
    struct error err;
    const bool with_key = state_is_admin(daemon_state(daemon), in->id);
    book_add(daemon->book, in->id, in->name);
    book_encode(daemon->book, LIMIT_JOIN_PAYLOAD_BYTES, &list);
    if (list.failed)
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for the list of nodes");
    else if (admission_grant(daemon->admission, in->channel, with_key, list.data ? list.data : "",
                             list.size, &err) == ERROR_NONE)
        err.code = ERROR_NONE;
    if (list.failed || err.code)
        log_line(LOG_WARN, "node", "%s: %s", in->name, err.text);
    else
        daemon_say(daemon, "%s has joined", in->name);
    if (in->as_admin)
        memcpy(daemon->promotes, in->id, sizeof daemon->promotes);
    buffer_deinit(&list);
    mem_free(in);
}

static void on_admitted(void *arg, enum error_code code, const struct state_outcome *outcome,
                        const struct error *err)
{
    struct letting_in *in = arg;
    const Cluster__NodeRecord *record = code ? NULL : state_node(daemon_state(in->daemon), in->id);
    if (code == ERROR_CANCELLED || in->daemon->stopping) {
        mem_free(in);
        return;
    }
    if (record && record->admitted)
        daemon_admit_grant(in);
    else
        daemon_admit_refuse(in, code                         ? err->text
                                : outcome && outcome->reason ? outcome->reason
                                                             : "the cluster did not agree");
}

static void daemon_admit_on_joined(void *arg, enum error_code code,
                                   const struct state_outcome *outcome, const struct error *err)
{
    struct letting_in *in = arg;
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (code || in->daemon->stopping) {
        on_admitted(arg, code, outcome, err);
        return;
    }
    name.id = in->id; /* was it there already, then it is let in again */
    event.actor = in->actor[0] ? in->actor : NULL;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED;
    event.node_admitted = &name;
    agreement_propose(in->daemon->agreement, &event, on_admitted, in);
}

static void on_decide(void *self, uint64_t channel, const uint8_t node_id[NODE_ID_BYTES],
                      const char *name)
{
    struct daemon *daemon = self;
    Cluster__Node node = CLUSTER__NODE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    struct letting_in *in = mem_new(sizeof *in);
    if (!in) {
        admission_refuse(daemon->admission, channel, "out of memory", NULL);
        return;
    }
    *in = (struct letting_in){.daemon = daemon, .channel = channel};
    id_text(node_id, NODE_ID_BYTES, in->id);
    strncpy(in->name, name, sizeof in->name - 1);
    in->as_admin = daemon->code_gives_admin && admission_is_by_code(daemon->admission, channel);
    if (book_was_removed(daemon->book, in->id)) {
        daemon_admit_refuse(
            in, "this machine was removed from the cluster; on it, run `medley leave`, then "
                "join again");
        return;
    }
    if (roles_are_beginning(daemon)) {
        daemon_admit_refuse(in, "the cluster is being founded: try again");
        return;
    }
    snprintf(in->actor, sizeof in->actor, "%s",
             channel == daemon->admitted_channel ? daemon->admitter : daemon->inviter);
    node.id = in->id;
    node.name = in->name;
    event.actor = in->actor[0] ? in->actor : NULL;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
    event.node_joined = &node;
    agreement_propose(daemon->agreement, &event, daemon_admit_on_joined, in);
}

/* A newcomer that is not let in: a wrong code, a person's no, or it went away. */
static void daemon_admit_on_ended(void *self, uint64_t channel,
                                  const uint8_t node_id[NODE_ID_BYTES], const char *name,
                                  const struct error *why)
{
    char id[NODE_ID_TEXT], who[AUDIT_WHO_TEXT];
    (void)channel;
    if (!why)
        return;
    id_text(node_id, NODE_ID_BYTES, id);
    snprintf(who, sizeof who, "%.64s %.8s", name, id);
    daemon_note(self, AUDIT_JOIN_FAILED, who, "the network", who, why->text);
}

static void on_waiting(void *self)
{
    control_changed(self);
}

struct admission_events daemon_admission_events(struct daemon *daemon)
{
    return (struct admission_events){
        .decide = on_decide, .changed = on_waiting, .ended = daemon_admit_on_ended, .self = daemon};
}
