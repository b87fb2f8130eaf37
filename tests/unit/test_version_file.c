/* weights/version_file.h: a model in a smaller type in this machine's store, for one process. */
#include "model/gguf_file.h"
#include "model/model.h"
#include "model/weight_type.h"
#include "precision/convert.h"
#include "weights/version_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/medley-version-XXXXXX";
static struct model *demo;
static int q4_k;

static int set_up(void **state)
{
    char path[PATH_MAX];
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("MEDLEY_STATE_DIR", folder, 1);
    snprintf(path, sizeof path, "%s/models/demo.gguf", getenv("MEDLEY_ROOT"));
    assert_int_equal(weight_type_find("q4_k", &q4_k, NULL), ERROR_NONE);
    return (int)model_open(path, &demo, NULL);
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    model_close(demo);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static void open_version(struct version_file *file)
{
    struct error err;
    if (version_file_open(demo, q4_k, file, &err))
        fail_msg("%s", err.text);
}

/* Each tensor is what `medley convert` makes of it. */
static void expect_converted(const struct version_file *made)
{
    const struct model *smaller = made->model;
    const int fd = shelf_model_descriptor(made->kept);
    const struct gguf_file *file = model_file(smaller), *original = model_file(demo);
    uint64_t n_converted = 0;
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_file_tensor(file, i);
        const struct gguf_tensor *stored = gguf_file_tensor(original, i);
        FILE *alone = tmpfile();
        uint8_t *bytes = malloc(2 * tensor->size);
        assert_true(alone && bytes);
        assert_int_equal(convert_tensor(original, i, tensor->type, fileno(alone), 0, NULL),
                         ERROR_NONE);
        assert_int_equal(pread(fileno(alone), bytes, tensor->size, 0), (ssize_t)tensor->size);
        assert_int_equal(pread(fd, bytes + tensor->size, tensor->size, (off_t)tensor->offset),
                         (ssize_t)tensor->size);
        assert_memory_equal(bytes, bytes + tensor->size, tensor->size);
        n_converted += tensor->type != stored->type;
        free(bytes);
        fclose(alone);
    }
    assert_true(n_converted > 30);
}

static void test_it_is_converted_once(void **state)
{
    (void)state;
    struct version_file file;
    char path[PATH_MAX];
    open_version(&file);
    assert_true(file.bytes > 1000000);
    expect_converted(&file);
    snprintf(path, sizeof path, "%s", shelf_model_path(file.kept));
    assert_int_equal(strncmp(path, folder, strlen(folder)), 0);
    version_file_close(&file);
    open_version(&file);
    assert_int_equal(file.bytes, 0);
    assert_string_equal(shelf_model_path(file.kept), path);
    expect_converted(&file);
    version_file_close(&file);
}

static void test_the_nodes_limit_holds(void **state)
{
    (void)state;
    struct version_file file;
    struct error err;
    int type;
    assert_int_equal(weight_type_find("q5_k", &type, NULL), ERROR_NONE);
    version_limit_tell(folder, 1000000);
    assert_int_equal(version_file_open(demo, type, &file, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "limit"));
    version_limit_tell(folder, 0);
    assert_int_equal(version_file_open(demo, type, &file, &err), ERROR_NONE);
    version_file_close(&file);
}

static void test_without_a_folder_it_says_so(void **state)
{
    (void)state;
    struct version_file file;
    struct error err;
    setenv("MEDLEY_STATE_DIR", "", 1);
    assert_int_equal(version_file_open(demo, q4_k, &file, &err), ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "MEDLEY_STATE_DIR"));
    assert_null(file.model);
    setenv("MEDLEY_STATE_DIR", folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_converted_once),
        cmocka_unit_test(test_the_nodes_limit_holds),
        cmocka_unit_test(test_without_a_folder_it_says_so),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
