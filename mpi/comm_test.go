package mpi

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Overlapping communicators have distinct contexts in any order of creation, and contexts of freed
// communicators are not reused.
func TestOverlappingCommsHaveDistinctContexts(t *testing.T) {
	inAllConfigurations(t, 4, func(w *World) error {
		var comms []*Comm
		low := must.Get(w.Split(w.Rank()/2, 0))(t)
		comms = append(comms, low)
		if w.Rank() < 2 { // only these ranks create more
			for range 3 {
				d := must.Get(low.Dup())(t)
				comms = append(comms, d)
			}
			must.Do(t, comms[2].Free())
		}
		high := must.Get(w.Dup())(t)
		if w.Rank() >= 2 { // ranks with fewer communicators do not reuse contexts of the others
			for range 4 {
				d := must.Get(low.Dup())(t)
				comms = append(comms, d)
			}
		}
		cross := must.Get(high.Split(w.Rank()%2, 0))(t)
		comms = append(comms, w.Comm, w.Self(), high, cross)
		seen := make(map[uint32]bool)
		for _, c := range comms {
			if seen[c.context] || c.context&collective != 0 {
				return fmt.Errorf("two communicators have the context %d", c.context)
			}
			seen[c.context] = true
		}
		for _, c := range comms {
			if c.freed {
				if err := c.Barrier(); !errors.Is(err, ErrComm) {
					return fmt.Errorf("a barrier of a freed communicator: %v", err)
				}
				continue
			}
			must.Do(t, c.Barrier())
		}
		if err := w.Free(); !errors.Is(err, ErrComm) {
			return fmt.Errorf("Free of the world: %v", err)
		}
		return nil
	})
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	f := newFabric(t, 2, 1, false)
	f.succeed(Options{}, func(w *World) error {
		b := make([]byte, 4)
		ireq := func(_ *Request, err error) error { return err }
		status := func(_ Status, err error) error { return err }
		for i, c := range []struct {
			err, want error
		}{
			{w.Send(b, 2, 0), ErrRank},
			{w.Send(b, AnySource, 0), ErrRank},
			{w.Send(b, 0, -1), ErrTag},
			{w.Ssend(b, 0, TagMax+1), ErrTag},
			{w.Bsend(b, -5, 0), ErrRank},
			{status(w.Recv(b, 2, 0)), ErrRank},
			{status(w.Recv(b, Undefined, 0)), ErrRank},
			{status(w.Recv(b, 0, -2)), ErrTag},
			{ireq(w.Irecv(b, 7, 0)), ErrRank},
			{ireq(w.Isend(b, 0, AnyTag)), ErrTag},
			{ireq(w.SendInit(b, 9, 0)), ErrRank},
			{ireq(w.RecvInit(b, 0, -9)), ErrTag},
			{status(w.Probe(4, 0)), ErrRank},
			{status(w.Sendrecv(b, 0, 0, b, 0, -7)), ErrTag},
			{w.Bcast(b, 2), ErrRank},
			{w.Allreduce(b, Type(99), Sum), ErrType},
			{w.Allreduce(b, Int32, Replace), ErrOp},
			{w.Allreduce(b, Float32, BXor), ErrOp},
			{w.Allreduce(b, Int64, Sum), ErrArg},
			{w.Allgather(b, b), ErrArg},
			{w.Alltoall(b[:3], b[:3]), ErrArg},
			{w.AttachBuffer(-1), ErrArg},
			{(*Comm)(nil).Send(b, 0, 0), ErrComm},
			{(*Request)(nil).Start(), ErrRequest},
			{(*Request)(nil).Cancel(), ErrRequest},
			{(*Request)(nil).Free(), ErrRequest},
			{status((*Message)(nil).Recv(b)), ErrRequest},
		} {
			var e *Error
			if !errors.Is(c.err, c.want) || !errors.As(c.err, &e) {
				t.Errorf("call %d: %v, want %v", i, c.err, c.want)
			}
		}
		if _, err := w.Split(-1, 0); !errors.Is(err, ErrArg) {
			t.Errorf("Split with a negative colour: %v", err)
		}
		r, err := w.Isend(nil, w.Rank(), 1)
		must.Do(t, errors.Join(err, status(w.Recv(nil, w.Rank(), 1)), status(r.Wait())))
		if err := r.Start(); !errors.Is(err, ErrRequest) {
			t.Errorf("Start of a nonpersistent request: %v", err)
		}
		if err := r.Cancel(); !errors.Is(err, ErrRequest) {
			t.Errorf("Cancel of an inactive request: %v", err)
		}
		q := must.Get(w.Ibarrier())(t)
		if err := q.Cancel(); !errors.Is(err, ErrRequest) {
			t.Errorf("Cancel of an Ibarrier: %v", err)
		}
		must.Get(q.Wait())(t)
		r = must.Get(w.Irecv(nil, w.Rank(), 1))(t)
		must.Do(t, w.Send(b, w.Rank(), 1))
		if _, err := WaitAll([]*Request{nil, r}); !errors.Is(err, ErrTruncate) {
			t.Errorf("WaitAll of a truncated message: %v", err)
		}
		return nil
	})
}

func TestErrorsAreFatalAbortsAllRanks(t *testing.T) {
	for _, mode := range []ProgressMode{Polling, Background} {
		f := newFabric(t, 3, 1, false)
		errs := f.run(Options{Progress: mode}, func(w *World) error {
			if w.Rank() == 1 {
				w.SetErrorHandler(ErrorsAreFatal)
				return errors.Join(w.Send(nil, 9, 0), errors.New("Send returned"))
			}
			return must.Err(w.Recv(nil, 1, 0))
		})
		var aborted *AbortError
		if !errors.As(errs[1], &aborted) && errs[1] != errKilled || errs[0] != errKilled || errs[2] != errKilled || !strings.HasPrefix(f.aborted, "rank 1, code 1: mpi: Send at rank 1") {
			t.Errorf("%v: ranks end with %v; %q", mode, errs, f.aborted)
		}
	}
}
