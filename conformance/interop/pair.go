package interop

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// qpPair is two connected queue pairs, or two UD queue pairs that address each other.
type qpPair struct {
	suite   *Suite
	qps     map[Side]*queuePair
	service verbs.QPType
	method  ConnectMethod
	// broken is set if a case failed, or broke the connection on purpose.
	broken bool
}

// pairSetup describes a pair.
type pairSetup struct {
	service    verbs.QPType
	method     ConnectMethod
	family     Family
	sharedRecv Side // side with a shared receive queue; empty for none
	inline     int  // inline data limit in octets
}

// connect makes a pair. It closes everything if it fails.
func (s *Suite) connect(r pairSetup) (*qpPair, error) {
	l := &qpPair{suite: s, qps: make(map[Side]*queuePair), method: r.method, service: r.service}
	for _, side := range []Side{Ours, Theirs} {
		p, err := s.endpoints[r.family][side].open(r.service, r.sharedRecv == side, r.inline)
		if err != nil {
			return nil, errors.Join(err, l.closeQPs())
		}
		l.qps[side] = p
	}
	if err := l.connectBoth(); err != nil {
		return nil, errors.Join(err, l.closeQPs())
	}
	return l, nil
}

// connectBoth connects the queue pairs, or exchanges the addresses of UD queue pairs. Over
// iWARP the initiator must send the first message (RFC 5044).
func (l *qpPair) connectBoth() error {
	a, b := l.qps[Ours], l.qps[Theirs]
	switch {
	case l.service == verbs.QPTypeUD:
		return l.exchangeAddresses(a, b)
	case l.method == ByModify:
		if err := a.connectTo(b, l.suite.AckTimeout); err != nil {
			return err
		}
		return b.connectTo(a, l.suite.AckTimeout)
	}
	if err := l.connectByCM(); err != nil {
		return err
	}
	from := l.qps[l.method.connector()]
	return rig.Catch(func() { from.sendOctet(l.qps[from.side.other()], 1) })
}

// retries is the maximum of retry_cnt. Some devices count every gap as a retry, and a
// long message on a lossy link has many.
const retries = 7

// firstPSN returns a PSN that wraps soon.
func (p *queuePair) firstPSN() uint32 { return (0xfffffa + uint32(p.qp.QPN())) & 0xffffff }

// connectTo connects a queue pair by ibv_modify_qp.
func (p *queuePair) connectTo(to *queuePair, timeout uint8) error {
	return p.verbError("connect a queue pair", traffic.ToRTS(p.qp, verbs.QPAttr{
		PathMTU: min(p.endpoint.port.ActiveMTU, to.endpoint.port.ActiveMTU), DestQPN: to.qp.QPN(), AH: traffic.Address(1, p.gid, verbs.GIDFrom(to.addr)),
		RQPSN: to.firstPSN(), SQPSN: p.firstPSN(), MaxDestRdAtomic: maxReads, MaxRdAtomic: maxReads,
		MinRNRTimer: 12, Timeout: timeout, RetryCnt: retries, RNRRetry: 7, // RNR timer 0.64 ms, unlimited RNR retries
	}))
}

// Private data of requests and replies.
var (
	requestData = []byte("interop: may I?")
	replyData   = []byte("interop: you may.")
)

// callPassive listens on the passive side, calls active with the address that it listens at, and accepts
// its request. It returns the two sides of the method, the active one first.
func (l *qpPair) callPassive(
	space verbs.PortSpace, param verbs.ConnParam, active func(from *queuePair, at netip.AddrPort) error,
) (from, to *queuePair, err error) {
	from = l.qps[l.method.connector()]
	to = l.qps[from.side.other()]
	listener, err := traffic.Listen(to.Device, to.addr, space, 1)
	if err != nil {
		return nil, nil, to.verbError("listen", err)
	}
	called := make(chan error, 1)
	go func() {
		err := active(from, listener.Addr())
		called <- from.verbError(fmt.Sprintf("connect to %v", listener.Addr()), err)
	}()
	err = to.accept(listener, param)
	return from, to, errors.Join(err, <-called, to.verbError("close a listener", listener.Close()))
}

// connectByCM connects the queue pairs by the connection manager. InfiniBand appends zeros to
// private data.
func (l *qpPair) connectByCM() error {
	param := verbs.ConnParam{
		PrivateData: requestData, ResponderResources: maxReads, InitiatorDepth: maxReads,
		RetryCount: retries, RNRRetryCount: 7,
	}
	from, _, err := l.callPassive(verbs.PortSpaceTCP, param, func(from *queuePair, at netip.AddrPort) (err error) {
		from.conn, err = traffic.Dial(from.Device, from.qp, at, param, from.timeout)
		return err
	})
	if err != nil {
		return err
	}
	if got := from.conn.Param().PrivateData; !bytes.HasPrefix(got, replyData) {
		return from.mismatch("the private data of the connection reply is %q, want %q", got, replyData)
	}
	return nil
}

