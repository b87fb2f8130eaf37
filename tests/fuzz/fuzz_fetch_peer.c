/* Fetching a model from an honest node and a hostile one, and giving parts to the hostile one. It
 * knows what was asked of whom and answers anything: chunks of any size, for requests of others and
 * of nobody, refusals, sets of parts, some with bytes changed. Holds: what is written lies within
 * what was asked for; nobody is asked for what it does not have, nor who has lied; in the end
 * every part is there, byte by byte; what is given out is what was asked for. */
#include "hostile_peer.h"

#include "base/mem.h"
#include "weights/fetch.h"
#include "weights/fetch_message.h"
#include "weights/weight_source.h"

#include <string.h>
#include <unistd.h>

enum {
    PARTS = 4,
    MODEL = 20000,
    CHUNK = 2048,
    ASKS = 64,
    HONEST = 0,
    HOSTILE = 1,
    STEP_NS = 100000000,
    STEPS_MAX = 20000,
};

static struct manifest_part parts[PARTS] = {{.size = 100},
                                            {.name = "a", .offset = 100, .size = 9000},
                                            {.name = "b", .offset = 9100, .size = 10899},
                                            {.name = "c", .offset = 19999, .size = 1}};
static struct manifest manifest = {.size = MODEL, .n_parts = PARTS, .parts = parts};
static uint8_t model[MODEL];
static struct weight_source source;
static struct part_set all;

struct fetched {
    struct hostile_input in;
    struct fetch *fetch;
    uint64_t now_ns;
    struct fetch_action honest[ASKS], hostile[ASKS]; /* what they were asked for */
    uint32_t n_honest, n_hostile, last_id;
    bool hostile_has[PARTS];
    uint8_t written[MODEL];
};

static void open_source(void)
{
    char path[] = "/tmp/medley-fuzz-XXXXXX";
    const int fd = mkstemp(path);
    for (uint32_t i = 0; i < MODEL; i++)
        model[i] = (uint8_t)(i * 31 + i / 251);
    FUZZ_CHECK(fd >= 0 && unlink(path) == 0 && write(fd, model, MODEL) == MODEL);
    FUZZ_CHECK(!part_set_init(&all, PARTS, NULL));
    part_set_add_all(&all);
    source = (struct weight_source){.manifest = &manifest, .has = &all, .fd = fd};
    manifest_write(&manifest, &source.manifest_bytes);
}

/* ---- what the fetch wants ---- */

static void keep_ask(struct fetched *f, const struct fetch_action *ask)
{
    const bool is_honest = ask->peer == HONEST;
    struct fetch_action *list = is_honest ? f->honest : f->hostile;
    uint32_t *n = is_honest ? &f->n_honest : &f->n_hostile;
    const struct fetch_peer_notes notes = fetch_peer_notes(f->fetch, ask->peer);
    FUZZ_CHECK(ask->part < PARTS && ask->size && ask->size <= CHUNK &&
               ask->offset + ask->size <= parts[ask->part].size);
    FUZZ_CHECK(!notes.is_out && !notes.has_lied && (is_honest || f->hostile_has[ask->part]));
    f->last_id = ask->id;
    if (*n == ASKS) { /* the hostile one forgets, too */
        FUZZ_CHECK(!is_honest);
        memmove(list, list + 1, --*n * sizeof *list);
    }
    list[(*n)++] = *ask;
}

static void drop_ask(struct fetched *f, uint32_t peer, uint32_t id)
{
    struct fetch_action *list = peer == HONEST ? f->honest : f->hostile;
    uint32_t *n = peer == HONEST ? &f->n_honest : &f->n_hostile;
    for (uint32_t i = 0; i < *n; i++) {
        if (list[i].id == id) {
            memmove(&list[i], &list[i + 1], (--*n - i) * sizeof *list);
            return;
        }
    }
}

static void carry_out(struct fetched *f)
{
    struct fetch_action action;
    while ((action = fetch_next(f->fetch, f->now_ns)).kind != FETCH_NOTHING) {
        const struct manifest_part *part = &parts[action.part];
        if (action.kind == FETCH_ASK) {
            keep_ask(f, &action);
        } else if (action.kind == FETCH_CANCEL) {
            drop_ask(f, action.peer, action.id);
        } else {
            const bool good =
                memcmp(f->written + part->offset, model + part->offset, part->size) == 0;
            fetch_verified(f->fetch, f->now_ns, action.part, good);
        }
    }
}

