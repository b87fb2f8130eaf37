/* The medley binary: finds the command and runs it. */
#include "base/buffer.h"
#include "base/this_process.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "gpu/cpu_runtime.h"
#include "gpu/gpu.h"
#include "model/chat_template.h"
#include "model/gguf_trial.h"
#include "picture/picture_process.h"
#include "pipeline/children.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* In the order in which `medley help` lists them. */
// clang-format off: one a line, so that two additions do not meet
static const struct command *const commands[] = {
    &command_run,
    &command_plan,
    &command_pull,
    &command_serve,
    &command_up,
    &command_service,
    &command_ca,
    &command_nodes,
    &command_links,
    &command_status,
    &command_events,
    &command_alerts,
    &command_audit,
    &command_invite,
    &command_join,
    &command_admit,
    &command_remove,
    &command_role,
    &command_authority,
    &command_leave,
    &command_token,
    &command_models,
    &command_add,
    &command_forget,
    &command_place,
    &command_move,
    &command_drain,
    &command_lend,
    &command_unload,
    &command_bench,
    &command_logits,
    &command_embed,
    &command_rerank,
    &command_devices,
    &command_doctor,
    &command_top,
    &command_heat,
    &command_inspect,
    &command_convert,
    &command_perplexity,
    &command_compare,
    &command_tokenize,
    &command_detokenize,
    &command_render,
    &command_sim,
    &command_completion,
    NULL,
};
// clang-format on

int command_fail(const struct command *command, const struct error *err)
{
    fprintf(stderr, "medley %s: %s\n", command->name, err->text);
    return err->code == ERROR_INVALID ? EXIT_USAGE : EXIT_FAILED;
}

int command_misused(const struct command *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "medley %s: ", command->name);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nSee: medley %s --help\n", command->name);
    return EXIT_USAGE;
}

const struct command *const *command_list(void)
{
    return commands;
}

static const struct command *medley_find(const char *name)
{
    for (size_t i = 0; commands[i]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

static int medley_help(const char *name)
{
    const struct command *command = name ? medley_find(name) : NULL;
    if (command) {
        struct buffer text = {0};
        options_help(command, &text);
        fputs(text.failed ? command->usage : text.data, stdout);
        buffer_deinit(&text);
        return EXIT_OK;
    }
    if (name) {
        fprintf(stderr, "medley help: no command '%s'. `medley help` lists them.\n", name);
        return EXIT_USAGE;
    }
    printf("medley " MEDLEY_VERSION
           ": one computer for large language models, out of the machines you own\n\n");
    for (size_t i = 0; commands[i]; i++)
        printf("  medley %-11s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n`medley help COMMAND` explains one. MEDLEY_LOG=debug shows what Medley does.\n");
    return EXIT_OK;
}

int main(int argc, char **argv)
{
    pthread_setname_np(pthread_self(), "medley"); /* it restarts as /proc/self/exe, "exe" in ps */
    gpu_prober_main(argc, argv);
    chat_template_main(argc, argv);
    gguf_trial_main(argc, argv);
    picture_decode_main(argc, argv);
    cpu_runtime_restart(argv);
    child_main(argc, argv);
    chat_template_isolate(this_program());
    picture_isolate(this_program(), 0);
    if (argc < 2 || strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0)
        return medley_help(argc > 2 ? argv[2] : NULL);
    if (strcmp(argv[1], "--version") == 0) {
        puts("medley " MEDLEY_VERSION);
        return EXIT_OK;
    }
    const struct command *command = medley_find(argv[1]);
    if (!command) {
        fprintf(stderr, "medley: no command '%s'. `medley help` lists them.\n", argv[1]);
        return EXIT_USAGE;
    }
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return medley_help(command->name);
    }
    return command->run(argc - 1, argv + 1);
}
