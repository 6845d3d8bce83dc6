/* The loops of examples/overhead written straight to libibverbs as perftest writes them: a request that is filled in once, of which a
 * post sets what changes (id, remote address, flags). What `overhead` beside this file takes as the cost of the raw calls.
 *
 *     raw DEVICE read|write|cas bw|lat|mixed BYTES ITERATIONS
 *
 * `bw` keeps 128 requests outstanding, signals every hundredth, and polls 16 at a time; `lat` posts one and polls until it
 * is done, and `mixed` does so with READ, WRITE and CAS in turns, setting all that differs between them. Only for the null provider: nothing is connected. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_qp *qp;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static struct ibv_sge sge;
static struct ibv_send_wr wr;

static void fill(enum ibv_wr_opcode opcode, uint32_t len) {
  sge = (struct ibv_sge){.addr = (uintptr_t)mr->addr, .length = len, .lkey = mr->lkey};
  wr = (struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = opcode};
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.rkey = mr->rkey;
  else wr.wr.rdma.rkey = mr->rkey;
}
__attribute__((noinline)) static void post(uint64_t id, uint64_t remote, int signaled) {
  struct ibv_send_wr *bad;
  wr.wr_id = id;
  wr.send_flags = signaled ? IBV_SEND_SIGNALED : 0;
  if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.remote_addr = remote;
  else wr.wr.rdma.remote_addr = remote;
  if (ibv_post_send(qp, &wr, &bad)) abort();
}
__attribute__((noinline)) static void post_as(enum ibv_wr_opcode opcode, uint64_t id, uint64_t remote, int signaled) {
  wr.opcode = opcode;
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    wr.wr.atomic.rkey = mr->rkey;
    wr.wr.atomic.compare_add = wr.wr.atomic.swap = 0;
  } else wr.wr.rdma.rkey = mr->rkey;
  post(id, remote, signaled);
}
__attribute__((noinline)) static int poll(void) {
  struct ibv_wc wc[16];
  int n = ibv_poll_cq(cq, 16, wc);
  for (int i = 0; i < n; i++)
    if (wc[i].status != IBV_WC_SUCCESS) abort();
  return n;
}

int main(int argc, char **argv) {
  if (argc != 6) return 2;
  enum ibv_wr_opcode opcode = !strcmp(argv[2], "read") ? IBV_WR_RDMA_READ : !strcmp(argv[2], "write") ? IBV_WR_RDMA_WRITE : IBV_WR_ATOMIC_CMP_AND_SWP;
  int latency = !strcmp(argv[3], "lat"), found = 0;
  uint32_t len = atoi(argv[4]);
  long n = atol(argv[5]), posted = 0, done = 0;
  struct ibv_device **list = ibv_get_device_list(&found);
  struct ibv_context *context = ibv_open_device(list[0]);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  mr = ibv_reg_mr(pd, calloc(1, 4096), 4096, 0);
  cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
  struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
  qp = ibv_create_qp(pd, &init);
  fill(opcode, len);
  if (!strcmp(argv[3], "mixed")) {
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_CMP_AND_SWP};
    for (int next = 0; posted < n; posted++, done++, next = next == 2 ? 0 : next + 1) {
      post_as(opcodes[next], posted, (uintptr_t)mr->addr + 64, 1);
      while (!poll()) {}
    }
  } else if (latency)
    for (; posted < n; posted++) {
      post(posted, (uintptr_t)mr->addr + 64, 1);
      while (!poll()) {}
    }
  else
    while (done < n) {
      while (posted < n && posted - done < 128) {
        posted++;
        post(posted, (uintptr_t)mr->addr + 64, posted % 100 == 0 || posted == n);
      }
      done += poll() * 100;
      if (done > n) done = n;
    }
  printf("%ld\n", done);
  return 0;
}
