package interop

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	// slotsPerQP is how many receives are posted for each queue pair. One is in use at
	// a time; the others show a message that arrives twice.
	slotsPerQP = 4
	// ackTimeout is 1.07 s. The programs use 14 (67 ms), for which an emulated guest is at
	// times too slow; and the guest never gives up, while we do after seven retries.
	ackTimeout = 18
)

// pingPongRun is one end of an ibv_*_pingpong program.
type pingPongRun struct {
	PingPong
	resources
	gidIndex int
	gid      verbs.GID
	srq      verbs.SRQ
	ah       verbs.AH // of the peer, with UD
	qps      []pingPongQP

	sendBuf, recvBuf []byte // a buffer for each queue pair; slots with a guard behind each
	sendMR, recvMR   verbs.MR

	sent, received int

	compose func(*pingPongQP, []byte)       // writes the next message of a queue pair
	inspect func(*pingPongQP, []byte) error // checks the message that a queue pair received
}

// pingPongQP is a queue pair and its progress.
type pingPongQP struct {
	qp             verbs.QP
	peer           Endpoint
	sent, received int // completed
	sending        bool
	receiving      bool // the peer's next message has not arrived
}

// newPingPongRun creates the queue pairs and posts their receives.
func newPingPongRun(p PingPong, dev verbs.Context) (*pingPongRun, error) {
	r := &pingPongRun{PingPong: p, gid: verbs.GIDFrom(p.Local), qps: make([]pingPongQP, max(p.QPs, 1))}
	r.compose = func(qp *pingPongQP, b []byte) { p.sentPayload(qp.sent).fill(b) }
	r.inspect = func(qp *pingPongQP, b []byte) error { return check(b, p.expectedPayloads(qp.received)...) }
	var err error
	if r.gidIndex, err = FindGID(dev, r.gid); err != nil {
		return nil, err
	}
	slots := slotsPerQP * len(r.qps)
	r.resources = newResources(dev, slots+len(r.qps), p.Events) // all receives, and a send of each queue pair
	r.sendBuf, r.recvBuf = make([]byte, len(r.qps)*r.Size), make([]byte, slots*r.slotLen())
	r.sendMR = r.regMR(r.sendBuf, 0) // the device only reads it
	r.recvMR = r.regMR(r.recvBuf, verbs.AccessLocalWrite)
	r.createQPs()
	for slot := range slots {
		r.do(func() error { return r.postRecv(slot) })
	}
	return r, r.finish()
}

// FindGID returns the index of gid in the GID table of dev's first port. It searches only the
// entries of type RoCE v2: the same GID may have one of type RoCE v1.
func FindGID(dev verbs.Context, gid verbs.GID) (int, error) {
	port, err := dev.QueryPort(devicePort)
	if err != nil {
		return 0, err
	}
	for i := range port.GIDs {
		entry, err := dev.QueryGID(devicePort, i)
		if err == nil && entry.GID == gid && entry.Type == verbs.GIDTypeRoCEv2 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s has no RoCE v2 GID %v among %d", dev.Info().Name, gid, port.GIDs)
}

// headLen is the size of the GRH before the payload in a receive buffer.
func (r *pingPongRun) headLen() int {
	if r.Tool == UD {
		return verbs.GRHLen
	}
	return 0
}

func (r *pingPongRun) slotLen() int { return r.headLen() + r.Size + guardLen }

func (r *pingPongRun) slot(i int) []byte { return r.recvBuf[i*r.slotLen():][:r.slotLen()] }

// createQPs creates the queue pairs, in state Init, and the SRQ of the tool that has one.
func (r *pingPongRun) createQPs() {
	caps := verbs.QPCaps{MaxSendWR: 1, MaxInline: inlineLen(r.Size)}
	if r.Tool == SRQ {
		r.srq = create(&r.resources, func() (verbs.SRQ, error) {
			return r.dev.CreateSRQ(verbs.SRQInit{PD: r.pd, MaxWR: slotsPerQP * len(r.qps), MaxSGE: 1})
		})
	} else {
		caps.MaxRecvWR = slotsPerQP
	}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if r.Tool == UD {
		mask |= verbs.QPAttrQKey
	} else {
		mask |= verbs.QPAttrAccessFlags
	}
	for i := range r.qps {
		qp := r.createQP(verbs.QPInit{Type: r.qpType(), SRQ: r.srq, Caps: caps})
		r.qps[i].qp = qp
		r.do(func() error {
			return qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: devicePort, QKey: pingPongQKey}, mask)
		})
	}
}

