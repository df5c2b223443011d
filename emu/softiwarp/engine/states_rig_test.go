package engine

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// stateRig is a connection in some state, with memory that must not change and a record of all
// posted requests.
type stateRig struct {
	*tester
	fenced  []byte // the open region with guard octets on both sides
	open    *nic.Region
	closed  nic.Bytes // registered without remote access
	crc     bool
	pending map[uint64]int // remaining completions of work requests, by ID
	nextID  uint64
}

const (
	fence    = 64
	openLen  = 512
	fenceVal = 0xa5
)

func newStateRig(t testing.TB, crc bool) *stateRig {
	h := newHost(t, func(c *Config, q *iwarp.QueueConfig) {
		c.MPA.PeerToPeer, c.MPA.NoCRC, c.MPA.QueueOctets = true, !crc, 4096
		q.Caps.MaxRecvWR, q.Caps.MaxSendWR = 8, 16
	})
	b := &stateRig{tester: &tester{host: h}, crc: crc, pending: map[uint64]int{}}
	b.fenced = bytes.Repeat([]byte{fenceVal}, fence+openLen+fence)
	mem := b.fenced[fence : fence+openLen]
	clear(mem)
	b.open = must.Get(h.nic.RegMR(h.pd, nic.Bytes(mem), 0, allAccess))(t)
	_, b.closed = h.region(256, verbs.AccessLocalWrite)
	for i := range b.closed {
		b.closed[i] = secretByte
	}
	f := wire.Framing{CRC: crc}
	b.framer, b.parser = wire.NewFramer(f), wire.NewDeframer(f)
	return b
}

func (b *stateRig) id() uint64 {
	b.nextID++
	b.pending[b.nextID] = 1
	return b.nextID
}

func (b *stateRig) recvs(n int) {
	for range n {
		b.recv(b.id(), sge(b.open, 256, 64))
	}
}

func (b *stateRig) sends(ops ...verbs.WROpcode) {
	for _, op := range ops {
		b.send(verbs.SendWR{WRID: b.id(), Opcode: op, SGL: []verbs.SGE{sge(b.open, 0, 8)}, Remote: verbs.Remote{RKey: 7}})
	}
}

// startup returns a start-up frame that fits the config of newStateRig.
func (b *stateRig) startup(reply bool) []byte {
	e := wire.Enhanced{PeerToPeer: true, RTRWrite: true, IRD: 4, ORD: 4}
	f := wire.StartFrame{Reply: reply, CRC: b.crc, Enhanced: true, Revision: 2, PrivateData: e.Append(nil)}
	return f.Append(nil)
}

func (b *stateRig) responds() {
	b.c = b.nic.Incoming()
	b.pipe = newPipe(b.host.t, b.c, nil)
}

func (b *stateRig) initiates() {
	c := must.Get(b.nic.Connect(b.qp, ConnParam{IRD: 4, ORD: 4}))(b.host.t)
	b.c = c
	b.pipe = newPipe(b.host.t, c, nil)
	b.take(0)
}

func (b *stateRig) accepts() {
	b.responds()
	b.give(0, b.startup(false))
	must.Do(b.host.t, b.c.Accept(b.now, b.qp, ConnParam{IRD: 4, ORD: 4}))
	b.take(0)
}

// established creates a responder that has received the RTR.
func (b *stateRig) established() {
	b.accepts()
	b.sendSegment(write(1, 0, nil))
	b.take(0)
}

// connected creates an initiator that has sent the RTR.
func (b *stateRig) connected() {
	b.initiates()
	b.give(0, b.startup(true))
	b.take(0)
}

