/* The certificate authorities that this system trusts, for libcurl: the folder that a library was
 * built for is another distribution's. */
#pragma once

/* A file in PEM: SSL_CERT_FILE of the environment, else the first that can be read of where
 * distributions keep it. NULL: none was found. Good until the environment changes; any thread. */
const char *authorities_file(void);
