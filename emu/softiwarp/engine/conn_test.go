package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// news returns the states that have been announced.
func news(n *NIC) (got []ConnState) {
	for {
		c, ok := n.NextChanged()
		if !ok {
			return got
		}
		got = append(got, c.State())
	}
}

func TestConnectionIsMade(t *testing.T) {
	for name, opts := range map[string][]hostOption{
		"client-server": nil,
		"peer-to-peer":  {peerToPeer},
		"without CRCs":  {noCRC, peerToPeer},
		"markers":       {func(c *Config, _ *QPConfig) { c.MPA.Markers = true }},
		"revision 1":    {func(c *Config, _ *QPConfig) { c.MPA.MaxRevision = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHost(t, opts...), newHost(t, opts...)
			p := offer(t, a, b, ConnParam{IRD: 3, ORD: 5, PrivateData: []byte("let me in")})
			if string(p.cb.PrivateData()) != "let me in" || p.cb.Remote() != addrA || p.cb.Local() != addrB {
				t.Errorf("the responder sees %q from %v", p.cb.PrivateData(), p.cb.Remote())
			}
			if name != "revision 1" && (p.cb.Peer().PeerIRD != 3 || p.cb.Peer().PeerORD != 5) {
				t.Errorf("depths %+v", p.cb.Peer())
			}
			if err := p.cb.Accept(p.now, b.qp, ConnParam{IRD: 4, ORD: 4, PrivateData: []byte("welcome")}); err != nil {
				t.Fatal(err)
			}
			p.run()
			if string(p.ca.PrivateData()) != "welcome" || p.ca.State() != Established || p.cb.State() != Established {
				t.Errorf("%v and %v, %q", p.ca.State(), p.cb.State(), p.ca.PrivateData())
			}
			a.wantState(verbs.QPStateRTS)
			b.wantState(verbs.QPStateRTS)
			ird, ord := p.ca.Depths()
			pird, pord := p.cb.Depths()
			// The responder raises its IRD to what the initiator wants, and is held to
			// what the initiator takes. Without the enhanced start-up each has its own.
			if name == "revision 1" {
				if ird != 3 || ord != 5 || pird != 4 || pord != 4 {
					t.Errorf("depths %d/%d and %d/%d", ird, ord, pird, pord)
				}
			} else if ird != 3 || ord != 5 || pird != 5 || pord != 3 {
				t.Errorf("depths %d/%d and %d/%d", ird, ord, pird, pord)
			}
			if got := news(a.nic); len(got) != 1 || got[0] != Established {
				t.Errorf("news %v", got)
			}
			r, mem := b.region(64, allAccess)
			s, src := a.region(64, allAccess)
			copy(src, "hello")
			b.recv(7, sge(r, 0, 64))
			a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend, SGL: []verbs.SGE{sge(s, 0, 5)}})
			p.run()
			a.wantSends("1")
			b.wantRecvs("7:5")
			if string(mem[:5]) != "hello" {
				t.Errorf("%q", mem[:5])
			}
		})
	}
}

func TestConnectionIsRefused(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := offer(t, a, b, ConnParam{IRD: 1, ORD: 1})
	if err := p.cb.Reject(p.now, []byte("no room")); err != nil {
		t.Fatal(err)
	}
	if err := p.cb.Reject(p.now, nil); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a second answer: %v", err)
	}
	p.run()
	if !errors.Is(p.ca.Err(), ErrRejected) || string(p.ca.PrivateData()) != "no room" || p.ca.State() != Closed || p.cb.State() != Closed {
		t.Errorf("%v %v %q, %v", p.ca.State(), p.ca.Err(), p.ca.PrivateData(), p.cb.State())
	}
	a.wantState(verbs.QPStateReset)
	if a.qp.Conn() != nil {
		t.Error("the queue pair is not free for another try")
	}
}

