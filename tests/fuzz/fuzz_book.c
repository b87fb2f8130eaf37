/* The book of members' bytes: its file, and what a new member is told. Holds: what is taken is
 * written and read back as the same; all ids are ids; who was removed is not in it. */
#include "fuzz.h"

#include "join/book.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(const struct book *book, const char *removed)
{
    for (size_t i = 0; i < book_size(book); i++) {
        uint8_t id[NODE_ID_BYTES];
        FUZZ_CHECK(id_parse(book_at(book, i)->id, id, sizeof id) && book_admits(book, id));
        FUZZ_CHECK(strcmp(book_at(book, i)->id, removed) != 0 &&
                   book_find(book, book_at(book, i)->id));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64], removed[NODE_ID_TEXT];
    uint8_t id[NODE_ID_BYTES] = {0x11};
    struct book *book, *again;
    struct buffer bytes = {0}, second = {0};
    struct error err;
    id_text(id, sizeof id, removed);
    snprintf(path, sizeof path, "/tmp/medley-fuzz-book-%d", (int)getpid());
    unlink(path);
    FUZZ_CHECK(!book_open(path, &book, &err));
    book_remove(book, removed);
    const enum error_code code = book_take(book, data, size, &err);
    FUZZ_CHECK(!code || (code == ERROR_INVALID && err.text[0]));
    check(book, removed);
    book_encode(book, SIZE_MAX, &bytes);
    FUZZ_CHECK(!book_open(path, &again, &err) && book_was_removed(again, removed));
    book_encode(again, SIZE_MAX, &second);
    FUZZ_CHECK(bytes.size == second.size &&
               (!bytes.size || memcmp(bytes.data, second.data, bytes.size) == 0));
    book_close(book);
    book_close(again);
    buffer_deinit(&bytes);
    buffer_deinit(&second);
    unlink(path);
    return 0;
}
