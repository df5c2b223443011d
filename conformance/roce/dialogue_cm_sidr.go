package roce

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// sidrDialogue compares the resolution of datagram services with [model.SIDRRequest] and
// [model.SIDRResolve].
type sidrDialogue struct {
	cm       cmDialogue
	service  *udPort
	requests []*sidrRequest
	resolves []*sidrResolve
}

// sidrRequest is a SIDR_REQ of the peer.
type sidrRequest struct {
	model.SIDRRequest
	peer    netip.Addr
	tid     uint64
	srcPort uint16
	taken   verbs.ConnRequest // the request that GetRequest returned; nil before
	reused  bool              // another request has the same ID
}

// sidrResolve is a SIDR_REQ of the device.
type sidrResolve struct {
	model.SIDRResolve
	tid  uint64
	mad  []byte
	call *cmCall
	peer verbs.DatagramPeer
}

// openSIDRDialogue starts a dialogue with a datagram service on the device.
func openSIDRDialogue(r *rig.Rig) rig.DialogueSession[cmStep] {
	p := newPort(r)
	p.useConnectSource(p.gidTable())
	s := &sidrDialogue{cm: cmDialogue{port: p, baseID: r.Rand.Uint32()}, service: p.newUDPort(0, nil)}
	p.Must("the Q_Key of rdma_cm", s.service.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS, QKey: ib.UDQKey}, verbs.QPAttrState|verbs.QPAttrQKey))
	s.cm.listener = p.cmListen(verbs.PortSpaceUDP)
	p.Sync()
	return s
}

// sidrRejected is the status of a SIDR_REP that rejects the request.
const sidrRejected = 2

// sidrOps are the operations, each repeated by its weight.
var sidrOps = []string{
	"SIDR_REQ", "SIDR_REQ", "SIDR_REQ", "refused SIDR_REQ", "refused SIDR_REQ", "SIDR_REQ again", "take", "take", "accept", "accept", "accept", "reject",
	"resolve", "resolve", "SIDR_REP", "SIDR_REP", "SIDR_REP", "SIDR_REP with an unknown ID", "wait",
}

// Draw chooses an operation, a request and sometimes a fault.
func (s *sidrDialogue) Draw(r *rand.Rand) cmStep {
	step := cmStep{op: sidrOps[r.IntN(len(sidrOps))], conn: r.IntN(4), seed: r.Uint64()}
	if strings.Contains(step.op, "SIDR") {
		if r.IntN(5) == 0 {
			step.fault = r.IntN(len(cmFaults))
		}
		step.twice = r.IntN(8) == 0
	}
	return step
}

// Play performs a step, and compares the device with the model.
func (s *sidrDialogue) Play(step cmStep) {
	r := rand.New(rand.NewPCG(step.seed, 1))
	switch step.op {
	case "SIDR_REQ":
		s.sendRequest(step, r)
	case "refused SIDR_REQ":
		s.sendRefused(step, r)
	case "SIDR_REQ again":
		if q := pickLast(s.requests, step.conn); q != nil {
			s.sendDuplicate(q, step)
		}
	case "take":
		s.takeRequest()
	case "accept", "reject":
		s.answer(step, r)
	case "resolve":
		s.resolve(r)
	case "SIDR_REP", "SIDR_REP with an unknown ID":
		if q := pickLast(s.resolves, step.conn); q != nil {
			s.reply(q, step, r)
		}
	case "wait":
		if s.cm.port.Virtual {
			s.cm.port.Sleep(time.Second)
		}
	}
	s.settleSIDR()
	for _, q := range s.resolves {
		s.checkResolve(q)
	}
}

// pickLast returns the element k places before the last; nil if there is none.
func pickLast[T any](all []*T, k int) *T {
	if k >= len(all) {
		return nil
	}
	return all[len(all)-1-k]
}

