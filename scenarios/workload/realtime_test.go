package workload_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/scenarios/workload"
	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// exchange connects ranks that are goroutines.
type exchange struct {
	mu      sync.Mutex
	changed chan struct{} // closed at every change
	mail    map[[2]int][][]byte
	ended   map[int]bool
	marks   []string
	samples int
}

func newExchange() *exchange {
	return &exchange{changed: make(chan struct{}), mail: map[[2]int][][]byte{}, ended: map[int]bool{}}
}

func (x *exchange) wake() {
	close(x.changed)
	x.changed = make(chan struct{})
}

func (x *exchange) end(rank int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended[rank] = true
	x.wake()
}

type rankControl struct {
	*exchange
	rank int
}

func (s rankControl) Send(to int, msg []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[to] {
		return workload.ErrGone
	}
	way := [2]int{s.rank, to}
	s.mail[way] = append(s.mail[way], msg)
	s.wake()
	return nil
}

func (s rankControl) Recv(from int, timeout time.Duration) ([]byte, error) {
	var over <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		over = t.C
	}
	for {
		s.mu.Lock()
		way := [2]int{from, s.rank}
		if m := s.mail[way]; len(m) > 0 {
			s.mail[way] = m[1:]
			s.mu.Unlock()
			return m[0], nil
		}
		ended, changed := s.ended[from], s.changed
		s.mu.Unlock()
		if ended {
			return nil, workload.ErrGone
		}
		if timeout == 0 {
			return nil, verbs.ErrTimeout
		}
		select {
		case <-changed:
		case <-over:
			return nil, verbs.ErrTimeout
		}
	}
}

func (s rankControl) Barrier(time.Duration) error { return nil }

func (s rankControl) Gone(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[rank]
}

func (s rankControl) Mark(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = append(s.marks, fmt.Sprintf("host%d %s", s.rank, what))
}

func (s rankControl) Sample(workload.Sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples++
}

// runReal runs a workload on loopback sockets. during, if not nil, is called with the
// started programs.
func runReal(t testing.TB, cfg workload.Config, ranks int, during func([]workload.Program)) ([]*workload.Report, *exchange) {
	t.Helper()
	x := newExchange()
	programs, reports := make([]workload.Program, ranks), make([]*workload.Report, ranks)
	var all sync.WaitGroup
	for rank := range ranks {
		addr := netip.AddrFrom4([4]byte{127, 73, 0, byte(rank + 2)})
		d, err := softroce.OnUDP(udplink.Config{}, softroce.Config{Name: addr.String(), Addrs: []netip.Addr{addr}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		programs[rank], err = workload.New(cfg, &workload.Rank{
			Rank: rank, Size: ranks, Seed: rigSeed, Proc: traffic.RealTime(), Concurrent: true, StallTimeout: 20 * time.Second,
			NICs: []workload.NIC{{Device: d, Addr: addr}}, Control: rankControl{x, rank},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for rank := range ranks {
		all.Go(func() {
			defer x.end(rank)
			var err error
			if reports[rank], err = programs[rank].Run(); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	if during != nil {
		during(programs)
	}
	all.Wait()
	return reports, x
}

// The programs of the simulated world run unchanged in real time.
func TestSameProgramsInRealTime(t *testing.T) {
	for _, cfg := range []workload.Config{
		{Kind: workload.Stream, Op: workload.OpSend, Messages: 2000, Bytes: 4000},
		{Kind: workload.Stream, Op: workload.OpWrite, Messages: 500, Bytes: 30_000},
		{Kind: workload.PingPong, Messages: 500, Bytes: 64},
		{Kind: workload.PingPong, Messages: 500, Bytes: 64, Spin: true},
		{Kind: workload.AllToAll, Messages: 20},
		{Kind: workload.Halo, Messages: 50},
		{Kind: workload.Calls, Messages: 50},
		{Kind: workload.Random, Messages: 60, Bytes: 4000, Excuses: []string{workload.ExcuseLoses}},
	} {
		cfg = cfg.WithDefaults(4)
		t.Run(nameOf(cfg), func(t *testing.T) {
			reports, _ := runReal(t, cfg, 4, nil)
			if t.Failed() {
				return
			}
			noFailures(t, reports)
			if cfg.Kind != workload.Random {
				clean(t, reports)
			}
			if l := reports[0].Latency; l != nil {
				t.Logf("%+v", *l)
			}
		})
	}
}

// Other goroutines read the status of a program and break its queue pairs while it runs.
func TestBreakInRealTime(t *testing.T) {
	cfg := workload.Config{Kind: workload.Stream, Messages: 20_000, Bytes: 4000, Reconnect: true}
	reports, x := runReal(t, cfg, 2, func(programs []workload.Program) {
		broken := 0
		for i := 0; broken < 3 && i < 1000; i++ {
			time.Sleep(2 * time.Millisecond)
			_ = programs[0].Status()
			if programs[i%2].(workload.Breaker).Break() == nil {
				broken++
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
	if t.Failed() {
		return
	}
	clean(t, reports)
	if reports[0].Reconnects == 0 {
		t.Errorf("no reconnects: %v", x.marks)
	}
	if x.samples == 0 {
		t.Error("no samples")
	}
}

func BenchmarkStream(b *testing.B) {
	for _, op := range []string{workload.OpSend, workload.OpWrite, workload.OpRead} {
		for _, size := range []int{64, 4096, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%d", op, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				depth := 64
				if size > 1<<16 {
					depth = 8
				}
				reports, _ := runReal(b, workload.Config{Kind: workload.Stream, Op: op, Messages: b.N, Bytes: size, Depth: depth}, 2, nil)
				clean(b, reports)
			})
		}
	}
}
