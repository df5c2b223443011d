package roce

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// compareAttr fails the case unless the state, the keys and, if it is known, the next PSN of the
// i-th queue pair are those of the model.
func (s *udDialogue) compareAttr(i int) {
	q, a := s.m.QPs[i], s.port.QueryQP(s.qps[i])
	s.port.Check(a.State == q.State, fmt.Sprintf("queue pair %d in %v", i, q.State), "%v", a.State)
	if q.State != verbs.QPStateReset {
		s.port.Check(a.QKey == q.QKey && a.PKeyIndex == q.PKeyIndex, fmt.Sprintf("Q_Key %#x and P_Key index %d of queue pair %d", q.QKey, q.PKeyIndex, i), "%#x and %d", a.QKey, a.PKeyIndex)
	}
	if q.State == verbs.QPStateRTS && q.PSNSlack == 0 && len(s.waiting[s.qps[i]]) == 0 {
		s.port.Check(ib.PSN(a.SQPSN) == q.PSN, fmt.Sprintf("next PSN %d of queue pair %d", q.PSN, i), "%d", a.SQPSN)
	}
}

// drawUDState draws a change of the state of a queue pair: to ERR, RESET, INIT or RTS, or to the
// next state on the way to RTS.
func drawUDState(_ *udDialogue, r *rand.Rand) udStep {
	return stateOf(r, verbs.QPStateErr, verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTS)
}

// drawUDSendState draws a change of the state of a send queue: to SQD or SQE, or to the next state
// on the way to RTS.
func drawUDSendState(_ *udDialogue, r *rand.Rand) udStep {
	return stateOf(r, verbs.QPStateSQD, verbs.QPStateSQE)
}

// stateOf returns a step that moves a queue pair to a random one of the states or, in half of the
// steps, to the next state on the way to RTS.
func stateOf(r *rand.Rand, states ...verbs.QPState) udStep {
	i, to := pickUD(r), rig.Pick(r, states...)
	if chance(r, 2) {
		return step(func(s *udDialogue) { s.advance(i) }, "queue pair %d to the next state", i)
	}
	return step(func(s *udDialogue) { s.toState(i, to) }, "queue pair %d to %v, if that is possible", i, to)
}

// toState moves the i-th queue pair to a state, over others if necessary, and compares the effect.
// It does nothing if the state cannot be reached.
func (s *udDialogue) toState(i int, to verbs.QPState) {
	q, qp := s.m.QPs[i], s.qps[i]
	switch {
	case to == verbs.QPStateRTS:
		for q.State != to {
			s.advance(i)
		}
	case to == verbs.QPStateInit:
		s.toState(i, verbs.QPStateReset)
		s.advance(i)
	case to == verbs.QPStateReset:
		s.port.ToState(qp, to)
		for _, r := range q.Receives {
			s.release(r.ID)
		}
		q.Receives, q.State = nil, to
		delete(s.waiting, qp)
	case to == verbs.QPStateErr && q.State != verbs.QPStateReset:
		s.port.ToState(qp, to)
		want := q.Flush()
		for _, r := range s.waiting[qp] {
			want = append(want, verbs.WC{WRID: r.WR.WRID, Status: verbs.WCWRFlushErr, QPN: q.QPN})
		}
		delete(s.waiting, qp)
		s.compare(want)
	case to == verbs.QPStateSQD && q.State == verbs.QPStateRTS:
		s.port.ToState(qp, to)
		q.State = to
	case to == verbs.QPStateSQE && q.State == verbs.QPStateRTS:
		s.failSend(i)
	}
	s.compareAttr(i)
}

