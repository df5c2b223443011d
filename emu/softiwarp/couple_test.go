package softiwarp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// couple is two connected ends in one simulated world, for programs that play
// both sides.
type couple struct {
	t      *testing.T
	p      *sim.Proc
	a, b   *end // a has connected, b has accepted
	ca, cb verbs.Conn
}

// coupled runs a program on two connected ends.
func coupled(t *testing.T, net sim.NetConfig, play func(c *couple) error, cfgs ...Config) {
	t.Helper()
	w, da, db := pairInWorld(t, 1, net, cfgs...)
	w.Go("both", func(p *sim.Proc) error {
		c := &couple{t: t, p: p}
		if err := c.connect(da, db); err != nil {
			return err
		}
		return play(c)
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
}

func (c *couple) connect(da, db *Device) (err error) {
	w := c.p.World()
	if c.b, err = newEnd(db); err != nil {
		return err
	}
	done := false
	w.Go("accept", func(*sim.Proc) error {
		l, err := db.cm.Listen(netip.AddrPortFrom(db.cfg.Addrs[0], 9), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		defer l.Close()
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		c.cb, err = req.Accept(c.b.qp, connParam, verbs.Forever)
		done = true
		return err
	})
	c.p.Sleep(time.Millisecond)
	if c.a, c.ca, err = connectTo(da, netip.AddrPortFrom(db.cfg.Addrs[0], 9)); err != nil {
		return err
	}
	for !done {
		c.p.Sleep(time.Microsecond)
	}
	return nil
}

// post posts one request.
func (e *end) post(wr verbs.SendWR) error {
	_, err := e.qp.PostSend([]verbs.SendWR{wr})
	return err
}

// do posts one request and waits until it has succeeded.
func (e *end) do(wr verbs.SendWR) error {
	wr.Flags |= verbs.SendSignaled
	if err := e.post(wr); err != nil {
		return err
	}
	_, err := e.succeed()
	return err
}

// at is where e's buffer has an offset, for its peer.
func (e *end) at(off int) verbs.Remote {
	return verbs.Remote{Addr: e.mr.Addr() + uint64(off), RKey: e.mr.RKey()}
}

func (e *end) sgl(off, n int) []verbs.SGE { return []verbs.SGE{verbs.SGEOf(e.mr, off, n)} }

// fill puts a pattern into part of e's buffer, and clear removes it.
func (e *end) fill(off, n int, seed byte) []byte {
	b := e.buf[off : off+n]
	for i := range b {
		b[i] = seed + byte(i)*7
	}
	return b
}

// mustFail waits for a completion of that status and returns it.
func (c *couple) mustFail(e *end, status verbs.WCStatus) verbs.WC {
	c.t.Helper()
	wc, err := e.complete()
	if err != nil || wc.Status != status {
		c.t.Errorf("completed %+v, %v; want %v", wc, err, status)
	}
	return wc
}
