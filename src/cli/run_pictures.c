#include "cli/run_pictures.h"

#include "base/buffer.h"
#include "model/model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RUN_PICTURE_MARK "\xf4\x8f\xbf\xbd" /* U+10FFFD, of private use */

void run_pictures_mark(const struct run_pictures *shown, const char *text, size_t size,
                       struct buffer *out)
{
    for (uint32_t i = 0; i < shown->n; i++)
        buffer_text(out, RUN_PICTURE_MARK);
    buffer_append(out, text, size);
}

static enum error_code run_pictures_read(const char *path, struct buffer *out, struct error *err)
{
    char chunk[16 * 1024];
    size_t n;
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s", strerror(errno));
    while (out->size <= LIMIT_PICTURE_BYTES && (n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buffer_append(out, chunk, n);
    const bool failed = ferror(file);
    fclose(file);
    if (failed)
        return error_set(err, ERROR_IO, "cannot be read");
    return out->failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory") : ERROR_NONE;
}

static enum error_code run_pictures_look(struct run_pictures *shown, uint32_t i,
                                         const struct session *session, struct error *err)
{
    struct buffer bytes = {0};
    enum error_code code = run_pictures_read(shown->files[i], &bytes, err);
    if (!code)
        code = sight_look(session->sight, bytes.data, bytes.size, &shown->pictures[i], err);
    buffer_deinit(&bytes);
    return code ? error_wrap(err, "--image %s", shown->files[i]) : ERROR_NONE;
}

enum error_code run_pictures_encode(struct run_pictures *shown, const struct session *session,
                                    const char *text, size_t size, struct token_list *out,
                                    struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (!session->sight)
        return error_set(err, ERROR_UNSUPPORTED,
                         "--image: %s has no projector beside its file, so that it cannot see; "
                         "give the one it was made with by --projector FILE (its name begins with "
                         "mmproj)",
                         model_name(session->model));
    for (uint32_t i = 0; i < shown->n && !code; i++)
        code = run_pictures_look(shown, i, session, err);
    out->max = generator_context(session->generator);
    const struct sight_text marked = {text, size, RUN_PICTURE_MARK};
    return code ? code
                : sight_encode(session->sight, session->tokenizer, &marked, shown->pictures,
                               shown->n, out, shown->at, err);
}

void run_pictures_deinit(struct run_pictures *shown)
{
    for (uint32_t i = 0; i < shown->n; i++)
        prompt_picture_release(shown->pictures[i]);
}
