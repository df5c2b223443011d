package roce

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/model"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// cmConnectPort is the port of the peer's service.
const cmConnectPort = 9000

// callTimeout returns the timeout of verbs that block. It is longer than all retransmissions take.
func (s *cmDialogue) callTimeout() time.Duration { return byClock(s.port, 10*time.Minute, time.Minute) }

// call starts f, which calls a verb that blocks.
func (s *cmDialogue) call(name string, f func() error) *cmCall {
	c := &cmCall{name: name}
	c.task = s.port.Go(name, func() error {
		defer c.done.Store(true)
		return f()
	})
	return c
}

// drawParam returns connection parameters with up to private bytes of private data.
func (s *cmDialogue) drawParam(r *rand.Rand, private int) verbs.ConnParam {
	small := func(n int) uint8 { return uint8(r.IntN(n)) }
	return verbs.ConnParam{
		ResponderResources: small(5), InitiatorDepth: small(5), RetryCount: small(8), RNRRetryCount: small(8),
		FlowControl: r.IntN(2) == 0, PrivateData: cmPrivate(r, private),
	}
}

// startConnect has the application connect to the peer, and expects a REQ with the parameters of
// the call.
func (s *cmDialogue) startConnect(_ *cmLink, _ cmStep, r *rand.Rand) {
	if s.live() >= maxLinks {
		return
	}
	c := s.newLink(true)
	c.conn = s.port.connect(Setup{state: verbs.QPStateInit})
	c.DeviceQPN, c.param = uint32(c.conn.QP.QPN()), s.drawParam(r, cmREQPrivate)
	c.setup = s.call("connect", func() (err error) {
		c.result, err = s.port.CM().Connect(c.conn.QP, netip.AddrPortFrom(s.port.Peer, cmConnectPort), c.param, s.callTimeout())
		return err
	})
	zero, zero16, zero32 := new(uint8(0)), new(uint16(0)), new(uint32(0))
	s.settle(cmWant{to: c.peer, got: func(mad ib.MAD, m ib.Message, a Arrival) { s.requestSent(c, mad, m, a) }, msg: ib.REQ{
		ServiceID: new(ib.ServiceID(ib.PortSpaceTCP, cmConnectPort)), LocalCAGUID: &s.guid, QPN: &c.DeviceQPN,
		RespResources: &c.param.ResponderResources, InitiatorDepth: &c.param.InitiatorDepth, Transport: zero, ExtTransport: zero,
		RetryCount: &c.param.RetryCount, RNRRetryCount: &c.param.RNRRetryCount, FlowControl: &c.param.FlowControl, SRQ: new(false),
		PKey: &s.port.Checker.PKey, LocalGID: s.port.deviceAddr, RemoteGID: s.port.Peer, LocalEECN: zero32, RemoteEECN: zero32, RDCExists: new(false),
		AltLocalLID: zero16, AltRemoteLID: zero16, AltLocalGID: netip.IPv6Unspecified(), AltRemoteGID: netip.IPv6Unspecified(),
		AltFlowLabel: zero32, AltPacketRate: zero, AltTrafficClass: zero, AltHopLimit: zero, AltSL: zero, AltAckTimeout: zero,
	}})
}

// requestSent notes the REQ of the device, and checks its private data, path MTU and ID.
func (s *cmDialogue) requestSent(c *cmLink, mad ib.MAD, m ib.Message, a Arrival) {
	req, _ := m.(ib.REQ)
	c.req, c.tid, c.DeviceID, c.State = req, *mad.TID, *req.LocalCommID, model.CMRequesting
	h, user, err := ib.ParseAddrHeader(req.Private)
	sameSource := func(other *cmLink) bool { return other.Active && other != c && other.srcPort == h.SrcPort }
	ok := err == nil && h.Version == 0 && h.Src == s.port.deviceAddr && h.Dst == s.port.Peer && !slices.ContainsFunc(s.links, sameSource)
	c.srcPort = h.SrcPort
	s.port.Check(ok, fmt.Sprintf("private data with %v, a source port that no other connection has, and %v", s.port.deviceAddr, s.port.Peer), "%+v (%v)", h, err)
	s.port.CheckPrivateData("the REQ", user, c.param.PrivateData)
	s.port.Check(*req.PathMTU >= 1 && *req.PathMTU <= 5, "a path MTU code of 1 to 5", "%d", *req.PathMTU)
	s.checkNewID(c)
	c.startTimer(a, *req.RemoteTimeout)
}

