package roce

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// The scripted peer sends and receives the MADs of the communication manager. The
// application on the device listens, or connects.

const (
	cmPort       = 7174 // the application on the device listens here
	cmClosedPort = 7175 // no listener
	cmSourcePort = 40000
)

// cmRequest returns a REQ for the service at a TCP port of the device. A case with several
// connections must set another QPN in each REQ; see [Port.cmOpen].
func (p *Port) cmRequest(tcpPort uint16, commID uint32) ib.REQ {
	return ib.REQ{
		LocalCommID: &commID, ServiceID: new(ib.ServiceID(ib.PortSpaceTCP, tcpPort)), LocalCAGUID: new(uint64(0x02005efffe000001)),
		QPN: new(uint32(peerQPN)), StartingPSN: new(ib.PSN(firstPeerPSN)), LocalGID: p.Peer, RemoteGID: p.deviceAddr,
		RespResources: new(uint8(4)), InitiatorDepth: new(uint8(4)),
		Private: ib.AddrHeader{SrcPort: cmSourcePort, Src: p.Peer, Dst: p.deviceAddr}.Append(nil),
	}
}

// cmExpect returns the next packet with a CM message, which must match want, and the message. It
// skips MRAs unless want is an MRA.
func (p *Port) cmExpect(want ib.Message) (Arrival, ib.Message) {
	pkt, m := p.cmNext(p.ResponseTimeout(), want)
	if attr := ib.AttrOf(m); attr == ib.AttrREQ || attr == attrSIDRREQ {
		p.useSourceOf(pkt)
	}
	p.cmCheck(want, pkt, m)
	return pkt, m
}

// useSourceOf makes the source of a REQ or SIDR_REQ the device's address: the device may choose any
// of its addresses.
func (p *Port) useSourceOf(pkt Arrival) {
	if from := pkt.IP.Src; from != p.deviceAddr && p.findGID(from) >= 0 {
		p.deviceAddr = from
	}
}

// cmCheck fails the case unless message m, which arrived in pkt, matches want, and pkt is from the
// device's address to QP 1 of the peer.
func (p *Port) cmCheck(want ib.Message, pkt Arrival, m ib.Message) {
	p.cmCheckFields(want, pkt, m)
	p.checkPacket(ib.Packet{}.To(ib.GSIQPN).WithDETH(ib.GSIQKey, ib.GSIQPN).Via(p.deviceAddr, p.Peer), pkt)
}

// cmCheckFields fails the case unless message m, which arrived in pkt, matches want.
func (p *Port) cmCheckFields(want ib.Message, pkt Arrival, m ib.Message) {
	if d := ib.DiffCM(want, m); d != nil {
		p.Fail(fmt.Sprintf("a %v with %s", ib.AttrOf(want), d.Want()), "%v with %s", pkt, d.Got())
	}
}

// cmNext returns the next CM message, of any type, and its packet. It skips MRAs, which mean that
// the device's application is busy, unless want is an MRA.
func (p *Port) cmNext(timeout time.Duration, want ib.Message) (Arrival, ib.Message) {
	for {
		pkt, ok := p.NextPacket(timeout)
		p.Check(ok, fmt.Sprintf("a %v", ib.AttrOf(want)), "nothing in %v", timeout)
		_, m, err := pkt.CM()
		p.Check(err == nil, fmt.Sprintf("a %v", ib.AttrOf(want)), "%v (%v)", pkt, err)
		if ib.AttrOf(m) != ib.AttrMRA || ib.AttrOf(want) == ib.AttrMRA {
			return pkt, m
		}
	}
}

// cmRetryTimeout is longer than devices wait before they send a message of the CM again.
const cmRetryTimeout = time.Minute

// cmListen makes the application on the device listen at cmPort.
func (p *Port) cmListen(space verbs.PortSpace) verbs.Listener {
	const backlog = 16
	l, err := p.CM().Listen(netip.AddrPortFrom(p.deviceAddr, cmPort), space, backlog)
	p.Must("a listener", err)
	return l
}

// onListener makes the body of a case from a function that uses a listener on the device.
func onListener(body func(*Port, verbs.Listener)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p, p.cmListen(verbs.PortSpaceTCP)) })
}

// cmAcceptor is an application on the device that accepts one connection request.
type cmAcceptor struct {
	conn        *Conn
	task        conformance.Task
	done        atomic.Bool // Accept has returned
	established verbs.Conn  // the result of Accept
}

// cmParam returns the connection parameters of the application on the device.
func cmParam() verbs.ConnParam {
	return verbs.ConnParam{ResponderResources: 4, InitiatorDepth: 4, RetryCount: 7, RNRRetryCount: 7}
}

// cmAccept starts an application that accepts the next request of the listener, by default with
// an RC queue pair that has a receive. Unless the listener is at all addresses, its address becomes
// that of the device.
func (p *Port) cmAccept(l verbs.Listener, setup ...Setup) *cmAcceptor {
	if at := l.Addr().Addr(); !at.IsUnspecified() {
		p.deviceAddr = at
	}
	setup = append(setup, Setup{state: verbs.QPStateInit, Receives: 1})
	a := &cmAcceptor{conn: p.connect(setup[0])}
	a.accept(l)
	return a
}

// accept starts the application, which accepts the next request of the listener.
func (a *cmAcceptor) accept(l verbs.Listener) {
	a.task = a.conn.Go("accept", func() error {
		defer a.done.Store(true)
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		a.established, err = req.Accept(a.conn.QP, cmParam(), verbs.Forever)
		return err
	})
}