// newRequest returns a SIDR_REQ with the n-th request ID and port of the peer. Sometimes it is from
// another host with the previous ID, or has the ID of an answered request.
func (s *sidrDialogue) newRequest(n uint32, r *rand.Rand) *sidrRequest {
	q := &sidrRequest{peer: s.cm.port.Peer, tid: r.Uint64(), srcPort: uint16(cmSourcePort + n)}
	if len(s.requests) > 0 && len(s.cm.port.Peers) > 1 && r.IntN(4) == 0 { // another host may choose the same IDs
		q.peer, n = s.cm.port.PeerAddr(1), n-1
		if last := s.requests[len(s.requests)-1]; last.peer == s.cm.port.Peer && r.IntN(2) == 0 {
			q.tid = last.tid
		}
	}
	q.Request = s.cm.port.cmSIDRRequest(ib.ServiceID(ib.PortSpaceUDP, cmPort), s.cm.baseID+n)
	if old := s.reusable(); old != nil && r.IntN(3) == 0 {
		q.peer, q.Request.RequestID, q.reused, old.reused, q.tid = old.peer, old.Request.RequestID, true, true, r.Uint64()
	}
	q.Request.PKey = new(s.cm.port.reachablePKey(r))
	q.Request.Private = append(ib.AddrHeader{SrcPort: q.srcPort, Src: q.peer, Dst: s.cm.port.deviceAddr}.Append(nil), cmPrivate(r, sidrREQPrivate)...)
	return q
}

// reusable returns the first answered request whose ID the peer may use in a new request; nil if
// there is none.
func (s *sidrDialogue) reusable() *sidrRequest {
	i := slices.IndexFunc(s.requests, func(q *sidrRequest) bool { return q.Reply != nil && !q.MayRepeat && !q.reused })
	if i < 0 {
		return nil
	}
	return s.requests[i]
}

// sendRequest has the peer send a new SIDR_REQ.
func (s *sidrDialogue) sendRequest(step cmStep, r *rand.Rand) {
	q := s.newRequest(uint32(len(s.requests)), r)
	s.cm.transmit(&cmLink{peer: q.peer}, q.tid, q.Request, step)
	if cmFaults[step.fault].harmless {
		s.requests = append(s.requests, q)
	}
}

// sendRefused has the peer send a SIDR_REQ that the device must refuse.
func (s *sidrDialogue) sendRefused(step cmStep, r *rand.Rand) {
	q := s.newRequest(0x8000+r.Uint32()%0x1000, r)
	want := ib.SIDRREP{RequestID: q.Request.RequestID, Status: new(uint8(sidrRejected)), InfoLen: new(uint8(0))}
	switch r.IntN(6) {
	case 0:
		q.Request.Private[0] = uint8(1 + r.IntN(255)) // version of the address header
	case 1:
		q.Request.Private[1] = []uint8{0x00, 0x50, 0xf0}[r.IntN(3)] // IP version
	case 2:
		dst := s.cm.port.Peer // not the device
		copy(q.Request.Private, ib.AddrHeader{SrcPort: q.srcPort, Src: q.peer, Dst: dst}.Append(nil))
	case 3:
		q.Request.ServiceID, want.Status = new(ib.ServiceID(ib.PortSpaceTCP, cmPort)), new(uint8(ib.SIDRUnsupported))
	case 4:
		q.Request.ServiceID, want.Status = new(ib.ServiceID(ib.PortSpaceUDP, cmClosedPort)), new(uint8(ib.SIDRUnsupported))
	case 5: // with a P_Key that does not reach the device; any status but success
		q.Request.PKey, want.Status = new(s.cm.port.unreachablePKey(r)), nil
	}
	want.ServiceID = q.Request.ServiceID
	n := s.cm.transmit(&cmLink{peer: q.peer}, q.tid, q.Request, step)
	if cmFaults[step.fault].harmless {
		s.settleSIDR(slices.Repeat([]cmWant{{tid: &q.tid, to: q.peer, msg: want, got: func(_ ib.MAD, m ib.Message, _ Arrival) {
			rep, _ := m.(ib.SIDRREP)
			s.cm.port.Check(*rep.Status != ib.SIDRValid, "a SIDR_REP that refuses the request", "status 0")
		}}}, n)...)
	}
}

// sendDuplicate sends a duplicate of a SIDR_REQ. The device may answer it.
func (s *sidrDialogue) sendDuplicate(q *sidrRequest, step cmStep) {
	n := s.cm.transmit(&cmLink{peer: q.peer}, q.tid, q.Request, step)
	if !cmFaults[step.fault].harmless {
		return
	}
	var wants []cmWant
	for _, may := range q.ReceiveDuplicate().May {
		wants = append(wants, cmWant{tid: &q.tid, to: q.peer, msg: may, optional: true})
	}
	s.settleSIDR(slices.Repeat(wants, n)...)
}

