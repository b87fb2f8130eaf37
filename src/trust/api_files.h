/* What this machine keeps for the API's TLS, in the folder "api" of the state folder
 * (secret_files.h says who may read it):
 *
 *     authority.pem   the machine's own authority, certificate and key; made when it is first
 *                     needed: by a machine that is in no cluster
 *     signed.pem      what an admin signed for a plain member (api_signed.h)
 *
 * Threads: none. */
#pragma once

#include "base/buffer.h"
#include "trust/api_authority.h"

/* The machine's own authority, made where there is none. No folder (NULL or ""): a new one, kept in
 * memory only. A damaged file is an error: clients trust what it held. */
enum error_code api_files_own_authority(const char *state_folder, struct api_authority *out,
                                        struct error *err);

/* Every certificate that clients of this machine's API may have to trust, as PEM: its cluster's
 * authority, then its own, where they exist. ERROR_NOT_FOUND: there is none yet. */
enum error_code api_files_export(const char *state_folder, struct buffer *out, struct error *err);
