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
}

func newInbox(c *conn, bytes, recvs int) *inbox {
	in := &inbox{
		conn: c, each: recvs, spent: make([]int, len(c.qps)),
		wrs: make([]verbs.RecvWR, recvs), wcs: make([]verbs.WC, 64),
	}
	slots := max(1, c.mr.Len()/bytes)
	for i := range in.wrs {
		in.wrs[i].SGL = []verbs.SGE{verbs.SGEOf(c.mr, i%slots*bytes, bytes)}
	}
	return in
}

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
		if in.spent[i]++; in.spent[i] >= in.each/4 {
			if err := in.refill(i); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// drain takes messages until as many have come as the other side says it has
// sent.
func (in *inbox) drain(ctx context.Context) error {
	type answer struct {
		tally
		err error
	}
	told := make(chan answer, 1)
	go func() {
		t, err := swap(ctx, in.side, tally{})
		told <- answer{t, err}
	}()
	var got uint64
	want := ^uint64(0)
	var late overdue
	for got < want {
		n, err := in.take()
		if err != nil {
			return err
		}
		if got += uint64(n); n > 0 {
			late.reset()
			continue
		}
		select {
		case a := <-told:
			if a.err != nil {
				return a.err
			}
			want = a.Messages
		default:
			if want != ^uint64(0) && late.yet() {
				return fmt.Errorf("%d of %d messages came, and no more within %v", got, want, patience)
			}
		}
	}
	return nil
}
