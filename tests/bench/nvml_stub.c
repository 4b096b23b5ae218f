/* An NVML without a GPU: one device, whose counter rises by 1,500 mJ at each reading, and whose
   clock has been lowered by power for a further second; it tells of no hardware slowdown. */
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

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz) {
  *mhz = 1755;
  return device && clock == 1 /* of the multiprocessors */ ? 0 : 2;
}

typedef struct { /* nvmlFieldValue_t */
  unsigned field, scope;
  long long at_us, latency_us;
  int kind, code;
  union { double d; int i; unsigned u; unsigned long l; unsigned long long ll; long long s; } value;
} Field;

int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
  static unsigned long long power_ns = 7000000000ULL;
  for (int i = 0; i < count; i++) {
    fields[i].kind = 3; /* an unsigned long long */
    fields[i].code = fields[i].field > 75 ? 3 /* not supported */ : 0;
    fields[i].value.ll = fields[i].field == 74 ? power_ns += 1000000000 : 0;
  }
  return device ? 0 : 2;
}
