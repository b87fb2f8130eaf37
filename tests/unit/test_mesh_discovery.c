/* Discovery between two hosts in network namespaces of their own, with and without a daemon of
 * Avahi's beside it; and what strangers may announce. */
#include "mesh/discovery.h"
#include "mesh/discovery_record.h"
#include "net_world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a host's program: announces itself, and tells its findings line by line ---------- */

static pid_t daemon_pid;

struct program {
    uv_loop_t loop;
    uv_pipe_t in;
    int out;
    struct discovery_record own;
    struct discovery *discovery;
    char input[512];
};

static void on_found(void *arg, const struct discovery_peer *peer)
{
    struct program *program = arg;
    char address[INET6_ADDRSTRLEN] = "";
    if (peer->address.ss_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)&peer->address)->sin_addr, address,
                  sizeof address);
    else
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)&peer->address)->sin6_addr, address,
                  sizeof address);
    dprintf(program->out, "found %s %s [%s] %s %u %u.%u\n", peer->record.id, peer->record.name,
            peer->record.cluster, peer->address.ss_family == AF_INET ? address : "v6",
            peer->record.port, peer->record.version_major, peer->record.version_minor);
}

static void on_lost(void *arg, const char *name)
{
    struct program *program = arg;
    dprintf(program->out, "lost %s\n", name);
}

static void give_room(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    struct program *program = handle->data;
    (void)size;
    *buf = uv_buf_init(program->input, sizeof program->input - 1);
}

/* "cluster NAME" announces another cluster, "kill" ends the daemon; the end of the input ends the
 * program. */
static void on_input(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct program *program = stream->data;
    if (n > 0) {
        buf->base[n] = '\0';
        if (sscanf(buf->base, "cluster %63s", program->own.cluster) == 1)
            discovery_announce(program->discovery, &program->own, NULL);
        if (strncmp(buf->base, "kill", 4) == 0)
            kill(daemon_pid, SIGKILL);
        return;
    }
    uv_close((uv_handle_t *)stream, NULL);
    discovery_close(program->discovery, NULL, NULL);
}

static void run_program(int in, int out, const char *name, const char *id)
{
    static struct program program;
    program = (struct program){.out = out};
    program.own = (struct discovery_record){.version_major = 1, .version_minor = 2, .port = 4242};
    strcpy(program.own.name, name);
    strcpy(program.own.id, id);
    uv_loop_init(&program.loop);
    uv_pipe_init(&program.loop, &program.in, 0);
    uv_pipe_open(&program.in, in);
    program.in.data = &program;
    struct discovery_handlers handlers = {on_found, on_lost, &program};
    struct error err = {0};
    if (discovery_open(&program.loop, &program.own, &handlers, &program.discovery, &err)) {
        dprintf(out, "failed: %s\n", err.text);
        _exit(1);
    }
    uv_read_start((uv_stream_t *)&program.in, give_room, on_input);
    uv_run(&program.loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&program.loop))
        _exit(2); /* something was left behind */
}

static void laptop(int in, int out)
{
    run_program(in, out, "laptop", "aaaa000011112222");
}

static void tower(int in, int out)
{
    run_program(in, out, "tower", "bbbb000011112222");
}

static void another_laptop(int in, int out)
{
    run_program(in, out, "laptop", "cccc000011112222");
}

/* ---- a host with a daemon of Avahi's ------------------------------------------------------- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file))
        _exit(3);
}

static pid_t spawn(char *const *command)
{
    pid_t pid = fork();
    if (pid == 0) {
        execvp(command[0], command);
        _exit(127);
    }
    return pid;
}

static void wait_for_file(const char *path)
{
    for (int i = 0; i < 100 && access(path, F_OK); i++)
        usleep(50 * 1000);
    if (access(path, F_OK))
        _exit(4);
}

/* The daemon sees nothing but this host's network and an empty /run. */
static void server(int in, int out)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/run", "tmpfs", 0, NULL))
        _exit(5);
    write_file("/run/avahi.conf", "[server]\nenable-dbus=no\n");
    daemon_pid = spawn((char *[]){"avahi-daemon", "-f", "/run/avahi.conf", "--no-drop-root",
                                  "--no-rlimits", "--no-chroot", NULL});
    wait_for_file("/run/avahi-daemon/socket");
    run_program(in, out, "server", "dddd000011112222");
    kill(daemon_pid, SIGKILL);
}

/* ---- the tests ------------------------------------------------------------------------ */

static bool allowed;

static void needs_namespaces(void)
{
    if (!allowed) {
        print_message("network namespaces are not allowed here\n");
        skip();
    }
}

