/* The provider of null.c with a clock of its own: a device that takes REQUEST_NS for each request, one after the other, and
 * stamps completions with a counter of CLOCK_KHZ that has so few BITS that it wraps thrice a second. `stamps` beside this
 * file looks for the rate that this must give. */
#define ibv_open_device plain_open_device
#define ibv_close_device plain_close_device
#include "null.c"
#undef ibv_open_device
#undef ibv_close_device
#include <errno.h>
#include <time.h>

#define CLOCK_KHZ 100000
#define BITS 25
#define REQUEST_NS 10000

/* The fabric knows this end of the structure by heart (fabric/verbs/stamps.rs). */
#define FROM_CONTEXT(field) (offsetof(struct verbs_context, context) - offsetof(struct verbs_context, field))
_Static_assert(FROM_CONTEXT(create_cq_ex) == 15 * sizeof(void *), "create_cq_ex");
_Static_assert(FROM_CONTEXT(query_device_ex) == 13 * sizeof(void *), "query_device_ex");
_Static_assert(FROM_CONTEXT(sz) == sizeof(void *), "sz");

static __thread struct { uint64_t id, due; } queue[RING];
static __thread unsigned in, out;
static __thread uint64_t busy_until;
static __thread int standing;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static int stamped_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
  uint64_t at = now();
  (void)qp, (void)bad;
  if (busy_until < at) busy_until = at;
  for (; wr; wr = wr->next) {
    busy_until += REQUEST_NS;
    if (!(wr->send_flags & IBV_SEND_SIGNALED)) continue;
    queue[in % RING].id = wr->wr_id;
    queue[in++ % RING].due = busy_until;
  }
  return 0;
}
static int stand(struct ibv_cq_ex *q) {
  standing = in != out && queue[out % RING].due <= now();
  if (!standing) return ENOENT;
  q->wr_id = queue[out % RING].id, q->status = IBV_WC_SUCCESS;
  return 0;
}
static int start_poll(struct ibv_cq_ex *q, struct ibv_poll_cq_attr *a) { (void)a; return stand(q); }
static int next_poll(struct ibv_cq_ex *q) { out++; return stand(q); }
static void end_poll(struct ibv_cq_ex *q) { (void)q; out += standing, standing = 0; }
static uint64_t read_stamp(struct ibv_cq_ex *q) {
  (void)q;
  return queue[out % RING].due * CLOCK_KHZ / 1000000 & ((1ull << BITS) - 1);
}
static struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a) {
  struct ibv_cq_ex *q;
  if (!(a->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)) return errno = EOPNOTSUPP, NULL;
  q = calloc(1, sizeof *q);
  q->context = c, q->cqe = a->cqe, q->cq_context = a->cq_context;
  q->start_poll = start_poll, q->next_poll = next_poll, q->end_poll = end_poll, q->read_completion_ts = read_stamp;
  return q;
}
static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *i, struct ibv_device_attr_ex *a, size_t n) {
  (void)i;
  memset(a, 0, n);
  a->completion_timestamp_mask = (1ull << BITS) - 1, a->hca_core_clock = CLOCK_KHZ;
  return ibv_query_device(c, &a->orig_attr);
}
struct ibv_context *ibv_open_device(struct ibv_device *d) {
  struct verbs_context *v = calloc(1, sizeof *v);
  v->sz = sizeof *v, v->context.device = d, v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  v->create_cq_ex = create_cq_ex, v->query_device_ex = query_device_ex;
  v->context.ops.post_send = stamped_post_send, v->context.ops.post_recv = null_post_recv;
  return &v->context;
}
int ibv_close_device(struct ibv_context *c) { free(verbs_get_ctx(c)); return 0; }
