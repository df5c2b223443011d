package interop

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/verbs"
)

// link is two queue pairs that talk to each other.
type link struct {
	suite   *Suite
	ports   map[Side]*port
	service verbs.QPType
	way     ConnectMethod
	// gone says that an exchange was to break the connection, and did.
	gone bool
}

// recipe is what a link is made like.
type recipe struct {
	service verbs.QPType
	way     ConnectMethod
	family  Family
	shared  Side // whose receive queue is shared; nobody's if empty
	inline  int  // octets that requests carry themselves
}

// connect makes a link. What it has made when it fails is closed.
func (s *Suite) connect(r recipe) (*link, error) {
	l := &link{suite: s, ports: make(map[Side]*port), way: r.way, service: r.service}
	for _, who := range []Side{Ours, Theirs} {
		p, err := s.sides[r.family][who].open(r.service, r.shared == who, r.inline)
		if err != nil {
			return nil, errors.Join(err, l.closePorts())
		}
		l.ports[who] = p
	}
	if err := l.introduce(); err != nil {
		return nil, errors.Join(err, l.closePorts())
	}
	return l, nil
}

// introduce has the two queue pairs know each other.
func (l *link) introduce() error {
	a, b := l.ports[Ours], l.ports[Theirs]
	switch {
	case l.service == verbs.QPTypeUD:
		return l.address(a, b)
	case l.way == ByModify:
		return inTurn(func() error { return a.join(b, l.suite.AckTimeout) }, func() error { return b.join(a, l.suite.AckTimeout) })
	}
	return inTurn(l.manage, l.greet)
}

// retries is the most that there is. Some devices count every gap that they are told of
// as one of them, and a long message on a bad wire has many.
const retries = 7

// path is the way to the peer.
func (p *port) path(to *port) verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(to.addr), SGIDIndex: p.gid, HopLimit: 64}}
}

// firstPSN is one that wraps soon.
func (p *port) firstPSN() uint32 { return (0xfffffa + uint32(p.qp.QPN())) & 0xffffff }

// join connects a queue pair by hand.
func (p *port) join(to *port, timeout uint8) error {
	a := verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: min(p.side.port.ActiveMTU, to.side.port.ActiveMTU), DestQPN: to.qp.QPN(), AH: p.path(to),
		RQPSN: to.firstPSN(), SQPSN: p.firstPSN(), MaxDestRdAtomic: readers, MaxRdAtomic: readers,
		MinRNRTimer: 12, Timeout: timeout, RetryCnt: retries, RNRRetry: 7, // 0.64 ms, and for ever
	}
	receiving := verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	sending := verbs.QPAttrState | verbs.QPAttrSQPSN
	if p.qp.Type() == verbs.QPTypeRC {
		receiving |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
		sending |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	}
	if err := p.qp.Modify(a, receiving); err != nil {
		return p.fault("put a queue pair into RTR", err)
	}
	a.State = verbs.QPStateRTS
	return p.fault("put a queue pair into RTS", p.qp.Modify(a, sending))
}

// What either end says with a request and a reply.
var (
	asking    = []byte("interop: may I?")
	answering = []byte("interop: you may.")
)

// manage connects the two by the connection manager.
func (l *link) manage() error {
	from := l.ports[l.way.connector()]
	to := l.ports[from.who.other()]
	param := verbs.ConnParam{PrivateData: asking, ResponderResources: readers, InitiatorDepth: readers, RetryCount: retries, RNRRetryCount: 7}
	manager, err := to.Device.CM()
	if err != nil {
		return to.fault("manage connections", err)
	}
	listener, err := manager.Listen(netip.AddrPortFrom(to.addr, 0), verbs.PortSpaceTCP, 1)
	if err != nil {
		return to.fault("listen", err)
	}
	dialed := make(chan error, 1)
	go func() {
		manager, err := from.Device.CM()
		if err == nil {
			from.conn, err = manager.Connect(from.qp, listener.Addr(), param, from.patience)
		}
		dialed <- from.fault(fmt.Sprintf("connect to %v", listener.Addr()), err)
	}()
	err = to.accept(listener, param)
	err = errors.Join(err, <-dialed)
	return errors.Join(err, to.fault("close a listener", listener.Close()), l.saidSo(from.conn, answering, err))
}

func (p *port) accept(listener verbs.Listener, param verbs.ConnParam) error {
	req, err := listener.GetRequest(p.patience)
	if err != nil {
		return p.fault("get a request for a connection", err)
	}
	if got := req.Param().PrivateData; !bytes.HasPrefix(got, asking) {
		_ = req.Reject(nil) // the difference is what counts
		return p.differs("with the request for a connection came %q, want %q", got, asking)
	}
	param.PrivateData = answering
	p.conn, err = req.Accept(p.qp, param, p.patience)
	return p.fault("accept a connection", err)
}

// saidSo checks what came with a reply. InfiniBand fills up with zeros.
func (l *link) saidSo(conn verbs.Conn, want []byte, failed error) error {
	if failed != nil || conn == nil {
		return nil
	}
	if got := conn.Param().PrivateData; !bytes.HasPrefix(got, want) {
		return l.ports[l.way.connector()].differs("with the reply for its connection came %q, want %q", got, want)
	}
	return nil
}

