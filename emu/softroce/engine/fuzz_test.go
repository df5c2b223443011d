package engine

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// fuzzedNIC is a NIC with QPs of all types in all states, connected to a hostile peer.
// Memory outside of its regions, and read-only regions, must never change.
type fuzzedNIC struct {
	*host
	peer  netip.Addr
	qps   []*QP
	now   mono.Time
	batch []link.Datagram
	// A writable region within the host's memory and one that is only readable.
	writable, readable *nic.Region
	posted             int
	completed          int
	srqs               []*nic.SRQ
}

const (
	writableAt, writableLen = 0x4000, 0x4000 // the peer may write
	readableAt, readableLen = 0xc000, 0x4000 // the peer may only read
	bufferAt                = 0x20000        // receives and results of the application
	bufferLen               = 0x10000
	fuzzMemory              = 0x40000
	fuzzPSN                 = 0xfffff0
	fuzzWindowPackets       = 8
)

func newFuzzedNIC(t testing.TB, addr, peer string) *fuzzedNIC {
	v := &fuzzedNIC{peer: netip.MustParseAddr(peer), now: 1, batch: newNetwork().batch}
	v.host = newHost(t, addr, func(c *Config) { c.WindowPackets = fuzzWindowPackets })
	if err := v.nic.DeregMR(v.mr); err != nil { // it covers all memory
		t.Fatal(err)
	}
	v.mem = v.mem[:fuzzMemory]
	fill(v.mem, 1)
	region := func(at, n int, access verbs.Access) *nic.Region {
		r := must.Get(v.nic.RegMR(v.pd, nic.Bytes(v.mem[at:at+n:at+n]), uint64(at), access))(t)
		return r
	}
	v.writable = region(writableAt, writableLen, allAccess)
	v.readable = region(readableAt, readableLen, verbs.AccessRemoteRead)
	v.mr = region(bufferAt, bufferLen, verbs.AccessLocalWrite)
	v.mr.Addr = bufferAt
	v.openQPs(t)
	return v
}

// openQPs creates QPs in a fixed order, so that the QP number of a packet determines its type: two
// RC, UC, UD, RC with SRQ, XRC initiator and target, and RC in RTR, INIT, SQD and ERR.
func (v *fuzzedNIC) openQPs(t testing.TB) {
	srq := must.Get(v.nic.CreateSRQ(nic.SRQConfig{PD: v.pd, MaxWR: 16, MaxSGE: 2}))(t)
	domain := must.Get(v.nic.OpenXRCD())(t)
	xsrq := must.Get(v.nic.CreateSRQ(nic.SRQConfig{PD: v.pd, Type: verbs.SRQXRC, MaxWR: 16, MaxSGE: 2, XRCD: domain, CQ: v.cq}))(t)
	v.srqs = []*nic.SRQ{srq, xsrq}
	attr := func(a *verbs.QPAttr) {
		a.SQPSN, a.RQPSN, a.PathMTU, a.MaxDestRdAtomic = fuzzPSN, fuzzPSN, verbs.MTU256, 2
	}
	add := func(typ verbs.QPType, edit func(*QPConfig)) *QP {
		q := v.qp(typ, edit)
		v.qps = append(v.qps, q)
		return q
	}
	for range 2 {
		v.ready(add(verbs.QPTypeRC, nil), v.peer, peerQPN, attr)
	}
	v.ready(add(verbs.QPTypeUC, nil), v.peer, peerQPN, attr)
	v.readyUD(add(verbs.QPTypeUD, nil), 0x11)
	v.ready(add(verbs.QPTypeRC, func(c *QPConfig) { c.SRQ = srq }), v.peer, peerQPN, attr)
	v.readyUD(add(verbs.QPTypeUD, func(c *QPConfig) { c.SRQ = srq }), 0x11)
	v.ready(add(verbs.QPTypeXRCSend, func(c *QPConfig) { c.RecvCQ = nil }), v.peer, peerQPN, attr)
	target := add(verbs.QPTypeXRCRecv, func(c *QPConfig) {
		c.SendCQ, c.RecvCQ, c.XRCD, c.Caps, c.PD = nil, nil, domain, verbs.QPCaps{}, 0
	})
	v.ready(target, v.peer, peerQPN, attr)
	for _, state := range []verbs.QPState{verbs.QPStateRTR, verbs.QPStateInit, verbs.QPStateSQD, verbs.QPStateErr} {
		q := add(verbs.QPTypeRC, nil)
		a := connAttr(v.peer, peerQPN)
		attr(&a)
		a.State = verbs.QPStateInit
		v.modify(q, a, initMask|verbs.QPAttrAccessFlags)
		if state == verbs.QPStateInit {
			continue
		}
		a.State = verbs.QPStateRTR
		v.modify(q, a, rcRTR)
		if state == verbs.QPStateRTR {
			continue
		}
		a.State = verbs.QPStateRTS
		v.modify(q, a, rcRTS)
		v.modify(q, verbs.QPAttr{State: state}, verbs.QPAttrState)
	}
}