// takeRequest calls GetRequest of the listener, as the application: it expects the oldest SIDR_REQ that
// it has not got yet, or a timeout without one. The device may first return a duplicate of an earlier
// SIDR_REQ as a new request, which the application rejects.
func (s *sidrDialogue) takeRequest() {
	var first *sidrRequest
	if i := slices.IndexFunc(s.requests, func(q *sidrRequest) bool { return q.taken == nil }); i >= 0 {
		first = s.requests[i]
	}
	for {
		timeout := s.cm.port.ResponseTimeout()
		if first == nil {
			timeout = 0
		}
		req, err := s.cm.listener.GetRequest(timeout)
		if first == nil && errors.Is(err, verbs.ErrTimeout) {
			return
		}
		s.cm.port.Must("a request", err)
		from := netip.AddrPortFrom(req.Remote().Addr().Unmap(), req.Remote().Port())
		i := slices.IndexFunc(s.requests, func(q *sidrRequest) bool { return from == netip.AddrPortFrom(q.peer, q.srcPort) })
		s.cm.port.Check(i >= 0 && (s.requests[i] == first || s.requests[i].MayRepeat), "each request of the peer, once and in order", "one from %v", req.Remote())
		q := s.requests[i]
		s.cm.port.CheckPrivateData("the request", req.Param().PrivateData, q.Request.Private[ib.AddrHeaderLen:])
		if q == first {
			q.taken = req
			return
		}
		q.MayRepeat = false
		s.cm.port.Must("a request that can be rejected", req.Reject(nil))
		s.settleSIDR(cmWant{tid: &q.tid, to: q.peer, msg: ib.SIDRREP{RequestID: q.Request.RequestID, Status: new(uint8(sidrRejected))}})
	}
}

// answer has the application accept or reject the oldest request that it has taken.
func (s *sidrDialogue) answer(step cmStep, r *rand.Rand) {
	i := slices.IndexFunc(s.requests, func(q *sidrRequest) bool { return q.taken != nil && q.Reply == nil })
	if i < 0 {
		return
	}
	q, private := s.requests[i], cmPrivate(r, sidrREPPrivate)
	want := ib.SIDRREP{
		RequestID: q.Request.RequestID, ServiceID: q.Request.ServiceID, Private: private, InfoLen: new(uint8(0)), Info: []byte{},
	}
	if step.op == "accept" {
		_, err := q.taken.Accept(s.service.QP, verbs.ConnParam{PrivateData: private}, s.cm.port.ResponseTimeout())
		s.cm.port.Must("a request that can be accepted", err)
		want.Status = new(uint8(ib.SIDRValid))
		want.QPN, want.QKey = new(uint32(s.service.QP.QPN())), new(uint32(ib.UDQKey))
	} else {
		s.cm.port.Must("a request that can be rejected", q.taken.Reject(private))
		want.Status = new(uint8(sidrRejected))
	}
	s.settleSIDR(cmWant{tid: &q.tid, to: q.peer, msg: want, got: func(_ ib.MAD, m ib.Message, _ Arrival) {
		rep, _ := m.(ib.SIDRREP)
		q.Reply = &rep
	}})
}

// resolve has the application resolve a service of the peer, and expects a SIDR_REQ.
func (s *sidrDialogue) resolve(r *rand.Rand) {
	q, private := &sidrResolve{}, cmPrivate(r, sidrREQPrivate)
	q.call = s.cm.call("resolve", func() (err error) {
		q.peer, err = s.cm.port.CM().Resolve(netip.AddrPortFrom(s.cm.port.Peer, cmConnectPort), private, s.cm.callTimeout())
		return err
	})
	want := ib.SIDRREQ{ServiceID: new(ib.ServiceID(ib.PortSpaceUDP, cmConnectPort)), PKey: &s.cm.port.Checker.PKey}
	s.settleSIDR(cmWant{to: s.cm.port.Peer, msg: want, got: func(mad ib.MAD, m ib.Message, a Arrival) {
		req, _ := m.(ib.SIDRREQ)
		q.ID, q.tid, q.mad = *req.RequestID, *mad.TID, a.Payload
		h, user, err := ib.ParseAddrHeader(req.Private)
		s.cm.port.Check(err == nil && h.Src == s.cm.port.deviceAddr && h.Dst == s.cm.port.Peer, fmt.Sprintf("private data with %v and %v", s.cm.port.deviceAddr, s.cm.port.Peer), "%+v (%v)", h, err)
		s.cm.port.CheckPrivateData("the SIDR_REQ", user, private)
	}})
	for _, other := range s.resolves {
		if other.Reply == nil {
			s.cm.port.Check(other.ID != q.ID, "a request ID that no other request has", "%#08x", q.ID)
		}
	}
	s.resolves = append(s.resolves, q)
}

