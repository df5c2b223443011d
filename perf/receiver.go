package perf

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// receiver receives messages on all queue pairs of a conn, and reposts receives in batches.
type receiver struct {
	*conn
	depth   int   // receives per queue pair
	used    []int // consumed receives, by queue pair
	wrs     []verbs.RecvWR
	wcs     []verbs.WC
	credits *creditSender // nil if the service needs no credits
	events  bool          // sleep while nothing arrives
}

// newReceiver returns a receiver of messages of this size, with recvs receives per queue pair. The
// first c.creditBase bytes of memory hold message buffers, which receives share if need be.
func newReceiver(c *conn, bytes, recvs int) *receiver {
	r := &receiver{
		conn: c, depth: recvs, used: make([]int, len(c.qps)),
		wrs: make([]verbs.RecvWR, recvs), wcs: make([]verbs.WC, pollBatch),
	}
	size := c.grhBytes + bytes
	slots := max(1, c.creditBase/size)
	for i := range r.wrs {
		r.wrs[i].SGL = []verbs.SGE{verbs.SGEOf(c.mr, i%slots*size, size)}
	}
	if c.side.Service.needsCredits() {
		r.credits = newCreditSender(c)
	}
	return r
}

// repostCount returns how many of a queue pair's recvs receives are reposted at a time.
func repostCount(recvs int) int { return max(1, recvs/4) }

// postAll posts all receives of all queue pairs.
func (r *receiver) postAll() error {
	for i := range r.qps {
		r.used[i] = r.depth // repost posts as many
		if err := r.repost(i); err != nil {
			return err
		}
	}
	return nil
}

// repost posts the used receives of a queue pair again. Their work request ID is qp, its index.
func (r *receiver) repost(qp int) error {
	wrs := r.wrs[:r.used[qp]]
	for k := range wrs {
		wrs[k].WRID = uint64(qp)
	}
	r.used[qp] = 0
	return r.postRecv(qp, wrs)
}

// poll processes received messages without waiting, and returns their number. It reposts
// used receives, and grants credits for them, in batches of repostCount.
func (r *receiver) poll() (int, error) {
	n, err := pollSuccess(r.recvs, r.wcs)
	if err != nil {
		return 0, err
	}
	for k := range n {
		qp := int(r.wcs[k].WRID)
		if r.used[qp]++; r.used[qp] < repostCount(r.depth) {
			continue
		}
		reposted := r.used[qp]
		if err := r.repost(qp); err != nil {
			return n, err
		}
		if r.credits != nil {
			if err := r.credits.send(qp, reposted); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// drain receives messages until all messages of the other side have arrived, and returns their
// number; got have arrived before. When the other side is done, it reports how many it has sent, as
// this side does with sent. With a lossy service, drain counts missing messages as lost after
// lossTimeout without an arrival.
func (r *receiver) drain(ctx context.Context, sent, got uint64) (uint64, error) {
	const unknown = ^uint64(0) // the other side is still sending
	type answer struct {
		sent uint64
		err  error
	}
	sentCount := make(chan answer, 1)
	r.side.start(func() {
		theirs, err := swap(ctx, r.side, sent)
		sentCount <- answer{theirs, err}
	})
	want := unknown
	timer := r.side.timer()
	for got < want {
		n, err := r.poll()
		if err != nil {
			return got, err
		}
		if got += uint64(n); n > 0 {
			timer.reset()
			continue
		}
		select {
		case a := <-sentCount:
			if a.err != nil {
				return got, a.err
			}
			want = a.sent
		default:
			switch waited := timer.waited(); {
			case want == unknown:
			case r.side.Service.isLossy() && waited > lossTimeout:
				return got, nil
			case waited > timer.limit:
				return got, fmt.Errorf("%d of %d messages arrived, and no more within %v", got, want, timer.limit)
			}
			if r.events {
				if err := r.sleep(); err != nil {
					return got, err
				}
			}
		}
	}
	return got, nil
}
