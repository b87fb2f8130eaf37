/* Copies between all devices of this machine, on an event loop that stays free throughout.
 *
 *   cc device_copy.c $(pkg-config --cflags --libs medley)
 *   device_copy [MIB]
 *
 * For each device and the next one: allocate on both, copy host -> first -> second -> host,
 * compare. Each step is submitted by the callback of the step before. A timer ticks meanwhile, to
 * show that nothing blocks the loop; the longest pause between two ticks is printed at the end. */
#include <medley/gpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum step { ALLOC_FIRST, ALLOC_SECOND, WRITE, COPY, READ, FREE_FIRST, FREE_SECOND, DONE };

struct tour {
    struct medley_gpu *gpu;
    struct medley_device_request request;
    uint32_t index; /* of the first device */
    enum step step;
    struct medley_device *first, *second;
    struct medley_device_buffer buffers[2];
    size_t size;
    unsigned char *sent, *received;
    uint64_t run_ns[DONE];
    enum medley_copy_path path;
    int status;

    uv_timer_t timer;
    uint64_t last_tick_ns, longest_pause_ns;
};

static const char *path_name(enum medley_copy_path path)
{
    switch (path) {
    case MEDLEY_COPY_NONE:
        return "nothing copied";
    case MEDLEY_COPY_SAME_DEVICE:
        return "same device";
    case MEDLEY_COPY_SAME_BACKEND:
        return "same backend";
    case MEDLEY_COPY_HOST_VISIBLE:
        return "host-visible";
    case MEDLEY_COPY_STAGED:
        return "staged";
    }
    return "?";
}

static void stop(struct tour *tour, const char *why)
{
    if (why) {
        fprintf(stderr, "%s\n", why);
        tour->status = 1;
    }
    uv_close((uv_handle_t *)&tour->timer, NULL);
    medley_gpu_close(tour->gpu, NULL, NULL); /* what is still allocated is freed with the devices */
}

static void on_step(struct medley_device_request *request);

static enum medley_error_code submit(struct tour *tour)
{
    struct medley_device_request *request = &tour->request;
    struct medley_device_buffer *buffers = tour->buffers;
    switch (tour->step) {
    case ALLOC_FIRST:
        return medley_device_alloc(tour->first, request, tour->size, on_step);
    case ALLOC_SECOND:
        return medley_device_alloc(tour->second, request, tour->size, on_step);
    case WRITE:
        return medley_device_write(tour->first, request, buffers[0], 0, tour->sent, tour->size,
                                   on_step);
    case COPY:
        return medley_device_copy(tour->first, request, buffers[0], 0, tour->second, buffers[1], 0,
                                  tour->size, on_step);
    case READ:
        return medley_device_read(tour->second, request, buffers[1], 0, tour->received, tour->size,
                                  on_step);
    case FREE_FIRST:
        return medley_device_free(tour->first, request, buffers[0], on_step);
    case FREE_SECOND:
        return medley_device_free(tour->second, request, buffers[1], on_step);
    case DONE:
        break;
    }
    return MEDLEY_ERROR_INTERNAL;
}

static double gb_per_s(const struct tour *tour, enum step step)
{
    return tour->run_ns[step] ? (double)tour->size / (double)tour->run_ns[step] : 0;
}

/* False when the tour is over. */
static bool next_pair(struct tour *tour)
{
    uint32_t count = medley_gpu_device_count(tour->gpu);
    if (tour->index == count)
        return false;
    tour->first = medley_gpu_device(tour->gpu, tour->index);
    tour->second = medley_gpu_device(tour->gpu, (tour->index + 1) % count);
    tour->index++;
    tour->step = ALLOC_FIRST;
    memset(tour->received, 0, tour->size);
    return true;
}

static bool report(struct tour *tour)
{
    bool same = memcmp(tour->sent, tour->received, tour->size) == 0;
    printf("%s -> %s: %s; GB/s: to %.1f, between %.1f, from %.1f; %s\n",
           medley_device_info(tour->first)->id, medley_device_info(tour->second)->id,
           path_name(tour->path), gb_per_s(tour, WRITE), gb_per_s(tour, COPY), gb_per_s(tour, READ),
           same ? "every byte is right" : "BYTES DIFFER");
    return same;
}

static void on_step(struct medley_device_request *request)
{
    struct tour *tour = request->data;
    if (request->error.code) {
        stop(tour, request->error.text);
        return;
    }
    tour->run_ns[tour->step] = request->run_ns;
    if (tour->step == ALLOC_FIRST || tour->step == ALLOC_SECOND)
        tour->buffers[tour->step - ALLOC_FIRST] = request->buffer;
    if (tour->step == COPY)
        tour->path = request->path;
    tour->step++;
    if (tour->step == DONE && !report(tour)) {
        stop(tour, "a device returns other bytes than it was given");
        return;
    }
    if (tour->step == DONE && !next_pair(tour))
        stop(tour, NULL);
    else if (submit(tour))
        stop(tour, request->error.text);
}

static void on_open(struct medley_device_request *request)
{
    struct tour *tour = request->data;
    if (request->error.code) {
        stop(tour, request->error.text);
        return;
    }
    for (uint32_t i = 0; i < medley_gpu_device_count(tour->gpu); i++) {
        const struct medley_device_info *info = medley_device_info(medley_gpu_device(tour->gpu, i));
        printf("%-10s %s, %s, %.1f of %.1f GiB free\n", info->id, info->name, info->backend,
               (double)info->free_bytes.value / 1073741824.0,
               (double)info->total_bytes.value / 1073741824.0);
    }
    if (!next_pair(tour))
        stop(tour, "no device");
    else if (submit(tour))
        stop(tour, request->error.text);
}

static void on_tick(uv_timer_t *timer)
{
    struct tour *tour = timer->data;
    uint64_t now_ns = uv_hrtime();
    if (tour->last_tick_ns && now_ns - tour->last_tick_ns > tour->longest_pause_ns)
        tour->longest_pause_ns = now_ns - tour->last_tick_ns;
    tour->last_tick_ns = now_ns;
}

int main(int argc, char **argv)
{
    long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 16;
    if (mib < 1 || mib > 1024) {
        fprintf(stderr, "usage: device_copy [MIB]   (1 to 1024)\n");
        return 2;
    }
    struct tour tour = {.size = (size_t)mib << 20};
    tour.request.data = &tour;
    tour.sent = malloc(tour.size);
    tour.received = malloc(tour.size);
    if (!tour.sent || !tour.received)
        return 1;
    for (size_t i = 0; i < tour.size; i++)
        tour.sent[i] = (unsigned char)(i * 2654435761u >> 13);

    uv_loop_t *loop = uv_default_loop();
    uv_timer_init(loop, &tour.timer);
    tour.timer.data = &tour;
    if (medley_gpu_open(loop, NULL, &tour.gpu, &tour.request, on_open)) {
        fprintf(stderr, "%s\n", tour.request.error.text);
        return 1;
    }
    uv_timer_start(&tour.timer, on_tick, 1, 1);
    uv_run(loop, UV_RUN_DEFAULT);
    printf("the longest pause of the loop between two ticks of 1 ms was %.1f ms, comparing the "
           "bytes included\n",
           (double)tour.longest_pause_ns * 1e-6);
    uv_loop_close(loop);
    free(tour.sent);
    free(tour.received);
    return tour.status;
}
