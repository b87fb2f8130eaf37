/* What a node writes, how a replica begins and ends, and what of it is left then. */
#include "sim/world.h"

#include "base/mem.h"

static void begin_write(struct world *w, struct node *node)
{
    if (node->disk_busy || !node->writes)
        return;
    const uint64_t slow = node->slow_until_ms > w->now_ms ? node->slow_ms : 0;
    node->disk_busy = true;
    node->batch = 0;
    for (const struct queued_write *write = node->writes; write; write = write->next)
        node->batch++;
    world_push(
        w, (struct event){.at_ms = w->now_ms + 1 +
                                   world_draw(w, w->scenario->nodes[node->index].disk_ms + slow),
                          .type = EVENT_DISK,
                          .node = node->index,
                          .a = node->life});
}

void disk_queue(struct world *w, struct node *node, struct replica_effect *e)
{
    struct queued_write *write = mem_new(sizeof *write);
    if (!write) {
        w->out_of_memory = true;
        return;
    }
    write->write = e->write;
    e->write = (struct log_write){0};
    *node->last_write = write;
    node->last_write = &write->next;
    begin_write(w, node);
}

static void drop_first_write(struct node *node)
{
    struct queued_write *write = node->writes;
    node->writes = write->next;
    if (!node->writes)
        node->last_write = &node->writes;
    log_write_clear(&write->write);
    mem_free(write);
}

static void write_first(struct world *w, struct node *node)
{
    struct error err;
    if (log_saved_write(&node->disk, &node->writes->write, &err))
        world_violated(w, "%s, write: %s", node->id, err.text);
}

/* Of the writes under way some of the first may have reached the disk, each of them whole. */
static void end_replica(struct world *w, struct node *node, uint64_t kept_writes)
{
    for (; node->writes && kept_writes; kept_writes--) {
        write_first(w, node);
        drop_first_write(node);
    }
    while (node->writes)
        drop_first_write(node);
    replica_close(node->replica);
    node->replica = NULL;
    node->disk_busy = node->ready = false;
    node->life++;
    propose_foreign(w, node, false);
    nonces_lost(&node->nonces);
    lead_lost(node);
}

static void fail(struct world *w, struct node *node, const char *why)
{
    world_say(w, "%s takes no part any more: %s", node->id, why);
    end_replica(w, node, 0);
    node->reopen_ms = w->now_ms + 1000 + world_draw(w, 1000);
}

void log_disk(struct world *w, struct node *node)
{
    node->disk_busy = false;
    if (!node->replica || !node->writes)
        return;
    if (node->full_until_ms > w->now_ms) {
        fail(w, node, "its disk is full");
        return;
    }
    uint64_t sequence = 0;
    for (; node->batch && node->writes; node->batch--) {
        sequence = node->writes->write.sequence;
        write_first(w, node);
        drop_first_write(node);
    }
    replica_written(node->replica, w->now_ms, sequence);
    begin_write(w, node);
}

bool disk_open_replica(struct world *w, struct node *node)
{
    struct replica_options options = replica_options_default();
    struct error err;
    options.id = node->member;
    options.seed = world_draw(w, UINT64_MAX);
    options.grace_ms = w->scenario->grace_ms;
    options.minority_grace_ms = 3 * w->scenario->grace_ms;
    options.snapshot_after = (uint32_t)w->scenario->snapshot_after;
    options.trailing = options.snapshot_after / 4;
    node->reopen_ms = 0;
    node->term = 0;
    if (replica_open(&options, &node->disk, w->now_ms, &node->replica, &err)) {
        world_violated(w, "%s does not start: %s", node->id, err.text);
        return false;
    }
    return true;
}

bool log_start(struct world *w, struct node *node)
{
    node->last_write = &node->writes;
    node->view = view_new(w, world_draw(w, UINT64_MAX));
    nonces_clear(&node->nonces);
    node->applied = 0;
    node->epoch_lineage = (struct lineage){0};
    return node->view && disk_open_replica(w, node);
}

void log_stop(struct world *w, struct node *node, bool lost)
{
    uint64_t n = 0;
    for (const struct queued_write *write = node->writes; write; write = write->next)
        n++;
    if (node->replica)
        end_replica(w, node, world_draw(w, n + 1));
    while (node->proposals)
        proposal_free(&node->proposals);
    while (node->n_unapplied)
        replica_effect_clear(&node->unapplied[--node->n_unapplied]);
    mem_free(node->unapplied);
    node->unapplied = NULL;
    node->unapplied_capacity = 0;
    view_drop(w, node->view);
    view_drop(w, node->kept);
    node->view = node->kept = NULL;
    node->keeps = false;
    if (lost) {
        log_saved_clear(&node->disk);
        world_new_member(w, node);
    }
}
