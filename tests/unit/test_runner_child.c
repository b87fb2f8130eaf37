/* Stages in devices' processes: the tokens of the reference, whatever happens to the processes.
 * This program is its own child, and, with another first argument, a parent that dies. */
#include "child_world.h"

#include "base/clock.h"
#include "pipeline/children_impl.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

#define PARENT_ARGUMENT "--be-a-parent"

extern char **environ;

enum { LIMIT_MS = 20000, MS = 1000000 };

static struct model *model;
static int32_t expected[64]; /* prompt, then the reference's greedy tokens */
static uint32_t n_prompt, n_greedy;

static uint32_t read_ids(yyjson_val *array, int32_t *out)
{
    size_t i, max;
    yyjson_val *value;
    yyjson_arr_foreach(array, i, max, value) out[i] = (int32_t)yyjson_get_int(value);
    return (uint32_t)max;
}

static const char *golden_path(const char *name, char *path, size_t size)
{
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(path, size, "%s/%s", getenv("MEDLEY_GOLDEN"), name);
    return path;
}

static void open_files(const char *json, const char *gguf)
{
    char path[1024];
    struct error err = {0};
    yyjson_doc *doc = yyjson_read_file(golden_path(json, path, sizeof path), 0, NULL, NULL);
    assert_non_null(doc);
    n_prompt = read_ids(yyjson_obj_get(yyjson_doc_get_root(doc), "prompt"), expected);
    n_greedy = read_ids(yyjson_obj_get(yyjson_doc_get_root(doc), "greedy"), expected + n_prompt);
    yyjson_doc_free(doc);
    if (model_open(golden_path(gguf, path, sizeof path), &model, &err))
        fail_msg("%s", err.text);
}

static int open_golden(void **state)
{
    (void)state;
    open_files("models/llama.json", "models/llama.gguf");
    return 0;
}

static int close_golden(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

/* As the reference was computed. */
static struct child_world world_of(uint32_t n_stages)
{
    struct child_world world = {
        .model = model, .n_stages = n_stages, .devices = {"cpu", "cpu", "cpu", "cpu"}};
    world.options = (struct driver_options){
        .n_slots = 2, .context = 64, .kv_type = KV_F32, .flash = FLASH_OFF, .no_repack = true};
    return world;
}

static struct children *open_children(struct children_options options)
{
    struct children *children = NULL;
    struct error err = {0};
    options.n_cpu_threads = 1;
    if (!options.pause_ms)
        options.pause_ms = 5;
    if (children_open(&options, &children, &err))
        fail_msg("%s", err.text);
    return children;
}

static struct reply reply_of(void)
{
    struct reply reply = {.n_prompt = n_prompt, .n_predict = n_greedy};
    memcpy(reply.tokens, expected, n_prompt * sizeof *expected);
    return reply;
}

static void expect_reply(struct child_world *world, struct reply *reply)
{
    if (!child_world_reply(world, reply, LIMIT_MS))
        fail_msg("no reply: %s", reply->error.text);
    assert_int_equal(reply->n_tokens, n_prompt + n_greedy);
    assert_memory_equal(reply->tokens, expected, reply->n_tokens * sizeof *expected);
}

static char *sim_file(const char *ini, char *path, size_t size)
{
    snprintf(path, size, "/tmp/medley-child-XXXXXX");
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0 && write(descriptor, ini, strlen(ini)) == (ssize_t)strlen(ini));
    close(descriptor);
    return path;
}

/* ---- all is well ------------------------------------------------------------------------- */

static void tokens_are_the_reference(void **state)
{
    (void)state;
    for (uint32_t n_stages = 1; n_stages <= 2; n_stages++) {
        struct child_world world = world_of(n_stages);
        world.children =
            open_children((struct children_options){.spin_ns = n_stages == 1 ? 0 : 50000});
        child_world_open(&world);
        assert_true(lane_stage_bytes(world.lanes[0], 0) > 0);
        for (int again = 0; again < 2; again++) {
            struct reply reply = reply_of();
            expect_reply(&world, &reply);
            assert_int_equal(reply.n_replays, 0);
        }
        child_world_close(&world);
        assert_int_equal(world.n_losses, 0);
        children_close(world.children);
    }
}

