package perf

import (
	"context"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// inbox takes messages on all queue pairs of a conn and posts receives again
// in bursts.
type inbox struct {
	*conn
	each  int   // receives a queue pair
	spent []int // receives used, by queue pair
	wrs   []verbs.RecvWR
	wcs   []verbs.WC
	to    *grantor // nil: the sender need not know
}

func newInbox(c *conn, bytes, recvs int) *inbox {
	in := &inbox{
		conn: c, each: recvs, spent: make([]int, len(c.qps)),
		wrs: make([]verbs.RecvWR, recvs), wcs: make([]verbs.WC, 64),
	}
	size := c.area + bytes
	slots := max(1, c.credit/size)
	for i := range in.wrs {
		in.wrs[i].SGL = []verbs.SGE{verbs.SGEOf(c.mr, i%slots*size, size)}
	}
	if c.side.Service.credits() {
		in.to = newGrantor(c)
	}
	return in
}

// quarter is how many of a queue pair's receives are posted again at a time.
func quarter(recvs int) int { return max(1, recvs/4) }

// fill posts all receives of all queue pairs.
func (in *inbox) fill() error {
	for i := range in.qps {
		in.spent[i] = in.each
		if err := in.refill(i); err != nil {
			return err
		}
	}
	return nil
}

func (in *inbox) refill(i int) error {
	wrs := in.wrs[:in.spent[i]]
	for k := range wrs {
		wrs[k].WRID = uint64(i)
	}
	_, err := in.qps[i].PostRecv(wrs)
	in.spent[i] = 0
	return err
}

// take takes what has come, without waiting.
func (in *inbox) take() (int, error) {
	n, err := in.recvs.Poll(in.wcs)
	if err == nil {
		err = succeeded(in.wcs[:n])
	}
	if err != nil {
		return 0, err
	}
	for k := range n {
		i := int(in.wcs[k].WRID)
		if in.spent[i]++; in.spent[i] < quarter(in.each) {
			continue
		}
		again := in.spent[i]
		if err := in.refill(i); err != nil {
			return n, err
		}
		if in.to != nil {
			if err := in.to.grant(i, again); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// drain takes messages until as many have come as the other side says it has
// sent, or of datagrams as many as will, and returns how many did.
func (in *inbox) drain(ctx context.Context) (got uint64, err error) {
	type answer struct {
		tally
		err error
	}
	told := make(chan answer, 1)
	go func() {
		t, err := swap(ctx, in.side, tally{})
		told <- answer{t, err}
	}()
	want := ^uint64(0)
	var late overdue
	for got < want {
		n, err := in.take()
		if err != nil {
			return got, err
		}
		if got += uint64(n); n > 0 {
			late.reset()
			continue
		}
		select {
		case a := <-told:
			if a.err != nil {
				return got, a.err
			}
			want = a.Messages
		default:
			switch waited := late.waited(); {
			case want == ^uint64(0):
			case in.side.Service == Datagrams && waited > lull:
				return got, nil
			case waited > patience:
				return got, fmt.Errorf("%d of %d messages came, and no more within %v", got, want, patience)
			}
		}
	}
	return got, nil
}
