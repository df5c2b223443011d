package engine

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestUDSendCompletesWhenSent(t *testing.T) {
	w, a, b := pair(t, false)
	w.intercept = func(*link.Datagram, *wire.Packet) bool { return true }
	a.send(b, 1, 10)
	a.expectCompletions(0)
	w.output()
	a.expectSuccess(1)
}

func TestUDMessageWithoutReceiveIsDropped(t *testing.T) {
	w, a, b := pair(t, false)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	b.recv(1, 0, 100)
	a.send(b, 2, 20)
	w.run(time.Millisecond)
	a.expectSuccess(2)
	if wc := b.expectSuccess(1)[0]; wc.ByteLen != 60 || b.h.nic.Count.DropNoReceive != 1 || b.state != verbs.QPStateRTS {
		t.Errorf("%+v, %d dropped", wc, b.h.nic.Count.DropNoReceive)
	}
}

func TestReceivedGRHHasSourceAddress(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		w := newNetwork(t)
		a, b := w.host(func(c *Config) { c.Port = 1234; c.GIDs = hostGIDs(v6, 1) }), w.host(func(c *Config) { c.GIDs = hostGIDs(v6, 2) })
		a.addr, b.addr = hostGIDs(v6, 1)[0].GID.Addr(), hostGIDs(v6, 2)[0].GID.Addr()
		x, y := a.newQP(false), b.newQP(false)
		y.recv(1, 0, 100)
		ah, err := a.nic.CreateAH(a.pd, verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(b.addr), TrafficClass: 0x48}}, wire.Port)
		if err != nil {
			t.Fatal(err)
		}
		wr := verbs.SendWR{Opcode: verbs.OpSend, SGL: x.sge(0, 4), UD: verbs.UD{QPN: verbs.QPN(y.QPN), QKey: testKey}}
		must.Do(t, x.PostSend(w.now, &wr, Refs{AH: ah}))
		w.run(time.Millisecond)
		wc := y.expectSuccess(1)[0]
		area := y.bytes(recvAt, verbs.GRHLen)
		reply, err := verbs.InitAHFromWC(1, 0, &wc, area)
		if err != nil || reply.GRH.DGID.Addr() != a.addr || wc.SrcQP != verbs.QPN(x.QPN) || SourcePort(area) != 1234 || reply.GRH.TrafficClass != 0x48 {
			t.Errorf("v6 %v: %v: from %v port %d QP %#x, class %#x", v6, err, reply.GRH.DGID, SourcePort(area), wc.SrcQP, reply.GRH.TrafficClass)
		}
		got, want := binary.BigEndian.Uint16(area[22:]), link.IPv4HeaderLen+link.UDPHeaderLen+4
		if v6 {
			got, want = binary.BigEndian.Uint16(area[4:]), link.UDPHeaderLen+4
		}
		if int(got) != want {
			t.Errorf("v6 %v: the length in the IP header is %d, want %d", v6, got, want)
		}
	}
}

func hostGIDs(v6 bool, n byte) []verbs.GIDEntry {
	a := netip.AddrFrom4([4]byte{192, 0, 2, n})
	if v6 {
		a = netip.AddrFrom16([16]byte{0xfd, 15: n})
	}
	return []verbs.GIDEntry{{GID: verbs.GIDFrom(a)}}
}

func TestPacketsReachQPByNumber(t *testing.T) {
	w, a, b := pair(t, false)
	c := b.h.newQP(false)
	b.recv(1, 0, 100)
	c.recv(2, 0, 100)
	a.send(b, 1, 10)
	a.send(c, 2, 20)
	w.run(time.Millisecond)
	if x, y := b.expectSuccess(1)[0], c.expectSuccess(1)[0]; x.ByteLen != 50 || y.ByteLen != 60 {
		t.Errorf("%+v, %+v", x, y)
	}
}

func TestQPNumberZeroMeansOnlyQP(t *testing.T) {
	w, a, b := pair(t, false)
	withoutQPN := func(d *link.Datagram, k *wire.Packet) bool {
		k.DstQP = 0
		d.Payload = k.Append(nil)
		return false
	}
	w.intercept = withoutQPN
	b.recv(1, 0, 100)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	b.expectSuccess(1)
	c := b.h.newQP(false)
	b.recv(1, 0, 100)
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	b.expectCompletions(0)
	must.Do(t, b.h.nic.DestroyQP(b.QP))
	c.recv(1, 0, 100)
	a.send(c, 1, 10)
	w.run(time.Millisecond)
	c.expectSuccess(1)
	if b.h.nic.Count.DropQPN != 1 {
		t.Errorf("%d packets without a QP, want 1", b.h.nic.Count.DropQPN)
	}
}

func TestWrongQKeyIsDropped(t *testing.T) {
	for _, reliable := range []bool{false, true} {
		w, a, b := pair(t, reliable)
		b.recv(1, 0, 100)
		a.post(b, verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, 4), UD: verbs.UD{QKey: 17}})
		w.run(time.Millisecond)
		b.expectCompletions(0)
		if b.h.nic.Count.DropKey == 0 || b.state != verbs.QPStateRTS {
			t.Errorf("reliable %v: %d dropped, state %v", reliable, b.h.nic.Count.DropKey, b.state)
		}
	}
}

