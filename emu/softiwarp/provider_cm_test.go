package softiwarp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/verbs"
)

func TestConnectWithoutListenerIsRejected(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		e, _, err := connectTo(d, at(1))
		var rej *verbs.RejectError
		if !errors.As(err, &rej) || rej.Reason != reasonInvalidService {
			t.Errorf("connect to a closed port: %v", err)
		}
		refused(t, "closed port", err, verbs.ErrRejected, "connect", "[fd00::2]:1", "no listener")
		_, err = d.cm.Connect(e.qp, netip.MustParseAddrPort("[fd00::77]:1"), connParam, verbs.Forever)
		refused(t, "no such host", err, verbs.ErrNotFound, "fd00::77")
		_, err = d.cm.Connect(e.qp, netip.MustParseAddrPort("10.0.0.1:1"), connParam, verbs.Forever)
		refused(t, "other family", err, verbs.ErrNotFound, "no address of the family of 10.0.0.1")
		return e.qp.Close() // it was left as it was
	}, idle)
}

func TestListenerCanReject(t *testing.T) {
	inWorld(t, later(func(_ *sim.Proc, d *Device) error {
		e, _, err := connectTo(d, at(5))
		var rej *verbs.RejectError
		if !errors.As(err, &rej) || rej.Reason != reasonConsumer || string(rej.PrivateData) != "no" {
			t.Errorf("connect: %v", err)
		}
		if a, err := e.qp.Query(); err != nil || a.State != verbs.QPStateReset {
			t.Errorf("refused, the QP is in %v, %v", a.State, err)
		}
		return nil
	}), func(_ *sim.Proc, d *Device) error {
		l, err := d.cm.Listen(at(5), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		if req.Remote().Addr() != addrA {
			t.Errorf("request from %v", req.Remote())
		}
		refused(t, "long private data", req.Reject(make([]byte, 509)), verbs.ErrInvalid, "at most 508")
		if err := req.Reject([]byte("no")); err != nil {
			return err
		}
		refused(t, "second answer", req.Reject(nil), verbs.ErrInvalid)
		return l.Close()
	})
}

// What one side says of reads arrives at the other, and what is settled is in
// the attributes of both queue pairs.
func TestPrivateDataAndDepths(t *testing.T) {
	asked := verbs.ConnParam{ResponderResources: 3, InitiatorDepth: 7, PrivateData: bytes.Repeat([]byte("q"), 508)}
	granted := verbs.ConnParam{ResponderResources: 7, InitiatorDepth: 9, PrivateData: bytes.Repeat([]byte("r"), 508)}
	depths := func(e *end) string {
		a, err := e.qp.Query()
		return fmt.Sprint(a.MaxRdAtomic, a.MaxDestRdAtomic, a.State, err)
	}
	inWorld(t, later(func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		long := asked
		long.PrivateData = make([]byte, 509)
		_, err = d.cm.Connect(e.qp, at(5), long, verbs.Forever)
		refused(t, "long private data", err, verbs.ErrInvalid, "at most 508")
		c, err := d.cm.Connect(e.qp, at(5), asked, verbs.Forever)
		if err != nil {
			return err
		}
		// A responder's InitiatorDepth is never more than the initiator takes.
		if p := c.Param(); p.ResponderResources != 7 || p.InitiatorDepth != 3 || !bytes.Equal(p.PrivateData, granted.PrivateData) {
			t.Errorf("granted %+v", p)
		}
		if got := depths(e); got != "7 3 IBV_QPS_RTS <nil>" {
			t.Errorf("initiator settled for %s", got)
		}
		if c.Remote() != at(5) {
			t.Errorf("remote %v", c.Remote())
		}
		return c.Disconnect()
	}), func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		l, err := d.cm.Listen(at(5), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		if p := req.Param(); p.ResponderResources != 3 || p.InitiatorDepth != 7 || !bytes.Equal(p.PrivateData, asked.PrivateData) {
			t.Errorf("asked %+v", p)
		}
		c, err := req.Accept(e.qp, granted, verbs.Forever)
		if err != nil {
			return err
		}
		if got := depths(e); got != "3 7 IBV_QPS_RTS <nil>" {
			t.Errorf("responder settled for %s", got)
		}
		return c.WaitDisconnect(verbs.Forever)
	})
}

