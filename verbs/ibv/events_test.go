//go:build ibverbs && linux && cgo

package ibv

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// complete flushes a receive of a new queue pair to cq.
func (b *bench) complete(cq verbs.CQ, id uint64) {
	b.Helper()
	qp := b.newQP(verbs.QPTypeRC, func(i *verbs.QPInit) { i.SendCQ, i.RecvCQ = cq, cq })
	a := verbs.QPAttr{State: verbs.QPStateInit, Port: 1}
	b.ok("to INIT", qp.Modify(a, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
	b.recv(qp, id, 0, 64)
	b.ok("to ERR", qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
}

func TestCompletionEvents(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		ch := must.Get(b.CreateCompChannel())(b.T)
		var queues [2]verbs.CQ
		for i := range queues {
			queues[i] = must.Get(b.CreateCQ(verbs.CQInit{Depth: 16, Channel: ch}))(b.T)
		}
		began := time.Now()
		_, err := ch.Wait(50 * time.Millisecond)
		b.wantErr("waiting without an event", err, verbs.ErrTimeout)
		if took := time.Since(began); took < 50*time.Millisecond {
			t.Errorf("a timeout of 50 ms after %v", took)
		}
		_, err = ch.Wait(0)
		b.wantErr("polling without an event", err, verbs.ErrTimeout)
		for _, i := range []int{1, 0, 1} {
			b.ok("arm", queues[i].ReqNotify(false))
			b.complete(queues[i], 5)
			got := must.Get(ch.Wait(testTimeout))(b.T)
			if got != queues[i] {
				t.Errorf("an event of another CQ")
			}
			if wc := b.completions(queues[i], 1)[5]; wc.Status != verbs.WCWRFlushErr {
				t.Errorf("%+v", wc)
			}
		}
		b.wantErr("closing a channel in use", ch.Close(), verbs.ErrBusy)
	})
}

func TestCloseWakesWaiters(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		closed := must.Get(b.CreateCompChannel())(b.T)
		kept := must.Get(b.CreateCompChannel())(b.T)
		ends := make(map[string]chan error)
		wait := func(what string, f func() error) {
			end := make(chan error, 1)
			ends[what] = end
			go func() { end <- f() }()
		}
		expectClosed := func(what string) {
			select {
			case err := <-ends[what]:
				b.wantErr(what, err, verbs.ErrClosed)
			case <-time.After(testTimeout):
				t.Fatalf("%s: still waiting", what)
			}
		}
		wait("the channel", func() error { _, err := closed.Wait(verbs.Forever); return err })
		wait("the other channel", func() error { _, err := kept.Wait(verbs.Forever); return err })
		wait("the device", func() error { _, err := b.WaitAsync(verbs.Forever); return err })
		time.Sleep(20 * time.Millisecond)
		b.ok("close the channel", closed.Close())
		expectClosed("the channel")
		b.ok("close the device", b.Context.Close())
		expectClosed("the other channel")
		expectClosed("the device")
		b.wantErr("closing twice", b.Context.Close(), verbs.ErrClosed)
		for what, err := range map[string]error{
			"alloc_pd": second(b.AllocPD()), "query_device": second(b.QueryDevice()), "query_port": second(b.QueryPort(1)),
			"reg_mr": second(b.pd.RegMR(verbs.MRInit{Buf: b.buf})), "poll_cq": second(b.cq.Poll(make([]verbs.WC, 1))),
			"get_cq_event": second(kept.Wait(0)), "get_async_event": second(b.WaitAsync(0)), "cm": second(b.CM()),
			"dereg_mr": b.mr.Close(), "dealloc_pd": b.pd.Close(),
		} {
			b.wantErr(what+" of a closed device", err, verbs.ErrClosed)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestAsyncEventsNameTheirObjects(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		_, err := b.WaitAsync(20 * time.Millisecond)
		b.wantErr("waiting without an event", err, verbs.ErrTimeout)
		b.needs(verbs.CapSRQ, "shared receive queues")
		srq := must.Get(b.CreateSRQ(verbs.SRQInit{PD: b.pd, MaxWR: 8, MaxSGE: 1}))(b.T)
		one, other := b.pair(verbs.QPTypeRC, func(i *verbs.QPInit) { i.SRQ = srq })
		_, err = other.PostRecv([]verbs.RecvWR{{SGL: b.sge(0, 8)}})
		b.wantErr("a receive for a queue pair with an SRQ", err, verbs.ErrInvalid)
		for id := range uint64(3) {
			b.recv(srq, id, 4096, 64)
		}
		b.ok("limit", srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQLimit))
		switch a, err := srq.Query(); {
		case errors.Is(err, verbs.ErrNotSupported): // libibverbs' siw has no such call
			b.Logf("%v", err)
		case err != nil || a.Limit != 2 || a.MaxWR < 8:
			t.Errorf("%+v, %v", a, err)
		}
		for range 2 {
			b.post(one, verbs.SendWR{WRID: 10, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: b.sge(0, 8)})
			b.completions(b.cq, 2)
		}
		for {
			e := must.Get(b.WaitAsync(testTimeout))(b.T)
			if e.Type == verbs.EventCommEst {
				continue
			}
			if e.Type != verbs.EventSRQLimitReached || e.SRQ != srq || e.QP != nil {
				t.Errorf("%+v", e)
			}
			break
		}
	})
}

