package mpi

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestProbe(t *testing.T) {
	inAllConfigurations(t, 3, func(w *World) error {
		if w.Rank() > 0 {
			for id, n := range sizes {
				must.Do(t, w.Send(testMessage(id, n), 0, 10+id))
			}
			return w.Send(nil, 0, 5)
		}
		if _, found, err := w.Iprobe(AnySource, 99); found || err != nil {
			return fmt.Errorf("a message of no one's is there: %v, %v", found, err)
		}
		for range 2 * len(sizes) {
			st := must.Get(w.Probe(AnySource, AnyTag))(t)
			again, found, err := w.Iprobe(st.Source, st.Tag)
			if err != nil || !found || again != st {
				return fmt.Errorf("a probe found %+v, and then %+v, %v, %v", st, again, found, err)
			}
			if st.Tag == 5 {
				return fmt.Errorf("the last message of rank %d is the first", st.Source)
			}
			buf := make([]byte, st.Count)
			got, err := w.Recv(buf, st.Source, st.Tag)
			must.Do(t, errors.Join(err, checkMessage(buf, got, st, st.Tag-10)))
			if st.Tag == 10+len(sizes)-1 {
				must.Get(w.Recv(nil, st.Source, 5))(t)
			}
		}
		return nil
	})
}

// A message of Mprobe is received through its handle, although a matching receive is
// posted in between.
func TestMprobedMessageGoesOnlyToItsHandle(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		for id, n := range sizes {
			if w.Rank() == 0 {
				a := must.Get(w.Isend(testMessage(id, n), 1, 3))(t)
				b := must.Get(w.Isend(testMessage(id+100, n), 1, 3))(t)
				must.Get(WaitAll([]*Request{a, b}))(t)
				continue
			}
			var m *Message
			var st Status
			for found := false; !found; {
				var err error
				if m, st, found, err = w.Improbe(0, AnyTag); err != nil {
					return err
				}
			}
			second := make([]byte, n)
			r, err := w.Irecv(second, 0, 3)
			if err != nil {
				return err
			}
			first := make([]byte, n)
			var got Status
			if id%2 == 0 {
				got, err = m.Recv(first)
			} else {
				var q *Request
				if q, err = m.Irecv(first); err == nil {
					got, err = q.Wait()
				}
			}
			must.Do(t, errors.Join(err, checkMessage(first, got, st, id)))
			got = must.Get(r.Wait())(t)
			must.Do(t, checkMessage(second, got, st, id+100))
			if _, err := m.Recv(first); !errors.Is(err, ErrRequest) {
				return fmt.Errorf("a message was received twice: %v", err)
			}
		}
		return nil
	})
}

func TestPersistentRequests(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		must.Do(t, w.AttachBuffer(1<<13))
		const rounds = 4
		for _, n := range sizes {
			bufs := make([][]byte, 4)
			reqs := make([]*Request, 4)
			for i := range bufs {
				bufs[i] = make([]byte, n)
				init := []func([]byte, int, int) (*Request, error){w.SendInit, w.SsendInit, w.BsendInit, w.RsendInit}[i]
				if w.Rank() == 1 {
					init = w.RecvInit
				}
				reqs[i] = must.Get(init(bufs[i], 1-w.Rank(), i))(t)
				if st, done, err := reqs[i].Test(); st != emptyStatus || !done || err != nil || reqs[i].Active() {
					return fmt.Errorf("one that was not started: %+v, %v, %v", st, done, err)
				}
			}
			for round := range rounds {
				for i := range bufs {
					if w.Rank() == 0 {
						copy(bufs[i], testMessage(round*4+i, n))
					}
				}
				if w.Rank() == 1 {
					must.Do(t, StartAll(reqs))
				}
				must.Do(t, w.Barrier())
				if w.Rank() == 0 {
					must.Do(t, StartAll(reqs))
					if err := reqs[0].Start(); !errors.Is(err, ErrRequest) {
						return fmt.Errorf("one that is active was started: %v", err)
					}
				}
				all := must.Get(WaitAll(reqs))(t)
				for i := range bufs {
					if w.Rank() == 1 {
						must.Do(t, checkMessage(bufs[i], all[i], Status{0, i, n, false}, round*4+i))
					}
				}
			}
			for _, r := range reqs {
				must.Do(t, r.Free())
				if err := r.Start(); !errors.Is(err, ErrRequest) {
					return fmt.Errorf("one that was freed was started: %v", err)
				}
			}
		}
		return w.DetachBuffer()
	})
}

func TestCancel(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		buf, other := make([]byte, 1000), make([]byte, 1000)
		if w.Rank() == 1 {
			must.Do(t, w.Barrier())
			return w.Send(testMessage(1, 1000), 0, 1)
		}
		r := must.Get(w.Irecv(buf, 1, 1))(t)
		must.Do(t, r.Cancel())
		if st, err := r.Wait(); err != nil || !st.Cancelled {
			return fmt.Errorf("cancelled: %+v, %v", st, err)
		}
		if err := r.Cancel(); !errors.Is(err, ErrRequest) {
			return fmt.Errorf("one that is inactive was cancelled: %v", err)
		}
		r = must.Get(w.Irecv(other, 1, 1))(t)
		must.Do(t, w.Barrier())
		st, err := r.Wait()
		must.Do(t, errors.Join(err, checkMessage(other, st, Status{1, 1, 1000, false}, 1)))
		for _, b := range buf {
			if b != 0 {
				return errors.New("a receive that was cancelled has received")
			}
		}
		return nil
	})
}

// When Cancel races with an arriving message, the receive is either completed or
// cancelled, and no message is lost.
func TestCancelRacingWithArrival(t *testing.T) {
	cancelled := 0
	inAllConfigurations(t, 2, func(w *World) error {
		const rounds = 10
		for i := range rounds {
			if w.Rank() == 1 {
				w.Compute(time.Duration(i) * time.Microsecond)
				must.Do(t, w.Send(testMessage(i, 200), 0, 1))
				continue
			}
			buf := make([]byte, 200)
			r := must.Get(w.Irecv(buf, 1, 1))(t)
			w.Compute(5 * time.Microsecond)
			must.Do(t, r.Cancel())
			st := must.Get(r.Wait())(t)
			if st.Cancelled {
				cancelled++
				st = must.Get(w.Recv(buf, 1, 1))(t)
			}
			must.Do(t, checkMessage(buf, st, Status{1, 1, 200, false}, i))
		}
		return nil
	})
	if cancelled == 0 {
		t.Error("nothing was cancelled")
	}
}