#define SIM "memory = 1GiB\ndecode = 100GB/s\nflops = 100TFLOP/s\nlaunch = 0s\ncopy = 1TB/s\n"

#define SLOW_SIM "memory = 1GiB\ndecode = 1MB/s\nflops = 1MFLOP/s\nlaunch = 10s\n"

static void two_devices_are_two_processes(void **state)
{
    (void)state;
    char path[64];
    struct child_world world = world_of(2);
    world.children = open_children((struct children_options){
        .sim_file = sim_file("[a]\n" SIM "[b]\n" SIM, path, sizeof path)});
    world.devices[0] = "sim:a";
    world.devices[1] = "sim:b";
    child_world_open(&world);
    assert_int_not_equal(child_world_pid(&world, 0), child_world_pid(&world, 1));
    struct reply reply = reply_of();
    expect_reply(&world, &reply);
    child_world_close(&world);
    children_close(world.children);
    remove(path);
}

static void wait_for_free(const struct device *device, bool all)
{
    const uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_MS * MS;
    struct device_memory memory = device_memory(device);
    while ((memory.free_bytes == memory.total_bytes) != all && clock_now_ns() < until_ns) {
        nanosleep(&(struct timespec){.tv_nsec = 10 * MS}, NULL);
        memory = device_memory(device);
    }
    assert_int_equal(memory.total_bytes, 1 << 30);
    assert_int_equal(memory.free_bytes == memory.total_bytes, all);
}

static void a_simulated_device_tells_what_its_process_does(void **state)
{
    (void)state;
    char path[64];
    struct gpu *gpu = NULL;
    struct error err = {0};
    struct child_world world = world_of(1);
    sim_file("[a]\n" SIM, path, sizeof path);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .sim_file = path}, &gpu, &err))
        fail_msg("%s", err.text);
    const struct device *device = gpu_find(gpu, "sim:a");
    world.children = open_children((struct children_options){.gpu = gpu, .sim_file = path});
    world.devices[0] = "sim:a";
    wait_for_free(device, true);
    child_world_open(&world);
    wait_for_free(device, false);
    kill(child_world_pid(&world, 0), SIGKILL);
    struct reply reply = reply_of();
    expect_reply(&world, &reply);
    wait_for_free(device, false);
    child_world_close(&world);
    wait_for_free(device, true);
    children_close(world.children);
    gpu_close(gpu);
    remove(path);
}

/* Its device takes 10 s for any batch. It need not come to its end, and its process stays. */
static void a_prompt_that_is_wanted_no_more(void **state)
{
    (void)state;
    char path[64];
    struct error err = {0};
    struct child_world world = world_of(2);
    world.children = open_children((struct children_options){
        .sim_file = sim_file("[a]\n" SIM "[slow]\n" SLOW_SIM, path, sizeof path)});
    world.devices[0] = "sim:a";
    world.devices[1] = "sim:slow";
    child_world_open(&world);
    const pid_t first = child_world_pid(&world, 1);
    struct reply reply = reply_of();
    assert_false(child_world_reply(&world, &reply, 300));
    assert_int_equal(reply.n_tokens, n_prompt);
    const uint64_t begun_ns = clock_now_ns();
    driver_stop(world.driver);
    assert_true(clock_now_ns() - begun_ns < (uint64_t)9000 * MS);
    assert_true(child_world_mind(&world, &err));
    assert_int_equal(child_world_pid(&world, 1), first);
    assert_int_equal(world.n_losses, 0);
    child_world_close(&world);
    children_close(world.children);
    remove(path);
}

/* ---- it dies ----------------------------------------------------------------------------- */

struct killer {
    struct child_world *world;
    uint32_t stage, every;
};

static void kill_now(struct reply *reply)
{
    const struct killer *killer = reply->arg;
    const uint32_t n = reply->n_tokens - n_prompt;
    const pid_t pid = child_world_pid(killer->world, killer->stage);
    if (n % killer->every == 0 && n / killer->every <= 2 && pid)
        kill(pid, SIGKILL);
}

