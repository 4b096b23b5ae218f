/* An NVML without a GPU: one device, whose counter rises by 1,500 mJ at each reading. */
#include <string.h>

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  static int only;
  *device = &only;
  return strcmp(uuid, "GPU-7a") ? 6 /* not found */ : 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy) {
  static unsigned long long count = 5000000000ULL; /* more than 32 bits */
  *energy = count += 1500;
  return device ? 0 : 2 /* invalid argument */;
}
