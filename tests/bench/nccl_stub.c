/* An NCCL without a GPU: it answers for its version, and writes of its connections as NCCL does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef INSIDE /* linked into another library: its functions are hidden, its line of text is not */
__attribute__((used)) static const char line_of_version[] = "NCCL version " INSIDE "+cuda12.1";
#else
static FILE *out;

int ncclGetVersion(int *version) {
  *version = CODE;
  return 0;
}

static void start(void) { /* reads its variables once, at the first call */
  static int started;
  char path[4096], *to = path;
  const char *level = getenv("NCCL_DEBUG"), *name = getenv("NCCL_DEBUG_FILE");
  if (started++ || level == NULL || strcmp(level, "INFO") || name == NULL) return;
  for (; *name; name++) {
    if (!strncmp(name, "%p", 2)) to += sprintf(to, "%d", getpid()), name++;
    else *to++ = *name;
  }
  *to = 0;
  out = fopen(path, "w");
  if (out) fprintf(out, "host:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n");
}

int ncclAllReduce(void) { /* a number other than 0 where it writes of each call */
  const char *parts = getenv("NCCL_DEBUG_SUBSYS");
  start();
  return out && parts && strstr(parts, "COLL") != NULL;
}
#endif
