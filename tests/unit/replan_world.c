#include "replan_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct world world;
struct replan_device disks[WORLD_DEVICES];
struct replan_layout layout;
struct replan_input input;
struct replan_options options;
struct replan_state state;
struct replan_decision decision;

void replan_world_start(double disk_bytes_per_s)
{
    options = replan_options_default();
    state = (struct replan_state){0};
    for (uint32_t i = 0; i < WORLD_DEVICES; i++)
        disks[i] = (struct replan_device){disk_bytes_per_s};
    input = (struct replan_input){
        .problem = &world.problem, .devices = disks, .current = &layout, .tokens = 1e5};
}

void replan_world_set_layout(const struct placement *placement)
{
    layout = replan_layout_of(&world.problem, placement);
}

void replan_world_step(double now_s)
{
    struct error err;
    input.now_s = now_s;
    if (replan(&input, &options, &state, &state, &decision, &err))
        fail_msg("%s", err.text);
}
