package perf

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// conn has the verbs objects of one side: connected queue pairs, completion queues
// and memory.
type conn struct {
	side       *Side
	pd         verbs.PD
	events     verbs.CompChannel
	sends      verbs.CQ
	recvs      verbs.CQ
	qps        []verbs.QP
	buf        []byte // registered as mr
	mr         verbs.MR
	grhBytes   int          // GRH space before each received message; 0 except for UD
	creditBase int          // offset of the credits in buf
	remote     verbs.Remote // memory of the other side
	peers      []verbs.UD   // UD destinations, by queue pair
	closers    []func() error

	listener verbs.Listener // of the server, for connections by CM
}

// connConfig is the size of a conn.
type connConfig struct {
	qps    int
	sends  int  // send queue depth
	recvs  int  // receive queue depth
	memory int  // bytes
	notify bool // receive completions are waited for by events
}

// connInfo is exchanged with the other side.
type connInfo struct {
	GID  verbs.GID
	MTU  verbs.MTU
	QPNs []verbs.QPN
	Addr uint64
	RKey verbs.RKey
	// Listen is the server's address for connections by CM.
	Listen netip.AddrPort
}

const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead

// connect creates a conn and connects it with that of the other side.
func (s *Side) connect(ctx context.Context, cfg connConfig) (c *conn, err error) {
	c = &conn{side: s}
	defer func() {
		if err != nil {
			c.Close()
			err = fmt.Errorf("%v: connect: %w", s.Role, err)
		}
	}()
	if err := c.create(cfg); err != nil {
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
	if len(remote.QPNs) != len(c.qps) {
		return c, fmt.Errorf("the other side has %d queue pairs, not %d", len(remote.QPNs), len(c.qps))
	}
	c.remote = verbs.Remote{Addr: remote.Addr, RKey: remote.RKey}
	if err := c.connectQPs(remote); err != nil {
		return c, err
	}
	return c, s.barrier(ctx) // both sides must be ready
}

// create creates the verbs objects that need no peer.
func (c *conn) create(cfg connConfig) (err error) {
	dev := c.side.Device
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	c.deferClose(c.pd.Close)
	kind := verbs.QPTypeRC
	if c.side.Service == ServiceUD {
		kind, c.grhBytes = verbs.QPTypeUD, verbs.GRHLen
	}
	c.creditBase = cfg.memory + c.grhBytes
	c.buf = make([]byte, c.creditOffset(cfg.qps, 0))
	if c.mr, err = c.pd.RegMR(verbs.MRInit{Buf: c.buf, Access: access}); err != nil {
		return err
	}
	c.deferClose(c.mr.Close)
	if cfg.notify {
		if c.events, err = dev.CreateCompChannel(); err != nil {
			return err
		}
		c.deferClose(c.events.Close)
	}
	if c.sends, err = dev.CreateCQ(verbs.CQInit{Depth: max(1, cfg.qps*cfg.sends)}); err != nil {
		return err
	}
	c.deferClose(c.sends.Close)
	in := verbs.CQInit{Depth: max(1, cfg.qps*cfg.recvs)}
	if cfg.notify {
		in.Channel = c.events
	}
	if c.recvs, err = dev.CreateCQ(in); err != nil {
		return err
	}
	c.deferClose(c.recvs.Close)
	for range cfg.qps {
		q, err := dev.CreateQP(verbs.QPInit{
			Type: kind, PD: c.pd, SendCQ: c.sends, RecvCQ: c.recvs,
			Caps: verbs.QPCaps{MaxSendWR: cfg.sends, MaxRecvWR: cfg.recvs, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		if err != nil {
			return err
		}
		c.qps = append(c.qps, q)
		c.deferClose(q.Close)
	}
	return nil
}

func (c *conn) deferClose(f func() error) { c.closers = append(c.closers, f) }

// Close closes all objects in reverse order of their creation.
func (c *conn) Close() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		_ = c.closers[i]() // the measurement has ended
	}
	c.closers = nil
}

// info returns what the other side needs to connect.
func (c *conn) info() (connInfo, error) {
	gid, err := c.side.Device.QueryGID(c.side.port(), int(c.side.GIDIndex))
	if err != nil {
		return connInfo{}, err
	}
	port, err := c.side.Device.QueryPort(c.side.port())
	if err != nil {
		return connInfo{}, err
	}
	a := connInfo{GID: gid.GID, MTU: port.ActiveMTU, Addr: c.mr.Addr(), RKey: c.mr.RKey()}
	if c.side.Service == ServiceIWARP && c.side.Role == Server {
		if a.Listen, err = c.listen(); err != nil {
			return connInfo{}, err
		}
	}
	for _, q := range c.qps {
		a.QPNs = append(a.QPNs, q.QPN())
	}
	return a, nil
}

func (s *Side) port() uint8 { return max(1, s.Port) }

// checkSuccess returns an error for a completion that failed.
func checkSuccess(wcs []verbs.WC) error {
	for i := range wcs {
		if wcs[i].Status != verbs.WCSuccess {
			return fmt.Errorf("%v completed with %v", wcs[i].Opcode, wcs[i].Status)
		}
	}
	return nil
}

// spinTimer measures how long a program has been spinning. It reads the clock only
// once in many calls.
type spinTimer struct {
	spins int
	since time.Time
}

func (o *spinTimer) reset() { o.spins, o.since = 0, time.Time{} }

// expired reports whether waitTimeout has passed.
func (o *spinTimer) expired() bool { return o.waited() > waitTimeout }

// waited returns the time since the first call after reset; 0 for calls that do not
// read the clock.
func (o *spinTimer) waited() time.Duration {
	if o.spins++; o.spins%(1<<12) != 0 {
		return 0
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return time.Since(o.since)
}
