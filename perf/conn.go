package perf

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// conn has the verbs objects of one side: connected queue pairs, completion queues and memory.
type conn struct {
	side *Side
	traffic.Queues
	sends, recvs verbs.CQ
	qps          []verbs.QP
	buf          []byte // registered as mr
	mr           verbs.MR
	srqs         []verbs.SRQ  // of XRC, by queue pair
	grhBytes     int          // GRH space before each received message; 0 except for datagrams
	creditBase   int          // offset of the credits in buf
	remote       verbs.Remote // memory of the other side
	peers        []verbs.UD   // destinations of datagrams, by queue pair
	peerSRQs     []uint32     // numbers of the peer's SRQs, by queue pair
	ends         []traffic.QPs
	closers      []func() error

	listener verbs.Listener // of the server, for connections by CM
}

// connConfig is the size of a conn.
type connConfig struct {
	qps    int
	sends  int // send queue depth
	recvs  int // receive queue depth
	memory int // bytes

	message int            // bytes of the longest message
	inline  int            // messages of at most this length have their data in the work request
	op      verbs.WROpcode // of the messages
}

// connInfo is exchanged with the other side.
type connInfo struct {
	GID  verbs.GID
	MTU  verbs.MTU
	QPs  []traffic.QPNumbers
	SRQs []uint32 // their numbers, of XRC
	Addr uint64
	RKey verbs.RKey
	// Listen is the server's address for connections by CM.
	Listen netip.AddrPort
}

// access returns the access rights that the peer needs for messages of an operation.
func (c *connConfig) access(s Service) verbs.Access {
	a := verbs.AccessLocalWrite | verbs.AccessRemoteWrite
	if s != ServiceUC {
		a |= verbs.AccessRemoteRead
	}
	if c.op == verbs.OpAtomicFetchAdd || c.op == verbs.OpAtomicCmpAndSwp {
		a |= verbs.AccessRemoteAtomic
	}
	return a
}

// connect creates the queue pairs of this side, and connects them with those of the other side.
// After an error it has closed what it created.
func (s *Side) connect(ctx context.Context, cfg connConfig) (c *conn, err error) {
	c = &conn{side: s}
	defer func() {
		if err != nil {
			c.Close()
			err = fmt.Errorf("%v: connect: %w", s.Role, err)
		}
	}()
	if err := c.createObjects(cfg); err != nil {
		return c, err
	}
	local, err := c.info()
	if err != nil {
		return c, err
	}
	remote, err := swap(ctx, s, local)
	if err != nil {
		return c, err
	}
	if len(remote.QPs) != len(c.qps) || len(remote.SRQs) != len(c.srqs) {
		return c, fmt.Errorf("the other side has %d queue pairs and %d SRQs, not %d and %d", len(remote.QPs), len(remote.SRQs), len(c.qps), len(c.srqs))
	}
	c.remote, c.peerSRQs = verbs.Remote{Addr: remote.Addr, RKey: remote.RKey}, remote.SRQs
	if err := c.connectQPs(&cfg, remote); err != nil {
		return c, err
	}
	return c, s.barrier(ctx) // until the queue pairs of the other side are connected, too
}

// createObjects creates the verbs objects: PD, CQs, MR and unconnected QPs. The buffer has
// cfg.memory bytes for messages, followed by those of the flow-control messages (credits).
func (c *conn) createObjects(cfg connConfig) (err error) {
	dev := c.side.Device
	c.deferClose(c.Queues.Close) // before OpenQueues, which may fail after it has created some
	const cqs = 2                // for sends and for receives
	if c.Queues, err = traffic.OpenQueues(dev, cqs, max(1, cfg.qps*max(cfg.sends, cfg.recvs))); err != nil {
		return err
	}
	c.sends, c.recvs = c.CQs[0], c.CQs[1]
	if c.side.Service.isDatagram() {
		c.grhBytes = verbs.GRHLen
	}
	c.creditBase = cfg.memory + c.grhBytes           // room for a message of cfg.memory bytes and its GRH
	c.buf = make([]byte, c.creditOffset(cfg.qps, 0)) // the end of the last queue pair's credits
	if c.mr, err = c.PD.RegMR(verbs.MRInit{Buf: c.buf, Access: cfg.access(c.side.Service)}); err != nil {
		return err
	}
	c.deferClose(c.mr.Close)
	return c.createQPs(cfg)
}

