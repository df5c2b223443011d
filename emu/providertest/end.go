package providertest

import (
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

// NewEnd creates an End: a queue pair of this type, with its PD, CQ and 64 KiB of registered memory.
func NewEnd(t testing.TB, dev verbs.Context, typ verbs.QPType) *End {
	t.Helper()
	e := NewObjects(t, dev, 1<<16)
	e.QP = must.Get(dev.CreateQP(e.QPInit(typ)))(t)
	return e
}

// NewObjects creates an End without a queue pair: a PD, a CQ, a channel, and size registered bytes.
func NewObjects(t testing.TB, dev verbs.Context, size int) *End {
	t.Helper()
	e := &End{TB: t, Dev: dev, Buf: make([]byte, size)}
	e.PD = must.Get(dev.AllocPD())(t)
	e.Ch = must.Get(dev.CreateCompChannel())(t)
	e.CQ = must.Get(dev.CreateCQ(verbs.CQInit{Depth: 4 * queueDepth, Channel: e.Ch}))(t)
	e.MR = must.Get(e.PD.RegMR(verbs.MRInit{Buf: e.Buf, Access: FullAccess}))(t)
	return e
}

// QPInit returns attributes to create a queue pair of this type on the end's PD and CQ.
func (e *End) QPInit(typ verbs.QPType) verbs.QPInit {
	return verbs.QPInit{
		Type: typ, PD: e.PD, SendCQ: e.CQ, RecvCQ: e.CQ,
		Caps: verbs.QPCaps{MaxSendWR: queueDepth, MaxRecvWR: queueDepth, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 64},
	}
}

// block makes NextWC wait for completion events instead of polling.
const block = true

// NextWC waits for completions, stores them in wcs, and returns their number, at least one. With
// block it sleeps until a completion event, for at most timeout; otherwise it polls for ever.
func (e *End) NextWC(block bool, wcs []verbs.WC, timeout time.Duration) (int, error) {
	for {
		n, err := e.CQ.Poll(wcs)
		if err != nil || n > 0 {
			return n, err
		}
		if !block {
			continue
		}
		const solicitedOnly = false
		if err := e.CQ.ReqNotify(solicitedOnly); err != nil {
			return 0, err
		}
		// A completion before ReqNotify causes no event.
		if n, err = e.CQ.Poll(wcs); err != nil || n > 0 {
			return n, err
		}
		if _, err := e.Ch.Wait(timeout); err != nil {
			return 0, err
		}
	}
}

// AwaitWC waits for one completion and returns it. The test ends if there is none after 30 s.
func (e *End) AwaitWC() verbs.WC {
	e.Helper()
	var wc [1]verbs.WC
	must.Get(e.NextWC(block, wc[:], 30*time.Second))(e)
	return wc[0]
}

// AwaitSuccess waits for one completion, which must be a success, and returns it.
func (e *End) AwaitSuccess() verbs.WC {
	e.Helper()
	return must.Get(e.awaitSuccess())(e)
}

// ExpectWC waits for one completion, which must have the given status, and returns it.
func (e *End) ExpectWC(status verbs.WCStatus) verbs.WC {
	e.Helper()
	wc := e.AwaitWC()
	if wc.Status != status {
		e.Errorf("completed %+v, want %v", wc, status)
	}
	return wc
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

// Post posts one send request.
func (e *End) Post(wr verbs.SendWR) {
	e.Helper()
	must.Do(e, e.TryPost(wr))
}

// TryPost posts one send request, and returns the error if that fails.
func (e *End) TryPost(wr verbs.SendWR) error {
	_, err := e.QP.PostSend([]verbs.SendWR{wr})
	return err
}

// Do posts one send request, signaled, and waits until it has succeeded.
func (e *End) Do(wr verbs.SendWR) {
	e.Helper()
	wr.Flags |= verbs.SendSignaled
	e.Post(wr)
	e.AwaitSuccess()
}

// SGL returns a scatter/gather list of n bytes at an offset of the end's memory.
func (e *End) SGL(off, n int) []verbs.SGE { return []verbs.SGE{verbs.SGEOf(e.MR, off, n)} }

// Remote returns the remote address and RKey of an offset of the end's memory, for its peer.
func (e *End) Remote(off int) verbs.Remote {
	return verbs.Remote{Addr: e.MR.Addr() + uint64(off), RKey: e.MR.RKey()}
}

// ReadyUD moves a UD queue pair to RTS, with a Q_Key.
func (e *End) ReadyUD(qKey uint32) {
	e.Helper()
	attr := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: qKey}
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

// Counter returns the value of a counter of a device. It panics if the device has no such counter.
func Counter(dev verbs.Context, name string) uint64 {
	for _, c := range dev.Counters() {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no counter " + name)
}

// Fill fills n bytes of the end's memory, from offset off on, with a pattern that depends on seed,
// and returns them.
func (e *End) Fill(off, n int, seed byte) []byte {
	b := e.Buf[off : off+n]
	for i := range b {
		b[i] = seed + byte(i)*7
	}
	return b
}
