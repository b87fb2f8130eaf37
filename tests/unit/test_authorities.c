/* Where the system's certificate authorities are. */
#include "base/authorities.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static void test_environment_first(void **unused)
{
    (void)unused;
    setenv("SSL_CERT_FILE", "/nowhere/ours.pem", 1);
    assert_string_equal(authorities_file(), "/nowhere/ours.pem");
}

static void test_finds_the_systems(void **unused)
{
    (void)unused;
    setenv("SSL_CERT_FILE", "", 1);
    const char *path = authorities_file();
    assert_non_null(path); /* ca-certificates is among the packages */
    assert_int_equal(access(path, R_OK), 0);
    unsetenv("SSL_CERT_FILE");
    assert_string_equal(authorities_file(), path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_first),
        cmocka_unit_test(test_finds_the_systems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