static void killed_in_mid_reply_the_text_goes_on(void **state)
{
    (void)state;
    struct child_world world = world_of(2);
    struct killer killer = {&world, 0, 3};
    world.children = open_children((struct children_options){0});
    child_world_open(&world);
    struct reply reply = reply_of();
    reply.on_token = kill_now;
    reply.arg = &killer;
    expect_reply(&world, &reply);
    assert_in_range(world.n_losses, 1, 2); /* the second may come when all was computed */
    struct reply undisturbed = reply_of();
    expect_reply(&world, &undisturbed);
    child_world_close(&world);
    children_close(world.children);
}

static void one_of_two_devices_dies(void **state)
{
    (void)state;
    char path[64];
    struct child_world world = world_of(2);
    struct killer killer = {&world, 1, 5};
    world.children = open_children((struct children_options){
        .sim_file = sim_file("[a]\n" SIM "[b]\n" SIM, path, sizeof path)});
    world.devices[0] = "sim:a";
    world.devices[1] = "sim:b";
    child_world_open(&world);
    const pid_t first = child_world_pid(&world, 0);
    struct reply reply = reply_of();
    reply.on_token = kill_now;
    reply.arg = &killer;
    expect_reply(&world, &reply);
    assert_int_equal(child_world_pid(&world, 0), first); /* the other one stayed */
    child_world_close(&world);
    children_close(world.children);
    remove(path);
}

static void at_its_start_again_and_again(void **state)
{
    (void)state;
    struct child_world world = world_of(1);
    struct error err = {0};
    world.children =
        open_children((struct children_options){.program = "/bin/false", .pause_ms = 1});
    assert_int_equal(child_world_try(&world, &err), ERROR_DEVICE);
    assert_non_null(strstr(err.text, "ended 5 times within a minute"));
    assert_non_null(strstr(err.text, "status 1"));
    children_close(world.children);
}

static void again_and_again(void **state)
{
    (void)state;
    struct child_world world = world_of(1);
    struct error err = {0};
    const uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_MS * MS;
    world.children = open_children((struct children_options){.pause_ms = 1});
    child_world_open(&world);
    while (child_world_mind(&world, &err) && clock_now_ns() < until_ns) {
        if (child_world_pid(&world, 0))
            kill(child_world_pid(&world, 0), SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    }
    assert_non_null(strstr(err.text, "ended 5 times within a minute"));
    struct error why = {0};
    error_set(&why, ERROR_CANCELLED, "given up");
    driver_lost(world.driver, &why);
    child_world_close(&world);
    children_close(world.children);
}

/* ---- it hangs ---------------------------------------------------------------------------- */

static void a_device_that_hangs(void **state)
{
    (void)state;
    char path[64];
    struct child_world world = world_of(1);
    world.children = open_children((struct children_options){
        .work_ms = 300,
        .row_ms = 1,
        .sim_file = sim_file("[a]\n" SIM "fail = hangs at 1s\n", path, sizeof path)});
    world.devices[0] = "sim:a";
    child_world_open(&world);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100 * MS},
              NULL); /* simulated seconds are real ones */
    struct reply reply = reply_of();
    expect_reply(&world, &reply);
    assert_int_equal(world.n_losses, 1);
    assert_non_null(strstr(reply.error.text, "has made no progress"));
    child_world_close(&world);
    children_close(world.children);
    remove(path);
}

static void a_device_that_hangs_while_loading(void **state)
{
    (void)state;
    char path[64];
    struct error why = {0};
    struct child_world first = world_of(1), second = world_of(1);
    first.children = second.children = open_children((struct children_options){
        .load_ms = 300,
        .sim_file = sim_file("[a]\n" SIM "fail = hangs at 2s\n", path, sizeof path)});
    first.devices[0] = second.devices[0] = "sim:a";
    child_world_open(&first);
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 100 * MS}, NULL);
    child_world_open(&second); /* by the second process */
    assert_true(lane_take_loss(first.lanes[0], &why));
    assert_non_null(strstr(why.text, "is not loaded"));
    child_world_close(&second);
    child_world_close(&first);
    children_close(first.children);
    remove(path);
}

