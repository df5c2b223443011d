package rd

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

var (
	exploreAll = flag.Bool("explore", false, "explore more segments and faults, for minutes")
	part       = testutil.PartFlag()
)

// machine is two hosts that send segments to each other over a network with faults. A timeout that
// expires while packets are in the network is a fault, too.
type machine struct {
	*network
	unsent    [2]int          // segments that the hosts have not sent
	unposted  [2]int          // receives that the hosts have not posted; without any, all segments are received
	transit   explore.Network // what of the network is used instead of its queue
	restarts  int             // the same
	probes    int             // timeouts that may still expire while a host has posted no receive
	progress  bool            // of the last step
	restarted bool
	delivered [2][]uint32 // segments, by host
	digest    *digest
}

// exploration is a space of states.
type exploration struct {
	segments         [2]int
	receives         [2]int // that are posted late; 0: received at once
	faults, restarts int
}

func (x exploration) machine(d *digest) *machine {
	m := &machine{network: newNetwork(nil, 0, impairment{}), unsent: x.segments, unposted: x.receives, transit: explore.Network{Faults: x.faults}, restarts: x.restarts, probes: 2}
	m.t = &failing{}
	m.now = mono.Time(time.Hour)
	for i := range 2 {
		// No cookie expires during a run, and no peer is removed.
		h := m.host(Config{Timing: Timing{CookieSlot: 2 * time.Hour, Idle: 10 * time.Hour}})
		if x.receives[i] > 0 {
			h.receives = 0
		}
		h.take = func(_ Key, n uint32) { m.delivered[i] = append(m.delivered[i], n) }
	}
	m.digest = d
	return m
}

// failing is the testing.TB of hosts, which panics with the failure.
type failing struct{ testing.TB }

func (*failing) Helper()                   {}
func (*failing) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (*failing) Fatalf(f string, a ...any) { panic(fmt.Errorf(f, a...)) }

// The kinds of steps, besides those of the network. A is the host.
const (
	sendStep      = "send"
	postStep      = "post"
	timeStep      = "time"
	earlyTimeStep = "early-time"
	restartStep   = "restart"
)

// Enabled implements explore.Machine.
func (m *machine) Enabled(can []explore.Step) []explore.Step {
	for i := range m.hosts {
		if m.unsent[i] > 0 {
			can = append(can, explore.Step{Kind: sendStep, A: int32(i)})
		}
		if m.unposted[i] > 0 {
			can = append(can, explore.Step{Kind: postStep, A: int32(i)})
		}
	}
	can = m.transit.Enabled(can)
	at, timeout := m.deadline()
	switch {
	case at == mono.Never || m.busy() && m.probes == 0:
	case m.transit.Empty() || !timeout:
		can = append(can, explore.Step{Kind: timeStep})
	case m.transit.Faults > 0:
		can = append(can, explore.Step{Kind: earlyTimeStep})
	}
	for i := range m.hosts {
		if m.restarts > 0 {
			can = append(can, explore.Step{Kind: restartStep, A: int32(i)})
		}
	}
	return can
}

// busy reports whether a host has posted no receive yet. Its peer would probe it for ever.
func (m *machine) busy() bool {
	return m.hosts[0].receives == 0 && m.unposted[0] > 0 || m.hosts[1].receives == 0 && m.unposted[1] > 0
}

// deadline returns the next deadline of a host, but for the removal of idle peers, and whether it is
// a timeout.
func (m *machine) deadline() (at mono.Time, timeout bool) {
	at = mono.Never
	for _, h := range m.hosts {
		for _, p := range h.layer.peers {
			if p.recv.ackAt < at {
				at, timeout = p.recv.ackAt, false
			}
			if p.send.rto.at < at {
				at, timeout = p.send.rto.at, true
			}
			if p.has(flagPaced) && p.send.cc.resumeAt() < at {
				at, timeout = p.send.cc.resumeAt(), false
			}
		}
	}
	return at, timeout
}

