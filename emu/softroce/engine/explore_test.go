package engine

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

var (
	exploreAll = flag.Bool("explore", false, "explore longer programs and more faults, for minutes")
	part       = testutil.PartFlag()
)

// machine is two RC QPs, which execute programs over a network with faults. A timeout that expires
// while packets are in the network is a fault, too.
type machine struct {
	program
	explore.Network
	now      mono.Time
	hosts    [2]*host
	qps      [2]*QP
	sent     [2]int // requests posted
	done     [2]int // requests completed
	posted   [2]int // receives posted
	received [2]int // receives completed
	waits    int    // RNR waits that may still end before the last receive is posted
	failure  error  // of the last completion
	progress bool
	digest   *explore.Digest
	batch    []link.Datagram
}

// program has the requests of two QPs, as letters: an s is a SEND of one packet, S of two, w and W
// are WRITEs, r and R are READs of what the peer's WRITEs change, and f is a FETCH_ADD.
type program struct {
	requests [2]string
	faults   int
}

// Offsets in the memory of a host. Each request has slotSize bytes in every area.
const (
	slotSize    = 320
	longMessage = 300 // two packets
	maxRequests = 3
	sourceArea  = 0
	resultArea  = sourceArea + maxRequests*slotSize
	recvArea    = resultArea + maxRequests*slotSize
	targetArea  = recvArea + maxRequests*slotSize
	counterAt   = targetArea + slotSize
	exploredMem = counterAt + 8
)

func (p program) machine(d *explore.Digest) *machine {
	m := &machine{program: p, Network: explore.Network{Faults: p.faults}, now: 1, waits: 2, digest: d, batch: make([]link.Datagram, 16)}
	for i := range m.batch {
		m.batch[i].Payload = make([]byte, 0, 512)
	}
	for i, addr := range []string{"fd00::1", "fd00::2"} {
		h := newHostWith(&failing{}, addr, make([]byte, exploredMem), func(c *Config) { c.AckDelay = -1 })
		for n := range p.requests[i] {
			copy(h.mem[sourceArea+n*slotSize:], messageOf(i, n))
		}
		m.hosts[i] = h
		m.qps[i] = h.qp(verbs.QPTypeRC, func(c *QPConfig) {
			c.Caps = verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}
		})
	}
	for i, h := range m.hosts {
		peer := m.hosts[1-i]
		h.ready(m.qps[i], peer.addr, m.qps[1-i].num, func(a *verbs.QPAttr) {
			a.PathMTU, a.RetryCnt, a.RNRRetry, a.RQPSN, a.SQPSN = verbs.MTU256, 7, 7, 0xffffff, 0xffffff
		})
	}
	return m
}

// messageOf is the payload of request n of host i.
func messageOf(i, n int) []byte { return pattern(longMessage, 50*i+10*n+1) }

// failing is the testing.TB of hosts, which panics with the failure.
type failing struct{ testing.TB }

func (*failing) Helper()                   {}
func (*failing) Fatal(a ...any)            { panic(fmt.Sprint(a...)) }
func (*failing) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// The kinds of steps, besides those of the network. A is the host.
const (
	postSendStep  = "post-send"
	postRecvStep  = "post-recv"
	timeStep      = "time"
	earlyTimeStep = "early-time"
)

// Enabled implements explore.Machine.
func (m *machine) Enabled(can []explore.Step) []explore.Step {
	for i := range m.hosts {
		if m.sent[i] < len(m.requests[i]) {
			can = append(can, explore.Step{Kind: postSendStep, A: int32(i)})
		}
		if m.posted[i] < m.receives(i) {
			can = append(can, explore.Step{Kind: postRecvStep, A: int32(i)})
		}
	}
	can = m.Network.Enabled(can)
	switch rnr := m.waitsForReceive(); {
	case m.deadline() == mono.Never || rnr && m.waits == 0:
	case m.Empty() || rnr:
		can = append(can, explore.Step{Kind: timeStep})
	case m.Faults > 0:
		can = append(can, explore.Step{Kind: earlyTimeStep})
	}
	return can
}

// receives returns how many receives a host needs.
func (m *machine) receives(i int) (n int) {
	for _, r := range m.requests[1-i] {
		if r == 's' || r == 'S' {
			n++
		}
	}
	return n
}

// waitsForReceive reports whether a requester waits because no receive was posted. It would repeat that
// for ever.
func (m *machine) waitsForReceive() bool {
	return m.qps[0].req.rnrUntil != mono.Never && m.posted[1] < m.receives(1) || m.qps[1].req.rnrUntil != mono.Never && m.posted[0] < m.receives(0)
}

func (m *machine) deadline() mono.Time { return min(m.qps[0].deadline(), m.qps[1].deadline()) }

