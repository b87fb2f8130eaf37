#include "picture/sight_impl.h"

#include "base/mem.h"
#include "engine/picture_encoder.h"
#include "gpu/gpu.h"
#include "model/projector.h"
#include "picture/picture_process.h"
#include "trust/digest.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

_Static_assert((int)PICTURE_DIGEST_BYTES == (int)DIGEST_BYTES, "both are SHA-256");

enum { SIGHT_SAMPLE_BYTES = 1024 * 1024 };

struct sight_here {
    struct sight base;
    struct projector *projector;
    struct picture_encoder *encoder;
    struct device *device;
    pthread_mutex_t lock; /* one job at a time */
    struct digest projector_digest;
};

/* Something for the device's own thread; whoever asked waits. */
struct sight_job {
    struct device_job job;
    struct sight_here *sight;
    const struct picture *picture; /* NULL: opens the encoder */
    struct picture_rows rows;
    enum error_code code;
    struct error err;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
};

static void sight_job_run(struct device_job *device_job)
{
    struct sight_job *job = (struct sight_job *)(void *)device_job;
    struct sight_here *sight = job->sight;
    const struct picture_encoder_options options = {.flash = FLASH_AUTO};
    if (job->picture)
        job->code = picture_encoder_rows(sight->encoder, job->picture, &job->rows, &job->err);
    else
        job->code = picture_encoder_open(sight->projector, sight->device, &options, &sight->encoder,
                                         &job->err);
    pthread_mutex_lock(&job->lock);
    job->done = true;
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

static enum error_code sight_job_wait(struct sight_job *job, struct error *err)
{
    job->job.run = sight_job_run;
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    device_submit(job->sight->device, &job->job);
    pthread_mutex_lock(&job->lock);
    while (!job->done)
        pthread_cond_wait(&job->changed, &job->lock);
    pthread_mutex_unlock(&job->lock);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    return job->code ? error_set(err, job->code, "%s", job->err.text) : ERROR_NONE;
}

/* ---- looking ---- */

static enum error_code sight_digest(const struct sight_here *sight, const void *bytes, size_t size,
                                    struct digest *out, struct error *err)
{
    struct digest both[2] = {sight->projector_digest};
    const enum error_code code = digest_of(bytes, size, &both[1], err);
    return code ? code : digest_of(both, sizeof both, out, err);
}

static enum error_code sight_look_here(struct sight *base, const void *bytes, size_t size,
                                       struct prompt_picture **out, struct error *err)
{
    struct sight_here *sight = (struct sight_here *)base;
    struct picture picture;
    struct sight_job job = {.sight = sight, .picture = &picture};
    struct digest digest;
    *out = NULL;
    enum error_code code = picture_read(bytes, size, &picture, err);
    if (code)
        return code;
    code = sight_digest(sight, bytes, size, &digest, err);
    if (!code) {
        pthread_mutex_lock(&sight->lock);
        code = sight_job_wait(&job, err);
        pthread_mutex_unlock(&sight->lock);
    }
    mem_free(picture.rgb);
    if (!code)
        code = prompt_picture_new(&job.rows, digest.bytes, out, err);
    if (code)
        picture_rows_deinit(&job.rows);
    assert(code ? !*out : *out != NULL);
    return code;
}

/* ---- its life ---- */

/* Of what is cheap to read and differs between projectors: the header, which lies at the beginning,
 * and weights of both ends. */
static enum error_code sight_digest_projector(struct sight_here *sight, struct error *err)
{
    const struct gguf_file *file = projector_file(sight->projector);
    const uint8_t *bytes = gguf_file_bytes(file);
    const uint64_t size = gguf_file_size(file);
    const uint64_t sample = size < SIGHT_SAMPLE_BYTES ? size : SIGHT_SAMPLE_BYTES;
    struct digest_run run = {0};
    enum error_code code = digest_run_begin(&run, err);
    if (!code)
        code = digest_run_add(&run, &size, sizeof size, err);
    if (!code)
        code = digest_run_add(&run, bytes, sample, err);
    if (!code)
        code = digest_run_add(&run, bytes + size - sample, sample, err);
    if (!code)
        return digest_run_end(&run, &sight->projector_digest, err);
    digest_run_end(&run, NULL, NULL);
    return code;
}

static enum error_code sight_open_encoder(struct sight_here *sight, struct device *device,
                                          struct error *err)
{
    struct sight_job job = {.sight = sight};
    sight->device = device;
    return sight_job_wait(&job, err);
}

enum error_code sight_open(const char *path, const struct model *model, struct device *device,
                           struct device *fallback, struct sight **out, struct error *err)
{
    struct sight_here *sight = mem_new(sizeof *sight);
    *out = NULL;
    if (!sight)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a projector");
    sight->base = (struct sight){sight_look_here, sight_encode_here};
    pthread_mutex_init(&sight->lock, NULL);
    enum error_code code = projector_open(path, &sight->projector, err);
    if (!code)
        code = projector_check_model(sight->projector, model, err);
    if (!code)
        code = sight_open_encoder(sight, device, err);
    if (code == ERROR_NO_MEMORY && fallback && fallback != device)
        code = sight_open_encoder(sight, fallback, err);
    if (!code)
        code = sight_digest_projector(sight, err);
    if (code) {
        sight_close(&sight->base);
        return code;
    }
    *out = &sight->base;
    return ERROR_NONE;
}

/* The encoder's last job has ended: nothing of it is under way on the device's thread. */
void sight_close(struct sight *base)
{
    struct sight_here *sight = (struct sight_here *)base;
    if (!sight)
        return;
    if (sight->encoder)
        picture_encoder_close(sight->encoder);
    projector_close(sight->projector);
    pthread_mutex_destroy(&sight->lock);
    mem_free(sight);
}

const struct projector *sight_projector(const struct sight *sight)
{
    return ((const struct sight_here *)sight)->projector;
}

const struct device *sight_device(const struct sight *sight)
{
    return ((const struct sight_here *)sight)->device;
}
