/* medley pull: a model of a hub, a registry or a server is brought here. */
#include "base/json_memory.h"
#include "base/mem.h"
#include "base/size_text.h"
#include "cli/commands.h"
#include "cli/model_given.h"
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "Usage: medley pull NAME [options]\n"
    "\n"
    "Brings a model here and prints its path. Every command that takes a model takes the same\n"
    "names, and pulls what is not here yet:\n"
    "\n"
    "  hf:ORG/REPO[:QUANT]      a repository of the hub, such as hf:ORG/REPO:Q4_K_M; where no\n"
    "                           QUANT is said, the one that is fastest here by medley plan\n"
    "  hf:ORG/REPO/FILE.gguf    one model of it; of one in parts any part\n"
    "  ollama:NAME[:TAG]        a model of Ollama's registry\n"
    "  https://HOST/FILE.gguf   a file\n"
    "\n"
    "What was interrupted goes on where it was, whatever interrupted it. What the hub gives a\n"
    "SHA-256 of is checked by it before it can be used; of an https:// file --sha256 says it.\n"
    "\n";

static const char usage_end[] =
    "\n"
    "HF_TOKEN, HF_TOKEN_PATH (a file of mode 0600) and HF_HOME say the token, HF_ENDPOINT and\n"
    "MEDLEY_OLLAMA_REGISTRY name mirrors, HTTPS_PROXY and NO_PROXY proxies, SSL_CERT_FILE\n"
    "authorities. Models go to `pulled` in the state folder (MEDLEY_STATE_DIR).\n";

struct pull_flags {
    struct hub_settings hub;
    const char *name;
    bool json;
};

static const struct option_row own_options[] = {
    {.name = "sha256",
     .value = "HEX",
     .help = "the SHA-256 that the one file has to have",
     OPTION_TEXT(struct pull_flags, hub.sha256)},
    {.name = "token-file",
     .value = "FILE",
     .help = "a token for the server, in a file of mode 0600",
     OPTION_TEXT(struct pull_flags, hub.token_file)},
    {.name = "connections",
     .value = "N",
     .standard = "4",
     .help = "connections at once (default %s)",
     OPTION_U32(struct pull_flags, hub.connections, 1, PULL_CONNECTIONS_MAX)},
    {.name = "allow-http",
     .help = "take http:// from other machines; anybody on the way may read it",
     OPTION_TRUE(struct pull_flags, hub.allow_http)},
    {.name = "no-projector",
     .help = "leave the repository's projector (mmproj), with which the model sees pictures",
     OPTION_TRUE(struct pull_flags, hub.no_projector)},
    {.name = "json",
     .help = "a line of JSON for each look: {\"event\":\"progress\",…}",
     OPTION_TRUE(struct pull_flags, json)},
};

static const struct option_section sections[] = {
    {OPTION_ROWS(own_options), .column = 21, .end = ""},
    {0},
};

static void cmd_pull_json(const char *path, const struct hub_got *got)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    if (root) {
        yyjson_mut_doc_set_root(doc, root);
        yyjson_mut_obj_add_str(doc, root, "event", "done");
        yyjson_mut_obj_add_str(doc, root, "path", path);
        yyjson_mut_obj_add_uint(doc, root, "bytes", got->bytes);
        yyjson_mut_obj_add_uint(doc, root, "received", got->received);
        yyjson_mut_obj_add_bool(doc, root, "was_here", got->was_here);
        yyjson_mut_obj_add_bool(doc, root, "checked", got->is_checked);
    }
    char *text = root ? yyjson_mut_write_opts(doc, 0, &json_memory, NULL, NULL) : NULL;
    if (text)
        puts(text);
    mem_free(text);
    yyjson_mut_doc_free(doc);
}

static int cmd_pull_run(int argc, char **argv)
{
    struct pull_flags flags = {0};
    struct hub_name name;
    struct hub_got got;
    struct error err;
    char path[PATH_MAX];
    if (!options_parse(&command_pull, argc, argv, &flags) ||
        !option_rest(&command_pull, argc, argv, "which model? give a name such as hf:ORG/REPO",
                     &flags.name))
        return EXIT_USAGE;
    if (!hub_name_is_one(flags.name))
        return command_misused(
            &command_pull, "'%s' is a path; names begin with hf:, ollama: or https://", flags.name);
    if (hub_name_parse(flags.name, &name, &err) ||
        model_given_pull(&name, &flags.hub, flags.json, path, &got, &err))
        return command_fail(&command_pull, &err);
    if (flags.json) {
        cmd_pull_json(path, &got);
        return EXIT_OK;
    }
    fprintf(stderr, "%s %s, %s\n",
            got.was_here ? "was here:" : "pulled:", size_text(got.bytes).text,
            got.is_checked ? "checked by SHA-256"
                           : "not checked: the server says no SHA-256 (--sha256 does)");
    puts(path);
    return EXIT_OK;
}

const struct command command_pull = {
    .name = "pull",
    .summary = "bring a model here from a hub, a registry or a server",
    .usage = usage,
    .options = sections,
    .usage_end = usage_end,
    .run = cmd_pull_run,
};
