package mpa

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// end is one side of a random exchange: a connection, the octets in flight to it, and its expected
// events.
type end struct {
	*Conn
	name    string
	wire    []byte   // written by the other side and not yet read
	due     [][]byte // ULPDUs that the other side has sent and this one has not reported
	pending [][]byte // own payloads that TCP has not completely accepted
	sent    int
	opened  bool // EventAccepted or Accept
}

type pairing struct {
	t           *testing.T
	rng         *rand.Rand
	a, b        *end
	config      Config
	acceptParam AcceptParam
}

func randomConfig(rng *rand.Rand) Config {
	depth := func() uint16 { return []uint16{0, 1, 7, 300, notNegotiated - 1, notNegotiated}[rng.IntN(6)] }
	return Config{
		Markers: rng.IntN(2) == 0, NoCRC: rng.IntN(2) == 0,
		MSS: []int{0, 88, 536, 1448, 1460, 8948, 65483}[rng.IntN(7)],
		IRD: depth(), ORD: depth(), MaxIRD: notNegotiated - 1, // so that no Reply exceeds it
		PeerToPeer: rng.IntN(2) == 0, RTR: RTR(rng.IntN(8)) | RTRWrite, Align: rng.IntN(3) == 0,
		QueueFPDUs: rng.IntN(20), QueueOctets: rng.IntN(100000),
	}
}

// TestRandomPairsDeliverInOrder runs random exchanges between two random configurations over
// a stream that is split anywhere: everything arrives once, in order and unchanged.
func TestRandomPairsDeliverInOrder(t *testing.T) {
	for seed := range uint64(120) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runPair(t, seed) })
	}
}

func runPair(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	k := &pairing{t: t, rng: rng, config: randomConfig(rng)}
	k.config.PrivateData = pattern(rng.IntN(509), 1)
	answer := randomConfig(rng)
	answer.RTR |= k.config.RTR // at least one in common
	k.acceptParam = AcceptParam{IRD: answer.IRD, ORD: answer.ORD, PrivateData: pattern(rng.IntN(509), 2)}
	k.a = &end{Conn: NewInitiator(0, k.config), name: "initiator"}
	k.b = &end{Conn: NewResponder(0, answer), name: "responder"}

	for step := 0; step < 40000 && !t.Failed(); step++ {
		from, to := k.a, k.b
		if rng.IntN(2) == 0 {
			from, to = to, from
		}
		switch rng.IntN(4) {
		case 0:
			k.send(from, to)
		case 1:
			k.write(from, to)
		case 2:
			k.read(to, from)
		case 3:
			if rng.IntN(50) == 0 {
				from.SetMSS(rng.IntN(9000))
			}
		}
		if k.a.sent > 60 && k.b.sent > 60 && step > 3000 {
			break
		}
	}
	for range 100000 { // deliver the octets in flight
		k.write(k.a, k.b)
		k.write(k.b, k.a)
		k.read(k.a, k.b)
		k.read(k.b, k.a)
		if len(k.a.wire)+len(k.b.wire)+len(k.a.due)+len(k.b.due)+len(k.a.pending)+len(k.b.pending) == 0 {
			break
		}
	}
	k.checkEnd()
}

func (k *pairing) send(from, to *end) {
	if !from.Room() {
		return
	}
	if from.sent > 200 {
		return
	}
	n := k.rng.IntN(from.MULPDU() + 1)
	if k.rng.IntN(3) == 0 {
		n = min(n, k.rng.IntN(80))
	}
	u := pattern(n, from.sent)
	head := u[:min(len(u), []int{14, 18, 70}[k.rng.IntN(3)])]
	load := bytes.Clone(u[len(head):])
	var pieces [][]byte
	for p := load; len(p) > 0; {
		cut := 1 + k.rng.IntN(len(p))
		pieces, p = append(pieces, p[:cut]), p[cut:]
	}
	copied := bytes.Clone(head)
	from.Send(copied, pieces)
	clear(copied) // a header may be reused at once
	from.sent++
	from.pending = append(from.pending, load)
	to.due = append(to.due, u)
}

// write passes some output of from to TCP.
func (k *pairing) write(from, to *end) {
	vs := from.Output(nil)
	b := bytes.Join(vs, nil)
	if len(b) == 0 {
		return
	}
	n := k.rng.IntN(len(b) + 1)
	if k.rng.IntN(4) == 0 {
		n = len(b)
	}
	to.wire = append(to.wire, b[:n]...)
	for range from.Sent(n) {
		load := from.pending[0]
		for i := range load {
			load[i] = 0xEE // and payload once TCP has accepted it
		}
		from.pending = from.pending[1:]
	}
}

// read delivers some of the octets in flight to to.
func (k *pairing) read(to, from *end) {
	if len(to.wire) == 0 {
		return
	}
	n := 1 + k.rng.IntN(len(to.wire))
	if k.rng.IntN(3) == 0 {
		n = min(n, 1+k.rng.IntN(8))
	}
	b := bytes.Clone(to.wire[:n])
	to.wire = to.wire[n:]
	to.Input(0, b)
	for e, ok := to.Next(); ok; e, ok = to.Next() {
		k.check(to, e)
	}
	clear(b) // and input, once Next reports false
}

