package engine

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/link"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// Reads and atomics on UD (Defects.UDReads): each is a stream of its own, that ends
// with the answer. If that is lost, nobody ever knows.

// exchange is a read or an atomic under way on UD, on either side.
type exchange struct {
	stream  iwarp.Stream
	qp      *QP
	request *request // nil on the side that answers
	path    path
	remote  uint32 // QP
	key     uint32
}

// readPacket is one of an exchange that is to leave.
type readPacket struct {
	path    path
	payload []byte
}

// mostExchanges bounds those whose answers do not come: the oldest is given up.
const mostExchanges = 4096

// asks reports whether an operation is one that is answered.
func asks(op verbs.WROpcode) bool {
	switch op {
	case verbs.OpRDMARead, verbs.OpAtomicCmpAndSwp, verbs.OpAtomicFetchAdd:
		return true
	}
	return false
}

// ask sends a read or an atomic.
func (q *QP) ask(r *request) {
	f := q.nic.defects
	x := &exchange{qp: q, request: r, path: r.path, remote: r.qpn, key: r.qkey}
	f.exchanges = append(f.exchanges, x)
	if len(f.exchanges) > mostExchanges {
		f.exchanges[0].stream.Fail(ddp.TermMPAClosed, false)
	}
	x.stream.Open(&q.endpoint, x, iwarp.Options{IRD: 1, ORD: 1})
	x.stream.Post(&r.Request)
	x.talk()
}

// exchange takes a segment that asks or answers. It reports false if it is
// neither.
func (q *QP) exchange(in *inbound) bool {
	n := q.nic
	segment := bytes.Clone(n.parsed.ULPDU)
	if !in.header.Control.Tagged {
		binary.BigEndian.PutUint32(segment[ddp.ControlLen+8:], uint32(ddp.FirstMSN))
	}
	switch in.header.Control.Opcode {
	case ddp.OpReadRequest, ddp.OpAtomicRequest:
		x := &exchange{qp: q, path: in.from.back(), remote: in.from.qp, key: n.parsed.Key}
		x.stream.Open(&q.endpoint, x, iwarp.Options{IRD: 1, ORD: 1})
		x.stream.Input(segment)
		x.talk()
	case ddp.OpReadResponse, ddp.OpAtomicResponse:
		i := slices.IndexFunc(n.defects.exchanges, func(x *exchange) bool {
			return x.qp == q && x.path.dst == in.from.src && x.remote == in.from.qp
		})
		if i >= 0 {
			n.defects.exchanges[i].stream.Input(segment)
		}
	default:
		return false
	}
	return true
}

// talk queues what the exchange has to say.
func (x *exchange) talk() {
	n := x.qp.nic
	for x.stream.Output(maxPacket(n.cfg.LinkMTU, x.path.is4())-wire.UDOverhead, &n.segment) {
		h := wire.NewHeader(wire.KindUD, x.remote, x.qp.num, x.key)
		b := append(h.Append(nil), n.segment.Header...)
		for _, piece := range n.segment.Payload {
			b = append(b, piece...)
		}
		n.defects.reads.Push(readPacket{x.path, wire.AppendCRC(b, 0)})
		x.stream.Taken(1)
	}
}

// failExchanges ends the exchanges of a QP.
func (q *QP) failExchanges() {
	for _, x := range slices.Clone(q.nic.defects.exchanges) {
		if x.qp == q {
			x.stream.Fail(ddp.TermMPAClosed, false)
		}
	}
}

// emitReads fills ds from place filled on with what exchanges have to say.
func (n *NIC) emitReads(ds []link.Datagram, filled int) int {
	for filled < len(ds) {
		p, ok := n.defects.reads.Pop()
		if !ok {
			break
		}
		p.path.address(&ds[filled])
		ds[filled].Payload = append(ds[filled].Payload[:0], p.payload...)
		filled = n.keep(ds, filled)
	}
	return filled
}

// An exchange is the owner of its stream. It has no receives.

func (x *exchange) NextReceive() *iwarp.Receive                  { return nil }
func (x *exchange) Received(*iwarp.Receive, verbs.WC, bool)      {}
func (x *exchange) Completed(_ *iwarp.Request, s verbs.WCStatus) { x.qp.complete(x.request, s) }
func (x *exchange) Ended(iwarp.End)                              { x.over() }
func (x *exchange) Retired(*iwarp.Request)                       { x.over() }

func (x *exchange) over() {
	f := x.qp.nic.defects
	f.exchanges = slices.DeleteFunc(f.exchanges, func(o *exchange) bool { return o == x })
}
