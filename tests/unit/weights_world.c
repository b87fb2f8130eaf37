#include "weights_world.h"

#include "base/random.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

void weights_folder_make(char out[PATH_MAX])
{
    const char *top = getenv("TMPDIR");
    snprintf(out, PATH_MAX, "%s/medley-weights-XXXXXX", top ? top : "/tmp");
    assert_non_null(mkdtemp(out));
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

void weights_folder_remove(const char *folder)
{
    assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *weights_golden(const char *name, char out[PATH_MAX])
{
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(out, PATH_MAX, "%s/models/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    return out;
}

void weights_copy_file(const char *from, const char *to)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    char bytes[65536];
    assert_true(in && out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

void weights_flip_byte(const char *path, uint64_t offset)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, (long)offset, SEEK_SET);
    int byte = fgetc(file);
    fseek(file, (long)offset, SEEK_SET);
    fputc(byte ^ 1, file);
    assert_int_equal(fclose(file), 0);
}

void *weights_read(const char *path, uint64_t offset, uint64_t size)
{
    FILE *file = fopen(path, "rb");
    char *bytes = malloc(size);
    assert_true(file && bytes);
    fseek(file, (long)offset, SEEK_SET);
    assert_int_equal(fread(bytes, 1, size, file), size);
    fclose(file);
    return bytes;
}

uint8_t weights_byte(uint32_t part, uint64_t place)
{
    return (uint8_t)random_at(part + 1, place);
}

void weights_fill(uint32_t part, uint64_t offset, uint8_t *out, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        out[i] = weights_byte(part, offset + i);
}

struct manifest weights_manifest(const uint64_t *sizes, uint32_t n)
{
    struct manifest manifest = {
        .name = "made up", .n_parts = n, .parts = mem_new_array(n, sizeof *manifest.parts)};
    assert_non_null(manifest.parts);
    for (uint32_t i = 0; i < n; i++) {
        struct manifest_part *part = &manifest.parts[i];
        uint8_t *bytes = malloc(sizes[i]);
        weights_fill(i, 0, bytes, sizes[i]);
        assert_int_equal(digest_of(bytes, sizes[i], &part->digest, NULL), 0);
        free(bytes);
        part->offset = manifest.size;
        part->size = sizes[i];
        if (i)
            snprintf(part->name, sizeof part->name, "tensor.%u", i);
        manifest.size += sizes[i];
    }
    assert_int_equal(manifest_check(&manifest, NULL), 0);
    return manifest;
}
