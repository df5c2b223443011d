package mpihost_test

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/misuse"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// tracedCalls runs a program of two ranks, and returns the calls of each.
func tracedCalls(t *testing.T, program func(w *mpi.World) error) (calls [2][]*mpi.Call, err error) {
	o := mpi.Options{Misuse: misuse.New(misuse.Options{OnlyWaits: true})}
	o.OnCall = func(c *mpi.Call) { calls[c.Rank] = append(calls[c.Rank], c) }
	_, err = mpihost.InWorld(mpihost.Fabric{Ranks: 2, Seed: 1, Limit: time.Minute}, func(e *transport.Env) error { return mpi.Run(e, o, program) })
	return calls, err
}

// names returns the calls with their arguments.
func names(calls []*mpi.Call) string {
	var all []string
	for _, c := range calls {
		all = append(all, strings.TrimSpace(c.Call+" "+c.Args))
	}
	return strings.Join(all, "\n")
}

func TestCallsAreTracedWithArguments(t *testing.T) {
	calls, err := tracedCalls(t, func(w *mpi.World) error {
		peer := 1 - w.Rank()
		r := must.Get(w.Irecv(make([]byte, 8), mpi.AnySource, mpi.AnyTag))(t)
		must.Do(t, w.Ssend([]byte("four"), peer, 7))
		must.Get(r.Wait())(t)
		must.Get(w.Sendrecv([]byte{1}, peer, 3, make([]byte, 2), peer, 3))(t)
		must.Do(t, w.Allreduce(make([]byte, 8), make([]byte, 8), mpi.Int64, mpi.Sum))
		win := must.Get(w.WinAllocate(64))(t)
		must.Do(t, win.Lock(mpi.Exclusive, peer, 0))
		must.Do(t, win.Put(make([]byte, 16), peer, 8))
		must.Do(t, win.Unlock(peer))
		return win.Free()
	})
	must.Do(t, err)
	for rank, peer := range []int{1, 0} {
		want := fmt.Sprintf(`Irecv from any, any tag, 8 bytes
Ssend to %[1]d, tag 7, 4 bytes
Request.Wait
Sendrecv from %[1]d, tag 3, 2 bytes; to %[1]d, tag 3, 1 byte
Allreduce sum of int64, 8 bytes
WinAllocate
Win.Lock exclusive, rank %[1]d
Win.Put rank %[1]d, offset 8, 16 bytes
Win.Unlock rank %[1]d
Win.Free world.window`, peer)
		if got := names(calls[rank]); got != want {
			t.Errorf("rank %d:\n%s\nwant\n%s", rank, got, want)
		}
		for i, c := range calls[rank] {
			if c.Begin < 0 || c.End < c.Begin || i > 0 && c.Begin < calls[rank][i-1].End || path.Base(c.File) != "calltrace_test.go" || c.Line == 0 {
				t.Errorf("rank %d: %+v", rank, c)
			}
		}
		irecv, ssend := calls[rank][0].Recvs[0], calls[rank][1].Sends[0]
		if irecv.Peer != peer || irecv.Tag != 7 || irecv.Bytes != 4 || irecv.Done < calls[rank][2].Begin || ssend.Peer != peer || ssend.Context != irecv.Context {
			t.Errorf("rank %d: %+v, %+v", rank, irecv, ssend)
		}
	}
}

func TestTraceHasErrorsAndCallsThatDoNotReturn(t *testing.T) {
	calls, err := tracedCalls(t, func(w *mpi.World) error {
		if w.Send(nil, 2, 0) == nil {
			t.Error("rank 2 does not exist")
		}
		_, err := w.Recv(nil, 1-w.Rank(), 0)
		return err
	})
	if err == nil || len(calls[0]) != 2 {
		t.Fatalf("%v, %v", err, calls[0])
	}
	if c := calls[0][0]; c.Call != "Send" || !strings.Contains(c.Err, "destination 2") || c.End != c.Begin {
		t.Errorf("%+v", c)
	}
	if c := calls[0][1]; c.Call != "Recv" || c.End >= 0 || c.Recvs[0].Done >= 0 {
		t.Errorf("%+v", c)
	}
}

// A nonblocking test that polls is one call, although it releases the lock meanwhile.
func TestPollIsOneCall(t *testing.T) {
	polls := 0
	calls, err := tracedCalls(t, func(w *mpi.World) error {
		if w.Rank() == 1 {
			return w.Send(nil, 0, 0)
		}
		r := must.Get(w.Irecv(nil, 1, 0))(t)
		for {
			polls++
			if _, done, err := r.Test(); done || err != nil {
				return err
			}
		}
	})
	must.Do(t, err)
	if polls < 2 || len(calls[0]) != 1+polls { // with Irecv
		t.Errorf("%d calls, and the program has called Test %d times", len(calls[0]), polls)
	}
}
