package random

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// connect exchanges connection data with the peer and moves every queue pair to RTS.
func (e *End) connect() error {
	c := e.connInfo()
	if err := e.listenCM(c); err != nil {
		return err
	}
	if err := e.sendNote(note{Kind: noteConnInfo, ConnInfo: c}); err != nil {
		return err
	}
	n, err := e.expectNote(noteConnInfo)
	if err != nil {
		return err
	}
	if n.ConnInfo == nil || len(n.ConnInfo.Lanes) != len(e.lanes) {
		return fmt.Errorf("the peer has another workload: its connection data do not name %d lanes", len(e.lanes))
	}
	e.peer = *n.ConnInfo
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
	if n, err = e.expectNote(noteReady); err != nil {
		return err
	}
	for i := range e.peer.Lanes {
		if e.peer.Lanes[i].Windows = n.Windows[i]; len(n.Windows[i]) != e.w.Lanes[i].Windows {
			return fmt.Errorf("lane %d: the peer opened %d windows, not %d", i, len(n.Windows[i]), e.w.Lanes[i].Windows)
		}
	}
	return nil
}

// connInfo returns what the peer needs to connect to this end.
func (e *End) connInfo() *connInfo {
	c := &connInfo{GID: e.gid, Words: remoteMemoryOf(e.words.mr)}
	for _, l := range e.lanes {
		lc := laneInfo{QPNumbers: l.Numbers(), Target: remoteMemoryOf(l.memory)}
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
func (l *lane) connect() (err error) {
	if l.end.w.Traits.ConnectsByCM {
		return l.connectCM()
	}
	peer := &l.end.peer.Lanes[l.index]
	if err := l.ToInit(l.attr()); err != nil {
		return err
	}
	if err := l.ToRTS(peer.QPNumbers, l.attr()); err != nil || !l.spec.Service.Datagram() {
		return err
	}
	l.AH, err = l.end.PD.CreateAH(l.address())
	return err
}

// address returns the address vector for the peer.
func (l *lane) address() verbs.AHAttr {
	a := traffic.Address(1, l.end.env.GIDIndex, l.end.peer.GID)
	a.GRH.TrafficClass, a.GRH.FlowLabel = l.spec.TrafficClass, l.spec.FlowLabel
	return a
}

// attr returns the attributes of the queue pairs, except the number of the peer.
func (l *lane) attr() verbs.QPAttr {
	s, me := l.spec, l.end.side
	return verbs.QPAttr{
		Port: 1, Access: remoteAccess, QKey: l.qkey, AH: l.address(), PathMTU: s.MTU,
		RQPSN: s.FirstPSN[me.Peer()], MaxDestRdAtomic: s.RdAtomic[me.Peer()], MinRNRTimer: s.MinRNRTimer,
		SQPSN: s.FirstPSN[me], MaxRdAtomic: s.RdAtomic[me], Timeout: s.Timeout, RetryCnt: s.RetryCnt, RNRRetry: s.RNRRetry,
	}
}

// openWindows binds the memory windows for the peer, and waits for the binds: a key is
// valid only after its bind has completed. It also allocates the spare window, which this end's
// own requests bind and invalidate.
func (l *lane) openWindows() (handles []remoteMemory, err error) {
	if l.spec.Windows == 0 && l.spec.Service != RC {
		return nil, nil
	}
	if l.spareWindow, err = l.end.PD.AllocMW(verbs.MWType2); err != nil {
		return nil, err
	}
	l.outgoing.spareKey = l.spareWindow.RKey()
	for i := range l.spec.Windows {
		w, err := l.end.PD.AllocMW(verbs.MWType2)
		if err != nil {
			return nil, err
		}
		at, n := windowExtent(l.spec, i)
		key, addr := verbs.NextRKey(w.RKey()), l.memory.Addr()+uint64(at)
		wr := verbs.SendWR{
			WRID: uint64(l.index)<<laneShift | windowsBit | uint64(i), Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled,
			Bind: verbs.Bind{MW: w, RKey: key, Info: verbs.BindInfo{MR: l.memory, Addr: addr, Length: uint64(n), Access: windowAccess}},
		}
		if _, err := l.QP.PostSend([]verbs.SendWR{wr}); err != nil {
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

const connectTimeout = 20 * time.Second

// listenCM starts the listener of side B, where connections need the connection manager.
// Side A requests the connections, lane by lane.
func (e *End) listenCM(c *connInfo) error {
	if !e.w.Traits.ConnectsByCM || e.side == A {
		return nil
	}
	var err error
	const backlog = 0 // the default
	if e.cmListener, err = traffic.Listen(e.env.Device, e.gid.Addr(), verbs.PortSpaceTCP, backlog); err != nil {
		return err
	}
	c.Port = e.cmListener.Addr().Port()
	return nil
}

// connectCM requests the connection of the lane, or accepts it.
func (l *lane) connectCM() error {
	e, s := l.end, l.spec
	if err := traffic.ToInit(l.QP, verbs.QPAttr{Port: 1, Access: remoteAccess}); err != nil {
		return err
	}
	param := verbs.ConnParam{
		ResponderResources: s.RdAtomic[e.side.Peer()], InitiatorDepth: s.RdAtomic[e.side],
		RetryCount: s.RetryCnt, RNRRetryCount: s.RNRRetry,
	}
	if e.side == A {
		_, err := traffic.Dial(e.env.Device, l.QP, netip.AddrPortFrom(e.peer.GID.Addr(), e.peer.Port), param, connectTimeout)
		return err
	}
	r, err := e.cmListener.GetRequest(connectTimeout)
	if err != nil {
		return err
	}
	_, err = r.Accept(l.QP, param, connectTimeout)
	return err
}
