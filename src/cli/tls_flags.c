#include "cli/tls_flags.h"

#include <string.h>

static bool tls_take_mode(const struct command *command, const struct option_row *row,
                          const char *value, void *flags)
{
    static const struct {
        const char *word;
        enum api_tls_mode mode;
    } modes[] = {{"auto", API_TLS_AUTO}, {"on", API_TLS_ON}, {"off", API_TLS_OFF}};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(value, modes[i].word) == 0) {
            ((struct api_tls_options *)flags)->mode = modes[i].mode;
            return true;
        }
    }
    command_misused(command, "%s takes auto, on or off, not '%s'", option_name(row), value);
    return false;
}

const struct option_row tls_options[TLS_OPTIONS] = {
    {.name = "tls",
     .value = "WHEN",
     .standard = "auto",
     .help = "%s (default): on every address but the loopback; on; off: in plain text",
     .take = tls_take_mode},
    {.name = "cert",
     .value = "FILE",
     .help = "show this certificate (PEM, with those between it and a root). Without:\n"
             "one that the cluster's authority signs; clients trust it with\n"
             "`medley ca export`",
     OPTION_TEXT(struct api_tls_options, certificate_path)},
    {.name = "key",
     .value = "FILE",
     .help = "its private key (PEM). Both are read again when they change",
     OPTION_TEXT(struct api_tls_options, key_path)},
};
