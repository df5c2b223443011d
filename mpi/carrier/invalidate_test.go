package carrier_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/verbs"
)

// exchange sends a buffer from rank 0 to rank 1, and checks it there.
func (r *rank) exchange(buf []byte, seed int) error {
	q := &p2p.Request{Peer: 1 - r.Rank, Buf: buf}
	if copy(buf, pattern(len(buf), seed)); r.Rank == 0 {
		r.engine.Isend(q)
	} else {
		clear(buf)
		r.engine.Irecv(q)
	}
	if err := r.waitAll(q); err != nil {
		return err
	}
	if !bytes.Equal(buf, pattern(len(buf), seed)) {
		return fmt.Errorf("rank %d: message %d is wrong", r.Rank, seed)
	}
	return nil
}

// Invalidated memory stays registered while the network may hold requests for it, and no
// longer.
func TestInvalidatedMemoryIsDeregistered(t *testing.T) {
	runRanks(t, 2, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, carrier.Config{}, func(r *rank) error {
		r.maxWait = time.Millisecond
		if err := r.exchange(make([]byte, 100), 100); err != nil { // connects
			return err
		}
		before := r.Registered()
		for i, size := range []int{70_000, 5000} {
			buf := make([]byte, size)
			must.Do(t, r.exchange(buf, i))
			began := r.Now()
			if n := r.Registered(); n <= before {
				return fmt.Errorf("%d bytes sent by RDMA are not registered: %d regions, %d before", size, n, before)
			}
			must.Do(t, r.Invalidate(buf[size/2:]))
			if r.Invalidated(buf) {
				return errors.New("Invalidated before the network has dropped requests for the memory")
			}
			must.Do(t, r.wait("the memory", func() bool { return r.Invalidated(buf) }))
			if n := r.Registered(); n != before || r.Now()-began > 100*time.Millisecond {
				return fmt.Errorf("after %v %d regions are registered, want %d", r.Now()-began, n, before)
			}
		}
		buf := make([]byte, 70_000)
		q := &p2p.Request{Peer: 1 - r.Rank, Tag: 1, Buf: buf}
		if r.Rank == 0 {
			r.engine.Isend(q)
			if err := r.Invalidate(buf[100:]); !errors.Is(err, verbs.ErrBusy) {
				return fmt.Errorf("invalidate a buffer that is being sent: %v", err)
			}
		} else {
			r.engine.Irecv(q)
		}
		return r.waitAll(q)
	})
}

// Invalidate resets the reuse count of a buffer, and so does its eviction from the
// registration cache.
func TestInvalidateResetsReuseCount(t *testing.T) {
	const size = 700
	cfg := carrier.Config{Reuse: memory.Reuse{Thresholds: memory.Thresholds{40}}, CacheBytes: 3000} // frequent from use 11 on
	runRanks(t, 2, setting{"softroce", carrier.SRQ, p2p.RGET, 0}, cfg, func(r *rank) error {
		seed := 0
		use := func(buf []byte, times int, gathered uint64) error {
			before := r.Stats().Gathered
			for range times {
				seed++
				must.Do(t, r.exchange(buf, seed))
			}
			if n := r.Stats().Gathered - before; r.Rank == 0 && n != gathered {
				return fmt.Errorf("of %d uses after %d, %d were gathered, want %d", times, seed-times, n, gathered)
			}
			return nil
		}
		buf, large := make([]byte, size), make([]byte, 2*size)
		err := use(make([]byte, 100), 2, 0) // a message that waits for a connection is copied
		if err == nil {
			err = use(buf, 15, 5)
		}
		if err == nil {
			err = r.Invalidate(buf[10:20])
		}
		if err == nil {
			err = use(buf, 12, 2)
		}
		for range 2 { // large messages that fill the cache
			if err == nil {
				err = use(make([]byte, 2500), 1, 0)
			}
		}
		if err == nil {
			err = use(buf, 12, 2)
		}
		if err == nil {
			err = use(large[size:], 15, 5)
		}
		for _, times := range []int{9, 5} { // also before it is registered
			if err == nil {
				err = errors.Join(use(large[:size], times, 0), r.Invalidate(large[:size]))
			}
		}
		if s := r.Stats().Reuse; err == nil && r.Rank == 0 && (s.FrequentUses != 14 || s.Buffers != 2) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}
