package main

import (
	"fmt"
	"io"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/scenarios/traffic/insim"
)

// outcome is what became of a scenario: a row of the table.
type outcome struct {
	ID          string        `json:"id"`
	Service     string        `json:"service"`
	Network     string        `json:"network"`
	Messages    int           `json:"messages"`
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
	f, err := newFabric(s, rowSeed(o.seed, s.id), o.quirks, capture, out.Command)
	if err != nil {
		return out, err
	}
	ends, err := f.exchange(s, o.messages)
	for _, e := range ends {
		out.add(e.Result())
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
		err = s.expect(&out)
	}
	out.OK = err == nil
	if err != nil {
		out.Problem = err.Error()
	}
	return out, nil
}

// add counts what one end has seen.
func (o *outcome) add(r *traffic.Result) {
	for _, l := range r.Lanes {
		o.Messages += l.Sent.Posted
		o.Delivered += l.Received.Delivered
		o.Bytes += l.Received.Bytes
	}
	o.Elapsed = max(o.Elapsed, r.Elapsed)
}

// expect is what must hold of a scenario beyond what the ends check.
func (s *scenario) expect(o *outcome) error {
	if s.network.excuses.Loses {
		return nil
	}
	switch {
	case o.PacketsLost > 0:
		return fmt.Errorf("%d packets lost on a network that loses none", o.PacketsLost)
	case o.Resent > 0:
		return fmt.Errorf("%d packets sent again though none was lost", o.Resent)
	}
	return nil
}

// exchange runs the two ends of every flow.
func (f *fabric) exchange(s *scenario, messages int) ([]*traffic.End, error) {
	var ends []*traffic.End
	var names []string
	for i, flow := range s.network.flows {
		work := s.workload(rowSeed(f.world.Seed(), fmt.Sprint(i)), messages)
		var pipe [2]traffic.Exchange
		pipe[0], pipe[1] = insim.Pipe(f.world)
		for side := range traffic.Side(2) {
			env := traffic.Env{Device: f.hosts[flow[side]], Peer: pipe[side]}
			end, err := traffic.NewEnd(env, work, side)
			if err != nil {
				return nil, err
			}
			ends = append(ends, end)
			names = append(names, fmt.Sprintf("host%d, to host%d", flow[side], flow[side.Peer()]))
		}
	}
	for i, end := range ends {
		f.world.Go(names[i], func(p *sim.Proc) error {
			_, err := end.Run(p)
			return err
		})
	}
	err := f.world.RunPrograms()
	if err == nil {
		return ends, nil
	}
	// A deadlock names what each program is parked on; this, what it was about.
	for i, e := range ends {
		err = fmt.Errorf("%w\n  %s: %s", err, names[i], e.Status())
	}
	return ends, err
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
