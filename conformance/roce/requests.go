package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// This file has the device's own requests, and what the wire has to show of them.

// sink is where in own the results of READs and atomics go; what is sent is from its
// beginning.
const sink = 8 << 10

// theirs is memory of the peer's, which has none: what is read from it, the case says.
var theirs = verbs.Remote{Addr: 0x7f00_1000, RKey: 0x00c0_ffee}

func (c *conn) pieces(off, n int) []verbs.SGE {
	if n == 0 {
		return nil
	}
	return c.own.SGL(off, n)
}

// sending is a SEND of n bytes.
func (c *conn) sending(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.pieces(0, n)}
}

// writing is a WRITE of n bytes.
func (c *conn) writing(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.pieces(0, n), Remote: theirs}
}

// reading is a READ of n bytes.
func (c *conn) reading(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.pieces(sink, n), Remote: theirs}
}

// adding is a FETCH_ADD of 1.
func (c *conn) adding(id uint64) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpAtomicFetchAdd, Flags: verbs.SendSignaled, SGL: c.pieces(sink, 8),
		Remote: theirs, Atomic: verbs.Atomic{CompareAdd: 1},
	}
}

// wantSend are the packets of a SEND of n bytes, the first being the device's k-th.
// Whether they ask for an ACK is left open.
func (c *conn) wantSend(k, n int) []ib.Packet {
	return unasked(ib.Send(c.sq(k), c.own.Buf[:n], c.attr.PathMTU.Bytes()))
}

func (c *conn) wantWrite(k, n int) []ib.Packet {
	return unasked(ib.Write(c.sq(k), ib.At(theirs.Addr, theirs.RKey, n), c.own.Buf[:n], c.attr.PathMTU.Bytes()))
}

func (c *conn) wantRead(k, n int) []ib.Packet {
	return []ib.Packet{ib.ReadRequest(c.sq(k), ib.At(theirs.Addr, theirs.RKey, n))}
}

func (c *conn) wantAdd(k int) []ib.Packet {
	return []ib.Packet{ib.FetchAdd(c.sq(k), ib.At(theirs.Addr, theirs.RKey, 8), 1)}
}

func unasked(ps []ib.Packet) []ib.Packet {
	for i := range ps {
		ps[i].BTH.AckReq = nil
	}
	return ps
}

// expectsAll ends the case unless these packets come, in order. It returns them as one
// list.
func (c *conn) expectsAll(lists ...[]ib.Packet) []ib.Packet {
	var all []ib.Packet
	for _, list := range lists {
		for _, want := range list {
			c.expects(want)
			all = append(all, want)
		}
	}
	return all
}

// repeats ends the case unless the device sends again what it has sent from the from-th
// packet on, or from an earlier one, up to the last. Each has to be what it was.
func (c *conn) repeats(all []ib.Packet, from int) {
	want := fmt.Sprintf("%v again, or what came before it", all[from])
	got, ok := c.next(c.ResponseTimeout())
	c.Check(ok, want, "nothing in %v", c.ResponseTimeout())
	at := 0
	for at < from && all[at].PSN() != got.PSN() {
		at++
	}
	c.Check(all[at].PSN() == got.PSN(), want, "%v", got)
	c.same(all[at], got)
	c.expectsAll(all[at+1:])
}