// Take implements explore.Machine.
func (m *machine) Take(s explore.Step) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	completed := [2][2]int{m.done, m.received}
	switch s.Kind {
	case postSendStep:
		m.post(int(s.A))
	case postRecvStep:
		h, n := m.hosts[s.A], m.posted[s.A]
		m.posted[s.A]++
		h.recv(m.qps[s.A], uint64(n), h.sge(recvArea+n*slotSize, slotSize))
	case timeStep, earlyTimeStep:
		if s.Kind == earlyTimeStep {
			m.Faults--
		}
		if m.waitsForReceive() {
			m.waits--
		}
		m.now = max(m.now, m.deadline())
		for _, h := range m.hosts {
			h.nic.Tick(m.now)
		}
	default:
		if p := m.Network.Take(s); p != nil {
			m.deliver(p)
		}
	}
	m.settle()
	m.progress = s.Kind != explore.Deliver && s.Kind != timeStep || completed != [2][2]int{m.done, m.received}
	return m.failure
}

// post posts the next request of a host.
func (m *machine) post(i int) {
	h, peer, n := m.hosts[i], m.hosts[1-i], m.sent[i]
	m.sent[i]++
	wr := verbs.SendWR{WRID: uint64(n), Flags: verbs.SendSignaled}
	local, remote := sourceArea, targetArea
	switch m.requests[i][n] {
	case 's', 'S':
		wr.Opcode = verbs.OpSend
	case 'w', 'W':
		wr.Opcode = verbs.OpRDMAWrite
	case 'r', 'R':
		wr.Opcode, local = verbs.OpRDMARead, resultArea
	case 'f':
		wr.Opcode, wr.Atomic.CompareAdd, local, remote = verbs.OpAtomicFetchAdd, 1, resultArea, counterAt
	}
	wr.Remote = peer.remote(remote)
	wr.SGL = []verbs.SGE{h.sge(local+n*slotSize, requestLength(m.requests[i][n]))}
	h.send(m.qps[i], m.now, wr)
}

// deliver delivers a packet, whose last two octets are the source port.
func (m *machine) deliver(p *explore.Packet) {
	payload, port := p.Bytes[:len(p.Bytes)-2], binary.BigEndian.Uint16(p.Bytes[len(p.Bytes)-2:])
	m.hosts[p.To].nic.Input(m.now, &link.Datagram{
		Src: netip.AddrPortFrom(m.hosts[p.From].addr, port), Dst: netip.AddrPortFrom(m.hosts[p.To].addr, wire.Port), HopLimit: 64,
		Payload: bytes.Clone(payload),
	})
}

// settle puts what the NICs send into the network, and handles completions.
func (m *machine) settle() {
	for i, h := range m.hosts {
		for n := h.nic.Output(m.now, m.batch); n > 0; n = h.nic.Output(m.now, m.batch) {
			for k := range n {
				d := &m.batch[k]
				m.Send(i, 1-i, binary.BigEndian.AppendUint16(d.Payload, d.Src.Port()))
			}
		}
	}
	for i, h := range m.hosts {
		for _, wc := range h.poll() {
			if err := m.completion(i, &wc); err != nil && m.failure == nil {
				m.failure = fmt.Errorf("host %d: %+v: %w", i, wc, err)
			}
		}
	}
}

// completion checks a completion of host i.
func (m *machine) completion(i int, wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("status %v", wc.Status)
	}
	h := m.hosts[i]
	if wc.Opcode == verbs.WCOpRecv {
		n := m.received[i]
		m.received[i]++
		sender := m.sendNumber(1-i, n)
		at := recvArea + n*slotSize
		if int(wc.WRID) != n || !bytes.Equal(h.mem[at:][:wc.ByteLen], messageOf(1-i, sender)[:requestLength(m.requests[1-i][sender])]) {
			return fmt.Errorf("receive %d has not the contents of request %d", n, sender)
		}
		return nil
	}
	n := m.done[i]
	m.done[i]++
	if int(wc.WRID) != n {
		return fmt.Errorf("request %d is the next to complete", n)
	}
	result := h.mem[resultArea+n*slotSize:]
	earlier := m.requests[i][:n]
	switch m.requests[i][n] {
	case 's', 'S':
		if sent := strings.Count(strings.ToLower(earlier), "s"); m.received[1-i] <= sent {
			return fmt.Errorf("the peer has received %d messages, and not message %d", m.received[1-i], sent)
		}
	case 'r', 'R':
		length := requestLength(m.requests[i][n])
		if want := m.target(i, n)[:length]; !bytes.Equal(result[:length], want) {
			return fmt.Errorf("READ of % x, want % x", result[:length], want)
		}
	case 'f':
		if got, want := binary.NativeEndian.Uint64(result), strings.Count(earlier, "f"); got != uint64(want) {
			return fmt.Errorf("FETCH_ADD of %d, want %d", got, want)
		}
	}
	return nil
}

// requestLength is the number of bytes of a request.
func requestLength(request byte) int {
	switch request {
	case 's', 'w', 'r':
		return 10
	case 'f':
		return 8
	}
	return longMessage
}

