package perf

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// PingPong sends a message there and back, again and again.
type PingPong struct {
	Bytes  int // of a message; 0 means 8
	Rounds int // 0 means 10000
	// Blocking makes both sides sleep until a completion event comes; otherwise
	// both poll without end.
	Blocking bool
	// Confirmed makes each side wait for the completion of its own message, too,
	// before it looks for the other's. It is what programs do that reuse one
	// buffer at once.
	Confirmed bool
}

// turns is how many round trips are timed as one, so that reading the clock is
// no part of the result.
const turns = 50

const (
	pingRecvs = 64
	pingSends = 64
	// pingSignal is how many messages share one completion.
	pingSignal = 16
)

// Run plays a side. The client gets the median half round trip in µs.
func (p PingPong) Run(ctx context.Context, s *Side) (halfMicros float64, err error) {
	p.Bytes, p.Rounds = orElse(p.Bytes, 8), orElse(p.Rounds, 10_000)
	c, err := s.connect(ctx, shape{qps: 1, sends: pingSends, recvs: pingRecvs, memory: 2 * p.Bytes, notify: p.Blocking})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	pl := &player{
		PingPong: p, conn: c, wcs: make([]verbs.WC, pingRecvs),
		recv: slices.Repeat([]verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(c.mr, p.Bytes, c.area+p.Bytes)}}}, pingRecvs),
		send: []verbs.SendWR{{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(c.mr, 0, p.Bytes)}}},
	}
	c.aim(pl.send, 0)
	if err := pl.receives(pingRecvs); err != nil {
		return 0, err
	}
	if err := s.meet(ctx); err != nil { // both have receives posted
		return 0, err
	}
	times, err := pl.play(ctx, s.Role)
	if err == nil {
		err = s.meet(ctx) // neither side goes while the other may still need it
	}
	if err != nil {
		return 0, fmt.Errorf("ping-pong, %v: %w", s.Role, err)
	}
	if len(times) == 0 {
		return 0, nil
	}
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1e3 / turns / 2, nil
}

// player is one side of a ping-pong under way.
type player struct {
	PingPong
	*conn
	recv []verbs.RecvWR
	send []verbs.SendWR
	wcs  []verbs.WC

	posted, confirmed int // sends
	taken             int // messages whose receives are not yet posted again
}

func (p *player) play(ctx context.Context, role Role) (times []time.Duration, err error) {
	const warmup = 4
	for range warmup + max(1, p.Rounds/turns) {
		start := time.Now()
		for range turns {
			first, then := p.serve, p.await
			if role == Server {
				first, then = then, first
			}
			if err = first(); err == nil {
				err = then()
			}
			if err == nil && p.taken >= pingRecvs/4 {
				err = p.receives(p.taken)
				p.taken = 0
			}
			if err != nil {
				return nil, err
			}
		}
		if role == Client {
			times = append(times, time.Since(start))
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return times[min(len(times), warmup):], nil
}

// receives posts n receives. A program that has many may post them a few at a
// time, and never while the other side waits.
func (p *player) receives(n int) error {
	_, err := p.qps[0].PostRecv(p.recv[:n])
	return err
}

// serve sends one message.
func (p *player) serve() error {
	p.posted++
	p.send[0].Flags = 0
	if signal := p.posted%pingSignal == 0; signal || p.Confirmed {
		p.send[0].Flags = verbs.SendSignaled
		if signal {
			if err := p.confirm(p.posted - pingSends + pingSignal); err != nil {
				return err
			}
		}
	}
	if _, err := p.qps[0].PostSend(p.send); err != nil {
		return err
	}
	if p.Confirmed {
		return p.confirm(p.posted)
	}
	return nil
}

// confirm takes completions of sends until so many are known to be done.
func (p *player) confirm(sends int) error {
	var late overdue
	for p.confirmed < sends {
		n, err := p.sends.Poll(p.wcs)
		if err == nil {
			err = succeeded(p.wcs[:n])
		}
		if err != nil {
			return err
		}
		if p.Confirmed {
			p.confirmed += n
		} else {
			p.confirmed += n * pingSignal
		}
		if n == 0 && late.yet() {
			return fmt.Errorf("no completion of a send within %v", patience)
		}
	}
	return nil
}

// await takes one message.
func (p *player) await() error {
	var late overdue
	for {
		if got, err := p.take(); got || err != nil {
			return err
		}
		if !p.Blocking {
			if late.yet() {
				return fmt.Errorf("no message within %v", patience)
			}
			continue
		}
		if err := p.recvs.ReqNotify(false); err != nil {
			return err
		}
		// One may have come before the queue was armed.
		if got, err := p.take(); got || err != nil {
			return err
		}
		if _, err := p.events.Wait(patience); err != nil {
			return err
		}
	}
}

// take takes a message if one is there.
func (p *player) take() (bool, error) {
	n, err := p.recvs.Poll(p.wcs[:1])
	if err == nil {
		err = succeeded(p.wcs[:n])
	}
	p.taken += n
	return n > 0, err
}

func orElse[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}