// startTimer notes a message that the device retransmits until the peer responds. code is that of
// the response timeout.
func (c *cmLink) startTimer(a Arrival, code uint8) {
	c.out = a.Payload
	c.timer = model.CMTimer{
		Timeout: ib.AckTimeout(code), Delay: 2 * ib.AckTimeout(*c.req.AckTimeout), Retries: int(*c.req.MaxCMRetries),
	}
	c.timer.Start(a.At)
}

// checkNewID fails the case if another connection, which is not idle, has the same communication ID
// of the device as c.
func (s *cmDialogue) checkNewID(c *cmLink) {
	for _, other := range s.links {
		if other != c && other.State != model.CMIdle {
			s.port.Check(other.DeviceID != c.DeviceID, "a communication ID that no other connection has", "%#08x", c.DeviceID)
		}
	}
}

// take calls GetRequest and checks that it returns the oldest REQ that the peer has sent and not
// withdrawn, with its parameters. If the peer has withdrawn all, there may be no request.
func (s *cmDialogue) take(*cmLink, cmStep, *rand.Rand) {
	certain := slices.ContainsFunc(s.pending, func(c *cmLink) bool { return !c.Cancelled })
	timeout := time.Duration(0)
	if certain {
		timeout = s.port.ResponseTimeout()
	}
	req, err := s.listener.GetRequest(timeout)
	if !certain && errors.Is(err, verbs.ErrTimeout) {
		s.pending = nil
		return
	}
	s.port.Must("a request", err)
	from := req.Remote()
	i := slices.IndexFunc(s.pending, func(c *cmLink) bool { return c.srcPort == from.Port() && c.peer == from.Addr().Unmap() })
	s.port.Check(i >= 0, "a request of the peer, once", "another from %v", from)
	for _, c := range s.pending[:i] {
		s.port.Check(c.Cancelled, fmt.Sprintf("the request from port %d first", c.srcPort), "that of %v", from)
	}
	c := s.pending[i]
	s.pending = s.pending[i+1:]
	c.request = req
	p, q := req.Param(), c.req
	ok := p.ResponderResources == *q.RespResources && p.InitiatorDepth == *q.InitiatorDepth && p.RNRRetryCount == *q.RNRRetryCount &&
		p.RetryCount == *q.RetryCount && p.FlowControl == *q.FlowControl
	s.port.Check(ok, "the parameters of the REQ", "%+v", p)
	s.port.CheckPrivateData("the request", p.PrivateData, q.Private[ib.AddrHeaderLen:])
}

// accept creates a queue pair, accepts the connection request of c with it, and expects a REP with
// the parameters of the call: not if the peer has withdrawn the REQ, and optionally if it may have.
func (s *cmDialogue) accept(c *cmLink, _ cmStep, r *rand.Rand) {
	c.conn = s.port.connect(Setup{state: verbs.QPStateInit})
	c.DeviceQPN, c.param = uint32(c.conn.QP.QPN()), s.drawParam(r, cmREPPrivate)
	c.param.ResponderResources = min(c.param.ResponderResources, *c.req.InitiatorDepth)
	c.param.InitiatorDepth = min(c.param.InitiatorDepth, *c.req.RespResources)
	c.setup = s.call("accept", func() (err error) {
		c.result, err = c.request.Accept(c.conn.QP, c.param, s.callTimeout())
		return err
	})
	want := ib.REP{
		LocalCommID: c.knownID(), RemoteCommID: &c.PeerID, QPN: &c.DeviceQPN, RespResources: &c.param.ResponderResources, InitiatorDepth: &c.param.InitiatorDepth,
		RNRRetryCount: &c.param.RNRRetryCount, FlowControl: &c.param.FlowControl, SRQ: new(false), LocalCAGUID: &s.guid, Private: c.param.PrivateData,
		EECN: new(uint32(0)),
	}
	sent := func(_ ib.MAD, m ib.Message, a Arrival) {
		rep, _ := m.(ib.REP)
		c.Reply, c.DeviceID, c.State = &rep, *rep.LocalCommID, model.CMReplied
		s.checkNewID(c)
		c.startTimer(a, *c.req.LocalTimeout)
	}
	if !c.Withdrawn {
		s.settle(cmWant{msg: want, tid: &c.tid, to: c.peer, got: sent, optional: c.Cancelled})
	}
	if c.State == model.CMRequested { // no REP was sent: the peer had withdrawn the request
		c.State = model.CMIdle
	}
}

