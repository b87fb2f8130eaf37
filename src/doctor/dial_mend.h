/* What mends a dial that failed. Pure. */
#pragma once

/* By what the dial says of its failure (the mesh's own words, libuv's and OpenSSL's); of other
 * words, and NULL, what may be wrong with a peer at all. Never NULL. */
const char *doctor_dial_mend(const char *why);
