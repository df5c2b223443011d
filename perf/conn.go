package perf

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// conn is what a program needs on one side: queue pairs that are connected with
// as many on the other, and memory.
type conn struct {
	side   *Side
	pd     verbs.PD
	events verbs.CompChannel
	sends  verbs.CQ
	recvs  verbs.CQ
	qps    []verbs.QP
	buf    []byte // the memory, and mr its region
	mr     verbs.MR
	area   int          // bytes ahead of each message that is received
	credit int          // where credits are kept in memory, behind all else
	remote verbs.Remote // the other side's memory
	peers  []verbs.UD   // of datagrams, by queue pair
	close  []func() error

	listener verbs.Listener // of the server, where the CM connects
}

// shape says how large a conn is.
type shape struct {
	qps    int
	sends  int // work requests a queue pair
	recvs  int
	memory int  // bytes
	notify bool // receives are waited for by event
}

// address is what the other side must know.
type address struct {
	GID  verbs.GID
	MTU  verbs.MTU
	QPNs []verbs.QPN
	Addr uint64
	RKey verbs.RKey
	// Listen is where the server takes calls, if queue pairs are connected so.
	Listen netip.AddrPort
}

const access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead

// connect makes a conn and joins it with the one that the other side makes.
func (s *Side) connect(ctx context.Context, sh shape) (c *conn, err error) {
	c = &conn{side: s}
	defer func() {
		if err != nil {
			c.Close()
			err = fmt.Errorf("%v: connect: %w", s.Role, err)
		}
	}()
	if err := c.make(sh); err != nil {
		return c, err
	}
	mine, err := c.address()
	if err != nil {
		return c, err
	}
	theirs, err := swap(ctx, s, mine)
	if err != nil {
		return c, err
	}
	if len(theirs.QPNs) != len(c.qps) {
		return c, fmt.Errorf("the other side has %d queue pairs, not %d", len(theirs.QPNs), len(c.qps))
	}
	c.remote = verbs.Remote{Addr: theirs.Addr, RKey: theirs.RKey}
	if err := c.join(theirs); err != nil {
		return c, err
	}
	return c, s.meet(ctx) // a request must find the other side ready
}

func (c *conn) make(sh shape) (err error) {
	dev := c.side.Device
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	c.later(c.pd.Close)
	kind := verbs.QPTypeRC
	if c.side.Service == Datagrams {
		kind, c.area = verbs.QPTypeUD, verbs.GRHLen
	}
	c.credit = sh.memory + c.area
	c.buf = make([]byte, c.creditAt(sh.qps, 0))
	if c.mr, err = c.pd.RegMR(verbs.MRInit{Buf: c.buf, Access: access}); err != nil {
		return err
	}
	c.later(c.mr.Close)
	if sh.notify {
		if c.events, err = dev.CreateCompChannel(); err != nil {
			return err
		}
		c.later(c.events.Close)
	}
	if c.sends, err = dev.CreateCQ(verbs.CQInit{Depth: max(1, sh.qps*sh.sends)}); err != nil {
		return err
	}
	c.later(c.sends.Close)
	in := verbs.CQInit{Depth: max(1, sh.qps*sh.recvs)}
	if sh.notify {
		in.Channel = c.events
	}
	if c.recvs, err = dev.CreateCQ(in); err != nil {
		return err
	}
	c.later(c.recvs.Close)
	for range sh.qps {
		q, err := dev.CreateQP(verbs.QPInit{
			Type: kind, PD: c.pd, SendCQ: c.sends, RecvCQ: c.recvs,
			Caps: verbs.QPCaps{MaxSendWR: sh.sends, MaxRecvWR: sh.recvs, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		if err != nil {
			return err
		}
		c.qps = append(c.qps, q)
		c.later(q.Close)
	}
	return nil
}

func (c *conn) later(f func() error) { c.close = append(c.close, f) }

// Close closes everything, newest first.
func (c *conn) Close() {
	for i := len(c.close) - 1; i >= 0; i-- {
		_ = c.close[i]() // a measurement is over or has failed: nobody is left to tell
	}
	c.close = nil
}

func (c *conn) address() (address, error) {
	gid, err := c.side.Device.QueryGID(c.side.port(), int(c.side.GIDIndex))
	if err != nil {
		return address{}, err
	}
	port, err := c.side.Device.QueryPort(c.side.port())
	if err != nil {
		return address{}, err
	}
	a := address{GID: gid.GID, MTU: port.ActiveMTU, Addr: c.mr.Addr(), RKey: c.mr.RKey()}
	if c.side.Service == Streamed && c.side.Role == Server {
		if a.Listen, err = c.listen(); err != nil {
			return address{}, err
		}
	}
	for _, q := range c.qps {
		a.QPNs = append(a.QPNs, q.QPN())
	}
	return a, nil
}

func (s *Side) port() uint8 { return max(1, s.Port) }

// succeeded fails for a completion that is no success.
func succeeded(wcs []verbs.WC) error {
	for i := range wcs {
		if wcs[i].Status != verbs.WCSuccess {
			return fmt.Errorf("%v completed with %v", wcs[i].Opcode, wcs[i].Status)
		}
	}
	return nil
}

// overdue tells for how long what a program spins for has not come. It looks at
// the clock once in many calls, so that spinning stays cheap.
type overdue struct {
	spins int
	since time.Time
}

func (o *overdue) reset() { o.spins, o.since = 0, time.Time{} }

// yet reports whether it has not come for far too long.
func (o *overdue) yet() bool { return o.waited() > patience }

// waited is for how long it has not come, or 0 if this is not one of the calls
// that look.
func (o *overdue) waited() time.Duration {
	if o.spins++; o.spins%(1<<12) != 0 {
		return 0
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return time.Since(o.since)
}