// knownID returns the communication ID of the device if an MRA had it, else nil.
func (c *cmLink) knownID() *uint32 {
	if c.DeviceID == 0 {
		return nil
	}
	return new(c.DeviceID)
}

// reject has the application reject a request, and expects a REJ: an optional one if the peer may
// have withdrawn the request.
func (s *cmDialogue) reject(c *cmLink, _ cmStep, r *rand.Rand) {
	private := cmPrivate(r, cmREJPrivate)
	err := c.request.Reject(private)
	if !c.Cancelled {
		s.port.Must("a request that can be rejected", err)
	}
	c.State = model.CMIdle
	rej := ib.REJ{
		RemoteCommID: &c.PeerID, About: new(model.CMAboutREQ), Reason: new(ib.RejConsumer), InfoLen: new(uint8(0)), Info: []byte{}, Private: private,
	}
	s.settle(cmWant{msg: rej, tid: &c.tid, to: c.peer, optional: c.Cancelled, got: func(_ ib.MAD, m ib.Message, a Arrival) {
		got, _ := m.(ib.REJ)
		s.port.Check(*got.LocalCommID == 0 || c.DeviceID == 0 || *got.LocalCommID == c.DeviceID,
			fmt.Sprintf("a REJ with communication ID 0 or %#08x, as in the MRA", c.DeviceID), "%v", a)
	}})
	s.port.MustFail("a second answer", c.request.Reject(nil), nil)
}

// disconnect has the application disconnect, and expects a DREQ.
func (s *cmDialogue) disconnect(c *cmLink, _ cmStep, _ *rand.Rand) {
	s.checkApplication(c)
	c.closing = s.call("disconnect", c.result.Disconnect)
	s.settle(s.wantDREQ(c))
}

// wantDREQ returns the expectation of a DREQ of the device, which starts the timer of the DREQ.
func (s *cmDialogue) wantDREQ(c *cmLink) cmWant {
	dreq := ib.DREQ{LocalCommID: &c.DeviceID, RemoteCommID: &c.PeerID, RemoteQPN: &c.PeerQPN}
	return cmWant{msg: dreq, to: c.peer, got: func(mad ib.MAD, _ ib.Message, a Arrival) {
		c.State, c.dreqTID = model.CMDisconnecting, *mad.TID
		code := *c.req.LocalTimeout
		if c.Active {
			code = *c.req.RemoteTimeout
		}
		c.startTimer(a, code)
	}}
}

// message sends a SEND in each direction. The peer's first SEND can take the place of the RTU.
func (s *cmDialogue) message(c *cmLink, _ cmStep, r *rand.Rand) {
	k, n := c.conn, r.IntN(64)
	k.from, k.Attr.DestQPN = c.peer, verbs.QPN(c.PeerQPN)
	// The starting PSN of a REQ or REP is the first PSN that its sender expects.
	k.Attr.SQPSN, k.Attr.RQPSN = uint32(*c.req.StartingPSN), uint32(*c.Reply.StartingPSN)
	if c.Active {
		k.Attr.SQPSN, k.Attr.RQPSN = k.Attr.RQPSN, k.Attr.SQPSN
	}
	s.port.PostRecv(k.QP, uint64(c.sent[0]+1), k.LocalMem.SGE(0, 64))
	k.Send(k.peerSend(c.sent[0], n))
	ack := k.Await("an ACK", func(*Arrival) bool { return true })
	s.port.checkPacket(k.deviceAck(c.sent[0], uint32(c.sent[0]+1)).To(c.PeerQPN).Via(s.port.deviceAddr, c.peer), ack)
	s.port.ExpectRecv(uint64(c.sent[0]+1), n)
	c.sent[0]++
	c.Data() // establishes the connection in the model, like an RTU
	s.settle()
	s.checkApplication(c)
	s.port.PostSend(k.QP, k.SendWR(77, n))
	sent := k.Await("a SEND", func(*Arrival) bool { return true })
	s.port.checkPacket(ib.SendOnly(k.DevicePSN(c.sent[1]), nil).To(c.PeerQPN).Via(s.port.deviceAddr, c.peer), sent)
	c.sent[1]++
	k.Send(k.peerAck(c.sent[1]-1, uint32(c.sent[1])))
	s.port.ExpectCompletion(77, verbs.WCSuccess)
}