/* A chunk came from somebody. */
static void take_chunk(struct fetched *f, uint32_t peer, const struct fetch_message *m)
{
    struct fetch_action where = {.kind = FETCH_NOTHING};
    const enum fetch_take take =
        fetch_chunk(f->fetch, f->now_ns, peer, m->id, m->chunk.size, &where);
    hostile_refused += take == FETCH_BAD;
    FUZZ_CHECK(take != FETCH_BAD || (peer == HOSTILE && fetch_peer_notes(f->fetch, peer).has_lied));
    if (take != FETCH_WRITE)
        return;
    FUZZ_CHECK(where.part < PARTS && where.offset + m->chunk.size <= parts[where.part].size);
    memcpy(f->written + parts[where.part].offset + where.offset, m->chunk.bytes, m->chunk.size);
}

static void honest_answer(struct fetched *f)
{
    if (!f->n_honest)
        return;
    const struct fetch_action ask = f->honest[0];
    const struct fetch_message chunk = {
        .type = FETCH_MESSAGE_CHUNK,
        .id = ask.id,
        .chunk = {model + parts[ask.part].offset + ask.offset, ask.size}};
    drop_ask(f, HONEST, ask.id);
    take_chunk(f, HONEST, &chunk);
    honest_checked++;
    carry_out(f);
}

/* ---- the hostile one ---- */

static void hear_have(struct fetched *f, const struct fetch_message *m)
{
    struct part_set has;
    if (m->have.n_parts != PARTS)
        return; /* weights_peers.c: of another model */
    FUZZ_CHECK(!part_set_init(&has, PARTS, NULL));
    fetch_message_parts(m, &has);
    for (uint32_t i = 0; i < PARTS; i++)
        f->hostile_has[i] = part_set_has(&has, i);
    fetch_peer_has(f->fetch, f->now_ns, HOSTILE, &has);
    part_set_deinit(&has);
}

static void give(const struct fetch_message *request)
{
    struct buffer bytes = {0};
    struct fetch_message back;
    weight_source_answer(&source, request, &bytes);
    FUZZ_CHECK(!fetch_message_read(bytes.data, bytes.size, &back, NULL) && back.id == request->id);
    if (back.type == FETCH_MESSAGE_CHUNK && request->request.part != FETCH_MANIFEST) {
        const uint64_t at = parts[request->request.part].offset + request->request.offset;
        FUZZ_CHECK(back.chunk.size == request->request.size && at + back.chunk.size <= MODEL &&
                   memcmp(back.chunk.bytes, model + at, back.chunk.size) == 0);
    }
    buffer_deinit(&bytes);
}

static void hear_hostile(struct fetched *f, const struct buffer *bytes)
{
    struct fetch_message m;
    hostile_sent++;
    if (fetch_message_read(bytes->data, bytes->size, &m, NULL)) {
        hostile_refused++;
        return;
    }
    switch (m.type) {
    case FETCH_MESSAGE_HAVE:
        hear_have(f, &m);
        break;
    case FETCH_MESSAGE_REQUEST:
        give(&m);
        break;
    case FETCH_MESSAGE_CHUNK:
        take_chunk(f, HOSTILE, &m);
        break;
    case FETCH_MESSAGE_REFUSE:
        fetch_refused(f->fetch, f->now_ns, HOSTILE, m.id, m.refusal == FETCH_REFUSE_LACKS);
        break;
    case FETCH_MESSAGE_ASK_HAVE:
    case FETCH_MESSAGE_CANCEL:
    case FETCH_MESSAGE_REQUEST_CONVERTED: /* needs the model opened; here it is only read */
    case FETCH_MESSAGE_CHUNK_CONVERTED:   /* never of a fetch of the original */
        break;
    }
    carry_out(f);
}

static uint32_t drawn_id(struct fetched *f)
{
    const unsigned how = hostile_draw(&f->in);
    if (how < 160 && f->n_hostile)
        return f->hostile[how % f->n_hostile].id;
    if (how < 208 && f->n_honest)
        return f->honest[how % f->n_honest].id;
    return (uint32_t)hostile_near(&f->in, f->last_id);
}

