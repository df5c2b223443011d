package mpi

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/window"
)

const eagerLimit = 64

// configurations are the options that every test program must work with.
func configurations() map[string]Options {
	all := make(map[string]Options)
	for _, protocol := range []p2p.Protocol{p2p.RGET, p2p.RPUT, p2p.Speculative} {
		for _, mode := range []ProgressMode{Polling, Background} {
			o := Options{Progress: mode, P2P: p2p.Config{Protocol: protocol, EagerLimit: eagerLimit}}
			o.P2P.Adaptive = mode == Background
			o.Window = window.Config{Chunk: 16, InFlight: 3}
			all[fmt.Sprintf("%v %v", protocol, mode)] = o
		}
	}
	return all
}

// inAllConfigurations runs a program in all configurations, with several seeds in virtual
// time and with goroutines in real time.
func inAllConfigurations(t *testing.T, size int, program func(*World) error) {
	t.Helper()
	runConfigurations(t, configurations(), size, program)
}

// inBothProgressModes does the same for programs that do not depend on the rendezvous
// protocol.
func inBothProgressModes(t *testing.T, size int, program func(*World) error) {
	t.Helper()
	all := configurations()
	runConfigurations(t, map[string]Options{"polling": all["rget polling"], "background": all["speculative background"]}, size, program)
}

func runConfigurations(t *testing.T, configurations map[string]Options, size int, program func(*World) error) {
	t.Helper()
	for name, o := range configurations {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				f := newFabric(t, size, seed, false)
				f.lacksCredits, f.atomics = seed == 1, seed != 2
				f.succeed(o, program)
			}
			f := newFabric(t, size, 9, true)
			f.succeed(o, program)
		})
	}
}

// sizes are an empty message, two eager ones up to the limit, and two for rendezvous.
var sizes = []int{0, 7, eagerLimit, eagerLimit + 1, 1000}

// testMessage returns n bytes that depend on id.
func testMessage(id, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id*37 + i*5 + i>>8)
	}
	return b
}

// checkMessage compares a received message and its status with the expected ones.
func checkMessage(got []byte, st Status, want Status, id int) error {
	if st != want || !bytes.Equal(got[:want.Count], testMessage(id, want.Count)) {
		return fmt.Errorf("got %+v with %x, want %+v with message %d", st, got[:min(len(got), 8)], want, id)
	}
	return nil
}

func TestBlockingModes(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		must.Do(t, w.AttachBuffer(4096))
		for id, n := range sizes {
			for mode, send := range []func([]byte, int, int) error{w.Send, w.Ssend, w.Bsend, w.Rsend} {
				buf := make([]byte, 1000)
				if w.Rank() == 0 {
					must.Do(t, send(testMessage(id, n), 1, mode))
					continue
				}
				st, err := w.Recv(buf, 0, mode)
				must.Do(t, errors.Join(err, checkMessage(buf, st, Status{Source: 0, Tag: mode, Count: n}, id)))
			}
		}
		return w.DetachBuffer()
	})
}

func TestNonBlockingModes(t *testing.T) {
	inAllConfigurations(t, 3, func(w *World) error {
		must.Do(t, w.AttachBuffer(1<<14))
		var reqs []*Request
		var bufs [][]byte
		var want []Status
		for from := range w.Size() {
			for id, n := range sizes {
				for mode := range 4 {
					buf := make([]byte, n+1)
					r := must.Get(w.Irecv(buf, from, 10*id+mode))(t)
					reqs, bufs = append(reqs, r), append(bufs, buf)
					want = append(want, Status{Source: from, Tag: 10*id + mode, Count: n})
				}
			}
		}
		if err := w.Barrier(); err != nil { // for ready sends
			return err
		}
		received := len(reqs)
		for to := range w.Size() {
			for id, n := range sizes {
				for mode, send := range []func([]byte, int, int) (*Request, error){w.Isend, w.Issend, w.Ibsend, w.Irsend} {
					r := must.Get(send(testMessage(10*id+mode, n), to, 10*id+mode))(t)
					reqs = append(reqs, r)
				}
			}
		}
		all := must.Get(WaitAll(reqs))(t)
		for i := range received {
			must.Do(t, checkMessage(bufs[i], all[i], want[i], want[i].Tag))
		}
		if n := w.Stats().P2P.NotReady; n != 0 {
			return fmt.Errorf("%d ready sends found no receive", n)
		}
		return w.DetachBuffer()
	})
}

// Messages between two ranks do not overtake each other, whatever their sizes and the
// wildcards of the receives.
func TestMessagesDoNotOvertake(t *testing.T) {
	inAllConfigurations(t, 4, func(w *World) error {
		const each = 30
		if w.Rank() > 0 {
			var reqs []*Request
			for i := range each {
				n := 1 + (i*29)%100
				r := must.Get(w.Isend(testMessage(i, n), 0, i%2))(t)
				reqs = append(reqs, r)
			}
			_, err := WaitAll(reqs)
			return err
		}
		next := make(map[[2]int]int) // by source and tag: how many have come
		for i := range each * (w.Size() - 1) {
			buf := make([]byte, 100)
			source, tag := AnySource, AnyTag
			if i%3 == 1 { // one that must come, for not all of its kind have
				for s := 1; s < w.Size(); s++ {
					if next[[2]int{s, i % 2}] < each/2 {
						source, tag = s, i%2
					}
				}
			}
			st := must.Get(w.Recv(buf, source, tag))(t)
			k := [2]int{st.Source, st.Tag}
			id := 2*next[k] + st.Tag
			next[k]++
			if err := checkMessage(buf, st, Status{Source: st.Source, Tag: st.Tag, Count: 1 + (id*29)%100}, id); err != nil {
				return fmt.Errorf("message %d of rank %d with tag %d: %w", id, st.Source, st.Tag, err)
			}
		}
		return nil
	})
}

