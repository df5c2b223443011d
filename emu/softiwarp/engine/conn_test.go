package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// changedStates returns the states of the connections from NextChanged.
func changedStates(n *NIC) (got []ConnState) {
	for {
		c, ok := n.NextChanged()
		if !ok {
			return got
		}
		got = append(got, c.State())
	}
}

func TestConnect(t *testing.T) {
	for name, opts := range map[string][]hostOption{
		"client-server": nil,
		"peer-to-peer":  {peerToPeer},
		"without CRCs":  {noCRC, peerToPeer},
		"markers":       {func(c *Config, _ *iwarp.QueueConfig) { c.MPA.Markers = true }},
		"revision 1":    {func(c *Config, _ *iwarp.QueueConfig) { c.MPA.MaxRevision = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newHost(t, opts...), newHost(t, opts...)
			p := offer(t, a, b, ConnParam{IRD: 3, ORD: 5, PrivateData: []byte("let me in")})
			if string(p.cb.PrivateData) != "let me in" {
				t.Errorf("the responder sees %q", p.cb.PrivateData)
			}
			if name != "revision 1" && (p.cb.Peer.PeerIRD != 3 || p.cb.Peer.PeerORD != 5) {
				t.Errorf("depths %+v", p.cb.Peer)
			}
			must.Do(t, p.cb.Accept(p.now, b.qp, ConnParam{IRD: 4, ORD: 4, PrivateData: []byte("welcome")}))
			p.run()
			if string(p.ca.PrivateData) != "welcome" || p.ca.State() != Established || p.cb.State() != Established {
				t.Errorf("%v and %v, %q", p.ca.State(), p.cb.State(), p.ca.PrivateData)
			}
			a.wantState(verbs.QPStateRTS)
			b.wantState(verbs.QPStateRTS)
			ird, ord, pird, pord := p.ca.depths.ird, p.ca.depths.ord, p.cb.depths.ird, p.cb.depths.ord
			// The responder raises its IRD to the initiator's ORD, and limits its ORD to the
			// initiator's IRD. Without the enhanced start-up each side keeps its own depths.
			if name == "revision 1" {
				if ird != 3 || ord != 5 || pird != 4 || pord != 4 {
					t.Errorf("depths %d/%d and %d/%d", ird, ord, pird, pord)
				}
			} else if ird != 3 || ord != 5 || pird != 5 || pord != 3 {
				t.Errorf("depths %d/%d and %d/%d", ird, ord, pird, pord)
			}
			if got := changedStates(a.nic); len(got) != 1 || got[0] != Established {
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

func TestReject(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := offer(t, a, b, ConnParam{IRD: 1, ORD: 1})
	must.Do(t, p.cb.Reject(p.now, []byte("no room")))
	must.Fail(t, "a second answer", p.cb.Reject(p.now, nil), verbs.ErrInvalid)
	p.run()
	if !errors.Is(p.ca.Err(), ErrRejected) || string(p.ca.PrivateData) != "no room" || p.ca.State() != Closed || p.cb.State() != Closed {
		t.Errorf("%v %v %q, %v", p.ca.State(), p.ca.Err(), p.ca.PrivateData, p.cb.State())
	}
	a.wantState(verbs.QPStateReset)
	if a.qp.conn != nil {
		t.Error("the queue pair is not free for another try")
	}
}

func TestInvalidConnectCalls(t *testing.T) {
	a, b := newHost(t), newHost(t)
	for name, p := range map[string]ConnParam{
		"private data": {PrivateData: make([]byte, 509)},
		"depth":        {IRD: 129},
	} {
		must.Fail(t, name, must.Err(a.nic.Connect(a.qp, p)), verbs.ErrInvalid)
	}
	p := offer(t, a, b, ConnParam{})
	must.Fail(t, "a second connection", must.Err(a.nic.Connect(a.qp, ConnParam{})), verbs.ErrBusy)
	must.Fail(t, "an initiator accepts", p.ca.Accept(0, a.qp, ConnParam{}), verbs.ErrInvalid)
	must.Fail(t, "too much private data", p.cb.Accept(0, b.qp, ConnParam{PrivateData: make([]byte, 513)}), mpa.ErrPrivateData)
	if err := p.cb.Accept(0, b.qp, ConnParam{}); err != nil {
		t.Errorf("after a rejected Accept: %v", err)
	}
	other := b.newQP(iwarp.QueueConfig{PD: b.pd, SendCQ: b.SendCQ, RecvCQ: b.RecvCQ})
	must.Do(t, other.Modify(0, verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
	must.Fail(t, "a failed queue pair connects", must.Err(b.nic.Connect(other, ConnParam{})), verbs.ErrInvalid)
}

func TestStartupFailures(t *testing.T) {
	t.Run("no such host", func(t *testing.T) {
		a := newHost(t)
		c := must.Get(a.nic.Connect(a.qp, ConnParam{}))(t)
		c.Failed(0, link.ErrRefused)
		if c.State() != Closed || !errors.Is(c.Err(), link.ErrRefused) || a.qp.conn != nil {
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
			t.Errorf("%v, sent %q", c.Err(), p.log[1])
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
		if p.write(1); !p.reset[1] || c.State() != Closed || b.nic.Deadline() != mono.Never {
			t.Errorf("%v, deadline %v", c.State(), b.nic.Deadline())
		}
	})
	t.Run("peer without the enhanced start-up", func(t *testing.T) {
		a := newHost(t)
		c := must.Get(a.nic.Connect(a.qp, ConnParam{IRD: 1, ORD: 1}))(t)
		p := newPipe(t, c, nil)
		p.take(0)
		c.InputEOF(p.now)
		p.write(0)
		if c.State() != Closed || !c.Fallback {
			t.Fatalf("%v, fallback %v", c.State(), c.Fallback)
		}
		again := must.Get(a.nic.Connect(a.qp, ConnParam{IRD: 1, ORD: 1, Revision: 1}))(t)
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
