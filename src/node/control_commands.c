/* The requests that the control socket knows. */
#include "node/control.h"

#include <string.h>

control_request_fn control_find(const char *name)
{
    static const struct {
        const char *name;
        control_request_fn request;
    } requests[] = {
        // clang-format off: one a line, so that two additions do not meet
        {"status", control_status},
        {"nodes", control_nodes},
        {"links", control_links},
        {"cluster", control_cluster},
        {"invite", control_invite},
        {"join", control_join},
        {"admit", control_admit},
        {"remove", control_remove},
        {"leave", control_leave},
        {"add", control_add},
        {"forget", control_forget},
        {"place", control_place},
        {"plan", control_plan},
        {"drain", control_drain},
        {"move", control_move},
        {"moves", control_moves},
        {"unload", control_unload},
        {"events", control_events},
        {"live", control_live},
        {"generate", control_generate},
        {"where", control_where},
        {"token", control_token},
        {"role", control_role},
        {"authority", control_authority},
        {"audit", control_audit},
        {"alerts", control_alerts},
        {"lend", control_lend},
        // clang-format on
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (strcmp(requests[i].name, name) == 0)
            return requests[i].request;
    }
    return NULL;
}