// postRecv clears a slot, fills the guard at its end, and posts a receive into the part before.
func (r *pingPongRun) postRecv(slot int) (err error) {
	buf := r.slot(slot)
	clear(buf)
	constant(guardByte).fill(buf[len(buf)-guardLen:])
	wr := []verbs.RecvWR{{
		WRID: uint64(slot),
		SGL:  []verbs.SGE{verbs.SGEOf(r.recvMR, slot*r.slotLen(), r.slotLen()-guardLen)},
	}}
	if r.srq != nil {
		_, err = r.srq.PostRecv(wr)
	} else {
		_, err = r.qps[0].qp.PostRecv(wr) // without an SRQ there is one QP
	}
	return err
}

// exchangeEndpoints exchanges endpoints over the side channel (TCP) and connects every queue pair.
func (r *pingPongRun) exchangeEndpoints(ctx context.Context) error {
	mine := make([]Endpoint, 1)
	if r.Tool == SRQ { // ibv_srq_pingpong always exchanges this many
		mine = make([]Endpoint, srqEndpoints)
	}
	for i := range r.qps {
		mine[i] = Endpoint{QPN: r.qps[i].qp.QPN(), PSN: startPSN, GID: r.gid}
	}
	var conn net.Conn
	var err error
	if r.Role == Client {
		conn, err = dial(ctx, r.SideChannel)
	} else {
		conn, err = accept(ctx, r.SideChannel, r.Ready)
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if r.Role == Server {
		return exchangeAsServer(conn, mine, r.connect)
	}
	theirs, err := exchangeAsClient(conn, mine)
	if err != nil {
		return err
	}
	return r.connect(theirs)
}

// connect connects every queue pair to its endpoint in theirs and moves it to RTS, with the
// attributes of the ibv_*_pingpong programs.
func (r *pingPongRun) connect(theirs []Endpoint) error {
	for i := range r.qps {
		qp := &r.qps[i]
		qp.peer = theirs[i]
		path := verbs.AHAttr{Port: devicePort, GRH: verbs.GRH{DGID: qp.peer.GID, SGIDIndex: uint8(r.gidIndex), HopLimit: 64}}
		toRTR, toRTS := verbs.QPAttrState, verbs.QPAttrState|verbs.QPAttrSQPSN
		switch r.qpType() {
		case verbs.QPTypeRC:
			toRTR |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
			toRTS |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
			fallthrough
		case verbs.QPTypeUC:
			toRTR |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
		case verbs.QPTypeUD:
			r.ah = create(&r.resources, func() (verbs.AH, error) { return r.pd.CreateAH(path) })
			if r.err != nil {
				return r.err
			}
		}
		attr := verbs.QPAttr{
			State: verbs.QPStateRTR, AH: path, PathMTU: r.MTU, DestQPN: qp.peer.QPN, RQPSN: qp.peer.PSN,
			MaxDestRdAtomic: 1, MinRNRTimer: 12,
			SQPSN: startPSN, Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1,
		}
		if err := qp.qp.Modify(attr, toRTR); err != nil {
			return err
		}
		attr.State = verbs.QPStateRTS
		if err := qp.qp.Modify(attr, toRTS); err != nil {
			return err
		}
	}
	return nil
}

// run exchanges endpoints over the side channel, then messages, and closes all verbs objects.
func (r *pingPongRun) run(ctx context.Context) (Result, error) {
	defer r.close()
	if err := r.exchangeEndpoints(ctx); err != nil {
		return Result{}, fmt.Errorf("side channel %v: %w", r.SideChannel, err)
	}
	start := time.Now()
	err := r.exchangeMessages(ctx)
	result := Result{Sent: r.sent, Received: r.received, Elapsed: time.Since(start)}
	if err != nil {
		return result, fmt.Errorf("after %d of %d sent and %d received: %w", r.sent, r.Iters, r.received, err)
	}
	return result, r.close() // its error counts; the deferred call finds nothing left
}

// exchangeMessages exchanges messages until r.Iters have been sent and as many received.
func (r *pingPongRun) exchangeMessages(ctx context.Context) error {
	for i := range r.qps {
		r.qps[i].receiving = true
		if r.Role == Client {
			if err := r.send(i); err != nil {
				return err
			}
		}
	}
	return r.comp.handle(ctx, r.handle, func() bool { return r.sent >= r.Iters && r.received >= r.Iters })
}

// handle checks one completion. It sends the next message of a queue pair when the last one has
// completed and the peer's has arrived.
func (r *pingPongRun) handle(wc *verbs.WC) error {
	i := slices.IndexFunc(r.qps, func(qp pingPongQP) bool { return qp.qp.QPN() == wc.QPN })
	if i < 0 {
		return fmt.Errorf("completion for queue pair %#x, which is not ours", uint32(wc.QPN))
	}
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("queue pair %#x: %w", uint32(wc.QPN), completionError(wc))
	}
	qp := &r.qps[i]
	if wc.WRID&sendWRID != 0 {
		if !qp.sending || wc.WRID != sendWRID|uint64(i) || wc.Opcode != verbs.WCOpSend {
			return fmt.Errorf("queue pair %#x: unexpected completion %+v", uint32(wc.QPN), *wc)
		}
		qp.sending = false
		qp.sent++
		r.sent++
	} else if err := r.receive(qp, wc); err != nil {
		return fmt.Errorf("message %d of queue pair %#x: %w", qp.received, uint32(wc.QPN), err)
	}
	if qp.sending || qp.receiving || r.sent >= r.Iters {
		return nil
	}
	qp.receiving = true
	return r.send(i)
}

