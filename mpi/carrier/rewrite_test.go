package carrier_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// After the loss of a rail, data is rewritten only while the peer waits for it: memory
// that the program owns again does not change, and no notice overtakes its data.
func TestRewriteDoesNotTouchReleasedBuffer(t *testing.T) {
	const size, messages = 20_000, 40
	for i := range 60 {
		at := 60*time.Microsecond + time.Duration(i)*1700*time.Nanosecond
		provider, design := "softroce", carrier.SRQ
		if i%4 == 3 {
			provider, design = "dgiwarp", carrier.UD
		}
		f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) { w.At(at, func() { w.LinkDown(1, i%2) }) }}
		_, err := runOnFabric(f, setting{provider, design, p2p.RPUT, 0}, carrier.Config{}, func(r *rank) error {
			var bufs [][]byte
			for k := range messages {
				buf := make([]byte, size)
				q := &p2p.Request{Peer: 1 - r.Rank, Tag: int32(k), Buf: buf}
				if r.Rank == 0 {
					copy(buf, pattern(size, k))
					r.engine.Isend(q)
				} else {
					r.engine.Irecv(q)
				}
				must.Do(t, r.waitAll(q))
				if r.Rank == 1 {
					if !bytes.Equal(buf, pattern(size, k)) {
						return fmt.Errorf("message %d is wrong", k)
					}
					clear(buf) // the program owns it again
					bufs = append(bufs, buf)
				}
			}
			must.Do(t, r.barrier())
			for k, buf := range bufs {
				if !bytes.Equal(buf, make([]byte, size)) {
					return fmt.Errorf("message %d was rewritten", k)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("link down at %v: %v", at, err)
		}
	}
}

// An atomic that was outstanding on a failed rail may have been executed: it is not
// retried, and its owner gets an error.
func TestAtomicsAreNotRetried(t *testing.T) {
	const each = 500
	for i := range 20 { // the link goes down at different times of an atomic
		var at wire.Memory
		word := make([]uint64, 1)
		f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) {
			w.At(time.Millisecond+time.Duration(i)*350*time.Nanosecond, func() { w.LinkDown(1, 0) })
		}}
		done, failed := 0, false
		_, _ = runOnFabric(f, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
			if r.Rank == 0 {
				region := must.Get(r.Carrier.Register(unsafe.Slice((*byte)(unsafe.Pointer(&word[0])), 8)))(t)
				defer r.Carrier.Release(region)
				at = region.Memory()
			}
			if err := errors.Join(r.exchangeMessages(10, 100), r.barrier()); err != nil || r.Rank == 0 {
				return errors.Join(err, r.barrier())
			}
			for !failed && done < each {
				a := &atomicOwner{}
				r.FetchAdd(0, at, 1, a)
				must.Do(t, r.wait("an atomic", func() bool { return a.done == 1 }))
				if failed = a.err != nil; !failed {
					done++
				}
			}
			return r.barrier()
		})
		if n := int(word[0]); !failed || n < done || n > done+1 {
			t.Errorf("run %d: %d atomics succeeded, failed is %v, and the word is %d", i, done, failed, n)
		}
	}
}
