package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// shared are receives that all connections of a rail use. They are posted again in
// batches. If so few are left that senders may soon find none, they have run low: the rank
// was busy elsewhere, or there was a burst.
//
// A NIC can tell by itself that a queue runs low (verbs.EventSRQLimitReached), and that is
// of no use here: every packet makes a completion, which wakes who progresses beside the
// program, and a program that does so itself does it in its calls only.
type shared struct {
	rail  *rail
	queue verbs.SRQ
	recv  receives
	pool  *pool
	all   int
	most  int // that the queue can have
}

func (r *rail) openShared(cfg *Config) (err error) {
	s := &shared{rail: r, most: cfg.SharedReceives}
	if r.limited() {
		const each = 2 // one that is given back may still be there when the next is made
		s.most = max(s.most, min(each*(r.c.env.Size-1)*(cfg.Receives+reserve), r.attr.MaxSRQWR))
	}
	s.queue, err = r.dev.CreateSRQ(verbs.SRQInit{PD: r.pd, MaxWR: s.most, MaxSGE: 1})
	if err != nil {
		return fmt.Errorf("a shared receive queue of %d: %w", s.most, err)
	}
	r.srq = s
	s.recv = receives{c: r.c, rail: r, post: s.queue.PostRecv, size: cfg.PacketSize}
	s.pool = r.c.newPool(SharedReceiveBuffers, cfg.PacketSize, cfg.SharedReceives)
	return s.add(cfg.SharedReceives)
}

// add posts n more.
func (s *shared) add(n int) error {
	if err := s.rail.promise(n); err != nil {
		return err
	}
	s.all += n
	return s.recv.fill(s.pool, n)
}

// fit sees to it that there are enough for some connections, where nobody waits for a
// receive: one for everything that peers may send.
func (s *shared) fit(connections int) error {
	c := s.rail.c
	need := connections * (c.cfg.Receives + reserve)
	switch {
	case !s.rail.limited() || need <= s.all:
		return nil
	case need > s.most:
		return fmt.Errorf("%d connections share %d receives, and the NIC has %d: take the design %s, or fewer receives a connection", connections, need, s.most, SendRecv)
	}
	return s.add(need - s.all)
}

// limited reports whether packets that find no receive end a connection, instead of
// waiting for one: iWARP's do.
func (r *rail) limited() bool { return r.iwarp }

// low reports whether there are few left.
func (s *shared) low() bool { return s.all-len(s.recv.used) <= s.rail.c.cfg.LowWatermark }

// wantsRefill reports whether enough were used to be posted again.
func (s *shared) wantsRefill() bool {
	const batches = 8
	return s.low() || len(s.recv.used) >= max(1, s.all/batches)
}

// refill posts used receives again, if there are a few.
func (s *shared) refill() {
	if !s.wantsRefill() {
		return
	}
	c := s.rail.c
	if s.low() {
		c.stats.LowWatermark++
	}
	if err := s.recv.flush(); err != nil {
		c.fault(err)
	}
}
