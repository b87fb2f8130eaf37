/* A replan step by step, of whatever problem is in `world`. */
#pragma once

#include "placement/replan.h"
#include "placement_world.h"

extern struct world world;
extern struct replan_device disks[WORLD_DEVICES];
extern struct replan_layout layout; /* what runs now */
extern struct replan_input input;
extern struct replan_options options;
extern struct replan_state state;
extern struct replan_decision decision; /* of the last step */

void replan_world_start(double disk_bytes_per_s); /* afresh, with every disk this fast */
void replan_world_set_layout(const struct placement *placement);
void replan_world_step(double now_s);