// expectEstablished fails the case unless Accept returns a connection, and the queue pair gets to
// RTS. by names the packet that should establish the connection, for the failure message.
func (a *cmAcceptor) expectEstablished(by string) {
	a.conn.Must("a connection established by "+by, a.task.Wait(a.conn.ResponseTimeout()))
	a.conn.AwaitState(a.conn.QP, verbs.QPStateRTS)
}

// cmConnector is an application on the device that connects to the peer.
type cmConnector struct {
	conn        *Conn
	task        conformance.Task
	established verbs.Conn // the result of Connect
	peerID      uint32     // communication ID of the peer
	req         ib.REQ     // of the device
	tid         uint64     // transaction ID of the REQ
}

// cmConnect starts an application that connects a queue pair, by default RC, and waits for its REQ.
func (p *Port) cmConnect(peerID uint32, timeout time.Duration, setup ...Setup) *cmConnector {
	setup = append(setup, Setup{state: verbs.QPStateInit})
	k := &cmConnector{conn: p.connect(setup[0]), peerID: peerID}
	k.task = p.Go("connect", func() (err error) {
		k.established, err = p.CM().Connect(k.conn.QP, netip.AddrPortFrom(p.Peer, cmConnectPort), cmParam(), timeout)
		return err
	})
	pkt, m := p.cmExpect(ib.REQ{QPN: new(uint32(k.conn.QP.QPN()))})
	k.req, k.tid = m.(ib.REQ), transactionOf(pkt)
	return k
}

// send sends a message of the peer with the IDs of the connection.
func (k *cmConnector) send(m ib.Message) {
	m, _ = ib.WithCommIDs(m, k.peerID, *k.req.LocalCommID)
	k.conn.SendPacket(ib.CM(k.tid, m))
}

// establish has the peer accept with a REP, and fails the case unless the device sends an RTU and
// the application gets its connection.
func (k *cmConnector) establish(rep ib.REP) {
	k.send(rep)
	k.conn.cmExpect(ib.RTU{LocalCommID: k.req.LocalCommID, RemoteCommID: &k.peerID})
	k.conn.Must("a connection", k.task.Wait(k.conn.ResponseTimeout()))
}

// cmReply returns a REP with a QPN of the peer, without communication IDs.
func cmReply(qpn uint32) ib.REP { return ib.REP{QPN: &qpn, StartingPSN: new(ib.PSN(5))} }

// cmSession is a connection that the peer requests.
type cmSession struct {
	acceptor         *cmAcceptor
	peerID, deviceID uint32 // the communication IDs
	rep              ib.REP
}

// cmOpen sends the REQ of the n-th connection of a case and waits for the REP.
func (p *Port) cmOpen(l verbs.Listener, n uint32, modify ...func(*ib.REQ)) *cmSession {
	k := &cmSession{acceptor: p.cmAccept(l), peerID: 0x4000_0000 + n}
	req := p.cmRequest(cmPort, k.peerID)
	req.QPN = new(peerQPN + n)
	for _, f := range modify {
		f(&req)
	}
	p.SendPacket(ib.CM(uint64(k.peerID), req))
	k.expectREP(p.ResponseTimeout())
	k.acceptor.conn.Attr.SQPSN = uint32(*req.StartingPSN)
	return k
}

// expectREP stores the next REP, and fails the case unless it has the IDs of the session.
func (k *cmSession) expectREP(timeout time.Duration) {
	want := ib.REP{RemoteCommID: &k.peerID, QPN: new(uint32(k.acceptor.conn.QP.QPN()))}
	pkt, m := k.acceptor.conn.cmNext(timeout, want)
	k.acceptor.conn.cmCheck(want, pkt, m)
	rep, ok := m.(ib.REP)
	if !ok {
		rig.Abort(fmt.Errorf("not a REP: %v", m))
	}
	// The starting PSN in a REQ or REP is the first PSN that its sender expects.
	k.rep, k.deviceID, k.acceptor.conn.Attr.RQPSN = rep, *rep.LocalCommID, uint32(*rep.StartingPSN)
}

// sendRTU has the peer send an RTU.
func (k *cmSession) sendRTU() {
	k.acceptor.conn.SendPacket(ib.CM(uint64(k.peerID), ib.RTU{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID}))
}

// establish sends the RTU, and fails the case unless the application gets its connection.
func (k *cmSession) establish() {
	k.sendRTU()
	k.acceptor.expectEstablished("an RTU")
}

// disconnect sends a DREQ, and fails the case unless the device answers by a DREP.
func (k *cmSession) disconnect() {
	qpn := uint32(k.acceptor.conn.QP.QPN())
	dreq := ib.DREQ{LocalCommID: &k.peerID, RemoteCommID: &k.deviceID, RemoteQPN: &qpn}
	transactionID := uint64(k.peerID) | 1<<32 // the REQ had transaction ID peerID
	k.acceptor.conn.SendPacket(ib.CM(transactionID, dreq))
	k.acceptor.conn.cmExpect(ib.DREP{LocalCommID: &k.deviceID, RemoteCommID: &k.peerID})
}

// expectDelivery sends a SEND on the case's n-th session, which the device must acknowledge and
// deliver.
func (k *cmSession) expectDelivery(n uint32) {
	k.acceptor.conn.Send(k.acceptor.conn.peerSend(0, 16))
	k.acceptor.conn.expectPacket(k.acceptor.conn.deviceAck(0, 1).To(peerQPN+n).Via(k.acceptor.conn.deviceAddr, k.acceptor.conn.Peer))
	k.acceptor.conn.ExpectRecv(1, 16)
}
