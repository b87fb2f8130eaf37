#include "models_world.h"

#include "api_world.h"
#include "base/clock.h"
#include "pipeline/driver.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include <cmocka.h>

enum { MODELS = 2 };

struct entry {
    struct fake_model fake;
    struct driver *driver;
    const char *id, *alias;
    bool listed;
    uint32_t n_held;
};

struct asker {
    struct asker *next;
    struct entry *entry;
    void (*opened)(void *arg, struct api_model *model, const struct error *err);
    void *arg;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct entry entries[MODELS];
    struct asker *askers;
    uint32_t n_waiting, n_cancelled, n_forgotten;
    bool late, running, answering;
    enum error_code answer;
    uv_async_t wake;
    bool stopping;
    struct request_run run;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER};

/* On the server's thread, where cmocka's own would not do. */
static void demand(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "models_world: %s\n", what);
    abort();
}

static void lock(void)
{
    pthread_mutex_lock(&world.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&world.lock);
}

/* ---- struct api_models ---- */

static void list_models(void *self, void (*each)(void *arg, const struct api_listed *model),
                        void *arg)
{
    (void)self;
    lock();
    for (int i = 0; i < MODELS; i++) {
        const struct entry *entry = &world.entries[i];
        struct api_listed listed = {entry->id, entry->alias, 1000 + (uint64_t)i,
                                    &entry->fake.generator.base};
        if (entry->listed)
            each(arg, &listed);
    }
    unlock();
}

/* NULL also when there is not just one, and no name. */
static struct entry *find(const char *name)
{
    struct entry *found = NULL;
    uint32_t n_found = 0;
    for (int i = 0; i < MODELS; i++) {
        struct entry *entry = &world.entries[i];
        if (!entry->listed ||
            (name && strcmp(name, entry->id) != 0 && strcmp(name, entry->alias) != 0))
            continue;
        found = entry;
        n_found++;
    }
    return n_found == 1 ? found : NULL;
}

/* The lock is held before and after, but not while the asker is told. */
static void tell(const struct asker *asker, enum error_code code)
{
    struct error err;
    if (!code)
        asker->entry->n_held++;
    unlock();
    if (code) {
        error_set(&err, code, "the model cannot be opened: %s", error_name(code));
        asker->opened(asker->arg, NULL, &err);
    } else {
        asker->opened(asker->arg, &asker->entry->fake.api, NULL);
    }
    lock();
}

static void open_model(void *self, const char *name,
                       void (*opened)(void *arg, struct api_model *model, const struct error *err),
                       void *arg)
{
    (void)self;
    lock();
    struct asker asker = {world.askers, find(name), opened, arg};
    if (asker.entry && world.late) {
        world.askers = malloc(sizeof asker);
        *world.askers = asker;
        world.n_waiting++;
    } else {
        tell(&asker, asker.entry ? ERROR_NONE : ERROR_NOT_FOUND);
    }
    unlock();
}

static void cancel(void *self, void *arg)
{
    (void)self;
    lock();
    struct asker **link = &world.askers;
    while (*link && (*link)->arg != arg)
        link = &(*link)->next;
    struct asker *asker = *link;
    demand(asker, "somebody gives up who does not wait");
    *link = asker->next;
    free(asker);
    world.n_waiting--;
    world.n_cancelled++;
    unlock();
}

/* Without a holder nothing of it may be used: what the server noted is asked for anew the next
 * time. */
static void forget(struct entry *entry)
{
    api_model_deinit(&entry->fake.api);
    memset(&entry->fake.api, 0, sizeof entry->fake.api);
    if (entry->listed)
        fake_model_init(&entry->fake, entry->id, entry->alias,
                        FAKE_VOCAB + 2 * (entry != world.entries), entry->driver);
    else
        world.n_forgotten++;
}

static void release(void *self, struct api_model *model)
{
    (void)self;
    lock();
    struct entry *entry = world.entries;
    while (entry < world.entries + MODELS && &entry->fake.api != model)
        entry++;
    demand(entry < world.entries + MODELS && entry->n_held, "somebody releases what is not held");
    if (!--entry->n_held)
        forget(entry);
    unlock();
}

/* ---- its service on the loop ---- */

