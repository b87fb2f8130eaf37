/* A lane's thread in a device's process: opens the runner, takes micro-batches from the ring, and
 * closes it. */
#include "pipeline/child_room.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model.h"
#include "pipeline/runner.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDLE_MS = 1000 };

static pthread_mutex_t say_lock = PTHREAD_MUTEX_INITIALIZER;

void child_leave(const struct error *why)
{
    log_line(LOG_ERROR, "child", "%s", why->text);
    _exit(1);
}

void child_tell(const struct child_word *word)
{
    struct error err = {0};
    pthread_mutex_lock(&say_lock);
    if (child_say(CHILD_DESCRIPTOR, word, NULL, &err))
        child_leave(&err);
    pthread_mutex_unlock(&say_lock);
}

void child_tell_readings(struct device *device)
{
    struct child_word alive = {.kind = CHILD_ALIVE};
    alive.readings.memory = device_memory(device);
    if (device_reads_itself(device)) {
        alive.readings.temperature_mc = device_temperature_mc(device);
        alive.readings.power_mw = device_power_mw(device);
        alive.readings.clock_mhz = device_clock_mhz(device);
    }
    child_tell(&alive);
}

void child_set_outcome(struct child_word *word, enum error_code code, const struct error *err)
{
    word->code = code;
    snprintf(word->text, sizeof word->text, "%s", code ? err->text : "");
}

void room_write(struct room *room, uint32_t kind, const struct buffer *bytes)
{
    assert(atomic_load(&room->has_rings) && !bytes->failed);
    struct error err = {0};
    pthread_mutex_lock(&room->write_lock);
    if (ring_write(&room->out, kind, bytes->data, bytes->size, &err)) {
        error_wrap(&err, "the ring to the node");
        child_leave(&err);
    }
    pthread_mutex_unlock(&room->write_lock);
}

/* On the device's thread, or the lane's. Its node knows from the message where it goes. */
static void room_send_out(void *arg, uint32_t stage, struct buffer *message)
{
    (void)stage;
    room_write(arg, RECORD_MESSAGE, message);
}

static void room_refuse(struct room *room, enum error_code code, const struct error *why)
{
    struct buffer record = {0};
    bytes_put(&record, code, 2);
    buffer_text(&record, why->text);
    if (record.failed)
        child_leave(why);
    room_write(room, RECORD_REFUSED, &record);
    buffer_deinit(&record);
}

static enum error_code room_map_rings(struct room *room, struct error *err)
{
    const uint64_t bytes = room->open.ring_bytes + RING_HEAD_BYTES;
    struct stat facts;
    if (room->open.ring_bytes < RING_BYTES_MIN || room->open.ring_bytes > LIMIT_RING_BYTES ||
        (room->open.ring_bytes & (room->open.ring_bytes - 1)) ||
        fstat(room->handed.rings, &facts) || facts.st_size != (off_t)(2 * bytes))
        return error_set(err, ERROR_INVALID, "no rings of %llu bytes came",
                         (unsigned long long)room->open.ring_bytes);
    room->memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED, room->handed.rings, 0);
    if (room->memory == MAP_FAILED) {
        room->memory = NULL;
        return error_set(err, ERROR_NO_MEMORY, "no room for %llu bytes of shared memory",
                         (unsigned long long)(2 * bytes));
    }
    ring_init(&room->in, room->memory, room->open.ring_bytes);
    ring_init(&room->out, (char *)room->memory + bytes, room->open.ring_bytes);
    atomic_store(&room->has_rings, true);
    return ERROR_NONE;
}

static void room_note_bytes(const struct room *room, struct child_word *word)
{
    word->n_stages = room->open.n_stages;
    for (uint32_t i = 0; i < word->n_stages; i++) {
        word->stages[i] = room->open.stages[i];
        if (!room->runner || !runner_stage(room->runner, i))
            continue;
        word->stages[i].bytes = pipeline_stage_bytes(runner_pipeline(room->runner), i);
        word->stages[i].row_bytes = pipeline_row_bytes(runner_pipeline(room->runner), i);
    }
}