// work posts requests to all queues that accept them.
func (v *fuzzedNIC) work() {
	own := func(off, n int) verbs.SGE {
		return verbs.SGE{Addr: bufferAt + uint64(off), Length: uint32(n), LKey: verbs.LKey(v.mr.Key)}
	}
	remote := verbs.Remote{Addr: peerVA, RKey: peerRKey}
	for i, q := range v.qps {
		at := i * 0x1000
		wrs := []verbs.SendWR{
			{Opcode: verbs.OpSend, SGL: []verbs.SGE{own(at, 600)}},
			{Opcode: verbs.OpRDMARead, Remote: remote, SGL: []verbs.SGE{own(at, 700)}},
			{Opcode: verbs.OpAtomicFetchAdd, Remote: remote, SGL: []verbs.SGE{own(at+0x800, 8)}},
			{Opcode: verbs.OpRDMAWriteImm, Remote: remote, SGL: []verbs.SGE{own(at, 8)}},
			{Opcode: verbs.OpAtomicWrite, Remote: remote, SGL: []verbs.SGE{own(at, 8)}},
		}
		for k := range wrs {
			wrs[k].Flags = verbs.SendSignaled
			if q.PostSend(v.now, &wrs[k], Refs{}) == nil {
				v.posted++
			}
		}
		if q.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{own(at+0x900, 400), own(at+0xb00, 100)}}) == nil {
			v.posted++
		}
	}
	for i, s := range v.srqs {
		if s.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{own(0xe000+i*0x400, 0x400)}}) == nil {
			v.posted++
		}
	}
}

// deliver delivers a datagram to the NIC and lets it send.
func (v *fuzzedNIC) deliver(t *testing.T, d *link.Datagram) {
	before := v.nic.Count
	v.nic.Input(v.now, d)
	after := &v.nic.Count
	if after.Received != before.Received+1 {
		t.Fatalf("a datagram was counted %d times", after.Received-before.Received)
	}
	if n := dropped(after) - dropped(&before); n > 1 {
		t.Fatalf("a datagram was dropped for %d reasons: %+v, then %+v", n, before, *after)
	}
	v.sendAndPoll(t)
}

// dropped returns the number of datagrams that were not executed.
func dropped(c *Counters) uint64 {
	return c.Duplicates + c.OutOfSequence + c.StaleResponses + c.GhostResponses +
		c.DropShort + c.DropICRC + c.DropOpcode + c.DropVersion + c.DropPad + c.DropAddress + c.DropQPN + c.DropQPType +
		c.DropQPState + c.DropPKey + c.DropQKey + c.DropSequence + c.DropLength + c.DropNoReceive + c.DropTooLong +
		c.DropAccess + c.DropReplay + c.DropQueue + c.DropDead
}

