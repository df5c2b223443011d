package random

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// conn is one side of a Conn.
type conn struct {
	end   *End
	spec  *Conn
	index int
	connQPs
	connMemory

	errorExpected bool // this side has moved the queue pair to the error state
	flushes       int  // receives flushed

	outgoing sender
	incoming arrivalChecker
	ring     *recvRing   // nil if receives are shared
	xrc      []*recvRing // of its XRC SRQs
}

// connQPs are the queue pairs of a connection.
type connQPs struct {
	traffic.QPs
	xrcd verbs.XRCD
	qkey uint32
}

// connMemory is the memory that the peer accesses, directly and through windows.
type connMemory struct {
	memory      verbs.MR
	bytes       []byte
	windows     []verbs.MW
	keys        []verbs.RKey // of the windows
	binds       int          // windows bound
	spareWindow verbs.MW     // for local binds
}

// arrivalChecker checks the messages of a connection, for a reliable or an unreliable service.
type arrivalChecker interface {
	// receive checks a receive that completed with success.
	receive(wc *verbs.WC, r *recvRing, slot int) error
	// complete reports whether no more messages are expected.
	complete() bool
	// peerStopped notes that the peer's requests have failed.
	peerStopped()
	// verify makes the checks that are possible only at the end.
	verify(peer *connReport) error
	status() string
	counts() Arrivals
}

// Access rights of the peer, directly and through a window.
const (
	windowAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	remoteAccess = windowAccess | verbs.AccessFlushGlobal | verbs.AccessFlushPersistent
)

// openConn creates what connection i needs before it is connected: memory, queue pairs, receives,
// the plan of this end's requests, and the checker of the peer's.
func (e *End) openConn(i int) (*conn, error) {
	c := &conn{end: e, spec: &e.w.Conns[i], index: i}
	var err error
	c.bytes = initialTarget(e.w, i, e.side)
	if c.memory, err = e.PD.RegMR(verbs.MRInit{Buf: c.bytes, Access: verbs.AccessLocalWrite | verbs.AccessMWBind | remoteAccess}); err != nil {
		return nil, err
	}
	if err := c.openQPs(); err != nil {
		return nil, err
	}
	if err := c.openReceives(); err != nil {
		return nil, err
	}
	incoming := newPlan(e.w, i, e.side.Peer())
	if c.spec.Service.Reliable() {
		c.incoming = newReliableChecker(c, incoming)
	} else {
		c.incoming = &unreliableChecker{incoming: newIncoming(c, incoming), arrivalCounts: make([]int, len(incoming.ops)), highest: -1}
	}
	return c, c.outgoing.open(c)
}

// openQPs creates the queue pairs of the connection: two for XRC, one for other services.
func (c *conn) openQPs() (err error) {
	e, s := c.end, c.spec
	init := verbs.QPInit{
		PD: e.PD, SendCQ: e.CQs[c.index%len(e.CQs)], RecvCQ: e.CQs[(c.index+1)%len(e.CQs)],
		Caps: verbs.QPCaps{ // one more send, for the marker that shows that a failed queue pair is drained
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
	case UD, RD: // RD is a UD queue pair of a device with verbs.CapRD
		init.Type = verbs.QPTypeUD
		c.qkey = uint32(traffic.Derive(e.w.Seed, uint64(c.index)) >> 33) // below 2^31: an unprivileged Q_Key
	case XRC:
		init.Type = verbs.QPTypeXRCSend
		if c.xrcd, err = e.env.Device.OpenXRCD(); err != nil {
			return err
		}
	}
	if c.QPs, err = traffic.CreateQPs(e.env.Device, init, c.xrcd); err != nil {
		return err
	}
	e.byQPN[c.Receiver().QPN()] = c
	return nil
}

// openReceives creates the connection's receive queues, each a ring of receive buffers: one for
// each SRQ of XRC, else one. With SharedReceives the connection has no queue of its own.
func (c *conn) openReceives() (err error) {
	e, s := c.end, c.spec
	cfg := ringConfig{conn: c, depth: s.RecvDepth, maxLen: s.MaxBytes, maxPieces: s.MaxSGE, pace: s.RecvPacing}
	switch {
	case s.Service == XRC:
		for range s.XRCQueues {
			srq, err := e.env.Device.CreateSRQ(verbs.SRQInit{
				PD: e.PD, Type: verbs.SRQXRC, MaxWR: s.RecvDepth, MaxSGE: s.MaxSGE,
				XRCD: c.xrcd, CQ: e.CQs[(c.index+1)%len(e.CQs)],
			})
			if err != nil {
				return err
			}
			cfg.srq = srq
			r, err := e.newRing(srq, cfg)
			if err != nil {
				return err
			}
			c.xrc = append(c.xrc, r)
		}
		return nil
	case s.SharedReceives:
		return nil
	case s.Service.Datagram():
		cfg.maxLen += verbs.GRHLen
	}
	c.ring, err = e.newRing(c.QP, cfg)
	return err
}

// status describes the requests and messages that the connection waits for; empty if none.
func (c *conn) status() string {
	var parts []string
	if s := c.outgoing.status(); s != "" {
		parts = append(parts, s)
	}
	if s := c.incoming.status(); s != "" && !c.incoming.complete() {
		parts = append(parts, s)
	}
	if parts == nil {
		return ""
	}
	return fmt.Sprintf("connection %d (%v): %s", c.index, c.spec.Service, strings.Join(parts, ", "))
}

// complete reports whether the connection waits for nothing more: its requests have completed and
// the peer's messages, as far as their number is known, have arrived.
func (c *conn) complete() bool {
	if c.outgoing.qpFailed && c.spec.Service == RC && c.ring != nil && c.ring.Outstanding() > 0 {
		return false // an RC queue pair fails in both directions: its own receives will be flushed
	}
	return c.outgoing.complete() && c.incoming.complete()
}

// close destroys the resources of the connection. If it is certain that no window is bound to the
// memory any more, close deregisters the memory first: that must succeed, since only a bound window
// may prevent it.
func (c *conn) close() error {
	var first, later io.Closer = nil, c.memory
	checker, reliable := c.incoming.(*reliableChecker) // unreliable connections have no windows
	if reliable && !checker.stopped && !c.outgoing.qpFailed && checker.invalidated == len(c.windows) && !c.outgoing.spareBound {
		first, later = c.memory, nil
	}
	err := traffic.Close(first, c.QP, c.Target, c.AH, later)
	for _, w := range c.windows {
		err = errors.Join(err, w.Close())
	}
	err = errors.Join(err, traffic.Close(c.spareWindow, c.outgoing.mr))
	// The XRC domain is in use until its SRQs are closed.
	for _, r := range c.xrc {
		err = errors.Join(err, r.close())
	}
	return errors.Join(err, traffic.Close(c.xrcd))
}
