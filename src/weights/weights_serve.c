/* Answers to other nodes' requests: read on the thread pool, sent from the memory they were read
 * into. */
#include "weights/weights_state.h"

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

static void run_read(struct weights_job *job)
{
    struct weights_answer *answer = (struct weights_answer *)job;
    weight_source_answer(&answer->source, &answer->request, &answer->message);
}

static void weights_serve_read_done(struct weights_job *job)
{
    struct weights_answer *answer = (struct weights_answer *)job;
    struct weights *weights = job->weights;
    if (answer->entry)
        answer->entry->n_serving--;
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
    entry->n_serving++;
    answer->peer->n_in_hand++;
    weights->n_reading++;
    answer->job.run = run_read;
    answer->job.done = weights_serve_read_done;
    weights_job_start(weights, &answer->job);
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
        else if (answer->state == ANSWER_WAITS && answer->peer->n_in_hand < LIMIT_WEIGHTS_IN_HAND &&
                 weights->n_reading < LIMIT_WEIGHTS_READ)
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