// await waits for the next retransmission, or until the device has given up. In real time it skips
// timeouts longer than a second.
func (s *cmDialogue) await(c *cmLink, _ cmStep, _ *rand.Rand) {
	if !s.port.Virtual && c.timer.Timeout > time.Second {
		return
	}
	for left := c.timer.Retries; c.out != nil && c.timer.Retries == left; {
		deadline := c.timer.Latest() + s.slack()
		if a, ok := s.port.NextPacket(max(0, deadline-s.port.Now())); ok {
			s.receive(a, new([]*cmWant))
		} else {
			s.port.Sync()
		}
		s.checkTimer(c)
	}
}

// awaitAll waits until the device has given up; in real time for the next retransmission only.
func (s *cmDialogue) awaitAll(c *cmLink, step cmStep, r *rand.Rand) {
	s.await(c, step, r)
	for s.port.Virtual && c.out != nil {
		s.await(c, step, r)
	}
}

// slack returns how late a retransmission may be: not at all in virtual time.
func (s *cmDialogue) slack() time.Duration { return byClock(s.port, 0, s.port.ResponseTimeout()) }

// checkTimer fails the case if a retransmission is overdue. After the last one, it notes that the
// device has given up.
func (s *cmDialogue) checkTimer(c *cmLink) {
	switch c.State {
	case model.CMReplied, model.CMRequesting, model.CMDisconnecting:
	default:
		c.out = nil // answered
	}
	if c.out == nil {
		return
	}
	call := c.setup
	if c.State == model.CMDisconnecting {
		call = c.closing // nil if a stale REQ or REP caused the DREQ
	}
	now := s.port.Now()
	returned := call != nil && call.done.Load()
	overdue := now >= c.timer.Latest()+s.slack()
	if c.timer.GivenUp(now) && (overdue || returned) {
		s.giveUp(c)
		return
	}
	_, m, _ := ib.Datagram(0, 0, 0, c.out).CM()
	s.port.Check(!overdue, fmt.Sprintf("a retransmission of the %v, %d more in all, by now", ib.AttrOf(m), c.timer.Retries), "none")
}

// expire notes when a connection begins time wait, and makes it idle once the device may have
// forgotten it.
func (s *cmDialogue) expire(c *cmLink) {
	switch now := s.port.Now(); {
	case c.State != model.CMTimeWait:
	case c.endedAt == 0:
		c.endedAt = now
	case now-c.endedAt > ib.AckTimeout(*c.req.AckTimeout)/2: // about one packet lifetime
		c.State = model.CMIdle
	}
}

// giveUp notes that the device no longer retransmits.
func (s *cmDialogue) giveUp(c *cmLink) {
	c.GiveUp()
	c.out, c.endedAt = nil, c.timer.Earliest()
}

// timeWait waits until time wait has ended on all connections, once in a dialogue and in virtual
// time only. The peer can then use the IDs of passive connections that have ended for new ones.
func (s *cmDialogue) timeWait(*cmLink, cmStep, *rand.Rand) {
	retransmits := func(c *cmLink) bool { return c.out != nil }
	if !s.port.Virtual || s.waited || slices.ContainsFunc(s.links, retransmits) {
		return
	}
	s.waited = true
	s.port.Sleep(20 * time.Second) // many times the timeouts in the REQs
	for i, c := range s.links {
		ended := c.State == model.CMIdle || c.State == model.CMTimeWait
		if !ended || c.Active {
			continue
		}
		if c.conn != nil {
			s.port.closeConn(c.conn)
		}
		next := &cmLink{peer: c.peer, tid: c.tid + 1, req: c.req, srcPort: c.srcPort}
		next.PeerID, next.PeerQPN, next.PeerGUID = c.PeerID, c.PeerQPN, c.PeerGUID
		s.links[i] = next
	}
}