// failSend posts a request with a wrong L_Key between two valid ones. The first must be sent, the
// last flushed, and the queue pair be in SQE.
func (s *udDialogue) failSend(i int) {
	q := s.m.QPs[i]
	all := []model.UDRequest{s.newRequest(9), s.newRequest(10), s.newRequest(11)}
	all[1].WR.SGL = []verbs.SGE{{Addr: s.source.Addr(), Length: 10, LKey: s.source.LKey() ^ 0x00fff055}}
	s.post(i, all...)
	s.expectSent(i, all[0])
	q.State, q.PSNSlack = verbs.QPStateSQE, q.PSNSlack+1
	s.compare([]verbs.WC{
		{WRID: all[0].WR.WRID, QPN: q.QPN, Opcode: verbs.WCOpSend},
		{WRID: all[1].WR.WRID, Status: verbs.WCLocProtErr, QPN: q.QPN},
		{WRID: all[2].WR.WRID, Status: verbs.WCWRFlushErr, QPN: q.QPN},
	})
	s.port.AwaitState(s.qps[i], verbs.QPStateSQE)
}

// advance moves the i-th queue pair to the next state on the way to RTS. Requests that waited in
// SQD must then be sent.
func (s *udDialogue) advance(i int) {
	q, qp := s.m.QPs[i], s.qps[i]
	switch q.State {
	case verbs.QPStateReset:
		s.port.ToInit(qp, 0, q.QKey)
		if q.PKeyIndex != 0 {
			s.port.Must("a queue pair with another P_Key", qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, PKeyIndex: q.PKeyIndex}, verbs.QPAttrState|verbs.QPAttrPKeyIndex))
		}
		q.State = verbs.QPStateInit
	case verbs.QPStateInit:
		s.port.ToRTR(qp, verbs.QPAttr{})
		q.State = verbs.QPStateRTR
	case verbs.QPStateRTR:
		s.port.ToRTS(qp, verbs.QPAttr{SQPSN: uint32(q.PSN)})
		q.State, q.PSNSlack = verbs.QPStateRTS, 0
	case verbs.QPStateSQD, verbs.QPStateSQE:
		s.port.ToState(qp, verbs.QPStateRTS)
		q.State = verbs.QPStateRTS
		waiting := s.waiting[qp]
		delete(s.waiting, qp)
		s.expectAllSent(i, waiting)
	case verbs.QPStateErr:
		s.port.ToState(qp, verbs.QPStateReset)
		q.State = verbs.QPStateReset
	}
	s.compareAttr(i)
}

// newRequest returns a signaled datagram of n bytes to the peer.
func (s *udDialogue) newRequest(n int) model.UDRequest {
	r := model.UDRequest{
		WR:     verbs.SendWR{WRID: s.ids | sendIDs, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, UD: verbs.UD{QPN: udPeerQPN, QKey: udQKey}},
		Source: s.port.Local[0], Path: s.port.peerAttr(s.port.Peer).AH,
	}
	s.ids++
	r.WR.UD.AH = s.handle(r.Path)
	return s.withPayload(r, 0, n)
}

// withPayload sets the payload: n bytes of the source from off on, with two SGEs if n is more than
// 20.
func (s *udDialogue) withPayload(r model.UDRequest, off, n int) model.UDRequest {
	r.Payload, r.WR.SGL = s.source.Buf[off:][:n], nil
	if n > 20 {
		r.WR.SGL = append(r.WR.SGL, s.source.SGE(off, 13))
		off, n = off+13, n-13
	}
	if n > 0 {
		r.WR.SGL = append(r.WR.SGL, s.source.SGE(off, n))
	}
	return r
}

// handle returns the address handle of a path, and makes it if there is none.
func (s *udDialogue) handle(a verbs.AHAttr) verbs.AH {
	if s.paths[a] == nil {
		s.paths[a] = rig.Result(s.port.PD.CreateAH(a))(s.port, "an address handle")
	}
	return s.paths[a]
}

// drawnSend is a datagram of the application, before it has an ID.
type drawnSend struct {
	op     verbs.WROpcode
	flags  verbs.SendFlags
	off, n int
	imm    uint32
	to     verbs.UD
	path   verbs.GRH // without the addresses
	source int       // index of the device's address
	dest   int       // index of the peer's address or, negated, of a group
}

func (d drawnSend) String() string {
	return fmt.Sprintf("%v of %d bytes to queue pair %#x with Q_Key %#x, flags %d", d.op, d.n, uint32(d.to.QPN), d.to.QKey, d.flags)
}

