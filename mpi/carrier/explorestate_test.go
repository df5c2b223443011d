package carrier

import (
	"flag"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/mpi/transport"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	exploreAll = flag.Bool("explore", false, "explore longer programs and more faults, for minutes")
	part       = testutil.PartFlag()
)

// Fingerprint implements explore.Machine. Work request IDs are replaced by what they are for, and times are
// relative to the present.
func (m *machine) Fingerprint() [16]byte {
	packets, inOrder := m.Packets()
	sum := m.digest.Sum(m.idle, m.Faults, m.modelFabric.breaks, m.probes, m.dead, m.gone, inOrder, packets)
	all := slices.Clone(sum[:])
	for i, r := range m.ranks {
		if i != m.dead {
			sum = r.fingerprint(m.digest)
			all = append(all, sum[:]...)
		}
	}
	return explore.Hash(all)
}

// fingerprint returns that of a rank with its carrier and its NICs.
func (r *exploredRank) fingerprint(d *digest) [16]byte {
	c := r.c
	d.c = c
	d.values = append(d.values[:0], r.next, r.runnable, r.withPeer, r.delivered, r.memory, c.peers, c.conns.ended, c.lists.busy.peers, c.lists.timed.peers,
		c.lists.coalescing, d.age(c.conns.lastIdleCheck, c.cfg.IdleTimeout), d.age(c.keepalive.lastCheck, c.cfg.KeepaliveIdle), c.nextRail, c.nextTransferRail)
	for _, o := range r.operations {
		d.values = append(d.values, o.done)
	}
	for i, rail := range c.rails {
		d.addRail(rail, r.nics[i])
	}
	return d.Sum(d.values...)
}

// addRail adds a rail and its NIC.
func (d *digest) addRail(r *rail, nic *modelNIC) {
	d.values = append(d.values, r.conns, r.dg.recv.Staged())
	if r.srq != nil {
		d.values = append(d.values, r.srq.recv.Staged(), len(r.srq.queue.(*modelSRQ).posted))
	}
	for _, q := range nic.qps {
		d.values = append(d.values, q != nil)
		if q == nil {
			continue
		}
		d.values = append(d.values, q.state, q.broken, q.dest, q.destQPN, len(q.receives.posted))
		for i := range q.requests {
			request := &q.requests[i]
			found, _ := d.c.requests.Find(request.WRID)
			d.values = append(d.values, request.executed, request.Flags, request.Opcode, found)
			if !request.executed && request.Opcode != verbs.OpRDMARead {
				d.values = append(d.values, q.gather(&request.SendWR))
			}
		}
	}
	for _, wc := range nic.completions {
		found, _ := d.c.requests.Find(wc.WRID)
		d.values = append(d.values, wc.Status, wc.Opcode, wc.Imm, wc.QPN, found)
		if wc.Opcode == verbs.WCOpRecv && wc.Status == verbs.WCSuccess {
			d.values = append(d.values, found.buf.B[:wc.ByteLen])
		}
	}
}

// digest computes fingerprints of the ranks of a machine.
type digest struct {
	explore.Digest
	c      *Carrier // of the rank
	values []any
}

// age returns the time since at, limited to what makes a difference.
func (d *digest) age(at, limit time.Duration) time.Duration { return min(d.c.Now()-at, limit) }