// checkApplication compares the results of the verbs and the state of the queue pair with the
// model.
func (s *cmDialogue) checkApplication(c *cmLink) {
	if c.setup == nil {
		return
	}
	if c.State == model.CMReplied || c.State == model.CMRequesting {
		s.port.Check(!c.setup.done.Load(), c.setup.name+" waits", "it has returned: %v", c.setup.task.Wait(0))
		return
	}
	err := c.setup.task.Wait(s.port.ResponseTimeout())
	s.port.Check(c.setup.done.Load(), c.setup.name+" returns", "it still waits after %v", s.port.ResponseTimeout())
	switch {
	case c.OpenResult:
		return // the verb may fail or not
	case c.WasEstablished:
		s.port.Must("a connection", err)
		s.checkConnection(c)
		return
	}
	s.port.MustFail(c.setup.name, err, nil)
	if rej := c.Reject; rej != nil {
		var rejected *verbs.RejectError
		ok := errors.Is(err, verbs.ErrRejected) && errors.As(err, &rejected) && rejected.Reason == uint16(*rej.Reason)
		s.port.Check(ok, fmt.Sprintf("a RejectError with reason %v", *rej.Reason), "%v", err)
		s.port.CheckPrivateData("the RejectError", rejected.PrivateData, rej.Private)
	}
	state := s.port.QueryQP(c.conn.QP).State
	s.port.Check(state != verbs.QPStateRTS, "a queue pair that is not in RTS", "%v", state)
}

// resolveEnd finds out whether the device has ended a connection after a REJ, which the
// specification leaves open, and passes it to the model. A connection has ended if WaitDisconnect
// succeeds or, if the application is disconnecting, Disconnect has returned.
func (s *cmDialogue) resolveEnd(c *cmLink) {
	if !c.MayEnd || c.result == nil {
		return
	}
	ended := c.result.WaitDisconnect(byClock(s.port, 0, reorderLimit)) == nil
	if c.closing != nil {
		ended = c.closing.done.Load()
	}
	c.Ended(ended)
}

// checkConnection checks a connection that was established: its attributes and parameters, or that
// it has ended.
func (s *cmDialogue) checkConnection(c *cmLink) {
	if c.closing != nil && c.State == model.CMTimeWait {
		err := c.closing.task.Wait(s.port.ResponseTimeout())
		s.port.Check(c.closing.done.Load(), "Disconnect returns", "it still waits: %v", err)
	}
	a := s.port.QueryQP(c.conn.QP)
	err := c.result.WaitDisconnect(0)
	switch c.State {
	case model.CMEstablished:
		s.port.Check(errors.Is(err, verbs.ErrTimeout), "a connection that lasts", "WaitDisconnect returns %v", err)
		s.checkAttr(c, a)
		from := netip.AddrPortFrom(c.peer, c.srcPort)
		if c.Active {
			from = netip.AddrPortFrom(s.port.Peer, cmConnectPort)
		}
		s.port.Check(c.result.Remote() == from, fmt.Sprintf("a connection with %v", from), "%v", c.result.Remote())
		if c.Active {
			p := c.result.Param()
			s.port.CheckPrivateData("the REP", p.PrivateData, c.Reply.Private)
			ok := p.ResponderResources == *c.Reply.RespResources && p.InitiatorDepth == *c.Reply.InitiatorDepth &&
				p.RNRRetryCount == *c.Reply.RNRRetryCount && p.FlowControl == *c.Reply.FlowControl
			s.port.Check(ok, "the parameters of the REP", "%+v", p)
		}
	case model.CMTimeWait:
		s.port.Must("a connection that has ended", c.result.WaitDisconnect(s.port.ResponseTimeout()))
		s.port.AwaitState(c.conn.QP, verbs.QPStateErr)
	}
}

