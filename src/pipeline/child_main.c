/* The child's side of children.h. Its main thread opens the device, then only listens and answers; each lane has a
 * thread that opens the runner, takes micro-batches from its ring, and closes it. */
#include "pipeline/children_impl.h"

#include "base/bytes.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/model.h"
#include "pipeline/runner.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDLE_MS = 1000 };

struct room { /* a lane, here */
    struct room *next;
    struct child_word open;
    int memory_fd;
    void *memory;
    pthread_t thread;
    _Atomic bool closes, ended, has_rings;
    bool said_closed; /* its thread's, then the main thread's */
    struct ring in, out;
    pthread_mutex_t write_lock;
    struct model *model;
    struct runner *runner;
    struct far far;
    enum activation_type types[LIMIT_STAGES];
    struct buffer message;
};

static struct gpu *gpu;
static struct device *device;
static struct room *rooms; /* the main thread's */
static pthread_mutex_t say_lock = PTHREAD_MUTEX_INITIALIZER;

/* Without the exit handlers of drivers, which may hang. */
static _Noreturn void leave(const struct error *why)
{
    log_line(LOG_ERROR, "child", "%s", why->text);
    _exit(1);
}

static void say(const struct child_word *word)
{
    struct error err = {0};
    pthread_mutex_lock(&say_lock);
    if (child_say(CHILD_DESCRIPTOR, word, -1, &err))
        leave(&err);
    pthread_mutex_unlock(&say_lock);
}

static void set_outcome(struct child_word *word, enum error_code code, const struct error *err)
{
    word->code = code;
    snprintf(word->text, sizeof word->text, "%s", code ? err->text : "");
}

/* ---- a lane's thread ------------------------------------------------------------------ */

static void write_record(struct room *room, uint32_t kind, const struct buffer *bytes)
{
    struct error err = {0};
    pthread_mutex_lock(&room->write_lock);
    if (ring_write(&room->out, kind, bytes->data, bytes->size, &err)) {
        error_wrap(&err, "the ring to the node");
        leave(&err);
    }
    pthread_mutex_unlock(&room->write_lock);
}

/* On the device's thread, or the lane's. Its node knows from the message where it goes. */
static void send_out(void *arg, uint32_t stage, struct buffer *message)
{
    (void)stage;
    write_record(arg, RECORD_MESSAGE, message);
}

static void refuse(struct room *room, enum error_code code, const struct error *why)
{
    struct buffer record = {0};
    bytes_put(&record, code, 2);
    buffer_text(&record, why->text);
    if (record.failed)
        leave(why);
    write_record(room, RECORD_REFUSED, &record);
    buffer_deinit(&record);
}

static enum error_code map_rings(struct room *room, struct error *err)
{
    const uint64_t bytes = room->open.ring_bytes + RING_HEAD_BYTES;
    struct stat facts;
    if (room->open.ring_bytes < RING_BYTES_MIN || room->open.ring_bytes > LIMIT_RING_BYTES ||
        (room->open.ring_bytes & (room->open.ring_bytes - 1)) || fstat(room->memory_fd, &facts) ||
        facts.st_size != (off_t)(2 * bytes))
        return error_set(err, ERROR_INVALID, "no rings of %llu bytes came", (unsigned long long)room->open.ring_bytes);
    room->memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED, room->memory_fd, 0);
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

static enum error_code open_runner(struct room *room, struct error *err)
{
    const struct child_word *open = &room->open;
    struct stage_plan plan[LIMIT_STAGES] = {0};
    for (uint32_t i = 0; i < open->n_stages; i++) {
        plan[i] = (struct stage_plan){open->stages[i].here ? device : NULL, open->stages[i].n_layers};
        room->types[i] = open->stages[i].type;
    }
    room->far = (struct far){.instance = open->instance,
                             .epoch = open->epoch,
                             .type = open->type,
                             .types = room->types,
                             .send = send_out,
                             .arg = room};
    enum error_code code = model_open(open->path, &room->model, err);
    if (!code)
        code = runner_open(room->model, plan, open->n_stages, &open->options, &room->far, &room->runner, err);
    if (!code && open->again)
        runner_forget(room->runner);
    return code;
}

static void note_bytes(const struct room *room, struct child_word *word)
{
    word->n_stages = room->open.n_stages;
    for (uint32_t i = 0; i < word->n_stages; i++) {
        const struct stage *stage = room->runner ? runner_stage(room->runner, i) : NULL;
        word->stages[i] = room->open.stages[i];
        if (!stage)
            continue;
        const struct stage_memory memory = stage_memory(stage);
        word->stages[i].bytes = memory.weights + memory.kv + memory.compute + memory.host;
    }
}

static void take_record(struct room *room, uint32_t kind)
{
    struct error err = {0};
    enum error_code code = kind == RECORD_MESSAGE
                               ? runner_receive(room->runner, room->message.data, room->message.size, &err)
                               : error_set(&err, ERROR_INVALID, "a record of kind %u", kind);
    if (code)
        refuse(room, code, &err);
}

static void serve(struct room *room)
{
    for (;;) {
        const uint32_t bell = ring_bell(&room->in);
        struct error err = {0};
        uint32_t kind;
        if (atomic_load(&room->closes))
            return;
        if (ring_read(&room->in, &kind, &room->message, &err))
            leave(&err);
        if (kind)
            take_record(room, kind);
        else
            ring_wait(&room->in, bell, 0, IDLE_MS);
    }
}