/* Sometimes the true bytes of what it was asked for. */
static void hostile_chunk(struct fetched *f, struct fetch_message *m)
{
    const unsigned how = hostile_draw(&f->in);
    m->id = drawn_id(f);
    m->chunk.bytes = model;
    m->chunk.size = (uint32_t)hostile_near(&f->in, CHUNK) % (CHUNK + 3);
    for (uint32_t i = 0; i < f->n_hostile && how < 200; i++) {
        const struct fetch_action *ask = &f->hostile[i];
        if (ask->id != m->id)
            continue;
        m->chunk.size = ask->size;
        if (how < 100)
            m->chunk.bytes = model + parts[ask->part].offset + ask->offset;
    }
    drop_ask(f, HOSTILE, m->id);
}

static void hostile_have(struct fetched *f, struct buffer *out)
{
    struct part_set has;
    FUZZ_CHECK(!part_set_init(&has, PARTS, NULL));
    for (uint32_t i = 0; i < PARTS; i++) {
        if (hostile_draw(&f->in) % 4)
            part_set_add(&has, i);
    }
    fetch_message_write_have(&source.model, 100, &has, out);
    part_set_deinit(&has);
}

static void hostile_speak(struct fetched *f)
{
    struct buffer bytes = {0};
    struct fetch_message m = {.type = FETCH_MESSAGE_CHUNK, .model = source.model};
    const unsigned kind = hostile_draw(&f->in) % 8;
    if (kind == 0) {
        hostile_have(f, &bytes);
    } else if (kind == 1) {
        m.type = FETCH_MESSAGE_REQUEST;
        m.id = hostile_draw(&f->in);
        m.request.part = (uint32_t)hostile_near(&f->in, 2);
        m.request.offset = hostile_near(&f->in, parts[hostile_draw(&f->in) % PARTS].size);
        m.request.size = 1 + hostile_draw(&f->in) * 40;
    } else if (kind == 2) {
        m.type = hostile_draw(&f->in) % 3 ? FETCH_MESSAGE_REFUSE : FETCH_MESSAGE_CANCEL;
        m.id = drawn_id(f);
        m.refusal = (enum fetch_refusal)(1 + (int)(hostile_draw(&f->in) % 3));
    } else {
        hostile_chunk(f, &m);
    }
    if (kind)
        fetch_message_write(&m, &bytes);
    FUZZ_CHECK(!bytes.failed);
    hostile_bend(&f->in, bytes.data, bytes.size);
    hear_hostile(f, &bytes);
    buffer_deinit(&bytes);
}

/* ---- a run ---- */

static void pass_time(struct fetched *f)
{
    f->now_ns += STEP_NS;
    carry_out(f);
}

static void open_fetch(struct fetched *f)
{
    const struct topology_link link = {0};
    const struct fetch_settings settings = {.chunk_bytes = CHUNK,
                                            .patience_ns = UINT64_C(3600) * 1000000000};
    uint32_t peer = 9;
    FUZZ_CHECK(!fetch_new(&manifest, &all, &settings, f->now_ns, &f->fetch, NULL));
    FUZZ_CHECK(!fetch_peer_add(f->fetch, f->now_ns, &link, &all, &peer, NULL) && peer == HONEST);
    FUZZ_CHECK(!fetch_peer_add(f->fetch, f->now_ns, &link, &all, &peer, NULL) && peer == HOSTILE);
    for (uint32_t i = 0; i < PARTS; i++)
        f->hostile_has[i] = true;
    carry_out(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fetched f;
    struct error err;
    if (!source.manifest)
        open_source();
    hostile_begin();
    f = (struct fetched){.in = {data, data + size}, .now_ns = 1000000000};
    open_fetch(&f);
    while (f.in.at < f.in.end) {
        const unsigned what = hostile_draw(&f.in);
        if (what < 224)
            hostile_speak(&f);
        else if (what < 240)
            honest_answer(&f);
        else
            pass_time(&f);
    }
    for (uint32_t i = 0; i < STEPS_MAX && fetch_status(f.fetch, &err) == FETCH_RUNNING; i++) {
        while (f.n_honest)
            honest_answer(&f);
        pass_time(&f);
    }
    FUZZ_CHECK(fetch_status(f.fetch, &err) == FETCH_DONE && memcmp(f.written, model, MODEL) == 0);
    fetch_free(f.fetch);
    return 0;
}
