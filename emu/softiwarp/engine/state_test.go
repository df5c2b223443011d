package engine

import (
	"errors"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// inState moves a queue pair into a state; nil if it cannot stay there.
func inState(t *testing.T, s verbs.QPState, opts ...hostOption) *tester {
	t.Helper()
	h := newHost(t, opts...)
	modify := func(to verbs.QPState) {
		t.Helper()
		must.Do(t, h.qp.Modify(0, verbs.QPAttr{State: to}, verbs.QPAttrState))
	}
	switch s {
	case verbs.QPStateReset:
		return &tester{host: h}
	case verbs.QPStateInit, verbs.QPStateErr:
		modify(s)
		return &tester{host: h}
	}
	k := asInitiator(t, h, ConnParam{IRD: 4, ORD: 4}, "5002000400040004")
	switch s {
	case verbs.QPStateSQD:
		k.c.Disconnect(0)
	case verbs.QPStateSQE:
		modify(s)
	}
	h.wantState(s)
	return k
}

func TestModifyStateTransitions(t *testing.T) {
	const (
		reset, initial, rts = verbs.QPStateReset, verbs.QPStateInit, verbs.QPStateRTS
		sqd, sqe, failed    = verbs.QPStateSQD, verbs.QPStateSQE, verbs.QPStateErr
	)
	may := map[verbs.QPState][]verbs.QPState{
		reset:   {reset, initial, failed},
		initial: {reset, initial, failed},
		rts:     {reset, sqd, sqe, failed, rts},
		sqd:     {reset, failed},
		sqe:     {reset, failed},
		failed:  {reset, failed},
	}
	for from, list := range may {
		for to := reset; to <= failed+1; to++ {
			k := inState(t, from)
			err := k.qp.Modify(0, verbs.QPAttr{State: to}, verbs.QPAttrState)
			want := false
			for _, s := range list {
				want = want || s == to
			}
			if (err == nil) != want || err != nil && !errors.Is(err, verbs.ErrInvalid) {
				t.Errorf("%v to %v: %v", from, to, err)
			}
			after := to
			if err != nil {
				after = from
			}
			if k.qp.state != after {
				t.Errorf("%v to %v leaves the state %v", from, to, k.qp.state)
			}
		}
	}
}

func TestModifyRejectsAttributesThatIWARPLacks(t *testing.T) {
	for name, c := range map[string]struct {
		state verbs.QPState
		attr  verbs.QPAttr
		mask  verbs.QPAttrMask
		ok    bool
	}{
		"access":                 {verbs.QPStateReset, verbs.QPAttr{Access: verbs.AccessRemoteRead}, verbs.QPAttrAccessFlags, true},
		"what generic code does": {verbs.QPStateReset, verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, verbs.QPAttrState | verbs.QPAttrPort | verbs.QPAttrPKeyIndex | verbs.QPAttrAccessFlags, true},
		"port 2":                 {verbs.QPStateReset, verbs.QPAttr{Port: 2}, verbs.QPAttrPort, false},
		"partition":              {verbs.QPStateReset, verbs.QPAttr{PKeyIndex: 1}, verbs.QPAttrPKeyIndex, false},
		"address":                {verbs.QPStateReset, verbs.QPAttr{}, verbs.QPAttrAV, false},
		"retries":                {verbs.QPStateInit, verbs.QPAttr{}, verbs.QPAttrRetryCnt, false},
		"wrong current state":    {verbs.QPStateInit, verbs.QPAttr{CurState: verbs.QPStateReset}, verbs.QPAttrCurState, false},
		"depth":                  {verbs.QPStateInit, verbs.QPAttr{MaxRdAtomic: 1}, verbs.QPAttrMaxQPRdAtomic, false},
		"access of a connection": {verbs.QPStateRTS, verbs.QPAttr{}, verbs.QPAttrAccessFlags, true},
	} {
		k := inState(t, c.state)
		before := k.qp.Query()
		err := k.qp.Modify(0, c.attr, c.mask)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && k.qp.Query() != before {
			t.Errorf("%s: a rejected modify has changed attributes", name)
		}
	}
}

func TestQueryReturnsNegotiatedDepths(t *testing.T) {
	h := newHost(t)
	if a := h.qp.Query(); a.MaxRdAtomic != 128 || a.Access != iwarp.RemoteAccess || a.Port != 1 || a.Caps.MaxSendWR != 64 {
		t.Errorf("%+v", a)
	}
	asInitiator(t, h, ConnParam{IRD: 7, ORD: 9}, "5002000400030002")
	if a := h.qp.Query(); a.State != verbs.QPStateRTS || a.MaxRdAtomic != 3 || a.MaxDestRdAtomic != 7 {
		t.Errorf("%+v", a)
	}
}

func TestPostingByState(t *testing.T) {
	for state, want := range map[verbs.QPState]struct{ send, recv string }{
		verbs.QPStateReset: {"rejected", "accepted"},
		verbs.QPStateInit:  {"rejected", "accepted"},
		verbs.QPStateRTS:   {"accepted", "accepted"},
		verbs.QPStateSQD:   {"rejected", "accepted"},
		verbs.QPStateSQE:   {"flushed", "flushed"},
		verbs.QPStateErr:   {"flushed", "flushed"},
	} {
		k := inState(t, state)
		outcome := func(err error, completions []string) string {
			switch {
			case err != nil && errors.Is(err, verbs.ErrInvalid) && len(completions) == 0:
				return "rejected"
			case err == nil && len(completions) == 0:
				return "accepted"
			case err == nil && len(completions) == 1 && completions[0] == "5 WR_FLUSH_ERR":
				return "flushed"
			}
			return "?"
		}
		err := k.qp.PostSend(&verbs.SendWR{WRID: 5, Opcode: verbs.OpSend}, Refs{})
		if got := outcome(err, poll(k.SendCQ)); got != want.send {
			t.Errorf("%v: a send is %s, want %s (%v)", state, got, want.send, err)
		}
		err = k.qp.PostRecv(&verbs.RecvWR{WRID: 5})
		if got := outcome(err, poll(k.RecvCQ)); got != want.recv {
			t.Errorf("%v: a receive is %s, want %s (%v)", state, got, want.recv, err)
		}
	}
}

func TestPostRejectsInvalidRequests(t *testing.T) {
	k := inState(t, verbs.QPStateRTS)
	r, _ := k.region(64, allAccess)
	one := []verbs.SGE{sge(r, 0, 8)}
	for name, c := range map[string]struct {
		wr   verbs.SendWR
		want error
	}{
		"flush":              {verbs.SendWR{Opcode: verbs.OpFlush}, verbs.ErrNotSupported},
		"atomic write":       {verbs.SendWR{Opcode: verbs.OpAtomicWrite, SGL: one}, verbs.ErrNotSupported},
		"immediate and data": {verbs.SendWR{Opcode: verbs.OpSendImm, SGL: one}, verbs.ErrNotSupported},
		"nonsense":           {verbs.SendWR{Opcode: 77}, verbs.ErrNotSupported},
		"inline read":        {verbs.SendWR{Opcode: verbs.OpRDMARead, Flags: verbs.SendInline}, verbs.ErrInvalid},
		"too much inline":    {verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendInline, Inline: make([]byte, 65)}, verbs.ErrInvalid},
		"too many pieces":    {verbs.SendWR{Opcode: verbs.OpSend, SGL: make([]verbs.SGE, 5)}, verbs.ErrInvalid},
		"short atomic":       {verbs.SendWR{Opcode: verbs.OpAtomicFetchAdd, SGL: []verbs.SGE{sge(r, 0, 4)}}, verbs.ErrInvalid},
		"no window":          {verbs.SendWR{Opcode: verbs.OpBindMW}, verbs.ErrInvalid},
		"4 GB":               {verbs.SendWR{Opcode: verbs.OpSend, SGL: []verbs.SGE{{Length: 1 << 31}, {Length: 1 << 31}}}, verbs.ErrInvalid},
	} {
		must.Fail(t, name, k.qp.PostSend(&c.wr, Refs{}), c.want)
	}
	for i := range 64 {
		k.send(verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpSend})
	}
	must.Fail(t, "a full queue", k.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend}, Refs{}), verbs.ErrNoMemory)
	none := asInitiator(t, newHost(t), ConnParam{IRD: 4}, "5002000400000004")
	for _, op := range []verbs.WROpcode{verbs.OpRDMARead, verbs.OpAtomicFetchAdd} {
		must.Fail(t, fmt.Sprintf("%v where ORD is 0", op), none.qp.PostSend(&verbs.SendWR{Opcode: op, SGL: one}, Refs{}), verbs.ErrInvalid)
	}
}