func TestCloseRejectsObjectsInUse(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		pd := must.Get(b.AllocPD())(b.T)
		cq := must.Get(b.CreateCQ(verbs.CQInit{Depth: 8}))(b.T)
		qp := b.newQP(verbs.QPTypeRC, func(i *verbs.QPInit) { i.PD, i.SendCQ, i.RecvCQ = pd, cq, cq })
		b.wantErr("a domain with a queue pair", pd.Close(), verbs.ErrBusy)
		b.wantErr("a CQ with a queue pair", cq.Close(), verbs.ErrBusy)
		b.ok("close the queue pair", qp.Close())
		b.ok("close the CQ", cq.Close())
		b.ok("close the domain", pd.Close())
		b.wantErr("query_qp", second(qp.Query()), verbs.ErrClosed)
		b.wantErr("post_send", second(qp.PostSend([]verbs.SendWR{{}})), verbs.ErrClosed)
		b.wantErr("destroy_qp", qp.Close(), verbs.ErrClosed)
		b.wantErr("a queue pair of closed objects", second(b.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: pd, SendCQ: cq, RecvCQ: cq})), verbs.ErrClosed)
		b.wantErr("a queue pair without objects", second(b.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC})), verbs.ErrInvalid)
		otherContext := must.Get(Provider{}.Open(b.info.Name))(b.T)
		defer otherContext.Close()
		b.wantErr("a domain of another context", second(otherContext.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq})), verbs.ErrInvalid)
	})
}

// Goroutines create, use and close objects concurrently: the race detector and the library
// must not find an error.
func TestConcurrentCreateUseAndClose(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 10 {
					cq, err := b.CreateCQ(verbs.CQInit{Depth: 16})
					if err != nil {
						t.Error(err)
						return
					}
					qp, err := b.CreateQP(verbs.QPInit{Type: verbs.QPTypeRC, PD: b.pd, SendCQ: cq, RecvCQ: cq, Caps: verbs.QPCaps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
					if err != nil {
						t.Error(err)
						return
					}
					into := make([]verbs.WC, 4)
					var users sync.WaitGroup
					users.Go(func() {
						for {
							if _, err := cq.Poll(into); err != nil {
								return
							}
						}
					})
					users.Go(func() {
						for {
							if _, err := qp.PostSend([]verbs.SendWR{{Opcode: verbs.OpSend, SGL: b.sge(0, 1)}}); errors.Is(err, verbs.ErrClosed) {
								return
							}
						}
					})
					time.Sleep(time.Millisecond)
					if err := errors.Join(qp.Close(), cq.Close()); err != nil {
						t.Error(err)
					}
					users.Wait()
				}
			})
		}
		all.Wait()
	})
}

func TestPollReportsOverrun(t *testing.T) {
	onDevices(t, func(t *testing.T, b *bench) {
		cq := must.Get(b.CreateCQ(verbs.CQInit{Depth: 2}))(b.T)
		qp := b.newQP(verbs.QPTypeRC, func(i *verbs.QPInit) { i.SendCQ, i.RecvCQ = cq, cq })
		b.ok("to INIT", qp.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1}, verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags))
		if cq.Depth() > 12 {
			t.Skipf("%s creates CQs of depth %d for 2: too deep for 16 receives", b.info.Name, cq.Depth())
		}
		for id := range uint64(16) {
			b.recv(qp, id, 0, 64)
		}
		b.ok("to ERR", qp.Modify(verbs.QPAttr{State: verbs.QPStateErr}, verbs.QPAttrState))
		e := must.Get(b.WaitAsync(testTimeout))(b.T)
		if e.Type != verbs.EventCQErr || e.CQ != cq {
			t.Fatalf("%+v", e)
		}
		into := make([]verbs.WC, 32)
		var err error
		for n := 1; n > 0 && err == nil; {
			n, err = cq.Poll(into)
		}
		b.wantErr("a poll after the overrun", err, verbs.ErrOverrun)
	})
}
