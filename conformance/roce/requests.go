package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// This file has the device's own requests, and what the wire has to show of them.

// sinkOffset is where in own the results of READs and atomics go; what is sent is from its
// beginning.
const sinkOffset = 8 << 10

// peerRemote is memory of the peer's, which has none: what is read from it, the case says.
var peerRemote = verbs.Remote{Addr: 0x7f00_1000, RKey: 0x00c0_ffee}

func (c *conn) localSGL(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return c.localMem.SGL(off, n)
}

// sendWR is a SEND of n bytes.
func (c *conn) sendWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n)}
}

// writeWR is a WRITE of n bytes.
func (c *conn) writeWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.localSGL(0, n), Remote: peerRemote}
}

// readWR is a READ of n bytes.
func (c *conn) readWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.localSGL(sinkOffset, n), Remote: peerRemote}
}

// fetchAddWR is a FETCH_ADD of 1.
func (c *conn) fetchAddWR(id uint64) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGL: c.localSGL(sinkOffset, 8),
		Remote: peerRemote, Atomic: verbs.Atomic{CompareAdd: 1},
	}
}

// wantSend are the packets of a SEND of n bytes, the first being the device's k-th.
// Whether they ask for an ACK is left open.
func (c *conn) wantSend(k, n int) []ib.Packet {
	return anyAckReq(ib.Send(c.devicePSN(k), c.localMem.Buf[:n], c.attr.PathMTU.Bytes()))
}

func (c *conn) wantWrite(k, n int) []ib.Packet {
	return anyAckReq(ib.Write(c.devicePSN(k), ib.At(peerRemote.Addr, peerRemote.RKey, n), c.localMem.Buf[:n], c.attr.PathMTU.Bytes()))
}

func (c *conn) wantRead(k, n int) []ib.Packet {
	return []ib.Packet{ib.ReadRequest(c.devicePSN(k), ib.At(peerRemote.Addr, peerRemote.RKey, n))}
}

func (c *conn) wantFetchAdd(k int) []ib.Packet {
	return []ib.Packet{ib.FetchAdd(c.devicePSN(k), ib.At(peerRemote.Addr, peerRemote.RKey, 8), 1)}
}

func anyAckReq(ps []ib.Packet) []ib.Packet {
	for i := range ps {
		ps[i].BTH.AckReq = nil
	}
	return ps
}

// expectAll ends the case unless these packets come, in order. It returns them as one
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

// expectRetransmission ends the case unless the device sends again what it has sent from the from-th
// packet on, or from an earlier one, up to the last. Each has to be what it was.
func (c *conn) expectRetransmission(all []ib.Packet, from int) {
	want := fmt.Sprintf("%v again, or what came before it", all[from])
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
