package rig

import (
	"errors"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Pair is two devices of the same kind, each with an application: Near is the one under
// test. Their queue pairs are connected as the transport requires: by attributes over
// InfiniBand, by the connection manager over iWARP, by addresses for reliable datagrams.
type Pair struct{ Near, Far *Rig }

// PairOn makes the body of a case from one that uses two devices.
func PairOn(body func(*Pair)) func(*conformance.Bench) error {
	return Straight(func(r *Rig) { body(NewPair(r)) })
}

// NewPair opens a partner for the device of r.
func NewPair(r *Rig) *Pair {
	other, err := r.Partner()
	if err != nil {
		End(fmt.Errorf("the partner: %w", err))
	}
	bench := *r.Bench
	bench.Device = other
	return &Pair{Near: r, Far: New(&bench)}
}

// Shake makes the way between the two worse, and reports whether this bench can.
func (p *Pair) Shake(path conformance.Path) bool {
	err := p.Near.SetHandler(path)
	if err != nil && !errors.Is(err, conformance.ErrCannot) {
		End(fmt.Errorf("shake the path: %w", err))
	}
	return err == nil
}

// PairEnd is a queue pair and what belongs to it.
type PairEnd struct {
	*Rig
	QP verbs.QP
	// CQ is its own, for sends and receives.
	CQ verbs.CQ
	// to is where its requests go; the zero value if it is connected.
	to verbs.UD
}

// Limits of a queue pair: how many requests, receives, and reads or atomics may be
// under way.
const (
	Depth   = 64
	Readers = 8
)

// Link makes two queue pairs that talk to each other.
func (p *Pair) Link() (near, far *PairEnd) {
	near, far = newEnd(p.Near), newEnd(p.Far)
	switch {
	case near.QP.Type() == verbs.QPTypeUD:
		near.addressed(far)
		far.addressed(near)
	case near.Device.Info().Transport == verbs.TransportIB:
		near.joined(far)
		far.joined(near)
	default:
		managed(near, far)
	}
	return near, far
}

const qKey = 0x0a0b0c0d

func newEnd(r *Rig) *PairEnd {
	e := &PairEnd{Rig: r}
	var err error
	e.CQ, err = r.Device.CreateCQ(verbs.CQInit{Depth: 4 * Depth})
	r.Do("a completion queue", err)
	kind := verbs.QPTypeUD
	if r.Caps.Has(verbs.CapRC) {
		kind = verbs.QPTypeRC
	}
	e.QP, err = r.Device.CreateQP(verbs.QPInit{
		Type: kind, PD: r.PD, SendCQ: e.CQ, RecvCQ: e.CQ,
		Caps: verbs.QPCaps{MaxSendWR: Depth, MaxRecvWR: Depth, MaxSendSGE: 1, MaxRecvSGE: 2},
	})
	r.Do(fmt.Sprintf("a queue pair of %v", kind), err)
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey, Access: Rights(r)}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	if kind == verbs.QPTypeUD {
		mask ^= verbs.QPAttrAccessFlags ^ verbs.QPAttrQKey
	}
	r.Do("a queue pair in INIT", e.QP.Modify(attr, mask))
	return e
}

// Rights are all that a peer can have on the device.
func Rights(r *Rig) verbs.Access {
	a := verbs.AccessRemoteRead | verbs.AccessRemoteWrite
	if r.Caps.Has(verbs.CapAtomics) {
		a |= verbs.AccessRemoteAtomic
	}
	return a
}

// PairMemory registers n bytes that peers may do everything with.
func PairMemory(r *Rig, n int) *Memory { return r.Memory(n, Rights(r)|verbs.AccessLocalWrite) }

// timeout is that of connections by hand: 1 ms, so that what was lost comes soon. Who
// has no receive is given up soon, too: receives are to be posted before messages.
const timeout = 8

// joined connects a queue pair by hand.
func (e *PairEnd) joined(other *PairEnd) {
	a := verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: other.QP.QPN(), AH: e.PathTo(other.Rig),
		RQPSN: uint32(other.QP.QPN()) << 8 & 0xffffff, SQPSN: uint32(e.QP.QPN()) << 8 & 0xffffff,
		MaxDestRdAtomic: Readers, MaxRdAtomic: Readers, MinRNRTimer: 12, Timeout: timeout, RetryCnt: 7, RNRRetry: 3,
	}
	if !e.Virtual {
		a.Timeout = 14 // 67 ms: a busy computer is no lost packet
	}
	e.Do("a queue pair in RTR", e.QP.Modify(a, verbs.QPAttrState|verbs.QPAttrAV|verbs.QPAttrPathMTU|verbs.QPAttrDestQPN|
		verbs.QPAttrRQPSN|verbs.QPAttrMaxDestRdAtomic|verbs.QPAttrMinRNRTimer))
	a.State = verbs.QPStateRTS
	e.Do("a queue pair in RTS", e.QP.Modify(a, verbs.QPAttrState|verbs.QPAttrSQPSN|verbs.QPAttrTimeout|verbs.QPAttrRetryCnt|
		verbs.QPAttrRNRRetry|verbs.QPAttrMaxQPRdAtomic))
}

// addressed makes a queue pair of datagrams ready, and gives it its peer.
func (e *PairEnd) addressed(other *PairEnd) {
	e.Do("a queue pair in RTR", e.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState))
	e.Do("a queue pair in RTS", e.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN))
	ah, err := e.PD.CreateAH(e.PathTo(other.Rig))
	e.Do("an address handle", err)
	e.to = verbs.UD{AH: ah, QPN: other.QP.QPN(), QKey: qKey}
}

// Area is how many bytes come before the payload in a receive: those of the address
// that a datagram is from.
func (e *PairEnd) Area() int {
	if e.QP.Type() == verbs.QPTypeUD {
		return verbs.GRHLen
	}
	return 0
}

// Post posts requests, to the peer.
func (e *PairEnd) Post(wrs ...verbs.SendWR) {
	for i := range wrs {
		wrs[i].UD = e.to
	}
	n, err := e.QP.PostSend(wrs)
	e.Do("send requests that are taken", err)
	e.Check(n == len(wrs), fmt.Sprintf("%d requests taken", len(wrs)), "%d", n)
}

// Wait returns the next completion of the end's queue, which has to be a success. It
// looks often: when a completion is seen is what cases of order are about.
func (e *PairEnd) Wait() verbs.WC {
	var wcs [1]verbs.WC
	pause := time.Microsecond
	for until := e.Now() + e.Patience(); ; {
		n, err := e.CQ.Poll(wcs[:])
		e.Do("a completion queue that can be polled", err)
		if n > 0 {
			e.Check(wcs[0].Status == verbs.WCSuccess, "a success", "%s", Describe(&wcs[0]))
			return wcs[0]
		}
		e.Check(e.Now() < until, "a completion", "none in %v", e.Patience())
		e.Sleep(pause)
		pause = min(2*pause, 50*time.Microsecond)
	}
}
