/* Only the headers of a model's files, so that it can be planned for before it is here. */
#include "base/durable_file.h"
#include "base/mem.h"
#include "hub/hub_impl.h"
#include "model/gguf_file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HUB_HEADER_FIRST_BYTES = 4 << 20, HUB_HEADER_BYTES_MAX = 256 << 20 };

/* Where to the header goes; bytes that are here, that are asked for from and up to. */
struct hub_header_run {
    int fd;
    uint64_t have, from, want;
    struct http_head head;
    int problem;
};

static size_t hub_header_on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct hub_header_run *run = arg;
    const struct http_head *head = &run->head;
    size_t n = size * count;
    if (head->status < 200 || head->status > 299)
        return n;
    if (head->status != 206 || !head->has_range || head->from != run->from ||
        run->have + n > run->want)
        return 0;
    run->problem = pwrite_all(run->fd, bytes, n, run->have);
    run->have += n;
    return run->problem ? 0 : n;
}

static enum error_code hub_header_more(const struct hub_list *list, uint32_t file, CURL *curl,
                                       struct hub_header_run *run, struct error *err)
{
    char url[HUB_URL_TEXT], problem[CURL_ERROR_SIZE];
    struct curl_slist *headers = NULL;
    const struct http_get get = {.url = url,
                                 .place = &list->place,
                                 .from = run->have,
                                 .to = run->want,
                                 .head = &run->head,
                                 .headers = &headers,
                                 .problem = problem};
    CURLcode came = CURLE_OK;
    const char *what = list->files.files[file].path;
    run->from = run->have;
    enum error_code code = hub_file_url(list, file, url, err);
    if (!code)
        code = http_prepare(curl, &get, err);
    if (!code) {
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, hub_header_on_body);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, run);
        came = curl_easy_perform(curl);
        if (run->problem)
            code = error_set(err, ERROR_IO, "writing the header of %s: %s", what,
                             strerror(run->problem));
        else if (came || run->head.status != 206 || run->head.from != run->from)
            code = http_explain(came, &get, what, err);
    }
    curl_slist_free_all(headers);
    return code;
}

/* All of the header is here once the file opens and its tensors begin in what is here: nothing
 * before the first tensor is then a hole. */
static bool hub_header_is_whole(const char *path, uint64_t have, uint64_t size, struct error *err)
{
    struct gguf_file *file = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || gguf_file_open_part(fd, path, &file, err))
        return false;
    uint64_t first = size;
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++) {
        const uint64_t offset = gguf_file_tensor(file, i)->offset;
        first = offset < first ? offset : first;
    }
    gguf_file_close(file);
    return first <= have;
}

static enum error_code hub_header_one(const struct hub_list *list, uint32_t file, const char *path,
                                      CURL *curl, struct hub_headers *headers, struct error *err)
{
    uint64_t size = list->files.files[file].size;
    struct hub_header_run run = {0};
    enum error_code code = ERROR_NONE;
    run.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (run.fd < 0)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    for (uint64_t want = HUB_HEADER_FIRST_BYTES; !code; want *= 4) {
        struct error why = {0};
        run.want = size && size < want ? size : want;
        code = hub_header_more(list, file, curl, &run, err);
        size = size || code ? size : run.head.total;
        if (!code && (size > PULL_FILE_BYTES || ftruncate(run.fd, (off_t)size)))
            code = error_set(err, ERROR_IO, "%s: no room for a file of its size", path);
        if (code || hub_header_is_whole(path, run.have, size, &why))
            break;
        if (run.have == size || run.have >= HUB_HEADER_BYTES_MAX)
            code = error_set(err, ERROR_INVALID, "%.400s",
                             why.text[0] ? why.text : "its header is too long");
    }
    close(run.fd);
    headers->received += run.have;
    headers->size += size;
    return code;
}

static enum error_code hub_headers_make(const struct hub_list *list, uint32_t model, CURL *curl,
                                        struct hub_headers *out, struct error *err)
{
    const struct hub_model_entry *entry = &list->models[model];
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < entry->n_files && !code; i++) {
        char file[PATH_MAX];
        code = hub_file_path(list, out->folder, entry->files[i], file, err);
        if (!code)
            code = hub_header_one(list, entry->files[i], file, curl, out, err);
        if (!code && i == 0)
            memcpy(out->path, file, PATH_MAX);
    }
    return code;
}

enum error_code hub_headers_open(const struct hub_list *list, uint32_t model,
                                 struct hub_headers *out, struct error *err)
{
    const char *folder = getenv("TMPDIR");
    assert(model < list->n_models);
    *out = (struct hub_headers){0};
    if (snprintf(out->folder, PATH_MAX, "%s/medley-headers-XXXXXX",
                 folder && folder[0] ? folder : "/tmp") >= PATH_MAX ||
        !mkdtemp(out->folder)) {
        *out = (struct hub_headers){0};
        return error_set(err, ERROR_IO, "making a folder for headers in %s: %s",
                         folder && folder[0] ? folder : "/tmp", strerror(errno));
    }
    CURL *curl = curl_easy_init();
    const enum error_code code =
        curl ? hub_headers_make(list, model, curl, out, err)
             : error_set(err, ERROR_NO_MEMORY, "libcurl cannot begin: not enough memory");
    curl_easy_cleanup(curl);
    if (code)
        hub_headers_close(out);
    return code;
}

void hub_headers_close(struct hub_headers *headers)
{
    if (!headers->folder[0])
        return;
    DIR *folder = opendir(headers->folder);
    const struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    }
    if (folder)
        closedir(folder);
    rmdir(headers->folder);
    *headers = (struct hub_headers){0};
}