func TestCreateQPRejectsInvalidQueues(t *testing.T) {
	h := newHost(t)
	for name, c := range map[string]iwarp.QueueConfig{
		"no CQ":     {PD: h.pd},
		"no domain": {PD: 99, SendCQ: h.SendCQ, RecvCQ: h.RecvCQ},
		"too deep":  {PD: h.pd, SendCQ: h.SendCQ, RecvCQ: h.RecvCQ, Caps: verbs.QPCaps{MaxSendWR: 1 << 20}},
	} {
		must.Fail(t, name, must.Err(h.nic.CreateQP(c)), verbs.ErrInvalid)
	}
}

func TestDestroyQPClosesConnection(t *testing.T) {
	a, b := newHost(t), newHost(t)
	p := connect(t, a, b)
	a.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpSend})
	must.Do(t, a.nic.DestroyQP(a.qp))
	p.run()
	a.wantSends()
	if p.ca.State() != Closed || p.cb.State() != Closed || p.ca.QP() != nil {
		t.Errorf("%v, %v", p.ca.State(), p.cb.State())
	}
	b.wantState(verbs.QPStateErr)
	must.Fail(t, "destroyed again", a.nic.DestroyQP(a.qp), verbs.ErrInvalid)
	must.Fail(t, "posted", a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend}, Refs{}), verbs.ErrInvalid)
	must.Fail(t, "posted", a.qp.PostRecv(&verbs.RecvWR{}), verbs.ErrInvalid)
	must.Fail(t, "modified", a.qp.Modify(0, verbs.QPAttr{}, 0), verbs.ErrInvalid)
	if err := a.nic.DestroyCQ(a.SendCQ); err != nil {
		t.Errorf("its queue is still held: %v", err)
	}
}

