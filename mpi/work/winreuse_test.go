package work_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
	"github.com/fabrictest/fabrictest/mpi/transport"
)

// withLockedWindow runs a program on rank 0 of two, which holds the lock of rank 1's window.
func withLockedWindow(t *testing.T, f mpihost.Fabric, cfg carrier.Config, size int, program func(*mpi.World, *mpi.Win) error) {
	t.Helper()
	f.Ranks, f.Limit = 2, time.Minute
	_, err := mpihost.InWorld(f, func(e *transport.Env) error {
		return mpi.Run(e, mpi.Options{Carrier: cfg}, func(w *mpi.World) error {
			win := must.Get(w.WinAllocate(size))(t)
			if w.Rank() == 0 {
				must.Do(t, win.Lock(mpi.Exclusive, 1, 0))
				must.Do(t, program(w, win))
				must.Do(t, win.Unlock(1))
			}
			return win.Free()
		})
	})
	if err != nil {
		t.Error(err)
	}
}

func carrierStats(w *mpi.World) carrier.Stats { return w.Stats().Carrier.(carrier.Stats) }

// Small puts and gets use a bounce buffer until the program has used its own buffer often enough.
func TestFrequentPutAndGetBuffersAreRegistered(t *testing.T) {
	const size, times = 700, 30
	for _, at := range []struct {
		provider string
		perHost  int
		design   carrier.Design
	}{
		{"softroce", 1, carrier.RingSRQ},
		{"softroce", 2, carrier.SRQ},
		{"softiwarp", 1, carrier.SendRecv},
		{"dgiwarp", 1, carrier.UD},
	} {
		t.Run(fmt.Sprintf("%s %s %d", at.provider, at.design, at.perHost), func(t *testing.T) {
			cfg := carrier.Config{Design: at.design, Reuse: memory.Reuse{Thresholds: memory.Thresholds{40}}} // frequent from use 11 on
			withLockedWindow(t, mpihost.Fabric{Provider: at.provider, PerHost: at.perHost}, cfg, size, func(w *mpi.World, win *mpi.Win) error {
				regions := carrierStats(w).Registrations.Misses
				out, in := make([]byte, size), make([]byte, size)
				for i := range times {
					for k := range out {
						out[k] = byte(i + k*7)
					}
					must.Do(t, win.Put(out, 1, 0))
					must.Do(t, win.Flush(1))
					must.Do(t, win.Get(in, 1, 0))
					must.Do(t, win.Flush(1))
					if !bytes.Equal(out, in) {
						return fmt.Errorf("round %d: get does not return the data of put", i)
					}
					s := carrierStats(w)
					if want := uint64(2 * max(0, i+1-10)); s.ZeroCopy != want || s.Registrations.Misses-regions != min(want, 2) {
						return fmt.Errorf("round %d: %d without a copy, want %d; %d regions", i, s.ZeroCopy, want, s.Registrations.Misses-regions)
					}
				}
				return nil
			})
		})
	}
}

// Buffers below 128 bytes are not looked up, and large buffers are never copied.
func TestReuseTableIgnoresTinyAndLargePuts(t *testing.T) {
	cfg := carrier.Config{Reuse: memory.Reuse{Thresholds: memory.Thresholds{1}}}
	withLockedWindow(t, mpihost.Fabric{}, cfg, 64<<10, func(w *mpi.World, win *mpi.Win) error {
		mem, regions := make([]byte, 64<<10), carrierStats(w).Registrations.Misses
		for _, n := range []int{127, 64 << 10} {
			for range 300 {
				must.Do(t, win.Put(mem[:n], 1, 0))
				must.Do(t, win.Flush(1))
			}
			s := carrierStats(w)
			if large := n > 8<<10; s.Reuse.Uses != 0 || s.ZeroCopy != 0 || s.Registrations.Misses-regions != boolToUint(large) {
				return fmt.Errorf("%d bytes: %+v", n, s)
			}
		}
		return nil
	})
}

func boolToUint(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// With very many pending puts the runtime does not copy all of them: its send buffers do not grow.
func TestManyPutsDoNotGrowSendBuffers(t *testing.T) {
	const many, each = 2000, 8
	withLockedWindow(t, mpihost.Fabric{}, carrier.Config{}, many*each, func(w *mpi.World, win *mpi.Win) error {
		out, in := make([]byte, many*each), make([]byte, many*each)
		for i := range out {
			out[i] = byte(i * 11 >> 3)
		}
		for i := range many {
			must.Do(t, win.Put(out[i*each:(i+1)*each], 1, i*each))
		}
		must.Do(t, win.Flush(1))
		for i := range many {
			must.Do(t, win.Get(in[i*each:(i+1)*each], 1, i*each))
		}
		must.Do(t, win.Flush(1))
		if !bytes.Equal(in, out) {
			return fmt.Errorf("get does not return the data of put")
		}
		if n := carrierStats(w).Memory.Max[memory.SendBuffers]; n > 4<<20 {
			return fmt.Errorf("%d bytes of buffers", n)
		}
		return nil
	})
}
