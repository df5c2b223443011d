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
	service verbs.QPType
	method  ConnectMethod
	family  Family
	srqSide Side // side with a shared receive queue; empty for none
	inline  int  // inline data limit in octets
}

// connect opens and connects a pair. It closes everything if it fails.
func (s *Suite) connect(setup pairSetup) (*qpPair, error) {
	pair := &qpPair{suite: s, qps: make(map[Side]*queuePair), method: setup.method, service: setup.service}
	err := rig.Catch(func() {
		for _, side := range []Side{Ours, Theirs} {
			pair.qps[side] = &queuePair{endpoint: s.endpoints[setup.family][side], next: 1}
			pair.qps[side].open(setup.service, setup.srqSide == side, setup.inline)
		}
		pair.connectQPs()
	})
	if err != nil {
		return nil, errors.Join(err, pair.closeQPs())
	}
	return pair, nil
}

// connectQPs connects the queue pairs, or exchanges the addresses of UD queue pairs. After a CM
// connect the active side sends an octet: over iWARP it must send the first message (RFC 5044).
func (pair *qpPair) connectQPs() {
	a, b := pair.qps[Ours], pair.qps[Theirs]
	switch {
	case pair.service == verbs.QPTypeUD:
		pair.exchangeAddresses(a, b)
	case pair.method == ByModify:
		a.connectTo(b, pair.suite.AckTimeout)
		b.connectTo(a, pair.suite.AckTimeout)
	default:
		pair.connectByCM()
		from := pair.qps[pair.method.connector()]
		from.executeAndSendOctet(pair.qps[from.side.other()])
	}
}

// retries is the maximum of retry_cnt. Some devices count every gap as a retry, and a
// long message on a lossy link has many.
const retries = 7

// unlimitedRNRRetries is the rnr_retry of requests that are retried until a receive is posted.
const unlimitedRNRRetries = 7

// firstPSN returns the queue pair's initial send PSN: QPN - 6, which soon wraps around if QPN < 6.
func (p *queuePair) firstPSN() uint32 { return (uint32(p.qp.QPN()) - 6) & 0xffffff }

// connectTo connects a queue pair to peer by ibv_modify_qp. ackTimeout is the 5-bit code of the
// local ACK timeout.
func (p *queuePair) connectTo(peer *queuePair, ackTimeout uint8) {
	p.Must("connect a queue pair", traffic.ToRTS(p.qp, verbs.QPAttr{
		PathMTU: min(p.port.ActiveMTU, peer.port.ActiveMTU), DestQPN: peer.qp.QPN(), AH: traffic.Address(1, p.sgidIndex, verbs.GIDFrom(peer.addr)),
		RQPSN: peer.firstPSN(), SQPSN: p.firstPSN(), MaxDestRdAtomic: maxReads, MaxRdAtomic: maxReads,
		MinRNRTimer: 12, Timeout: ackTimeout, RetryCnt: retries, RNRRetry: unlimitedRNRRetries, // RNR timer 0.64 ms
	}))
}

// Private data of requests and replies.
var (
	requestData = []byte("interop: may I?")
	replyData   = []byte("interop: you may.")
)

// connectAndAccept makes the passive side listen, and accept a request with the parameters param.
// connect sends the request from the active side to the address of the listener.
func (pair *qpPair) connectAndAccept(
	space verbs.PortSpace, param verbs.ConnParam, connect func(active *queuePair, listener netip.AddrPort) error,
) (active, passive *queuePair) {
	active = pair.qps[pair.method.connector()]
	passive = pair.qps[active.side.other()]
	const backlog = 1
	listener := rig.Result(traffic.Listen(passive.Device, passive.addr, space, backlog))(passive, "listen")
	connected := make(chan error, 1)
	go func() {
		err := connect(active, listener.Addr())
		connected <- active.verbError(fmt.Sprintf("connect to %v", listener.Addr()), err)
	}()
	err := rig.Catch(func() { passive.accept(listener, param) })
	must(errors.Join(err, <-connected, passive.verbError("close a listener", listener.Close())))
	return active, passive
}

// connectByCM connects the queue pairs by the connection manager, and checks the private data of
// the reply: only its beginning, because InfiniBand appends zeros.
func (pair *qpPair) connectByCM() {
	param := verbs.ConnParam{
		PrivateData: requestData, ResponderResources: maxReads, InitiatorDepth: maxReads,
		RetryCount: retries, RNRRetryCount: unlimitedRNRRetries,
	}
	active, _ := pair.connectAndAccept(verbs.PortSpaceTCP, param, func(active *queuePair, listener netip.AddrPort) (err error) {
		active.conn, err = traffic.Dial(active.Device, active.qp, listener, param, active.timeout)
		return err
	})
	if got := active.conn.Param().PrivateData; !bytes.HasPrefix(got, replyData) {
		active.fail("the private data of the connection reply is %q, want %q", got, replyData)
	}
}

