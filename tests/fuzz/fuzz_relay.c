/* A relay between an honest node and a hostile one. The relay's node asks both, and serves both;
 * the hostile one knows every id and sends requests, answers, rows, ends and cancellations of its
 * own, of the others' requests and of nobody's, some with bytes changed. Holds: the relay ends the
 * hostile one's links and no others; the honest node's answer comes token by token, in order and as
 * it was given, and so does what the honest node has asked for; every request ends once. Of a
 * request that the hostile one answers only the order holds. */
#include "hostile_peer.h"

#include "relay/relay_core.h"

#include <string.h>

enum {
    HONEST = 1,
    HOSTILE = 2,
    RUNS = 32,      /* in a driver, or at the honest node */
    TOKENS = 12,    /* of each honest request */
    PATIENCE = 400, /* turns until all honest requests have ended */
    TURN_NS = 50000000,
};

struct asked { /* by the relay's node */
    const char *instance;
    uint32_t got;
    bool is_over, is_honest;
};

struct run { /* of a driver: here, or at the honest node */
    struct relay_served *served;
    uint64_t id, seed;
    uint32_t n_tokens, left, index;
    bool used, is_accepted;
};

struct relayed {
    struct hostile_input in;
    struct relay_core *core;
    uint64_t now_ns, n_links, hostile_link, last_id;
    struct asked asks[2];
    struct run here[RUNS], there[RUNS];
    uint32_t n_here;
    uint32_t honest_got;     /* tokens of the honest node's request */
    bool honest_ended, ends; /* the hostile one's link is to end */
};

static void name_node(uint8_t id[NODE_ID_BYTES], uint8_t node)
{
    memset(id, 0, NODE_ID_BYTES);
    id[0] = node;
}

static void *link_of(const struct relayed *f, uint8_t node)
{
    return (void *)(uintptr_t)(node == HONEST ? 1 : f->hostile_link);
}

static int32_t token_at(uint64_t seed, uint32_t position)
{
    return (int32_t)((seed * 31 + (uint64_t)position * 97) % 5000);
}

/* ---- what the relay asks ---- */

static enum error_code relayed_find(void *self, const char *instance, struct relay_place *out,
                                    struct error *err)
{
    (void)self;
    *out = (struct relay_place){.epoch = 1};
    if (strcmp(instance, "here") == 0)
        out->driver = self;
    else if (strcmp(instance, "honest") == 0)
        name_node(out->node_id, HONEST);
    else if (strcmp(instance, "hostile") == 0)
        name_node(out->node_id, HOSTILE);
    else
        return error_set(err, ERROR_NOT_FOUND, "no such instance");
    return ERROR_NONE;
}

static bool relayed_reaches(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    (void)self, (void)node_id;
    return true;
}

static bool relayed_through(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out)
{
    (void)self, (void)node_id, (void)out;
    return false;
}

static void *relayed_link_to(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    return link_of(self, node_id[0]);
}

/* What is handed on to the honest node is answered by way of an ask of the relay's own. */
static bool served_token(void *served, const struct token_event *event)
{
    return relay_served_token(served, event);
}

static void served_row(void *served, uint32_t position, const float *values, uint32_t n_values)
{
    relay_served_row(served, position, values, n_values);
}

static void served_done(void *served, enum finish_reason reason, const struct request_usage *usage,
                        const struct error *err)
{
    const struct relayed *f = relay_served_owner(served);
    relay_served_done(served, reason, usage, err, f->now_ns);
}

/* ---- drivers ---- */

static struct run *run_new(struct run *list, uint64_t id, const struct request *request)
{
    for (uint32_t i = 0; i < RUNS; i++) {
        if (list[i].used)
            continue;
        list[i] = (struct run){.id = id,
                               .seed = request->sampler.seed,
                               .n_tokens = request->n_prompt,
                               .left = request->n_predict,
                               .used = true};
        return &list[i];
    }
    return NULL;
}

static struct run *run_find(struct run *list, uint64_t id)
{
    for (uint32_t i = 0; i < RUNS; i++) {
        if (list[i].used && list[i].id == id)
            return &list[i];
    }
    return NULL;
}

static void run_end(struct relayed *f, struct run *run, enum finish_reason reason)
{
    const struct request_usage usage = {.generated_tokens = run->index};
    struct relay_served *served = run->served;
    run->used = false;
    relay_served_done(served, reason, &usage, NULL, f->now_ns);
}

