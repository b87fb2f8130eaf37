/* medley service: the machine's service manager runs `medley up`. */
#include "api/address.h"
#include "base/durable_file.h"
#include "base/this_process.h"
#include "cli/commands.h"
#include "cli/service_unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char usage[] =
    "Usage: medley service install [--user] [-- OPTIONS]\n"
    "       medley service status|logs|remove [--user]\n"
    "       medley service unit [--user] [-- OPTIONS]\n"
    "\n"
    "Has systemd run `medley up`: from the machine's start on, before anybody logs in, and again\n"
    "where it fails. What follows -- are options of `medley up`.\n"
    "\n"
    "  install  writes the unit and starts it; once more with other options changes it\n"
    "  status   what systemd says of it\n"
    "  logs     its journal, as it comes; Ctrl-C ends that\n"
    "  remove   stops it and removes the unit; the node's state stays\n"
    "  unit     prints the unit, and does nothing else\n"
    "\n"
    "  --user   a service of yours alone: no root is needed, the state is the one that your\n"
    "           `medley up` has, and it runs while you are logged in (for always:\n"
    "           loginctl enable-linger)\n"
    "\n"
    "Without --user it is the machine's, and root installs it. It runs as a user of its own with\n"
    "its state in " SERVICE_STATE_FOLDER "; `sudo medley status` and all other commands find it.\n"
    "Systemd opens the API's port, so requests wait while the node restarts. A hub's token goes\n"
    "to /etc/credstore/medley.hub-token.\n";

enum service_act { SERVICE_INSTALL, SERVICE_STATUS, SERVICE_LOGS, SERVICE_REMOVE, SERVICE_UNIT };

static const char *const act_names[] = {"install", "status", "logs", "remove", "unit"};

struct service_args {
    enum service_act act;
    struct service_unit unit;
    char program[PATH_MAX], groups[64], listen[300];
    char folder[PATH_MAX]; /* of units */
};

extern char **environ;

/* ---- what is asked ---------------------------------------------------------------------- */

static bool service_find_act(const char *word, enum service_act *out)
{
    for (size_t i = 0; i < sizeof act_names / sizeof *act_names; i++) {
        *out = (enum service_act)i;
        if (strcmp(word, act_names[i]) == 0)
            return true;
    }
    return false;
}

static bool service_parse(int argc, char **argv, struct service_args *args)
{
    const struct command *command = &command_service;
    int i = 1;
    bool has_act = false;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--user") == 0) {
            args->unit.for_user = true;
        } else if (has_act || !service_find_act(argv[i], &args->act)) {
            command_misused(command,
                            "'%s'? it takes install, status, logs, remove or unit, and --user; "
                            "options of the node go behind --",
                            argv[i]);
            return false;
        } else {
            has_act = true;
        }
    }
    if (!has_act) {
        command_misused(command, "what about the service? install, status, logs, remove or unit");
        return false;
    }
    args->unit.words = i < argc ? argv + i + 1 : NULL;
    args->unit.n_words = i < argc ? (size_t)(argc - i - 1) : 0;
    if (!args->unit.n_words || args->act == SERVICE_INSTALL || args->act == SERVICE_UNIT)
        return true;
    command_misused(command, "medley service %s takes no options of the node",
                    act_names[args->act]);
    return false;
}

/* ---- the unit --------------------------------------------------------------------------- */

/* The last `--api` among the node's options. */
static const char *service_api_word(const struct service_unit *unit)
{
    const char *found = "127.0.0.1:8080";
    for (size_t i = 0; i < unit->n_words; i++) {
        if (strcmp(unit->words[i], "--api") == 0 && i + 1 < unit->n_words)
            found = unit->words[++i];
        else if (strncmp(unit->words[i], "--api=", 6) == 0)
            found = unit->words[i] + 6;
    }
    return found;
}

/* Systemd can listen where the address is a number and the port is known. */
static void service_choose_socket(struct service_args *args)
{
    struct api_address address;
    struct error ignored;
    unsigned char bytes[sizeof(struct in6_addr)];
    if (args->unit.for_user ||
        api_address_parse(service_api_word(&args->unit), &address, &ignored) || !address.port)
        return;
    const bool is_v6 = inet_pton(AF_INET6, address.host, bytes) == 1;
    if (!is_v6 && inet_pton(AF_INET, address.host, bytes) != 1)
        return;
    snprintf(args->listen, sizeof args->listen, is_v6 ? "[%s]:%u" : "%s:%u", address.host,
             address.port);
    args->unit.listen = args->listen;
}

