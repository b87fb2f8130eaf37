#include "fake_pipeline.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct device {
    struct device_info info;
    struct device_memory memory;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct device_job *first, **last;
    bool closing, held;
};

struct gpu {
    struct device *devices[8];
    uint32_t n;
};

static _Thread_local const struct device *current;

static void *work(void *arg)
{
    struct device *device = arg;
    current = device;
    pthread_mutex_lock(&device->lock);
    while (device->first || !device->closing) {
        struct device_job *job = device->first;
        if (!job || device->held) {
            pthread_cond_wait(&device->wake, &device->lock);
            continue;
        }
        device->first = job->next;
        if (!device->first)
            device->last = &device->first;
        pthread_mutex_unlock(&device->lock);
        job->run(job);
        pthread_mutex_lock(&device->lock);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

struct device *fake_device_open(const char *id, uint64_t free_bytes, uint64_t bandwidth_mb_per_s)
{
    struct device *device = calloc(1, sizeof *device);
    assert(device);
    strncpy(device->info.id, id, sizeof device->info.id - 1);
    device->info.bandwidth_mb_per_s =
        (struct reading){(double)bandwidth_mb_per_s, bandwidth_mb_per_s != 0};
    device->memory = (struct device_memory){free_bytes, free_bytes};
    device->last = &device->first;
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->wake, NULL);
    int failed = pthread_create(&device->thread, NULL, work, device);
    assert(!failed);
    (void)failed;
    return device;
}

void fake_device_close(struct device *device)
{
    pthread_mutex_lock(&device->lock);
    device->closing = true;
    pthread_cond_signal(&device->wake);
    pthread_mutex_unlock(&device->lock);
    pthread_join(device->thread, NULL);
    pthread_cond_destroy(&device->wake);
    pthread_mutex_destroy(&device->lock);
    free(device);
}

void fake_device_hold(struct device *device, bool held)
{
    pthread_mutex_lock(&device->lock);
    device->held = held;
    pthread_cond_signal(&device->wake);
    pthread_mutex_unlock(&device->lock);
}

struct gpu *fake_gpu_new(struct device *const *devices, uint32_t n)
{
    struct gpu *gpu = calloc(1, sizeof *gpu);
    assert(gpu && n <= 8);
    for (uint32_t i = 0; i < n; i++)
        gpu->devices[gpu->n++] = devices[i];
    return gpu;
}

struct device *gpu_find(const struct gpu *gpu, const char *id)
{
    for (uint32_t i = 0; i < gpu->n; i++) {
        if (strcmp(gpu->devices[i]->info.id, id) == 0)
            return gpu->devices[i];
    }
    return NULL;
}

const struct device *fake_device_current(void)
{
    return current;
}

const struct device_info *device_info(const struct device *device)
{
    return &device->info;
}

struct device_memory device_memory(const struct device *device)
{
    return device->memory;
}

void device_mirror(struct device *device, const struct device_readings *readings)
{
    (void)device, (void)readings;
}

void device_submit(struct device *device, struct device_job *job)
{
    pthread_mutex_lock(&device->lock);
    job->next = NULL;
    *device->last = job;
    device->last = &job->next;
    pthread_cond_signal(&device->wake);
    pthread_mutex_unlock(&device->lock);
}

double device_duty(const struct device *device)
{
    (void)device;
    return 1;
}