func TestSmallFaultsOfThoseWhoConnect(t *testing.T) {
	a, b := newHost(t), newHost(t)
	for name, p := range map[string]ConnParam{
		"private data": {PrivateData: make([]byte, 509)},
		"depth":        {IRD: 129},
	} {
		if _, err := a.nic.Connect(a.qp, p); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := offer(t, a, b, ConnParam{})
	if _, err := a.nic.Connect(a.qp, ConnParam{}); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("a second connection: %v", err)
	}
	if err := p.ca.Accept(0, a.qp, ConnParam{}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("an initiator accepts: %v", err)
	}
	if err := p.cb.Accept(0, b.qp, ConnParam{PrivateData: make([]byte, 513)}); !errors.Is(err, mpa.ErrPrivateData) {
		t.Errorf("too much private data: %v", err)
	}
	if err := p.cb.Accept(0, b.qp, ConnParam{}); err != nil {
		t.Errorf("after a refused answer: %v", err)
	}
	other := b.newQP(QPConfig{Type: verbs.QPTypeRC, PD: b.pd, SendCQ: b.sendCQ, RecvCQ: b.recvCQ})
	if err := other.Modify(0, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState); err != nil {
		t.Fatal(err)
	}
	if _, err := b.nic.Connect(other, ConnParam{}); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a failed queue pair connects: %v", err)
	}
}

func TestStartUpFails(t *testing.T) {
	t.Run("no such host", func(t *testing.T) {
		a := newHost(t)
		c, err := a.nic.Connect(a.qp, ConnParam{})
		if err != nil {
			t.Fatal(err)
		}
		c.Failed(0, link.ErrRefused)
		if c.State() != Closed || !errors.Is(c.Err(), link.ErrRefused) || a.qp.Conn() != nil {
			t.Errorf("%v %v", c.State(), c.Err())
		}
		a.wantState(verbs.QPStateReset)
	})
	t.Run("not MPA", func(t *testing.T) {
		b := newHost(t)
		c := b.nic.Incoming()
		p := newPipe(t, nil, c)
		p.give(1, []byte("GET / HTTP/1.0\r\n"))
		p.write(1)
		if !p.fin[1] || !errors.Is(c.Err(), mpa.ErrNoMPA) || len(p.log[1]) != 0 {
			t.Errorf("%v, said %q", c.Err(), p.log[1])
		}
	})
	t.Run("silence", func(t *testing.T) {
		b := newHost(t)
		c := b.nic.Incoming()
		p := newPipe(t, nil, c)
		if d := b.nic.Deadline(); d != mono.Time(5*time.Second) {
			t.Errorf("deadline %v", d)
		}
		p.later(5*time.Second, b.nic)
		p.write(1)
		if !p.fin[1] || !errors.Is(c.Err(), mpa.ErrTimeout) {
			t.Errorf("%v", c.Err())
		}
		p.later(5*time.Second, b.nic) // the peer does not close
		if p.write(1); !p.gone[1] || c.State() != Closed || b.nic.Deadline() != mono.Never {
			t.Errorf("%v, deadline %v", c.State(), b.nic.Deadline())
		}
	})
	t.Run("peer without the enhanced start-up", func(t *testing.T) {
		a := newHost(t)
		c, err := a.nic.Connect(a.qp, ConnParam{IRD: 1, ORD: 1})
		if err != nil {
			t.Fatal(err)
		}
		p := newPipe(t, c, nil)
		p.take(0)
		c.InputEOF(p.now)
		p.write(0)
		if c.State() != Closed || !c.Fallback() {
			t.Fatalf("%v, fallback %v", c.State(), c.Fallback())
		}
		again, err := a.nic.Connect(a.qp, ConnParam{IRD: 1, ORD: 1, Revision: 1})
		if err != nil {
			t.Fatal(err)
		}
		p = newPipe(t, again, nil)
		wantOctets(t, "Request", p.take(0), requestFrame+"40010000")
	})
	t.Run("aborted", func(t *testing.T) {
		a, b := newHost(t), newHost(t)
		p := offer(t, a, b, ConnParam{})
		p.ca.Abort()
		p.run()
		if p.ca.State() != Closed || p.cb.State() != Closed || !errors.Is(p.cb.Err(), link.ErrReset) {
			t.Errorf("%v, %v %v", p.ca.State(), p.cb.State(), p.cb.Err())
		}
		a.wantState(verbs.QPStateReset)
	})
}