func TestListenErrors(t *testing.T) {
	inWorld(t, func(_ *sim.Proc, d *Device) error {
		_, err := d.cm.Listen(netip.AddrPortFrom(addrA, 6), verbs.PortSpaceUDP, 0)
		refused(t, "datagrams", err, verbs.ErrNotSupported, "PortSpaceTCP")
		_, err = d.cm.Resolve(at(6), nil, verbs.Forever)
		refused(t, "resolve", err, verbs.ErrNotSupported, "no datagrams")
		_, err = d.cm.Listen(at(6), verbs.PortSpaceTCP, 0)
		refused(t, "address of another", err, verbs.ErrNotFound, "fd00::1")
		l, err := d.cm.Listen(netip.AddrPortFrom(addrA, 6), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		_, err = d.cm.Listen(netip.AddrPortFrom(addrA, 6), verbs.PortSpaceTCP, 0)
		refused(t, "twice", err, verbs.ErrBusy, "[fd00::1]:6")
		if err := l.Close(); err != nil {
			return err
		}
		again, err := d.cm.Listen(netip.AddrPortFrom(addrA, 6), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		return again.Close()
	}, idle)
}

// A listener on the unspecified address of either family takes requests to every
// address of the device, all on the port that was found for it.
func TestListenOnAllAddresses(t *testing.T) {
	v4a, v4b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	w := sim.New(sim.Config{Seed: 1})
	port := func(addrs ...netip.Addr) sim.PortConfig {
		return sim.PortConfig{Addrs: addrs, Link: sim.LinkConfig{Latency: time.Microsecond}}
	}
	pa, pb, err := sim.NewPair(w, sim.NetConfig{}, port(addrA, v4a), port(addrB, v4b))
	if err != nil {
		t.Fatal(err)
	}
	a, err := InWorld(w, pa, pa.StreamHost(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := InWorld(w, pb, pb.StreamHost(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	var l verbs.Listener
	w.Go("b", func(*sim.Proc) (err error) {
		// One address has its first port taken.
		if _, err := b.cm.Listen(netip.AddrPortFrom(v4b, 49152), verbs.PortSpaceTCP, 0); err != nil {
			return err
		}
		if l, err = b.cm.Listen(netip.AddrPortFrom(netip.IPv6Unspecified(), 0), verbs.PortSpaceTCP, 0); err != nil {
			return err
		}
		for range 2 {
			e, err := newEnd(b)
			if err != nil {
				return err
			}
			req, err := l.GetRequest(verbs.Forever)
			if err != nil {
				return err
			}
			if _, err := req.Accept(e.qp, connParam, verbs.Forever); err != nil {
				return err
			}
		}
		return l.Close()
	})
	w.Go("a", func(p *sim.Proc) error {
		p.Sleep(time.Millisecond)
		for _, to := range []netip.Addr{addrB, v4b} {
			if _, _, err := connectTo(a, netip.AddrPortFrom(to, l.Addr().Port())); err != nil {
				return err
			}
		}
		p.Sleep(time.Millisecond)
		_, _, err := connectTo(a, netip.AddrPortFrom(v4b, l.Addr().Port()))
		refused(t, "closed listener", err, verbs.ErrRejected)
		return nil
	})
	if err := w.RunPrograms(); err != nil {
		t.Fatal(err)
	}
	if l.Addr().Port() <= 49152 || l.Addr().Addr() != netip.IPv6Unspecified() {
		t.Errorf("listened on %v", l.Addr())
	}
	if g, err := a.QueryGID(1, 1); err != nil || g.GID.Addr() != v4a {
		t.Errorf("second GID %v, %v", g, err)
	}
}

func TestFullBacklogResetsConnections(t *testing.T) {
	inWorld(t, later(func(p *sim.Proc, d *Device) error {
		first, err := newEnd(d)
		if err != nil {
			return err
		}
		p.World().Go("first", func(*sim.Proc) error {
			_, err := d.cm.Connect(first.qp, at(5), connParam, verbs.Forever)
			return err
		})
		p.Sleep(time.Millisecond)
		_, _, err = connectTo(d, at(5))
		refused(t, "beyond the backlog", err, verbs.ErrRejected, "without a reply")
		return nil
	}), func(p *sim.Proc, d *Device) error {
		l, err := d.cm.Listen(at(5), verbs.PortSpaceTCP, 1)
		if err != nil {
			return err
		}
		p.Sleep(10 * time.Millisecond)
		if n := counter(d, "cm_backlog_full"); n != 2 { // it tried again without enhancements
			t.Errorf("%d streams were turned away", n)
		}
		req, err := l.GetRequest(0)
		if err != nil {
			return err
		}
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		_, err = req.Accept(e.qp, connParam, verbs.Forever)
		return err
	})
}

// A connect that takes too long leaves the queue pair as it was; the request that
// waited is worth nothing any more.
func TestConnectTimeout(t *testing.T) {
	inWorld(t, later(func(p *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		before := p.Now()
		_, err = d.cm.Connect(e.qp, at(5), connParam, 3*time.Second)
		refused(t, "nobody answers", err, verbs.ErrTimeout, "[fd00::2]:5")
		if took := p.Now() - before; took < 3*time.Second || took > 3*time.Second+10*time.Microsecond {
			t.Errorf("gave up after %v", took)
		}
		p.Sleep(time.Second)
		_, err = d.cm.Connect(e.qp, at(5), connParam, 3*time.Second)
		return err
	}), func(p *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		l, err := d.cm.Listen(at(5), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		p.Sleep(3500 * time.Millisecond)
		_, err = req.Accept(e.qp, connParam, verbs.Forever)
		refused(t, "the requester gave up", err, verbs.ErrClosed, "has closed the connection")
		refused(t, "refusal of that", req.Reject(nil), verbs.ErrClosed, "has closed the connection")
		if req, err = l.GetRequest(verbs.Forever); err != nil {
			return err
		}
		_, err = req.Accept(e.qp, connParam, verbs.Forever)
		return err
	})
}

// GetRequest does not return a request whose requester has closed the connection.
func TestGetRequestSkipsClosedConnections(t *testing.T) {
	inWorld(t, later(func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		_, err = d.cm.Connect(e.qp, at(5), connParam, time.Millisecond)
		refused(t, "nobody answers", err, verbs.ErrTimeout)
		return nil
	}), func(p *sim.Proc, d *Device) error {
		l, err := d.cm.Listen(at(5), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		p.Sleep(10 * time.Millisecond)
		_, err = l.GetRequest(time.Millisecond)
		refused(t, "next", err, verbs.ErrTimeout)
		if n := counter(d, "conns_failed"); n != 1 {
			t.Errorf("%d connections failed", n)
		}
		return nil
	})
}

// A peer that does not know the enhanced start-up hangs up on it, and is asked
// again without.
func TestFallbackToRevision1(t *testing.T) {
	for _, clientServer := range []bool{false, true} {
		old := Config{NIC: engine.Config{MPA: mpa.Config{MaxRevision: 1}}}
		inWorld(t, later(func(_ *sim.Proc, d *Device) error {
			e, err := newEnd(d)
			if err != nil {
				return err
			}
			param := connParam
			param.PrivateData = []byte("old friend")
			c, err := d.cm.Connect(e.qp, at(5), param, verbs.Forever)
			if err != nil {
				return err
			}
			if n := counter(d, "cm_fallbacks"); n != 1 {
				t.Errorf("%d fallbacks", n)
			}
			// Depths were not spoken of: each has what its device can.
			if p := c.Param(); p.ResponderResources != 128 || string(p.PrivateData) != "welcome" {
				t.Errorf("granted %+v", p)
			}
			return e.send(0, 100)
		}), func(_ *sim.Proc, d *Device) error {
			e, err := newEnd(d)
			if err != nil {
				return err
			}
			if err := e.recv(0, 100); err != nil {
				return err
			}
			l, err := d.cm.Listen(at(5), verbs.PortSpaceTCP, 0)
			if err != nil {
				return err
			}
			req, err := l.GetRequest(verbs.Forever)
			if err != nil {
				return err
			}
			if got := string(req.Param().PrivateData); got != "old friend" {
				t.Errorf("private data %q", got)
			}
			if _, err := req.Accept(e.qp, verbs.ConnParam{PrivateData: []byte("welcome")}, verbs.Forever); err != nil {
				return err
			}
			_, err = e.succeed()
			return err
		}, Config{ClientServer: clientServer}, old)
	}
}

func TestDisconnectClosesBothSidesGracefully(t *testing.T) {
	inWorld(t, later(func(p *sim.Proc, d *Device) error {
		e, c, err := connectTo(d, at(7))
		if err != nil {
			return err
		}
		if err := e.recv(0, 8); err != nil {
			return err
		}
		// What was posted before is carried out.
		for range 10 {
			if err := e.send(0, 60_000); err != nil {
				return err
			}
		}
		if err := c.Disconnect(); err != nil {
			return err
		}
		if err := c.Disconnect(); err != nil { // which it is already
			return err
		}
		refused(t, "send after that", e.send(0, 1), verbs.ErrInvalid, "not connected")
		if err := c.WaitDisconnect(verbs.Forever); err != nil {
			return err
		}
		for range 10 {
			if _, err := e.succeed(); err != nil {
				return err
			}
		}
		wc, err := e.complete()
		if wc.Status != verbs.WCWRFlushErr || wc.VendorErr != 0 {
			t.Errorf("receive completed %+v, %v", wc, err)
		}
		a, err := e.qp.Query()
		if a.State != verbs.QPStateErr {
			t.Errorf("our QP is in %v", a.State)
		}
		return err
	}), func(_ *sim.Proc, d *Device) error {
		e, err := newEnd(d)
		if err != nil {
			return err
		}
		for range 11 {
			if err := e.recv(0, 60_000); err != nil {
				return err
			}
		}
		l, err := d.cm.Listen(at(7), verbs.PortSpaceTCP, 0)
		if err != nil {
			return err
		}
		req, err := l.GetRequest(verbs.Forever)
		if err != nil {
			return err
		}
		c, err := req.Accept(e.qp, connParam, verbs.Forever)
		if err != nil {
			return err
		}
		for range 10 {
			if _, err := e.succeed(); err != nil {
				return err
			}
		}
		if wc, err := e.complete(); err != nil || wc.Status != verbs.WCWRFlushErr {
			t.Errorf("receive completed %+v, %v", wc, err)
		}
		if err := c.WaitDisconnect(verbs.Forever); err != nil {
			return err
		}
		for _, name := range []string{"conns_failed", "sent_terminates", "mpa_lost"} {
			if n := counter(d, name); n != 0 {
				t.Errorf("%s is %d", name, n)
			}
		}
		return nil
	})
}
