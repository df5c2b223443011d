package perf

import (
	"context"
	"fmt"
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
	mr     verbs.MR
	remote verbs.Remote // the other side's memory
	close  []func() error
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
	for i, q := range c.qps {
		if err := s.ready(q, theirs, i); err != nil {
			return c, err
		}
	}
	return c, s.meet(ctx) // a request must find the other side ready
}

func (c *conn) make(sh shape) (err error) {
	dev := c.side.Device
	if c.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	c.later(c.pd.Close)
	if c.mr, err = c.pd.RegMR(verbs.MRInit{Buf: make([]byte, sh.memory), Access: access}); err != nil {
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
			Type: verbs.QPTypeRC, PD: c.pd, SendCQ: c.sends, RecvCQ: c.recvs,
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
	for _, q := range c.qps {
		a.QPNs = append(a.QPNs, q.QPN())
	}
	return a, nil
}

func (s *Side) port() uint8 { return max(1, s.Port) }

// ready takes a queue pair to the state in which it sends and receives.
func (s *Side) ready(q verbs.QP, to address, i int) error {
	mine, err := s.Device.QueryPort(s.port())
	if err != nil {
		return err
	}
	attr := verbs.QPAttr{
		Port: s.port(), Access: access, PathMTU: min(mine.ActiveMTU, to.MTU), DestQPN: to.QPNs[i],
		AH:              verbs.AHAttr{Port: s.port(), GRH: verbs.GRH{DGID: to.GID, SGIDIndex: s.GIDIndex, HopLimit: 64}},
		MaxDestRdAtomic: maxReads, MaxRdAtomic: maxReads, MinRNRTimer: 1, Timeout: timeout, RetryCnt: 7, RNRRetry: 7,
	}
	for _, step := range []struct {
		state verbs.QPState
		mask  verbs.QPAttrMask
	}{
		{verbs.QPStateInit, verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags},
		{verbs.QPStateRTR, verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
			verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer},
		{verbs.QPStateRTS, verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic},
	} {
		attr.State = step.state
		if err := q.Modify(attr, step.mask|verbs.QPAttrState); err != nil {
			return err
		}
	}
	return nil
}

// maxReads is how many READs a queue pair may have under way; every device
// that has them has so many.
const maxReads = 16

// timeout is the transport timer: 268 ms, and 2 s with all retries. It is long,
// because on a machine with much else to do a process may not run for half a
// second. That must show as noise and not as a broken connection.
const timeout = 16

// succeeded fails for a completion that is no success.
func succeeded(wcs []verbs.WC) error {
	for i := range wcs {
		if wcs[i].Status != verbs.WCSuccess {
			return fmt.Errorf("%v completed with %v", wcs[i].Opcode, wcs[i].Status)
		}
	}
	return nil
}

// overdue reports whether what a program spins for has not come for far too
// long. It looks at the clock once in many calls, so that spinning stays cheap.
type overdue struct {
	spins int
	since time.Time
}

func (o *overdue) reset() { o.spins, o.since = 0, time.Time{} }

func (o *overdue) yet() bool {
	if o.spins++; o.spins%(1<<14) != 0 {
		return false
	}
	if o.since.IsZero() {
		o.since = time.Now()
	}
	return time.Since(o.since) > patience
}