func TestDamagedPacketsAreDropped(t *testing.T) {
	w, a, b := pair(t, false)
	b.recv(1, 0, 100)
	damage := []func(d *link.Datagram){
		func(d *link.Datagram) { d.Payload[20] ^= 1 },
		func(d *link.Datagram) { d.Payload = d.Payload[:10] },
		func(d *link.Datagram) { d.Payload = nil },
		func(d *link.Datagram) {
			d.Payload[0] = 0x21
			d.Payload = wire.AppendCRC(d.Payload[:len(d.Payload)-4], 0)
		},
		func(d *link.Datagram) {
			d.Payload[0] = 0x1f
			d.Payload = wire.AppendCRC(d.Payload[:len(d.Payload)-4], 0)
		},
		func(d *link.Datagram) { d.Payload = wire.AppendCRC(d.Payload[:20], 0) }, // no DDP header
		func(d *link.Datagram) { d.Dst = netip.AddrPortFrom(d.Dst.Addr(), 1) },
	}
	for _, f := range damage {
		w.intercept = func(d *link.Datagram, _ *wire.Packet) bool { f(d); return false }
		a.send(b, 1, 10)
		w.run(time.Millisecond)
		b.expectCompletions(0)
	}
	c := &b.h.nic.Count
	if c.DropCRC != 3 || c.DropMalformed != 3 || c.DropAddress != 1 || w.sent != len(damage) {
		t.Errorf("CRC %d, malformed %d, address %d; %d packets, want 3, 3, 1 and no replies", c.DropCRC, c.DropMalformed, c.DropAddress, w.sent)
	}
	w.intercept = nil
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	b.expectSuccess(1)
}

func TestUDRefusesUnsupportedRequests(t *testing.T) {
	w, a, b := pair(t, false)
	for _, tc := range []struct {
		name string
		wr   verbs.SendWR
		want error
	}{
		{"a Read", verbs.SendWR{Opcode: verbs.OpRDMARead, SGL: a.sge(0, 8)}, verbs.ErrNotSupported},
		{"an atomic", verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, SGL: a.sge(0, 8)}, verbs.ErrNotSupported},
		{"a Send with invalidate", verbs.SendWR{Opcode: verbs.OpSendInv, SGL: a.sge(0, 8)}, verbs.ErrNotSupported},
		{"too long", verbs.SendWR{Opcode: verbs.OpSend, SGL: a.sge(0, MaxUDSend+1)}, verbs.ErrInvalid},
		{"immediate data with a payload", verbs.SendWR{Opcode: verbs.OpSendImm, SGL: a.sge(0, 1)}, verbs.ErrNotSupported},
		{"too much inline data", verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendInline, Inline: make([]byte, 65)}, verbs.ErrInvalid},
	} {
		must.Fail(t, tc.name, a.tryPost(b, tc.wr), tc.want)
	}
	// A peer that sends one gets an error message.
	w.intercept = func(d *link.Datagram, k *wire.Packet) bool {
		if d.Dst.Addr() == b.h.addr {
			modifyULPDU(d, k, func(u []byte) { u[1] = u[1]&0xf0 | byte(ddp.OpSendInv) })
		}
		return false
	}
	a.send(b, 1, 10)
	w.run(time.Millisecond)
	if r, ok := a.LastError(); !ok || r.Error != ddp.TermOpOpcode {
		t.Errorf("reported %+v, %v", r, ok)
	}
}

func TestUDImmediateData(t *testing.T) {
	w, a, b := pair(t, false)
	for _, c := range []struct {
		flags verbs.SendFlags
		want  ddp.Opcode
	}{{0, ddp.OpImmediate}, {verbs.SendSolicited, ddp.OpImmediateSE}} {
		w.intercept = func(_ *link.Datagram, k *wire.Packet) bool {
			var h ddp.Header
			body, err := h.Parse(k.ULPDU)
			if err != nil || h.Control.Opcode != c.want || !bytes.Equal(body, []byte{0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0}) {
				t.Errorf("%v: %+v with % x, want %v with the immediate data and zeros", err, h, body, c.want)
			}
			return false
		}
		b.recv(1, 0, 100)
		a.post(b, verbs.SendWR{Opcode: verbs.OpSendImm, Imm: 0xdeadbeef, Flags: c.flags})
		w.run(time.Millisecond)
		if wc := b.expectSuccess(1)[0]; wc.Imm != 0xdeadbeef || wc.Flags&verbs.WCWithImm == 0 || wc.ByteLen != verbs.GRHLen {
			t.Errorf("%+v", wc)
		}
	}
}

