package roce

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// SinkOffset is the offset in LocalMem where READs and atomics store their results. SENDs
// and WRITEs use the start of LocalMem.
const SinkOffset = 8 << 10

// PeerMemory is the remote address that requests of the device use. The peer has no
// memory there: the case makes up its content.
var PeerMemory = verbs.Remote{Addr: 0x7f11_2233_4455_6600, RKey: 0xa1b2c3d4}

// peerMemoryRETH is the expected RETH of a request of the device for n bytes of PeerMemory.
func peerMemoryRETH(n int) ib.RETH { return ib.At(PeerMemory.Addr, PeerMemory.RKey, n) }

// localSGL returns a scatter/gather list for n bytes of LocalMem, empty if n is 0.
func (c *Conn) localSGL(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return c.LocalMem.SGL(off, n)
}

// SendWR returns a signaled SEND of n bytes of LocalMem.
func (c *Conn) SendWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n)}
}

// WriteWR returns a signaled WRITE of n bytes of LocalMem to PeerMemory.
func (c *Conn) WriteWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n), Remote: PeerMemory}
}

// ReadWR returns a signaled READ of n bytes of PeerMemory to SinkOffset in LocalMem.
func (c *Conn) ReadWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.localSGL(SinkOffset, n), Remote: PeerMemory}
}

// fetchAddWR returns a FETCH_ADD of 1 to PeerMemory, with these buffers for the result, or one at
// SinkOffset in LocalMem.
func (c *Conn) fetchAddWR(id uint64, result ...verbs.SGE) verbs.SendWR {
	if len(result) == 0 {
		result = c.LocalMem.SGL(SinkOffset, 8)
	}
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGL: result,
		Remote: PeerMemory, Atomic: verbs.Atomic{CompareAdd: 1},
	}
}

// wantSend returns the expected packets of a SEND of n bytes, the first of which is the
// device's k-th packet. AckReq may have any value.
func (c *Conn) wantSend(k, n int) []ib.Packet {
	return anyAckReq(ib.Send(c.DevicePSN(k), c.LocalMem.Buf[:n], c.Attr.PathMTU.Bytes()))
}

// wantWrite returns the expected packets of a WRITE of n bytes, from the device's k-th packet on.
func (c *Conn) wantWrite(k, n int) []ib.Packet {
	return anyAckReq(ib.Write(c.DevicePSN(k), peerMemoryRETH(n), c.LocalMem.Buf[:n], c.Attr.PathMTU.Bytes()))
}

// wantRead returns the expected request of a READ of n bytes, the device's k-th packet.
func (c *Conn) wantRead(k, n int) []ib.Packet {
	return []ib.Packet{ib.ReadRequest(c.DevicePSN(k), peerMemoryRETH(n))}
}

// anyAckReq makes the expected packets match any value of AckReq.
func anyAckReq(ps []ib.Packet) []ib.Packet {
	for i := range ps {
		ps[i].BTH.AckReq = nil
	}
	return ps
}

// request posts requests, and fails the case unless their packets arrive in order, the
// first of them with the device's k-th PSN. It returns the expected packets.
func (c *Conn) request(k int, wrs ...verbs.SendWR) (all []ib.Packet) {
	c.PostSend(c.QP, wrs...)
	want := map[verbs.WROpcode]func(k, n int) []ib.Packet{
		verbs.OpSend: c.wantSend, verbs.OpRDMAWrite: c.wantWrite,
		verbs.OpRDMARead: c.wantRead, verbs.OpAtomicFetchAdd: func(k, n int) []ib.Packet {
			return []ib.Packet{ib.FetchAdd(c.DevicePSN(k), peerMemoryRETH(n), 1)}
		},
		verbs.OpAtomicWrite: func(k, _ int) []ib.Packet { return []ib.Packet{ib.Op(ib.OpAtomicWrite).WithPSN(c.DevicePSN(k))} },
		verbs.OpFlush:       func(k, _ int) []ib.Packet { return []ib.Packet{ib.Op(ib.OpFlush).WithPSN(c.DevicePSN(k))} },
	}
	for i := range wrs {
		n := 0
		for _, sge := range wrs[i].SGL {
			n += int(sge.Length)
		}
		all = append(all, want[wrs[i].Opcode](k, n)...)
		k += ib.Packets(n, c.Attr.PathMTU.Bytes())
	}
	return c.expectAll(all)
}

// completeWith sends a response to requests of the device, and fails the case unless the
// requests with these IDs complete with success, in this order.
func (c *Conn) completeWith(response ib.Packet, ids ...uint64) {
	c.Send(response)
	c.ExpectCompletions(verbs.WCSuccess, ids...)
}

