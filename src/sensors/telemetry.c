#include "sensors/telemetry.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/timed_wait.h"

#include <string.h>

enum { NS_PER_MS = 1000000 };

struct telemetry {
    struct telemetry_options options; /* `sensors` in it is not used after opening */
    struct sensors *sensors;          /* the thread's, once it runs */
    struct sensor_sample working;     /* likewise */
    pthread_t thread;
    pthread_mutex_t lock; /* guards `closing` */
    pthread_cond_t wake;
    bool closing;
};

/* False when the telemetry is closed before. */
static bool sleep_until(struct telemetry *telemetry, uint64_t at_ns)
{
    pthread_mutex_lock(&telemetry->lock);
    while (!telemetry->closing && timed_wait(&telemetry->wake, &telemetry->lock, at_ns)) {
    }
    bool open = !telemetry->closing;
    pthread_mutex_unlock(&telemetry->lock);
    return open;
}

static void *telemetry_run(void *argument)
{
    struct telemetry *telemetry = argument;
    uint64_t period_ns = (uint64_t)telemetry->options.period_ms * NS_PER_MS;
    uint64_t next_ns = clock_now_ns();
    while (sleep_until(telemetry, next_ns)) {
        sensors_sample(telemetry->sensors, &telemetry->working);
        if (telemetry->options.on_sample)
            telemetry->options.on_sample(telemetry->options.arg, &telemetry->working);
        uint64_t now_ns = clock_now_ns();
        next_ns += period_ns;
        if (next_ns < now_ns)
            next_ns = now_ns + period_ns - (now_ns - next_ns) % period_ns;
    }
    return NULL;
}

enum error_code telemetry_open(const struct telemetry_options *options,
                               const struct device_info *devices, uint32_t n_devices,
                               struct telemetry **out, struct error *err)
{
    *out = NULL;
    struct telemetry *telemetry = mem_new(sizeof *telemetry);
    if (!telemetry)
        return error_set(err, ERROR_NO_MEMORY, "telemetry: out of memory");
    if (options)
        telemetry->options = *options;
    if (!telemetry->options.period_ms)
        telemetry->options.period_ms = TELEMETRY_PERIOD_MS;
    telemetry->options.sensors.open_in_background = true;
    enum error_code code =
        sensors_open(&telemetry->options.sensors, devices, n_devices, &telemetry->sensors, err);
    if (code) {
        mem_free(telemetry);
        return code;
    }
    pthread_mutex_init(&telemetry->lock, NULL);
    timed_wait_init(&telemetry->wake);
    int failure = pthread_create(&telemetry->thread, NULL, telemetry_run, telemetry);
    if (failure) {
        sensors_close(telemetry->sensors);
        pthread_cond_destroy(&telemetry->wake);
        pthread_mutex_destroy(&telemetry->lock);
        mem_free(telemetry);
        return error_set(err, ERROR_IO, "telemetry: no thread: %s", strerror(failure));
    }
#ifdef __linux__
    pthread_setname_np(telemetry->thread, "telemetry");
#endif
    *out = telemetry;
    return ERROR_NONE;
}

void telemetry_close(struct telemetry *telemetry)
{
    if (!telemetry)
        return;
    pthread_mutex_lock(&telemetry->lock);
    telemetry->closing = true;
    pthread_cond_signal(&telemetry->wake);
    pthread_mutex_unlock(&telemetry->lock);
    pthread_join(telemetry->thread, NULL);
    sensors_close(telemetry->sensors);
    pthread_cond_destroy(&telemetry->wake);
    pthread_mutex_destroy(&telemetry->lock);
    mem_free(telemetry);
}

uint32_t telemetry_source_count(const struct telemetry *telemetry)
{
    return sensors_source_count(telemetry->sensors);
}

void telemetry_source(struct telemetry *telemetry, uint32_t index, struct sensor_source *out)
{
    sensors_source(telemetry->sensors, index, out);
}
