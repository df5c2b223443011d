package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// This file has requests of the device, and their expected packets.

// sinkOffset is the offset in localMem where READs and atomics store their results. SENDs
// and WRITEs use the start of localMem.
const sinkOffset = 8 << 10

// peerRemote is the remote address that requests of the device use. The peer has no
// memory there: the case makes up its content.
var peerRemote = verbs.Remote{Addr: 0x7f00_1000, RKey: 0x00c0_ffee}

// localSGL returns a list for n bytes of localMem, empty if n is 0.
func (c *conn) localSGL(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return c.localMem.SGL(off, n)
}

// sendWR returns a SEND of n bytes.
func (c *conn) sendWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n)}
}

// writeWR returns a WRITE of n bytes.
func (c *conn) writeWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n), Remote: peerRemote}
}

// readWR returns a READ of n bytes.
func (c *conn) readWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.localSGL(sinkOffset, n), Remote: peerRemote}
}

// fetchAddWR returns a FETCH_ADD of 1.
func (c *conn) fetchAddWR(id uint64) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGL: c.localSGL(sinkOffset, 8),
		Remote: peerRemote, Atomic: verbs.Atomic{CompareAdd: 1},
	}
}

// wantSend returns the expected packets of a SEND of n bytes, the first of which is the
// device's k-th packet. AckReq may have any value.
func (c *conn) wantSend(k, n int) []ib.Packet {
	return anyAckReq(ib.Send(c.devicePSN(k), c.localMem.Buf[:n], c.attr.PathMTU.Bytes()))
}

// wantWrite is wantSend for a WRITE.
func (c *conn) wantWrite(k, n int) []ib.Packet {
	return anyAckReq(ib.Write(c.devicePSN(k), ib.At(peerRemote.Addr, peerRemote.RKey, n), c.localMem.Buf[:n], c.attr.PathMTU.Bytes()))
}

// wantRead is wantSend for a READ.
func (c *conn) wantRead(k, n int) []ib.Packet {
	return []ib.Packet{ib.ReadRequest(c.devicePSN(k), ib.At(peerRemote.Addr, peerRemote.RKey, n))}
}

// wantFetchAdd is wantSend for a FETCH_ADD.
func (c *conn) wantFetchAdd(k int) []ib.Packet {
	return []ib.Packet{ib.FetchAdd(c.devicePSN(k), ib.At(peerRemote.Addr, peerRemote.RKey, 8), 1)}
}

// anyAckReq makes the expected packets match any value of AckReq.
func anyAckReq(ps []ib.Packet) []ib.Packet {
	for i := range ps {
		ps[i].BTH.AckReq = nil
	}
	return ps
}

// expectAll fails the case unless these packets arrive in order. It returns them as one
// list.
func (c *conn) expectAll(lists ...[]ib.Packet) []ib.Packet {
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
func (c *conn) expectRetransmission(all []ib.Packet, from int) {
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
