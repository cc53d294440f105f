"""Host segments as loop nests that libopu executes (`runtime/src/opu_host.c`)."""
