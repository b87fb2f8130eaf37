/* device_speed: what the device interface (medley/gpu.h) costs beside doing the same by hand.
 *
 *   device_speed [--mib 64] [--rounds 15]
 *
 * copies    host -> device, device -> host and between devices, against memcpy() of as many bytes.
 *           Each transfer runs on one thread (the device's), so memcpy does too. Both take turns,
 *           round after round; all memory has been touched before. GB/s (10^9 bytes) are medians of
 *           the rounds, the ratio is that of the medians; "while it runs" leaves out what the
 *           request waits for threads to wake, which is long on a busy machine.
 * overhead  a write of 64 bytes to the CPU device: submitted, run on the device's thread and called
 *           back, one at a time ("alone") or with 256 in flight ("queued", time per operation),
 *           against ggml_backend_tensor_set() called directly. "hand-overs" is what no queue can be
 *           without when nobody spins: a bare thread is woken by a condition variable and wakes a
 *           bare libuv loop.
 *
 * Only while nothing else runs do the numbers mean something. */
#include <ggml-backend.h>
#include <medley/gpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 1000, SMALL = 64, OPERATIONS = 2000, IN_FLIGHT = 256 };

static struct medley_gpu *gpu;
static unsigned n_rounds = 15;

static void must(struct medley_device_request *request)
{
    if (medley_device_wait(request)) {
        fprintf(stderr, "device_speed: %s\n", request->error.text);
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static struct medley_device_buffer alloc(struct medley_device *device, size_t size)
{
    struct medley_device_request request = {0};
    medley_device_alloc(device, &request, size, NULL);
    must(&request);
    return request.buffer;
}

static void release(struct medley_device *device, struct medley_device_buffer buffer)
{
    struct medley_device_request request = {0};
    medley_device_free(device, &request, buffer, NULL);
    must(&request);
}

/* ---- copies ---------------------------------------------------------------------------- */

enum direction { TO, FROM, BETWEEN };

struct transfer {
    enum direction direction;
    struct medley_device *a, *b;
    struct medley_device_buffer buffer_a, buffer_b;
    char *host, *other;
    size_t size;
    enum medley_copy_path path;
    uint64_t run_ns; /* of it on the device's thread */
};

static uint64_t transfer_once(struct transfer *transfer)
{
    struct medley_device_request request = {0};
    uint64_t start_ns = uv_hrtime();
    if (transfer->direction == TO)
        medley_device_write(transfer->a, &request, transfer->buffer_a, 0, transfer->host,
                            transfer->size, NULL);
    else if (transfer->direction == FROM)
        medley_device_read(transfer->a, &request, transfer->buffer_a, 0, transfer->host,
                           transfer->size, NULL);
    else
        medley_device_copy(transfer->a, &request, transfer->buffer_a, 0, transfer->b,
                           transfer->buffer_b, 0, transfer->size, NULL);
    must(&request);
    transfer->path = request.path;
    transfer->run_ns = request.run_ns;
    return uv_hrtime() - start_ns;
}

static uint64_t memcpy_once(const struct transfer *transfer)
{
    uint64_t start_ns = uv_hrtime();
    memcpy(transfer->other, transfer->host, transfer->size);
    __asm__ volatile("" : : "r"(transfer->other) : "memory"); /* it does happen */
    return uv_hrtime() - start_ns;
}

static void measure(const char *what, struct transfer *transfer)
{
    static double ours[ROUNDS_MAX], running[ROUNDS_MAX], theirs[ROUNDS_MAX];
    transfer_once(transfer);
    memcpy_once(transfer);
    for (unsigned i = 0; i < n_rounds; i++) {
        ours[i] = (double)transfer->size / (double)transfer_once(transfer);
        running[i] = (double)transfer->size / (double)transfer->run_ns;
        theirs[i] = (double)transfer->size / (double)memcpy_once(transfer);
    }
    double ours_median = median(ours, n_rounds), theirs_median = median(theirs, n_rounds);
    static const char *const paths[] = {"", "same device", "same backend", "host-visible",
                                        "staged"};
    printf("%-20s %5.2f GB/s (%.2f-%.2f)   memcpy %5.2f (%.2f-%.2f)   %.2fx, while it runs %.2fx   "
           "%s\n",
           what, ours_median, ours[0], ours[n_rounds - 1], theirs_median, theirs[0],
           theirs[n_rounds - 1], ours_median / theirs_median,
           median(running, n_rounds) / theirs_median, paths[transfer->path]);
    fflush(stdout);
}

static void copies(size_t size)
{
    char what[96];
    struct transfer transfer = {.size = size, .host = malloc(size), .other = malloc(size)};
    if (!transfer.host || !transfer.other)
        exit(1);
    memset(transfer.host, 1, size);
    memset(transfer.other, 2, size);
    for (uint32_t i = 0; i < medley_gpu_device_count(gpu); i++) {
        transfer.a = medley_gpu_device(gpu, i);
        transfer.buffer_a = alloc(transfer.a, size);
        snprintf(what, sizeof what, "host -> %s", medley_device_info(transfer.a)->id);
        transfer.direction = TO;
        measure(what, &transfer);
        snprintf(what, sizeof what, "%s -> host", medley_device_info(transfer.a)->id);
        transfer.direction = FROM;
        measure(what, &transfer);
        for (uint32_t k = 0; k < medley_gpu_device_count(gpu); k++) {
            transfer.b = medley_gpu_device(gpu, k);
            transfer.buffer_b = alloc(transfer.b, size);
            snprintf(what, sizeof what, "%s -> %s", medley_device_info(transfer.a)->id,
                     medley_device_info(transfer.b)->id);
            transfer.direction = BETWEEN;
            measure(what, &transfer);
            release(transfer.b, transfer.buffer_b);
        }
        release(transfer.a, transfer.buffer_a);
    }
    free(transfer.host);
    free(transfer.other);
}

/* ---- overhead -------------------------------------------------------------------------- */

/* What ggml alone takes: a tensor of bytes in a buffer of the CPU. */
struct direct {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *tensor;
};

static struct direct direct_open(void)
{
    struct direct direct = {.ctx = ggml_init((struct ggml_init_params){
                                .mem_size = ggml_tensor_overhead(), .no_alloc = true})};
    direct.tensor = ggml_new_tensor_1d(direct.ctx, GGML_TYPE_I8, SMALL); /* [SMALL] */
    direct.buffer = ggml_backend_alloc_ctx_tensors_from_buft(
        direct.ctx,
        ggml_backend_dev_buffer_type(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)));
    if (!direct.buffer)
        exit(1);
    return direct;
}

static double alone_ns(struct medley_device *device, struct medley_device_buffer buffer,
                       const char *bytes)
{
    static double times[OPERATIONS];
    for (unsigned i = 0; i < OPERATIONS; i++) {
        struct medley_device_request request = {0};
        uint64_t start_ns = uv_hrtime();
        medley_device_write(device, &request, buffer, 0, bytes, SMALL, NULL);
        medley_device_wait(&request);
        times[i] = (double)(uv_hrtime() - start_ns);
    }
    return median(times, OPERATIONS);
}

static double queued_ns(struct medley_device *device, struct medley_device_buffer buffer,
                        const char *bytes)
{
    static struct medley_device_request requests[IN_FLIGHT];
    double times[OPERATIONS / IN_FLIGHT];
    for (unsigned i = 0; i < OPERATIONS / IN_FLIGHT; i++) {
        uint64_t start_ns = uv_hrtime();
        for (unsigned k = 0; k < IN_FLIGHT; k++)
            medley_device_write(device, &requests[k], buffer, 0, bytes, SMALL, NULL);
        for (unsigned k = 0; k < IN_FLIGHT; k++)
            must(&requests[k]);
        times[i] = (double)(uv_hrtime() - start_ns) / (double)IN_FLIGHT;
    }
    return median(times, OPERATIONS / IN_FLIGHT);
}

static double direct_ns(const struct direct *direct, const char *bytes)
{
    uint64_t start_ns = uv_hrtime();
    for (unsigned i = 0; i < OPERATIONS; i++)
        ggml_backend_tensor_set(direct->tensor, bytes, 0, SMALL);
    return (double)(uv_hrtime() - start_ns) / (double)OPERATIONS;
}

/* One thread and one loop that wake each other, and nothing else. */
struct ping {
    uv_mutex_t lock;
    uv_cond_t wake;
    uv_async_t answer;
    bool asked, answered, over;
};

static void answer_all(void *data)
{
    struct ping *ping = data;
    uv_mutex_lock(&ping->lock);
    while (!ping->over) {
        if (ping->asked) {
            ping->asked = false;
            uv_async_send(&ping->answer);
        } else {
            uv_cond_wait(&ping->wake, &ping->lock);
        }
    }
    uv_mutex_unlock(&ping->lock);
}

static void on_answer(uv_async_t *answer)
{
    ((struct ping *)answer->data)->answered = true;
}

static void ask(struct ping *ping, bool *what)
{
    uv_mutex_lock(&ping->lock);
    *what = true;
    uv_cond_signal(&ping->wake);
    uv_mutex_unlock(&ping->lock);
}

static double handovers_ns(void)
{
    static double times[OPERATIONS];
    struct ping ping = {0};
    uv_loop_t loop;
    uv_thread_t thread;
    uv_loop_init(&loop);
    uv_mutex_init(&ping.lock);
    uv_cond_init(&ping.wake);
    uv_async_init(&loop, &ping.answer, on_answer);
    ping.answer.data = &ping;
    uv_thread_create(&thread, answer_all, &ping);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        uint64_t start_ns = uv_hrtime();
        ping.answered = false;
        ask(&ping, &ping.asked);
        while (!ping.answered)
            uv_run(&loop, UV_RUN_ONCE);
        times[i] = (double)(uv_hrtime() - start_ns);
    }
    ask(&ping, &ping.over);
    uv_thread_join(&thread);
    uv_close((uv_handle_t *)&ping.answer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    uv_cond_destroy(&ping.wake);
    uv_mutex_destroy(&ping.lock);
    return median(times, OPERATIONS);
}

static void overhead(void)
{
    static double alone[ROUNDS_MAX], queued[ROUNDS_MAX], by_hand[ROUNDS_MAX], handovers[ROUNDS_MAX];
    char bytes[SMALL] = "";
    struct medley_device *cpu = medley_gpu_find(gpu, "cpu");
    struct medley_device_buffer buffer = alloc(cpu, SMALL);
    struct direct direct = direct_open();
    for (unsigned i = 0; i < n_rounds; i++) {
        alone[i] = alone_ns(cpu, buffer, bytes);
        queued[i] = queued_ns(cpu, buffer, bytes);
        by_hand[i] = direct_ns(&direct, bytes);
        handovers[i] = handovers_ns();
    }
    double floor_ns = median(by_hand, n_rounds);
    double alone_median = median(alone, n_rounds), queued_median = median(queued, n_rounds);
    printf("one operation, us:  ggml directly %.2f\n"
           "  queued  %6.2f (%.2f-%.2f)  overhead %.2f\n"
           "  alone   %6.2f (%.2f-%.2f)  overhead %.2f, of which the two hand-overs between "
           "threads %.2f\n",
           floor_ns / 1e3, queued_median / 1e3, queued[0] / 1e3, queued[n_rounds - 1] / 1e3,
           (queued_median - floor_ns) / 1e3, alone_median / 1e3, alone[0] / 1e3,
           alone[n_rounds - 1] / 1e3, (alone_median - floor_ns) / 1e3,
           median(handovers, n_rounds) / 1e3);
    ggml_backend_buffer_free(direct.buffer);
    ggml_free(direct.ctx);
    release(cpu, buffer);
}

static unsigned long option(int argc, char **argv, const char *name, unsigned long value)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            value = strtoul(argv[i + 1], NULL, 10);
    }
    return value;
}

int main(int argc, char **argv)
{
    size_t size = option(argc, argv, "--mib", 64) << 20;
    n_rounds = (unsigned)option(argc, argv, "--rounds", n_rounds);
    if (size == 0 || n_rounds == 0 || n_rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: device_speed [--mib 64] [--rounds 15]\n");
        return 2;
    }
    struct medley_device_request request = {0};
    medley_gpu_open(NULL, NULL, &gpu, &request, NULL);
    must(&request);
    copies(size);
    overhead();
    medley_gpu_close(gpu, NULL, NULL);
    return 0;
}