// expectAll fails the case unless these packets arrive in order. It returns its argument.
func (c *Conn) expectAll(all []ib.Packet) []ib.Packet {
	for _, want := range all {
		c.expect(want)
	}
	return all
}

// expectRetransmission fails the case unless the device retransmits all packets from
// index from on. The retransmission may start earlier.
func (c *Conn) expectRetransmission(all []ib.Packet, from int) {
	want := fmt.Sprintf("a retransmission of %v, or of packets before it", all[from])
	got := c.expectAnyPacket(want)
	at := 0
	for at < from && all[at].PSN() != got.PSN() {
		at++
	}
	c.Check(all[at].PSN() == got.PSN(), want, "%v", got)
	c.checkPacket(all[at], got)
	c.expectAll(all[at+1:])
}

// remoteOp is an operation of the peer on the device's memory.
type remoteOp struct {
	name string
	// packet returns the request. A WRITE has the length of the RETH.
	packet func(ib.PSN, ib.RETH) ib.Packet
	// answer is the opcode of the response if the request is executed.
	answer ib.Opcode
}

func (op remoteOp) String() string { return op.name }

var (
	writeOp = remoteOp{"WRITE", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.WriteOnly(psn, at, Data(int(*at.Len))).AckReq()
	}, ib.OpAcknowledge}
	writeImmOp = remoteOp{"WRITE with immediate", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.WriteOnlyImm(psn, at, 7, Data(int(*at.Len))).AckReq()
	}, ib.OpAcknowledge}
	// writeFirstOp is the FIRST packet of a WRITE of two packets. It replaces the length in the
	// RETH.
	writeFirstOp = remoteOp{"WRITE of several packets", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.WriteFirst(psn, at.Sized(2*MTU), Data(MTU)).AckReq()
	}, ib.OpAcknowledge}
	readOp = remoteOp{"READ", ib.ReadRequest, ib.OpReadResponseOnly}
	addOp  = remoteOp{"FETCH_ADD", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.FetchAdd(psn, at, 1)
	}, ib.OpAtomicAcknowledge}
	swapOp = remoteOp{"COMPARE_SWAP", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.CompareSwap(psn, at, 0, 1)
	}, ib.OpAtomicAcknowledge}
)

// expectOpRefused requests an operation, which the device must answer by a NAK for a remote access
// error, without a change of TargetMem.
func (c *Conn) expectOpRefused(op remoteOp, at ib.RETH) {
	c.expectNoEffect(c.TargetMem, op.packet(c.PeerPSN(0), at), ib.NakRemoteAccess)
}

// expectNoEffect sends a request, which the device must answer by a NAK with this code, without a
// change of memory.
func (c *Conn) expectNoEffect(m *rig.Memory, request ib.Packet, code ib.NakCode) {
	m.Snapshot()
	c.expectRefused(request, code)
	c.Sync()
	c.ExpectUntouched(m)
}

// expectOpExecuted requests an operation with the peer's n-th PSN, which must be executed.
func (c *Conn) expectOpExecuted(n int, op remoteOp, at ib.RETH) {
	got := c.exchange(op.packet(c.PeerPSN(n), at), ib.Op(op.answer).WithPSN(c.PeerPSN(n)))
	c.Check(got.Syndrome()>>5 == uint8(ib.AckPositive), "a response to a "+op.name+" without a NAK", "%v", got)
}

// otherPeerQPN is the peer's queue pair of a second connection.
const otherPeerQPN = 0x0fedcb

// secondConn makes a second connection between the peer and the device.
func (c *Conn) secondConn(s Setup) *Conn {
	modify := s.Modify
	s.Modify = func(a *verbs.QPAttr) {
		if a.DestQPN = otherPeerQPN; modify != nil {
			modify(a)
		}
	}
	return c.connect(s)
}

// onEachConn makes the body of a case that calls steps for each of the variants. Each time it makes
// a new connection, because most steps move the queue pair to ERR.
func onEachConn[V any](s Setup, variants []V, steps func(*Conn, V)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { eachConn(p, s, variants, steps) })
}

// eachConn calls steps for each of the variants, each time with a new connection.
func eachConn[V any](p *Port, s Setup, variants []V, steps func(*Conn, V)) {
	for _, v := range variants {
		p.Note("now %+v", v)
		steps(p.connect(s), v)
		p.Sync()
		p.skipped = nil // discards packets of the old connection
	}
}

// expectAck waits until requests up to this PSN are acknowledged, at once or in several ACKs.
func (c *Conn) expectAck(psn ib.PSN) {
	for {
		got := c.expect(ib.Ack(ib.AnyPSN, ib.AnyMSN))
		switch d := got.PSN().Sub(psn); {
		case d == 0:
			return
		case d > 0: // beyond psn: this check fails the case
			c.checkPacket(ib.Ack(psn, ib.AnyMSN), got)
		}
	}
}

