#include "shell_world.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/medley-shell-XXXXXX", said[1 << 20];

int shell_open(void **state)
{
    (void)state;
    char path[PATH_MAX];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_non_null(getenv("MEDLEY_BINARY"));
    setenv("MEDLEY", getenv("MEDLEY_BINARY"), 1);
    setenv("HOME", folder, 1);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("XDG_CACHE_HOME");
    snprintf(path, sizeof path, "%s/state", folder);
    setenv("MEDLEY_STATE_DIR", path, 1);
    return 0;
}

int shell_close(void **state)
{
    (void)state;
    char line[PATH_MAX];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return chdir("/") || system(line);
}

int shell_run(const char *line, const char **out)
{
    char whole[4096];
    assert_true(snprintf(whole, sizeof whole, "{ %s\n} 2>&1", line) < (int)sizeof whole);
    FILE *pipe = popen(whole, "r");
    assert_non_null(pipe);
    const size_t n = fread(said, 1, sizeof said - 1, pipe);
    said[n] = '\0';
    *out = said;
    const int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void shell_expect(int status, const char *line, const char *part)
{
    const char *out;
    const int ended = shell_run(line, &out);
    if (ended != status)
        fail_msg("%s: status %d, not %d: %s", line, ended, status, out);
    if (!strstr(out, part))
        fail_msg("%s: '%s' does not say '%s'", line, out, part);
}