// accept accepts the next connection request with the parameters param and the private data
// replyData. The private data of the request must begin with requestData.
func (p *queuePair) accept(listener verbs.Listener, param verbs.ConnParam) {
	req := rig.Result(listener.GetRequest(p.timeout))(p, "get a request for a connection")
	if got := req.Param().PrivateData; !bytes.HasPrefix(got, requestData) {
		_ = req.Reject(nil) // without private data; the error that counts is the mismatch
		p.fail("the private data of the connection request is %q, want %q", got, requestData)
	}
	param.PrivateData = replyData
	p.conn = rig.Result(req.Accept(p.qp, param, p.timeout))(p, "accept a connection")
}

// exchangeAddresses moves two UD queue pairs to RTS and makes each the peer of the other. Unless
// the method is ByModify, the active side then resolves its peer again by the connection manager.
func (pair *qpPair) exchangeAddresses(a, b *queuePair) {
	for _, p := range []*queuePair{a, b} {
		p.Must("prepare a queue pair", traffic.ToRTS(p.qp, verbs.QPAttr{SQPSN: p.firstPSN()}))
	}
	a.setPeer(traffic.Address(1, a.sgidIndex, verbs.GIDFrom(b.addr)), b.qp.QPN(), qKey)
	b.setPeer(traffic.Address(1, b.sgidIndex, verbs.GIDFrom(a.addr)), a.qp.QPN(), qKey)
	if pair.method != ByModify {
		pair.resolveByCM()
	}
}

// setPeer sets the destination of the datagrams of p, which is a UD queue pair.
func (p *queuePair) setPeer(addr verbs.AHAttr, qpn verbs.QPN, qKey uint32) {
	old := p.ah
	p.ah = rig.Result(p.pd.CreateAH(addr))(p, "create an address handle")
	if old != nil {
		p.Must("close an address handle", old.Close())
	}
	p.to = verbs.UD{AH: p.ah, QPN: qpn, QKey: qKey}
}

// resolveByCM resolves the address of the passive side by the connection manager (SIDR), and makes
// it the destination of the active side's datagrams.
func (pair *qpPair) resolveByCM() {
	var peer verbs.DatagramPeer
	active, passive := pair.connectAndAccept(verbs.PortSpaceUDP, verbs.ConnParam{}, func(active *queuePair, listener netip.AddrPort) error {
		manager, err := active.Device.CM()
		if err == nil {
			peer, err = manager.Resolve(listener, requestData, active.timeout)
		}
		return err
	})
	if peer.QPN != passive.qp.QPN() || !bytes.HasPrefix(peer.PrivateData, replyData) {
		active.fail("the resolved peer is queue pair %d with private data %q; want %d and %q", peer.QPN, peer.PrivateData, passive.qp.QPN(), replyData)
	}
	peer.AH.GRH.SGIDIndex = active.sgidIndex // the datagrams are from the tested address
	active.setPeer(peer.AH, peer.QPN, peer.QKey)
}

// executeAndSendOctet posts requests, if any, and a SEND of one octet after them, and waits until
// all of them and the receive complete. Over iWARP a WRITE completes when TCP has taken it; the
// receive shows that it is placed. No other receive may be posted.
func (p *queuePair) executeAndSendOctet(to *queuePair, requests ...verbs.SendWR) {
	must(withObjects(func(o *objects) {
		src, dst := o.memory(p, 1, noExtraAccess), o.memory(to, 1, noExtraAccess)
		octet := []byte{2} // any but poison
		src.write(octet)
		dst.setWant(0, octet)
		wrID := to.postRecv(dst.sge(0, 1))
		all := append(requests, verbs.SendWR{WRID: p.nextWRID(), Opcode: verbs.OpSend, SGL: src.sge(0, 1)})
		p.post(all...)
		for _, wr := range all {
			p.expectSent(wr)
		}
		to.expectRecv(wrID, recvCompletion{op: verbs.WCOpRecv, size: 1}, to.timeout)
		must(dst.check())
	}))
}

// close disconnects and closes the pair. On an intact RC pair it first sends a message in each
// direction, and checks that no completion is left. On a broken pair it ignores Disconnect's error.
func (pair *qpPair) close() error {
	var errs []error
	if !pair.broken && pair.service == verbs.QPTypeRC {
		a, b := pair.qps[Ours], pair.qps[Theirs]
		errs = append(errs, rig.Catch(func() {
			a.executeAndSendOctet(b)
			b.executeAndSendOctet(a)
			must(a.checkNoCompletions())
			must(b.checkNoCompletions())
		}))
	}
	if from := pair.method.connector(); from != "" && pair.qps[from].conn != nil {
		active, passive := pair.qps[from], pair.qps[from.other()]
		if err := active.conn.Disconnect(); err != nil && !pair.broken {
			errs = append(errs, active.verbError("disconnect", err))
		}
		for _, p := range []*queuePair{passive, active} {
			if err := p.conn.WaitDisconnect(p.timeout); err != nil {
				errs = append(errs, p.verbError("wait for the disconnect", err))
			}
		}
	}
	return errors.Join(append(errs, pair.closeQPs())...)
}

// closeQPs closes the queue pairs that were opened.
func (pair *qpPair) closeQPs() error {
	var errs []error
	for _, side := range []Side{Ours, Theirs} {
		if p := pair.qps[side]; p != nil {
			errs = append(errs, p.close())
		}
	}
	return errors.Join(errs...)
}
