package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// This file has requests of the device, and their expected packets.

// SinkOffset is the offset in localMem where READs and atomics store their results. SENDs
// and WRITEs use the start of localMem.
const SinkOffset = 8 << 10

// PeerMemory is the remote address that requests of the device use. The peer has no
// memory there: the case makes up its content.
var PeerMemory = verbs.Remote{Addr: 0x7f00_1000, RKey: 0x00c0_ffee}

// localSGL returns a list for n bytes of localMem, empty if n is 0.
func (c *Conn) localSGL(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return c.LocalMem.SGL(off, n)
}

// SendWR returns a SEND of n bytes.
func (c *Conn) SendWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n)}
}

// WriteWR returns a WRITE of n bytes.
func (c *Conn) WriteWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n), Remote: PeerMemory}
}

// ReadWR returns a READ of n bytes.
func (c *Conn) ReadWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.localSGL(SinkOffset, n), Remote: PeerMemory}
}

// fetchAddWR returns a FETCH_ADD of 1.
func (c *Conn) fetchAddWR(id uint64) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGL: c.localSGL(SinkOffset, 8),
		Remote: PeerMemory, Atomic: verbs.Atomic{CompareAdd: 1},
	}
}

// wantSend returns the expected packets of a SEND of n bytes, the first of which is the
// device's k-th packet. AckReq may have any value.
func (c *Conn) wantSend(k, n int) []ib.Packet {
	return anyAckReq(ib.Send(c.DevicePSN(k), c.LocalMem.Buf[:n], c.Attr.PathMTU.Bytes()))
}

// wantWrite is wantSend for a WRITE.
func (c *Conn) wantWrite(k, n int) []ib.Packet {
	return anyAckReq(ib.Write(c.DevicePSN(k), ib.At(PeerMemory.Addr, PeerMemory.RKey, n), c.LocalMem.Buf[:n], c.Attr.PathMTU.Bytes()))
}

// wantRead is wantSend for a READ.
func (c *Conn) wantRead(k, n int) []ib.Packet {
	return []ib.Packet{ib.ReadRequest(c.DevicePSN(k), ib.At(PeerMemory.Addr, PeerMemory.RKey, n))}
}

// wantFetchAdd is wantSend for a FETCH_ADD, which has n = 8 bytes.
func (c *Conn) wantFetchAdd(k, n int) []ib.Packet {
	return []ib.Packet{ib.FetchAdd(c.DevicePSN(k), ib.At(PeerMemory.Addr, PeerMemory.RKey, n), 1)}
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
		verbs.OpSend: c.wantSend, verbs.OpRDMAWrite: c.wantWrite, verbs.OpRDMARead: c.wantRead, verbs.OpAtomicFetchAdd: c.wantFetchAdd,
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

// expectAll fails the case unless these packets arrive in order. It returns them as one
// list.
func (c *Conn) expectAll(lists ...[]ib.Packet) []ib.Packet {
	var all []ib.Packet
	for _, list := range lists {
		for _, want := range list {
			c.expect(want)
			all = append(all, want)
		}
	}
	return all
}

// expectRetransmission fails the case unless the device retransmits all packets from
// index from on. The retransmission may start earlier.
func (c *Conn) expectRetransmission(all []ib.Packet, from int) {
	want := fmt.Sprintf("a retransmission of %v, or of packets before it", all[from])
	got, ok := c.nextPacket(c.ResponseTimeout())
	c.Check(ok, want, "nothing in %v", c.ResponseTimeout())
	at := 0
	for at < from && all[at].PSN() != got.PSN() {
		at++
	}
	c.Check(all[at].PSN() == got.PSN(), want, "%v", got)
	c.checkPacket(all[at], got)
	c.expectAll(all[at+1:])
}