/* A group that is not there would keep the service from starting. */
static void service_find_groups(struct service_args *args)
{
    static const char *const names[] = {"render", "video"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t used = strlen(args->groups);
        if (getgrnam(names[i]))
            snprintf(args->groups + used, sizeof args->groups - used, "%s%s", used ? " " : "",
                     names[i]);
    }
    args->unit.groups = args->groups;
}

static enum error_code service_find_folder(struct service_args *args, struct error *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int n;
    if (!args->unit.for_user)
        n = snprintf(args->folder, sizeof args->folder, "/etc/systemd/system");
    else if (config && config[0] == '/')
        n = snprintf(args->folder, sizeof args->folder, "%s/systemd/user", config);
    else
        n = snprintf(args->folder, sizeof args->folder, "%s/.config/systemd/user",
                     home ? home : "");
    if (n < 0 || (size_t)n >= sizeof args->folder || args->folder[0] != '/')
        return error_set(err, ERROR_INVALID, "there is no folder for a user's units: set HOME");
    return ERROR_NONE;
}

static enum error_code service_describe(struct service_args *args, struct error *err)
{
    if (!this_program_path(args->program))
        return error_set(err, ERROR_IO, "cannot find this program's path: %s", strerror(errno));
    args->unit.program = args->program;
    service_choose_socket(args);
    service_find_groups(args);
    return service_find_folder(args, err);
}

/* ---- systemd ---------------------------------------------------------------------------- */

/* What a child exits with that could not become its program, where posix_spawn() returns before it
 * has tried (POSIX leaves that open; emulators of processors are so). */
enum { STATUS_NOT_STARTED = 127 };

static enum error_code service_lacks_tool(const char *name, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND,
                     "there is no %s: this machine is not run by systemd. Let its own "
                     "service manager run `medley up`",
                     name);
}

/* `words` end with NULL. *status: what it exited with. */
static enum error_code service_run_tool(const char *const *words, int *status, struct error *err)
{
    pid_t pid;
    const int problem =
        posix_spawnp(&pid, words[0], NULL, NULL, (char *const *)(uintptr_t)words, environ);
    if (problem == ENOENT)
        return service_lacks_tool(words[0], err);
    if (problem)
        return error_set(err, ERROR_IO, "cannot start %s: %s", words[0], strerror(problem));
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    *status = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
    if (*status == STATUS_NOT_STARTED)
        return service_lacks_tool(words[0], err);
    return ERROR_NONE;
}

static enum error_code service_systemctl(const struct service_args *args, const char *verb,
                                         const char *first, const char *second, struct error *err)
{
    const char *words[] = {
        "systemctl", args->unit.for_user ? "--user" : "--system", verb, first, second, NULL};
    int status = 0;
    const enum error_code code = service_run_tool(words, &status, err);
    if (code || !status)
        return code;
    return error_set(err, ERROR_IO, "systemctl %s did not succeed (status %d); see %s", verb,
                     status,
                     args->unit.for_user ? "medley service logs --user" : "medley service logs");
}

/* Ends with what the tool ends with. */
static int service_show(const char *const *words)
{
    struct error err;
    int status = EXIT_FAILED;
    return service_run_tool(words, &status, &err) ? command_fail(&command_service, &err) : status;
}

static int service_status(const struct service_args *args)
{
    const char *words[] = {"systemctl",      args->unit.for_user ? "--user" : "--system",
                           "--no-pager",     "status",
                           "medley.service", NULL};
    return service_show(words);
}

static int service_logs(const struct service_args *args)
{
    const char *words[] = {"journalctl",     args->unit.for_user ? "--user-unit" : "--unit",
                           "medley.service", "--lines=100",
                           "--follow",       NULL};
    return service_show(words);
}

/* ---- the acts --------------------------------------------------------------------------- */

static enum error_code service_write(const struct service_args *args, const char *name,
                                     enum error_code (*text)(const struct service_unit *,
                                                             struct buffer *, struct error *),
                                     struct error *err)
{
    char path[PATH_MAX];
    struct buffer bytes = {0};
    enum error_code code = ERROR_NONE;
    if (snprintf(path, sizeof path, "%s/%s", args->folder, name) >= (int)sizeof path)
        code = error_set(err, ERROR_INVALID, "the path of the folder %s is too long", args->folder);
    if (!code)
        code = text(&args->unit, &bytes, err);
    if (!code)
        code = durable_replace(path, bytes.data, bytes.size, err);
    if (!code && chmod(path, 0644))
        code = error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    buffer_deinit(&bytes);
    return code;
}