// accept accepts the next request, and checks its private data.
func (p *queuePair) accept(listener verbs.Listener, param verbs.ConnParam) error {
	req, err := listener.GetRequest(p.timeout)
	if err != nil {
		return p.verbError("get a request for a connection", err)
	}
	if got := req.Param().PrivateData; !bytes.HasPrefix(got, requestData) {
		_ = req.Reject(nil) // the mismatch is reported
		return p.mismatch("the private data of the connection request is %q, want %q", got, requestData)
	}
	param.PrivateData = replyData
	p.conn, err = req.Accept(p.qp, param, p.timeout)
	return p.verbError("accept a connection", err)
}

// exchangeAddresses moves two UD queue pairs to RTS and exchanges their addresses, by the
// connection manager unless the method is ByModify.
func (l *qpPair) exchangeAddresses(a, b *queuePair) error {
	for _, p := range []*queuePair{a, b} {
		if err := traffic.ToRTS(p.qp, verbs.QPAttr{SQPSN: p.firstPSN()}); err != nil {
			return p.verbError("prepare a queue pair", err)
		}
	}
	if err := errors.Join(a.addressTo(b), b.addressTo(a)); err != nil || l.method == ByModify {
		return err
	}
	return l.resolveByCM()
}

// addressTo sets the peer of a UD queue pair.
func (p *queuePair) addressTo(peer *queuePair) (err error) {
	p.to = verbs.UD{QPN: peer.qp.QPN(), QKey: qKey}
	if p.ah, err = p.pd.CreateAH(traffic.Address(1, p.gid, verbs.GIDFrom(peer.addr))); err != nil {
		return p.verbError("create an address handle", err)
	}
	p.to.AH = p.ah
	return nil
}

// resolveByCM resolves the address of the passive side by the connection manager (SIDR), and makes it
// the destination of the active side's datagrams.
func (l *qpPair) resolveByCM() error {
	var peer verbs.DatagramPeer
	from, to, err := l.callPassive(verbs.PortSpaceUDP, verbs.ConnParam{}, func(from *queuePair, at netip.AddrPort) error {
		manager, err := from.Device.CM()
		if err == nil {
			peer, err = manager.Resolve(at, requestData, from.timeout)
		}
		return err
	})
	if err != nil {
		return err
	}
	if peer.QPN != to.qp.QPN() || !bytes.HasPrefix(peer.PrivateData, replyData) {
		return from.mismatch("the resolved peer is queue pair %d with private data %q; want %d and %q", peer.QPN, peer.PrivateData, to.qp.QPN(), replyData)
	}
	if err := from.ah.Close(); err != nil {
		return from.verbError("close an address handle", err)
	}
	peer.AH.GRH.SGIDIndex = from.gid
	from.ah, err = from.pd.CreateAH(peer.AH)
	from.to = verbs.UD{AH: from.ah, QPN: peer.QPN, QKey: peer.QKey}
	return from.verbError("create an address handle", err)
}

// sendOctet posts requests and a message of one octet after them, and waits for all. Over iWARP
// a WRITE completes when TCP has taken it; the message arrives when the WRITE is placed. No
// other receive may be posted.
func (p *queuePair) sendOctet(to *queuePair, octet byte, before ...verbs.SendWR) {
	check(withObjects(func(o *objects) {
		src, dst := o.memory(p, 1, 0), o.memory(to, 1, 0)
		src.write(0, []byte{octet})
		dst.setWant(0, []byte{octet})
		wrID := to.postRecv(dst.sge(0, 1))
		all := append(before, verbs.SendWR{WRID: p.nextWRID(), Opcode: verbs.OpSend, SGL: src.sge(0, 1)})
		p.post(all...)
		for _, wr := range all {
			p.expectSent(wr)
		}
		to.expectRecv(wrID, recvCompletion{op: verbs.WCOpRecv, size: 1}, to.timeout)
		check(dst.check())
	}))
}

// close disconnects and closes everything. Errors of broken connections are ignored.
func (l *qpPair) close() error {
	var errs []error
	if !l.broken && l.service == verbs.QPTypeRC {
		errs = append(errs, l.sendLast())
	}
	if from := l.method.connector(); from != "" && l.qps[from].conn != nil {
		requester, responder := l.qps[from], l.qps[from.other()]
		if err := requester.conn.Disconnect(); err != nil && !l.broken {
			errs = append(errs, requester.verbError("disconnect", err))
		}
		for _, p := range []*queuePair{responder, requester} {
			if err := p.conn.WaitDisconnect(p.timeout); err != nil {
				errs = append(errs, p.verbError("wait for the disconnect", err))
			}
		}
	}
	return errors.Join(append(errs, l.closeQPs())...)
}

// sendLast sends a last message in each direction, after which no completion may arrive.
func (l *qpPair) sendLast() error {
	a, b := l.qps[Ours], l.qps[Theirs]
	return rig.Catch(func() {
		a.sendOctet(b, 5)
		b.sendOctet(a, 6)
		check(a.checkNoCompletions())
		check(b.checkNoCompletions())
	})
}

// closeQPs closes the queue pairs that were opened.
func (l *qpPair) closeQPs() error {
	var errs []error
	for _, side := range []Side{Ours, Theirs} {
		if p := l.qps[side]; p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}