// drawSend draws a datagram to a peer.
func (s *udDialogue) drawSend(r *rand.Rand) drawnSend {
	d := drawnSend{
		op: rig.Pick(r, verbs.OpSend, verbs.OpSendImm), flags: rig.Pick(r, 0, verbs.SendSignaled, verbs.SendSignaled|verbs.SendSolicited, verbs.SendSolicited),
		off: r.IntN(8), n: rig.Pick(r, 0, 1, 2, 3, 4, 5, 64, 255, 256, 257, s.mtu-1, s.mtu), imm: r.Uint32(),
	}
	d.to.QPN = verbs.QPN(rig.Pick(r, udPeerQPN, 2, 0xfffffe, r.Uint32()&0xfffffe))
	d.to.QKey = rig.Pick[uint32](r, udQKey, udQKey, 0, 1, 0x7fffffff)
	d.path = verbs.GRH{HopLimit: 64}
	return d
}

// request makes a work request of a drawn datagram.
func (s *udDialogue) request(d drawnSend) model.UDRequest {
	req := s.newRequest(0)
	req.WR.Opcode, req.WR.Flags, req.WR.Imm = d.op, d.flags, d.imm
	req.Source, req.Path.GRH.SGIDIndex = s.port.Local[d.source%len(s.port.Local)], s.port.gidIndex(s.port.Local[d.source%len(s.port.Local)])
	dest := s.port.Peers[max(0, d.dest)%len(s.port.Peers)]
	req.WR.UD.QPN, req.WR.UD.QKey = d.to.QPN, d.to.QKey
	if d.dest < 0 {
		dest = s.groups[-d.dest%len(s.groups)]
		req.WR.UD.QPN = verbs.MulticastQPN
		s.port.Must("the peer in a group", s.port.Wire.Join(dest))
	}
	req.Path.GRH.DGID, req.Path.GRH.HopLimit = verbs.GIDFrom(dest), d.path.HopLimit
	req.Path.GRH.TrafficClass, req.Path.GRH.FlowLabel = d.path.TrafficClass, d.path.FlowLabel
	req.WR.UD.AH = s.handle(req.Path)
	return s.withPayload(req, d.off, d.n)
}

// drawUDSends draws up to four datagrams that a queue pair posts with one call.
func drawUDSends(s *udDialogue, r *rand.Rand) udStep {
	all := make([]drawnSend, 1+r.IntN(4))
	for i := range all {
		all[i] = s.drawSend(r)
	}
	return sendsOf(pickUD(r), all)
}

// drawUDPaths draws up to four datagrams with random addresses, Q_Keys, hop limits, traffic classes
// and flow labels, some to groups.
func drawUDPaths(s *udDialogue, r *rand.Rand) udStep {
	all := make([]drawnSend, 1+r.IntN(4))
	for i := range all {
		d := s.drawSend(r)
		d.source, d.dest = r.IntN(2), r.IntN(2)
		d.to.QKey = rig.Pick(r, d.to.QKey, 0x80000000, 0x80010000, 0xffffffff)
		if chance(r, 4) && s.port.Caps.Has(verbs.CapMulticast) {
			d.dest = -1 - r.IntN(3)
		}
		d.path = verbs.GRH{HopLimit: uint8(1 + r.IntN(255)), TrafficClass: uint8(r.Uint32()), FlowLabel: r.Uint32() & 0xfffff}
		all[i] = d
	}
	return sendsOf(pickUD(r), all)
}

// sendsOf returns a step in which the i-th queue pair posts datagrams with one call. The last is
// signaled.
func sendsOf(i int, all []drawnSend) udStep {
	all[len(all)-1].flags |= verbs.SendSignaled
	return step(func(s *udDialogue) {
		var requests []model.UDRequest
		for _, d := range all {
			requests = append(requests, s.request(d))
		}
		s.post(i, requests...)
		s.afterPost(i, requests)
	}, "queue pair %d posts %v", i, all)
}

// post posts requests to the i-th queue pair. Before RTS the device must refuse them.
func (s *udDialogue) post(i int, all ...model.UDRequest) {
	var wrs []verbs.SendWR
	for _, r := range all {
		wrs = append(wrs, r.WR)
	}
	if s.m.QPs[i].State < verbs.QPStateRTS {
		_, err := s.qps[i].PostSend(wrs)
		s.port.MustFail(fmt.Sprintf("a send in %v", s.m.QPs[i].State), err, nil)
		return
	}
	s.port.PostSend(s.qps[i], wrs...)
}