// sendAndPoll sends a limited number of packets and polls the CQs.
func (v *fuzzedNIC) sendAndPoll(t *testing.T) {
	for range 4 {
		n := v.nic.Output(v.now, v.batch)
		for i := range n {
			var k wire.Packet
			if err := k.Parse(v.batch[i].Payload); err != nil {
				t.Fatalf("sent %x: %v", v.batch[i].Payload, err)
			}
		}
		if n == 0 {
			break
		}
	}
	for {
		var into [64]verbs.WC
		n := must.Get(v.cq.Poll(into[:]))(t)
		v.completed += n
		if n == 0 {
			break
		}
	}
	if v.completed > v.posted {
		t.Fatalf("%d completions of %d requests", v.completed, v.posted)
	}
	for {
		if _, ok := v.nic.NextEvent(); !ok {
			return
		}
	}
}

// protectedMemory returns the memory that must not change.
func (v *fuzzedNIC) protectedMemory() []byte {
	return bytes.Join([][]byte{v.mem[:writableAt], v.mem[writableAt+writableLen : bufferAt], v.mem[bufferAt+bufferLen:]}, nil)
}

// rewrite turns fuzz bytes into a packet that passes the first checks: existing QP, matching P_Key,
// near PSN, valid keys and ICRC. mode selects the fields to leave unchanged.
func (v *fuzzedNIC) rewrite(mode byte, b []byte) []byte {
	if len(b) < wire.BTHLen+wire.ICRCLen || mode&fuzzMakeValid == 0 {
		return b
	}
	q := v.qps[int(b[7])%len(v.qps)]
	if mode&fuzzKeepBTH == 0 {
		b[1] &^= 0x0f
		copy(b[2:], []byte{0xff, 0xff})
		copy(b[5:8], []byte{byte(q.num >> 16), byte(q.num >> 8), byte(q.num)})
		b[0] = b[0]&0x1f | byte(q.Transport())
		b = b[:len(b)&^3]
	}
	if mode&fuzzKeepPSN == 0 {
		near := q.resp.expected
		if info, _ := wire.Opcode(b[0]).Info(); info.Class.Has(wire.Response) {
			near = q.req.una
		}
		psn := near.Add(int32(int8(b[11])) / 16)
		b[9], b[10], b[11] = byte(psn>>16), byte(psn>>8), byte(psn)
	}
	if mode&fuzzKeepKeys == 0 {
		v.setValidKeys(b)
	}
	return b
}

// setValidKeys replaces addresses and keys in the packet by valid ones.
func (v *fuzzedNIC) setValidKeys(b []byte) {
	info, ok := wire.Opcode(b[0]).Info()
	if !ok || len(b) < info.HeaderLen+wire.ICRCLen {
		return
	}
	at := wire.BTHLen
	if info.Headers.Has(wire.HasXRCETH) {
		binary.BigEndian.PutUint32(b[at:], v.srqs[1].Num())
		at += wire.XRCETHLen
	}
	if info.Headers.Has(wire.HasDETH) {
		binary.BigEndian.PutUint32(b[at:], 0x11)
	}
	if info.Headers.Has(wire.HasFETH) {
		at += wire.FETHLen
	}
	if info.Headers&(wire.HasRETH|wire.HasAtomicETH) != 0 {
		region := v.writable
		if b[at+11]&1 != 0 {
			region = v.readable
		}
		off := binary.BigEndian.Uint16(b[at+6:])
		binary.BigEndian.PutUint64(b[at:], region.Addr+uint64(off)&0x7ff8)
		binary.BigEndian.PutUint32(b[at+8:], region.Key)
		if info.Headers.Has(wire.HasRETH) && b[at+12]&0x80 == 0 {
			binary.BigEndian.PutUint32(b[at+12:], uint32(binary.BigEndian.Uint16(b[at+14:])&0x3ff))
		}
	}
}

