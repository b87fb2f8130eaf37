/* Models in several files: shown as one by whichever part or folder is given, told on to others as
 * one; and sets of files that are none are refused by the part that is to blame. */
#include "base/buffer.h"
#include "engine/weight_disk.h"
#include "gguf_bytes.h"
#include "model/gguf_file.h"
#include "weights/manifest_make.h"
#include "weights/weight_source.h"

#include <ggml.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_PARTS = 3, N_VALUES = 64 };

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static unsigned next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static const char *part_name(uint32_t number)
{
    static char name[4][40];
    static unsigned next;
    char *out = name[next++ % 4];
    snprintf(out, sizeof name[0], "m-%05u-of-%05u.gguf", number, N_PARTS);
    return in_folder(out);
}

struct told { /* what a part says of itself */
    uint32_t no, count, n_tensors, alignment;
};

/* Tensors t0 … of a part: the first has keys and no tensor, part i has i. */
static void write_part(const char *path, const struct told *told, uint32_t first, uint32_t n)
{
    struct gguf_bytes bytes = {.alignment = told->alignment};
    gguf_bytes_u16(&bytes, "split.no", (uint16_t)told->no);
    gguf_bytes_u16(&bytes, "split.count", (uint16_t)told->count);
    gguf_bytes_i32(&bytes, "split.tensors.count", (int32_t)told->n_tensors);
    if (told->alignment)
        gguf_bytes_u32(&bytes, "general.alignment", told->alignment);
    if (told->no == 0)
        gguf_bytes_text(&bytes, "general.name", "in parts");
    for (uint32_t i = first; i < first + n; i++) {
        float values[N_VALUES];
        char name[16];
        for (uint32_t j = 0; j < N_VALUES; j++)
            values[j] = (float)(1000 * i + j);
        snprintf(name, sizeof name, "t%u", i);
        gguf_bytes_tensor(&bytes, name, GGML_TYPE_F32, 1, (int64_t[]){N_VALUES}, values);
    }
    gguf_bytes_save(&bytes, path);
    gguf_bytes_deinit(&bytes);
}

static int make_parts(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/medley-parts-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_part(part_name(1), &(struct told){0, N_PARTS, 3, 0}, 0, 0);
    write_part(part_name(2), &(struct told){1, N_PARTS, 3, 0}, 0, 1);
    write_part(part_name(3), &(struct told){2, N_PARTS, 3, 0}, 1, 2);
    return 0;
}

static int remove_parts(void **state)
{
    (void)state;
    static const char *const others[] = {"other.gguf", "b.gguf", "notes.txt"};
    for (uint32_t i = 1; i <= N_PARTS; i++)
        unlink(part_name(i));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        unlink(in_folder(others[i]));
    return rmdir(folder);
}

static void expect_whole(const struct gguf_file *file)
{
    assert_string_equal(gguf_file_path(file), part_name(1));
    assert_int_equal(gguf_file_part_count(file), N_PARTS);
    assert_int_equal(gguf_file_tensor_count(file), 3);
    assert_true(gguf_file_has(file, "general.name"));
    for (uint32_t i = 0; i < 3; i++) {
        char name[16];
        float values[N_VALUES], read[N_VALUES];
        uint32_t part;
        uint64_t offset;
        snprintf(name, sizeof name, "t%u", i);
        const struct gguf_tensor *tensor = gguf_file_find_tensor(file, name);
        assert_non_null(tensor);
        memcpy(values, gguf_file_bytes(file) + tensor->offset, sizeof values);
        assert_true(gguf_file_place(file, tensor->offset, &part, &offset));
        assert_int_equal(part, i == 0 ? 1 : 2);
        assert_int_equal(
            pread(gguf_file_part_descriptor(file, part), read, sizeof read, (off_t)offset),
            sizeof read);
        for (uint32_t j = 0; j < N_VALUES; j++) {
            assert_true(values[j] == (float)(1000 * i + j));
            assert_true(read[j] == values[j]);
        }
    }
}

static void refused(const char *path, enum error_code code, const char *text)
{
    struct gguf_file *file;
    struct error err = {0};
    assert_int_equal(gguf_file_open(path, &file, &err), code);
    assert_null(file);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in '%s'", text, err.text);
}