// afterPost fails the case unless the device sends posted requests in RTS, keeps them in SQD, and
// flushes them in SQE and ERR.
func (s *udDialogue) afterPost(i int, all []model.UDRequest) {
	q := s.m.QPs[i]
	switch q.State {
	case verbs.QPStateRTS:
		s.expectAllSent(i, all)
	case verbs.QPStateSQD:
		s.waiting[s.qps[i]] = append(s.waiting[s.qps[i]], all...)
		s.compare(nil)
	case verbs.QPStateSQE, verbs.QPStateErr:
		var want []verbs.WC
		for _, r := range all {
			want = append(want, verbs.WC{WRID: r.WR.WRID, Status: verbs.WCWRFlushErr, QPN: q.QPN})
		}
		s.compare(want)
	default:
		s.compare(nil)
	}
	s.compareAttr(i)
}

// expectAllSent fails the case unless the requests are sent and complete.
func (s *udDialogue) expectAllSent(i int, all []model.UDRequest) {
	var want []verbs.WC
	for _, r := range all {
		s.expectSent(i, r)
		if r.WR.Flags&verbs.SendSignaled != 0 {
			want = append(want, verbs.WC{WRID: r.WR.WRID, QPN: s.m.QPs[i].QPN, Opcode: verbs.WCOpSend})
		}
	}
	s.compare(want)
}

// expectSent fails the case unless the next packet is that of a request. Failed requests before it
// may have used up to PSNSlack PSNs.
func (s *udDialogue) expectSent(i int, r model.UDRequest) {
	q := s.m.QPs[i]
	got := s.port.expectAnyPacket(fmt.Sprintf("a datagram of %d bytes of queue pair %d", len(r.Payload), i))
	if more := got.PSN().Sub(q.PSN); more > 0 && more <= q.PSNSlack {
		q.PSN = got.PSN()
	}
	q.PSNSlack = 0
	s.port.checkPacket(q.Send(r), got)
	const ecn = 3
	allowed := []uint8{0}
	if s.port.Caps.Has(verbs.CapCongestion) {
		allowed = []uint8{0, 1, 2}
	}
	tclass := *got.IP.TClass
	s.port.Check(tclass&^ecn == r.Path.GRH.TrafficClass&^ecn && slices.Contains(allowed, tclass&ecn),
		fmt.Sprintf("traffic class %#02x with ECN bits of %v", r.Path.GRH.TrafficClass&^ecn, allowed), "%#02x", tclass)
}

// drawUDOversize draws a datagram that exceeds the MTU, which the device must not send. It may
// refuse the post, or complete the request with success or a length error.
func drawUDOversize(_ *udDialogue, r *rand.Rand) udStep {
	i, more := pickUD(r), rig.Pick(r, 1, 2, 3, 4, 5, 40)
	return step(func(s *udDialogue) {
		q := s.m.QPs[i]
		if q.State != verbs.QPStateRTS {
			return
		}
		wr := s.newRequest(s.mtu + more).WR
		q.PSNSlack++
		if _, err := s.qps[i].PostSend([]verbs.SendWR{wr}); err != nil {
			s.compare(nil)
			return
		}
		wc := s.port.NextCompletion()
		s.port.Check(wc.WRID == wr.WRID && (wc.Status == verbs.WCSuccess || wc.Status == verbs.WCLocLenErr),
			"a datagram beyond the MTU that completes with success, or with an error of its length", "%s", rig.Describe(&wc))
		s.compare(nil)
		if wc.Status != verbs.WCSuccess && s.port.QueryQP(s.qps[i]).State == verbs.QPStateSQE {
			s.port.ToState(s.qps[i], verbs.QPStateRTS)
		}
		s.compareAttr(i)
	}, "queue pair %d posts a datagram of %d bytes more than the MTU", i, more)
}

