package random_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/scenarios/random"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// world is two devices on a cable.
type world struct {
	*sim.World
	devices [2]verbs.Context
}

// cable is the network between two devices. Zero values mean fd00::1 and fd00::2, 100 Gb/s
// and 1 µs.
type cable struct {
	addrs  [2]string
	stream sim.StreamConfig
	spec   impair.Spec
	link   sim.LinkConfig
}

// opener opens a device at a port.
type opener func(w *sim.World, p *sim.Port, name string) (verbs.Context, error)

func newPair(t testing.TB, seed uint64, c cable, open opener) *world {
	t.Helper()
	w := &world{World: sim.New(sim.Config{Seed: seed})}
	c.addrs = cmp.Or(c.addrs, [2]string{"fd00::1", "fd00::2"})
	c.link = cmp.Or(c.link, sim.LinkConfig{RateBps: 100e9, Latency: time.Microsecond})
	c.link.MTU = 4200
	port := func(addr string) sim.PortConfig {
		return sim.PortConfig{Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Up: impair.Config{Specs: []impair.Spec{c.spec}}, Link: c.link}
	}
	a, b, err := sim.NewPair(w.World, sim.NetConfig{Stream: c.stream}, port(c.addrs[0]), port(c.addrs[1]))
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range []*sim.Port{a, b} {
		if w.devices[i], err = open(w.World, p, fmt.Sprint("host", i)); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func newWorld(t testing.TB, seed uint64, spec impair.Spec) *world {
	t.Helper()
	return newPair(t, seed, cable{spec: spec}, func(w *sim.World, p *sim.Port, name string) (verbs.Context, error) {
		cfg := softroce.Config{Name: name}
		return softroce.InWorld(w, p, p, cfg)
	})
}

// run runs a workload on the two devices.
func (w *world) run(t testing.TB, work *random.Workload) (results [2]*random.Result, err error) {
	t.Helper()
	var pipes [2]traffic.Exchange
	pipes[0], pipes[1] = sim.Pipe(w.World)
	for side := range random.Side(2) {
		end := must.Get(random.NewEnd(random.Env{Device: w.devices[side], Peer: pipes[side]}, work, side))(t)
		w.Go("side "+side.String(), func(p *sim.Proc) (err error) {
			results[side], err = end.Run(p)
			return err
		})
	}
	return results, w.RunPrograms()
}

func everyService() *random.Workload {
	w := &random.Workload{Seed: 1, CQs: 2, SharedWords: 3}
	for _, s := range []random.Service{random.RC, random.UC, random.UD, random.XRC} {
		size := 5000
		if s == random.UD {
			size = 1024
		}
		w.Conns = append(w.Conns, random.NewConn(s, 300, size))
	}
	shared := random.NewConn(random.RC, 300, 3000)
	shared.SharedReceives = true
	w.Conns = append(w.Conns, shared)
	return w
}

func TestAllServicesDeliverOnCleanNetwork(t *testing.T) {
	results := must.Get(newWorld(t, 1, impair.Spec{}).run(t, everyService()))(t)
	for side, r := range results {
		for i, l := range r.Conns {
			if l.Sent.Posted != 300 || l.Sent.Completed != 300 || l.Received.Delivered != 300 || l.Received.Lost != 0 {
				t.Errorf("side %d, connection %d (%v): sent %+v, received %+v", side, i, l.Service, l.Sent, l.Received)
			}
		}
	}
}

func TestReliableServicesRecoverOnImpairedNetwork(t *testing.T) {
	work := everyService()
	work.Network = random.Network{Loses: true, Duplicates: true, Reorders: true}
	results, err := newWorld(t, 1, impair.Spec{
		LossPPM: 20_000, DuplicatePPM: 10_000, ReorderPPM: 10_000, ReorderDelay: 20 * time.Microsecond, CorruptPPM: 10_000,
	}).run(t, work)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		for i, l := range r.Conns {
			if got := l.Received; l.Service.Reliable() && got.Delivered != 300 || got.Delivered+got.Lost != 300 {
				t.Errorf("connection %d (%v): %+v", i, l.Service, got)
			}
			if got := l.Received; l.Service == random.UD && (got.Lost == 0 || got.Duplicated+got.Reordered == 0) {
				t.Errorf("connection %d (%v) has no loss, duplicate or reordering: %+v", i, l.Service, got)
			}
		}
		if counter(r, "retransmitted_pkts") == 0 {
			t.Error("no retransmissions")
		}
	}
}

// A connection fails when loss exhausts its retry count. All requests before the failure are
// checked.
func TestConnectionsFailWhenRetriesAreExhausted(t *testing.T) {
	work := everyService()
	work.Network = random.Network{Loses: true, GivesUp: true}
	for i := range work.Conns {
		work.Conns[i].RetryCnt = 1
	}
	failed := 0
	for seed := range uint64(10) {
		work.Seed = seed
		results, err := newWorld(t, seed, impair.Spec{LossPPM: 100_000}).run(t, work)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, r := range results {
			for _, l := range r.Conns {
				if l.Sent.Failed != verbs.WCSuccess {
					failed++
				}
			}
		}
	}
	if failed < 10 {
		t.Errorf("only %d connections failed", failed)
	}
	work.Network.GivesUp = false
	_, err := newWorld(t, 0, impair.Spec{LossPPM: 100_000}).run(t, work)
	var v *random.Violation
	if !errors.As(err, &v) || !strings.Contains(v.Got, "IBV_WC_RETRY_EXC_ERR") {
		t.Errorf("without GivesUp: %v", err)
	}
}

func TestWorkloadRunsInAllWakeupModes(t *testing.T) {
	for _, wakeup := range []random.Wakeup{random.ByEvent, random.BySolicited, random.ByPolling} {
		work := everyService()
		work.Wakeup = wakeup
		for i := range work.Conns {
			work.Conns[i].SendPacing = random.Pacing{Batch: 3, Pause: 2 * time.Microsecond}
			if work.Conns[i].Service.Reliable() {
				work.Conns[i].RecvPacing = random.Pacing{Batch: 1, Pause: 20 * time.Microsecond}
			}
		}
		results, err := newWorld(t, 1, impair.Spec{}).run(t, work)
		if err != nil {
			t.Errorf("wakeup %d: %v", wakeup, err)
			continue
		}
		if counter(results[0], "rcvd_rnr_nak") == 0 {
			t.Errorf("wakeup %d: slow receivers caused no RNR NAKs", wakeup)
		}
	}
}

// expectDeadlock checks that the world reports a deadlock and which programs wait.
func expectDeadlock(t *testing.T, err error) {
	t.Helper()
	var d *sim.DeadlockError
	if !errors.As(err, &d) || len(d.Waiting) == 0 {
		t.Fatalf("run = %v, want a deadlock", err)
	}
	t.Log(d)
}

func expectStall(t *testing.T, err error, why string) {
	t.Helper()
	var s *traffic.StallError
	if !errors.As(err, &s) || !strings.Contains(err.Error(), why) {
		t.Fatalf("run = %v, want a stall error: %s", err, why)
	}
}

// counter returns the increment of a device counter.
func counter(r *random.Result, name string) uint64 {
	i := slices.IndexFunc(r.Counters, func(c verbs.Counter) bool { return c.Name == name })
	return r.Counters[i].Value
}
