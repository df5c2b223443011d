package main

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/scenarios/traffic"
	"github.com/fabrictest/fabrictest/scenarios/traffic/insim"
)

// party is a program on one host that exchanges checked messages with another.
type party interface {
	run(*sim.Proc) error
	// status says in one line how far it has come.
	status() string
	// tally may be called at any time, also when run has failed.
	tally() tally
}

// tally is what a party has done.
type tally struct {
	asked     int // messages it was to send
	delivered int // messages it has received and found right
	bytes     int64
	elapsed   time.Duration
}

// trafficParty is an end of a workload of package traffic.
type trafficParty struct {
	end   *traffic.End
	asked int
}

func (t *trafficParty) run(p *sim.Proc) error {
	_, err := t.end.Run(p)
	return err
}

func (t *trafficParty) status() string { return t.end.Status() }

func (t *trafficParty) tally() tally {
	r := t.end.Result()
	sum := tally{asked: t.asked, elapsed: r.Elapsed}
	for _, l := range r.Lanes {
		sum.delivered += l.Received.Delivered
		sum.bytes += l.Received.Bytes
	}
	return sum
}

// parties makes the two programs of a flow.
func (f *fabric) parties(s *scenario, flow [2]int, seed uint64, messages int) (both [2]party, err error) {
	var pipe [2]traffic.Exchange
	pipe[0], pipe[1] = insim.Pipe(f.world)
	if s.calls {
		both[0], both[1] = newCall(f, s, flow, pipe, seed, messages)
		return both, nil
	}
	work := s.workload(seed, messages)
	for side := range traffic.Side(2) {
		t := new(trafficParty)
		if t.end, err = traffic.NewEnd(traffic.Env{Device: f.hosts[flow[side]], Peer: pipe[side]}, work, side); err != nil {
			return both, err
		}
		for i := range work.Lanes {
			t.asked += work.Lanes[i].Messages[side]
		}
		both[side] = t
	}
	return both, nil
}

// exchange runs the two programs of every flow.
func (f *fabric) exchange(s *scenario, messages int) (all []party, err error) {
	var names []string
	for i, flow := range s.network.flows {
		both, err := f.parties(s, flow, rowSeed(f.world.Seed(), fmt.Sprint(i)), messages)
		if err != nil {
			return nil, err
		}
		for side := range both {
			all = append(all, both[side])
			names = append(names, fmt.Sprintf("host%d, to host%d", flow[side], flow[1-side]))
		}
	}
	for i, p := range all {
		f.world.Go(names[i], p.run)
	}
	if err = f.world.RunPrograms(); err == nil {
		return all, nil
	}
	// A deadlock names what each program is parked on; this, what it was about.
	for i, p := range all {
		err = fmt.Errorf("%w\n  %s: %s", err, names[i], p.status())
	}
	return all, err
}