/* True: it was there. */
static bool service_erase(const struct service_args *args, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", args->folder, name) < (int)sizeof path &&
           unlink(path) == 0;
}

static enum error_code service_check(const struct service_args *args, struct error *err)
{
    if (access("/run/systemd/system", F_OK)) /* sd_booted(3) */
        return error_set(err, ERROR_NOT_FOUND,
                         "this machine was not started by systemd: let its own service manager "
                         "run `medley up`");
    return args->unit.for_user || geteuid() == 0
               ? ERROR_NONE
               : error_set(err, ERROR_INVALID,
                           "the machine's service is root's to change: use sudo; or "
                           "medley service %s --user, for a service of yours",
                           act_names[args->act]);
}

static enum error_code service_install(const struct service_args *args, struct error *err)
{
    const char *also = args->unit.listen ? "medley.socket" : NULL;
    enum error_code code = service_check(args, err);
    if (!code)
        code = durable_make_folder(args->folder, err);
    if (!code)
        code = service_write(args, "medley.service", service_unit_text, err);
    if (!code && also)
        code = service_write(args, also, service_socket_text, err);
    if (!code && !also && service_erase(args, "medley.socket"))
        code = service_systemctl(args, "stop", "medley.socket", NULL, err);
    if (!code)
        code = service_systemctl(args, "daemon-reload", NULL, NULL, err);
    if (!code)
        code = service_systemctl(args, "enable", "medley.service", also, err);
    if (!code && also)
        code = service_systemctl(args, "stop", "medley.service", NULL, err);
    if (!code && also)
        code = service_systemctl(args, "restart", also, NULL, err);
    if (!code)
        code = service_systemctl(args, "restart", "medley.service", NULL, err);
    if (code)
        return code;
    printf("The node runs as %s, with %s/medley.service.\n",
           args->unit.for_user ? "a service of yours" : "the machine's service", args->folder);
    printf("Ask it with `%smedley status`; `medley service logs%s` shows what it says.\n",
           args->unit.for_user ? "" : "sudo ", args->unit.for_user ? " --user" : "");
    return ERROR_NONE;
}

static enum error_code service_remove(const struct service_args *args, struct error *err)
{
    static const char *const names[] = {"medley.service", "medley.socket"};
    enum error_code code = service_check(args, err);
    bool was_there = false;
    for (size_t i = 0; i < 2 && !code; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%.*s/%s", PATH_MAX - 32, args->folder, names[i]);
        if (access(path, F_OK))
            continue;
        was_there = true;
        code = service_systemctl(args, "disable", "--now", names[i], err);
        if (!code)
            service_erase(args, names[i]);
    }
    if (!code && !was_there)
        return error_set(err, ERROR_NOT_FOUND, "there is no service: %s/medley.service",
                         args->folder);
    if (!code)
        code = service_systemctl(args, "daemon-reload", NULL, NULL, err);
    if (!code)
        printf("The service is gone. The node's state is still there; `medley up` goes on with "
               "it.\n");
    return code;
}

static enum error_code service_print(const struct service_args *args, struct error *err)
{
    struct buffer text = {0};
    enum error_code code = service_unit_text(&args->unit, &text, err);
    if (!code && args->unit.listen) {
        buffer_text(&text, "\n# medley.socket: ");
        code = service_socket_text(&args->unit, &text, err);
    }
    if (!code)
        printf("%s", text.data);
    buffer_deinit(&text);
    return code;
}

static int service_run(int argc, char **argv)
{
    struct service_args args = {0};
    struct error err;
    if (!service_parse(argc, argv, &args))
        return EXIT_USAGE;
    enum error_code code = service_describe(&args, &err);
    if (!code && args.act == SERVICE_STATUS)
        return service_status(&args);
    if (!code && args.act == SERVICE_LOGS)
        return service_logs(&args);
    if (!code)
        code = args.act == SERVICE_INSTALL  ? service_install(&args, &err)
               : args.act == SERVICE_REMOVE ? service_remove(&args, &err)
                                            : service_print(&args, &err);
    return code ? command_fail(&command_service, &err) : EXIT_OK;
}

const struct command command_service = {
    .name = "service",
    .summary = "have this machine run its node from its start on",
    .usage = usage,
    .run = service_run,
};