// Bits of the mode of a datagram in the input of FuzzInput.
const (
	fuzzMakeValid = 0x01 // make the fields valid that the next three bits do not keep
	fuzzKeepBTH   = 0x02
	fuzzKeepPSN   = 0x04
	fuzzKeepKeys  = 0x08
	fuzzHideIPID  = 0x10 // hide the IP identification
	fuzzTick      = 0x20 // advance to the next deadline first
	fuzzWork      = 0x40 // post to all queues first
)

// FuzzInput delivers datagrams to a NIC. The input is a series of datagrams, each
// after three bytes with its length and mode.
func FuzzInput(f *testing.F) {
	add := func(mode byte, packets ...wire.Packet) {
		var b []byte
		for _, p := range packets {
			raw := p.Append(nil)
			b = append(b, byte(len(raw)>>8), byte(len(raw)), mode)
			b = append(b, raw...)
			mode = fuzzMakeValid
		}
		f.Add(b, len(b)%8 < 4)
	}
	for qp := range uint32(12) {
		for op := range wire.Operation(0x20) {
			k := wire.Packet{BTH: wire.BTH{Opcode: wire.Opcode(op), DestQP: qp, AckReq: true}, Payload: make([]byte, 8)}
			k.RETH.DMALen, k.FETH.Placement = 8, 1
			k.AETH.Syndrome = wire.Ack(31)
			if info, ok := k.BTH.Opcode.Info(); ok && !info.Class.Has(wire.HasPayload) {
				k.Payload = nil
			}
			long := k
			long.RETH.DMALen, long.Payload = 300, make([]byte, 256)
			shut := k
			shut.RETH.RKey, shut.AtomicETH.RKey = 1, 1 // the read-only region
			add(fuzzMakeValid|fuzzWork, k, k, long)
			add(fuzzMakeValid|fuzzWork|fuzzTick, long, k)
			add(fuzzMakeValid|fuzzWork, shut)
		}
	}
	first := wire.Packet{BTH: wire.BTH{Opcode: wire.Opcode(wire.OpSendFirst)}, Payload: make([]byte, 256)}
	last := wire.Packet{BTH: wire.BTH{Opcode: wire.Opcode(wire.OpSendLastInv)}, Payload: make([]byte, 20)}
	add(fuzzMakeValid|fuzzWork, first, last, first, first)
	f.Fuzz(func(t *testing.T, b []byte, v6 bool) {
		addr, peer := "10.0.0.1", "10.0.0.2"
		if v6 {
			addr, peer = "fd00::1", "fd00::2"
		}
		v := newFuzzedNIC(t, addr, peer)
		fences := v.protectedMemory()
		for round := 0; len(b) >= 3 && round < 64; round++ {
			n := min(int(binary.BigEndian.Uint16(b)&0x1fff), len(b)-3)
			mode, raw := b[2], b[3:3+n]
			b = b[3+n:]
			if mode&fuzzWork != 0 {
				v.work()
			}
			if mode&fuzzTick != 0 {
				v.now = max(v.now, min(v.nic.Deadline(), v.now.Add(time.Second)))
				v.nic.Tick(v.now)
			}
			d := link.Datagram{
				Src: netip.AddrPortFrom(v.peer, 0xc000), Dst: netip.AddrPortFrom(v.addr, wire.Port),
				TClass: mode >> 6, IPID: uint32(mode&fuzzHideIPID) * (link.IPIDUnknown / fuzzHideIPID), Payload: v.rewrite(mode, bytes.Clone(raw)),
			}
			if mode&fuzzMakeValid != 0 && len(d.Payload) >= wire.BTHLen+wire.ICRCLen {
				wire.NewICRC(d.Src, d.Dst).Seal(0, d.Payload)
			}
			v.deliver(t, &d)
		}
		if !bytes.Equal(v.protectedMemory(), fences) {
			t.Fatal("memory outside of the regions or read-only memory has changed")
		}
	})
}