static void test_two_hosts_find_each_other(void **state)
{
    (void)state;
    needs_namespaces();
    struct net_host a, b;
    net_host_start(&a, "laptop", laptop);
    net_host_start(&b, "tower", tower);
    net_join(&a, &b);
    assert_true(net_host_hears(&a, "found bbbb000011112222 tower [] 10.77.0.2 4242 1.2", 10000));
    assert_true(net_host_hears(&b, "found aaaa000011112222 laptop [] v6 4242 1.2", 10000));

    net_host_say(&b, "cluster home");
    assert_true(net_host_hears(&a, "found bbbb000011112222 tower [home]", 10000));

    net_host_stop(&b); /* it says good-bye */
    assert_true(net_host_hears(&a, "lost tower", 10000));
    net_host_stop(&a);
}

static void test_the_same_name_twice(void **state)
{
    (void)state;
    needs_namespaces();
    struct net_host a, b;
    net_host_start(&a, "laptop", laptop);
    net_host_start(&b, "laptop", another_laptop);
    net_join(&a, &b);
    assert_true(net_host_hears(&a, "found cccc000011112222 laptop", 20000));
    assert_true(net_host_hears(&b, "found aaaa000011112222 laptop", 20000));
    net_host_stop(&a);
    net_host_stop(&b);
}

/* Avahi's daemon holds the port already: the two share it. */
static void test_beside_a_daemon(void **state)
{
    (void)state;
    needs_namespaces();
    struct net_host a, b;
    net_host_start(&a, "laptop", laptop);
    net_host_start(&b, "server", server);
    net_join(&a, &b);
    assert_true(net_host_hears(&a, "found dddd000011112222 server [] 10.77.0.2 4242", 20000));
    assert_true(net_host_hears(&b, "found aaaa000011112222 laptop", 20000));
    net_host_say(&b, "kill"); /* and one can go without the other */
    net_host_say(&a, "cluster home");
    assert_true(net_host_hears(&b, "found aaaa000011112222 laptop [home]", 60000));
    net_host_stop(&a);
    net_host_stop(&b);
}

static void add_raw(AvahiStringList **txt, const char *bytes, size_t size)
{
    *txt = avahi_string_list_add_arbitrary(*txt, (const uint8_t *)bytes, size);
    assert_non_null(*txt);
}

static void test_what_strangers_announce(void **state)
{
    (void)state;
    struct discovery_record own = {.id = "abcd",
                                   .cluster = "home",
                                   .version_major = 1,
                                   .version_minor = 7},
                            got;
    AvahiStringList *txt = discovery_record_write(&own);
    assert_true(discovery_record_read("tower", 99, txt, &got));
    assert_string_equal(got.name, "tower");
    assert_string_equal(got.id, "abcd");
    assert_string_equal(got.cluster, "home");
    assert_int_equal(got.version_minor, 7);
    assert_int_equal(got.port, 99);
    assert_false(discovery_record_read("tower", 0, txt, &got));
    assert_false(discovery_record_read("", 99, txt, &got));
    assert_false(discovery_record_read("to\x1b[2Jwer", 99, txt, &got));
    char longest[100];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_false(discovery_record_read(longest, 99, txt, &got));
    avahi_string_list_free(txt);

    static const struct {
        const char *bytes;
        size_t size;
    } bad[] = {{"id=", 3}, {"id=a\0b", 6}, {"id=a\nb", 6}, {"id", 2}, {"", 0}, {"identity=x", 10}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        txt = NULL;
        add_raw(&txt, "cluster=", 8);
        add_raw(&txt, "version=1.0", 11);
        add_raw(&txt, bad[i].bytes, bad[i].size);
        assert_false(discovery_record_read("tower", 99, txt, &got));
        avahi_string_list_free(txt);
    }
    static const char *const versions[] = {"version=1", "version=a.b", "version=1.2.3",
                                           "version=99999999999.1", "version="};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        txt = NULL;
        add_raw(&txt, "id=x", 4);
        add_raw(&txt, "cluster=", 8);
        add_raw(&txt, versions[i], strlen(versions[i]));
        assert_false(discovery_record_read("tower", 99, txt, &got));
        avahi_string_list_free(txt);
    }
    struct sockaddr_storage address;
    AvahiAddress any = {.proto = AVAHI_PROTO_INET};
    assert_false(discovery_address(&any, 1, 1, &address));
    any.data.ipv4.address = htonl(0xe0000001);
    assert_false(discovery_address(&any, 1, 1, &address));
    any.proto = AVAHI_PROTO_UNSPEC;
    assert_false(discovery_address(&any, 1, 1, &address));
}

int main(void)
{
    allowed = net_world_enter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_strangers_announce),
        cmocka_unit_test(test_two_hosts_find_each_other),
        cmocka_unit_test(test_the_same_name_twice),
        cmocka_unit_test(test_beside_a_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