// createQPs creates the queue pairs, and for XRC their SRQs.
func (c *conn) createQPs(cfg connConfig) error {
	init := verbs.QPInit{
		Type: qpTypes[c.side.Service], PD: c.PD, SendCQ: c.sends, RecvCQ: c.recvs,
		Caps: verbs.QPCaps{MaxSendWR: cfg.sends, MaxRecvWR: cfg.recvs, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: cfg.inline},
	}
	var domain verbs.XRCD
	if c.side.Service == ServiceXRC {
		init.Caps.MaxRecvWR, init.Caps.MaxRecvSGE = 0, 0
		var err error
		if domain, err = c.side.Device.OpenXRCD(); err != nil {
			return err
		}
		c.deferClose(domain.Close)
	}
	for range cfg.qps {
		if c.side.Service == ServiceXRC {
			q, err := c.side.Device.CreateSRQ(verbs.SRQInit{PD: c.PD, Type: verbs.SRQXRC, MaxWR: cfg.recvs, MaxSGE: 1, XRCD: domain, CQ: c.recvs})
			if err != nil {
				return err
			}
			c.srqs = append(c.srqs, q)
			c.deferClose(q.Close)
		}
		q, err := traffic.CreateQPs(c.side.Device, init, domain)
		for _, qp := range []verbs.QP{q.QP, q.Target} {
			if qp != nil {
				c.deferClose(qp.Close)
			}
		}
		if err != nil {
			return err
		}
		c.qps, c.ends = append(c.qps, q.QP), append(c.ends, q)
	}
	return nil
}

// postRecv posts receives for messages on a queue pair.
func (c *conn) postRecv(qp int, wrs []verbs.RecvWR) error {
	var err error
	if c.srqs != nil {
		_, err = c.srqs[qp].PostRecv(wrs)
	} else {
		_, err = c.qps[qp].PostRecv(wrs)
	}
	return err
}

// setMessage sets the data of a work request to n bytes of the buffer: as inline data if n is at
// most inline, else as a scatter/gather list.
func (c *conn) setMessage(wr *verbs.SendWR, offset, n, inline int) {
	if n <= inline {
		wr.Inline, wr.Flags = c.buf[offset:][:n], wr.Flags|verbs.SendInline
		return
	}
	wr.SGL = append(wr.SGL[:0], verbs.SGEOf(c.mr, offset, n))
}

func (c *conn) deferClose(f func() error) { c.closers = append(c.closers, f) }

// Close closes all objects in reverse order of their creation.
func (c *conn) Close() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		_ = c.closers[i]() // the measurement has ended
	}
	c.closers = nil
}

// info returns the addresses and keys that the other side needs to connect. The server of
// an iWARP run starts to listen first.
func (c *conn) info() (connInfo, error) {
	gid, err := c.side.Device.QueryGID(c.side.port(), int(c.side.GIDIndex))
	if err != nil {
		return connInfo{}, err
	}
	port, err := c.side.Device.QueryPort(c.side.port())
	if err != nil {
		return connInfo{}, err
	}
	info := connInfo{GID: gid.GID, MTU: port.ActiveMTU, Addr: c.mr.Addr(), RKey: c.mr.RKey()}
	if c.side.Service == ServiceIWARP && c.side.Role == Server {
		c.listener, err = traffic.Listen(c.side.Device, c.side.Addr, verbs.PortSpaceTCP, max(1, len(c.qps)))
		if err != nil {
			return connInfo{}, err
		}
		c.deferClose(c.listener.Close)
		info.Listen = c.listener.Addr()
	}
	for i := range c.ends {
		info.QPs = append(info.QPs, c.ends[i].Numbers())
	}
	for _, q := range c.srqs {
		info.SRQs = append(info.SRQs, q.Number())
	}
	return info, nil
}

// port returns the port number; a Port of 0 means 1.
func (s *Side) port() uint8 { return max(1, s.Port) }

// The number of completions that one poll takes at most: of messages, and of credits, which are
// fewer.
const pollBatch, creditPollBatch = 64, 16

// pollSuccess polls cq for up to len(wcs) completions. It fails if one is not successful.
func pollSuccess(cq verbs.CQ, wcs []verbs.WC) (n int, err error) {
	n, err = cq.Poll(wcs)
	for i := 0; i < n && err == nil; i++ {
		if wcs[i].Status != verbs.WCSuccess {
			err = fmt.Errorf("%v completed with %v", wcs[i].Opcode, wcs[i].Status)
		}
	}
	return n, err
}

// spinTimer measures how long a program has been spinning. It reads the clock only
// once in many calls.
type spinTimer struct {
	now   func() time.Duration
	limit time.Duration
	spins int
	since time.Duration // of the first reading of the clock, if it was read
}

// timer returns a timer with the limit of all waits.
func (s *Side) timer() spinTimer {
	limit := waitTimeout
	if s.Clock != nil {
		limit = simulatedTimeout
	}
	return spinTimer{now: s.now, limit: limit, since: -1}
}

// reset starts the timer again, at the next reading of the clock.
func (t *spinTimer) reset() { t.spins, t.since = 0, -1 }

// expired reports whether the limit has passed. It is false in calls that do not read the clock.
func (t *spinTimer) expired() bool { return t.waited() > t.limit }

// waited returns the time since the first reading of the clock after reset. Only one of
// clockInterval calls reads the clock; the others return 0.
func (t *spinTimer) waited() time.Duration {
	const clockInterval = 4096 // calls per reading of the clock
	if t.spins++; t.spins%clockInterval != 0 {
		return 0
	}
	if t.since < 0 {
		t.since = t.now()
	}
	return t.now() - t.since
}
