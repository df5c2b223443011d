package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// cmQKey is the Q_Key of every UD queue pair that rdma_cm makes.
const cmQKey = 0x01234567

// udaddyRun is one end of udaddy.
type udaddyRun struct {
	CMProgram
	contents
	resources
	qp       verbs.QP
	gidIndex int

	sendBuf, recvBuf []byte
	sendMR, recvMR   verbs.MR

	// peer and peerQPN are the server's, or those of the first datagram that a server receives.
	peer           verbs.AHAttr
	peerQPN        verbs.QPN
	sent, received int
}

// runUDAddy runs one end of udaddy, the client or the server. After an error the result has the
// numbers of datagrams up to then.
func runUDAddy(ctx context.Context, p CMProgram, dev verbs.Context, content contents) (Result, error) {
	r := &udaddyRun{CMProgram: p, contents: content, sendBuf: make([]byte, p.Size), recvBuf: make([]byte, p.Count*(verbs.GRHLen+p.Size))}
	cm, err := r.setUp(dev)
	if err != nil {
		return Result{}, fmt.Errorf("setting up: %w", err)
	}
	if p.Role == Client {
		err = r.client(ctx, cm)
	} else {
		err = r.server(ctx, cm)
	}
	if err != nil {
		err = fmt.Errorf("after %d sent and %d received: %w", r.sent, r.received, err)
	}
	return Result{Sent: r.sent, Received: r.received}, errors.Join(err, r.close())
}

// setUp creates the queue pair, moves it to RTS and posts all receives. After the first error, the
// methods of r.resources that create objects have no effect, and finish returns that error.
func (r *udaddyRun) setUp(dev verbs.Context) (cm verbs.CM, err error) {
	if r.gidIndex, err = FindGID(dev, verbs.GIDFrom(r.Local)); err != nil {
		return nil, err
	}
	if cm, err = dev.CM(); err != nil {
		return nil, err
	}
	r.resources = newResources(dev, 2*r.Count, r.Events)
	r.sendMR = r.regMR(r.sendBuf, 0) // the device only reads it
	r.recvMR = r.regMR(r.recvBuf, verbs.AccessLocalWrite)
	r.qp = r.createQP(verbs.QPInit{Type: verbs.QPTypeUD, Caps: verbs.QPCaps{MaxSendWR: r.Count, MaxRecvWR: r.Count}})
	modify := func(attr verbs.QPAttr, mask verbs.QPAttrMask) {
		r.do(func() error { return r.qp.Modify(attr, mask|verbs.QPAttrState) })
	}
	modify(verbs.QPAttr{State: verbs.QPStateInit, Port: devicePort, QKey: cmQKey}, verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey)
	modify(verbs.QPAttr{State: verbs.QPStateRTR}, 0) // the state alone
	modify(verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: startPSN}, verbs.QPAttrSQPSN)
	slotLen := verbs.GRHLen + r.Size
	for i := range r.Count {
		r.do(func() error {
			wr := verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{verbs.SGEOf(r.recvMR, i*slotLen, slotLen)}}
			_, err := r.qp.PostRecv([]verbs.RecvWR{wr})
			return err
		})
	}
	return cm, r.finish()
}

// client resolves the server's queue pair, sends the datagrams and receives the replies.
func (r *udaddyRun) client(ctx context.Context, cm verbs.CM) error {
	peer, err := resolve(ctx, cm, r.Addr)
	if err != nil {
		return fmt.Errorf("resolving %v: %w", r.Addr, err)
	}
	if peer.QKey != cmQKey {
		return fmt.Errorf("%v has key %#x, want that of rdma_cm, %#x", r.Addr, peer.QKey, cmQKey)
	}
	r.peer, r.peerQPN = peer.AH, peer.QPN
	if err := r.send(); err != nil {
		return err
	}
	return r.wait(ctx, r.Count, r.Count)
}

// resolve asks a server, which may not listen yet, for its queue pair number and Q_Key (SIDR).
func resolve(ctx context.Context, cm verbs.CM, addr netip.AddrPort) (verbs.DatagramPeer, error) {
	for {
		peer, err := cm.Resolve(addr, nil, cmTimeout) // without private data
		if !errors.Is(err, verbs.ErrRejected) {
			return peer, err
		}
		select {
		case <-ctx.Done():
			return peer, fmt.Errorf("nobody listens: %w", err)
		case <-time.After(retryPause):
		}
	}
}

