/* Which connection makes room for the next. */
#include "api/connections.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N = 8 };

static struct connections table;
static struct connection made[N + 1];

static int setup(void **state)
{
    (void)state;
    memset(made, 0, sizeof made);
    connections_init(&table, N, 4, 1024);
    return 0;
}

static void connect_client(int i, const char *address)
{
    made[i].client = api_client_of_address(address);
    connections_add(&table, &made[i]);
}

static enum connections_room room_for(const char *address, struct connection **victim)
{
    const struct api_client client = api_client_of_address(address);
    return connections_room_for(&table, &client, victim);
}

static void test_sizes(void **state)
{
    (void)state;
    connections_init(&table, 1024, 512, 65536);
    assert_int_equal(table.n_max, 1024);
    assert_int_equal(table.client_max, 512);
    connections_init(&table, 1024, 512, 1024);
    assert_int_equal(table.n_max, 512); /* half of the descriptors */
    assert_int_equal(table.client_max, 384);
    connections_init(&table, 1024, 512, 1);
    assert_int_equal(table.n_max, 4);
    assert_int_equal(table.client_max, 3);
}

static void test_who_has_waited_longest_goes(void **state)
{
    (void)state;
    struct connection *victim;
    char address[32];
    for (int i = 0; i < N; i++) {
        snprintf(address, sizeof address, "192.0.2.%d", i);
        assert_int_equal(room_for(address, &victim), CONNECTIONS_ROOM);
        connect_client(i, address);
    }
    assert_int_equal(room_for("192.0.2.100", &victim), CONNECTIONS_CLOSE_ONE);
    assert_ptr_equal(victim, &made[0]);
    connections_set_busy(&table, &made[0], true);
    assert_int_equal(room_for("192.0.2.100", &victim), CONNECTIONS_CLOSE_ONE);
    assert_ptr_equal(victim, &made[1]);
    connections_set_busy(&table, &made[0], false); /* waits anew */
    assert_ptr_equal(connections_oldest(&table), &made[1]);
    for (int i = 0; i < N; i++)
        connections_set_busy(&table, &made[i], true);
    assert_int_equal(room_for("192.0.2.100", &victim), CONNECTIONS_BUSY);
    connections_remove(&table, &made[3]);
    assert_int_equal(room_for("192.0.2.100", &victim), CONNECTIONS_ROOM);
}

static void test_a_client_makes_room_for_itself(void **state)
{
    (void)state;
    struct connection *victim;
    connect_client(0, "198.51.100.1");
    for (int i = 1; i <= 4; i++)
        connect_client(i, i % 2 ? "2001:db8::1" : "2001:db8::2"); /* of one /64 */
    assert_int_equal(room_for("2001:db8::3", &victim), CONNECTIONS_CLOSE_ONE);
    assert_ptr_equal(victim, &made[1]);
    assert_int_equal(room_for("198.51.100.1", &victim), CONNECTIONS_ROOM);
    for (int i = 1; i <= 4; i++)
        connections_set_busy(&table, &made[i], true);
    assert_int_equal(room_for("2001:db8::3", &victim), CONNECTIONS_CLIENT_BUSY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_sizes, setup),
        cmocka_unit_test_setup(test_who_has_waited_longest_goes, setup),
        cmocka_unit_test_setup(test_a_client_makes_room_for_itself, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