// reply has the peer answer a SIDR_REQ of the device, in some steps with an unknown request ID.
func (s *sidrDialogue) reply(q *sidrResolve, step cmStep, r *rand.Rand) {
	status := uint8(max(0, r.IntN(12)-7)) // 0, success, in most
	rep := ib.SIDRREP{
		RequestID: &q.ID, Status: &status, QPN: new(r.Uint32() & 0xffffff), QKey: new(r.Uint32()),
		ServiceID: new(ib.ServiceID(ib.PortSpaceUDP, cmConnectPort)), Private: cmPrivate(r, sidrREPPrivate),
	}
	if step.op != "SIDR_REP" {
		rep.RequestID = new(q.ID ^ 1<<r.IntN(32))
	}
	if status == 4 { // a redirection, which the device may follow
		status = 1
	}
	s.cm.transmit(&cmLink{peer: s.cm.port.Peer}, q.tid, rep, step)
	if !cmFaults[step.fault].harmless {
		return
	}
	for _, other := range s.resolves {
		if step.op == "SIDR_REP" || other != q {
			other.Receive(rep)
		}
	}
}

// checkResolve compares the result of Resolve with the model.
func (s *sidrDialogue) checkResolve(q *sidrResolve) {
	rep := q.Reply
	if rep == nil {
		s.cm.port.Check(!q.call.done.Load(), "Resolve waits", "it has returned: %v", q.call.task.Wait(0))
		return
	}
	err := q.call.task.Wait(s.cm.port.ResponseTimeout())
	s.cm.port.Check(q.call.done.Load(), "Resolve returns", "it still waits after %v", s.cm.port.ResponseTimeout())
	if *rep.Status != ib.SIDRValid {
		s.cm.port.MustFail("resolving a service that the peer refuses", err, nil)
		return
	}
	s.cm.port.Must("a service that is found", err)
	got, dest := q.peer, q.peer.AH.GRH.DGID.Addr().Unmap()
	ok := uint32(got.QPN) == *rep.QPN && got.QKey == *rep.QKey && dest == s.cm.port.Peer
	s.cm.port.Check(ok, fmt.Sprintf("QPN %#x, Q_Key %#x at %v", *rep.QPN, *rep.QKey, s.cm.port.Peer), "%#x, %#x at %v", uint32(got.QPN), got.QKey, dest)
	s.cm.port.CheckPrivateData("the result", got.PrivateData, rep.Private)
}

// settleSIDR waits for the messages in wants that are not optional, and fails the case if the
// device sends others. Each SIDR_REQ without an answer is entered as a connection meanwhile, so
// that the device may retransmit it at any time.
func (s *sidrDialogue) settleSIDR(wants ...cmWant) {
	for _, q := range s.resolves {
		if q.Reply == nil {
			s.cm.links = append(s.cm.links, &cmLink{peer: s.cm.port.Peer, out: q.mad, timer: model.CMTimer{Retries: 1000}})
		}
	}
	s.cm.settle(wants...)
	s.cm.links = nil
}

// Close ends all requests and frees the objects of the dialogue.
func (s *sidrDialogue) Close() {
	for _, q := range s.resolves {
		if q.Reply == nil {
			s.cm.port.SendPacket(ib.CM(q.tid, ib.SIDRREP{RequestID: &q.ID, Status: new(uint8(1))}))
		}
	}
	for _, q := range s.resolves {
		_ = q.call.task.Wait(s.cm.callTimeout() + time.Second) // its result was checked, or does not matter
	}
	for _, q := range s.requests {
		if q.taken != nil && q.Reply == nil {
			_ = q.taken.Reject(nil)
		}
	}
	s.cm.Close()
	s.cm.port.closeConn(s.service.Conn)
}