// drawUDLoopback draws a datagram from one queue pair of the device to another, or to itself. One
// of five has a wrong Q_Key.
func drawUDLoopback(s *udDialogue, r *rand.Rand) udStep {
	d, from, to, wrongKey := s.drawSend(r), pickUD(r), pickUD(r), chance(r, 5)
	d.flags, d.n = verbs.SendSignaled|d.flags, min(d.n, 300)
	return step(func(s *udDialogue) {
		d := d
		if s.m.QPs[from].State != verbs.QPStateRTS {
			return
		}
		d.to.QPN, d.to.QKey = s.m.QPs[to].QPN, s.m.QPs[to].QKey
		if wrongKey {
			d.to.QKey ^= 2
		}
		d.n = udSize{n: d.n, capped: true}.bytes(s, to)
		req := s.request(d)
		req.Path.GRH.DGID = verbs.GIDFrom(s.port.Local[0])
		req.WR.UD.AH = s.handle(req.Path)
		s.post(from, req)
		sent := s.m.QPs[from].Send(req)
		want := s.receiveOwn(sent)
		s.port.Sync()
		// On some benches the datagram is also seen on the wire.
		s.port.skipped = slices.DeleteFunc(s.port.skipped, func(a Arrival) bool { return a.IP.Dst == s.port.Local[0] })
		s.compare(append(want, verbs.WC{WRID: req.WR.WRID, QPN: s.m.QPs[from].QPN, Opcode: verbs.WCOpSend}))
		s.compareAttr(from)
	}, "queue pair %d sends %v to queue pair %d, with a wrong Q_Key: %v", from, d, to, wrongKey)
}

// receiveOwn returns the completions of a datagram that the device sends to itself. The content of
// the header area is not known.
func (s *udDialogue) receiveOwn(sent ib.Packet) []verbs.WC {
	unseen := s.m.HeadersUnseen
	s.m.HeadersUnseen = true
	defer func() { s.m.HeadersUnseen = unseen }()
	return s.m.Receive(sent.Build())
}

// drawUDGroupSend draws a datagram of the device to a group. Each queue pair of the device in the
// group, even the sender, may receive one copy at most.
func drawUDGroupSend(s *udDialogue, r *rand.Rand) udStep {
	d, from := s.drawSend(r), pickUD(r)
	d.dest, d.n, d.flags, d.to.QKey = -1-r.IntN(2), min(d.n, 64), d.flags|verbs.SendSignaled, udQKey
	return step(func(s *udDialogue) {
		q := s.m.QPs[from]
		if q.State != verbs.QPStateRTS {
			return
		}
		req := s.request(d)
		s.post(from, req)
		next := q.PSN
		s.expectSent(from, req)
		wc := s.port.NextCompletion()
		s.port.Sync()
		got := append([]verbs.WC{wc}, s.port.Completions()...)
		want := []verbs.WC{{WRID: req.WR.WRID, QPN: q.QPN, Opcode: verbs.WCOpSend}}
		q.PSN = next
		sent := q.Send(req)
		want = append(want, s.copies(sent, got)...)
		s.port.matchCompletions(want, got)
		for _, wc := range want {
			s.release(wc.WRID)
		}
		s.compare(nil)
	}, "queue pair %d sends %v to group %d", from, d, -d.dest)
}

// copies returns the expected completions of the queue pairs that, according to got, have received
// a copy of a datagram of the device. A copy that was too long may have changed memory.
func (s *udDialogue) copies(sent ib.Packet, got []verbs.WC) (want []verbs.WC) {
	all := s.m.QPs
	defer func() { s.m.QPs = all }()
	s.m.QKeyViolations.Max += uint32(len(all))
	s.m.BadPKeys.Max += uint32(len(all))
	for _, q := range all {
		isCopy := func(wc verbs.WC) bool { return wc.QPN == q.QPN && wc.WRID&sendIDs == 0 }
		switch {
		case slices.ContainsFunc(got, isCopy):
			s.m.QPs = []*model.UDQueuePair{q}
			want = append(want, s.receiveOwn(sent)...)
		case len(q.Receives) > 0: // the copy may have been too long
			s.m.Undefined = append(s.m.Undefined, q.Receives[0].Pieces...)
		}
	}
	return want
}