// newDigest omits counters, unused memory, and what does not change. Times count up to the time after which
// they make no difference.
func (p program) newDigest() *digest {
	d := new(digest)
	timer := func(v reflect.Value) uint64 {
		if v.Int() == 0 {
			return 0
		}
		return uint64(max(time.Duration(v.Int())-d.c.Now(), 0)) + 1
	}
	age := func(limit func(*Config) time.Duration) func(reflect.Value) uint64 {
		return func(v reflect.Value) uint64 { return uint64(d.age(time.Duration(v.Int()), limit(&d.c.cfg))) }
	}
	silence := age(func(c *Config) time.Duration { return c.KeepaliveIdle })
	length := func(v reflect.Value) uint64 { return uint64(v.Len()) }
	d.Types = map[string]func(reflect.Value) uint64{
		"*carrier.Carrier": nil, "*carrier.rail": nil, "*carrier.datagrams": nil, "*carrier.recvQueue": nil, "verbs.QP": nil, "*memory.Buffer": nil,
		"memory.Span": nil, "*memory.Region": nil, "carrier.cmState": nil, "wire.Header": nil, "*carrier.shmPeer": nil,
	}
	d.Fields = map[string]func(reflect.Value) uint64{
		"ackTimer.expiry": timer, "packetSender.expiry": timer,
		"liveness.lastHeard": silence, "liveness.lastProbe": silence,
		"conn.lastUsed":            age(func(c *Config) time.Duration { return c.IdleTimeout }),
		"coalescing.burstAt":       func(v reflect.Value) uint64 { return min(d.c.clock.progressCalls-v.Uint(), 1) },
		"SendQueue.inOrder":        length,
		"RecvQueue.staged":         length,
		"outgoing.header":          func(v reflect.Value) uint64 { return v.FieldByName("Size").Uint() },
		"packet.Packet":            packetContents,
		"packet.owner":             nil,
		"transfer.owner":           nil,
		"transfer.destination":     nil,
		"transfer.header":          nil,
		"conn.lastCompletion":      nil,
		"packet.sentAt":            nil,
		"packetSender.acked":       nil,
		"SendQueue.completed":      nil,
		"SendQueue.wr":             nil,
		"SendQueue.sges":           nil,
		"RecvQueue.Post":           nil,
		"RecvQueue.sges":           nil,
		"recvQueue.c":              nil,
		"peerConns.connGeneration": nil,
	}
	if p.config.Design != Hybrid {
		d.Fields["peerConns.packetsSent"] = nil
	}
	if !p.config.Design.hasRings() {
		d.Fields["rings.receivedOnConn"] = nil
	}
	return d
}

// packetContents is a hash of a packet as it was or will be sent.
func packetContents(v reflect.Value) uint64 {
	p := (*transport.Packet)(v.Addr().UnsafePointer())
	if p.Buf == nil {
		return 0
	}
	sum := explore.Hash(p.Buf.B[:p.CopiedLen])
	h := uint64(p.Imm)
	for _, b := range sum[:8] {
		h = h<<8 + uint64(b)
	}
	return h
}

// small is a configuration with few buffers, and short times.
func small(d Design) Config {
	return Config{
		Design: d, PacketSize: minPacket, Receives: minReceives, SharedReceives: 4, LowWatermark: 1, NoCoalescing: true,
		Datagrams:    Datagrams{Receives: 8, Window: 4, AckEvery: 2},
		Ring:         Ring{Slots: 2, SlotSize: 256, After: 1, Peers: 2},
		HybridLimits: HybridLimits{HybridAfter: 1, HybridPeers: 1},
		IdleTimeout:  100 * time.Microsecond,
		Waiting:      Waiting{PeerTimeout: 500 * time.Millisecond},
	}
}

