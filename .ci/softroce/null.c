/* A provider that does nothing, to be preloaded before libibverbs: what is left of a post and a poll is the fabric's own
 * work, which `overhead` beside this file counts. Requests complete at once, in order, if they are signaled; with NULL_POLLS=N
 * in the environment at the poll after N that find nothing. With NULL_COUNT set, a process that ends says on its standard error how many
 * requests were posted and how many polls found nothing. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef ibv_query_port
#undef ibv_reg_mr

#define RING 1024
static __thread struct { uint64_t id; unsigned due; } done[RING];
static __thread unsigned posted, taken, polls;
static unsigned long requests, empty;
static unsigned delay;
static struct ibv_device device = {.name = "null0"};
static int next_number = 17;

__attribute__((constructor)) static void null_begin(void) {
  const char *n = getenv("NULL_POLLS");
  delay = n ? atoi(n) : 0;
}
__attribute__((destructor)) static void null_end(void) {
  if (getenv("NULL_COUNT")) fprintf(stderr, "null0: %lu requests, %lu empty polls\n", requests, empty);
}
static int null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  (void)qp, (void)bad;
  for (; wr; wr = wr->next) {
    requests++;
    if (!(wr->send_flags & IBV_SEND_SIGNALED)) continue;
    done[posted % RING].id = wr->wr_id;
    done[posted++ % RING].due = polls + delay;
  }
  return 0;
}
static int null_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
  (void)qp, (void)wr, (void)bad;
  return 0;
}
static int null_poll_cq(struct ibv_cq *cq, int room, struct ibv_wc *wc) {
  int n = 0;
  (void)cq;
  for (; n < room && taken != posted && (int)(polls - done[taken % RING].due) >= 0; n++, taken++) {
    wc[n].wr_id = done[taken % RING].id;
    wc[n].status = IBV_WC_SUCCESS;
    wc[n].opcode = IBV_WC_RDMA_READ;
    wc[n].wc_flags = 0;
  }
  polls++;
  if (!n) empty++;
  return n;
}

struct ibv_device **ibv_get_device_list(int *n) {
  struct ibv_device **list = calloc(2, sizeof *list);
  list[0] = &device;
  if (n) *n = 1;
  return list;
}
void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }
struct ibv_context *ibv_open_device(struct ibv_device *d) {
  struct ibv_context *c = calloc(1, sizeof *c);
  c->device = d;
  c->ops.post_send = null_post_send;
  c->ops.post_recv = null_post_recv;
  c->ops.poll_cq = null_poll_cq;
  return c;
}
int ibv_close_device(struct ibv_context *c) { free(c); return 0; }
int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a) {
  (void)c;
  memset(a, 0, sizeof *a);
  a->atomic_cap = IBV_ATOMIC_HCA;
  a->max_qp = a->max_mr = a->max_cqe = a->max_qp_wr = a->max_ah = 1 << 16;
  a->max_sge = 4, a->phys_port_cnt = 1;
  a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
  return 0;
}
int ibv_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *out) {
  struct ibv_port_attr a = {.state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = 1,
                            .link_layer = IBV_LINK_LAYER_ETHERNET, .active_width = 1, .active_speed = 1};
  (void)c, (void)port;
  memcpy(out, &a, offsetof(struct ibv_port_attr, port_cap_flags2));
  return 0;
}
int ibv_query_pkey(struct ibv_context *c, uint8_t port, int i, __be16 *key) { (void)c, (void)port, (void)i; *key = 0xffff; return 0; }
int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t i, struct ibv_gid_entry *e, uint32_t f, size_t n) {
  (void)c, (void)port, (void)f;
  memset(e, 0, n);
  e->gid.raw[15] = 1, e->gid_index = i, e->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c) { struct ibv_pd *p = calloc(1, sizeof *p); p->context = c; return p; }
int ibv_dealloc_pd(struct ibv_pd *p) { free(p); return 0; }
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *at, size_t n, int access) {
  struct ibv_mr *m = calloc(1, sizeof *m);
  (void)access;
  m->context = pd->context, m->pd = pd, m->addr = at, m->length = n, m->lkey = m->rkey = next_number++;
  return m;
}
int ibv_dereg_mr(struct ibv_mr *m) { free(m); return 0; }
struct ibv_cq *ibv_create_cq(struct ibv_context *c, int n, void *x, struct ibv_comp_channel *h, int v) {
  struct ibv_cq *q = calloc(1, sizeof *q);
  (void)x, (void)h, (void)v;
  q->context = c, q->cqe = n;
  return q;
}
int ibv_resize_cq(struct ibv_cq *q, int n) { q->cqe = n; return 0; }
int ibv_destroy_cq(struct ibv_cq *q) { free(q); return 0; }
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a) {
  struct ibv_qp *q = calloc(1, sizeof *q);
  (void)a;
  q->context = pd->context, q->pd = pd, q->qp_num = next_number++;
  return q;
}
int ibv_modify_qp(struct ibv_qp *q, struct ibv_qp_attr *a, int m) { (void)q, (void)a, (void)m; return 0; }
int ibv_query_qp(struct ibv_qp *q, struct ibv_qp_attr *a, int m, struct ibv_qp_init_attr *i) {
  (void)q, (void)m, (void)i;
  a->qp_state = IBV_QPS_RTS;
  return 0;
}
int ibv_destroy_qp(struct ibv_qp *q) { free(q); return 0; }
struct ibv_ah *ibv_create_ah(struct ibv_pd *p, struct ibv_ah_attr *a) { struct ibv_ah *h = calloc(1, sizeof *h); (void)a; h->context = p->context; return h; }
int ibv_destroy_ah(struct ibv_ah *h) { free(h); return 0; }