/* ---- the tests -------------------------------------------------------------------------- */

static void any_part_stands_for_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i <= N_PARTS; i++) {
        struct gguf_file *file;
        struct error err = {0};
        if (gguf_file_open(i ? part_name(i) : folder, &file, &err))
            fail_msg("%s", err.text);
        expect_whole(file);
        gguf_file_close(file);
    }
}

static void a_larger_alignment_is_kept(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_PARTS; i++)
        write_part(part_name(i + 1), &(struct told){i, N_PARTS, 3, 1u << 17}, i ? i - 1 : 0, i);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open(folder, &file, NULL), ERROR_NONE);
    expect_whole(file);
    assert_int_equal(gguf_file_find_tensor(file, "t2")->offset % (1u << 17), 0);
    gguf_file_close(file);
}

static void a_part_is_missing(void **state)
{
    (void)state;
    unlink(part_name(2));
    refused(part_name(1), ERROR_NOT_FOUND, "part 2 of 3, m-00002-of-00003.gguf: No such file");
    refused(folder, ERROR_NOT_FOUND, "part 2 of 3");
    unlink(part_name(1));
    refused(part_name(3), ERROR_NOT_FOUND, "part 1 of 3");
    refused(folder, ERROR_INVALID, "a folder without a model's file or first part");
}

static void a_part_is_not_of_this_model(void **state)
{
    (void)state;
    write_part(part_name(3), &(struct told){1, N_PARTS, 3, 0}, 0, 1);
    refused(folder, ERROR_INVALID, "part 3 of 3 says that it is part 2: it is here twice");
    write_part(part_name(3), &(struct told){2, 4, 3, 0}, 1, 2);
    refused(folder, ERROR_INVALID, "part 3 of 3 is of another model");
    write_part(part_name(3), &(struct told){2, N_PARTS, 7, 0}, 1, 2);
    refused(folder, ERROR_INVALID, "part 3 of 3 is of another model");
    write_part(part_name(3), &(struct told){2, N_PARTS, 3, 0}, 1, 1);
    refused(folder, ERROR_INVALID, "the 3 parts have 2 tensors, but the first says 3");
    write_part(part_name(3), &(struct told){2, N_PARTS, 3, 0}, 0, 2);
    refused(folder, ERROR_INVALID, "its 3 parts together: tensor 't0' appears twice");
}

static void a_part_is_damaged(void **state)
{
    (void)state;
    assert_int_equal(truncate(part_name(3), 200), 0);
    refused(part_name(1), ERROR_INVALID, "part 3 of 3: truncated");
    assert_int_equal(truncate(part_name(3), 0), 0);
    refused(part_name(1), ERROR_INVALID, "part 3 of 3: the file is empty");
    unlink(part_name(3));
    assert_int_equal(mkdir(part_name(3), 0700), 0);
    refused(part_name(1), ERROR_INVALID, "part 3 of 3: a directory, not a file");
    assert_int_equal(rmdir(part_name(3)), 0);
}

static void names_tell_the_others(void **state)
{
    (void)state;
    assert_int_equal(rename(part_name(1), in_folder("other.gguf")), 0);
    refused(in_folder("other.gguf"), ERROR_INVALID,
            "its name does not end in \"-NNNNN-of-00003.gguf\"");
    assert_int_equal(rename(in_folder("other.gguf"), part_name(1)), 0);
    write_part(in_folder("b.gguf"), &(struct told){0, 1, 1, 0}, 0, 1);
    refused(folder, ERROR_INVALID, "this folder holds several models");
    refused(in_folder("none"), ERROR_NOT_FOUND, "No such file");
}

