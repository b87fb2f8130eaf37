/* Answers to other nodes' requests: read on the thread pool, sent from the memory they were read
 * into. */
#include "weights/weights_state.h"

#include "base/log.h"

#include <string.h>

static void unlink_answer(struct weights *weights, struct weights_answer *answer)
{
    struct weights_answer **at = &weights->answers;
    while (*at != answer)
        at = &(*at)->next;
    *at = answer->next;
    if (weights->answers_last == &answer->next)
        weights->answers_last = at;
}

static void free_answer(struct weights *weights, struct weights_answer *answer)
{
    unlink_answer(weights, answer);
    if (answer->peer)
        answer->peer->n_asked--;
    if (answer->state != ANSWER_WAITS) {
        weights->n_reading--;
        if (answer->peer)
            answer->peer->n_in_hand--;
    }
    part_set_deinit(&answer->has);
    buffer_deinit(&answer->message);
    mem_free(answer);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void weights_serve_on_sent(struct link_send *send, enum error_code code)
{
    struct weights_answer *answer = send->data;
    struct weights *weights = answer->job.weights;
    if (!code)
        weights->counts.sent_bytes += answer->message.size;
    free_answer(weights, answer);
    weights_serve_go_on(weights);
    weights_close_when_done(weights);
}

/* False: the link takes no more now. */
static bool send_answer(struct weights *weights, struct weights_answer *answer)
{
    struct weights_peer *peer = answer->peer;
    if (!peer || answer->is_cancelled || answer->message.failed || weights_is_closing(weights)) {
        free_answer(weights, answer);
        return true;
    }
    answer->send = (struct link_send){
        .type = FRAME_WEIGHTS, .n_pieces = 1, .done = weights_serve_on_sent, .data = answer};
    answer->send.pieces[0] = (struct link_piece){answer->message.data, answer->message.size};
    enum error_code code = link_send(peer->link, weights_channel(peer->link), &answer->send, NULL);
    if (!code)
        answer->state = ANSWER_SENDS;
    else if (code != ERROR_BUSY)
        free_answer(weights, answer); /* the link is closing */
    return code != ERROR_BUSY;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool serves_converted(const struct weights_answer *answer)
{
    return answer->request.type == FETCH_MESSAGE_REQUEST_CONVERTED;
}

/* Who gets converted bytes cannot hold them against the manifest: this end does, once. */
static void serve_check(struct weights_answer *answer, struct error *err)
{
    const uint32_t part = answer->request.request.part;
    if (weight_source_has(&answer->source, part))
        answer->is_checked = !weight_source_check(&answer->source, part, err);
}

static void run_read(struct weights_job *job)
{
    struct weights_answer *answer = (struct weights_answer *)job;
    if (serves_converted(answer) && !answer->is_checked)
        serve_check(answer, &job->err);
    if (job->err.code)
        fetch_message_write(&(struct fetch_message){.type = FETCH_MESSAGE_REFUSE,
                                                    .id = answer->request.id,
                                                    .refusal = FETCH_REFUSE_LACKS},
                            &answer->message);
    else if (serves_converted(answer))
        converted_answer(&answer->source, answer->model, &answer->request, &answer->message);
    else
        weight_source_answer(&answer->source, &answer->request, &answer->message);
}

static void weights_serve_read_done(struct weights_job *job)
{
    struct weights_answer *answer = (struct weights_answer *)job;
    struct weights *weights = job->weights;
    if (answer->entry)
        answer->entry->n_serving--;
    if (answer->entry && answer->is_checked && answer->entry->checked.n_parts)
        part_set_add(&answer->entry->checked, answer->request.request.part);
    if (job->err.code && !weights_is_closing(weights))
        log_line(LOG_WARN, "weights", "a part is not converted for another node: %s",
                 job->err.text);
    weights->n_converting -= serves_converted(answer);
    answer->entry = NULL;
    answer->state = ANSWER_READY;
    weights_serve_go_on(weights);
}

static void weights_serve_refuse(struct weights_peer *peer, uint32_t id, enum fetch_refusal why)
{
    weights_post(peer,
                 &(struct fetch_message){.type = FETCH_MESSAGE_REFUSE, .id = id, .refusal = why});
}

/* The source as it is now: the shelf's set of parts is copied, because it grows while others
 * read. */
static bool weights_serve_find_source(struct weights_answer *answer, struct weights_entry *entry)
{
    const struct weights_file *file = weights_file_of(entry);
    const struct part_set *has = &entry->here.has;
    answer->model = weights_opened(entry);
    if (entry->version || (serves_converted(answer) && !answer->model))
        return false; /* what was converted is given by who has the original */
    if (file) {
        answer->source = file->source;
        return true;
    }
    if (!entry->here.shelf || part_set_init(&answer->has, has->n_parts, NULL))
        return false;
    memcpy(answer->has.bits, has->bits, ((size_t)has->n_parts + 63) / 64 * sizeof *has->bits);
    answer->source = entry->here.source;
    answer->source.has = &answer->has;
    return true;
}

static void begin_reading(struct weights *weights, struct weights_answer *answer)
{
    struct weights_entry *entry = weights_find(weights, &answer->request.model);
    if (!entry || !weights_serve_find_source(answer, entry)) {
        weights_serve_refuse(answer->peer, answer->request.id,
                             entry && entry->is_busy ? FETCH_REFUSE_BUSY : FETCH_REFUSE_LACKS);
        free_answer(weights, answer);
        return;
    }
    answer->state = ANSWER_READS;
    answer->entry = entry;
    if (serves_converted(answer) && !entry->checked.n_parts &&
        part_set_init(&entry->checked, answer->source.manifest->n_parts, NULL))
        part_set_deinit(&entry->checked); /* then it is hashed every time */
    answer->is_checked = part_set_has(&entry->checked, answer->request.request.part);
    entry->n_serving++;
    answer->peer->n_in_hand++;
    weights->n_reading++;
    weights->n_converting += serves_converted(answer);
    answer->job.run = run_read;
    answer->job.done = weights_serve_read_done;
    weights_job_start(weights, &answer->job);
}

static bool may_read(const struct weights *weights, const struct weights_answer *answer)
{
    return answer->peer->n_in_hand < LIMIT_WEIGHTS_IN_HAND &&
           weights->n_reading < LIMIT_WEIGHTS_READ &&
           (!serves_converted(answer) || weights->n_converting < LIMIT_WEIGHTS_CONVERT);
}

void weights_serve_go_on(struct weights *weights)
{
    struct weights_answer *next;
    for (struct weights_answer *answer = weights->answers; answer; answer = next) {
        next = answer->next;
        if (answer->state == ANSWER_READY)
            send_answer(weights, answer);
        else if (answer->state == ANSWER_WAITS && (!answer->peer || weights_is_closing(weights)))
            free_answer(weights, answer);
        else if (answer->state == ANSWER_WAITS && may_read(weights, answer))
            begin_reading(weights, answer);
    }
}

/* ---- what peers ask -------------------------------------------------------------------------- */

void weights_serve(struct weights_peer *peer, const struct fetch_message *request)
{
    struct weights *weights = peer->weights;
    struct weights_answer *answer =
        peer->n_asked < LIMIT_WEIGHTS_ASKED ? mem_new(sizeof *answer) : NULL;
    if (!answer) {
        weights_serve_refuse(peer, request->id, FETCH_REFUSE_BUSY);
        return;
    }
    answer->job.weights = weights;
    answer->peer = peer;
    answer->request = *request;
    *weights->answers_last = answer;
    weights->answers_last = &answer->next;
    peer->n_asked++;
    weights_serve_go_on(weights);
}

void weights_serve_cancel(struct weights_peer *peer, uint32_t id)
{
    struct weights_answer *next;
    for (struct weights_answer *answer = peer->weights->answers; answer; answer = next) {
        next = answer->next;
        if (answer->peer != peer || answer->request.id != id)
            continue;
        answer->is_cancelled = true;
        if (answer->state == ANSWER_WAITS)
            free_answer(peer->weights, answer);
    }
}

void weights_serve_down(struct weights_peer *peer)
{
    for (struct weights_answer *answer = peer->weights->answers; answer; answer = answer->next) {
        if (answer->peer == peer)
            answer->peer = NULL;
    }
    weights_serve_go_on(peer->weights);
}
