/* What the files of hub.h share. */
#pragma once

#include "hub/hub.h"

#define HUB_HF_BASE "https://huggingface.co"
#define HUB_OLLAMA_BASE "https://registry.ollama.ai"

/* Where a file of the list is, and what it is called here. ERROR_INVALID: too long. */
enum error_code hub_file_url(const struct hub_list *list, uint32_t file, char out[HUB_URL_TEXT],
                             struct error *err);
/* The same of a layer of Ollama's. */
enum error_code hub_blob_url(const struct hub_list *list, const char *sha256,
                             char out[HUB_URL_TEXT], struct error *err);
enum error_code hub_file_path(const struct hub_list *list, const char *folder, uint32_t file,
                              char out[PATH_MAX], struct error *err);
/* Leaves the models that the name says: `n`, at most as before. */
uint32_t hub_keep_named(const struct hub_name *name, const struct hub_files *files,
                        struct hub_model_entry *models, uint32_t n);
/* The last piece of a path with '/'. */
const char *hub_base(const char *path);
