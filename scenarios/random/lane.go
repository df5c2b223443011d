package random

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// lane is one side of a Lane.
type lane struct {
	end   *End
	spec  *Lane
	index int
	laneQPs
	laneMemory

	errorExpected bool // this side has moved the queue pair to the error state
	flushes       int  // receives flushed

	outgoing sender
	incoming arrivalChecker
	ring     *recvRing   // nil if receives are shared
	xrc      []*recvRing // of its XRC SRQs
}

// laneQPs are the queue pairs of a lane.
type laneQPs struct {
	traffic.QPs
	xrcd verbs.XRCD
	qkey uint32
}

// laneMemory is the memory that the peer accesses, directly and through windows.
type laneMemory struct {
	memory      verbs.MR
	bytes       []byte
	windows     []verbs.MW
	keys        []verbs.RKey // of the windows
	binds       int          // windows bound
	spareWindow verbs.MW     // for local binds
}

// arrivalChecker checks the messages of a lane, for a reliable or an unreliable service.
type arrivalChecker interface {
	// receive checks a receive that completed with success.
	receive(wc *verbs.WC, r *recvRing, slot int) error
	// complete reports whether no more messages are expected.
	complete() bool
	// peerStopped notes that the peer's requests have failed.
	peerStopped()
	// verify makes the checks that are possible only at the end.
	verify(peer *laneReport) error
	status() string
	counts() Arrivals
}

// Access rights of the peer, directly and through a window.
const (
	windowAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	remoteAccess = windowAccess | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent
)

// openLane creates what lane i, the traffic of one pair of connected queue pairs, needs before it
// is connected.
func (e *End) openLane(i int) (*lane, error) {
	l := &lane{end: e, spec: &e.w.Lanes[i], index: i}
	var err error
	l.bytes = initialTarget(e.w, i, e.side)
	if l.memory, err = e.PD.RegMR(verbs.MRInit{Buf: l.bytes, Access: verbs.AccessLocalWrite | verbs.AccessMWBind | remoteAccess}); err != nil {
		return nil, err
	}
	if err := l.openQPs(); err != nil {
		return nil, err
	}
	if err := l.openReceives(); err != nil {
		return nil, err
	}
	incoming := newPlan(e.w, i, e.side.Peer())
	if l.spec.Service.Reliable() {
		l.incoming = newReliableChecker(l, incoming)
	} else {
		l.incoming = &unreliableChecker{incoming: newIncoming(l, incoming), arrivalCounts: make([]int, len(incoming.ops)), highest: -1}
	}
	return l, l.outgoing.open(l)
}

// openQPs creates the queue pairs.
func (l *lane) openQPs() (err error) {
	e, s := l.end, l.spec
	init := verbs.QPInit{
		PD: e.PD, SendCQ: e.CQs[l.index%len(e.CQs)], RecvCQ: e.CQs[(l.index+1)%len(e.CQs)],
		Caps: verbs.QPCaps{ // one more send, for the drain marker
			MaxSendWR: s.SendDepth + 1, MaxRecvWR: s.RecvDepth, MaxSendSGE: s.MaxSGE, MaxRecvSGE: s.MaxSGE, MaxInline: s.MaxInline,
		},
	}
	if s.SharedReceives {
		init.SRQ = e.shared.srq
	}
	switch s.Service {
	case RC:
		init.Type = verbs.QPTypeRC
	case UC:
		init.Type = verbs.QPTypeUC
	case UD, RD:
		init.Type = verbs.QPTypeUD
		l.qkey = uint32(traffic.Derive(e.w.Seed, uint64(l.index)) >> 33) // below 2^31: an unprivileged Q_Key
	case XRC:
		init.Type = verbs.QPTypeXRCSend
		if l.xrcd, err = e.env.Device.OpenXRCD(); err != nil {
			return err
		}
	}
	if l.QPs, err = traffic.CreateQPs(e.env.Device, init, l.xrcd); err != nil {
		return err
	}
	e.byQPN[l.Receiver().QPN()] = l
	return nil
}

// openReceives creates the receive rings of the lane.
func (l *lane) openReceives() (err error) {
	e, s := l.end, l.spec
	cfg := ringConfig{lane: l, depth: s.RecvDepth, maxLen: s.MaxBytes, maxPieces: s.MaxSGE, pace: s.RecvPacing}
	switch {
	case s.Service == XRC:
		for range s.XRCQueues {
			srq, err := e.env.Device.CreateSRQ(verbs.SRQInit{
				PD: e.PD, Type: verbs.SRQXRC, MaxWR: s.RecvDepth, MaxSGE: s.MaxSGE,
				XRCD: l.xrcd, CQ: e.CQs[(l.index+1)%len(e.CQs)],
			})
			if err != nil {
				return err
			}
			cfg.srq = srq
			r, err := e.newRing(srq, cfg)
			if err != nil {
				return err
			}
			l.xrc = append(l.xrc, r)
		}
		return nil
	case s.SharedReceives:
		return nil
	case s.Service.Datagram():
		cfg.maxLen += verbs.GRHLen
	}
	l.ring, err = e.newRing(l.QP, cfg)
	return err
}

// status describes the requests and messages that the lane waits for; empty if there are none.
func (l *lane) status() string {
	var parts []string
	if s := l.outgoing.status(); s != "" {
		parts = append(parts, s)
	}
	if s := l.incoming.status(); s != "" && !l.incoming.complete() {
		parts = append(parts, s)
	}
	if parts == nil {
		return ""
	}
	return fmt.Sprintf("lane %d (%v): %s", l.index, l.spec.Service, strings.Join(parts, ", "))
}

// complete reports whether the lane waits for nothing more: its requests have completed and the
// peer's messages, as far as their number is known, have arrived.
func (l *lane) complete() bool {
	if l.outgoing.qpFailed && l.spec.Service == RC && l.ring != nil && l.ring.Outstanding() > 0 {
		return false // flushes will follow
	}
	return l.outgoing.complete() && l.incoming.complete()
}

// close destroys the resources of the lane. If all windows are known to be invalidated, the
// memory is deregistered first, which a window that is still bound would prevent.
func (l *lane) close() error {
	var first, later io.Closer = nil, l.memory
	x, reliable := l.incoming.(*reliableChecker)
	if reliable && !x.stopped && !l.outgoing.qpFailed && x.invalidated == len(l.windows) && !l.outgoing.spareBound {
		first, later = l.memory, nil
	}
	err := traffic.Close(first, l.QP, l.Target, l.AH, later)
	for _, w := range l.windows {
		err = errors.Join(err, w.Close())
	}
	err = errors.Join(err, traffic.Close(l.spareWindow, l.outgoing.mr))
	// The XRC domain is in use until its SRQs are closed.
	for _, r := range l.xrc {
		err = errors.Join(err, r.close())
	}
	return errors.Join(err, traffic.Close(l.xrcd))
}
