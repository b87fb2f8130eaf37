/* Manifests: made from files, as bytes, kept and distrusted, and by layers. */
#include "base/bytes.h"
#include "base/limits.h"
#include "base/mem.h"
#include "model/model.h"
#include "weights/manifest_cache.h"
#include "weights/manifest_layers.h"
#include "weights_world.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static struct gguf_file *open_golden(const char *name)
{
    char path[PATH_MAX];
    struct gguf_file *file;
    assert_int_equal(gguf_file_open(weights_golden(name, path), &file, NULL), 0);
    return file;
}

static void wait_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* ---- digests ---- */

static void test_digest_is_sha_256(void **state)
{
    (void)state;
    struct digest digest, again;
    char text[DIGEST_TEXT];
    assert_int_equal(digest_of("abc", 3, &digest, NULL), 0); /* FIPS 180-2, appendix B.1 */
    assert_string_equal(digest_text(&digest, text),
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(digest_parse(text, &again) && digest_equal(&digest, &again));
    text[5] = 'G';
    assert_false(digest_parse(text, &again) || digest_parse("ba78", &again));
}

/* ---- making ---- */

static void test_every_part_has_the_hash_of_its_bytes(void **state)
{
    (void)state;
    struct gguf_file *file = open_golden("gpt-oss");
    struct manifest manifest, four;
    struct error err;
    assert_int_equal(manifest_make(file, NULL, &manifest, &err), 0);
    assert_int_equal(manifest.n_parts, gguf_file_tensor_count(file) + 1);
    for (uint32_t i = 0; i < manifest.n_parts; i++) {
        const struct manifest_part *part = &manifest.parts[i];
        struct digest digest;
        digest_of(gguf_file_bytes(file) + part->offset, part->size, &digest, NULL);
        assert_true(digest_equal(&digest, &part->digest));
    }
    assert_int_equal(manifest_agrees(&manifest, file, NULL), 0);
    struct digest one_id, four_id;
    assert_int_equal(manifest_make(file, &(struct manifest_options){.n_threads = 4}, &four, &err),
                     0);
    manifest_identity(&manifest, &one_id, NULL);
    manifest_identity(&four, &four_id, NULL);
    assert_true(digest_equal(&one_id, &four_id));
    manifest_deinit(&four);
    four.parts = NULL;
    struct gguf_file *other = open_golden("qwen3");
    assert_int_equal(manifest_agrees(&manifest, other, &err), ERROR_INVALID);
    manifest_deinit(&manifest);
    gguf_file_close(other);
    gguf_file_close(file);
}

struct seen {
    uint32_t n_calls;
    uint64_t done, total;
    bool go_on;
};

static bool look(void *arg, uint64_t done, uint64_t total)
{
    struct seen *seen = arg;
    assert_true(done <= total && done >= seen->done);
    seen->n_calls++;
    seen->done = done;
    seen->total = total;
    return seen->go_on;
}

static void test_progress_ends_at_the_total_and_can_cancel(void **state)
{
    (void)state;
    struct gguf_file *file = open_golden("llama");
    struct manifest manifest;
    struct error err = {0};
    struct seen seen = {.go_on = true};
    struct manifest_options options = {.n_threads = 2, .progress = look, .arg = &seen};
    assert_int_equal(manifest_make(file, &options, &manifest, &err), 0);
    assert_true(seen.n_calls >= 1);
    assert_int_equal(seen.done, seen.total);
    manifest_deinit(&manifest);
    gguf_file_close(file);

    char folder[PATH_MAX], path[PATH_MAX + 16];
    weights_folder_make(folder); /* a file that takes long: its tensor is a hole of 16 GiB, which is
                                    not even mapped in */
    snprintf(path, sizeof path, "%s/long", folder);
    FILE *out = fopen(path, "wb");
    struct buffer header = {0};
    buffer_append(&header, "GGUF", 4);
    bytes_put(&header, 3, 4); /* version */
    bytes_put(&header, 1, 8); /* tensors */
    bytes_put(&header, 0, 8); /* keys */
    bytes_put(&header, 1, 8);
    buffer_append(&header, "t", 1);
    bytes_put(&header, 1, 4);                 /* dimensions */
    bytes_put(&header, UINT64_C(1) << 32, 8); /* elements */
    bytes_put(&header, 0, 4);                 /* F32 */
    bytes_put(&header, 0, 8);                 /* offset */
    fwrite(header.data, 1, header.size, out);
    buffer_deinit(&header);
    assert_int_equal(fflush(out) || ftruncate(fileno(out), 64 + (INT64_C(4) << 32)), 0);
    fclose(out);
    struct seen stop = {0};
    options.arg = &stop;
    if (gguf_file_open(path, &file, &err))
        fail_msg("%s", err.text);
    assert_int_equal(manifest_make(file, &options, &manifest, &err), ERROR_CANCELLED);
    assert_true(stop.done < stop.total && !manifest.parts);
    gguf_file_close(file);
    weights_folder_remove(folder);
}

static void test_running_out_of_memory_leaves_nothing(void **state)
{
    (void)state;
    struct gguf_file *file = open_golden("qwen3");
    struct manifest manifest;
    enum error_code code = ERROR_NO_MEMORY;
    for (unsigned nth = 1; code; nth++) {
        struct error err = {0};
        mem_fail_nth(nth);
        code = manifest_make(file, NULL, &manifest, &err);
        mem_fail_nth(0);
        assert_true(!code || (code == ERROR_NO_MEMORY && err.text[0] && !manifest.parts));
        assert_true(nth < 100);
    }
    manifest_deinit(&manifest);
    gguf_file_close(file);
}

/* ---- as bytes ---- */

static void expect_unreadable(const struct buffer *bytes, enum error_code want, const char *words)
{
    struct manifest manifest;
    struct error err = {0};
    assert_int_equal(manifest_read(bytes->data, bytes->size, &manifest, &err), want);
    assert_null(manifest.parts);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

static void test_written_and_read_is_the_same(void **state)
{
    (void)state;
    struct manifest made = weights_manifest((uint64_t[]){100, 5000, 1, 70000}, 4), read;
    struct buffer bytes = {0}, again = {0};
    manifest_write(&made, &bytes);
    assert_int_equal(manifest_read(bytes.data, bytes.size, &read, NULL), 0);
    assert_string_equal(read.name, "made up");
    assert_memory_equal(read.parts, made.parts, 4 * sizeof *read.parts);
    manifest_write(&read, &again);
    assert_int_equal(again.size, bytes.size);
    assert_memory_equal(again.data, bytes.data, bytes.size);
    for (size_t size = 0; size < bytes.size; size++) {
        struct manifest cut;
        assert_int_equal(manifest_read(bytes.data, size, &cut, NULL), ERROR_INVALID);
    }
    manifest_deinit(&made);
    manifest_deinit(&read);
    buffer_deinit(&bytes);
    buffer_deinit(&again);
}

static void test_malformed_bytes_are_refused(void **state)
{
    (void)state;
    struct manifest made = weights_manifest((uint64_t[]){100, 5000, 10}, 3);
    struct buffer bytes = {0};
    manifest_write(&made, &bytes);
    bytes.data[4] = 2;
    expect_unreadable(&bytes, ERROR_UNSUPPORTED, "format 2");
    bytes.data[4] = 1;
    buffer_append(&bytes, "x", 1);
    expect_unreadable(&bytes, ERROR_INVALID, "after its end");
    bytes.size--;
    size_t count = 16 + 1 + strlen("made up");
    bytes.data[count + 3] = 0x7f; /* two thousand million parts: no memory is taken for them */
    expect_unreadable(&bytes, ERROR_INVALID, "ends early");
    bytes.data[count + 3] = 0;
    bytes.data[0] = 'X';
    expect_unreadable(&bytes, ERROR_INVALID, "not a manifest");

    struct error err;
    made.parts[2].offset--;
    assert_int_equal(manifest_check(&made, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "overlaps"));
    made.parts[2].offset += 2;
    assert_int_equal(manifest_check(&made, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "inside the file"));
    made.parts[2].offset--;
    made.parts[1].name[0] = '\x1b';
    assert_int_equal(manifest_check(&made, &err), ERROR_INVALID);
    manifest_deinit(&made);
    buffer_deinit(&bytes);
}

static void test_the_largest_manifest_can_be_read(void **state)
{
    (void)state;
    uint32_t n = LIMIT_MODEL_TENSORS + 1;
    struct manifest made = {.n_parts = n, .parts = mem_new_array(n, sizeof *made.parts), .size = n},
                    read;
    memset(made.name, 'n', MANIFEST_NAME - 1);
    for (uint32_t i = 0; i < n; i++) {
        made.parts[i].offset = i;
        made.parts[i].size = 1;
        memset(made.parts[i].name, i ? 'a' : 0, MANIFEST_PART_NAME - 1);
    }
    struct buffer bytes = {0};
    manifest_write(&made, &bytes);
    assert_true(!bytes.failed && bytes.size <= LIMIT_MANIFEST_BYTES);
    assert_int_equal(manifest_read(bytes.data, bytes.size, &read, NULL), 0);
    made.n_parts = n + 1;
    assert_int_equal(manifest_check(&made, NULL), ERROR_INVALID);
    manifest_deinit(&read);
    manifest_deinit(&made);
    buffer_deinit(&bytes);
}

/* ---- kept ---- */

static bool is_cached(const char *folder, const char *path)
{
    struct gguf_file *file;
    struct manifest manifest;
    struct error err = {0};
    bool was_cached;
    if (gguf_file_open(path, &file, &err) ||
        manifest_of_file(folder, file, NULL, &manifest, &was_cached, &err))
        fail_msg("%s", err.text);
    struct digest digest;
    const struct manifest_part *last = &manifest.parts[manifest.n_parts - 1];
    digest_of(gguf_file_bytes(file) + last->offset, last->size, &digest, NULL);
    assert_true(digest_equal(&digest, &last->digest)); /* whatever is kept: the answer is true */
    manifest_deinit(&manifest);
    gguf_file_close(file);
    return was_cached;
}

static void set_modified(const char *path, time_t modified)
{
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = modified}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_either_time_makes_a_file_recent(void **state)
{
    (void)state;
    const int64_t second = 1000000000, now_ns = time(NULL) * second;
    const int64_t before = now_ns - 2 * second, after = now_ns + 60 * second;
    assert_false(
        file_identity_is_recent(&(struct file_identity){.mtime_ns = before, .ctime_ns = before}));
    assert_true(
        file_identity_is_recent(&(struct file_identity){.mtime_ns = before, .ctime_ns = after}));
    assert_true(
        file_identity_is_recent(&(struct file_identity){.mtime_ns = after, .ctime_ns = before}));
}

static void test_kept_until_the_file_changes(void **state)
{
    (void)state;
    char folder[PATH_MAX], path[PATH_MAX + 16], kept[PATH_MAX + 16], golden[PATH_MAX];
    weights_folder_make(folder);
    snprintf(path, sizeof path, "%s/m.gguf", folder);
    snprintf(kept, sizeof kept, "%s/state/manifests", folder);
    weights_copy_file(weights_golden("qwen3", golden), path);
    set_modified(path, time(NULL) + 3600); /* fresh, however slowly this runs */
    assert_false(is_cached(kept, path));
    assert_false(is_cached(kept, path)); /* the file was too fresh to be sure of */
    set_modified(path, time(NULL));
    wait_ms(LIMIT_MANIFEST_RECENT_MS + 50);
    assert_false(is_cached(kept, path));
    assert_true(is_cached(kept, path));

    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    weights_flip_byte(path, (uint64_t)info.st_size - 1);
    struct timespec times[2] = {info.st_atim, info.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0),
                     0); /* the same size, inode and modification time */
    wait_ms(LIMIT_MANIFEST_RECENT_MS + 50);
    assert_false(is_cached(kept, path));
    assert_true(is_cached(kept, path));
    weights_folder_remove(folder);
}

static void test_damaged_entries_are_made_again(void **state)
{
    (void)state;
    struct manifest made = weights_manifest((uint64_t[]){100, 5000}, 2), read;
    struct file_identity identity = {.size = 5100, .inode = 7, .mtime_ns = 5, .ctime_ns = 6};
    struct buffer bytes = {0};
    manifest_entry_write(&identity, &made, &bytes);
    assert_int_equal(manifest_entry_read(bytes.data, bytes.size, &identity, &read, NULL), 0);
    manifest_deinit(&read);
    for (size_t i = 0; i < bytes.size; i++) {
        bytes.data[i] ^= 0x10;
        assert_int_equal(manifest_entry_read(bytes.data, bytes.size, &identity, &read, NULL),
                         ERROR_INVALID);
        bytes.data[i] ^= 0x10;
        assert_int_equal(manifest_entry_read(bytes.data, i, &identity, &read, NULL), ERROR_INVALID);
    }
    identity.ctime_ns++;
    assert_int_equal(manifest_entry_read(bytes.data, bytes.size, &identity, &read, NULL),
                     ERROR_INVALID);
    manifest_deinit(&made);
    buffer_deinit(&bytes);
}

/* ---- layers ---- */

static bool wants(const struct manifest *manifest, const struct part_set *set, const char *name)
{
    uint32_t part = 0;
    while (part < manifest->n_parts && strcmp(manifest->parts[part].name, name) != 0)
        part++;
    assert_true(part < manifest->n_parts);
    return part_set_has(set, part);
}

static void check_layers(const char *name, bool tied)
{
    struct model *model;
    struct manifest manifest;
    struct part_set first, last, all;
    struct error err;
    char path[PATH_MAX];
    assert_int_equal(model_open(weights_golden(name, path), &model, &err), 0);
    assert_int_equal(manifest_make(model_file(model), NULL, &manifest, &err), 0);
    uint32_t n = model_hyperparameters(model)->n_layers;
    assert_int_equal(part_set_init(&first, manifest.n_parts, NULL) ||
                         part_set_init(&last, manifest.n_parts, NULL) ||
                         part_set_init(&all, manifest.n_parts, NULL),
                     0);
    assert_int_equal(manifest_add_layers(&manifest, model, 0, 1, &first, &err), 0);
    assert_int_equal(manifest_add_layers(&manifest, model, n - 1, 1, &last, &err), 0);
    assert_int_equal(manifest_add_layers(&manifest, model, 0, n, &all, &err), 0);
    assert_int_equal(part_set_count(&all), manifest.n_parts);
    assert_true(part_set_has(&first, MANIFEST_HEADER) && part_set_has(&last, MANIFEST_HEADER));
    assert_true(wants(&manifest, &first, "token_embd.weight") &&
                wants(&manifest, &first, "blk.0.attn_q.weight"));
    assert_true(!wants(&manifest, &first, "output_norm.weight") &&
                wants(&manifest, &last, "output_norm.weight"));
    assert_true(!wants(&manifest, &first, "blk.1.attn_q.weight") &&
                !wants(&manifest, &last, "blk.0.attn_q.weight"));
    assert_int_equal(wants(&manifest, &last, "token_embd.weight"), tied);
    if (!tied)
        assert_true(wants(&manifest, &last, "output.weight") &&
                    !wants(&manifest, &first, "output.weight"));
    assert_int_equal(manifest_add_layers(&manifest, model, n, 1, &all, &err), ERROR_INVALID);
    assert_int_equal(manifest_add_layers(&manifest, model, 1, UINT32_MAX, &all, &err),
                     ERROR_INVALID);
    manifest.parts[1].name[0] ^= 1;
    assert_int_equal(manifest_add_layers(&manifest, model, 0, n, &all, &err), ERROR_INVALID);
    part_set_deinit(&first);
    part_set_deinit(&last);
    part_set_deinit(&all);
    manifest_deinit(&manifest);
    model_close(model);
}

static void test_layers_are_the_parts_that_stages_need(void **state)
{
    (void)state;
    check_layers("qwen2-tied", true);
    check_layers("qwen3", false);
    check_layers("llama", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest_is_sha_256),
        cmocka_unit_test(test_every_part_has_the_hash_of_its_bytes),
        cmocka_unit_test(test_progress_ends_at_the_total_and_can_cancel),
        cmocka_unit_test(test_running_out_of_memory_leaves_nothing),
        cmocka_unit_test(test_written_and_read_is_the_same),
        cmocka_unit_test(test_malformed_bytes_are_refused),
        cmocka_unit_test(test_the_largest_manifest_can_be_read),
        cmocka_unit_test(test_either_time_makes_a_file_recent),
        cmocka_unit_test(test_kept_until_the_file_changes),
        cmocka_unit_test(test_damaged_entries_are_made_again),
        cmocka_unit_test(test_layers_are_the_parts_that_stages_need),
    };
    return cmocka_run_group_tests_name("manifest", tests, NULL, NULL);
}
