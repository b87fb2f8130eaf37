#include "far_world.h"

#include "base/clock.h"
#include "base/timed_wait.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MIND_NS = 100 * 1000 * 1000 };

struct parcel {
    struct parcel *next;
    uint32_t machine;
    uint64_t halts; /* a micro-batch's number: no message */
    size_t size;
    _Alignas(8) char bytes[];
};

struct far_told {
    struct far_world *far;
    uint32_t machine;
};

struct far_network {
    struct far_told told[FAR_MACHINES];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    struct parcel *first, **end;
    bool cut, closing;
    struct far_traffic traffic;
};

static void send_parcel(struct far_world *far, uint32_t stage, const void *bytes, size_t size,
                        uint64_t halts)
{
    struct far_network *network = far->network;
    struct parcel *parcel = malloc(sizeof *parcel + size);
    assert_non_null(parcel);
    parcel->next = NULL;
    parcel->machine = stage < far->n_stages ? far->machine_of[stage] : 0;
    parcel->halts = halts;
    parcel->size = size;
    if (size)
        memcpy(parcel->bytes, bytes, size);
    pthread_mutex_lock(&network->lock);
    network->traffic.n_messages += !halts;
    network->traffic.bytes += size;
    *network->end = parcel;
    network->end = &parcel->next;
    pthread_cond_signal(&network->changed);
    pthread_mutex_unlock(&network->lock);
}

static void send_message(void *arg, uint32_t stage, struct buffer *message)
{
    send_parcel(arg, stage, message->data, message->size, 0);
}

static void send_halt(void *arg, uint32_t stage, uint64_t number)
{
    send_parcel(arg, stage, NULL, 0, number);
}

static void note_step(void *arg, const struct memory_step *step)
{
    struct far_told *told = arg;
    pthread_mutex_lock(&told->far->network->lock);
    struct far_machine *machine = &told->far->machines[told->machine];
    machine->n_told++;
    machine->n_changes += step->is_changing;
    machine->step = *step;
    pthread_mutex_unlock(&told->far->network->lock);
}

struct far_machine far_world_machine(struct far_world *far, uint32_t machine)
{
    pthread_mutex_lock(&far->network->lock);
    const struct far_machine copy = far->machines[machine];
    pthread_mutex_unlock(&far->network->lock);
    return copy;
}

/* As a lane's thread does. */
static void mind_all(struct far_world *far)
{
    for (uint32_t i = 0; far->minds_memory && i < far->n_machines; i++) {
        if (far->runners[i])
            runner_mind(far->runners[i]);
    }
}

static void deliver(struct far_world *far, const struct parcel *parcel)
{
    struct error err = {0};
    enum error_code code;
    if (parcel->halts) {
        runner_halt(far->runners[parcel->machine], parcel->halts);
        return;
    }
    if (parcel->machine)
        code = runner_receive(far->runners[parcel->machine], parcel->bytes, parcel->size, &err);
    else
        code = driver_receive(far->world.driver, parcel->bytes, parcel->size, &err);
    if (code) {
        fprintf(stderr, "machine %u refuses a message: %s\n", parcel->machine, err.text);
        abort();
    }
}

static void *carry(void *arg)
{
    struct far_world *far = arg;
    struct far_network *network = far->network;
    pthread_mutex_lock(&network->lock);
    while (!network->closing || network->first) {
        struct parcel *parcel = network->first;
        if (!parcel) {
            timed_wait(&network->changed, &network->lock, clock_now_ns() + MIND_NS);
            pthread_mutex_unlock(&network->lock);
            mind_all(far);
            pthread_mutex_lock(&network->lock);
            continue;
        }
        network->first = parcel->next;
        if (!network->first)
            network->end = &network->first;
        bool cut = network->cut;
        pthread_mutex_unlock(&network->lock);
        mind_all(far);
        if (!cut)
            deliver(far, parcel);
        free(parcel);
        pthread_mutex_lock(&network->lock);
    }
    pthread_mutex_unlock(&network->lock);
    return NULL;
}

static void plan_for(const struct far_world *far, uint32_t machine, struct stage_plan *plan)
{
    uint32_t left = FAKE_LAYERS;
    for (uint32_t i = 0; i < far->n_stages; i++) {
        uint32_t n_layers = i + 1 == far->n_stages ? left : FAKE_LAYERS / far->n_stages;
        plan[i] = (struct stage_plan){
            far->machine_of[i] == machine ? far->world.devices[machine] : NULL, n_layers};
        left -= n_layers;
    }
}