/* One token of what runs in the driver here. */
static void drive_here(struct relayed *f)
{
    struct run *run = &f->here[f->n_here++ % RUNS];
    if (!run->used)
        return;
    const struct token_event event = {.token = token_at(run->seed, run->n_tokens),
                                      .index = run->index};
    run->n_tokens++, run->index++;
    const bool goes_on = relay_served_token(run->served, &event);
    if (!goes_on || run->index >= run->left)
        run_end(f, run, goes_on ? FINISH_LENGTH : FINISH_STOP);
}

static void carry(struct relayed *f);

static void hear(struct relayed *f, uint8_t from, const struct buffer *run)
{
    uint8_t id[NODE_ID_BYTES];
    name_node(id, from);
    FUZZ_CHECK(!run->failed &&
               relay_core_receive(f->core, link_of(f, from), id, run->data, run->size));
    carry(f);
}

/* The honest node's driver says the next of each of its requests. */
static void drive_there(struct relayed *f)
{
    struct buffer said = {0};
    size_t last = SIZE_MAX;
    for (uint32_t i = 0; i < RUNS; i++) {
        struct run *run = &f->there[i];
        if (!run->used)
            continue;
        if (!run->is_accepted) {
            request_write_accepted(run->id, &said);
            run->is_accepted = true;
            continue;
        }
        const struct token_event event = {.token = token_at(run->seed, run->n_tokens++),
                                          .index = run->index++};
        request_write_token(run->id, &event, &last, &said);
        if (run->index < run->left)
            continue;
        const struct request_usage usage = {.generated_tokens = run->index};
        request_write_done(run->id, FINISH_LENGTH, &usage, NULL, false, &said);
        last = SIZE_MAX;
        run->used = false;
    }
    if (said.size)
        hear(f, HONEST, &said);
    buffer_deinit(&said);
}

/* ---- what the honest node hears ---- */

enum { HONEST_ID = 77, HONEST_SEED = 4242, HONEST_PROMPT = 3 };

static void check_honest_tokens(struct relayed *f, struct request_message *message)
{
    struct token_logprob top[LIMIT_TOP_LOGPROBS];
    FUZZ_CHECK(message->id == HONEST_ID && !f->honest_ended);
    for (uint32_t i = 0; i < message->tokens.count; i++) {
        struct token_event event;
        request_next_token(message, &event, top);
        FUZZ_CHECK(event.index == f->honest_got &&
                   event.token == token_at(HONEST_SEED, HONEST_PROMPT + f->honest_got));
        f->honest_got++;
        honest_checked++;
    }
}

static void honest_take(struct relayed *f, struct request_message *message)
{
    struct run *run = run_find(f->there, message->id);
    switch (message->kind) {
    case REQUEST_SUBMIT:
        f->last_id = message->id;
        FUZZ_CHECK(!run && !message->submit.onward);
        FUZZ_CHECK(strcmp(message->submit.instance, "honest") == 0);
        run_new(f->there, message->id, &message->submit.request); /* what finds no place waits */
        break;
    case REQUEST_CANCEL:
        if (run)
            run->used = false;
        break;
    case REQUEST_ACCEPTED:
        FUZZ_CHECK(message->id == HONEST_ID);
        break;
    case REQUEST_TOKENS:
        check_honest_tokens(f, message);
        break;
    case REQUEST_DONE:
        FUZZ_CHECK(message->id == HONEST_ID && !f->honest_ended &&
                   message->done.reason == FINISH_LENGTH && f->honest_got == TOKENS);
        f->honest_ended = true;
        break;
    default:
        FUZZ_CHECK(message->kind > REQUEST_CANCEL); /* refused, or a row nobody asked for */
        break;
    }
}

static void honest_hear(struct relayed *f, const struct buffer *run)
{
    struct bytes_reader left = {(const uint8_t *)run->data, run->size, false};
    const void *bytes;
    size_t size;
    while (!request_next(&left, &bytes, &size, NULL) && bytes) {
        struct request_message message;
        FUZZ_CHECK(!request_read(bytes, size, &message, NULL));
        honest_take(f, &message);
        request_message_deinit(&message);
    }
    FUZZ_CHECK(!left.left);
}

/* ---- what the relay wants ---- */

static bool asked_token(void *arg, const struct token_event *event)
{
    struct asked *asked = arg;
    FUZZ_CHECK(!asked->is_over && event->index == asked->got);
    FUZZ_CHECK(event->token >= 0 && event->token < LIMIT_VOCAB);
    if (asked->is_honest) {
        FUZZ_CHECK(event->token == token_at(1, HONEST_PROMPT + asked->got));
        honest_checked++;
    }
    asked->got++;
    return true;
}