// inputStates are the states of a connection in which FuzzStates gives it input.
var inputStates = []struct {
	name  string
	want  ConnState
	reach func(b *stateRig)
}{
	{"before the Request", Starting, (*stateRig).responds},
	{"half a Request", Starting, func(b *stateRig) { b.responds(); b.give(0, b.startup(false)[:18]) }},
	{"Request without an answer", Requested, func(b *stateRig) { b.responds(); b.give(0, b.startup(false)) }},
	{"before the RTR", Accepted, func(b *stateRig) { b.recvs(2); b.accepts() }},
	{"half an RTR", Accepted, func(b *stateRig) {
		b.accepts()
		b.sends(verbs.OpSend) // waits for the initiator
		rtr := write(1, 0, nil)
		b.give(0, b.framer.Append(nil, rtr.Append(nil))[:9])
	}},
	{"before the Reply", Starting, (*stateRig).initiates},
	{"half a Reply", Starting, func(b *stateRig) { b.initiates(); b.give(0, b.startup(true)[:21]) }},
	{"established", Established, func(b *stateRig) { b.recvs(4); b.established() }},
	{"without receives", Established, (*stateRig).established},
	{"half a Send and half a Write", Established, func(b *stateRig) {
		b.recvs(4)
		b.established()
		for _, g := range []wire.Segment{segment(wire.OpSend, 1, []byte("half")), write(b.open.Key, b.open.Addr, []byte("half"))} {
			g.Control.Last = false
			b.sendSegment(g)
		}
	}},
	{"its reads and atomics unanswered", Established, func(b *stateRig) {
		b.recvs(1)
		b.connected()
		b.sends(verbs.OpRDMARead, verbs.OpAtomicFetchAdd, verbs.OpRDMARead, verbs.OpSend, verbs.OpRDMARead, verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp)
		b.take(0)
		g := write(b.open.Key, b.open.Addr, []byte("half"))
		g.Control = wire.NewControl(wire.OpReadResponse, false)
		b.sendSegment(g)
	}},
	{"the peer's reads unanswered", Established, func(b *stateRig) {
		b.established()
		for i := range 3 {
			g := segment(wire.OpReadRequest, wire.MSN(i+1), nil)
			g.ReadRequest = wire.ReadRequest{Size: openLen, SrcSTag: wire.STag(b.open.Key), SrcTO: b.open.Addr}
			b.sendSegment(g)
		}
	}},
	{"half an FPDU", Established, func(b *stateRig) {
		b.recvs(1)
		b.connected()
		g := segment(wire.OpSend, 1, []byte("half"))
		b.give(0, b.framer.Append(nil, g.Append(nil))[:11])
	}},
	{"closing", Closing, func(b *stateRig) {
		b.recvs(2)
		b.connected()
		b.sends(verbs.OpRDMARead)
		b.c.Disconnect(b.now)
		b.take(0)
	}},
	{"closed by the NIC", Closing, func(b *stateRig) {
		b.recvs(2)
		b.connected()
		b.c.Disconnect(b.now)
		b.take(0)
	}},
	{"terminated", Closing, func(b *stateRig) {
		b.recvs(2)
		b.established()
		b.sendSegment(segment(wire.OpSend, 9, nil))
	}},
	{"after a Terminate", Closing, func(b *stateRig) {
		b.recvs(2)
		b.connected()
		b.sends(verbs.OpRDMARead)
		b.take(0)
		g := segment(wire.OpTerminate, 1, nil)
		g.Terminate.Error = wire.TermProtAccess
		b.sendSegment(g)
	}},
}

// check checks the invariants.
func (b *stateRig) check() {
	t := b.host.t
	t.Helper()
	for i, v := range b.fenced {
		if (i < fence || i >= fence+openLen) && v != fenceVal {
			t.Fatalf("octet %d beside a region was written", i-fence)
		}
	}
	if slices.ContainsFunc(b.closed, func(v byte) bool { return v != secretByte }) {
		t.Fatal("memory that is closed to peers was written")
	}
	if bytes.Contains(b.log[0], bytes.Repeat([]byte{secretByte}, 8)) {
		t.Fatal("memory without remote access was sent")
	}
	b.reap()
	c := b.c
	if len(c.copiedOutput) > 4096+wire.MaxFPDULen {
		t.Fatalf("%d octets are kept to be sent", len(c.copiedOutput))
	}
	if len(c.PrivateData) > wire.MaxPrivateData {
		t.Fatalf("%d octets of private data", len(c.PrivateData))
	}
	if c.State() == Starting && b.nic.Deadline() == mono.Never {
		t.Fatal("start-up without an end")
	}
	if c.State() == Closing && c.closeDeadline == mono.Never {
		t.Fatal("it closes without an end")
	}
}

// reap polls completions. Each must be of a posted request, and the only one.
func (b *stateRig) reap() {
	var wcs [16]verbs.WC
	for _, cq := range []interface {
		Poll([]verbs.WC) (int, error)
	}{b.SendCQ, b.RecvCQ} {
		for {
			n := must.Get(cq.Poll(wcs[:]))(b.host.t)
			for _, wc := range wcs[:n] {
				if b.pending[wc.WRID]--; b.pending[wc.WRID] != 0 {
					b.host.t.Fatalf("completion %+v, unknown or repeated", wc)
				}
				delete(b.pending, wc.WRID)
			}
			if n == 0 {
				break
			}
		}
	}
}

// finish closes or resets the peer's end and lets time pass: the connection must end, release its
// buffers and complete all requests.
func (b *stateRig) finish(reset bool) {
	t := b.host.t
	t.Helper()
	switch {
	case b.reset[0]:
	case reset:
		b.reset[0] = true
		b.c.Failed(b.now, link.ErrReset)
	default:
		b.eof[1] = true
		b.c.InputEOF(b.now)
	}
	if b.c.State() == Requested {
		_ = b.c.Reject(b.now, nil)
	}
	b.write(0)
	b.later(time.Minute, b.nic)
	b.write(0)
	b.check()
	if b.c.State() != Closed || b.qp.conn != nil {
		t.Fatalf("the peer has closed, and the connection is %v", b.c.State())
	}
	if b.c.mpa != nil || b.c.copiedOutput != nil || b.nic.Deadline() != mono.Never {
		t.Fatal("it still has buffers or a timer")
	}
	if b.qp.idle() { // it was never connected and keeps posted receives
		must.Do(t, b.qp.Modify(b.now, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
	}
	b.reap()
	if len(b.pending) > 0 {
		t.Fatalf("%d requests never completed", len(b.pending))
	}
}
