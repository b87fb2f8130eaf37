/* Every command of the medley binary, one file each; main.c lists them for the user. */
#pragma once

#include "cli/command.h"

/* All of them, NULL at the end. */
const struct command *const *command_list(void);

extern const struct command command_completion;
extern const struct command command_devices;
extern const struct command command_top;
extern const struct command command_heat;
extern const struct command command_inspect;
extern const struct command command_convert;
extern const struct command command_perplexity;
extern const struct command command_compare;
extern const struct command command_run;
extern const struct command command_plan;
extern const struct command command_pull;
extern const struct command command_serve;
extern const struct command command_up;
extern const struct command command_ca;
extern const struct command command_nodes;
extern const struct command command_links;
extern const struct command command_status;
extern const struct command command_events;
extern const struct command command_alerts;
extern const struct command command_audit;
extern const struct command command_invite;
extern const struct command command_join;
extern const struct command command_admit;
extern const struct command command_remove;
extern const struct command command_role;
extern const struct command command_authority;
extern const struct command command_leave;
extern const struct command command_add;
extern const struct command command_forget;
extern const struct command command_place;
extern const struct command command_unload;
extern const struct command command_service;
extern const struct command command_doctor;
extern const struct command command_drain;
extern const struct command command_lend;
extern const struct command command_token;
extern const struct command command_models;
extern const struct command command_move;
extern const struct command command_sim;
extern const struct command command_bench;
extern const struct command command_logits;
extern const struct command command_embed;
extern const struct command command_rerank;
extern const struct command command_tokenize;
extern const struct command command_detokenize;
extern const struct command command_render;