// programs are short programs, and with -explore longer ones.
func programs() map[string]program {
	few := small(SRQ)
	few.SharedReceives = 2
	all := map[string]program{
		"one way":     {config: small(SRQ), acts: []string{"s1", ""}},
		"transfers":   {config: small(SRQ), acts: []string{"w1", ""}},
		"a rank dies": {config: small(SRQ), acts: []string{"s1", ""}, mayDie: true},
	}
	if *exploreAll {
		all["crossing requests"] = program{config: small(SRQ), acts: []string{"s1", "s0"}}
		all["loss"] = program{config: small(SRQ), acts: []string{"s1", ""}, faults: 1}
		all["low watermark"] = program{config: few, acts: []string{"s1s1s1", ""}}
		all["credits"] = program{config: small(SendRecv), acts: []string{"s1s1s1s1s1s1", ""}}
		all["idle"] = program{config: small(SRQ), acts: []string{"s1", "R0s0"}, idle: 1}
		all["ring"] = program{config: small(RingSRQ), acts: []string{"s1R1s1", "R0s0"}}
		all["hybrid"] = program{config: small(Hybrid), acts: []string{"s1s1s1", ""}}
		all["datagrams"] = program{config: small(UD), acts: []string{"s1s1", ""}, faults: 1}
		all["a connection breaks"] = program{config: small(SRQ), acts: []string{"s1s1", ""}, breaks: 1}
		all["a rail breaks"] = program{config: small(SRQ), acts: []string{"s1", ""}, rails: 2, breaks: 1}
		all["crossing requests, a fault"] = program{config: small(SRQ), acts: []string{"s1", "s0"}, faults: 1}
		all["crossing, idle"] = program{config: small(SRQ), acts: []string{"s1", "R0s0"}, idle: 2}
		long := small(SRQ)
		long.PacketSize = 2 * minPacket
		all["headerless"] = program{config: long, acts: []string{"S1S1S1", ""}}
		all["credits both ways"] = program{config: small(SendRecv), acts: []string{"s1s1s1s1s1", "s0s0"}}
		all["ring both ways"] = program{config: small(RingSRQ), acts: []string{"s1s1", "s0s0"}}
		all["ring, idle"] = program{config: small(RingSRQ), acts: []string{"s1R1s1", "R0s0"}, idle: 1}
		all["ring, SendRecv"] = program{config: small(RingSendRecv), acts: []string{"s1R1s1", "R0s0"}}
		all["hybrid, both ways"] = program{config: small(Hybrid), acts: []string{"s1s1", "s0s0"}}
		all["hybrid, a fault"] = program{config: small(Hybrid), acts: []string{"s1s1s1", ""}, faults: 1}
		all["hybrid, three"] = program{config: small(Hybrid), acts: []string{"s1s1s2s2s2s2", "", ""}}
		all["datagrams, two faults"] = program{config: small(UD), acts: []string{"s1s1", "s0"}, faults: 2}
		all["low watermark, three"] = program{config: few, acts: []string{"s1s1", "", "s1s1"}}
		all["all transfers"] = program{config: small(SRQ), acts: []string{"v1w1r1s1", ""}}
		all["transfers both ways"] = program{config: small(SRQ), acts: []string{"w1s1", "r0"}}
		all["a rail breaks, both ways"] = program{config: small(SRQ), acts: []string{"s1", "s0"}, rails: 2, breaks: 1}
		all["a rail breaks, a transfer"] = program{config: small(SRQ), acts: []string{"w1", ""}, rails: 2, breaks: 1}
		all["a rail breaks, ring"] = program{config: small(RingSRQ), acts: []string{"s1R1s1", "R0s0"}, rails: 2, breaks: 1}
		all["a rail breaks, hybrid"] = program{config: small(Hybrid), acts: []string{"s1s1s1", ""}, rails: 2, breaks: 1}
		all["a connection breaks, ring"] = program{config: small(RingSRQ), acts: []string{"s1R1s1", "R0s0"}, breaks: 1}
		all["idle, a rank dies"] = program{config: small(SRQ), acts: []string{"s1", "R0s0"}, idle: 1, mayDie: true}
		all["ring, a rank dies"] = program{config: small(RingSRQ), acts: []string{"s1R1s1", "R0s0"}, mayDie: true}
		all["hybrid, a rank dies"] = program{config: small(Hybrid), acts: []string{"s1s1s1", ""}, mayDie: true}
		all["transfers, a rank dies"] = program{config: small(SRQ), acts: []string{"w1r1", ""}, mayDie: true}
		all["datagrams, a rank dies"] = program{config: small(UD), acts: []string{"s1s1", "s0"}, mayDie: true}
		all["credits, a rank dies"] = program{config: small(SendRecv), acts: []string{"s1s1s1s1s1s1", ""}, mayDie: true}
		all["three, one dies"] = program{config: few, acts: []string{"s1", "", "s1"}, mayDie: true}
	}
	return all
}

// Messages and transfers arrive once and in order, whatever the NICs and the network do.
func TestAllStates(t *testing.T) {
	all := programs()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if part.Has(i) {
			t.Run(name, func(t *testing.T) { all[name].explore(t) })
		}
	}
}

func (p program) explore(t *testing.T) {
	maxStates := 100_000 // of which each takes about 0.2 ms
	if part.Given() {
		maxStates = 20_000
	}
	d := p.newDigest()
	p.config.setDefaults()
	r := must.Get(explore.Machines(t.Context(), explore.Options{Parallel: 1, MaxStates: maxStates}, func() explore.Machine { return p.machine(d) }))(t)
	t.Logf("%d states, %d steps, %d ends, up to %d steps; finished: %v, in %v", r.States, r.Edges, r.Runs, r.Deepest, r.Finished, r.Elapsed)
	if r.Failure == nil {
		return
	}
	m := p.machine(d)
	_ = explore.Replay(m, r.Failure.Path, func(s explore.Step) { t.Logf("%v %d %d", s.Kind, s.A, s.B) })
	t.Fatalf("%v; path: %v", r.Failure.Err, r.Failure.Path)
}