static void on_wake(uv_async_t *handle)
{
    (void)handle;
    lock();
    while (world.answering && world.askers) {
        struct asker *asker = world.askers;
        world.askers = asker->next;
        world.n_waiting--;
        tell(asker, world.answer);
        free(asker);
    }
    world.answering = false;
    pthread_cond_signal(&world.answered);
    unlock();
}

static void say_run(void *self, const char *id, struct request_run *out)
{
    (void)self;
    (void)id;
    lock();
    *out = world.run;
    unlock();
}

static enum error_code service_open(void *arg, void *uv_loop, struct error *err)
{
    (void)arg;
    (void)err;
    uv_async_init(uv_loop, &world.wake, on_wake);
    return ERROR_NONE;
}

static void service_stop(void *arg, void (*stopped)(void *node), void *node)
{
    (void)arg;
    if (!world.stopping)
        stopped(node);
    world.stopping = true;
}

static void service_close(void *arg)
{
    (void)arg;
    uv_close((uv_handle_t *)&world.wake, NULL);
}

static void service_free(void *arg)
{
    (void)arg;
}

/* ---- for the tests ---- */

void models_world_start(uint32_t waiting_ms)
{
    static const struct node_service service = {"models",      service_open, service_stop,
                                                service_close, service_free, NULL};
    static const struct fake_driver_options options[MODELS] = {
        {.n_slots = 4, .queue_max = 8, .context = 64, .token_us = 1000},
        {.n_slots = 2, .queue_max = 8, .context = 32, .token_us = 1000}};
    static const char *const names[MODELS][2] = {{"first", "one"}, {"second", "two"}};
    for (int i = 0; i < MODELS; i++) {
        struct entry *entry = &world.entries[i];
        *entry = (struct entry){.id = names[i][0], .alias = names[i][1], .listed = true};
        entry->driver = fake_driver_open(options[i]);
        fake_model_init(&entry->fake, entry->id, entry->alias, FAKE_VOCAB + 2 * (uint32_t)i,
                        entry->driver);
    }
    world.late = world.stopping = false;
    world.running = true;
    struct api_models models = {.list = list_models,
                                .open = open_model,
                                .cancel = cancel,
                                .release = release,
                                .run = say_run};
    world.run = (struct request_run){0};
    api_world_start_with(models, waiting_ms, &service);
}

void models_world_run(const struct request_run *run)
{
    lock();
    world.run = *run;
    world.run.paused_ns = run->paused_ns ? clock_now_ns() : 0;
    unlock();
}

void models_world_slow(uint32_t token_us)
{
    fake_driver_slow(world.entries[0].driver, token_us);
}

void models_world_stop(void)
{
    if (!world.running)
        return;
    world.running = false;
    api_world_stop();
    assert_int_equal(world.n_waiting, 0);
    for (int i = 0; i < MODELS; i++) {
        assert_int_equal(world.entries[i].n_held, 0);
        driver_close(world.entries[i].driver);
    }
}

void models_world_list(const char *id, bool listed)
{
    lock();
    for (int i = 0; i < MODELS; i++) {
        struct entry *entry = &world.entries[i];
        if (strcmp(entry->id, id) != 0)
            continue;
        entry->listed = listed;
        if (!entry->n_held)
            forget(entry);
    }
    unlock();
}

void models_world_be_late(bool late)
{
    lock();
    world.late = late;
    unlock();
}

void models_world_answer(enum error_code code)
{
    lock();
    world.answer = code;
    world.answering = true;
    uv_async_send(&world.wake);
    while (world.answering)
        pthread_cond_wait(&world.answered, &world.lock);
    unlock();
}

void models_world_wait(uint32_t n_waiting, uint32_t n_held)
{
    uint32_t waiting = 0, held = 0;
    for (int i = 0; i < 1000; i++) {
        lock();
        waiting = world.n_waiting;
        held = world.entries[0].n_held + world.entries[1].n_held;
        unlock();
        if (waiting == n_waiting && held == n_held)
            return;
        usleep(5000);
    }
    fail_msg("%u wait and %u are held, not %u and %u", waiting, held, n_waiting, n_held);
}

uint32_t models_world_cancelled(void)
{
    lock();
    uint32_t n = world.n_cancelled;
    unlock();
    return n;
}

uint32_t models_world_forgotten(void)
{
    lock();
    uint32_t n = world.n_forgotten;
    unlock();
    return n;
}