static bool has_stages(const struct stage_plan *plan, uint32_t n_stages)
{
    for (uint32_t i = 0; i < n_stages; i++) {
        if (plan[i].device)
            return true;
    }
    return false;
}

static struct device *far_fallback; /* of the worlds that are opened next */

void far_world_mind_memory(struct device *fallback)
{
    far_fallback = fallback;
}

/* Of a runner: the driver's are those of a node that has its stages in lanes. */
static void mind_memory(struct far_world *far, uint32_t machine)
{
    far->network->told[machine] = (struct far_told){far, machine};
    if (far->runners[machine] && far->minds_memory)
        runner_watch(far->runners[machine], note_step, &far->network->told[machine]);
}

void far_world_open(struct far_world *far, const char *machines, enum activation_type type,
                    const struct driver_options *options)
{
    *far = (struct far_world){.n_stages = (uint32_t)strlen(machines)};
    for (uint32_t i = 0; i < far->n_stages; i++) {
        far->machine_of[i] = (uint32_t)(machines[i] - '0');
        if (far->machine_of[i] >= far->n_machines)
            far->n_machines = far->machine_of[i] + 1;
    }
    assert_true(far->n_machines <= FAR_MACHINES);
    far->far = (struct far){.instance = 7,
                            .epoch = 3,
                            .type = type,
                            .send = send_message,
                            .halt = send_halt,
                            .arg = far};
    far->network = calloc(1, sizeof *far->network);
    assert_non_null(far->network);
    far->network->end = &far->network->first;
    pthread_mutex_init(&far->network->lock, NULL);
    timed_wait_init(&far->network->changed);
    far->minds_memory = far_fallback;
    struct error err = {0};
    for (uint32_t machine = far->n_machines; machine-- > 0;) {
        char id[16];
        snprintf(id, sizeof id, "toy%u", machine);
        far->world.devices[machine] = fake_device_open(id, 1000000, 0);
        struct stage_plan plan[FAKE_LAYERS];
        plan_for(far, machine, plan);
        enum error_code code = ERROR_NONE;
        struct driver_options own = *options;
        own.fallback = far_fallback;
        if (!machine)
            code = driver_open_far(fake_model(), plan, far->n_stages, options, &far->far,
                                   &far->world.driver, &err);
        else if (has_stages(plan, far->n_stages))
            code = runner_open(fake_model(), plan, far->n_stages, &own, &far->far,
                               &far->runners[machine], &err);
        mind_memory(far, machine);
        if (code)
            fail_msg("machine %u: %s", machine, err.text);
    }
    far->world.n_devices = far->n_machines;
    pthread_create(&far->network->thread, NULL, carry, far);
}

void far_world_cut(struct far_world *far)
{
    pthread_mutex_lock(&far->network->lock);
    far->network->cut = true;
    pthread_mutex_unlock(&far->network->lock);
    struct error err = {0};
    error_set(&err, ERROR_IO, "the network is gone");
    driver_lost(far->world.driver, &err);
}

void far_world_mend(struct far_world *far)
{
    pthread_mutex_lock(&far->network->lock);
    far->network->cut = false;
    pthread_mutex_unlock(&far->network->lock);
    driver_found(far->world.driver);
}

struct far_traffic far_world_traffic(struct far_world *far)
{
    pthread_mutex_lock(&far->network->lock);
    struct far_traffic traffic = far->network->traffic;
    pthread_mutex_unlock(&far->network->lock);
    return traffic;
}

void far_world_close(struct far_world *far)
{
    driver_close(far->world.driver);
    pthread_mutex_lock(&far->network->lock);
    far->network->closing = true;
    pthread_cond_signal(&far->network->changed);
    pthread_mutex_unlock(&far->network->lock);
    pthread_join(far->network->thread, NULL);
    for (uint32_t i = 0; i < FAR_MACHINES; i++)
        runner_close(far->runners[i]);
    for (uint32_t i = 0; i < far->n_machines; i++)
        fake_device_close(far->world.devices[i]);
    free(far->network);
    assert_int_equal(fake_stages_open(), 0);
}
