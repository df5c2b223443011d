package perf

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// receiver receives messages on all queue pairs of a conn, and reposts receives in
// batches.
type receiver struct {
	*conn
	depth   int   // receives per queue pair
	used    []int // consumed receives, by queue pair
	wrs     []verbs.RecvWR
	wcs     []verbs.WC
	credits *creditSender // nil if the service needs no credits
}

func newReceiver(c *conn, bytes, recvs int) *receiver {
	r := &receiver{
		conn: c, depth: recvs, used: make([]int, len(c.qps)),
		wrs: make([]verbs.RecvWR, recvs), wcs: make([]verbs.WC, 64),
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

// repostCount returns how many receives are reposted at a time.
func repostCount(recvs int) int { return max(1, recvs/4) }

// postAll posts all receives of all queue pairs.
func (r *receiver) postAll() error {
	for i := range r.qps {
		r.used[i] = r.depth
		if err := r.repost(i); err != nil {
			return err
		}
	}
	return nil
}

func (r *receiver) repost(i int) error {
	wrs := r.wrs[:r.used[i]]
	for k := range wrs {
		wrs[k].WRID = uint64(i)
	}
	_, err := r.qps[i].PostRecv(wrs)
	r.used[i] = 0
	return err
}

// poll processes received messages without waiting, and returns their number.
func (r *receiver) poll() (int, error) {
	n, err := r.recvs.Poll(r.wcs)
	if err == nil {
		err = checkSuccess(r.wcs[:n])
	}
	if err != nil {
		return 0, err
	}
	for k := range n {
		i := int(r.wcs[k].WRID)
		if r.used[i]++; r.used[i] < repostCount(r.depth) {
			continue
		}
		reposted := r.used[i]
		if err := r.repost(i); err != nil {
			return n, err
		}
		if r.credits != nil {
			if err := r.credits.send(i, reposted); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// drain receives until all messages that the other side has sent have arrived, and
// returns their number. Of datagrams some may be lost.
func (r *receiver) drain(ctx context.Context) (got uint64, err error) {
	type answer struct {
		messageCount
		err error
	}
	sentCount := make(chan answer, 1)
	go func() {
		t, err := swap(ctx, r.side, messageCount{})
		sentCount <- answer{t, err}
	}()
	want := ^uint64(0)
	var timer spinTimer
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
			want = a.Messages
		default:
			switch waited := timer.waited(); {
			case want == ^uint64(0):
			case r.side.Service == ServiceUD && waited > lossTimeout:
				return got, nil
			case waited > waitTimeout:
				return got, fmt.Errorf("%d of %d messages arrived, and no more within %v", got, want, waitTimeout)
			}
		}
	}
	return got, nil
}
