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

// dgHost is an application on a datagram-iWARP device whose packets are counted.
type dgHost struct {
	*rig.Rig
	about      []quantity
	before     values
	firstEvent int // index of the first recorded event that counts
	sends      uint32
}

// onDG makes the body of a case about these quantities. body returns the counts that the
// record does not show.
func onDG(about []quantity, body func(*dgHost) counts) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) {
		dgNames.requireAny(r, about...)
		events, _ := r.Record.Events()
		h := &dgHost{Rig: r, about: about, before: readCounters(r), firstEvent: len(events)}
		h.checkCounters(body(h))
	})
}

// Ports and QPN of the scripted peer.
const (
	dgPort     = 65041
	dgPeerPort = 52049
	dgPeerQPN  = 0x0abc00
)

// queuePair makes a queue pair with posted receives.
func (h *dgHost) queuePair(receives int) *dgQueue {
	q := &dgQueue{dgHost: h, targetMem: h.Memory(4096, verbs.AccessLocalWrite|verbs.AccessRemoteWrite|verbs.AccessRemoteRead), localMem: h.Memory(4096, verbs.AccessLocalWrite)}
	var err error
	q.qp, err = h.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: h.PD, SendCQ: h.CQ, RecvCQ: h.CQ, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	h.Must("a queue pair", err)
	h.Must("a queue pair in INIT", q.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey))
	for i := range receives {
		h.PostRecv(q.qp, uint64(i+1), q.localMem.SGE(128*i, 128))
	}
	h.Must("a queue pair in RTR", q.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState))
	h.Must("a queue pair in RTS", q.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN))
	return q
}

// dgQueue is a UD queue pair of the device, with a scripted peer.
type dgQueue struct {
	*dgHost
	qp                  verbs.QP
	targetMem, localMem *rig.Memory
}

// sendPackets sends packets to the queue pair.
func (q *dgQueue) sendPackets(pkts ...dg.Packet) {
	for _, p := range pkts {
		ip := packet.IP{Src: q.Peers[0], Dst: q.Local[0]}
		udp := packet.UDP{SrcPort: new(uint16(dgPeerPort)), DstPort: new(uint16(dgPort))}
		octets := p.Over(dg.Path{Dest: uint32(q.qp.QPN()), Source: dgPeerQPN, Key: qKey}).Append(nil)
		if err := q.Wire.Send(ip.Append(nil, udp.Append(nil, ip, octets))); err != nil {
			rig.Abort(fmt.Errorf("send %v: %w", p, err))
		}
	}
}

// send returns the peer's next Send.
func (q *dgQueue) send(n int) dg.Packet {
	q.sends++
	return dg.UD(iwarp.Send(q.sends, rig.Pattern(n, 0x5a)))
}

// write returns a Write of n octets.
func (q *dgQueue) write(n int) dg.Packet {
	return dg.UD(iwarp.Write(uint32(q.targetMem.RKey()), q.targetMem.Addr(), rig.Pattern(n, 0x5a)))
}

// sendRequests has the device send three Sends and two Writes, and returns the number of
// Sends.
func (q *dgQueue) sendRequests() (sent int) {
	ah, err := q.PD.CreateAH(verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(q.Peers[0]), FlowLabel: dgPeerPort, HopLimit: 64}})
	q.Must("an address handle", err)
	for i, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend} {
		q.PostSend(q.qp, verbs.SendWR{
			WRID: uint64(100 + i), Opcode: op, SGL: q.localMem.SGL(0, 16), UD: verbs.UD{AH: ah, QPN: dgPeerQPN, QKey: qKey},
			Remote: verbs.Remote{Addr: peerSink.TO, RKey: verbs.RKey(peerSink.STag)},
		})
		q.ExpectCompletion(uint64(100+i), verbs.WCSuccess)
		if op == verbs.OpSend {
			sent++
		}
	}
	return sent
}

// sync waits until the device has processed all earlier packets: another queue pair
// receives a later one.
func (h *dgHost) sync() {
	cq, err := h.Device.CreateCQ(verbs.CQInit{Depth: 4})
	h.Must("a completion queue", err)
	theirs := h.CQ
	h.CQ = cq
	q := h.queuePair(1)
	q.sendPackets(q.send(8))
	q.ExpectRecv(1, verbs.GRHLen+8)
	h.CQ = theirs
}

// checkCounters compares the counters with the recorded packets and the extra counts.
func (h *dgHost) checkCounters(extra counts) {
	h.sync()
	extra = extra.plus(counts{receives: exactly(1), dgSendsRcvd: exactly(1)}) // the message of sync counts too
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
	f := make(counts)
	for _, e := range events[h.firstEvent:] {
		switch e.Kind {
		case conformance.EventSent:
			f.add(rcvdPackets)
		case conformance.EventReceived:
			f.add(sentPackets)
		}
	}
	judged := func(q quantity) bool { return !ambiguous[q] || slices.Contains(h.about, q) }
	dgNames.expectIncreases(h.Rig, judged, h.before, readCounters(h.Rig), f.plus(extra), nil)
}

// plus returns the sum of two counts.
func (f counts) plus(more counts) counts {
	all := make(counts)
	for _, part := range []counts{f, more} {
		for q, n := range part {
			all[q] = all[q].plus(n)
		}
	}
	return all
}
