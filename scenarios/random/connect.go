package random

import (
	"fmt"

	"github.com/fabrictest/fabrictest/verbs"
)

// connect exchanges connection data with the peer and moves every queue pair to RTS.
func (e *End) connect() error {
	c := e.connInfo()
	if err := e.listenCM(c); err != nil {
		return err
	}
	if err := e.sendNote(note{Kind: noteConnInfo, Card: c}); err != nil {
		return err
	}
	n, err := e.expect(noteConnInfo)
	if err != nil {
		return err
	}
	if n.Card == nil || len(n.Card.Lanes) != len(e.lanes) {
		return fmt.Errorf("the peer has another workload: its connection data do not name %d lanes", len(e.lanes))
	}
	e.peer = *n.Card
	windows := make([][]remoteMemory, len(e.lanes))
	for i, l := range e.lanes {
		if err := l.connect(); err != nil {
			return fmt.Errorf("lane %d (%v): %w", i, l.spec.Service, err)
		}
		if windows[i], err = l.openWindows(); err != nil {
			return fmt.Errorf("lane %d (%v): %w", i, l.spec.Service, err)
		}
	}
	if err := e.postFirstReceives(); err != nil {
		return err
	}
	if err := e.sendNote(note{Kind: noteReady, Windows: windows}); err != nil {
		return err
	}
	if n, err = e.expect(noteReady); err != nil {
		return err
	}
	for i := range e.peer.Lanes {
		if e.peer.Lanes[i].Windows = n.Windows[i]; len(n.Windows[i]) != e.w.Lanes[i].Windows {
			return fmt.Errorf("lane %d: the peer opened %d windows, not %d", i, len(n.Windows[i]), e.w.Lanes[i].Windows)
		}
	}
	return nil
}

func (e *End) connInfo() *connInfo {
	c := &connInfo{GID: e.gid, Words: remoteMemoryOf(e.words.mr)}
	for _, l := range e.lanes {
		lc := laneInfo{QPN: l.qp.QPN(), Target: remoteMemoryOf(l.memory)}
		if l.target != nil {
			lc.XRC = l.target.QPN()
		}
		for _, r := range l.xrc {
			lc.SRQNs = append(lc.SRQNs, r.srq.Number())
		}
		c.Lanes = append(c.Lanes, lc)
	}
	return c
}

// postFirstReceives posts the receives of unreliable lanes before the peer may send,
// because a message without a receive is lost there. Without RNR it also posts those of
// reliable lanes.
func (e *End) postFirstReceives() error {
	for _, r := range e.rings {
		if r.lane != nil && r.lane.spec.Service.Reliable() && !e.w.Traits.NoRNR {
			continue
		}
		if _, err := r.postUpTo(r.space()); err != nil {
			return err
		}
	}
	return nil
}

// connect moves the queue pairs of the lane to RTS.
func (l *lane) connect() error {
	if l.end.w.Traits.ConnectsByCM {
		return l.connectCM()
	}
	peer := &l.end.peer.Lanes[l.index]
	switch l.spec.Service {
	case UD, RD:
		return l.toRTSDatagram()
	case XRC:
		if err := l.toRTS(l.target, peer.QPN); err != nil {
			return err
		}
	}
	return l.toRTS(l.qp, peer.receiver())
}

func (l *lane) address() verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{
		DGID: l.end.peer.GID, SGIDIndex: l.end.env.GIDIndex, HopLimit: 64,
		TrafficClass: l.spec.TrafficClass, FlowLabel: l.spec.FlowLabel,
	}}
}

// toRTS moves a queue pair to RTS, with the attributes of its type.
func (l *lane) toRTS(qp verbs.QP, peer verbs.QPN) error {
	s, me := l.spec, l.end.side
	sends, receives := qp.Type() != verbs.QPTypeXRCRecv, qp.Type() != verbs.QPTypeXRCSend
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: remoteAccess}
	if err := qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTR, AH: l.address(), PathMTU: s.MTU, DestQPN: peer, RQPSN: s.FirstPSN[me.Peer()],
		MaxDestRdAtomic: s.RdAtomic[me.Peer()], MinRNRTimer: s.MinRNRTimer,
	}
	mask := verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	if s.Service.Reliable() && receives {
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	if err := qp.Modify(attr, mask); err != nil {
		return err
	}
	attr = verbs.QPAttr{
		State: verbs.QPStateRTS, SQPSN: s.FirstPSN[me], MaxRdAtomic: s.RdAtomic[me],
		Timeout: s.Timeout, RetryCnt: s.RetryCnt, RNRRetry: s.RNRRetry,
	}
	mask = verbs.QPAttrState | verbs.QPAttrSQPSN
	if s.Service.Reliable() {
		mask |= verbs.QPAttrTimeout
		if sends {
			mask |= verbs.QPAttrMaxQPRdAtomic | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry
		}
	}
	return qp.Modify(attr, mask)
}

// toRTSDatagram moves a UD or RD queue pair to RTS and creates the address handle.
func (l *lane) toRTSDatagram() (err error) {
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: l.qkey}
	if err := l.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrQKey); err != nil {
		return err
	}
	if err := l.qp.Modify(verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState); err != nil {
		return err
	}
	attr = verbs.QPAttr{State: verbs.QPStateRTS, SQPSN: l.spec.FirstPSN[l.end.side]}
	if err := l.qp.Modify(attr, verbs.QPAttrState|verbs.QPAttrSQPSN); err != nil {
		return err
	}
	l.ah, err = l.end.pd.CreateAH(l.address())
	return err
}

// openWindows binds the memory windows for the peer, and waits for the binds: a key is
// valid only after its bind has completed.
func (l *lane) openWindows() (handles []remoteMemory, err error) {
	if l.spec.Windows == 0 && l.spec.Service != RC {
		return nil, nil
	}
	if l.spareWindow, err = l.end.pd.AllocMW(verbs.MWType2); err != nil {
		return nil, err
	}
	l.outgoing.spareKey = l.spareWindow.RKey()
	for i := range l.spec.Windows {
		w, err := l.end.pd.AllocMW(verbs.MWType2)
		if err != nil {
			return nil, err
		}
		at, n := windowExtent(l.spec, i)
		key, addr := verbs.NextRKey(w.RKey()), l.memory.Addr()+uint64(at)
		wr := verbs.SendWR{
			WRID: uint64(l.index)<<laneShift | windowsBit | uint64(i), Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled,
			Bind: verbs.Bind{MW: w, RKey: key, Info: verbs.BindInfo{MR: l.memory, Addr: addr, Length: uint64(n), Access: windowAccess}},
		}
		if _, err := l.qp.PostSend([]verbs.SendWR{wr}); err != nil {
			return nil, err
		}
		l.windows, l.keys, handles = append(l.windows, w), append(l.keys, key), append(handles, remoteMemory{addr, key})
		for l.binds <= i {
			if err := l.end.waitCompletions(); err != nil {
				return nil, err
			}
		}
	}
	return handles, nil
}
