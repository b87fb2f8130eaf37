#include "node/lend_load.h"

#include "base/clock.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* User and system time of a process, in clock ticks; 0: it is not there (any more). */
static uint64_t process_ticks(long pid)
{
    char path[64], text[1024];
    uint64_t user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    const size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    const char *rest = strrchr(text, ')'); /* the name may contain anything */
    if (!rest ||
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64, &user,
               &system) != 2)
        return 0;
    return user + system;
}

static uint64_t children_ticks(const char *thread)
{
    char path[300];
    uint64_t ticks = 0;
    long pid;
    snprintf(path, sizeof path, "/proc/self/task/%s/children", thread);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%ld", &pid) == 1)
        ticks += process_ticks(pid);
    if (file)
        fclose(file);
    return ticks;
}

static uint64_t own_ticks(void)
{
    uint64_t ticks = process_ticks((long)getpid());
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *thread; threads && (thread = readdir(threads));) {
        if (thread->d_name[0] != '.')
            ticks += children_ticks(thread->d_name);
    }
    if (threads)
        closedir(threads);
    return ticks;
}

struct reading lend_load_others(struct lend_load *load, struct reading used_pct)
{
    const struct lend_load before = *load;
    const long per_s = sysconf(_SC_CLK_TCK), n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *load = (struct lend_load){own_ticks(), clock_now_ns()};
    if (!before.at_ns || !used_pct.valid || per_s <= 0 || n_cpus <= 0 ||
        load->own_ticks < before.own_ticks || load->at_ns <= before.at_ns)
        return (struct reading){0};
    const double seconds = (double)(load->at_ns - before.at_ns) / 1e9;
    const double own =
        (double)(load->own_ticks - before.own_ticks) / (double)per_s / seconds / (double)n_cpus;
    const double others = used_pct.value / 100 - own;
    return reading_now(UNIT_NUMBER, others > 0 ? others : 0);
}
