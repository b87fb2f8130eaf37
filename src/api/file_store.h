/* Files that clients have uploaded, or that batches wrote for them: in the state folder, one
 * client's apart from another's.
 *
 * A file is FOLDER/ID.data and, written after it, FOLDER/ID.json: who owns it, its name and
 * purpose. What a crash cut off has no ID.json and is removed when the store is opened. Files
 * older than FILE_KEPT_S go then, and with any request for files or batches. A client is a token,
 * by its hash; all who need none are one. file_store_save() is for any thread, the rest for the
 * loop's. */
#pragma once

#include "api/file_form.h"
#include "base/buffer.h"
#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct access_grant;

enum {
    FILES_MAX = 256,
    FILES_OF_OWNER_MAX = 128,
    FILE_ID_TEXT = 40,
    FILE_OWNER_TEXT = 65, /* a token's hash in hexadecimal, or "-" */
    FILE_KEPT_S = 30 * 24 * 60 * 60,
};
#define FILES_BYTES (UINT64_C(1) << 30) /* all together; of one owner half of it */

struct kept_file {
    char id[FILE_ID_TEXT];
    char owner[FILE_OWNER_TEXT];
    char name[FILE_FORM_NAME_BYTES + 1];
    char purpose[16]; /* "batch", "batch_output" */
    uint64_t bytes, created_s;
};

struct file_store {
    char folder[PATH_MAX];
    struct kept_file files[FILES_MAX]; /* the oldest first */
    uint32_t n;
};

/* "PREFIX" and 32 random digits. */
void file_id_draw(const char *prefix, char out[FILE_ID_TEXT]);
void file_owner_of(const struct access_grant *grant, char out[FILE_OWNER_TEXT]);
/* The hash in it; false: "-". */
bool file_owner_hash(const char *owner, uint8_t *hash);

/* ERROR_IO: the folder cannot be made or read. */
enum error_code file_store_open(struct file_store *store, const char *folder, uint64_t now_s,
                                struct error *err);
/* Whether there is room for one more of so many bytes; false: `err` says what is full. */
bool file_store_has_room(const struct file_store *store, const char *owner, uint64_t bytes,
                         struct api_error *err);
/* Writes it, synced; `data` NULL: ID.data is there already. */
enum error_code file_store_save(const char *folder, const struct kept_file *file,
                                const struct text *data, struct error *err);
/* One that was saved is in the list from now on. False: the list is full. */
bool file_store_add(struct file_store *store, const struct kept_file *file);
/* NULL: there is none, or it is another's. Until the next change. */
const struct kept_file *file_store_find(const struct file_store *store, const char *id,
                                        const char *owner);
void file_store_remove(struct file_store *store, const char *id);
/* FOLDER/ID.data */
void file_store_data_path(const char *folder, const char *id, char out[PATH_MAX]);

void kept_file_write(const struct kept_file *file, struct buffer *out); /* as OpenAI has it */
