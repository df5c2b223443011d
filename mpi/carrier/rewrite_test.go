package carrier_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// What is written again when a rail was lost is written only where the peer still waits
// for it: whatever moment the rail is lost at, memory that is the program's again stays as
// it is, and no word comes before its data.
func TestNothingIsWrittenTwice(t *testing.T) {
	const size, messages = 20_000, 40
	for i := range 60 {
		at := 60*time.Microsecond + time.Duration(i)*1700*time.Nanosecond
		provider, design := "softroce", carrier.SRQ
		if i%4 == 3 {
			provider, design = "dgiwarp", carrier.UD
		}
		f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) { w.At(at, func() { w.Cut(1, i%2) }) }}
		_, err := try(f, setting{provider, design, p2p.RPUT, 0}, carrier.Config{}, func(r *rank) error {
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
				if err := r.finish(q); err != nil {
					return err
				}
				if r.Rank == 1 {
					if !bytes.Equal(buf, pattern(size, k)) {
						return fmt.Errorf("message %d is wrong", k)
					}
					clear(buf) // it is the program's again
					bufs = append(bufs, buf)
				}
			}
			if err := r.meet(); err != nil {
				return err
			}
			for k, buf := range bufs {
				if !bytes.Equal(buf, make([]byte, size)) {
					return fmt.Errorf("message %d came again", k)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("cut at %v: %v", at, err)
		}
	}
}

// An atomic that was under way on a rail that is lost may have been carried out: it is not
// begun again, and its owner learns that nobody knows.
func TestAtomicsAreNotRepeated(t *testing.T) {
	const each = 500
	for i := range 20 { // over the time that one takes
		var at wire.Memory
		word := make([]uint64, 1)
		f := mpihost.Fabric{Ranks: 2, Rails: 2, Script: func(w *mpihost.World) {
			w.At(time.Millisecond+time.Duration(i)*350*time.Nanosecond, func() { w.Cut(1, 0) })
		}}
		done, failed := 0, false
		_, _ = try(f, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
			if r.Rank == 0 {
				region, err := r.Carrier.Register(unsafe.Slice((*byte)(unsafe.Pointer(&word[0])), 8))
				if err != nil {
					return err
				}
				defer r.Carrier.Release(region)
				at = region.Memory()
			}
			if err := errors.Join(r.volley(10, 100), r.meet()); err != nil || r.Rank == 0 {
				return errors.Join(err, r.meet())
			}
			for !failed && done < each {
				a := &adder{}
				r.FetchAdd(0, at, 1, a)
				if err := r.wait("an atomic", func() bool { return a.done == 1 }); err != nil {
					return err
				}
				if failed = a.err != nil; !failed {
					done++
				}
			}
			return r.meet()
		})
		if n := int(word[0]); !failed || n < done || n > done+1 {
			t.Errorf("run %d: %d atomics have succeeded, failed %v, and the word is %d", i, done, failed, n)
		}
	}
}