// expectNak waits for a NAK with this PSN and code, and skips ACKs of earlier requests.
func (c *Conn) expectNak(psn ib.PSN, code ib.NakCode) {
	got := c.expect(ib.Packet{})
	for got.IsAck(ib.AckPositive) && got.PSN().Less(psn) {
		got = c.expect(ib.Packet{})
	}
	c.checkPacket(ib.Nak(psn, code, ib.AnyMSN), got)
}

// expectRead sends a READ with the peer's n-th PSN, which must return these bytes.
func (c *Conn) expectRead(n int, at ib.RETH, want []byte) {
	c.exchange(ib.ReadRequest(c.PeerPSN(n), at), ib.ReadResponses(c.PeerPSN(n), ib.AnyMSN, want, MTU)...)
}

// expectReadRefused sends a READ with the peer's n-th PSN, which the device must answer by a NAK
// for a remote access error.
func (c *Conn) expectReadRefused(n int, at ib.RETH) {
	c.expectRefused(ib.ReadRequest(c.PeerPSN(n), at), ib.NakRemoteAccess)
}

// expectAcked sends a request, and fails the case unless the device acknowledges it.
func (c *Conn) expectAcked(request ib.Packet) {
	c.Send(request)
	c.expectAck(request.PSN())
}

// expectRefused sends a request, which the device must answer by a NAK with this code.
func (c *Conn) expectRefused(request ib.Packet, code ib.NakCode) {
	c.Send(request)
	c.expectNak(request.PSN(), code)
}

// rethFor returns the RETH for n bytes of a region from off on.
func rethFor(m *rig.Memory, off, n int) ib.RETH {
	return ib.At(m.Addr()+uint64(off), uint32(m.RKey()), n)
}

// unknownKey returns a key that no region has; its index and its low byte differ from those of k.
func unknownKey(k verbs.RKey) verbs.RKey { return k ^ 0x00fff055 }

// unknownKeyRETH returns the RETH for n bytes of TargetMem with a key that no region has.
func (c *Conn) unknownKeyRETH(n int) ib.RETH {
	return ib.At(c.TargetMem.Addr(), unknownKey(c.TargetMem.RKey()), n)
}

// deregisteredRETH returns a RETH for 16 bytes of TargetMem with a deregistered region's key.
func (c *Conn) deregisteredRETH() ib.RETH {
	m := c.Memory(64, allAccess)
	key := m.RKey()
	c.Must("a region that can be deregistered", m.Close())
	return ib.At(c.TargetMem.Addr(), key, 16)
}

// wordRETH returns the RETH for the n-th word of a region.
func wordRETH(m *rig.Memory, n int) ib.RETH { return rethFor(m, m.WordOffset(n), 8) }

// setWord sets the initial value of the n-th word.
func setWord(m *rig.Memory, n int, v uint64) {
	binary.NativeEndian.PutUint64(m.Buf[m.WordOffset(n):], v)
	m.Snapshot()
}

// expectWord fails the case unless the n-th word has this value and nothing else has changed.
func (c *Conn) expectWord(m *rig.Memory, n int, v uint64) {
	c.Sync()
	c.ExpectBytes(m, m.WordOffset(n), binary.NativeEndian.AppendUint64(nil, v))
	c.ExpectUnchangedOutside(m, m.WordOffset(n), 8)
}

// otherPDMemory registers 64 bytes in another protection domain.
func (c *Conn) otherPDMemory(access verbs.Access) *rig.Memory {
	return c.MemoryIn(c.otherPD(), 64, access)
}

// otherPDSGE returns n bytes of LocalMem with the L_Key of a region in another protection domain.
func (c *Conn) otherPDSGE(n int) verbs.SGE {
	mr, err := c.otherPD().RegMR(verbs.MRInit{Buf: c.LocalMem.Buf, Addr: c.LocalMem.Addr(), Access: verbs.AccessLocalWrite})
	c.Must("a region of another PD", err)
	return verbs.SGEOf(mr, 0, n)
}

// otherPD allocates another protection domain.
func (p *Port) otherPD() verbs.PD {
	pd, err := p.Device.AllocPD()
	p.Must("another protection domain", err)
	return pd
}

// newSRQ returns a shared receive queue for four receives.
func (p *Port) newSRQ(pd verbs.PD) verbs.SRQ {
	return p.CreateSRQ(verbs.SRQInit{PD: pd, MaxWR: 4, MaxSGE: 1})
}