func (k *pairing) check(to *end, e Event) {
	t := k.t
	switch e.Kind {
	case EventRequest:
		if to != k.b || !bytes.Equal(e.PrivateData, k.config.PrivateData) {
			t.Errorf("%s: Request with %d octets", to.name, len(e.PrivateData))
		}
		must.Do(t, to.Accept(k.acceptParam))
		to.opened = true
	case EventAccepted:
		if to != k.a || !bytes.Equal(e.PrivateData, k.acceptParam.PrivateData) {
			t.Errorf("%s: accepted with %d octets", to.name, len(e.PrivateData))
		}
		to.opened = true
	case EventULPDU:
		if len(to.due) == 0 || !bytes.Equal(to.due[0], e.ULPDU) {
			t.Errorf("%s: got %d octets that were not sent, or out of order", to.name, len(e.ULPDU))
			return
		}
		to.due = to.due[1:]
	default:
		t.Errorf("%s: %v %v", to.name, e.Kind, e.Err)
	}
}

// checkEnd compares the parameters of the two sides.
func (k *pairing) checkEnd() {
	t, a, b := k.t, k.a, k.b
	if t.Failed() {
		return
	}
	if len(a.due)+len(b.due)+len(a.wire)+len(b.wire)+len(a.pending)+len(b.pending) > 0 {
		t.Errorf("%d and %d ULPDUs are missing", len(a.due), len(b.due))
	}
	p, q := a.Params(), b.Params()
	if !a.opened || !b.opened || p.In != q.Out || p.Out != q.In || p.In.CRC != p.Out.CRC {
		t.Errorf("framed %+v and %+v", p, q)
	}
	if p.In.Markers != k.config.Markers || p.Revision != q.Revision || p.PeerToPeer != q.PeerToPeer || p.PeerToPeer != k.config.PeerToPeer {
		t.Errorf("%+v and %+v, requested %+v", p, q, k.config)
	}
	if p.PeerToPeer && (p.RTR&q.RTR == 0 || p.RTR&(p.RTR-1) != 0) {
		t.Errorf("RTR %v, offered %v", p.RTR, q.RTR)
	}
	both := func(x, y uint16) bool { return x != notNegotiated && y != notNegotiated }
	if p.Enhanced && both(k.config.ORD, k.acceptParam.IRD) && p.ORD > q.IRD || p.Enhanced && both(k.config.IRD, k.acceptParam.ORD) && q.ORD > p.IRD {
		t.Errorf("depths %d/%d and %d/%d", p.IRD, p.ORD, q.IRD, q.ORD)
	}
	if a.sent < 30 || b.sent < 30 {
		t.Errorf("only %d and %d ULPDUs were sent", a.sent, b.sent)
	}
	if a.Deadline() != mono.Never || b.Deadline() != mono.Never {
		t.Error("a timer runs on")
	}
	if n, m := a.count.FPDUsSent, b.count.FPDUsReceived; n != m || n != uint64(a.sent) || a.count.OctetsSent != b.count.OctetsReceived {
		t.Errorf("counted %d and %d", n, m)
	}
	if a.count.MarkersSent != b.count.MarkersTaken || (a.count.MarkersSent > 0) != p.Out.Markers {
		t.Errorf("counted %d and %d markers", a.count.MarkersSent, b.count.MarkersTaken)
	}
}

// TestPayloadIsNotCopied looks for the payload's own memory in the output.
func TestPayloadIsNotCopied(t *testing.T) {
	for _, f := range framings {
		c := sending(t, Config{}, f)
		load := pattern(1400, 0)
		for range 3 {
			c.Send(pattern(18, 0), [][]byte{load[:700], load[700:]})
			borrowed := 0
			for _, v := range c.Output(nil) {
				for off := range load {
					if &v[0] == &load[off] {
						borrowed += len(v)
					}
				}
			}
			if borrowed != len(load) {
				t.Errorf("%+v: %d of %d octets are borrowed", f, borrowed, len(load))
			}
			written(c)
		}
	}
}

// TestAdjacentOutputIsOneVector counts the vectors of the output: adjacent memory is one vector.
func TestAdjacentOutputIsOneVector(t *testing.T) {
	c := sending(t, Config{}, crcOn)
	for range 20 { // so that buffers are allocated
		c.Send(pattern(18, 0), [][]byte{pattern(64, 1)})
	}
	written(c)
	for range 10 {
		c.Send(pattern(18, 0), [][]byte{pattern(64, 1)})
	}
	if n := len(c.Output(nil)); n != 1 {
		t.Errorf("ten short FPDUs in %d vectors, want 1", n)
	}
	written(c)
	for range 10 {
		c.Send(pattern(18, 0), [][]byte{pattern(1400, 1)})
	}
	if n := len(c.Output(nil)); n != 21 {
		t.Errorf("ten long FPDUs in %d vectors, want 21: a CRC and the header after it are one", n)
	}
}

func TestQueueIsBounded(t *testing.T) {
	c := sending(t, Config{QueueFPDUs: 5}, crcOn)
	n := 0
	for ; c.Room() && n < 100; n++ {
		c.Send(pattern(18, 0), nil)
	}
	if n != 5 {
		t.Errorf("%d FPDUs fit, want 5", n)
	}
	c.Sent(24) // one of them
	if !c.Room() {
		t.Error("no room after one was sent")
	}
	c = sending(t, Config{QueueOctets: 5000}, crcOn)
	for n = 0; c.Room() && n < 100; n++ {
		c.Send(nil, [][]byte{make([]byte, 1442)})
	}
	if n != 4 {
		t.Errorf("%d FPDUs fit into 5000 octets, want 4", n)
	}
	c = sending(t, Config{QueueFPDUs: 1000, QueueOctets: 1 << 30}, marked1)
	for range 50 {
		c.Send(nil, [][]byte{make([]byte, wire.MaxMULPDU)})
	}
	if n := len(c.Output(nil)); n != maxVectors {
		t.Errorf("%d vectors for one write, want %d", n, maxVectors)
	}
}
