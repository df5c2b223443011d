package providertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// FullAccess permits everything to memory except flushes.
const FullAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// queueDepth is the depth of each queue of an end.
const queueDepth = 256

// End is one side of a conversation: a queue pair with its PD, CQ, channel and memory.
// Methods end the test if a verb fails.
type End struct {
	testing.TB
	Dev verbs.Context
	PD  verbs.PD
	Ch  verbs.CompChannel
	CQ  verbs.CQ
	MR  verbs.MR
	Buf []byte
	QP  verbs.QP
}

// NewEnd creates the objects of an end.
func NewEnd(t testing.TB, dev verbs.Context, typ verbs.QPType) *End {
	t.Helper()
	e := NewObjects(t, dev, 1<<16)
	e.QP = must.Get(dev.CreateQP(e.QPInit(typ)))(t)
	return e
}

// NewObjects creates the objects of an end other than its queue pair.
func NewObjects(t testing.TB, dev verbs.Context, size int) *End {
	t.Helper()
	e := &End{TB: t, Dev: dev, Buf: make([]byte, size)}
	e.PD = must.Get(dev.AllocPD())(t)
	e.Ch = must.Get(dev.CreateCompChannel())(t)
	e.CQ = must.Get(dev.CreateCQ(verbs.CQInit{Depth: 4 * queueDepth, Channel: e.Ch}))(t)
	e.MR = must.Get(e.PD.RegMR(verbs.MRInit{Buf: e.Buf, Access: FullAccess}))(t)
	return e
}

// QPInit returns the attributes of the end's queue pair.
func (e *End) QPInit(typ verbs.QPType) verbs.QPInit {
	return verbs.QPInit{
		Type: typ, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ,
		Caps: verbs.QPCaps{MaxSendWR: queueDepth, MaxRecvWR: queueDepth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64},
	}
}

// NextWC returns the next completions: by polling, or blocked until an event.
func (e *End) NextWC(block bool, wcs []verbs.WC, timeout time.Duration) (int, error) {
	for {
		n, err := e.CQ.Poll(wcs)
		if err != nil || n > 0 {
			return n, err
		}
		if !block {
			continue
		}
		if err := e.CQ.ReqNotify(false); err != nil {
			return 0, err
		}
		if n, err = e.CQ.Poll(wcs); err != nil || n > 0 {
			return n, err
		}
		if _, err := e.Ch.Wait(timeout); err != nil {
			return 0, err
		}
	}
}

// Complete waits for one completion.
func (e *End) Complete() verbs.WC {
	e.Helper()
	var wc [1]verbs.WC
	must.Get(e.NextWC(true, wc[:], 30*time.Second))(e)
	return wc[0]
}

// Succeed is Complete for requests that must succeed.
func (e *End) Succeed() verbs.WC {
	e.Helper()
	wc := e.Complete()
	if err := failure(&wc); err != nil {
		e.Fatal(err)
	}
	return wc
}

// ExpectWC is Complete for requests that must complete with the given status.
func (e *End) ExpectWC(status verbs.WCStatus) verbs.WC {
	e.Helper()
	wc := e.Complete()
	if wc.Status != status {
		e.Errorf("completed %+v, want %v", wc, status)
	}
	return wc
}

func failure(wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess {
		return fmt.Errorf("%v completed with %v, vendor error %#x", wc.Opcode, wc.Status, wc.VendorErr)
	}
	return nil
}

// Recv posts a receive of n bytes at an offset of the end's memory.
func (e *End) Recv(off, n int) {
	e.Helper()
	must.Get(e.QP.PostRecv([]verbs.RecvWR{{SGL: e.SGL(off, n)}}))(e)
}

// Send posts a signaled send of n bytes at an offset of the end's memory.
func (e *End) Send(off, n int) {
	e.Helper()
	e.Post(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: e.SGL(off, n)})
}

// Post posts one request.
func (e *End) Post(wr verbs.SendWR) {
	e.Helper()
	must.Do(e, e.TryPost(wr))
}

// TryPost posts one request, which may fail.
func (e *End) TryPost(wr verbs.SendWR) error {
	_, err := e.QP.PostSend([]verbs.SendWR{wr})
	return err
}

// Do posts one request and waits until it has succeeded.
func (e *End) Do(wr verbs.SendWR) {
	e.Helper()
	wr.Flags |= verbs.SendSignaled
	e.Post(wr)
	e.Succeed()
}

// SGL returns n bytes at an offset of the end's memory.
func (e *End) SGL(off, n int) []verbs.SGE { return []verbs.SGE{verbs.SGEOf(e.MR, off, n)} }

// Remote returns an offset of the end's memory as its peer addresses it.
func (e *End) Remote(off int) verbs.Remote {
	return verbs.Remote{Addr: e.MR.Addr() + uint64(off), RKey: e.MR.RKey()}
}

// ReadyUD moves a UD queue pair to RTS.
func (e *End) ReadyUD(key uint32) {
	e.Helper()
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: key}
	must.Do(e, e.QP.Modify(attr, verbs.QPAttrState|verbs.QPAttrPort|verbs.QPAttrPKeyIndex|verbs.QPAttrQKey))
	e.SetState(verbs.QPStateRTR)
	must.Do(e, e.QP.Modify(verbs.QPAttr{State: verbs.QPStateRTS}, verbs.QPAttrState|verbs.QPAttrSQPSN))
}

// SetState moves the queue pair to a state that needs no attributes.
func (e *End) SetState(s verbs.QPState) {
	e.Helper()
	must.Do(e, e.QP.Modify(verbs.QPAttr{State: s}, verbs.QPAttrState))
}

// ExpectState checks the state of the queue pair.
func (e *End) ExpectState(want verbs.QPState) {
	e.Helper()
	if a := must.Get(e.QP.Query())(e); a.State != want {
		e.Errorf("the queue pair is in %v, want %v", a.State, want)
	}
}

// ExpectEvent waits for the next asynchronous event of the device and checks its type.
func (e *End) ExpectEvent(want verbs.AsyncEventType) verbs.AsyncEvent {
	e.Helper()
	ev := must.Get(e.Dev.WaitAsync(time.Second))(e)
	if ev.Type != want {
		e.Errorf("event %v, want %v", ev.Type, want)
	}
	return ev
}

// Counter returns a counter of a device, which must exist.
func Counter(dev verbs.Context, name string) uint64 {
	for _, c := range dev.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no counter " + name)
}

// Fill puts a pattern into n bytes of the end's memory and returns them.
func (e *End) Fill(off, n int, seed byte) []byte {
	b := e.Buf[off : off+n]
	for i := range b {
		b[i] = seed + byte(i)*7
	}
	return b
}
