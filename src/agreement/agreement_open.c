/* An agreement's beginning and end; founding a cluster, and leaving one. */
#include "agreement/agreement_impl.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum { STEP_MS = 1000, REOPEN_MS = 5000 };

enum error_code agreement_begin_replica(struct agreement *a, const struct log_saved *saved,
                                        struct error *err)
{
    struct replica_options options = a->options.replica;
    options.id = a->member = store_member(a->store);
    a->last = (struct replica_status){0};
    return replica_open(&options, saved, agreement_now_ms(), &a->replica, err);
}

/* ---- opening ---- */

static void set_default(uint32_t *value, uint32_t standard)
{
    if (!*value)
        *value = standard;
}

static void set_replica_defaults(struct replica_options *o, uint64_t seed)
{
    const struct replica_options standard = replica_options_default();
    set_default(&o->election_ms, standard.election_ms);
    set_default(&o->heartbeat_ms, standard.heartbeat_ms);
    set_default(&o->snapshot_after, standard.snapshot_after);
    set_default(&o->trailing, standard.trailing);
    o->status_ms = o->status_ms ? o->status_ms : standard.status_ms;
    o->grace_ms = o->grace_ms ? o->grace_ms : standard.grace_ms;
    o->minority_grace_ms = o->minority_grace_ms ? o->minority_grace_ms : standard.minority_grace_ms;
    if (o->minority_grace_ms < o->grace_ms)
        o->minority_grace_ms = o->grace_ms;
    o->seed = o->seed ? o->seed : seed;
}

static enum error_code take_options(struct agreement *a, const struct agreement_options *options,
                                    struct error *err)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(err, ERROR_IO, "no random numbers: %s", strerror(errno));
    a->options = *options;
    a->path = mem_copy_text(options->path, strlen(options->path));
    a->node = options->node ? mem_copy_text(options->node, strlen(options->node)) : NULL;
    if (!a->path || (options->node && !a->node))
        return error_set(err, ERROR_NO_MEMORY, "no memory for the cluster's log");
    set_replica_defaults(&a->options.replica, random[0]);
    set_default(&a->options.proposal_ms, LIMIT_PROPOSAL_MS);
    set_default(&a->options.step_ms, STEP_MS);
    set_default(&a->options.reopen_ms, REOPEN_MS);
    set_default(&a->options.frame_bytes_max, LIMIT_FRAME_CONTROL_BYTES);
    a->nonce_seed = random[1];
    a->message_number = (uint32_t)random[1];
    a->reopen_wait_ms = a->options.reopen_ms;
    a->last_write = &a->first_write;
    a->last_foreign = &a->first_foreign;
    return ERROR_NONE;
}

static void on_wake(uv_async_t *wake)
{
    agreement_turn(wake->data);
}

static enum error_code open_handles(struct agreement *a, struct error *err)
{
    a->wake.data = a->timer.data = a;
    const int problem = uv_async_init(a->options.loop, &a->wake, on_wake);
    if (problem)
        return error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    uv_timer_init(a->options.loop, &a->timer);
    a->n_handles = 2;
    uv_async_send(&a->wake);
    return ERROR_NONE;
}

enum error_code agreement_open(const struct agreement_options *options, struct agreement **out,
                               struct error *err)
{
    struct log_saved saved = {0};
    struct agreement *a = mem_new(sizeof *a);
    *out = NULL;
    if (!a)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the cluster's log");
    enum error_code code = take_options(a, options, err);
    if (!code)
        code = agreement_open_store(a->path, &a->store, &saved, err);
    if (!code)
        code = agreement_begin_replica(a, &saved, err);
    log_saved_clear(&saved);
    if (!code)
        code = open_handles(a, err);
    if (!code) {
        *out = a;
        return ERROR_NONE;
    }
    replica_close(a->replica);
    store_close(a->store);
    mem_free(a->path);
    mem_free(a->node);
    mem_free(a);
    return code;
}

/* ---- closing ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct agreement *a = handle->data;
    if (--a->n_handles)
        return;
    void (*closed)(void *) = a->closed;
    void *arg = a->closed_arg;
    buffer_deinit(&a->frame);
    mem_free(a->views);
    mem_free(a->path);
    mem_free(a->node);
    mem_free(a);
    if (closed)
        closed(arg);
}

/* Everything has ended when no job runs and the store is closed. */
void agreement_end(struct agreement *a)
{
    if (a->job.type != JOB_NONE || a->store || a->handles_closing)
        return;
    a->handles_closing = true;
    if (a->forgotten) {
        struct error err;
        error_set(&err, ERROR_CANCELLED, "the node is stopping");
        a->forgotten(a->forgotten_arg, err.code, &err);
    }
    agreement_proposals(a); /* what was proposed since */
    agreement_drop_state(a);
    uv_close((uv_handle_t *)&a->timer, on_handle_closed);
    uv_close((uv_handle_t *)&a->wake, on_handle_closed);
}

void agreement_close(struct agreement *a, void (*closed)(void *arg), void *arg)
{
    a->closing = true;
    a->closed = closed;
    a->closed_arg = arg;
    agreement_proposals_end(a, ERROR_CANCELLED, "the node is stopping");
    agreement_end_replica(a);
    agreement_wake(a);
}

/* ---- founding and leaving ---- */

static enum error_code write_first(struct agreement *a, struct log_saved *saved, struct error *err)
{
    struct log_write write;
    enum error_code code = replica_found(a->member, &write, err);
    if (code)
        return code;
    code = store_write(a->store, &write, err);
    log_write_clear(&write);
    return code ? code : store_load(a->store, saved, err);
}

enum error_code agreement_found(struct agreement *a, struct error *err)
{
    struct log_saved saved = {0};
    struct error why;
    if (a->replica && replica_status(a->replica).lineage.generation)
        return error_set(err, ERROR_INVALID, "this node is in a cluster already");
    if (!a->replica || a->job.type != JOB_NONE)
        return error_set(err, ERROR_BUSY, "this node's log is not at hand now");
    enum error_code code = write_first(a, &saved, &why);
    if (!code) {
        agreement_end_replica(a);
        code = agreement_begin_replica(a, &saved, &why);
    }
    if (code)
        agreement_note_failure(a, &why);
    log_saved_clear(&saved);
    agreement_wake(a);
    return code ? error_set(err, code, "%s", why.text) : code;
}

enum error_code agreement_forget(struct agreement *a, agreement_forgotten_fn done, void *arg,
                                 struct error *err)
{
    if (a->closing || a->forgetting)
        return error_set(err, ERROR_BUSY, "this node is leaving its cluster already");
    a->forgetting = true;
    a->forgotten = done;
    a->forgotten_arg = arg;
    a->failed = false;
    a->failure = (struct error){0};
    a->member = 0;
    a->n_views = 0;
    agreement_proposals_end(a, ERROR_CANCELLED, "the node has left its cluster");
    agreement_end_replica(a);
    agreement_drop_state(a);
    nonces_clear(&a->nonces);
    agreement_wake(a);
    return ERROR_NONE;
}
