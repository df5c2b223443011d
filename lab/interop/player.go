package interop

import (
	"context"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

const (
	devicePort = 1
	// slotsPerQP is how many receives wait for each queue pair. One is in use at
	// a time; the others show a message that arrives twice.
	slotsPerQP = 4
	guardLen   = 64
	guardByte  = 0xee
	// maxInline is up to which size messages are posted inline, so that a run of
	// several sizes has both kinds.
	maxInline = 64
	// sendWRID marks the work requests that send; its low half is the lane. Those
	// that receive have their slot's number.
	sendWRID = 1 << 32
	// ackTimeout is 1.07 s. The programs have 14 (67 ms), for which an emulated
	// guest is at times too slow; and it never gives up, while we do after seven.
	ackTimeout = 18
	// startPSN makes every run but the shortest cross the end of the number space.
	startPSN = 0xfffffc
)

// player is our end of one ping-pong.
type player struct {
	PingPong
	dev      verbs.Context
	gidIndex int
	gid      verbs.GID
	pd       verbs.PD
	comp     *completions
	srq      verbs.SRQ
	ah       verbs.AH // UD: the peer
	lanes    []lane
	closers

	sendBuf, recvBuf []byte
	sendMR, recvMR   verbs.MR

	sent, received int

	// compose writes a lane's next message, inspect looks at what it received.
	compose func(*lane, []byte)
	inspect func(*lane, []byte) error
}

// lane is one queue pair and where it stands.
type lane struct {
	qp             verbs.QP
	theirs         Endpoint
	sent, received int // completed
	sending        bool
	awaiting       bool // the peer's next message
}

func newPlayer(p PingPong, dev verbs.Context) (_ *player, err error) {
	l := &player{PingPong: p, dev: dev, lanes: make([]lane, max(p.QPs, 1))}
	l.compose = func(lane *lane, b []byte) { p.sends(lane.sent).fill(b) }
	l.inspect = func(lane *lane, b []byte) error { return check(b, p.expects(lane.received)...) }
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.gidIndex, err = FindGID(dev, verbs.GIDFrom(p.Local)); err != nil {
		return nil, err
	}
	l.gid = verbs.GIDFrom(p.Local)
	if l.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	l.closers = append(l.closers, l.pd)
	slots := slotsPerQP * len(l.lanes)
	if l.comp, err = newCompletions(dev, slots+len(l.lanes), p.Events); err != nil {
		return nil, err
	}
	l.closers = append(l.closers, closerFunc(l.comp.close))
	if err := l.register(slots); err != nil {
		return nil, err
	}
	if p.Tool == SRQ {
		if l.srq, err = dev.CreateSRQ(verbs.SRQInit{PD: l.pd, MaxWR: slots, MaxSGE: 1}); err != nil {
			return nil, err
		}
		l.closers = append(l.closers, l.srq)
	}
	for i := range l.lanes {
		if err := l.open(&l.lanes[i]); err != nil {
			return nil, err
		}
	}
	for slot := range slots {
		if err := l.postRecv(slot); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// FindGID returns the index of gid in the table of dev's first port.
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

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// register makes the buffers: one to send from for each lane, and the slots to
// receive into, each with a guard behind it that no message may touch.
func (l *player) register(slots int) (err error) {
	l.sendBuf = make([]byte, len(l.lanes)*l.Size)
	l.recvBuf = make([]byte, slots*l.slotLen())
	if l.sendMR, err = l.pd.RegMR(verbs.MRInit{Buf: l.sendBuf}); err != nil {
		return err
	}
	l.closers = append(l.closers, l.sendMR)
	if l.recvMR, err = l.pd.RegMR(verbs.MRInit{Buf: l.recvBuf, Access: verbs.AccessLocalWrite}); err != nil {
		return err
	}
	l.closers = append(l.closers, l.recvMR)
	return nil
}

// headLen is what precedes the payload in a receive buffer.
func (l *player) headLen() int {
	if l.Tool == UD {
		return verbs.GRHLen
	}
	return 0
}

func (l *player) slotLen() int { return l.headLen() + l.Size + guardLen }

func (l *player) slot(i int) []byte { return l.recvBuf[i*l.slotLen():][:l.slotLen()] }

// open makes a lane's queue pair, ready to receive once it is connected.
func (l *player) open(lane *lane) (err error) {
	caps := verbs.QPCaps{MaxSendWR: 1, MaxSendSGE: 1}
	if l.Size <= maxInline {
		caps.MaxInline = l.Size
	}
	if l.srq == nil {
		caps.MaxRecvWR, caps.MaxRecvSGE = slotsPerQP, 1
	}
	lane.qp, err = l.dev.CreateQP(verbs.QPInit{
		Type: l.qpType(), PD: l.pd, SRQ: l.srq, Caps: caps,
		SendCQ: l.comp.cq, RecvCQ: l.comp.cq,
	})
	if err != nil {
		return err
	}
	l.closers = append(l.closers, lane.qp)
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if l.Tool == UD {
		mask |= verbs.QPAttrQKey
	} else {
		mask |= verbs.QPAttrAccessFlags
	}
	return lane.qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: devicePort, QKey: pingPongQKey}, mask)
}

func (l *player) postRecv(slot int) (err error) {
	head := l.slot(slot)
	clear(head)
	guard := head[len(head)-guardLen:]
	for i := range guard {
		guard[i] = guardByte
	}
	wr := []verbs.RecvWR{{
		WRID: uint64(slot),
		SGL:  []verbs.SGE{verbs.SGEOf(l.recvMR, slot*l.slotLen(), l.slotLen()-guardLen)},
	}}
	if l.srq != nil {
		_, err = l.srq.PostRecv(wr)
	} else {
		_, err = l.lanes[0].qp.PostRecv(wr)
	}
	return err
}

// meet exchanges endpoints with the peer and connects every lane.
func (l *player) meet(ctx context.Context) error {
	mine := make([]Endpoint, 1)
	if l.Tool == SRQ {
		mine = make([]Endpoint, srqEndpoints)
	}
	for i := range l.lanes {
		mine[i] = Endpoint{QPN: l.lanes[i].qp.QPN(), PSN: startPSN, GID: l.gid}
	}
	if l.Role == Client {
		conn, err := dial(ctx, l.SideChannel)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		theirs, err := exchangeAsClient(conn, mine)
		if err != nil {
			return err
		}
		return l.connect(theirs)
	}
	conn, err := accept(ctx, l.SideChannel, l.Ready)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	return exchangeAsServer(conn, mine, l.connect)
}

// connect brings every lane to where it can send and receive, with the
// programs' own attributes.
func (l *player) connect(theirs []Endpoint) (err error) {
	for i := range l.lanes {
		lane := &l.lanes[i]
		lane.theirs = theirs[i]
		path := verbs.AHAttr{Port: devicePort, GRH: verbs.GRH{DGID: lane.theirs.GID, SGIDIndex: uint8(l.gidIndex), HopLimit: 64}}
		toRTR, toRTS := verbs.QPAttrState, verbs.QPAttrState|verbs.QPAttrSQPSN
		switch l.qpType() {
		case verbs.QPTypeRC:
			toRTR |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
			toRTS |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
			fallthrough
		case verbs.QPTypeUC:
			toRTR |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
		case verbs.QPTypeUD:
			if l.ah, err = l.pd.CreateAH(path); err != nil {
				return err
			}
			l.closers = append(l.closers, l.ah)
		}
		attr := verbs.QPAttr{
			State: verbs.QPStateRTR, AH: path, PathMTU: l.MTU, DestQPN: lane.theirs.QPN, RQPSN: lane.theirs.PSN,
			MaxDestRdAtomic: 1, MinRNRTimer: 12,
			SQPSN: startPSN, Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1,
		}
		if err := lane.qp.Modify(attr, toRTR); err != nil {
			return err
		}
		attr.State = verbs.QPStateRTS
		if err := lane.qp.Modify(attr, toRTS); err != nil {
			return err
		}
	}
	return nil
}