func TestQPsShareSRQ(t *testing.T) {
	w := newNetwork(t)
	ha, hb := w.host(), w.host()
	srq := must.Get(hb.nic.CreateSRQ(nic.SRQConfig{PD: hb.pd, MaxWR: 8, MaxSGE: 1}))(t)
	share := func(c *QPConfig) { c.SRQ = srq }
	for _, reliable := range []bool{false, true} {
		a, b, c := ha.newQP(reliable), hb.newQP(reliable, share), hb.newQP(reliable, share)
		for i := range 2 {
			must.Do(t, srq.PostRecv(&verbs.RecvWR{WRID: uint64(i), SGL: b.sge(recvAt+1000*i, 1000)}))
		}
		a.send(b, 1, 10)
		a.send(c, 2, 10)
		w.run(time.Millisecond)
		b.expectSuccess(1)
		c.expectSuccess(1)
		if srq.Count() != 0 {
			t.Errorf("reliable %v: %d receives left", reliable, srq.Count())
		}
		if err := b.PostRecv(&verbs.RecvWR{}); err == nil {
			t.Error("a QP with an SRQ accepted a receive")
		}
	}
}

// Packets to one peer are contiguous in the buffer of the first, so that a link can use GSO.
func TestPacketsToOnePeerAreContiguous(t *testing.T) {
	for _, reliable := range []bool{false, true} {
		w, a, b := pair(t, reliable)
		for i := range 20 {
			b.recv(uint64(i), 5000*i, 5000)
		}
		a.send(b, 1, 100)
		w.run(time.Second)
		for range 10 {
			a.send(b, 1, 3000)
		}
		ds := make([]link.Datagram, 16)
		ds[0].Payload = make([]byte, 0, 16*testMTU)
		n := a.h.nic.Output(w.now, ds)
		if n != 16 {
			t.Fatalf("%d packets", n)
		}
		all := ds[0].Payload[:cap(ds[0].Payload)]
		at := 0
		for i := range n {
			if len(ds[i].Payload) == 0 || &ds[i].Payload[0] != &all[at] {
				t.Fatalf("reliable %v: packet %d is not at %d", reliable, i, at)
			}
			at += len(ds[i].Payload)
		}
	}
}

// A Write has no MSN: the Sends before and after it have consecutive ones.
func TestUDSendsDoNotCountWrites(t *testing.T) {
	w, a, b := pair(t, false)
	var numbers []ddp.MSN
	w.intercept = func(_ *link.Datagram, k *wire.Packet) bool {
		var h ddp.Header
		if _, err := h.Parse(k.ULPDU); err != nil {
			t.Error(err)
		}
		if !h.Control.Tagged {
			numbers = append(numbers, h.Untagged.MSN)
		}
		return true
	}
	write := verbs.SendWR{Opcode: verbs.OpRDMAWrite, SGL: a.sge(0, 3000), Remote: verbs.Remote{RKey: 77}}
	for range 2 {
		a.post(b, write)
		a.send(b, 1, 10)
		a.post(b, write)
		a.send(b, 2, 10)
	}
	w.output()
	if !slices.Equal(numbers, []ddp.MSN{1, 2, 3, 4}) {
		t.Errorf("Sends between Writes have the MSNs %d", numbers)
	}
}

// drain moves the QP to SQD and requests SQ_DRAINED.
func (e *testQP) drain() {
	e.h.w.t.Helper()
	must.Do(e.h.w.t, e.Modify(verbs.QPAttr{State: verbs.QPStateSQD, EnSQDAsyncNotify: true}, verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
}

// drained reports whether SQ_DRAINED is the next event.
func (e *testQP) drained() bool {
	event, ok := e.h.nic.NextEvent()
	return ok && event.Type == verbs.EventSQDrained && event.QP == any(e.QP)
}

// In SQD a message that was begun is finished and the next one waits; then the send queue is
// drained, on RD after the Ack.
func TestDrainedAfterBegunRequests(t *testing.T) {
	w, a, b := pair(t, false)
	for id := range uint64(2) {
		b.recv(id, int(id)*6000, 6000)
		a.send(b, 10+id, 5000)
	}
	first := a.h.out[:1]
	for range a.h.nic.Output(w.now, first) {
		w.transmit(first[0])
	}
	a.drain()
	if a.drained() {
		t.Error("drained in the middle of a message")
	}
	w.run(time.Millisecond)
	a.expectSuccess(1)
	b.expectSuccess(1)
	if !a.drained() {
		t.Error("not drained after the message")
	}
	must.Do(t, a.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState))
	w.run(time.Millisecond)
	b.expectSuccess(1)

	w, a, b = pair(t, true)
	b.recv(1, 0, 1000)
	a.send(b, 2, 500)
	w.output()
	a.drain()
	if a.drained() {
		t.Error("drained before the Ack")
	}
	w.run(time.Second)
	a.expectSuccess(1)
	if !a.drained() || a.drained() {
		t.Error("not drained once after the Ack")
	}
}

// One call of Output sends the packets of all QPs, if there is room for them.
func TestOutputTakesRequestsOfAllQPs(t *testing.T) {
	w, a, b := pair(t, false)
	other := a.h.newQP(false)
	a.send(b, 1, 10)
	other.send(b, 2, 10)
	if n := a.h.nic.Output(w.now, a.h.out); n != 2 {
		t.Errorf("%d packets, want 2", n)
	}
}