// Take implements explore.Machine.
func (m *machine) Take(s explore.Step) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	delivered := len(m.delivered[0]) + len(m.delivered[1])
	defer func() {
		m.progress = s.Kind != explore.Deliver && s.Kind != timeStep || len(m.delivered[0])+len(m.delivered[1]) > delivered
	}()
	switch s.Kind {
	case sendStep:
		m.unsent[s.A]--
		m.hosts[s.A].send(m.hosts[1-s.A], 4)
	case postStep:
		h := m.hosts[s.A]
		m.unposted[s.A]--
		h.receives++
		h.layer.Resume(testQP, 1)
		h.drain()
	case restartStep:
		m.restarts--
		m.restarted = true
		m.restart(m.hosts[s.A])
	case timeStep, earlyTimeStep:
		if s.Kind == earlyTimeStep {
			m.transit.Faults--
		}
		if m.busy() {
			m.probes--
		}
		at, _ := m.deadline()
		m.now = max(m.now, at)
		for _, h := range m.hosts {
			h.layer.Tick(m.now)
			h.drain()
		}
	default:
		if p := m.transit.Take(s); p != nil {
			m.hosts[p.To].deliver(m.hosts[p.From].addr, p.Bytes, false)
		}
	}
	for i, h := range m.hosts {
		h.flush()
		for _, f := range m.queue {
			m.transit.Send(i, 1-i, f.bytes)
		}
		m.queue = nil
	}
	return nil
}

// restart restarts a host, which continues with the next numbers of segments.
func (m *machine) restart(h *host) {
	sending, receives, failed := h.sending, h.receives, h.failed
	h.start()
	h.sending, h.receives, h.failed = sending, receives, failed
}

// Progressed implements explore.Progresser.
func (m *machine) Progressed() bool { return m.progress }

// Check implements explore.Machine: segments are delivered in order, once, and without gaps unless a
// host has restarted. Only delivered ones are acknowledged.
func (m *machine) Check() error {
	for i, h := range m.hosts {
		from := m.hosts[1-i]
		for n, segment := range m.delivered[i] {
			if n > 0 && segment <= m.delivered[i][n-1] || !m.restarted && int(segment) != n {
				return fmt.Errorf("host %d has received the segments %v", i, m.delivered[i])
			}
		}
		for _, segment := range from.ackedNumbers[from.key(h)] {
			if !slices.Contains(m.delivered[i], segment) {
				return fmt.Errorf("segment %d to host %d is acknowledged, which has received %v", segment, i, m.delivered[i])
			}
		}
		if len(h.failed) > 0 && !m.restarted {
			return fmt.Errorf("host %d: %w", i, h.failed[0])
		}
	}
	return nil
}

// Finish implements explore.Finisher: all segments are delivered and acknowledged, unless a host
// has restarted, and none waits.
func (m *machine) Finish() error {
	for i, h := range m.hosts {
		k := h.key(m.hosts[1-i])
		switch {
		case len(h.waiting[k]) > 0:
			return fmt.Errorf("%w: host %d waits for the acknowledgement of %v", explore.ErrDeadlock, i, h.waiting[k])
		case !m.restarted && (len(m.delivered[1-i]) != int(h.sending[k]) || h.acked[k] != int(h.sending[k])):
			return fmt.Errorf("%d segments of host %d: %d were delivered and %d acknowledged", h.sending[k], i, len(m.delivered[1-i]), h.acked[k])
		}
	}
	return nil
}