// send posts the next message of queue pair i.
func (r *pingPongRun) send(i int) error {
	qp := &r.qps[i]
	buf := r.sendBuf[i*r.Size:][:r.Size]
	r.compose(qp, buf)
	wr := sendWR(sendWRID|uint64(i), buf, r.sendMR, i*r.Size)
	if r.Tool == UD {
		wr.UD = verbs.UD{AH: r.ah, QPN: qp.peer.QPN, QKey: pingPongQKey}
	}
	if err := postSend(qp.qp, wr); err != nil {
		return err
	}
	qp.sending = true
	return nil
}

// receive checks the message in a slot and posts the slot again.
func (r *pingPongRun) receive(qp *pingPongQP, wc *verbs.WC) error {
	if !qp.receiving || wc.Opcode != verbs.WCOpRecv || wc.WRID >= uint64(slotsPerQP*len(r.qps)) {
		return fmt.Errorf("unexpected completion %+v", *wc)
	}
	slot := r.slot(int(wc.WRID))
	head, body, guard := slot[:r.headLen()], slot[r.headLen():][:r.Size], slot[len(slot)-guardLen:]
	if want := len(head) + r.Size; int(wc.ByteLen) != want {
		return fmt.Errorf("%d bytes, want %d", wc.ByteLen, want)
	}
	if r.Tool == UD {
		if err := r.checkSender(qp, wc, head); err != nil {
			return err
		}
	}
	if err := r.inspect(qp, body); err != nil {
		return err
	}
	if err := checkGuard(guard); err != nil {
		return err
	}
	qp.receiving = false
	qp.received++
	r.received++
	return r.postRecv(int(wc.WRID))
}

// checkSender checks that the completion and the GRH of a datagram name the peer as its sender.
func (r *pingPongRun) checkSender(qp *pingPongQP, wc *verbs.WC, head []byte) error {
	reply, err := verbs.InitAHFromWC(devicePort, uint8(r.gidIndex), wc, head)
	if err != nil {
		return err
	}
	if wc.SrcQP != qp.peer.QPN || reply.GRH.DGID != qp.peer.GID {
		return fmt.Errorf("from queue pair %#x at %v, want %#x at %v", uint32(wc.SrcQP), reply.GRH.DGID, uint32(qp.peer.QPN), qp.peer.GID)
	}
	return nil
}
