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

// exchange runs a workload between the two devices. The error is a guarantee of a service that was
// broken.
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

// maxDisturbed is the largest number of packets that a program of the path can lose, delay or
// reorder. Each takes an octet.
func maxDisturbed(b []byte) int {
	n := len(b)
	for _, c := range b {
		if c&15%pathNetworkOps == pathLoseRun {
			n += 7
		}
	}
	return n
}

// newWorkload returns a short workload: five messages of each service.
func newWorkload(p *program, services ...random.Service) *random.Workload {
	flags := p.octet()
	w := &random.Workload{Seed: uint64(p.octet()), CQs: 1 + int(flags&1), SharedWords: 2, Wakeup: random.Wakeup(flags>>1) & 3 % 3}
	w.Network = random.Network{Loses: true, Duplicates: true, Reorders: true}
	if maxDisturbed(p.b) > 20 { // with long timeouts, polling makes too many events
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

// FuzzRoCEPath: a network may do anything to packets except forge them. Reliable services of
// soft-RoCE deliver every message exactly once, in order and undamaged, or exhaust their retries;
// unreliable services deliver no damaged message.
func FuzzRoCEPath(f *testing.F) {
	networkSeeds(func(b []byte) { f.Add(b) })
	f.Fuzz(func(t *testing.T, b []byte) { rocePath(t, b) })
}

func rocePath(t testing.TB, b []byte) {
	t.Helper()
	prog := newProgram(b)
	p := rocePair(t, prog, prog.octet()&1 == 1)
	work := newWorkload(prog, random.RC, random.XRC, random.UC, random.UD)
	// At least eight losses in a row exhaust the seven retries.
	work.Network.GivesUp = maxDisturbed(prog.b) > 7
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
	p.closeDevices(t)
}

// FuzzDatagramPath is FuzzRoCEPath for datagram-iWARP. RD has time for every retransmission that a
// program can cause, and delivers everything.
func FuzzDatagramPath(f *testing.F) {
	networkSeeds(func(b []byte) { f.Add(b) })
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
	p := datagramPair(t, prog, how&1 == 1, dgiwarp.QPOptions{Reliable: service == random.RD, Isolate: how&4 == 4}, longTiming())
	work := newWorkload(prog, service, service)
	traits := must.Get(traffic.TraitsOf(p.devs[0]))(t)
	work.Traits = traits
	for i := range work.Conns {
		work.Conns[i].Adapt(&traits)
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
	p.closeDevices(t)
}

// closeDevices closes the devices while packets may still be in flight.
func (p *pair) closeDevices(t testing.TB) {
	t.Helper()
	for _, d := range p.devs {
		if err := d.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		if _, err := d.AllocPD(); !errors.Is(err, verbs.ErrClosed) {
			t.Fatalf("AllocPD on a closed device: %v, want ErrClosed", err)
		}
	}
	if err := p.World.Run(); err != nil {
		t.Fatalf("after Close: %v", err)
	}
}

// networkSeeds adds programs that apply each operation of a network to an early packet, a late one
// and every one, and random programs.
func networkSeeds(add func([]byte)) {
	for _, how := range []byte{0, 3, 6} {
		for op := range byte(pathNetworkOps) {
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
		add(randomBytes(seed, 60+int(seed)*50))
	}
}
