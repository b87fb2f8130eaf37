/* The models on this machine: each place, what is broken or incomplete, names, the cache. */
#include "base/durable_file.h"
#include "library/keep.h"
#include "library/library.h"
#include "library/resolve.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static char root[] = "/tmp/medley-library-XXXXXX";
static char buffer[4 << 20];
static size_t n_bytes; /* of the golden model in it */

/* ---- a machine with every kind of place ------------------------------------------------------ */

static const char *path_of(const char *relative)
{
    static char path[4][PATH_MAX];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], PATH_MAX, "%s/%s", root, relative);
    return path[next];
}

static void put(const char *relative, const void *bytes, size_t size)
{
    struct error err;
    const char *path = path_of(relative);
    if (durable_make_folder_of(path, &err))
        fail_msg("%s", err.text);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static void put_text(const char *relative, const char *text)
{
    put(relative, text, strlen(text));
}

static void put_model(const char *relative)
{
    put(relative, buffer, n_bytes);
}

static void set_folder(const char *variable, const char *relative)
{
    setenv(variable, path_of(relative), 1);
}

static int library_begin(void **state)
{
    char path[PATH_MAX];
    (void)state;
    assert_non_null(mkdtemp(root));
    snprintf(path, sizeof path, "%s/models/qwen3-q4k.gguf", getenv("MEDLEY_GOLDEN"));
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    n_bytes = fread(buffer, 1, sizeof buffer, file);
    assert_true(n_bytes > 1000 && n_bytes < sizeof buffer);
    fclose(file);
    set_folder("HOME", "home");
    set_folder("MEDLEY_STATE_DIR", "state");
    static const char *const others[] = {
        "XDG_CACHE_HOME", "OLLAMA_MODELS", "LLAMA_CACHE",          "HF_HOME",
        "HF_HUB_CACHE",   "MEDLEY_MODELS", "HUGGINGFACE_HUB_CACHE"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        unsetenv(others[i]);
    return 0;
}

static void library_empty(void)
{
    char command[PATH_MAX + 32];
    snprintf(command, sizeof command, "rm -rf %s/*", root);
    assert_int_equal(system(command), 0);
}

static int library_end(void **state)
{
    (void)state;
    library_empty();
    return rmdir(root);
}

static int library_each(void **state)
{
    (void)state;
    library_empty();
    unsetenv("MEDLEY_MODELS");
    unsetenv("OLLAMA_MODELS");
    unsetenv("LLAMA_CACHE");
    unsetenv("HF_HOME");
    unsetenv("HF_HUB_CACHE");
    return 0;
}

/* ---- looking --------------------------------------------------------------------------------- */

static struct library found;

static void look(void)
{
    const struct library_options options = {0};
    struct error err;
    library_deinit(&found);
    if (library_find(&options, &found, &err))
        fail_msg("%s", err.text);
    library_read_headers(&found);
}

static const struct library_model *model_called(const char *name)
{
    for (uint32_t i = 0; i < found.n; i++) {
        if (strcmp(found.models[i].name, name) == 0)
            return &found.models[i];
    }
    for (uint32_t i = 0; i < found.n; i++)
        print_message("there is %s (%s)\n", found.models[i].name,
                      library_place_name(found.models[i].place));
    fail_msg("there is no model '%s'", name);
    return NULL;
}

static void expect(const char *name, enum library_place place, enum library_state state)
{
    const struct library_model *model = model_called(name);
    assert_int_equal(model->place, place);
    if (model->state != state)
        fail_msg("%s is %s: %s", name, library_state_name(model->state), model->problem);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_each_place_in_its_own_layout(void **state)
{
    (void)state;
    put_model("state/pulled/hf/org/repo/a-Q4_K_M.gguf");
    put_model("state/pulled/ollama/tiny/1b.gguf");
    put_model("state/pulled/ollama/user/small/2b.gguf");
    put_model("state/pulled/url/example.test/" HASH "/b.gguf");
    put_model("mine/deep/er/c.gguf");
    put_model("given/d.gguf");
    put_text("state/files", path_of("given/d.gguf"));
    put_model("home/.lmstudio/models/maker/repo/e.gguf");
    put_model("home/.cache/llama.cpp/f.gguf");
    put_model("home/.cache/huggingface/hub/models--org--other/snapshots/abc123/g.gguf");
    put_model("home/.ollama/models/blobs/sha256-" HASH);
    put_text("home/.ollama/models/manifests/registry.test/library/llama/latest",
             "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.license\"},"
             "{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:" HASH
             "\",\"size\":1000}]}");
    set_folder("MEDLEY_MODELS", "mine");
    look();
    assert_int_equal(found.n, 10);
    expect("user/small:2b", LIBRARY_PULLED, LIBRARY_WHOLE);
    expect("org/repo/a-Q4_K_M", LIBRARY_PULLED, LIBRARY_WHOLE);
    expect("tiny:1b", LIBRARY_PULLED, LIBRARY_WHOLE);
    expect("example.test/b", LIBRARY_PULLED, LIBRARY_WHOLE);
    expect("deep/er/c", LIBRARY_FOLDER, LIBRARY_WHOLE);
    expect("d", LIBRARY_FILES, LIBRARY_WHOLE);
    expect("maker/repo/e", LIBRARY_LM_STUDIO, LIBRARY_WHOLE);
    expect("f", LIBRARY_LLAMA_CPP, LIBRARY_WHOLE);
    expect("org/other/g", LIBRARY_HUB, LIBRARY_WHOLE);
    expect("llama:latest", LIBRARY_OLLAMA, LIBRARY_WHOLE);
}

static void test_the_environment_of_the_others_is_respected(void **state)
{
    (void)state;
    put_model("home/.cache/llama.cpp/usual.gguf");
    put_model("home/.cache/huggingface/hub/models--o--r/snapshots/1/usual.gguf");
    put_model("elsewhere/llama/f.gguf");
    put_model("elsewhere/hf/hub/models--o--r/snapshots/1/g.gguf");
    put_model("elsewhere/cache/models--o--r/snapshots/1/h.gguf");
    put_model("elsewhere/lms/models/m/r/e.gguf");
    put_text("home/.lmstudio-home-pointer", path_of("elsewhere/lms"));
    set_folder("LLAMA_CACHE", "elsewhere/llama");
    set_folder("HF_HOME", "elsewhere/hf");
    look();
    assert_int_equal(found.n, 3);
    expect("f", LIBRARY_LLAMA_CPP, LIBRARY_WHOLE);
    expect("o/r/g", LIBRARY_HUB, LIBRARY_WHOLE);
    expect("m/r/e", LIBRARY_LM_STUDIO, LIBRARY_WHOLE);
    set_folder("HF_HUB_CACHE", "elsewhere/cache");
    look();
    expect("o/r/h", LIBRARY_HUB, LIBRARY_WHOLE);
    assert_int_equal(found.n, 3);
}

static void test_headers_say_what_a_model_is(void **state)
{
    (void)state;
    put_model("state/pulled/hf/o/r/a.gguf");
    look();
    const struct library_model *model = model_called("o/r/a");
    assert_string_equal(model->facts.family, "qwen3");
    assert_string_equal(model->facts.type, "Q4_K_M"); /* as general.file_type says */
    assert_true(model->facts.supported && model->facts.parameters > 100000);
    assert_int_equal(model->bytes, n_bytes);
    assert_float_equal(library_share(model), 1, 0);
}

static void test_what_is_wrong_is_said(void **state)
{
    (void)state;
    put("state/pulled/hf/o/r/cut.gguf", buffer, n_bytes / 2);
    put_text("state/pulled/hf/o/r/text.gguf", "this is no model");
    put_text("state/pulled/hf/o/r/half.gguf.part", "12345678");
    put_text("state/pulled/hf/o/r/half.gguf.pull",
             "{\"size\":1000,\"done\":[[0,100],[500,650],[900,2000],[7,3]]}");
    put_text("state/pulled/hf/o/r/lost.gguf.part", "12345678");
    put_text("state/files", path_of("given/gone.gguf"));
    put_text("home/.cache/llama.cpp/way.gguf.downloadInProgress", "1234");
    put_text("home/.ollama/models/manifests/r/library/odd/1", "{\"layers\":7}");
    put_text("home/.ollama/models/manifests/r/library/none/1",
             "{\"layers\":[{\"mediaType\":\"x.image.model\",\"digest\":\"sha256:" HASH
             "\",\"size\":1000}]}");
    put_text("home/.ollama/models/manifests/r/library/two/1",
             "{\"layers\":[{\"mediaType\":\"x.image.model\",\"digest\":\"sha256:" HASH
             "\",\"size\":1000},{\"mediaType\":\"x.image.model\",\"digest\":\"sha256:" HASH
             "\",\"size\":1000}]}");
    put_text("home/.ollama/models/manifests/r/library/tuned/1",
             "{\"layers\":[{\"mediaType\":\"x.image.adapter\"},"
             "{\"mediaType\":\"x.image.model\",\"digest\":\"sha256:" HASH "\",\"size\":1000}]}");
    look();
    expect("two:1", LIBRARY_OLLAMA, LIBRARY_BROKEN);
    assert_non_null(strstr(model_called("two:1")->problem, "several layers"));
    expect("tuned:1", LIBRARY_OLLAMA, LIBRARY_BROKEN);
    assert_non_null(strstr(model_called("tuned:1")->problem, "adapter"));
    expect("o/r/cut", LIBRARY_PULLED, LIBRARY_BROKEN);
    assert_non_null(strstr(model_called("o/r/cut")->problem, "truncated"));
    expect("o/r/text", LIBRARY_PULLED, LIBRARY_BROKEN);
    expect("o/r/half", LIBRARY_PULLED, LIBRARY_INCOMPLETE);
    assert_float_equal(library_share(model_called("o/r/half")), 0.25, 1e-9);
    expect("o/r/lost", LIBRARY_PULLED, LIBRARY_INCOMPLETE);
    assert_true(library_share(model_called("o/r/lost")) < 0);
    expect("gone", LIBRARY_FILES, LIBRARY_BROKEN);
    assert_non_null(strstr(model_called("gone")->problem, "No such file"));
    expect("way", LIBRARY_LLAMA_CPP, LIBRARY_INCOMPLETE);
    expect("odd:1", LIBRARY_OLLAMA, LIBRARY_BROKEN);
    expect("none:1", LIBRARY_OLLAMA, LIBRARY_INCOMPLETE);
    assert_int_equal(found.n, 10);
}

static void test_parts_are_one_model(void **state)
{
    (void)state;
    put_model("mine/m-00001-of-00003.gguf");
    put_model("mine/m-00003-of-00003.gguf");
    put_model("mine/m-00004-of-00003.gguf"); /* no part: a name as any other */
    set_folder("MEDLEY_MODELS", "mine");
    look();
    expect("m", LIBRARY_FOLDER, LIBRARY_INCOMPLETE);
    assert_string_equal(model_called("m")->problem, "2 of its 3 parts are here");
    assert_int_equal(found.n, 2);
}

static void test_a_file_is_listed_once(void **state)
{
    (void)state;
    put_model("state/pulled/hf/o/r/a.gguf");
    put_model("home/.cache/huggingface/hub/models--o--r/blobs/" HASH);
    put_text("home/.cache/huggingface/hub/models--o--r/refs/main", "bbb");
    put("home/.cache/huggingface/hub/models--o--r/snapshots/aaa/x", "", 0);
    put("home/.cache/huggingface/hub/models--o--r/snapshots/bbb/x", "", 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            symlink("../../blobs/" HASH,
                    path_of(i ? "home/.cache/huggingface/hub/models--o--r/snapshots/bbb/m.gguf"
                              : "home/.cache/huggingface/hub/models--o--r/snapshots/aaa/m.gguf")),
            0);
    assert_int_equal(symlink(path_of("state/pulled"), path_of("mine")), 0);
    assert_int_equal(symlink(path_of("state"), path_of("state/pulled/loop")), 0);
    set_folder("MEDLEY_MODELS", "mine");
    look();
    assert_int_equal(found.n, 2);
    expect("o/r/a", LIBRARY_PULLED, LIBRARY_WHOLE);
    expect("o/r/m", LIBRARY_HUB, LIBRARY_WHOLE);
}

static void expect_resolved(const char *word, const char *relative)
{
    char path[PATH_MAX];
    struct error err;
    if (library_resolve(word, path, &err))
        fail_msg("%s: %s", word, err.text);
    assert_string_equal(path, path_of(relative));
}

static void expect_refused(const char *word, enum error_code code, const char *text)
{
    char path[PATH_MAX];
    struct error err = {0};
    assert_int_equal(library_resolve(word, path, &err), code);
    if (!strstr(err.text, text))
        fail_msg("%s: '%s' does not say '%s'", word, err.text, text);
}

static void test_names_become_files(void **state)
{
    (void)state;
    put_model("state/pulled/hf/o/r/a.gguf");
    put_model("state/pulled/ollama/tiny/latest.gguf");
    put_model("state/pulled/hf/o/q/same.gguf");
    put_model("home/.cache/llama.cpp/same.gguf");
    put_model("home/.lmstudio/models/m/n/same.gguf");
    put("state/pulled/hf/o/r/cut.gguf.part", buffer, 100);
    expect_resolved("o/r/a", "state/pulled/hf/o/r/a.gguf");
    expect_resolved("r/a", "state/pulled/hf/o/r/a.gguf");
    expect_resolved("a", "state/pulled/hf/o/r/a.gguf");
    expect_resolved("a.gguf", "state/pulled/hf/o/r/a.gguf");
    expect_resolved("tiny", "state/pulled/ollama/tiny/latest.gguf");
    expect_resolved("tiny:latest", "state/pulled/ollama/tiny/latest.gguf");
    expect_resolved("same", "home/.cache/llama.cpp/same.gguf"); /* the whole name of one */
    expect_resolved("q/same", "state/pulled/hf/o/q/same.gguf");
    expect_resolved(path_of("state/pulled/hf/o/r/a.gguf"), "state/pulled/hf/o/r/a.gguf");
    assert_int_equal(unlink(path_of("home/.cache/llama.cpp/same.gguf")), 0);
    expect_refused("same", ERROR_INVALID, "m/n/same (lm-studio), o/q/same (pulled)");
    expect_refused("/no/such.gguf", ERROR_NOT_FOUND, "No such file");
    expect_refused("ame", ERROR_NOT_FOUND, "`medley models`");
    expect_refused("cut", ERROR_INVALID, "incomplete");
    expect_refused("", ERROR_NOT_FOUND, "");
}

static time_t time_of_read(const char *relative)
{
    struct stat info;
    assert_int_equal(stat(path_of(relative), &info), 0);
    return info.st_mtim.tv_sec * 1000000 + info.st_mtim.tv_nsec / 1000;
}

static void test_the_cache_is_believed_while_the_file_stays(void **state)
{
    (void)state;
    put_model("state/pulled/hf/o/r/a.gguf");
    look();
    const time_t written = time_of_read("state/library.json");
    look();
    assert_string_equal(model_called("o/r/a")->facts.family, "qwen3");
    assert_int_equal(time_of_read("state/library.json"), written); /* nothing was read anew */
    buffer[0] ^= 1;
    put_model("state/pulled/hf/o/r/a.gguf");
    buffer[0] ^= 1;
    look();
    expect("o/r/a", LIBRARY_PULLED, LIBRARY_BROKEN);
    put_model("state/pulled/hf/o/r/a.gguf");
    static const char *const nonsense[] = {"",
                                           "[",
                                           "[]",
                                           "{\"format\":1}",
                                           "{\"format\":1,\"files\":[1,{},{\"path\":7}]}",
                                           "{\"format\":1,\"files\":{\"path\":\"\"}}"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        put_text("state/library.json", nonsense[i]);
        look();
        expect("o/r/a", LIBRARY_PULLED, LIBRARY_WHOLE);
        assert_string_equal(model_called("o/r/a")->facts.family, "qwen3");
    }
}

static const struct library_model *again(const char *name)
{
    look();
    return model_called(name);
}

static bool is_there(const char *relative)
{
    return access(path_of(relative), F_OK) == 0;
}

static void set_age(const char *relative, uint64_t now_s, uint64_t days)
{
    const struct timespec then[2] = {{.tv_sec = (time_t)(now_s - days * 86400)},
                                     {.tv_sec = (time_t)(now_s - days * 86400)}};
    assert_int_equal(utimensat(AT_FDCWD, path_of(relative), then, 0), 0);
}

/* The names of what goes, in order, with spaces between. */
static const char *freed_by(uint64_t now_s, uint64_t unused_days, uint64_t space_bytes)
{
    static char names[512];
    bool chosen[16] = {false};
    const struct library_wish wish = {.now_ns = now_s * 1000000000U,
                                      .unused_ns = unused_days * 86400 * 1000000000U,
                                      .space_bytes = space_bytes};
    look();
    assert_true(found.n <= 16);
    names[0] = 0;
    const uint64_t freed = library_choose_to_free(&found, &wish, chosen);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < found.n; i++) {
        if (!chosen[i])
            continue;
        sum += found.models[i].bytes;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s ", found.models[i].name);
    }
    assert_int_equal(sum, freed);
    return names;
}

static void test_gc_frees_what_is_ours_and_unused(void **state)
{
    const uint64_t now_s = (uint64_t)time(NULL);
    struct error err;
    (void)state;
    put_model("state/pulled/hf/o/r/fresh.gguf");
    put_model("state/pulled/hf/o/r/old.gguf");
    put_model("state/pulled/hf/o/r/older.gguf");
    put_model("state/pulled/hf/o/r/pinned.gguf");
    put_model("state/pulled/hf/o/r/given.gguf");
    put_text("state/pulled/hf/o/r/broken.gguf", "no model");
    put_model("home/.cache/llama.cpp/theirs.gguf");
    put_text("state/files", path_of("state/pulled/hf/o/r/given.gguf"));
    assert_int_equal(library_pin(again("o/r/pinned"), true, &err), 0);
    set_age("state/pulled/hf/o/r/old.gguf", now_s, 40);
    set_age("state/pulled/hf/o/r/older.gguf", now_s, 90);
    set_age("state/pulled/hf/o/r/pinned.gguf", now_s, 90);
    set_age("state/pulled/hf/o/r/given.gguf", now_s, 90);
    set_age("home/.cache/llama.cpp/theirs.gguf", now_s, 90);
    assert_string_equal(freed_by(now_s, 30, 0), "o/r/broken o/r/old o/r/older ");
    assert_string_equal(freed_by(now_s, 60, 0), "o/r/broken o/r/older ");
    assert_string_equal(freed_by(now_s, 0, 0), "o/r/broken ");
    assert_string_equal(freed_by(now_s, 0, 4 * n_bytes), "o/r/broken o/r/older ");
    assert_string_equal(freed_by(now_s, 0, 1), "o/r/broken o/r/fresh o/r/old o/r/older ");
    assert_int_equal(library_pin(again("o/r/pinned"), false, &err), 0);
    assert_string_equal(freed_by(now_s, 60, 0), "o/r/broken o/r/older o/r/pinned ");
}

static void expect_kept(const char *name, enum error_code code, const char *text)
{
    struct error err = {0};
    assert_int_equal(library_remove(again(name), &err), code);
    if (!strstr(err.text, text))
        fail_msg("%s: '%s' does not say '%s'", name, err.text, text);
}

static void test_remove_takes_only_what_was_fetched(void **state)
{
    struct error err;
    (void)state;
    put_model("state/pulled/hf/o/r/m-00001-of-00002.gguf");
    put_model("state/pulled/hf/o/r/m-00002-of-00002.gguf");
    put_model("state/pulled/ollama/t/1.gguf");
    put_model("state/pulled/hf/o/s/given.gguf");
    put_text("state/pulled/hf/o/s/half.gguf.part", "x");
    put_text("state/pulled/hf/o/s/half.gguf.pull", "{}");
    put_text("state/pulled/hf/o/s/half.gguf.live", "");
    put_text("state/files", path_of("state/pulled/hf/o/s/given.gguf"));
    put_model("home/.cache/llama.cpp/theirs.gguf");
    expect_kept("theirs", ERROR_INVALID, "was not fetched by Medley");
    expect_kept("o/s/given", ERROR_BUSY, "medley forget");
    assert_int_equal(library_pin(again("t:1"), true, &err), 0);
    assert_true(again("t:1")->is_pinned);
    expect_kept("t:1", ERROR_BUSY, "pinned");
    assert_int_equal(library_pin(again("theirs"), true, &err), ERROR_INVALID);
    assert_int_equal(library_remove(again("o/r/m"), &err), 0);
    assert_false(is_there("state/pulled/hf/o/r")); /* both files, and the folder */
    assert_true(is_there("state/pulled/hf/o/s/given.gguf"));
    assert_int_equal(library_remove(again("o/s/half"), &err), 0);
    assert_false(is_there("state/pulled/hf/o/s/half.gguf.pull"));
    assert_false(is_there("state/pulled/hf/o/s/half.gguf.live"));
    const int fd = open(path_of("state/pulled/ollama/t/1.gguf"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(library_pin(again("t:1"), false, &err), 0);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    expect_kept("t:1", ERROR_BUSY, "in use");
    close(fd);
    assert_int_equal(library_remove(again("t:1"), &err), 0);
    assert_true(is_there("state/pulled") && !is_there("state/pulled/ollama"));
    assert_true(is_there("home/.cache/llama.cpp/theirs.gguf"));
}

static void test_a_folder_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    const char *folder = path_of("nowhere");
    const struct library_options options = {.folders = &folder, .n_folders = 1};
    struct library none;
    struct error err;
    assert_int_equal(library_find(&options, &none, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "nowhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_each_place_in_its_own_layout, library_each),
        cmocka_unit_test_setup(test_the_environment_of_the_others_is_respected, library_each),
        cmocka_unit_test_setup(test_headers_say_what_a_model_is, library_each),
        cmocka_unit_test_setup(test_what_is_wrong_is_said, library_each),
        cmocka_unit_test_setup(test_parts_are_one_model, library_each),
        cmocka_unit_test_setup(test_a_file_is_listed_once, library_each),
        cmocka_unit_test_setup(test_names_become_files, library_each),
        cmocka_unit_test_setup(test_the_cache_is_believed_while_the_file_stays, library_each),
        cmocka_unit_test_setup(test_gc_frees_what_is_ours_and_unused, library_each),
        cmocka_unit_test_setup(test_remove_takes_only_what_was_fetched, library_each),
        cmocka_unit_test_setup(test_a_folder_that_is_not_there_is_an_error, library_each),
    };
    const int failed = cmocka_run_group_tests(tests, library_begin, library_end);
    library_deinit(&found);
    return failed;
}
