/* The token that a hub knows its user by. Secret: never logged, never in an error.
 *
 *     --token-file FILE, HF_TOKEN, the file of HF_TOKEN_PATH,
 *     $CREDENTIALS_DIRECTORY/medley.hub-token, $HF_HOME/token, ~/.cache/huggingface/token
 *
 * The first that is there counts. A file has to be its user's alone (mode 0600): one that others
 * may read is refused where it was named, and left alone where it was only looked for. Credentials
 * are guarded by the service manager that gives them (systemd.exec(5)). */
#pragma once

#include "hub/http.h"

/* out: "" where there is none. ERROR_INVALID: what is there is no token, or others may read it. */
enum error_code hub_token(const char *file, char out[HTTP_TOKEN], struct error *err);