func TestFlushKeepsOrder(t *testing.T) {
	k := inState(t, verbs.QPStateRTS)
	r, _ := k.region(1<<17, allAccess)
	for i := range uint64(3) {
		k.recv(100+i, sge(r, 0, 64))
	}
	k.send(verbs.SendWR{WRID: 1, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
	k.send(verbs.SendWR{WRID: 2, Opcode: verbs.OpSend})
	k.send(verbs.SendWR{WRID: 3, Opcode: verbs.OpRDMARead, SGL: []verbs.SGE{sge(r, 0, 8)}})
	k.send(verbs.SendWR{WRID: 4, Opcode: verbs.OpRDMAWrite, SGL: []verbs.SGE{sge(r, 0, 1<<17)}})
	k.send(verbs.SendWR{WRID: 5, Opcode: verbs.OpSend})
	k.maxWrite = 5000
	k.write(0)
	half := segment(wire.OpSend, 1, []byte("half"))
	half.Control.Last = false
	k.sendSegment(half)
	g := segment(wire.OpTerminate, 1, nil)
	g.Terminate.Error = wire.TermOpUnspecified
	k.sendSegment(g)
	k.wantSends("1 WR_FLUSH_ERR", "2 WR_FLUSH_ERR", "3 WR_FLUSH_ERR", "4 WR_FLUSH_ERR", "5 WR_FLUSH_ERR")
	k.wantRecvs("100 WR_FLUSH_ERR", "101 WR_FLUSH_ERR", "102 WR_FLUSH_ERR")
}
