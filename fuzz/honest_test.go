package fuzz_test

import (
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/emu/dgiwarp"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// exchange has two honest devices do a workload, and returns what was broken of
// what their services promise.
func (p *pair) exchange(t testing.TB, work *random.Workload) (results [2]*random.Result, err error) {
	t.Helper()
	var pipes [2]traffic.Exchange
	pipes[0], pipes[1] = sim.Pipe(p.World)
	for side := range random.Side(2) {
		end := must.Get(random.NewEnd(random.Env{Device: p.devs[side], Peer: pipes[side]}, work, side))(t)
		p.Go("side "+side.String(), func(c *sim.Proc) (err error) {
			results[side], err = end.Run(c)
			return err
		})
	}
	return results, p.RunPrograms()
}

// damage is how many packets a program of the path may at most keep from arriving
// in time and in order. Each takes an octet.
func damage(b []byte) int {
	n := len(b)
	for _, c := range b {
		if c&15%pathHonest == pathLoseRun {
			n += 7
		}
	}
	return n
}

// conns returns a short workload: a few messages of each service.
func conns(p *program, services ...random.Service) *random.Workload {
	flags := p.octet()
	w := &random.Workload{Seed: uint64(p.octet()), CQs: 1 + int(flags&1), SharedWords: 2, Wakeup: random.Wakeup(flags>>1) & 3 % 3}
	w.Network = random.Network{Loses: true, Duplicates: true, Reorders: true}
	if damage(p.b) > 20 { // who polls while timers grow has a world of polls
		w.Wakeup = random.ByEvent
	}
	for i, s := range services {
		size := 2000
		if s == random.UD {
			size = 1024
		}
		l := random.NewConn(s, 5, size)
		l.SharedReceives = flags>>3&1 == 1 && i == 0 && s.Reliable()
		l.TightReceives = flags>>4&1 == 1
		l.SendDepth, l.RecvDepth = 4, max(8, l.RecvDepth&15)
		l.FirstPSN = [2]uint32{0xfffffe, 0xfffff0}
		if flags>>5&1 == 1 && s != random.UD {
			l.MTU = verbs.MTU256
		}
		w.Conns = append(w.Conns, l)
	}
	return w
}

// FuzzRoCEPath: whatever a network does to packets, short of making right ones,
// reliable services of soft-RoCE deliver everything exactly once, in order and
// whole, or give up for having tried too often; and unreliable ones deliver nothing
// that is not whole.
func FuzzRoCEPath(f *testing.F) {
	honestSeeds(func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { rocePath(t, b) })
}

func rocePath(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	p := rocePair(t, prog, prog.octet()&1 == 1)
	work := conns(prog, random.RC, random.XRC, random.UC, random.UD)
	// Eight losses in a row are the least that exhausts the seven retries there are.
	work.Network.GivesUp = damage(prog.b) > 7
	results, err := p.exchange(t, work)
	if err != nil {
		t.Fatalf("at %v: %v", p.Now(), err)
	}
	for side, r := range results {
		for i, l := range r.Conns {
			if l.Service.Reliable() && !work.Network.GivesUp && (l.Sent.Completed != 5 || l.Received.Delivered != 5) {
				t.Fatalf("side %d, connection %d (%v): %+v", side, i, l.Service, l)
			}
		}
	}
	p.end(t)
}

// FuzzDatagramPath is the same of datagram-iWARP. A program has an end, and the
// devices are patient: RD delivers everything.
func FuzzDatagramPath(f *testing.F) {
	honestSeeds(func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { datagramPath(t, b) })
}

func datagramPath(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	how := prog.octet()
	service := random.UD
	if how&2 == 2 {
		service = random.RD
	}
	p := datagramPair(t, prog, how&1 == 1, dgiwarp.QPOptions{Reliable: service == random.RD, Isolate: how&4 == 4}, patience())
	work := conns(prog, service, service)
	manners := must.Get(traffic.TraitsOf(p.devs[0]))(t)
	work.Traits = manners
	for i := range work.Conns {
		work.Conns[i].Adapt(&manners)
	}
	results, err := p.exchange(t, work)
	if err != nil {
		t.Fatalf("at %v: %v", p.Now(), err)
	}
	for side, r := range results {
		for i, l := range r.Conns {
			if l.Service == random.RD && (l.Sent.Completed != 5 || l.Received.Delivered != 5) {
				t.Fatalf("side %d, connection %d: %+v", side, i, l)
			}
		}
	}
	p.end(t)
}

// end closes the devices, in a world in which packets may still be on their way.
func (p *pair) end(t testing.TB) {
	t.Helper()
	for _, d := range p.devs {
		if err := d.Close(); err != nil {
			t.Fatalf("closing a device: %v", err)
		}
		if _, err := d.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
			t.Fatalf("a closed device: %v", err)
		}
	}
	if err := p.World.Run(); err != nil {
		t.Fatalf("after the end: %v", err)
	}
}

// honestSeeds have each thing that can happen to a packet happen to an early one, to
// a late one and to every one, and some noise.
func honestSeeds(add func([]byte)) {
	for _, how := range []byte{0, 3, 6} {
		for op := range byte(pathHonest) {
			head := []byte{how, how << 3, op}
			add(append(head[:3:3], op, 40, 10))
			add(append(head[:3:3], 0xf0, 0xf0|op, 0, 3, op|0x30, 7, 1))
			every := head[:3:3]
			for i := range byte(60) {
				every = append(every, op, i*5, op|0x10, i)
			}
			add(every)
		}
	}
	for seed := range uint64(8) {
		add(noise(seed, 60+int(seed)*50))
	}
}
