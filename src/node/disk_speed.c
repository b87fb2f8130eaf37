#include "node/disk_speed.h"

#include "base/log.h"
#include "base/mem.h"
#include "engine/weight_disk.h"
#include "model/gguf_file.h"
#include "model/model.h"
#include "node/catalogue.h"
#include "node/daemon_state.h"

#include <stdio.h>

struct disk_speed {
    uv_work_t work;
    struct daemon *daemon; /* NULL: it is freed when the work is done */
    bool is_working, is_measured;
    char path[PATH_MAX];
    uint64_t bytes_per_s;
    struct error error; /* of the work */
};

struct disk_speed *disk_speed_new(struct daemon *daemon)
{
    struct disk_speed *speed = mem_new(sizeof *speed);
    if (speed)
        speed->daemon = daemon;
    return speed;
}

void disk_speed_free(struct disk_speed *speed)
{
    if (!speed)
        return;
    speed->daemon = NULL;
    if (!speed->is_working)
        mem_free(speed);
}

uint64_t disk_speed_bytes_per_s(const struct disk_speed *speed)
{
    return speed ? speed->bytes_per_s : 0;
}

/* ---- on a thread of the pool ----------------------------------------------------------------- */

static void disk_speed_work(uv_work_t *work)
{
    struct disk_speed *speed = work->data;
    struct gguf_file *file;
    struct weight_disk disk = {0};
    speed->error.code = gguf_file_open(speed->path, &file, &speed->error);
    if (speed->error.code)
        return;
    enum error_code code = weight_disk_open(&disk, file, &speed->error);
    if (!code)
        code = weight_disk_measure(&disk, gguf_file_size(file) / 2, &speed->error);
    speed->error.code = code;
    speed->bytes_per_s = code ? 0 : weight_disk_bps(&disk);
    weight_disk_close(&disk);
    gguf_file_close(file);
}

/* ---- on the loop's thread -------------------------------------------------------------------- */

static void disk_speed_after(uv_work_t *work, int status)
{
    struct disk_speed *speed = work->data;
    speed->is_working = false;
    if (!speed->daemon) {
        mem_free(speed);
        return;
    }
    if (speed->error.code)
        log_line(LOG_WARN, "node", "cannot measure the disk: %s", speed->error.text);
    else
        log_line(LOG_INFO, "node", "weights come from this disk at %.2f GB/s",
                 (double)speed->bytes_per_s * 1e-9);
    if (speed->bytes_per_s && !speed->daemon->stopping)
        daemon_tell_now(speed->daemon);
}

static uint64_t largest_memory(const struct daemon *daemon)
{
    uint64_t most = 0;
    for (size_t i = 0; daemon->self && i < daemon->self->n_devices; i++) {
        const Cluster__Device *device = daemon->self->devices[i];
        const uint64_t bytes = device->has_free_bytes ? device->free_bytes : device->memory_bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Whether some model may have to be streamed here, and the largest that is whole on this disk. */
static bool disk_speed_matters(struct daemon *daemon, const Cluster__Model **largest)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    const uint64_t memory = largest_memory(daemon);
    bool matters = false;
    *largest = NULL;
    for (size_t i = 0; root && i < root->n_models; i++) {
        const Cluster__Model *model = root->models[i];
        matters = matters || model->bytes > memory;
        if ((!*largest || model->bytes > (*largest)->bytes) && daemon_has_model(daemon, model))
            *largest = model;
    }
    return matters && *largest;
}

void disk_speed_step(struct disk_speed *speed)
{
    const Cluster__Model *largest;
    if (speed->is_measured || !disk_speed_matters(speed->daemon, &largest))
        return;
    const struct model *model = catalogue_model_here(speed->daemon, largest);
    if (!model)
        return;
    speed->is_measured = speed->is_working = true;
    snprintf(speed->path, sizeof speed->path, "%s", gguf_file_path(model_file(model)));
    speed->work.data = speed;
    uv_queue_work(speed->daemon->loop, &speed->work, disk_speed_work, disk_speed_after);
}
