package carrier

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// shared are receives that all connections of a rail use. They are posted again in
// batches, when few are left. A NIC can tell when that is so; but who takes in every
// packet knows it earlier.
type shared struct {
	rail  *rail
	queue verbs.SRQ
	recv  receives
	all   int
}

func (r *rail) openShared(cfg *Config) (err error) {
	s := &shared{rail: r, all: cfg.SharedReceives}
	if r.limited() { // nobody waits for a receive: there must be one for everything that peers may send
		s.all = max(s.all, (r.c.env.Size-1)*(cfg.Receives+reserve))
	}
	if err := r.promise(s.all); err != nil {
		return err
	}
	s.queue, err = r.dev.CreateSRQ(verbs.SRQInit{PD: r.pd, MaxWR: s.all, MaxSGE: 1})
	if err != nil {
		return fmt.Errorf("a shared receive queue of %d: %w", s.all, err)
	}
	r.srq = s
	s.recv = receives{c: r.c, rail: r, post: s.queue.PostRecv, size: cfg.Packet}
	return s.recv.fill(r.c.newPool(SharedBuffers, cfg.Packet, s.all), s.all)
}

// limited reports whether packets that find no receive end a connection, instead of
// waiting for one: iWARP's do.
func (r *rail) limited() bool { return r.dev.Info().Transport == verbs.TransportIWARP }

// low reports whether there are few left.
func (s *shared) low() bool { return s.all-len(s.recv.used) <= s.rail.c.cfg.LowWatermark }

// refill posts used receives again if there are few left.
func (s *shared) refill() {
	if !s.low() {
		return
	}
	c := s.rail.c
	c.stats.LowWatermark++
	if err := s.recv.flush(); err != nil {
		c.fault(err)
	}
}