func TestDisconnect(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	b.recv(1)
	b.recv(2)
	p.ca.Disconnect(p.now)
	a.wantState(verbs.QPStateSQD)
	p.run()
	a.wantState(verbs.QPStateErr)
	b.wantState(verbs.QPStateErr)
	if p.ca.State() != Closed || p.cb.State() != Closed || p.ca.Err() != nil || p.cb.Err() != nil {
		t.Errorf("%v %v, %v %v", p.ca.State(), p.ca.Err(), p.cb.State(), p.cb.Err())
	}
	b.wantRecvs("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR")
	a.wantEvents()
	b.wantEvents()
	if a.qp.End().Cause != 0 {
		t.Errorf("ended %+v", a.qp.End())
	}
	if a.nic.Deadline() != mono.Never || b.nic.Deadline() != mono.Never {
		t.Error("a timer is left")
	}
	// And the same again with the same queue pairs.
	for _, h := range []*host{a, b} {
		if err := h.qp.Modify(p.now, verbs.QPAttr{State: verbs.QPStateReset}, verbs.QPAttrState); err != nil {
			t.Fatal(err)
		}
	}
	p = connect(t, a, b)
	b.recv(3)
	a.send(verbs.SendWR{WRID: 9, Opcode: verbs.OpSend})
	p.run()
	a.wantSends("9")
	b.wantRecvs("3:0")
}

func TestDisconnectFromBothSidesAtOnce(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	p.ca.Disconnect(p.now)
	p.cb.Disconnect(p.now)
	p.run()
	if p.ca.State() != Closed || p.cb.State() != Closed || p.ca.Err() != nil || p.cb.Err() != nil {
		t.Errorf("%v %v, %v %v", p.ca.State(), p.ca.Err(), p.cb.State(), p.cb.Err())
	}
}

func TestPeerThatDoesNotCloseIsCutOff(t *testing.T) {
	h := newHost(t)
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, "5002000400040004")
	k.c.Disconnect(k.now)
	k.write(0)
	if !k.fin[0] || k.c.State() != Closing {
		t.Fatalf("%v", k.c.State())
	}
	k.later(5*time.Second, h.nic)
	k.write(0)
	if !k.gone[0] || !errors.Is(k.c.Err(), ErrCloseTimeout) || h.nic.Count.CloseTimeouts != 1 {
		t.Errorf("%v %v", k.c.State(), k.c.Err())
	}
	h.wantState(verbs.QPStateErr)
}

func TestStreamIsReset(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	r, _ := a.region(8, allAccess)
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
	a.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend})
	a.recv(3)
	p.write(0)
	p.ca.Failed(p.now, link.ErrReset)
	a.wantSends("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR")
	a.wantRecvs("3 WR_FLUSH_ERR")
	a.wantState(verbs.QPStateErr)
	a.wantEvents(verbs.EventQPFatal)
	if p.ca.State() != Closed || !errors.Is(p.ca.Err(), link.ErrReset) {
		t.Errorf("%v %v", p.ca.State(), p.ca.Err())
	}
}

func TestBytesOfMemoryThatIsBackDoNotLeave(t *testing.T) {
	// A write is half out when the connection fails. Its memory is the program's
	// again; what is still to be sent of the FPDU, so that a Terminate can follow,
	// must be what was there.
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	src, mem := a.region(1<<17, allAccess)
	dst, got := b.region(1<<17, allAccess)
	for i := range mem {
		mem[i] = 0x11
	}
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{sge(src, 0, 1<<17)}, Remote: verbs.Remote{Addr: dst.Addr, RKey: verbs.RKey(dst.Key)}})
	p.most = 1000
	p.write(0)
	if err := a.qp.Modify(p.now, verbs.QPAttr{State: verbs.QPStateSQE}, verbs.QPAttrState); err != nil {
		t.Fatal(err)
	}
	a.wantSends("1 WR_FLUSH_ERR")
	for i := range mem {
		mem[i] = 0x22
	}
	p.run()
	for i, v := range got {
		if v == 0x22 {
			t.Fatalf("octet %d has left after its memory was given back", i)
		}
	}
	term, received, ok := b.qp.Terminate()
	if !ok || !received || term.Error != wire.TermRDMAPLocal {
		t.Errorf("%+v %v %v", term, received, ok)
	}
	a.wantState(verbs.QPStateErr)
	b.wantState(verbs.QPStateErr)
}
