package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// Rate sends small messages, each of its own, over one or more queue pairs.
type Rate struct {
	Bytes    int           // of a message; 0 means 64
	Depth    int           // messages on their way, a queue pair; 0 means 64
	QPs      int           // 0 means 1
	Duration time.Duration // 0 means 100 ms
}

// Run plays a side. The client gets messages a second.
func (r Rate) Run(ctx context.Context, s *Side) (perSecond float64, err error) {
	r.Bytes, r.Depth, r.QPs = orElse(r.Bytes, 64), orElse(r.Depth, 64), orElse(r.QPs, 1)
	r.Duration = orElse(r.Duration, 100*time.Millisecond)
	recvs := 2 * r.Depth
	c, err := s.connect(ctx, shape{qps: r.QPs, sends: r.Depth, recvs: recvs, memory: max(streamMemory, r.Bytes)})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if s.Role == Server {
		in := newInbox(c, r.Bytes, recvs)
		if err = in.fill(); err == nil {
			err = s.meet(ctx)
		}
		if err == nil {
			err = in.drain(ctx)
		}
	} else if err = s.meet(ctx); err == nil {
		perSecond, err = r.drive(ctx, c)
	}
	if err != nil {
		return 0, fmt.Errorf("rate of %d bytes, %d queue pairs, %v: %w", r.Bytes, r.QPs, s.Role, err)
	}
	return perSecond, s.meet(ctx)
}

// drive keeps all queue pairs full until time is up. A quarter of a queue is
// posted at a time, and its last message tells when all of it is done.
func (r Rate) drive(ctx context.Context, c *conn) (perSecond float64, err error) {
	burst := make([]verbs.SendWR, max(1, r.Depth/4))
	for i := range burst {
		burst[i] = verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(c.mr, i*r.Bytes%(streamMemory-r.Bytes), r.Bytes)}}
	}
	burst[len(burst)-1].Flags = verbs.SendSignaled
	wcs := make([]verbs.WC, 64)
	free := make([]int, r.QPs)
	for i := range free {
		free[i] = r.Depth
	}
	total, open, counted := 0, 0, 0
	post := func(i int) error {
		for free[i] >= len(burst) {
			burst[len(burst)-1].WRID = uint64(i)
			if _, err := c.qps[i].PostSend(burst); err != nil {
				return err
			}
			free[i] -= len(burst)
			open += len(burst)
		}
		return nil
	}
	for i := range free {
		if err := post(i); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	warm := start.Add(r.Duration / 10)
	var late overdue
	for over := false; open > 0; {
		n, err := c.sends.Poll(wcs)
		if err == nil {
			err = succeeded(wcs[:n])
		}
		if err != nil {
			return 0, err
		}
		if n == 0 {
			if late.yet() {
				return 0, fmt.Errorf("%d messages did not complete within %v", open, patience)
			}
			continue
		}
		late.reset()
		now := time.Now()
		over = over || now.Sub(start) >= r.Duration && counted > 0 || ctx.Err() != nil
		for k := range n {
			i := int(wcs[k].WRID)
			free[i] += len(burst)
			total, open = total+len(burst), open-len(burst)
			if !over {
				if err := post(i); err != nil {
					return 0, err
				}
			}
		}
		if counted == 0 && now.After(warm) {
			start, counted = now, total
		}
	}
	took := time.Since(start)
	if _, err := swap(ctx, c.side, tally{Messages: uint64(total)}); err != nil {
		return 0, err
	}
	return float64(total-counted) / took.Seconds(), nil
}