/* A program that does nothing: its first line is not said, however often it is started. */
static const char *idle_program(char *path, size_t size)
{
    sim_file("#!/bin/sh\nexec sleep 1000\n", path, size);
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

static void a_process_that_hangs_at_its_start(void **state)
{
    (void)state;
    char path[64];
    struct error err = {0};
    struct child_world world = world_of(1);
    world.children = open_children(
        (struct children_options){.program = idle_program(path, sizeof path), .start_ms = 100});
    assert_int_equal(child_world_try(&world, &err), ERROR_DEVICE);
    assert_non_null(strstr(err.text, "keeps hanging"));
    assert_non_null(strstr(err.text, "did not open it within"));
    children_close(world.children);
    remove(path);
}

static _Atomic bool unwanted;

static void *stop_wanting(void *arg)
{
    (void)arg;
    nanosleep(&(struct timespec){.tv_nsec = 100 * MS}, NULL);
    atomic_store(&unwanted, true);
    return NULL;
}

static void what_is_unwanted_is_not_waited_for(void **state)
{
    (void)state;
    char path[64];
    struct error err = {0};
    struct child_world world = world_of(1);
    pthread_t thread;
    world.unwanted = &unwanted;
    world.children =
        open_children((struct children_options){.program = idle_program(path, sizeof path)});
    assert_int_equal(pthread_create(&thread, NULL, stop_wanting, NULL), 0);
    assert_int_equal(child_world_try(&world, &err),
                     ERROR_CANCELLED); /* it would hang for LIMIT_CHILD_START_MS */
    pthread_join(thread, NULL);
    assert_int_equal(children_pid(world.children, "cpu"), 0);
    children_close(world.children);
    remove(path);
}

static void a_process_that_answers_nothing(void **state)
{
    (void)state;
    struct child_world world = world_of(1);
    world.children = open_children((struct children_options){.silence_ms = 600});
    child_world_open(&world);
    kill(child_world_pid(&world, 0), SIGSTOP);
    struct reply reply = reply_of();
    expect_reply(&world, &reply);
    assert_int_equal(world.n_losses, 1);
    assert_non_null(strstr(reply.error.text, "has not answered"));
    child_world_close(&world);
    children_close(world.children);
}

/* Stopped, then gone on with: the node could not hear its child, which is well. */
static void the_node_itself_stands_still(void **state)
{
    (void)state;
    char command[128], *const arguments[] = {"sh", "-c", command, NULL};
    int status;
    pid_t shell;
    struct child_world world = world_of(1);
    world.children = open_children((struct children_options){.silence_ms = 2500, .work_ms = 2500});
    child_world_open(&world);
    const pid_t child = child_world_pid(&world, 0);
    snprintf(command, sizeof command, "kill -STOP %ld; sleep 4; kill -CONT %ld", (long)getpid(),
             (long)getpid());
    assert_int_equal(posix_spawn(&shell, "/bin/sh", NULL, NULL, arguments, environ), 0);
    assert_int_equal(waitpid(shell, &status, 0), shell);
    nanosleep(&(struct timespec){.tv_nsec = 500 * MS}, NULL);
    struct reply reply = reply_of();
    expect_reply(&world, &reply);
    assert_int_equal(world.n_losses, 0);
    assert_int_equal(child_world_pid(&world, 0), child);
    child_world_close(&world);
    children_close(world.children);
}

/* ---- it writes rubbish ------------------------------------------------------------------- */

static void scribble(struct lane *lane, int kind, unsigned *seed)
{
    unsigned char *ring = (unsigned char *)lane->memory + lane->ring_bytes + RING_HEAD_BYTES;
    const uint64_t bytes = kind == 0 ? RING_HEAD_BYTES : 65536;
    unsigned char *from = kind == 1 ? ring + RING_HEAD_BYTES : ring;
    for (uint64_t i = 0; i < bytes; i++)
        from[i] = kind == 2 ? 0xff : (unsigned char)rand_r(seed);
    if (kind == 1) /* one record's worth, said to be there */
        *(_Atomic uint64_t *)(void *)ring += 64;
    ring_wake(&lane->in);
}

static void rubbish_in_the_rings(void **state)
{
    (void)state;
    struct child_world world = world_of(1);
    world.children = open_children((struct children_options){0});
    child_world_open(&world);
    unsigned seed = 1;
    for (int kind = 0; kind < 3; kind++) {
        for (int tries = 0; tries < 5 && world.n_losses == (uint32_t)kind; tries++) {
            scribble(world.lanes[0], kind,
                     &seed); /* what the child writes in the same moment goes over it */
            struct reply reply = reply_of();
            expect_reply(&world, &reply);
        }
        assert_int_equal(world.n_losses, kind + 1);
    }
    child_world_close(&world);
    children_close(world.children);
}

/* ---- its model lies in several files --------------------------------------------------------- */

/* All come to the process open, and one that is started anew gets them again. */
static void a_model_in_parts(void **state)
{
    close_golden(state);
    open_files("more/models/llama-split.json", "more/models/llama-split-00002-of-00003.gguf");
    struct child_world world = world_of(2);
    struct killer killer = {&world, 0, 3};
    world.children = open_children((struct children_options){0});
    child_world_open(&world);
    struct reply reply = reply_of();
    reply.on_token = kill_now;
    reply.arg = &killer;
    expect_reply(&world, &reply);
    assert_in_range(world.n_losses, 1, 2);
    child_world_close(&world);
    children_close(world.children);
    close_golden(state);
    open_golden(state);
}

/* ---- its parent dies --------------------------------------------------------------------- */

static _Noreturn void be_a_parent(void)
{
    struct child_world world = {0};
    open_golden(NULL);
    world = world_of(1);
    world.children = open_children((struct children_options){0});
    child_world_open(&world);
    printf("%ld\n", (long)child_world_pid(&world, 0));
    fflush(stdout);
    for (;;)
        pause();
}

static void the_parent_dies(void **state)
{
    (void)state;
    int ends[2], status;
    char line[32] = "", *const arguments[] = {"parent", PARENT_ARGUMENT, NULL};
    pid_t parent;
    posix_spawn_file_actions_t actions;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* so that its child comes to us */
    assert_int_equal(pipe(ends), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    assert_int_equal(posix_spawn(&parent, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    assert_true(read(ends[0], line, sizeof line - 1) > 0);
    close(ends[0]);
    const pid_t child = (pid_t)strtol(line, NULL, 10);
    assert_true(child > 1);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, &status, 0), parent);
    alarm(10); /* waiting for ever is a failure */
    assert_int_equal(waitpid(child, &status, 0), child);
    alarm(0);
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    if (argc == 2 && strcmp(argv[1], PARENT_ARGUMENT) == 0)
        be_a_parent();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_the_reference),
        cmocka_unit_test(two_devices_are_two_processes),
        cmocka_unit_test(a_simulated_device_tells_what_its_process_does),
        cmocka_unit_test(a_prompt_that_is_wanted_no_more),
        cmocka_unit_test(killed_in_mid_reply_the_text_goes_on),
        cmocka_unit_test(one_of_two_devices_dies),
        cmocka_unit_test(at_its_start_again_and_again),
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(a_device_that_hangs),
        cmocka_unit_test(a_device_that_hangs_while_loading),
        cmocka_unit_test(a_process_that_hangs_at_its_start),
        cmocka_unit_test(what_is_unwanted_is_not_waited_for),
        cmocka_unit_test(a_process_that_answers_nothing),
        cmocka_unit_test(the_node_itself_stands_still),
        cmocka_unit_test(rubbish_in_the_rings),
        cmocka_unit_test(a_model_in_parts),
        cmocka_unit_test(the_parent_dies),
    };
    return cmocka_run_group_tests_name("runner_child", tests, open_golden, close_golden);
}