// Fingerprint implements explore.Machine. Times are relative to the present.
func (m *machine) Fingerprint() [16]byte {
	packets, inOrder := m.transit.Packets()
	values := []any{m.unsent, m.unposted, m.transit.Faults, m.restarts, m.probes, m.restarted, m.delivered, inOrder}
	for _, p := range packets {
		var k wire.Packet
		must.Do(m.t, k.Parse(p.Bytes))
		if k.Flags.Has(wire.FlagData) {
			k.Data.Timestamp -= microseconds(m.now)
		}
		if k.Flags.Has(wire.FlagAck) {
			k.Ack.Echo -= microseconds(m.now)
		}
		values = append(values, p.To, k)
	}
	for _, h := range m.hosts {
		values = append(values, h.layer, h.starts, h.sending, h.waiting, h.acked, h.receives, len(h.failed))
	}
	m.digest.now = m.now
	return m.digest.Sum(values...)
}

// digest computes fingerprints of machines, with times relative to now.
type digest struct {
	explore.Digest
	now mono.Time
}

// newDigest omits counters, free lists, and queues that are empty after every step.
func newDigest() *digest {
	d := new(digest)
	stamp := func(v reflect.Value) uint64 { return uint64(uint32(v.Uint()) - microseconds(d.now)) }
	d.Types = map[string]func(reflect.Value) uint64{
		"mono.Time": func(v reflect.Value) uint64 {
			if at := mono.Time(v.Int()); at != mono.Never {
				return uint64(at.Sub(d.now)) << 1
			}
			return 1
		},
		"netip.AddrPort": nil,
	}
	d.Fields = map[string]func(reflect.Value) uint64{
		"recvFlow.echo": stamp,
		"segment.sentAt": func(v reflect.Value) uint64 {
			if v.Uint() == 0 { // not sent
				return math.MaxUint64
			}
			return stamp(v)
		},
	}
	for _, name := range []string{
		"Layer.Count", "Layer.cfg", "Layer.scratch", "Layer.replies", "Layer.notices", "Layer.ready", "sendTurn.active", "sendTurn.quota", "peerTable.peak",
		"segmentPool.free", "segmentPool.freeCount", "storePool.small", "storePool.large", "storePool.smallFree", "storePool.largeFree", "secrets.hashed",
	} {
		d.Fields[name] = nil
	}
	return d
}

// explorations are small spaces, and with -explore larger ones.
func explorations() map[string]exploration {
	all := map[string]exploration{
		"one way":           {segments: [2]int{2, 0}, faults: 1},
		"both ways":         {segments: [2]int{1, 1}},
		"busy":              {segments: [2]int{2, 0}, receives: [2]int{0, 2}},
		"restart and fault": {segments: [2]int{2, 0}, faults: 1, restarts: 1},
	}
	if *exploreAll {
		all["one way, two faults"] = exploration{segments: [2]int{2, 0}, faults: 2}
		all["one way, three faults"] = exploration{segments: [2]int{2, 0}, faults: 3}
		all["three segments, two faults"] = exploration{segments: [2]int{3, 0}, faults: 2}
		all["both ways, a fault"] = exploration{segments: [2]int{1, 1}, faults: 1}
		all["both ways, two faults"] = exploration{segments: [2]int{2, 1}, faults: 2}
		all["busy, two faults"] = exploration{segments: [2]int{2, 0}, receives: [2]int{0, 2}, faults: 2}
		all["restart and fault, both ways"] = exploration{segments: [2]int{1, 1}, faults: 1, restarts: 1}
	}
	return all
}

// Segments are delivered once and in order whatever the network does.
func TestAllStates(t *testing.T) {
	all := explorations()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if !part.Has(i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := newDigest()
			r := must.Get(explore.Machines(t.Context(), explore.Options{Parallel: 1}, func() explore.Machine { return all[name].machine(d) }))(t)
			t.Logf("%d states, %d steps, %d ends, up to %d steps; finished: %v, in %v", r.States, r.Edges, r.Runs, r.Deepest, r.Finished, r.Elapsed)
			if r.Failure == nil {
				return
			}
			m := all[name].machine(d)
			err := explore.Replay(m, r.Failure.Path, func(s explore.Step) { t.Logf("%v %d %d", s.Kind, s.A, s.B) })
			t.Fatalf("%v; path: %v", err, r.Failure.Path)
		})
	}
}