// checkAttr compares the attributes of a connected queue pair with those in the REQ and the REP.
func (s *cmDialogue) checkAttr(c *cmLink, a verbs.QPAttr) {
	if c.sent != [2]int{} {
		return // the PSNs have changed
	}
	want := verbs.QPAttr{
		State: verbs.QPStateRTS, DestQPN: verbs.QPN(c.PeerQPN), PathMTU: verbs.MTU(*c.req.PathMTU),
		RetryCnt: *c.req.RetryCount, RNRRetry: *c.req.RNRRetryCount, MaxRdAtomic: *c.Reply.InitiatorDepth,
		SQPSN: uint32(*c.req.StartingPSN), RQPSN: uint32(*c.Reply.StartingPSN),
	}
	least, most := *c.Reply.RespResources, *c.Reply.RespResources
	if c.Active {
		want.SQPSN, want.RQPSN = want.RQPSN, want.SQPSN
		want.RNRRetry, want.MaxRdAtomic = *c.Reply.RNRRetryCount, *c.Reply.RespResources
		// The peer needs the resources that its REP asks for, and the device has offered more.
		least, most = *c.Reply.InitiatorDepth, *c.req.RespResources
	}
	got := verbs.QPAttr{
		State: a.State, DestQPN: a.DestQPN, PathMTU: a.PathMTU, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		MaxRdAtomic: a.MaxRdAtomic, SQPSN: a.SQPSN, RQPSN: a.RQPSN,
	}
	s.port.Check(got == want, fmt.Sprintf("a queue pair with %s", describeQP(want)), "%s", describeQP(got))
	s.port.Check(least <= a.MaxDestRdAtomic && a.MaxDestRdAtomic <= most, fmt.Sprintf("max_dest_rd_atomic of %d to %d", least, most), "%d", a.MaxDestRdAtomic)
	dest := a.AH.GRH.DGID.Addr().Unmap()
	s.port.Check(dest == c.peer, fmt.Sprintf("a queue pair with destination GID %v", c.peer), "%v", dest)
	minTimeout := uint8(1)
	if !c.Active {
		minTimeout = *c.req.AckTimeout // the timeout that the peer asks for
	}
	s.port.Check(a.Timeout >= minTimeout, fmt.Sprintf("a local ACK timeout of at least %d", minTimeout), "%d", a.Timeout)
}

// describeQP formats the attributes of a queue pair that come from CM messages.
func describeQP(a verbs.QPAttr) string {
	return fmt.Sprintf("%v, dest QPN %#x, RQ PSN %d, SQ PSN %d, path MTU code %d, retry count %d, RNR retry %d, max_rd_atomic %d",
		a.State, uint32(a.DestQPN), a.RQPSN, a.SQPSN, a.PathMTU, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic)
}

// Close ends all connections and frees the objects of the dialogue.
func (s *cmDialogue) Close() {
	for req, err := s.listener.GetRequest(0); err == nil; req, err = s.listener.GetRequest(0) {
		_ = req.Reject(nil) // fails if the peer has withdrawn the request
	}
	s.port.Must("a listener that is closed", s.listener.Close())
	for _, c := range s.links {
		switch c.State {
		case model.CMRequested:
			if c.request != nil {
				_ = c.request.Reject(nil) // fails if the peer has withdrawn the request
			}
		case model.CMReplied, model.CMRequesting:
			s.port.SendPacket(ib.CM(c.tid, s.peerREJ(c, rand.New(rand.NewPCG(1, 1)))).From(c.peer))
		case model.CMDisconnecting:
			s.port.SendPacket(ib.CM(c.dreqTID, ib.DREP{LocalCommID: &c.PeerID, RemoteCommID: &c.DeviceID}).From(c.peer))
		case model.CMEstablished:
			s.port.SendPacket(ib.CM(9, ib.DREQ{LocalCommID: &c.PeerID, RemoteCommID: &c.DeviceID, RemoteQPN: &c.DeviceQPN}).From(c.peer))
		}
	}
	s.port.Sync()
	for _, c := range s.links {
		for _, call := range []*cmCall{c.setup, c.closing} {
			if call != nil {
				_ = call.task.Wait(s.callTimeout() + time.Second) // its result was checked, or does not matter
			}
		}
		if c.conn != nil {
			s.port.closeConn(c.conn)
		}
	}
	s.port.Drain(shortWait)
	if q := s.port.syncConn; q != nil {
		s.port.Must("a queue pair that is destroyed", q.qp.Close())
		s.port.Must("memory that is deregistered", q.mem.Close())
	}
	s.port.Completions()
}
