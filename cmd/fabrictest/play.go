package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// outcome is what became of a scenario: a row of the table.
type outcome struct {
	ID          string        `json:"id"`
	Service     string        `json:"service"`
	Network     string        `json:"network"`
	Messages    int           `json:"messages"` // that were to be sent
	Delivered   int           `json:"delivered"`
	Bytes       int64         `json:"bytes"` // delivered
	PacketsLost uint64        `json:"packets_lost"`
	Resent      uint64        `json:"packets_resent"`
	Marked      uint64        `json:"packets_marked"`
	CNPs        uint64        `json:"cnps"`
	Elapsed     time.Duration `json:"virtual_ns"`
	GoodputBps  uint64        `json:"goodput_bps"`
	OK          bool          `json:"ok"`
	Problem     string        `json:"problem,omitempty"`
	Command     string        `json:"command"` // repeats it alone
}

// play runs a scenario in a world of its own.
func (o *options) play(s *scenario, capture io.Writer) (outcome, error) {
	out := outcome{ID: s.id, Service: s.service, Network: s.network.name, Command: o.command(s.id)}
	tap := tap{to: capture, snapLen: o.snapLen, comment: out.Command}
	if s.calls && o.cutAsNeeded && o.snapLen > 0 {
		tap.snapLen = madSnapLen
	}
	f, err := newFabric(s, rowSeed(o.seed, s.id), o.messages, &o.flaws, tap)
	if err != nil {
		return out, err
	}
	parties, err := f.exchange(s, o.messages)
	for _, p := range parties {
		out.add(p.tally())
	}
	out.PacketsLost, out.Marked = f.lost()
	for _, d := range f.hosts {
		for _, c := range d.Counters() {
			switch c.Name {
			case "retransmitted_pkts":
				out.Resent += c.Value
			case "cnps_handled":
				out.CNPs += c.Value
			}
		}
	}
	if out.Elapsed > 0 {
		out.GoodputBps = uint64(float64(out.Bytes) * 8 / out.Elapsed.Seconds())
	}
	if cerr := f.close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = errors.Join(f.unfired(), s.expect(&out))
	}
	out.OK = err == nil
	if err != nil {
		out.Problem = err.Error()
	}
	return out, nil
}

// add counts what one program has done.
func (o *outcome) add(t tally) {
	o.Messages += t.asked
	o.Delivered += t.delivered
	o.Bytes += t.bytes
	o.Elapsed = max(o.Elapsed, t.elapsed)
}

// expect is what must hold of a scenario beyond what the ends check.
func (s *scenario) expect(o *outcome) error {
	switch {
	case s.network.exact && (o.PacketsLost != exactLosses || o.Resent != exactLosses):
		return fmt.Errorf("%d packets lost and %d sent again, want %d of each", o.PacketsLost, o.Resent, exactLosses)
	case s.network.excuses.Loses:
		return nil
	case o.PacketsLost > 0:
		return fmt.Errorf("%d packets lost on a network that loses none", o.PacketsLost)
	case o.Resent > 0:
		return fmt.Errorf("%d packets sent again though none was lost", o.Resent)
	}
	return nil
}

// rowSeed gives each scenario, and each flow in it, a seed that depends on
// nothing else.
func rowSeed(seed uint64, id string) uint64 {
	h := seed ^ 0xcbf29ce484222325
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 0x100000001b3
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	return h ^ h>>33
}
