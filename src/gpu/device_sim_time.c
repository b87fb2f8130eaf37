/* Pace and heat of a simulated device. */
#include "base/clock.h"
#include "base/log.h"
#include "base/timed_wait.h"
#include "gpu/device_sim_impl.h"

#include <math.h>

enum { LATENESS_BATCHES = 16, STOP_LOOK_NS = 10 * 1000 * 1000 };

static double device_sim_time_seconds_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

void sim_time_start(struct sim_device *self)
{
    self->start_ns = self->plant_ns = clock_now_ns();
    if (self->spec.has_heat)
        self->plant = plant_rested(&self->spec.heat);
}

/* Sleeps until the time has passed or the device is interrupted. The lock is held, and given up
 * meanwhile. */
static double sleep_for(struct sim_device *self, double seconds)
{
    uint64_t start_ns = clock_now_ns();
    uint64_t until_ns = start_ns + (uint64_t)(fmin(seconds, 1e6) * 1e9);
    while (!self->interrupted && timed_wait(&self->wake, &self->lock, until_ns)) {
    }
    return device_sim_time_seconds_between(start_ns, clock_now_ns());
}

static bool sim_work_stops(const struct device_work *work)
{
    return work->stops && work->stops(work->arg);
}

/* The same, as long as the work is wanted. False: it no longer was. */
static bool sim_sleep_for_work(struct sim_device *self, const struct device_work *work,
                               double seconds)
{
    const uint64_t start_ns = clock_now_ns(), until_ns = start_ns + (uint64_t)(seconds * 1e9);
    bool stops = false;
    for (uint64_t now_ns = start_ns; now_ns < until_ns && !self->interrupted && !stops;
         now_ns = clock_now_ns()) {
        const uint64_t look_ns = now_ns + STOP_LOOK_NS;
        timed_wait(&self->wake, &self->lock,
                   work->stops && look_ns < until_ns ? look_ns : until_ns);
        stops = sim_work_stops(work);
    }
    pace_slept(&self->work_pace, device_sim_time_seconds_between(start_ns, clock_now_ns()));
    return !stops;
}

void sim_copied(struct sim_device *self, uint64_t bytes, uint64_t elapsed_ns)
{
    pthread_mutex_lock(&self->lock);
    double sleep_s = pace_owe(&self->copy_pace, (double)bytes / self->spec.copy_bytes_per_s,
                              (double)elapsed_ns * 1e-9);
    if (sleep_s > 0)
        pace_slept(&self->copy_pace, sleep_for(self, sleep_s));
    pthread_mutex_unlock(&self->lock);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* At full clock, what the clock has a part in. */
static double compute_seconds(const struct sim_spec *spec, const struct device_work *work)
{
    double reading_s = (double)work->bytes_read / spec->decode_bytes_per_s;
    return work->n_rows == 1 ? reading_s : fmax(reading_s, (double)work->flops / spec->flops_per_s);
}

static void warn_when_late(struct sim_device *self)
{
    struct lateness *late = &self->lateness;
    const double tolerance = 1.05;
    if (!late->told && late->n_batches && late->took_s > late->asked_s * tolerance) {
        log_line(LOG_WARN, "gpu",
                 "sim:%s is simulated too slowly: this machine's CPU took %.3g ms for a batch that "
                 "should take %.3g ms; its timings mean nothing",
                 self->spec.name, late->took_s * 1e3 / late->n_batches,
                 late->asked_s * 1e3 / late->n_batches);
        late->told = true;
    }
    late->n_batches = 0;
    late->asked_s = late->took_s = 0;
}

void sim_tell_if_late(struct sim_device *self)
{
    warn_when_late(self);
}

static void note_lateness(struct sim_device *self, double asked_s, double took_s)
{
    struct lateness *late = &self->lateness;
    late->asked_s += asked_s;
    late->took_s += took_s;
    if (++late->n_batches == LATENESS_BATCHES)
        warn_when_late(self);
}

static void device_sim_time_advance(struct sim_device *self, uint64_t to_ns)
{
    if (self->spec.has_heat)
        plant_advance(&self->spec.heat, &self->plant, self->busy,
                      device_sim_time_seconds_between(self->plant_ns, to_ns));
    if (to_ns > self->plant_ns)
        self->plant_ns = to_ns;
}

bool sim_worked(struct sim_device *self, const struct device_work *work)
{
    const struct sim_spec *spec = &self->spec;
    uint64_t now_ns = clock_now_ns();
    uint64_t start_ns = work->elapsed_ns < now_ns ? now_ns - work->elapsed_ns : 0;
    double took_s = (double)work->elapsed_ns * 1e-9;
    double compute_s = compute_seconds(spec, work);
    double fixed_s = spec->launch_s + (double)work->bytes_copied / spec->copy_bytes_per_s;

    pthread_mutex_lock(&self->lock);
    device_sim_time_advance(self, start_ns);
    struct plant after = self->plant; /* the readings of another thread go on from self->plant while
                                         this one sleeps */
    self->busy = true;
    if (spec->has_heat) {
        compute_s = plant_work(&spec->heat, &after, compute_s);
        plant_advance(&spec->heat, &after, true, fixed_s);
    }
    double asked_s = compute_s + fixed_s;
    note_lateness(self, asked_s, took_s);
    double sleep_s = pace_owe(&self->work_pace, asked_s, took_s);
    sleep_s = fmin(fmin(sleep_s, sim_seconds_to_live(self)), 1e6);
    const bool is_whole = sleep_s <= 0 || sim_sleep_for_work(self, work, sleep_s);
    if (is_whole) {
        self->plant = after;
        self->plant_ns = start_ns + (uint64_t)(asked_s * 1e9);
    }
    if (took_s > asked_s) /* it was busy for as long as the CPU was */
        device_sim_time_advance(self, now_ns);
    if (!is_whole) {
        self->work_pace = (struct pace){0}; /* what it has not computed it need not wait for */
        device_sim_time_advance(self, clock_now_ns());
    }
    self->busy = false;
    self->n_batches++;
    pthread_mutex_unlock(&self->lock);
    return is_whole;
}

bool sim_heat_now(struct sim_device *self, struct plant *plant, bool *busy)
{
    if (!self->spec.has_heat)
        return false;
    pthread_mutex_lock(&self->lock);
    *plant = self->plant;
    *busy = self->busy;
    plant_advance(&self->spec.heat, plant, *busy,
                  device_sim_time_seconds_between(self->plant_ns, clock_now_ns()));
    bool alive = !self->dead;
    pthread_mutex_unlock(&self->lock);
    return alive;
}
