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
	info := e.endInfo()
	if err := e.listenCM(info); err != nil {
		return err
	}
	if err := e.sendControl(controlMessage{Kind: controlInfo, EndInfo: info}); err != nil {
		return err
	}
	msg, err := e.expectControl(controlInfo)
	if err != nil {
		return err
	}
	if msg.EndInfo == nil || len(msg.EndInfo.Conns) != len(e.conns) {
		return fmt.Errorf("the peer has another workload: its data do not name %d connections", len(e.conns))
	}
	e.peer = *msg.EndInfo
	windows := make([][]remoteMemory, len(e.conns))
	for i, c := range e.conns {
		if err := c.connect(); err != nil {
			return fmt.Errorf("connection %d (%v): %w", i, c.spec.Service, err)
		}
		if windows[i], err = c.openWindows(); err != nil {
			return fmt.Errorf("connection %d (%v): %w", i, c.spec.Service, err)
		}
	}
	if err := e.postFirstReceives(); err != nil {
		return err
	}
	if err := e.sendControl(controlMessage{Kind: controlReady, Windows: windows}); err != nil {
		return err
	}
	if msg, err = e.expectControl(controlReady); err != nil {
		return err
	}
	if len(msg.Windows) != len(e.conns) {
		return fmt.Errorf("the peer has another workload: it sent the windows of %d connections, not %d", len(msg.Windows), len(e.conns))
	}
	for i, opened := range msg.Windows {
		if len(opened) != e.w.Conns[i].Windows {
			return fmt.Errorf("connection %d: the peer opened %d windows, not %d", i, len(opened), e.w.Conns[i].Windows)
		}
		e.peer.Conns[i].Windows = opened
	}
	return nil
}

// endInfo returns what the peer needs to connect to this end.
func (e *End) endInfo() *endInfo {
	info := &endInfo{GID: e.gid, Words: remoteMemoryOf(e.words.mr)}
	for _, c := range e.conns {
		one := connInfo{QPNumbers: c.Numbers(), Target: remoteMemoryOf(c.memory)}
		for _, r := range c.xrc {
			one.SRQNs = append(one.SRQNs, r.srq.Number())
		}
		info.Conns = append(info.Conns, one)
	}
	return info
}

// postFirstReceives posts the receives of unreliable connections, and those that connections share,
// before the peer may send: messages without a receive may be lost. On a transport without RNR NAKs
// it also posts those of reliable connections.
func (e *End) postFirstReceives() error {
	for _, r := range e.rings {
		if r.conn != nil && r.conn.spec.Service.Reliable() && !e.w.Traits.NoRNR {
			continue
		}
		if _, err := r.postNext(r.space()); err != nil {
			return err
		}
	}
	return nil
}

// connect moves the queue pairs of the connection to RTS.
func (c *conn) connect() (err error) {
	if c.end.w.Traits.ConnectsByCM {
		return c.connectCM()
	}
	peer := &c.end.peer.Conns[c.index]
	if err := c.ToInit(c.attr()); err != nil {
		return err
	}
	if err := c.ToRTS(peer.QPNumbers, c.attr()); err != nil || !c.spec.Service.Datagram() {
		return err
	}
	c.AH, err = c.end.PD.CreateAH(c.address())
	return err
}

// address returns the address vector for the peer.
func (c *conn) address() verbs.AHAttr {
	a := traffic.Address(1, c.end.env.GIDIndex, c.end.peer.GID)
	a.GRH.TrafficClass, a.GRH.FlowLabel = c.spec.TrafficClass, c.spec.FlowLabel
	return a
}

// attr returns the attributes of the queue pairs, except the peer's QP number.
func (c *conn) attr() verbs.QPAttr {
	s, me := c.spec, c.end.side
	return verbs.QPAttr{
		Port: 1, Access: remoteAccess, QKey: c.qkey, AH: c.address(), PathMTU: s.MTU,
		RQPSN: s.FirstPSN[me.Peer()], MaxDestRdAtomic: s.RdAtomic[me.Peer()], MinRNRTimer: s.MinRNRTimer,
		SQPSN: s.FirstPSN[me], MaxRdAtomic: s.RdAtomic[me], Timeout: s.Timeout, RetryCnt: s.RetryCnt, RNRRetry: s.RNRRetry,
	}
}

// openWindows binds the memory windows for the peer, and waits for the binds: a key is valid only
// after its bind has completed. It also allocates the spare window, which the requests of an RC
// connection bind and invalidate at this end; RD has no such requests.
func (c *conn) openWindows() (handles []remoteMemory, err error) {
	if c.spec.Windows == 0 && c.spec.Service != RC {
		return nil, nil
	}
	if c.spareWindow, err = c.end.PD.AllocMW(verbs.MWType2); err != nil {
		return nil, err
	}
	c.outgoing.spareKey = c.spareWindow.RKey()
	for i := range c.spec.Windows {
		w, err := c.end.PD.AllocMW(verbs.MWType2)
		if err != nil {
			return nil, err
		}
		at, n := windowExtent(c.spec, i)
		key, addr := verbs.NextRKey(w.RKey()), c.memory.Addr()+uint64(at)
		wr := verbs.SendWR{
			WRID: uint64(c.index)<<connShift | windowsBit | uint64(i), Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled,
			Bind: verbs.Bind{MW: w, RKey: key, Info: verbs.BindInfo{MR: c.memory, Addr: addr, Length: uint64(n), Access: windowAccess}},
		}
		if _, err := c.QP.PostSend([]verbs.SendWR{wr}); err != nil {
			return nil, err
		}
		c.windows, c.keys, handles = append(c.windows, w), append(c.keys, key), append(handles, remoteMemory{addr, key})
		for c.binds <= i {
			if err := c.end.waitCompletions(); err != nil {
				return nil, err
			}
		}
	}
	return handles, nil
}

const connectTimeout = 20 * time.Second

// listenCM starts the listener of side B, and sets its port in info, if the transport connects only
// through the connection manager. Side A then requests the connections one by one.
func (e *End) listenCM(info *endInfo) error {
	if !e.w.Traits.ConnectsByCM || e.side == A {
		return nil
	}
	var err error
	const backlog = 0 // the default
	if e.cmListener, err = traffic.Listen(e.env.Device, e.gid.Addr(), verbs.PortSpaceTCP, backlog); err != nil {
		return err
	}
	info.Port = e.cmListener.Addr().Port()
	return nil
}

// connectCM requests the connection as side A, or accepts it as side B.
func (c *conn) connectCM() error {
	e, s := c.end, c.spec
	if err := traffic.ToInit(c.QP, verbs.QPAttr{Port: 1, Access: remoteAccess}); err != nil {
		return err
	}
	param := verbs.ConnParam{
		ResponderResources: s.RdAtomic[e.side.Peer()], InitiatorDepth: s.RdAtomic[e.side],
		RetryCount: s.RetryCnt, RNRRetryCount: s.RNRRetry,
	}
	if e.side == A {
		_, err := traffic.Dial(e.env.Device, c.QP, netip.AddrPortFrom(e.peer.GID.Addr(), e.peer.Port), param, connectTimeout)
		return err
	}
	r, err := e.cmListener.GetRequest(connectTimeout)
	if err != nil {
		return err
	}
	_, err = r.Accept(c.QP, param, connectTimeout)
	return err
}
