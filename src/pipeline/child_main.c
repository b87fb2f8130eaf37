/* The child's side of children.h: its main thread opens the device, then only listens and
 * answers. */
#include "pipeline/child_room.h"

#include "base/heap.h"
#include "base/mem.h"
#include "base/this_process.h"
#include "gpu/plugins.h"
#include "sandbox/sandbox.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static struct gpu *gpu;
static struct device *device;
static struct room *rooms;

/* What a simulated device computes the CPU computes already. */
static struct device *room_fallback(void)
{
    struct device *cpu = gpu_find(gpu, "cpu");
    return cpu == device || device_reads_itself(device) ? NULL : cpu;
}

static void rooms_add(const struct child_word *word, const struct child_handed *handed)
{
    struct error err = {0};
    struct room *room = mem_new(sizeof *room);
    if (room) {
        room->open = *word;
        room->device = device;
        room->handed = *handed;
        room->fallback = room_fallback();
        pthread_mutex_init(&room->write_lock, NULL);
        pthread_mutex_init(&room->form_lock, NULL);
        room->next = rooms;
        rooms = room;
    }
    if (!room || pthread_create(&room->thread, NULL, room_run, room)) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory or threads for more stages");
        child_leave(&err); /* the node says what it was, and begins anew */
    }
}

static void room_free(struct room *room)
{
    if (room->memory)
        munmap(room->memory, 2 * (room->open.ring_bytes + RING_HEAD_BYTES));
    child_drop_handed(&room->handed);
    buffer_deinit(&room->message);
    pthread_mutex_destroy(&room->form_lock);
    pthread_mutex_destroy(&room->write_lock);
    mem_free(room);
}

/* Rooms whose threads have ended: what could not be opened waits here until its node has closed
 * it. */
static void rooms_sweep(struct child_word *word)
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
            child_say_closed(device, room->open.lane, word);
        room_free(room);
    }
}

static struct room *rooms_find(uint32_t lane)
{
    struct room *room = rooms;
    while (room && room->open.lane != lane)
        room = room->next;
    return room;
}

static void rooms_close(struct child_word *word)
{
    struct room *room = rooms_find(word->lane);
    if (!room) {
        child_say_closed(device, word->lane, word);
        return;
    }
    atomic_store(&room->closes, true);
    if (atomic_load(&room->has_rings))
        ring_wake(&room->in);
    rooms_sweep(word);
}

static void child_listen(void)
{
    static struct child_word word;
    struct error err = {0};
    struct child_handed handed;
    while (child_hear(CHILD_DESCRIPTOR, true, &word, &handed, &err) > 0) {
        if (word.kind == CHILD_OPEN) {
            child_measure_stop();
            rooms_add(&word, &handed);
            continue;
        }
        child_drop_handed(&handed);
        if (word.kind == CHILD_CLOSE) {
            rooms_close(&word);
        } else if (word.kind == CHILD_BEAT) {
            device_set_duty(device, word.duty);
            child_tell_readings(device);
        } else if (word.kind == CHILD_MEASURE) {
            child_measure_begin(device, &word);
        } else if (word.kind == CHILD_MEASURE_STOP) {
            child_measure_stop();
        } else if (word.kind == CHILD_PIN) {
            child_pin(rooms_find(word.lane), &word);
        } else if (word.kind == CHILD_DROP) {
            child_drop(word.pin);
        }
        rooms_sweep(&word);
    }
    _exit(0); /* the node has gone, or wants no more */
}

static const char *argument_given(const char *text)
{
    return text[0] ? text : NULL;
}

static enum error_code child_enter_sandbox(char **argv, struct error *err)
{
    static struct sandbox_rules rules;
    const char *const files[] = {this_program(), plugins_folder(), argument_given(argv[6]),
                                 argument_given(argv[7])};
    const struct sandbox_need need = {
        .work = SANDBOX_DEVICE,
        .backend = argument_given(argv[5]),
        .folder = argument_given(argv[8]),
        .files = files,
        .n_files = sizeof files / sizeof *files,
        .environment = environ,
    };
    if (strcmp(argv[9], CHILD_FREE) == 0)
        return ERROR_NONE;
    sandbox_rules_make(&need, &rules);
    return sandbox_enter(&rules, err);
}

static enum error_code child_open_device(char **argv, struct error *err)
{
    const char *id = argv[2];
    const struct gpu_options options = {
        .n_cpu_threads = (uint32_t)strtoul(argv[4], NULL, 10),
        .backend = argument_given(argv[5]),
        .sim_file = argument_given(argv[6]),
        .registry = argument_given(argv[7]),
        .registry_is_others = true,
        .skip_other = strcmp(id, "cpu") == 0 || argument_given(argv[6]),
        .only = id,
    };
    enum error_code code = child_enter_sandbox(argv, err);
    if (!code)
        code = gpu_open(&options, &gpu, err);
    if (code)
        return code;
    device = gpu_find(gpu, id);
    return device ? ERROR_NONE
                  : error_set(err, ERROR_DEVICE, "it is missing, or failed verification");
}

/* Nobody must have to clean up after it, and who ends the node says so to the node. */
static void child_bind_to_parent(pid_t parent)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    fcntl(CHILD_DESCRIPTOR, F_SETFD, FD_CLOEXEC);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    this_process_dies_with(parent);
}

void child_main(int argc, char **argv)
{
    if (argc != CHILD_ARGUMENTS || strcmp(argv[1], CHILD_ARGUMENT) != 0)
        return;
    static struct child_word hello;
    struct error err = {0};
    child_bind_to_parent((pid_t)strtol(argv[3], NULL, 10));
    heap_return_large();
    hello.kind = CHILD_HELLO;
    child_set_outcome(&hello, child_open_device(argv, &err), &err);
    child_tell(&hello);
    if (hello.code)
        _exit(1);
    child_listen();
}
