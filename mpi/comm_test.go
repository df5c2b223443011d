package mpi_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
)

// Overlapping communicators do not receive each other's messages in any order of creation, and a
// freed communicator receives none of later ones.
func TestOverlappingCommsHaveDistinctContexts(t *testing.T) {
	inAllConfigurations(t, 4, func(w *mpi.World) error {
		var comms []*mpi.Comm
		var freed *mpi.Comm
		var pending *mpi.Request // of freed
		low := must.Get(w.Split(w.Rank()/2, 0))(t)
		comms = append(comms, low)
		if w.Rank() < 2 { // only these ranks create more
			for range 3 {
				d := must.Get(low.Dup())(t)
				comms = append(comms, d)
			}
			freed = comms[2]
			comms = slices.Delete(comms, 2, 3)
			pending = must.Get(freed.Irecv(make([]byte, 1), mpi.AnySource, mpi.AnyTag))(t)
			must.Do(t, freed.Free())
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
		var sends []*mpi.Request
		for i, c := range comms {
			sends = append(sends, must.Get(c.Isend([]byte{byte(i)}, c.Rank(), 1))(t))
			must.Do(t, c.Barrier())
		}
		for i, c := range slices.Backward(comms) {
			got := make([]byte, 1)
			must.Get(c.Recv(got, mpi.AnySource, mpi.AnyTag))(t)
			if int(got[0]) != i {
				return fmt.Errorf("communicator %d of %d received a message of communicator %d", i, len(comms), got[0])
			}
		}
		must.Get(mpi.WaitAll(sends))(t)
		if freed != nil {
			must.Fail(t, "a barrier of a freed communicator", freed.Barrier(), mpi.ErrComm)
			if _, done, err := pending.Test(); done || err != nil {
				return fmt.Errorf("the receive of a freed communicator is complete: %v, %v", done, err)
			}
		}
		if err := w.Free(); !errors.Is(err, mpi.ErrComm) {
			return fmt.Errorf("Free of the world: %v", err)
		}
		return nil
	})
}

func TestInvalidArgumentsAreRejected(t *testing.T) {
	f := newFabric(t, 2, 1, false)
	f.succeed(mpi.Options{}, func(w *mpi.World) error {
		b := make([]byte, 4)
		ireq := func(_ *mpi.Request, err error) error { return err }
		status := func(_ mpi.Status, err error) error { return err }
		for i, c := range []struct {
			err, want error
		}{
			{w.Send(b, 2, 0), mpi.ErrRank},
			{w.Send(b, mpi.AnySource, 0), mpi.ErrRank},
			{w.Send(b, 0, -1), mpi.ErrTag},
			{w.Ssend(b, 0, mpi.TagMax+1), mpi.ErrTag},
			{w.Bsend(b, -5, 0), mpi.ErrRank},
			{status(w.Recv(b, 2, 0)), mpi.ErrRank},
			{status(w.Recv(b, mpi.Undefined, 0)), mpi.ErrRank},
			{status(w.Recv(b, 0, -2)), mpi.ErrTag},
			{ireq(w.Irecv(b, 7, 0)), mpi.ErrRank},
			{ireq(w.Isend(b, 0, mpi.AnyTag)), mpi.ErrTag},
			{ireq(w.SendInit(b, 9, 0)), mpi.ErrRank},
			{ireq(w.RecvInit(b, 0, -9)), mpi.ErrTag},
			{status(w.Probe(4, 0)), mpi.ErrRank},
			{status(w.Sendrecv(b, 0, 0, b, 0, -7)), mpi.ErrTag},
			{w.Bcast(b, 2), mpi.ErrRank},
			{w.Allreduce(mpi.InPlace, b, mpi.Type(99), mpi.Sum), mpi.ErrType},
			{w.Allreduce(mpi.InPlace, b, mpi.Int32, mpi.Replace), mpi.ErrOp},
			{w.Allreduce(mpi.InPlace, b, mpi.Float32, mpi.BXor), mpi.ErrOp},
			{w.Allreduce(mpi.InPlace, b, mpi.Int64, mpi.Sum), mpi.ErrArg},
			{w.Allreduce(b, b, mpi.Byte, mpi.Sum), mpi.ErrArg},
			{w.Allreduce(b, b[1:], mpi.Byte, mpi.Sum), mpi.ErrArg},
			{w.Allgather(b, b), mpi.ErrArg},
			{w.Alltoall(b[:3], b[:3]), mpi.ErrArg},
			{w.AttachBuffer(-1), mpi.ErrArg},
			{(*mpi.Comm)(nil).Send(b, 0, 0), mpi.ErrComm},
			{(*mpi.Request)(nil).Start(), mpi.ErrRequest},
			{(*mpi.Request)(nil).Cancel(), mpi.ErrRequest},
			{(*mpi.Request)(nil).Free(), mpi.ErrRequest},
			{status((*mpi.Message)(nil).Recv(b)), mpi.ErrRequest},
		} {
			var e *mpi.Error
			if !errors.Is(c.err, c.want) || !errors.As(c.err, &e) {
				t.Errorf("call %d: %v, want %v", i, c.err, c.want)
			}
		}
		if _, err := w.Split(-1, 0); !errors.Is(err, mpi.ErrArg) {
			t.Errorf("Split with a negative colour: %v", err)
		}
		r, err := w.Isend(nil, w.Rank(), 1)
		must.Do(t, errors.Join(err, status(w.Recv(nil, w.Rank(), 1)), status(r.Wait())))
		if err := r.Start(); !errors.Is(err, mpi.ErrRequest) {
			t.Errorf("Start of a nonpersistent request: %v", err)
		}
		if err := r.Cancel(); !errors.Is(err, mpi.ErrRequest) {
			t.Errorf("Cancel of an inactive request: %v", err)
		}
		q := must.Get(w.Ibarrier())(t)
		if err := q.Cancel(); !errors.Is(err, mpi.ErrRequest) {
			t.Errorf("Cancel of an Ibarrier: %v", err)
		}
		must.Get(q.Wait())(t)
		r = must.Get(w.Irecv(nil, w.Rank(), 1))(t)
		must.Do(t, w.Send(b, w.Rank(), 1))
		if _, err := mpi.WaitAll([]*mpi.Request{nil, r}); !errors.Is(err, mpi.ErrTruncate) {
			t.Errorf("WaitAll of a truncated message: %v", err)
		}
		return nil
	})
}

func TestErrorsAreFatalAbortsAllRanks(t *testing.T) {
	for _, mode := range []mpi.ProgressMode{mpi.Polling, mpi.Background} {
		f := newFabric(t, 3, 1, false)
		errs := f.run(mpi.Options{Progress: mode}, func(w *mpi.World) error {
			if w.Rank() == 1 {
				w.SetErrorHandler(mpi.ErrorsAreFatal)
				return errors.Join(w.Send(nil, 9, 0), errors.New("Send returned"))
			}
			return must.Err(w.Recv(nil, 1, 0))
		})
		var aborted *mpi.AbortError
		if !errors.As(errs[1], &aborted) && errs[1] != errKilled || errs[0] != errKilled || errs[2] != errKilled || !strings.HasPrefix(f.aborted, "rank 1, code 1: mpi: Send at rank 1") {
			t.Errorf("%v: ranks end with %v; %q", mode, errs, f.aborted)
		}
	}
}