// address has each of two datagram queue pairs know the other: one of them asks the
// connection manager of the other, or they are told by hand.
func (l *link) address(a, b *port) error {
	for _, p := range []*port{a, b} {
		if err := p.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState); err != nil {
			return p.fault("put a queue pair into RTR", err)
		}
		attr := verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: p.firstPSN()}
		if err := p.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN); err != nil {
			return p.fault("put a queue pair into RTS", err)
		}
	}
	if err := errors.Join(a.find(b), b.find(a)); err != nil || l.way == ByModify {
		return err
	}
	return l.resolve()
}

// find is told by hand where the peer is.
func (p *port) find(peer *port) (err error) {
	p.to = verbs.UD{QPN: peer.qp.QPN(), QKey: qKey}
	if p.ah, err = p.pd.CreateAH(p.path(peer)); err != nil {
		return p.fault("create an address handle", err)
	}
	p.to.AH = p.ah
	return nil
}

// resolve has the connector ask where the peer is, and believe it.
func (l *link) resolve() error {
	from := l.ports[l.way.connector()]
	to := l.ports[from.who.other()]
	manager, err := to.Device.CM()
	if err != nil {
		return to.fault("manage connections", err)
	}
	listener, err := manager.Listen(netip.AddrPortFrom(to.addr, 0), verbs.PortSpaceUDP, 1)
	if err != nil {
		return to.fault("listen for datagrams", err)
	}
	var peer verbs.DatagramPeer
	asked := make(chan error, 1)
	go func() {
		manager, err := from.Device.CM()
		if err == nil {
			peer, err = manager.Resolve(listener.Addr(), asking, from.patience)
		}
		asked <- from.fault(fmt.Sprintf("resolve %v", listener.Addr()), err)
	}()
	err = to.accept(listener, verbs.ConnParam{})
	if err = errors.Join(<-asked, err, to.fault("close a listener", listener.Close())); err != nil {
		return err
	}
	if peer.QPN != to.qp.QPN() || !bytes.HasPrefix(peer.PrivateData, answering) {
		return from.differs("the peer is told to be queue pair %d, with %q; want %d and %q", peer.QPN, peer.PrivateData, to.qp.QPN(), answering)
	}
	if err := from.ah.Close(); err != nil {
		return from.fault("close an address handle", err)
	}
	peer.AH.GRH.SGIDIndex = from.gid
	from.ah, err = from.pd.CreateAH(peer.AH)
	from.to = verbs.UD{AH: from.ah, QPN: peer.QPN, QKey: peer.QKey}
	return from.fault("create an address handle", err)
}

// greet has the connector speak first: over iWARP the other may not.
func (l *link) greet() error {
	from := l.ports[l.way.connector()]
	to := l.ports[from.who.other()]
	return from.say(to, 1)
}

// say sends a message of one octet, and waits until it is there: what was asked for
// before has then been done.
func (p *port) say(to *port, octet byte) error {
	src, err := p.memory(p.pd, 1, 0)
	if err != nil {
		return err
	}
	dst, err := to.memory(to.pd, 1, 0)
	if err != nil {
		return errors.Join(err, src.close())
	}
	err = func() error {
		src.put(0, []byte{octet})
		number, err := to.receive(dst.sge(0, 1))
		if err != nil {
			return err
		}
		wr := verbs.SendWR{WRID: p.number(), Opcode: verbs.OpSend, SGL: src.sge(0, 1)}
		if err := p.post(wr); err != nil {
			return err
		}
		dst.expect(0, []byte{octet})
		if err := to.arrived(number, arrival{op: verbs.WCOpRecv, size: 1}, to.patience); err != nil {
			return err
		}
		return inTurn(
			func() error { return p.sent(wr.WRID, verbs.WCOpSend) },
			dst.check,
		)
	}()
	return errors.Join(err, src.close(), dst.close())
}

// end ends the connection and closes everything. One that has broken is expected to.
func (l *link) end() error {
	var errs []error
	if !l.gone && l.service == verbs.QPTypeRC {
		errs = append(errs, l.quiet())
	}
	if from := l.way.connector(); from != "" && l.ports[from].conn != nil {
		near, far := l.ports[from], l.ports[from.other()]
		if err := near.conn.Disconnect(); err != nil && !l.gone {
			errs = append(errs, near.fault("disconnect", err))
		}
		for _, p := range []*port{far, near} {
			if err := p.conn.WaitDisconnect(p.patience); err != nil {
				errs = append(errs, p.fault("see the end of its connection", err))
			}
		}
	}
	return errors.Join(append(errs, l.closePorts())...)
}

// quiet says a last word each way, behind which nothing may come any more.
func (l *link) quiet() error {
	a, b := l.ports[Ours], l.ports[Theirs]
	return inTurn(func() error { return a.say(b, 5) }, func() error { return b.say(a, 6) }, a.nothing, b.nothing)
}

func (l *link) closePorts() error {
	var errs []error
	for _, who := range []Side{Ours, Theirs} {
		if p := l.ports[who]; p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}
