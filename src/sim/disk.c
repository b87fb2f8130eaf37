/* What a node writes, how its party begins and ends, and what of it is left then. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>

static void disk_begin_write(struct world *w, struct node *node)
{
    assert(node->party);
    if (node->disk_busy || !node->writes)
        return;
    const uint64_t slow = node->slow_until_ms > w->now_ms ? node->slow_ms : 0;
    node->disk_busy = true;
    node->batch = 0;
    for (const struct disk_write *write = node->writes; write; write = write->next)
        node->batch++;
    world_push(
        w, (struct event){.at_ms = w->now_ms + 1 +
                                   world_draw(w, w->scenario->nodes[node->index].disk_ms + slow),
                          .type = EVENT_DISK,
                          .node = node->index,
                          .a = node->life});
}

void disk_queue(struct world *w, struct node *node, struct log_write *from)
{
    struct disk_write *write = mem_new(sizeof *write);
    if (!write) {
        w->out_of_memory = true;
        return;
    }
    write->write = *from;
    *from = (struct log_write){0};
    *node->last_write = write;
    node->last_write = &write->next;
    disk_begin_write(w, node);
}

static void drop_first_write(struct node *node)
{
    assert(node->writes);
    struct disk_write *write = node->writes;
    node->writes = write->next;
    if (!node->writes)
        node->last_write = &node->writes;
    log_write_clear(&write->write);
    mem_free(write);
}

static void write_first(struct world *w, struct node *node)
{
    assert(node->writes && node->writes->write.sequence);
    struct error err;
    if (log_saved_write(&node->disk, &node->writes->write, &err))
        world_violated(w, "%s, write: %s", node->name, err.text);
}

/* Of the writes under way some of the first may have reached the disk, each of them whole. */
void disk_drop_writes(struct world *w, struct node *node, uint64_t kept_writes)
{
    for (; node->writes && kept_writes; kept_writes--) {
        write_first(w, node);
        drop_first_write(node);
    }
    while (node->writes)
        drop_first_write(node);
    node->disk_busy = false;
    node->life++;
}

void log_disk(struct world *w, struct node *node)
{
    assert(node->disk_busy && node->party);
    node->disk_busy = false;
    if (!node->writes)
        return;
    if (node->full_until_ms > w->now_ms) {
        struct error full;
        error_set(&full, ERROR_IO, "its disk is full");
        party_fail(node->party, w->now_ms, &full, PARTY_RETRIES);
        return;
    }
    uint64_t sequence = 0;
    for (; node->batch && node->writes; node->batch--) {
        sequence = node->writes->write.sequence;
        write_first(w, node);
        drop_first_write(node);
    }
    party_written(node->party, w->now_ms, sequence);
    disk_begin_write(w, node);
}

bool disk_begin_party(struct world *w, struct node *node)
{
    struct error err;
    assert(!node->disk_busy && !node->writes);
    node->term = 0;
    node->applied = 0;
    node->leader_ms = 0;
    node->epoch_lineage = (struct lineage){0};
    if (party_begin(node->party, w->now_ms, node->member, &node->disk, &err) == ERROR_NONE)
        return true;
    world_violated(w, "%s does not start: %s", node->name, err.text);
    return false;
}

bool log_start(struct world *w, struct node *node)
{
    assert(!node->party && !node->writes && node->member);
    struct party_options options = {.node = node->id,
                                    .seed = world_draw(w, UINT64_MAX),
                                    .replica = replica_options_default(),
                                    .proposal_ms = PROPOSAL_MS,
                                    .step_ms = PROPOSAL_AGAIN_MS,
                                    .reopen_ms = REOPEN_MS,
                                    .states = w->shares ? &w->shared : NULL,
                                    .say = log_party_says,
                                    .self = node};
    options.signer = w->has_roles ? &node->identity : NULL;
    /* A hostile one never founds the log anew. */
    options.replica.grace_ms = node->hostile ? NEVER_MS : w->scenario->grace_ms;
    options.replica.minority_grace_ms = node->hostile ? NEVER_MS : 3 * w->scenario->grace_ms;
    options.replica.believes_anybody = w->scenario->bug == SCENARIO_BUG_BELIEVES_ANYBODY;
    options.replica.snapshot_after = (uint32_t)w->scenario->snapshot_after;
    options.replica.trailing = options.replica.snapshot_after / 4;
    node->last_write = &node->writes;
    w->out_of_memory |= party_new(&options, &node->party, NULL) != ERROR_NONE;
    return node->party && disk_begin_party(w, node);
}

void log_stop(struct world *w, struct node *node, bool lost)
{
    assert(node->party);
    uint64_t n = 0;
    for (const struct disk_write *write = node->writes; write; write = write->next)
        n++;
    disk_drop_writes(w, node, world_draw(w, n + 1));
    lead_lost(node);
    party_free(node->party);
    node->party = NULL;
    log_drop_wishes(node);
    if (lost) {
        log_saved_clear(&node->disk);
        world_new_member(w, node);
    }
}