func TestTruncation(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		for id, n := range sizes[1:] {
			if w.Rank() == 0 {
				must.Do(t, w.Ssend(testMessage(id, n), 1, 5))
				continue
			}
			buf := bytes.Repeat([]byte{0xaa}, n)
			st, err := w.Recv(buf[:n-1], 0, 5)
			if !errors.Is(err, ErrTruncate) || st.Count != n-1 || buf[n-1] != 0xaa || !bytes.Equal(buf[:n-1], testMessage(id, n)[:n-1]) {
				return fmt.Errorf("%d bytes for %d: %+v, %v", n, n-1, st, err)
			}
			var e *Error
			if !errors.As(err, &e) || e.Op != "Recv" || e.Rank != 1 || e.Comm != "world" {
				return fmt.Errorf("the error is %#v", err)
			}
		}
		return nil
	})
}

// A synchronous send does not complete before its receive is posted; a small standard send
// does.
func TestSynchronousSendWaits(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		for _, n := range sizes {
			if w.Rank() == 0 {
				r := must.Get(w.Issend(testMessage(1, n), 1, 1))(t)
				for range 20 {
					if _, done, err := r.Test(); done || err != nil {
						return fmt.Errorf("a synchronous send of %d bytes is done: %v, %v", n, done, err)
					}
				}
				must.Do(t, w.Send(nil, 1, 2))
				must.Get(r.Wait())(t)
				continue
			}
			must.Get(w.Recv(nil, 0, 2))(t)
			buf := make([]byte, n)
			must.Get(w.Recv(buf, 0, 1))(t)
		}
		return nil
	})
}

func TestReadySendWithoutReceiveIsCounted(t *testing.T) {
	f := newFabric(t, 2, 1, false)
	f.succeed(Options{}, func(w *World) error {
		if w.Rank() == 0 {
			return w.Rsend([]byte("x"), 1, 1)
		}
		must.Get(w.Probe(0, 1))(t)
		if n := w.Stats().P2P.NotReady; n != 1 {
			return fmt.Errorf("%d were counted", n)
		}
		buf := make([]byte, 1)
		_, err := w.Recv(buf, 0, 1)
		return err
	})
}

func TestProcNull(t *testing.T) {
	inAllConfigurations(t, 1, func(w *World) error {
		buf := []byte("same")
		for _, send := range []func([]byte, int, int) error{w.Send, w.Ssend, w.Rsend, w.Bsend} {
			must.Do(t, send(buf, ProcNull, 3))
		}
		st, err := w.Recv(buf, ProcNull, 3)
		if err != nil || st != procNullStatus || string(buf) != "same" {
			return fmt.Errorf("%+v, %v, %q", st, err, buf)
		}
		if st, err = w.Probe(ProcNull, AnyTag); err != nil || st != procNullStatus {
			return fmt.Errorf("%+v, %v", st, err)
		}
		if st, err = w.Sendrecv(buf, ProcNull, 1, buf, ProcNull, 1); err != nil || st != procNullStatus {
			return fmt.Errorf("%+v, %v", st, err)
		}
		m, st, err := w.Mprobe(ProcNull, 1)
		if err != nil || st != procNullStatus {
			return fmt.Errorf("%+v, %v", st, err)
		}
		if st, err = m.Recv(buf); err != nil || st != procNullStatus {
			return fmt.Errorf("%+v, %v", st, err)
		}
		r := must.Get(w.Irecv(buf, ProcNull, 1))(t)
		p, err := w.RecvInit(buf, ProcNull, 1)
		must.Do(t, errors.Join(err, p.Start()))
		all, err := WaitAll([]*Request{r, p, nil})
		if err != nil || all[0] != procNullStatus || all[1] != procNullStatus || all[2] != emptyStatus {
			return fmt.Errorf("%+v, %v", all, err)
		}
		return nil
	})
}

func TestSendrecv(t *testing.T) {
	inAllConfigurations(t, 5, func(w *World) error {
		right, left := (w.Rank()+1)%5, (w.Rank()+4)%5
		for _, n := range sizes {
			buf := make([]byte, n)
			st, err := w.Sendrecv(testMessage(w.Rank(), n), right, 7, buf, left, 7)
			must.Do(t, errors.Join(err, checkMessage(buf, st, Status{left, 7, n, false}, left)))
			copy(buf, testMessage(w.Rank()+10, n))
			st, err = w.SendrecvReplace(buf, right, 8, left, AnyTag)
			must.Do(t, errors.Join(err, checkMessage(buf, st, Status{left, 8, n, false}, left+10)))
		}
		return nil
	})
}

func TestSendToSelf(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		for _, n := range sizes {
			r := must.Get(w.Isend(testMessage(1, n), w.Rank(), 1))(t)
			buf := make([]byte, n)
			st, err := w.Recv(buf, AnySource, AnyTag)
			must.Do(t, errors.Join(err, checkMessage(buf, st, Status{w.Rank(), 1, n, false}, 1)))
			must.Get(r.Wait())(t)
			s := w.Self()
			if st, err = s.Sendrecv(testMessage(2, n), 0, 2, buf, 0, 2); err != nil || s.Size() != 1 || s.Rank() != 0 || st.Source != 0 {
				return fmt.Errorf("%+v, %v", st, err)
			}
		}
		return nil
	})
}
