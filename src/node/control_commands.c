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

/* A name has one type in all requests that have it. Numbers are checked with their ranges, where
 * they are read. */
static const struct control_member {
    const char *name, *must_be;
    bool (*is)(yyjson_val *value);
} control_members[] = {
    {"code", "a string", yyjson_is_str},         {"goal", "a string", yyjson_is_str},
    {"host", "a string", yyjson_is_str},         {"instance", "a string", yyjson_is_str},
    {"kv", "a string", yyjson_is_str},           {"model", "a string", yyjson_is_str},
    {"mute", "a string", yyjson_is_str},         {"name", "a string", yyjson_is_str},
    {"node", "a string", yyjson_is_str},         {"path", "a string", yyjson_is_str},
    {"role", "a string", yyjson_is_str},         {"scopes", "a string", yyjson_is_str},
    {"set", "a string", yyjson_is_str},          {"unmute", "a string", yyjson_is_str},
    {"what", "a string", yyjson_is_str},         {"words", "a string", yyjson_is_str},
    {"draft", "a string", yyjson_is_str},        {"agree", "true or false", yyjson_is_bool},
    {"follow", "true or false", yyjson_is_bool}, {"kinds", "true or false", yyjson_is_bool},
    {"on", "true or false", yyjson_is_bool},     {"undo", "true or false", yyjson_is_bool},
    {"layers", "an array", yyjson_is_arr},       {"models", "an array", yyjson_is_arr},
    {"places", "an array", yyjson_is_arr},       {"to", "an array", yyjson_is_arr},
    {"with", "an array", yyjson_is_arr},         {"without", "an array", yyjson_is_arr},
    {"draft_device", "a string", yyjson_is_str}, {"value", "a number", yyjson_is_num},
};

bool control_check_members(yyjson_val *request, struct error *err)
{
    for (size_t i = 0; i < sizeof control_members / sizeof *control_members; i++) {
        const struct control_member *member = &control_members[i];
        yyjson_val *value = yyjson_obj_get(request, member->name);
        if (value && !yyjson_is_null(value) && !member->is(value)) {
            error_set(err, ERROR_INVALID, "'%s' must be %s", member->name, member->must_be);
            return false;
        }
    }
    return true;
}
