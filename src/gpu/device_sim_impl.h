/* What a simulated device is made of. For device_sim*.c alone. */
#pragma once

#include "gpu/device_sim.h"
#include "simdevices/sim_file.h"
#include "simdevices/sim_pace.h"

#include <pthread.h>

/* How far behind its simulation the CPU is, over the batches since the last look. */
struct lateness {
    double asked_s, took_s;
    uint32_t n_batches;
    bool told;
};

struct sim_device {
    struct sim_spec spec; /* constant */
    void *inner;          /* what device_impl_ggml made of the CPU */
    uint64_t start_ns;    /* constant */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;  /* of `interrupted` */
    bool interrupted;
    bool dead;
    uint64_t used_bytes;
    uint64_t n_batches;
    struct plant plant; /* as it was at plant_ns */
    uint64_t plant_ns;
    bool busy; /* since plant_ns */
    struct pace work_pace, copy_pace;
    struct lateness lateness;
};

/* ---- device_sim_fail.c: the failure script. `lock` is not held. ---- */

/* ERROR_DEVICE when it has died; blocks while it hangs, then ERROR_CANCELLED. */
enum error_code sim_check_alive(struct sim_device *self, struct error *err);
double sim_seconds_to_live(const struct sim_device *self); /* INFINITY: it does not die */
bool sim_lies(struct sim_device *self);

/* ERROR_NO_MEMORY while others have what it uses: a driver that has to make room for them. */
enum error_code sim_check_memory(struct sim_device *self, struct error *err);
/* Takes bytes of its memory, or says why not. */
enum error_code sim_take(struct sim_device *self, uint64_t bytes, struct error *err);
void sim_give_back(struct sim_device *self, uint64_t bytes);
struct device_memory sim_memory(struct sim_device *self);

/* ---- device_sim_time.c: pace and heat. `lock` is not held. ---- */

void sim_time_start(struct sim_device *self);
void sim_copied(struct sim_device *self, uint64_t bytes, uint64_t elapsed_ns);
/* False: it was stopped before its time was over. */
bool sim_worked(struct sim_device *self, const struct device_work *work);
void sim_tell_if_late(
    struct sim_device *self); /* at the end; it may not have worked long enough to tell before */

/* The heat of now; false when it is not modelled. */
bool sim_heat_now(struct sim_device *self, struct plant *plant, bool *busy);
