/* An agreement's beginning and end; founding a cluster, and leaving one. */
#include "agreement/agreement_impl.h"

#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* ---- opening ---- */

static void say_for_party(void *self, enum log_level level, const char *text)
{
    (void)self;
    log_line(level, "cluster", "%s", text);
}

static enum error_code open_party(struct agreement *a, const struct agreement_options *options,
                                  struct error *err)
{
    uint64_t random[2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return error_set(err, ERROR_IO, "the system gives no random numbers: %s", strerror(errno));
    struct party_options party = {.node = options->node,
                                  .signer = options->signer,
                                  .seed = random[0],
                                  .replica = options->replica,
                                  .proposal_ms = options->proposal_ms,
                                  .step_ms = options->step_ms,
                                  .reopen_ms = options->reopen_ms,
                                  .frame_bytes_max = options->frame_bytes_max,
                                  .say = say_for_party};
    if (!party.replica.seed)
        party.replica.seed = random[1];
    return party_new(&party, &a->party, err);
}

static enum error_code take_options(struct agreement *a, const struct agreement_options *options,
                                    struct error *err)
{
    a->loop = options->loop;
    a->events = options->events;
    a->before_snapshot = options->before_snapshot;
    a->last_write = &a->first_write;
    a->path = mem_copy_text(options->path, strlen(options->path));
    if (!a->path)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster's log");
    return open_party(a, options, err);
}

static void on_agreement_wake(uv_async_t *wake)
{
    agreement_turn(wake->data);
}

static enum error_code open_handles(struct agreement *a, struct error *err)
{
    a->wake.data = a->timer.data = a;
    const int problem = uv_async_init(a->loop, &a->wake, on_agreement_wake);
    if (problem)
        return error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    uv_timer_init(a->loop, &a->timer);
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
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster's log");
    enum error_code code = take_options(a, options, err);
    if (!code)
        code = agreement_open_store(a->path, &a->store, &saved, err);
    if (!code)
        code = party_begin(a->party, agreement_now_ms(), store_member(a->store), &saved, err);
    log_saved_clear(&saved);
    if (!code)
        code = open_handles(a, err);
    if (!code) {
        *out = a;
        return ERROR_NONE;
    }
    party_free(a->party);
    store_close(a->store);
    mem_free(a->path);
    mem_free(a);
    return code;
}

/* ---- closing ---- */

static void agreement_on_handle_closed(uv_handle_t *handle)
{
    struct agreement *a = handle->data;
    if (--a->n_handles)
        return;
    void (*closed)(void *) = a->closed;
    void *arg = a->closed_arg;
    party_free(a->party);
    mem_free(a->path);
    mem_free(a);
    if (closed)
        closed(arg);
}

/* Everything has ended when no job runs and the store is closed. */
void agreement_end(struct agreement *a)
{
    assert(a->closing);
    if (a->job.type != JOB_NONE || a->store || a->handles_closing)
        return;
    a->handles_closing = true;
    if (a->forgotten) {
        struct error err;
        error_set(&err, ERROR_CANCELLED, "the node is stopping");
        a->forgotten(a->forgotten_arg, err.code, &err);
    }
    agreement_carry_out(a); /* what was proposed since */
    uv_close((uv_handle_t *)&a->timer, agreement_on_handle_closed);
    uv_close((uv_handle_t *)&a->wake, agreement_on_handle_closed);
}

void agreement_close(struct agreement *a, void (*closed)(void *arg), void *arg)
{
    assert(!a->closing);
    a->closing = true;
    a->closed = closed;
    a->closed_arg = arg;
    party_stop(a->party);
    agreement_drop_writes(a);
    agreement_wake(a);
}

/* ---- founding and leaving ---- */

static enum error_code write_founding(struct agreement *a, struct log_saved *saved,
                                      struct error *err)
{
    assert(a->store && a->job.type == JOB_NONE);
    struct log_write write;
    enum error_code code = replica_found(party_member(a->party), &write, err);
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
    const uint64_t now_ms = agreement_now_ms();
    if (party_status(a->party).lineage.generation)
        return error_set(err, ERROR_INVALID, "this node is already in a cluster");
    if (!party_takes_part(a->party) || a->job.type != JOB_NONE)
        return error_set(err, ERROR_BUSY, "this node's log is not available now");
    agreement_drop_writes(a);
    enum error_code code = write_founding(a, &saved, &why);
    if (!code)
        code = party_begin(a->party, now_ms, store_member(a->store), &saved, &why);
    if (code)
        party_fail(a->party, now_ms, &why, PARTY_RETRIES_TOLD);
    log_saved_clear(&saved);
    agreement_wake(a);
    return code ? error_set(err, code, "%s", why.text) : code;
}

enum error_code agreement_forget(struct agreement *a, agreement_forgotten_fn done, void *arg,
                                 struct error *err)
{
    if (a->closing || a->forgetting)
        return error_set(err, ERROR_BUSY, "this node is already leaving its cluster");
    a->forgetting = true;
    a->forgotten = done;
    a->forgotten_arg = arg;
    a->reopens = false;
    party_forget(a->party);
    agreement_drop_writes(a);
    agreement_wake(a);
    return ERROR_NONE;
}
