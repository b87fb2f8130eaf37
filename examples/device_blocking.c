/* The devices of this machine, without an event loop: writes a few bytes to each and reads them
 * back.
 *
 *   cc device_blocking.c $(pkg-config --cflags --libs medley) */
#include <medley/gpu.h>
#include <stdio.h>
#include <string.h>

/* A submit whose answer is dropped is found by the wait. */
static enum medley_error_code round_trip(struct medley_device *device,
                                         struct medley_device_request *request)
{
    char text[] = "there and back", back[sizeof text] = "";
    medley_device_alloc(device, request, sizeof text, NULL);
    if (medley_device_wait(request))
        return request->error.code;
    struct medley_device_buffer buffer = request->buffer;
    medley_device_write(device, request, buffer, 0, text, sizeof text, NULL);
    if (!medley_device_wait(request))
        medley_device_read(device, request, buffer, 0, back, sizeof back, NULL);
    if (!medley_device_wait(request))
        printf("%-10s %-50s %s\n", medley_device_info(device)->id, medley_device_info(device)->name,
               back);
    struct medley_device_request freeing = {0};
    medley_device_free(device, &freeing, buffer, NULL);
    medley_device_wait(&freeing);
    return request->error.code ? request->error.code : freeing.error.code;
}

int main(void)
{
    struct medley_gpu *gpu = NULL;
    struct medley_device_request request = {0};
    medley_gpu_open(NULL, NULL, &gpu, &request, NULL);
    enum medley_error_code failed = medley_device_wait(&request);
    for (uint32_t i = 0; i < medley_gpu_device_count(gpu) && !failed; i++)
        failed = round_trip(medley_gpu_device(gpu, i), &request);
    if (failed)
        fprintf(stderr, "%s\n", request.error.text);
    medley_gpu_close(gpu, NULL, NULL);
    return failed != 0;
}