/* On the lane's thread, in runner_mind(). While a form changes there may be no stages. */
static void room_tell_memory(void *arg, const struct memory_step *step)
{
    struct room *room = arg;
    memset(room->word, 0, sizeof *room->word);
    room->word->kind = CHILD_MEMORY;
    room->word->lane = room->open.lane;
    room->word->memory = *step;
    room_note_bytes(room, room->word);
    child_tell_readings(room->device);
    child_tell(room->word);
}

static void room_mind(struct room *room)
{
    pthread_mutex_lock(&room->form_lock);
    runner_mind(room->runner);
    pthread_mutex_unlock(&room->form_lock);
}

static enum error_code room_open_runner(struct room *room, struct error *err)
{
    const struct child_word *open = &room->open;
    struct stage_plan plan[LIMIT_STAGES] = {0};
    for (uint32_t i = 0; i < open->n_stages; i++) {
        plan[i] = (struct stage_plan){open->stages[i].here ? room->device : NULL,
                                      open->stages[i].n_layers};
        room->types[i] = open->stages[i].type;
    }
    room->far = (struct far){.instance = open->instance,
                             .epoch = open->epoch,
                             .type = open->type,
                             .types = room->types,
                             .send = room_send_out,
                             .arg = room};
    enum error_code code = child_model_open(open, &room->handed, &room->model, err);
    struct driver_options options = open->options;
    options.fallback = room->fallback;
    options.stop = &room->closes; /* the node may not want it any more before it is loaded */
    if (!code && rope_stretch_is_set(&options.rope))
        code = model_stretch_copy(room->model, &options.rope, &room->stretched, err);
    if (!code)
        code = runner_open(room->stretched ? room->stretched : room->model, plan, open->n_stages,
                           &options, &room->far, &room->runner, err);
    if (!code)
        runner_watch(room->runner, room_tell_memory, room);
    if (!code && open->again)
        runner_forget(room->runner);
    return code;
}

static void room_take_record(struct room *room, uint32_t kind)
{
    assert(room->runner);
    struct error err = {0};
    child_measure_stop();
    if (kind == RECORD_CACHE) {
        room_take_cache(room);
        return;
    }
    if (kind == RECORD_HALT && room->message.size == RECORD_HALT_BYTES) {
        runner_halt(room->runner,
                    bytes_load((const unsigned char *)room->message.data, RECORD_HALT_BYTES));
        return;
    }
    enum error_code code =
        kind == RECORD_MESSAGE
            ? runner_receive(room->runner, room->message.data, room->message.size, &err)
            : error_set(&err, ERROR_INVALID, "a record of unknown kind %u", kind);
    if (code)
        room_refuse(room, code, &err);
}

static void room_serve(struct room *room)
{
    for (;;) {
        const uint32_t bell = ring_bell(&room->in);
        struct error err = {0};
        uint32_t kind;
        if (atomic_load(&room->closes))
            return;
        room_mind(room);
        if (ring_read(&room->in, &kind, &room->message, &err))
            child_leave(&err);
        if (kind)
            room_take_record(room, kind);
        else
            ring_wait(&room->in, bell, 0, IDLE_MS);
    }
}

/* The readings first: who hears that a lane is there, or has gone, knows what is free then. */
void child_say_closed(struct device *device, uint32_t lane, struct child_word *word)
{
    memset(word, 0, sizeof *word);
    word->kind = CHILD_CLOSED;
    word->lane = lane;
    child_tell_readings(device);
    child_tell(word);
}

void *room_run(void *arg)
{
    struct room *room = arg;
    struct child_word *word = room->word = mem_new(sizeof *word);
    struct error err = {0};
    if (!word) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory to open stages");
        child_leave(&err);
    }
    enum error_code code = room_map_rings(room, &err);
    if (!code)
        code = room_open_runner(room, &err);
    word->kind = CHILD_OPENED;
    word->lane = room->open.lane;
    child_set_outcome(word, code, &err);
    room_note_bytes(room, word);
    atomic_store(&room->is_open, !code);
    child_tell_readings(room->device);
    child_tell(word);
    if (!code)
        room_serve(room);
    runner_close(room->runner);
    model_close(room->stretched);
    child_model_close(room->model);
    if (!code) {
        child_say_closed(room->device, room->open.lane, word);
        room->said_closed = true;
    }
    mem_free(word);
    atomic_store(&room->ended, true);
    return NULL;
}
