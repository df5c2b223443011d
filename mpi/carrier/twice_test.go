package carrier_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
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