static void say_closed(uint32_t lane, struct child_word *word)
{
    memset(word, 0, sizeof *word);
    word->kind = CHILD_CLOSED;
    word->lane = lane;
    say(word);
}

static void *run_room(void *arg)
{
    struct room *room = arg;
    struct child_word *word = mem_new(sizeof *word);
    struct error err = {0};
    if (!word) {
        error_set(&err, ERROR_NO_MEMORY, "no memory to open stages");
        leave(&err);
    }
    enum error_code code = map_rings(room, &err);
    if (!code)
        code = open_runner(room, &err);
    word->kind = CHILD_OPENED;
    word->lane = room->open.lane;
    set_outcome(word, code, &err);
    note_bytes(room, word);
    say(word);
    if (!code)
        serve(room);
    runner_close(room->runner);
    model_close(room->model);
    if (!code) {
        say_closed(room->open.lane, word);
        room->said_closed = true;
    }
    mem_free(word);
    atomic_store(&room->ended, true);
    return NULL;
}

/* ---- the main thread --------------------------------------------------------------------- */

static void add_room(const struct child_word *word, int descriptor)
{
    struct error err = {0};
    struct room *room = mem_new(sizeof *room);
    if (room) {
        room->open = *word;
        room->memory_fd = descriptor;
        pthread_mutex_init(&room->write_lock, NULL);
        room->next = rooms;
        rooms = room;
    }
    if (!room || pthread_create(&room->thread, NULL, run_room, room)) {
        error_set(&err, ERROR_NO_MEMORY, "no memory or no thread for more stages");
        leave(&err); /* the node says what it was, and begins anew */
    }
}

static void free_room(struct room *room)
{
    if (room->memory)
        munmap(room->memory, 2 * (room->open.ring_bytes + RING_HEAD_BYTES));
    if (room->memory_fd >= 0)
        close(room->memory_fd);
    buffer_deinit(&room->message);
    pthread_mutex_destroy(&room->write_lock);
    mem_free(room);
}

/* Rooms whose threads have ended: what could not be opened waits here until its node has closed it. */
static void sweep(struct child_word *word)
{
    for (struct room **at = &rooms; *at;) {
        struct room *room = *at;
        if (!atomic_load(&room->ended) || !atomic_load(&room->closes)) {
            at = &room->next;
            continue;
        }
        *at = room->next;
        pthread_join(room->thread, NULL);
        if (!room->said_closed)
            say_closed(room->open.lane, word);
        free_room(room);
    }
}

static void close_room(struct child_word *word)
{
    struct room *room = rooms;
    while (room && room->open.lane != word->lane)
        room = room->next;
    if (!room) {
        say_closed(word->lane, word);
        return;
    }
    atomic_store(&room->closes, true);
    if (atomic_load(&room->has_rings))
        ring_wake(&room->in);
    sweep(word);
}

static void set_duty(uint32_t permille)
{
    if (device_duty(device) != permille)
        device_set_duty(device, permille);
}

static void answer_beat(const struct child_word *beat)
{
    struct child_word alive = {.kind = CHILD_ALIVE};
    set_duty(beat->duty_permille);
    alive.readings.memory = device_memory(device);
    if (device_reads_itself(device)) {
        alive.readings.temperature_mc = device_temperature_mc(device);
        alive.readings.power_mw = device_power_mw(device);
        alive.readings.clock_mhz = device_clock_mhz(device);
    }
    say(&alive);
}

static void listen_on(void)
{
    static struct child_word word;
    struct error err = {0};
    int descriptor, got;
    while ((got = child_hear(CHILD_DESCRIPTOR, true, &word, &descriptor, &err)) > 0) {
        if (word.kind == CHILD_OPEN) {
            add_room(&word, descriptor);
            continue;
        }
        if (descriptor >= 0)
            close(descriptor);
        if (word.kind == CHILD_CLOSE)
            close_room(&word);
        else if (word.kind == CHILD_BEAT)
            answer_beat(&word);
        sweep(&word);
    }
    _exit(0); /* the node has gone, or wants no more */
}

static const char *given(const char *text)
{
    return text[0] ? text : NULL;
}

static enum error_code open_device(char **argv, struct error *err)
{
    const char *id = argv[2];
    const struct gpu_options options = {
        .n_cpu_threads = (uint32_t)strtoul(argv[4], NULL, 10),
        .backend = given(argv[5]),
        .sim_file = given(argv[6]),
        .registry = given(argv[7]),
        .skip_other = strcmp(id, "cpu") == 0 || given(argv[6]),
        .only = id,
    };
    enum error_code code = gpu_open(&options, &gpu, err);
    if (code)
        return code;
    device = gpu_find(gpu, id);
    return device ? ERROR_NONE : error_set(err, ERROR_DEVICE, "it is not there, or does not pass verification");
}

/* Nobody must have to clean up after it, and who ends the node says so to the node. */
static void bind_to_parent(pid_t parent)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    fcntl(CHILD_DESCRIPTOR, F_SETFD, FD_CLOEXEC);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it died before the kernel was told */
        _exit(1);
}

void child_main(int argc, char **argv)
{
    if (argc != CHILD_ARGUMENTS || strcmp(argv[1], CHILD_ARGUMENT) != 0)
        return;
    static struct child_word hello;
    struct error err = {0};
    bind_to_parent((pid_t)strtol(argv[3], NULL, 10));
    heap_return_large();
    hello.kind = CHILD_HELLO;
    set_outcome(&hello, open_device(argv, &err), &err);
    say(&hello);
    if (hello.code)
        _exit(1);
    listen_on();
}
