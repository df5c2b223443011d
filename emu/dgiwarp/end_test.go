package dgiwarp

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/verbs"
)

// end is one side of a conversation. Of its memory, the first half is for what it
// sends and for peers to write to, the second for receives.
type end struct {
	dev *Device
	pd  verbs.PD
	ch  verbs.CompChannel
	cq  verbs.CQ
	mr  verbs.MR
	buf []byte
	qp  verbs.QP
	ahs map[netip.AddrPort]verbs.AH
}

const (
	endBytes = 1 << 18
	recvAt   = endBytes / 2
)

const fullAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// newEnd makes a queue pair that is ready.
func newEnd(d *Device, opt QPOptions) (*end, error) {
	e := &end{dev: d, buf: make([]byte, endBytes), ahs: map[netip.AddrPort]verbs.AH{}}
	var err error
	if e.pd, err = d.AllocPD(); err != nil {
		return nil, err
	}
	if e.ch, err = d.CreateCompChannel(); err != nil {
		return nil, err
	}
	if e.cq, err = d.CreateCQ(verbs.CQInit{Depth: 2048, Channel: e.ch}); err != nil {
		return nil, err
	}
	if e.mr, err = e.pd.RegMR(verbs.MRInit{Buf: e.buf, Access: fullAccess}); err != nil {
		return nil, err
	}
	e.qp, err = d.CreateQPWith(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 1024, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64},
	}, opt)
	if err != nil {
		return nil, err
	}
	return e, ready(e.qp)
}

// mustEnd is newEnd outside of programs.
func mustEnd(t testing.TB, d *Device, opt QPOptions) *end {
	t.Helper()
	e, err := newEnd(d, opt)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// ready takes a queue pair to RTS.
func ready(q verbs.QP) error {
	for _, s := range []struct {
		attr verbs.QPAttr
		mask verbs.QPAttrMask
	}{
		{verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: testKey}, verbs.QPAttrState | verbs.QPAttrPort | verbs.QPAttrPKeyIndex | verbs.QPAttrQKey},
		{verbs.QPAttr{State: verbs.QPStateRTR}, verbs.QPAttrState},
		{verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState | verbs.QPAttrSQPSN},
	} {
		if err := q.Modify(s.attr, s.mask); err != nil {
			return err
		}
	}
	return nil
}

// where is how others address the end.
func (e *end) where() Source {
	return Source{netip.AddrPortFrom(e.dev.cfg.Addrs[0], e.dev.nic.Config().Port), e.qp.QPN()}
}

// to is where a work request goes.
func (e *end) to(s Source) (verbs.UD, error) {
	ah, ok := e.ahs[s.Addr]
	if !ok {
		var err error
		if ah, err = e.pd.CreateAH(AddressOf(s.Addr)); err != nil {
			return verbs.UD{}, err
		}
		e.ahs[s.Addr] = ah
	}
	return verbs.UD{AH: ah, QPN: s.QPN, QKey: testKey}, nil
}

// post posts a request to a peer, signaled.
func (e *end) post(to Source, wr verbs.SendWR) (err error) {
	if wr.UD, err = e.to(to); err != nil {
		return err
	}
	wr.Flags |= verbs.SendSignaled
	_, err = e.qp.PostSend([]verbs.SendWR{wr})
	return err
}

// send sends n bytes of the end's memory from off on.
func (e *end) send(to Source, off, n int) error {
	return e.post(to, verbs.SendWR{WRID: sendID, Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(e.mr, off, n)}})
}

// sendID tells completions of sends from those of receives, which are known by
// where in memory they are.
const sendID = 1 << 40

// recv posts a receive of n bytes behind the address area, off bytes into the
// memory for that.
func (e *end) recv(off, n int) error {
	at := recvAt + off
	_, err := e.qp.PostRecv([]verbs.RecvWR{{WRID: uint64(at), SGL: []verbs.SGE{verbs.SGEOf(e.mr, at, verbs.GRHLen+n)}}})
	return err
}

// message is a received message.
func (e *end) message(wc *verbs.WC) (Source, []byte, error) {
	b := e.buf[wc.WRID:][:wc.ByteLen]
	s, err := SourceOf(wc, b)
	return s, b[verbs.GRHLen:], err
}

// complete waits by event for one completion.
func (e *end) complete() (verbs.WC, error) {
	var wc [1]verbs.WC
	_, err := e.nextWC(true, wc[:], 20*time.Second)
	return wc[0], err
}

// succeed is complete for requests that must succeed.
func (e *end) succeed() (verbs.WC, error) {
	wc, err := e.complete()
	if err == nil && wc.Status != verbs.WCSuccess {
		err = fmt.Errorf("%v completed with %v", wc.Opcode, wc.Status)
	}
	return wc, err
}

// nextWC returns the next completions: by polling, or asleep until an event.
func (e *end) nextWC(block bool, wc []verbs.WC, timeout time.Duration) (int, error) {
	for {
		n, err := e.cq.Poll(wc)
		if err != nil || n > 0 {
			return n, err
		}
		if !block {
			continue
		}
		if err := e.cq.ReqNotify(false); err != nil {
			return 0, err
		}
		if n, err = e.cq.Poll(wc); err != nil || n > 0 {
			return n, err
		}
		if _, err := e.ch.Wait(timeout); err != nil {
			return 0, err
		}
	}
}

// quiet reports a completion where there must be none for a while.
func (e *end) quiet(d time.Duration) error {
	var wc [1]verbs.WC
	if n, _ := e.nextWC(true, wc[:], d); n > 0 {
		return fmt.Errorf("%v completed with %v, where nothing should", wc[0].Opcode, wc[0].Status)
	}
	return nil
}
