/* What a service manager is told, and the sockets that it gives. */
#include "base/service_manager.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char abstract_name[] = "medley-test-service-manager";

/* A manager that listens at an abstract address of this process's own. */
static int manager_listen(char name[64])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(name, 64, "@%s-%d", abstract_name, (int)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    return fd;
}

static void heard(int fd, const char *expected)
{
    char text[256] = "";
    assert_true(recv(fd, text, sizeof text - 1, 0) > 0);
    assert_memory_equal(text, expected, strlen(expected));
}

static void test_it_hears_what_it_is_told(void **state)
{
    (void)state;
    char name[64];
    struct service_manager manager;
    const int fd = manager_listen(name);
    setenv("NOTIFY_SOCKET", name, 1);
    service_manager_open(&manager);
    assert_true(service_manager_is_there(&manager));
    service_manager_tell(&manager, "READY=1\nSTATUS=serving");
    heard(fd, "READY=1\nSTATUS=serving");
    service_manager_tell_reloading(&manager);
    heard(fd, "RELOADING=1\nMONOTONIC_USEC=");
    close(fd);
    service_manager_tell(&manager, "STOPPING=1"); /* nobody listens any more */
    service_manager_close(&manager);
    unsetenv("NOTIFY_SOCKET");
}

static void test_without_one_nothing_happens(void **state)
{
    static const char *const not_addresses[] = {"", "/", "relative", "vsock:2:1234"};
    (void)state;
    struct service_manager manager;
    service_manager_open(&manager);
    assert_false(service_manager_is_there(&manager));
    service_manager_tell(&manager, "READY=1");
    service_manager_tell_reloading(&manager);
    for (size_t i = 0; i < sizeof not_addresses / sizeof *not_addresses; i++) {
        setenv("NOTIFY_SOCKET", not_addresses[i], 1);
        service_manager_open(&manager);
        assert_false(service_manager_is_there(&manager));
    }
    unsetenv("NOTIFY_SOCKET");
}

static uint64_t watchdog(const char *microseconds, const char *pid)
{
    struct service_manager manager;
    setenv("NOTIFY_SOCKET", "@nobody", 1);
    setenv("WATCHDOG_USEC", microseconds, 1);
    if (pid)
        setenv("WATCHDOG_PID", pid, 1);
    else
        unsetenv("WATCHDOG_PID");
    service_manager_open(&manager);
    const uint64_t every_ms = manager.watchdog_ms;
    service_manager_close(&manager);
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return every_ms;
}

static void test_its_watchdog_is_for_this_process(void **state)
{
    (void)state;
    char own[16], other[16];
    snprintf(own, sizeof own, "%d", (int)getpid());
    snprintf(other, sizeof other, "%d", (int)getppid());
    assert_int_equal(watchdog("60000000", NULL), 60000);
    assert_int_equal(watchdog("60000000", own), 60000);
    assert_int_equal(watchdog("60000000", other), 0);
    assert_int_equal(watchdog("-1", NULL), 0);
    assert_int_equal(watchdog("1e9", NULL), 0);
    assert_int_equal(watchdog("99999999999999999999999", NULL), 0);
}

/* Listens on the loopback, as descriptor 3. */
static struct sockaddr_in pass_socket(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(dup2(fd, 3), 3);
    if (fd != 3)
        close(fd);
    return address;
}

static void test_its_socket_is_taken_where_the_address_is_the_same(void **state)
{
    (void)state;
    const int kept = fcntl(3, F_DUPFD_CLOEXEC, 64); /* whatever the harness has there */
    char own[16];
    snprintf(own, sizeof own, "%d", (int)getpid());
    struct sockaddr_in address = pass_socket(), elsewhere = address;
    elsewhere.sin_port ^= 1;
    const struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    setenv("LISTEN_FDS", "1", 1);
    assert_int_equal(service_manager_socket((struct sockaddr *)&address), -1);
    setenv("LISTEN_PID", own, 1);
    assert_int_equal(service_manager_socket((struct sockaddr *)&elsewhere), -1);
    assert_int_equal(service_manager_socket((const struct sockaddr *)&v6), -1);
    const int fd = service_manager_socket((struct sockaddr *)&address);
    assert_true(fd > 3);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(service_manager_has(fd));
    const int own_socket = socket(AF_INET, SOCK_STREAM, 0);
    assert_false(service_manager_has(own_socket));
    assert_false(service_manager_has(-1));
    close(own_socket);
    setenv("LISTEN_PID", "1", 1);
    assert_false(service_manager_has(fd));
    setenv("LISTEN_PID", own, 1);
    close(fd);
    close(3);
    assert_int_equal(service_manager_socket((struct sockaddr *)&address), -1);
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_PID");
    if (kept >= 0) {
        dup2(kept, 3);
        close(kept);
    }
}

int main(void)
{
    unsetenv("NOTIFY_SOCKET");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_hears_what_it_is_told),
        cmocka_unit_test(test_without_one_nothing_happens),
        cmocka_unit_test(test_its_watchdog_is_for_this_process),
        cmocka_unit_test(test_its_socket_is_taken_where_the_address_is_the_same),
    };
    return cmocka_run_group_tests_name("service_manager", tests, NULL, NULL);
}
