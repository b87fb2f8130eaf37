/* Writes the corpus of fuzz_request: a message of each kind, and all of them in one run.
 * `make-request-corpus FOLDER` */
#include "base/mem.h"
#include "request/request_wire.h"

#include <stdio.h>
#include <stdlib.h>

static const char *folder;
static struct buffer all;

static void keep(const char *name, struct buffer *run)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(run->data, 1, run->size, file) != run->size || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
    if (run != &all)
        buffer_append(&all, run->data, run->size);
    buffer_clear(run);
}

static void keep_picture(struct buffer *run)
{
    const uint8_t digest[PICTURE_DIGEST_BYTES] = {1, 2, 3};
    struct picture_rows rows = {.n_rows = 2, .width = 2, .is_whole = true};
    struct request_picture picture = {.at = 1};
    int32_t prompt[4] = {1, 0, 0, 2};
    rows.rows = mem_new_array(4, sizeof(float));
    if (!rows.rows || prompt_picture_new(&rows, digest, &picture.picture, NULL))
        exit(1);
    prompt_picture_tokens(picture.picture, prompt + 1);
    request_write_submit(3, "seer",
                         &(struct request){.prompt = prompt,
                                           .n_prompt = 4,
                                           .sampler = sampler_defaults(),
                                           .pictures = &picture,
                                           .n_pictures = 1},
                         run);
    keep("submit-picture", run);
    prompt_picture_release(picture.picture);
}

static void keep_requests(struct buffer *run)
{
    const int32_t prompt[] = {1, 2, 3, 4, 5}, stops[] = {6, 7};
    const struct logit_bias biases[] = {{8, 1.5f}, {9, -100}};
    struct request request = {.prompt = prompt,
                              .n_prompt = 5,
                              .n_predict = 10,
                              .sampler = sampler_defaults(),
                              .stop_tokens = stops,
                              .n_stop_tokens = 2,
                              .logprobs = true,
                              .n_top_logprobs = 2};
    request.sampler.biases = biases;
    request.sampler.n_biases = 2;
    request_write_submit(1, "llama", &request, run);
    keep("submit", run);
    request = (struct request){.prompt = prompt, .n_prompt = 2, .embeddings = true};
    request_write_submit(2, "embedder", &request, run);
    keep("submit-embeddings", run);
    keep_picture(run);
}

int main(int argc, char **argv)
{
    static const struct token_logprob top[] = {{4, -0.1f}, {5, -2}};
    const struct error why = {ERROR_BUSY, "128 requests are waiting already, which is the limit"};
    struct buffer run = {0};
    size_t last = (size_t)-1;
    if (argc != 2)
        return 1;
    folder = argv[1];
    keep_requests(&run);
    request_write_accepted(1, &run);
    keep("accepted", &run);
    request_write_refused(2, &why, &run);
    keep("refused", &run);
    for (uint32_t i = 0; i < 3; i++)
        request_write_token(1, &(struct token_event){(int32_t)i, i, -0.5f, top, i}, &last, &run);
    keep("tokens", &run);
    request_write_row(1, 3, (const float[]){0.5f, -1, 2}, 3, &run);
    keep("row", &run);
    request_write_done(1, FINISH_LENGTH, &(struct request_usage){5, 1, 3, 10, 20, 30}, NULL, false,
                       &run);
    keep("done", &run);
    request_write_done(1, FINISH_ERROR, &(struct request_usage){5, 0, 0, 10, 0, 0}, &why, true,
                       &run);
    keep("done-lost", &run);
    request_write_cancel(1, &run);
    keep("cancel", &run);
    keep("all", &all);
    buffer_deinit(&run);
    buffer_deinit(&all);
    return 0;
}
