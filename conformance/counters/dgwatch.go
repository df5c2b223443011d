package counters

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/dg"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// dgHost is an application on a device of datagram-iWARP whose packets are counted.
type dgHost struct {
	*rig.Rig
	about  []quantity
	before values
	first  int // of the events of the record that count
	sends  uint32
}

// onDG makes the body of a case that is about some quantities.
func onDG(about []quantity, body func(*dgHost) found) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		dgNames.has(r, about...)
		events, _ := r.Record.Events()
		h := &dgHost{Rig: r, about: about, before: look(r), first: len(events)}
		h.judge(body(h))
	})
}

// Numbers of the peer's.
const (
	dgPort    = 65041
	dgPeer    = 52049
	dgPeerQPN = 0x0abc00
)

// queuePair makes a queue pair with receives.
func (h *dgHost) queuePair(receives int) *dgQueue {
	q := &dgQueue{dgHost: h, mem: h.Memory(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead), own: h.Memory(4096, verbs.AccessLocalWrite)}
	var err error
	q.qp, err = h.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: h.PD, SendCQ: h.CQ, RecvCQ: h.CQ, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	h.Must("a queue pair", err)
	h.Must("a queue pair in INIT", q.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey))
	for i := range receives {
		h.PostRecv(q.qp, uint64(i+1), q.own.SGE(128*i, 128))
	}
	h.Must("a queue pair in RTR", q.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState))
	h.Must("a queue pair in RTS", q.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN))
	return q
}

// dgQueue is a queue pair of the device.
type dgQueue struct {
	*dgHost
	qp       verbs.QP
	mem, own *rig.Memory
}

// put sends packets to the queue pair.
func (q *dgQueue) put(pkts ...dg.Packet) {
	for _, p := range pkts {
		ip := packet.IP{Src: q.Peers[0], Dst: q.Local[0]}
		udp := packet.UDP{SrcPort: new(uint16(dgPeer)), DstPort: new(uint16(dgPort))}
		octets := p.Over(dg.Path{Dest: uint32(q.qp.QPN()), Source: dgPeerQPN, Key: qKey}).Append(nil)
		if err := q.Wire.Send(ip.Append(nil, udp.Append(nil, ip, octets))); err != nil {
			rig.Abort(fmt.Errorf("send %v: %w", p, err))
		}
	}
}

// send is the peer's next Send.
func (q *dgQueue) send(n int) dg.Packet {
	q.sends++
	return dg.UD(iwarp.Send(q.sends, rig.Pattern(n, 0x5a)))
}

// write is a Write of n octets.
func (q *dgQueue) write(n int) dg.Packet {
	return dg.UD(iwarp.Write(uint32(q.mem.RKey()), q.mem.Addr(), rig.Pattern(n, 0x5a)))
}

// posts has the device send to the peer, and returns how many of its requests are Sends.
func (q *dgQueue) posts() (sent int) {
	ah, err := q.PD.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(q.Peers[0]), FlowLabel: dgPeer, HopLimit: 64}})
	q.Must("an address handle", err)
	for i, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend} {
		q.PostSend(q.qp, verbs.SendWR{
			WRID: uint64(100 + i), Opcode: op, SGL: q.own.SGL(0, 16), UD: verbs.UD{AH: ah, QPN: dgPeerQPN, QKey: qKey},
			Remote: verbs.Remote{Addr: theirSink.TO, RKey: verbs.RKey(theirSink.STag)},
		})
		q.ExpectCompletion(uint64(100+i), verbs.WCSuccess)
		if op == verbs.OpSend {
			sent++
		}
	}
	return sent
}

// settle waits until the device has dealt with all that was put before: another queue
// pair receives what comes behind.
func (h *dgHost) settle() {
	cq, err := h.Device.CreateCQ(verbs.CQInit{Depth: 4})
	h.Must("a completion queue", err)
	theirs := h.CQ
	h.CQ = cq
	q := h.queuePair(1)
	q.put(q.send(8))
	q.ExpectRecv(1, verbs.GRHLen+8)
	h.CQ = theirs
}

// judge holds the counters against the record, and what the case says besides.
func (h *dgHost) judge(happened found) {
	h.settle()
	happened = happened.and(found{receives: exactly(1), dgSendsRcvd: exactly(1)}) // it is counted like others
	wait := time.Duration(0)
	if !h.Virtual {
		wait = 10 * time.Millisecond
	}
	for {
		if _, err := h.Wire.Recv(wait); errors.Is(err, verbs.ErrTimeout) {
			break
		} else if err != nil {
			rig.Abort(err)
		}
	}
	events, _ := h.Record.Events()
	f := make(found)
	for _, e := range events[h.first:] {
		switch e.Kind {
		case conformance.EventSent:
			f.add(rcvdPackets)
		case conformance.EventReceived:
			f.add(sentPackets)
		}
	}
	judged := func(q quantity) bool { return !busy[q] || slices.Contains(h.about, q) }
	dgNames.agree(h.Rig, judged, h.before, look(h.Rig), f.and(happened), nil)
}

// and adds what else has happened.
func (f found) and(more found) found {
	all := make(found)
	for _, part := range []found{f, more} {
		for q, n := range part {
			all[q] = all[q].plus(n)
		}
	}
	return all
}