// sendNumber returns the number of the request that is the n-th SEND of a host.
func (m *machine) sendNumber(i, n int) int {
	for number := range m.requests[i] {
		if r := m.requests[i][number]; r == 's' || r == 'S' {
			if n == 0 {
				return number
			}
			n--
		}
	}
	panic("more receives than SENDs")
}

// target returns what the first n requests of a host write to its peer.
func (m *machine) target(i, n int) []byte {
	b := make([]byte, slotSize)
	for number := range n {
		if r := m.requests[i][number]; r == 'w' || r == 'W' {
			copy(b, messageOf(i, number)[:requestLength(r)])
		}
	}
	return b
}

// Check implements explore.Machine. Completions are checked when they are polled.
func (m *machine) Check() error { return nil }

// Finish implements explore.Finisher: all requests are executed once, and complete.
func (m *machine) Finish() error {
	for i, h := range m.hosts {
		peer := m.requests[1-i]
		switch {
		case m.done[i] != len(m.requests[i]) || m.received[i] != m.receives(i):
			return fmt.Errorf("%w: host %d has completed %d of %q, and %d receives", explore.ErrDeadlock, i, m.done[i], m.requests[i], m.received[i])
		case !bytes.Equal(h.mem[targetArea:][:slotSize], m.target(1-i, len(peer))):
			return fmt.Errorf("host %d: the memory is not what %q writes", i, peer)
		}
		if got := binary.NativeEndian.Uint64(h.mem[counterAt:]); got != uint64(strings.Count(peer, "f")) {
			return fmt.Errorf("host %d: %q has added %d", i, peer, got)
		}
	}
	return nil
}

// Progressed implements explore.Progresser.
func (m *machine) Progressed() bool { return m.progress }

// Fingerprint implements explore.Machine. Queues of requests are those of the program, so that only
// the progress of the requests counts. Deadlines are relative to the present.
func (m *machine) Fingerprint() [16]byte {
	packets, inOrder := m.Packets()
	values := []any{m.Faults, m.waits, m.sent, m.done, m.posted, m.received, inOrder, packets}
	for i, q := range m.qps {
		values = append(values, q.state, q.sq.head, q.rq.Count(), relative(q.req.timer, m.now), relative(q.req.rnrUntil, m.now), &q.req, &q.resp)
		for at := q.sq.head; at != q.sq.tail; at++ {
			values = append(values, q.sq.at(at).sendProgress)
		}
		values = append(values, explore.Hash(m.hosts[i].mem[resultArea:]))
	}
	return m.digest.Sum(values...)
}

func relative(at, now mono.Time) int64 {
	if at == mono.Never {
		return -1
	}
	return int64(at.Sub(now))
}

// newDigest omits times, which Fingerprint has, and the queue of delayed ACKs, which is not used.
func newDigest() *explore.Digest {
	return &explore.Digest{
		Types:  map[string]func(reflect.Value) uint64{"mono.Time": nil, "nic.PD": nil, "*nic.SRQ": nil},
		Fields: map[string]func(reflect.Value) uint64{"responder.delay": nil},
	}
}

// programs are short programs, and with -explore longer ones.
func programs() map[string]program {
	all := map[string]program{
		"messages":  {[2]string{"sS", ""}, 0},
		"fault":     {[2]string{"Ww", ""}, 1},
		"write":     {[2]string{"W", ""}, 1},
		"read":      {[2]string{"wR", ""}, 0},
		"atomic":    {[2]string{"f", ""}, 1},
		"both ways": {[2]string{"s", "w"}, 0},
	}
	if *exploreAll {
		all["messages, two faults"] = program{[2]string{"sS", ""}, 2}
		all["reads, two faults"] = program{[2]string{"WRs", ""}, 2}
		all["atomics, two faults"] = program{[2]string{"ff", ""}, 2}
		all["atomics and reads, two faults"] = program{[2]string{"fRf", ""}, 2}
		all["write, three faults"] = program{[2]string{"Ws", ""}, 3}
		all["atomic, three faults"] = program{[2]string{"fs", ""}, 3}
		all["both ways, two faults"] = program{[2]string{"s", "w"}, 2}
		all["both ways with read, a fault"] = program{[2]string{"sR", "fs"}, 1}
	}
	return all
}

// Requests are executed once and in order whatever the network does.
func TestAllStates(t *testing.T) {
	all := programs()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if !part.Has(i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			d := newDigest()
			r := must.Get(explore.Machines(t.Context(), explore.Options{Parallel: 1}, func() explore.Machine { return all[name].machine(d) }))(t)
			t.Logf("%d states, %d steps, %d ends, up to %d steps; finished: %v, in %v", r.States, r.Edges, r.Runs, r.Deepest, r.Finished, r.Elapsed)
			if r.Failure != nil {
				err := explore.Replay(all[name].machine(d), r.Failure.Path, func(s explore.Step) { t.Logf("%v %d", s.Kind, s.A) })
				t.Fatalf("%v; path: %v", err, r.Failure.Path)
			}
		})
	}
}