// server sends a client the number of our queue pair, receives the datagrams and replies.
func (r *udaddyRun) server(ctx context.Context, cm verbs.CM) error {
	const backlog = 1
	listener, err := listen(cm, r.Addr, verbs.PortSpaceUDP, backlog, r.Ready)
	if err != nil {
		return err
	}
	defer listener.Close()
	request, err := nextRequest(ctx, listener)
	if err != nil {
		return err
	}
	if _, err := request.Accept(r.qp, verbs.ConnParam{}, cmTimeout); err != nil {
		return fmt.Errorf("accepting %v: %w", request.Remote(), err)
	}
	if err := r.wait(ctx, 0, r.Count); err != nil { // nothing is sent yet
		return err
	}
	if got, want := r.peer.GRH.DGID.Addr(), request.Remote().Addr(); got != want {
		return fmt.Errorf("the request is of %v, the datagrams are of %v", want, got)
	}
	if err := r.send(); err != nil {
		return err
	}
	return r.wait(ctx, r.Count, r.Count)
}

// send posts all datagrams from one buffer. As udaddy does, it sends the number of the queue pair as
// immediate data.
func (r *udaddyRun) send() error {
	ah := create(&r.resources, func() (verbs.AH, error) { return r.pd.CreateAH(r.peer) })
	r.compose(0, 0, r.sendBuf) // there is one connection, and all datagrams are alike
	for range r.Count {
		r.do(func() error {
			_, err := r.qp.PostSend([]verbs.SendWR{{
				WRID: sendWRID, Opcode: verbs.OpSendImm, Flags: verbs.SendSignaled, Imm: uint32(r.qp.QPN()),
				SGL: []verbs.SGE{verbs.SGEOf(r.sendMR, 0, r.Size)},
				UD:  verbs.UD{AH: ah, QPN: r.peerQPN, QKey: cmQKey},
			}})
			return err
		})
	}
	return r.err
}

// wait waits until the given numbers of datagrams have been sent and received.
func (r *udaddyRun) wait(ctx context.Context, sent, received int) error {
	return r.comp.handle(ctx, r.handle, func() bool { return r.sent >= sent && r.received >= received })
}

// handle checks and counts one completion. Receives must complete in the order in which they were
// posted, since their IDs count from 0.
func (r *udaddyRun) handle(wc *verbs.WC) error {
	switch {
	case wc.Status != verbs.WCSuccess:
		return completionError(wc)
	case wc.WRID == sendWRID && wc.Opcode == verbs.WCOpSend:
		r.sent++
	case wc.WRID == uint64(r.received) && wc.Opcode == verbs.WCOpRecv:
		if err := r.checkDatagram(wc); err != nil {
			return fmt.Errorf("datagram %d: %w", r.received, err)
		}
		r.received++
	default:
		return fmt.Errorf("unexpected completion %+v", *wc)
	}
	return nil
}

// checkDatagram checks the length, the sender and the data of a datagram.
func (r *udaddyRun) checkDatagram(wc *verbs.WC) error {
	slotLen := verbs.GRHLen + r.Size
	slot := r.recvBuf[int(wc.WRID)*slotLen:][:slotLen]
	if int(wc.ByteLen) != len(slot) {
		return fmt.Errorf("%d bytes, want %d", wc.ByteLen, len(slot))
	}
	from, err := verbs.InitAHFromWC(devicePort, uint8(r.gidIndex), wc, slot[:verbs.GRHLen])
	if err != nil {
		return err
	}
	if r.peerQPN == 0 { // the first datagram of the client
		r.peer, r.peerQPN = from, wc.SrcQP
	}
	if from.GRH.DGID != r.peer.GRH.DGID || wc.SrcQP != r.peerQPN {
		return fmt.Errorf("from queue pair %#x at %v, want %#x at %v", uint32(wc.SrcQP), from.GRH.DGID, uint32(r.peerQPN), r.peer.GRH.DGID)
	}
	if wc.Flags&verbs.WCWithImm == 0 || wc.Imm != uint32(r.peerQPN) {
		return fmt.Errorf("immediate data %#x (flags %#x), want the sender's number %#x", wc.Imm, uint32(wc.Flags), uint32(r.peerQPN))
	}
	return r.inspect(0, r.received, slot) // 0 is the index of the only connection
}

// checkUDAddyReply checks a reply of udaddy's server, which sends its receive buffer from the
// start: the GRH of our datagram, whose source is local, and our data.
func checkUDAddyReply(body []byte, local netip.Addr) error {
	const anyGIDIndex = 0 // not compared
	seen, err := verbs.InitAHFromWC(devicePort, anyGIDIndex, &verbs.WC{Flags: verbs.WCWithGRH}, body[:verbs.GRHLen])
	if err != nil {
		return fmt.Errorf("the header of our datagram at the server: %w", err)
	}
	if seen.GRH.DGID != verbs.GIDFrom(local) {
		return fmt.Errorf("our datagrams arrive as from %v, want %v", seen.GRH.DGID, local)
	}
	return check(body[verbs.GRHLen:], numbered(0))
}