/* What others get is a whole file: its header first, then each tensor. */
static void told_on_as_one(void **state)
{
    (void)state;
    struct gguf_file *file, *copy;
    struct manifest manifest;
    struct weight_source source;
    struct buffer out = {0};
    assert_int_equal(gguf_file_open(folder, &file, NULL), ERROR_NONE);
    assert_int_equal(manifest_make(file, NULL, &manifest, NULL), ERROR_NONE);
    assert_int_equal(weight_source_of_file(&manifest, file, &source, NULL), ERROR_NONE);
    char *bytes = calloc(1, manifest.size);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < manifest.n_parts; i++) {
        const struct manifest_part *part = &manifest.parts[i];
        const struct fetch_message ask = {
            .type = FETCH_MESSAGE_REQUEST,
            .model = source.model,
            .request = {.part = i, .offset = 0, .size = (uint32_t)part->size}};
        struct digest digest;
        struct fetch_message got;
        buffer_clear(&out);
        weight_source_answer(&source, &ask, &out);
        assert_int_equal(fetch_message_read(out.data, out.size, &got, NULL), ERROR_NONE);
        assert_int_equal(got.type, FETCH_MESSAGE_CHUNK);
        assert_int_equal(got.chunk.size, part->size);
        assert_int_equal(digest_of(got.chunk.bytes, part->size, &digest, NULL), ERROR_NONE);
        assert_true(digest_equal(&digest, &part->digest));
        memcpy(bytes + part->offset, got.chunk.bytes, part->size);
    }
    assert_int_equal(gguf_file_open_memory(bytes, manifest.size, &copy, NULL), ERROR_NONE);
    assert_int_equal(gguf_file_tensor_count(copy), 3);
    assert_int_equal(manifest_agrees(&manifest, copy, NULL), ERROR_NONE);
    gguf_file_close(copy);

    /* whichever part is touched, it is not given away any more */
    assert_int_equal(chmod(part_name(2), 0600), 0);
    struct fetch_message ask = {.type = FETCH_MESSAGE_REQUEST,
                                .model = source.model,
                                .request = {.part = 1, .size = 8}},
                         got;
    buffer_clear(&out);
    weight_source_answer(&source, &ask, &out);
    assert_int_equal(fetch_message_read(out.data, out.size, &got, NULL), ERROR_NONE);
    assert_int_equal(got.type, FETCH_MESSAGE_REFUSE);
    free(bytes);
    buffer_deinit(&out);
    weight_source_deinit(&source);
    manifest_deinit(&manifest);
    gguf_file_close(file);
}

/* As streamed layers are read: across the files, and what lies between them. */
static void read_past_the_mapping(void **state)
{
    (void)state;
    enum { FROM = 64 * 1024 }; /* where the first file's bytes begin to be shown */
    struct gguf_file *file;
    struct weight_disk disk;
    struct error err = {0};
    assert_int_equal(gguf_file_open(folder, &file, NULL), ERROR_NONE);
    assert_int_equal(weight_disk_open(&disk, file, &err), ERROR_NONE);
    const struct gguf_tensor *last = gguf_file_find_tensor(file, "t2");
    const uint64_t needed = last->offset + last->size - FROM, size = gguf_file_size(file) - FROM;
    char *bytes = aligned_alloc(WEIGHT_DISK_ALIGN, size);
    assert_non_null(bytes);
    for (int direct = 0; direct < 2; direct++) {
        memset(bytes, 0xff, size);
        disk.is_direct = direct && disk.direct;
        if (weight_disk_read(&disk, bytes, FROM, size, needed, &err))
            fail_msg("%s", err.text);
        assert_memory_equal(bytes, gguf_file_bytes(file) + FROM, needed);
    }
    assert_int_equal(truncate(part_name(3), 100), 0);
    assert_int_equal(weight_disk_read(&disk, bytes, FROM, size, needed, &err), ERROR_IO);
    free(bytes);
    weight_disk_close(&disk);
    gguf_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_part_stands_for_all, make_parts, remove_parts),
        cmocka_unit_test_setup_teardown(a_larger_alignment_is_kept, make_parts, remove_parts),
        cmocka_unit_test_setup_teardown(a_part_is_missing, make_parts, remove_parts),
        cmocka_unit_test_setup_teardown(a_part_is_not_of_this_model, make_parts, remove_parts),
        cmocka_unit_test_setup_teardown(a_part_is_damaged, make_parts, remove_parts),
        cmocka_unit_test_setup_teardown(names_tell_the_others, make_parts, remove_parts),
        cmocka_unit_test_setup_teardown(told_on_as_one, make_parts, remove_parts),
        cmocka_unit_test_setup_teardown(read_past_the_mapping, make_parts, remove_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