static void asked_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                       const struct error *err)
{
    struct asked *asked = arg;
    (void)usage;
    FUZZ_CHECK(!asked->is_over && (reason == FINISH_ERROR) == (err != NULL));
    FUZZ_CHECK(!asked->is_honest || (reason == FINISH_LENGTH && asked->got == TOKENS));
    asked->is_over = true;
}

static void take_token(struct relayed *f, const struct relay_effect *e)
{
    const struct request *request = relay_ask_request(e->ask);
    relay_core_token_taken(f->core, request->handlers.token(request->arg, &e->token), f->now_ns);
}

static void take_done(struct relayed *f, const struct relay_effect *e)
{
    const struct request *request = relay_ask_request(e->ask);
    request->handlers.done(request->arg, e->reason, &e->usage,
                           e->reason == FINISH_ERROR ? &e->error : NULL);
    relay_core_forget(f->core, e->ask, f->now_ns);
}

static void submit_here(struct relayed *f, const struct relay_effect *e)
{
    static uint64_t id;
    struct error busy = {0};
    struct run *run = run_new(f->here, ++id, &e->request);
    FUZZ_CHECK(e->served && e->request.n_prompt && e->request.n_predict);
    error_set(&busy, ERROR_BUSY, "full");
    if (run)
        run->served = e->served;
    relay_core_submitted(f->core, e, run ? ERROR_NONE : ERROR_BUSY, id, run ? NULL : &busy,
                         f->now_ns);
}

static void carry_out_one(struct relayed *f, struct relay_effect *e)
{
    struct run *run;
    switch (e->type) {
    case RELAY_SUBMIT:
        submit_here(f, e);
        break;
    case RELAY_CANCEL:
        run = run_find(f->here, e->id);
        FUZZ_CHECK(run);
        run_end(f, run, FINISH_CANCELLED);
        break;
    case RELAY_TOKEN:
        take_token(f, e);
        break;
    case RELAY_DONE:
        take_done(f, e);
        break;
    case RELAY_SEND:
        if (e->link == link_of(f, HONEST))
            honest_hear(f, e->run);
        relay_core_sent(f->core, e->peer, ERROR_NONE);
        break;
    case RELAY_ABORT:
        FUZZ_CHECK(e->link == link_of(f, HOSTILE) && e->error.text[0]);
        f->ends = true;
        break;
    case RELAY_ROW:
    case RELAY_WANTED:
        FUZZ_CHECK(e->type == RELAY_WANTED); /* nobody asked for rows */
        break;
    }
}

static void carry(struct relayed *f)
{
    struct relay_effect e;
    do {
        while (relay_core_next(f->core, f->now_ns, &e))
            carry_out_one(f, &e);
        if (f->ends) { /* and it is linked again */
            f->ends = false;
            hostile_refused++;
            relay_core_down(f->core, link_of(f, HOSTILE), f->now_ns);
            f->hostile_link = ++f->n_links;
        }
        if (relay_core_is_due(f->core))
            relay_core_turn(f->core);
    } while (relay_core_next(f->core, f->now_ns, &e) ? (carry_out_one(f, &e), true)
                                                     : relay_core_is_due(f->core) || f->ends);
}

static void pass_time(struct relayed *f)
{
    f->now_ns += TURN_NS;
    relay_core_turn(f->core);
    carry(f);
    drive_here(f);
    drive_there(f);
    carry(f);
}

/* ---- the hostile one ---- */

static uint64_t drawn_id(struct relayed *f)
{
    static const uint64_t known[] = {HONEST_ID, 1, 2, 3};
    const unsigned how = hostile_draw(&f->in);
    if (how < 96)
        return f->last_id;
    return how < 192 ? known[how % 4] : hostile_near(&f->in, f->last_id + 1);
}

static struct request drawn_request(struct relayed *f)
{
    static const int32_t prompt[] = {1, 2, 3, 4};
    struct request request = {.prompt = prompt,
                              .n_prompt = 1 + hostile_draw(&f->in) % 4,
                              .n_predict = 1 + hostile_draw(&f->in) % 40,
                              .sampler = sampler_defaults()};
    request.sampler.seed = hostile_draw(&f->in) % 2 ? HONEST_SEED : 1;
    return request;
}

static void hostile_answer(struct relayed *f, unsigned kind, struct buffer *run)
{
    const uint64_t id = drawn_id(f);
    const struct request_usage usage = {.generated_tokens = hostile_draw(&f->in)};
    struct error why = {0};
    size_t last = SIZE_MAX;
    error_set(&why, (enum error_code)(1 + (int)(hostile_draw(&f->in) % 8)), "made up");
    if (kind == 0) {
        request_write_accepted(id, run);
    } else if (kind == 1) {
        request_write_refused(id, &why, run);
    } else if (kind == 2) {
        const float row[] = {1, 2};
        request_write_row(id, hostile_draw(&f->in), row, 2, run);
    } else if (kind == 3) {
        const bool fails = hostile_draw(&f->in) % 2;
        request_write_done(id, fails ? FINISH_ERROR : FINISH_LENGTH, &usage, fails ? &why : NULL,
                           hostile_draw(&f->in) % 2, run);
    } else {
        for (unsigned n = 1 + hostile_draw(&f->in) % 3; n > 0; n--) {
            const struct token_event event = {.token = (int32_t)hostile_draw(&f->in),
                                              .index = hostile_draw(&f->in) % 16};
            request_write_token(id, &event, &last, run);
        }
    }
}

static void hostile_speak(struct relayed *f)
{
    static const char *const instances[] = {"here", "honest", "hostile", "nowhere"};
    struct buffer run = {0};
    const unsigned kind = hostile_draw(&f->in) % 12;
    const struct request request = drawn_request(f);
    const char *instance = instances[hostile_draw(&f->in) % 4];
    if (kind == 11)
        request_write_cancel(drawn_id(f), &run);
    else if (kind == 10)
        request_write_submit_onward(drawn_id(f), instance, &request, &run);
    else if (kind >= 8)
        request_write_submit(drawn_id(f), instance, &request, &run);
    else
        hostile_answer(f, kind < 5 ? kind : 4, &run);
    hostile_bend(&f->in, run.data, run.size);
    hostile_sent++;
    hear(f, HOSTILE, &run);
    buffer_deinit(&run);
}

/* ---- a run ---- */

static void ask(struct relayed *f, struct asked *asked, const char *instance, bool is_honest)
{
    static const int32_t prompt[HONEST_PROMPT] = {1, 2, 3};
    struct request request = {.prompt = prompt,
                              .n_prompt = HONEST_PROMPT,
                              .n_predict = TOKENS,
                              .sampler = sampler_defaults(),
                              .handlers = {asked_token, NULL, asked_done},
                              .arg = asked};
    struct relay_ask *made = NULL;
    request.sampler.seed = 1;
    *asked = (struct asked){.instance = instance, .is_honest = is_honest};
    struct relay_instance *of = relay_core_instance(f->core, instance, NULL);
    FUZZ_CHECK(of && !relay_ask_new(of, &request, 1000, f->now_ns, &made, NULL) &&
               !relay_core_submit(f->core, made, NULL, NULL));
    carry(f);
}

static void honest_ask(struct relayed *f)
{
    static const int32_t prompt[HONEST_PROMPT] = {1, 2, 3};
    struct request request = {.prompt = prompt,
                              .n_prompt = HONEST_PROMPT,
                              .n_predict = TOKENS,
                              .sampler = sampler_defaults()};
    struct buffer run = {0};
    request.sampler.seed = HONEST_SEED;
    request_write_submit(HONEST_ID, "here", &request, &run);
    hear(f, HONEST, &run);
    buffer_deinit(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct relayed f = {.in = {data, data + size}, .now_ns = 1000000000, .n_links = 2};
    f.hostile_link = 2;
    const struct relay_core_options options = {.find = relayed_find,
                                               .reaches = relayed_reaches,
                                               .through = relayed_through,
                                               .link_to = relayed_link_to,
                                               .served = {served_token, served_row, served_done},
                                               .patience_ms = 600000,
                                               .self = &f};
    hostile_begin();
    FUZZ_CHECK(!relay_core_open(&options, &f.core, NULL));
    ask(&f, &f.asks[0], "honest", true);
    ask(&f, &f.asks[1], "hostile", false);
    honest_ask(&f);
    while (f.in.at < f.in.end) {
        if (hostile_draw(&f.in) < 230)
            hostile_speak(&f);
        else
            pass_time(&f);
    }
    for (uint32_t i = 0; i < PATIENCE && !(f.asks[0].is_over && f.honest_ended); i++)
        pass_time(&f);
    FUZZ_CHECK(f.asks[0].is_over && f.honest_ended);
    relay_core_close(f.core);
    return 0;
}
