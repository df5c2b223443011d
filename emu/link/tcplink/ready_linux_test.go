package tcplink

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
)

// With few streams a poll costs one recv per stream; with many, epoll selects them.
func TestPollCostsOneCallPerStream(t *testing.T) {
	for _, tc := range []struct{ streams, reads, polls int }{{1, 1, 0}, {maxDirectStreams, maxDirectStreams, 0}, {maxDirectStreams + 1, 0, 1}, {20, 0, 1}} {
		a, b := openNet(t, Config{}), openNet(t, Config{})
		dialed, _ := connectStreams(t, a, b, tc.streams)
		drainReady(a)
		byID := make(map[link.StreamID]*Stream)
		for _, s := range dialed {
			byID[s.ID()] = s
		}
		before := a.Stats()
		const calls = 10 * epollInterval
		var ready [64]link.StreamReady
		buf := make([]byte, 100)
		for range calls {
			for _, r := range ready[:a.Ready(ready[:])] {
				if n, err := byID[r.ID].Read(1, buf); n != 0 || err != nil {
					t.Fatalf("Read = %d, %v", n, err)
				}
			}
		}
		after := a.Stats()
		reads, polls := int(after.ReadCalls-before.ReadCalls), int(after.PollCalls-before.PollCalls)
		if reads != tc.reads*calls || polls != max(tc.polls*calls, calls/epollInterval) {
			t.Errorf("%d streams: %d reads and %d epoll calls in %d calls of Ready", tc.streams, reads, polls, calls)
		}
	}
}

// Of many streams, Ready reports those with bytes and no others.
func TestReadyReportsStreamsWithBytes(t *testing.T) {
	a, b := openNet(t, Config{}), openNet(t, Config{})
	dialed, accepted := connectStreams(t, a, b, 100)
	drainReady(b)
	index := make(map[link.StreamID]int)
	for i, s := range accepted {
		index[s.ID()] = i
	}
	buf := make([]byte, 1000)
	var ready [16]link.StreamReady
	for round := range 50 {
		want := make(map[int]bool)
		for k := range 30 {
			i := (round*37 + k*k*11) % 100
			want[i] = true
			if n, err := dialed[i].Write(1, []byte{1, 2, 3}); n != 3 || err != nil {
				t.Fatal(n, err)
			}
		}
		eventually(t, "Ready reports all streams", func() bool {
			b.WaitReady(10 * time.Millisecond)
			for _, r := range ready[:b.Ready(ready[:])] {
				i := index[r.ID]
				if n, err := accepted[i].Read(1, buf); n == 0 || err != nil {
					t.Errorf("Ready reports stream %d, and Read returns %d, %v", i, n, err)
				}
				if !want[i] {
					t.Errorf("Ready reports stream %d without bytes", i)
				}
				delete(want, i)
			}
			return len(want) == 0
		})
		if t.Failed() {
			return
		}
	}
}

func TestWaitReadyWakes(t *testing.T) {
	for _, coarse := range []bool{false, true} { // true: kernels without epoll_pwait2
		a, b := openNet(t, Config{}), openNet(t, Config{})
		a.poller.noPwait2 = coarse
		dialed, accepted := connectStreams(t, a, b, 1)
		drainReady(a)
		for name, wake := range map[string]func(){
			"bytes":    func() { accepted[0].Write(1, []byte("x")) },
			"Wake":     a.Wake,
			"a dialer": func() { dialTo(t, b, listenOn(t, a, families[0].addr).Addr()) },
		} {
			drainReady(a)
			done := make(chan error)
			go func() { done <- a.WaitReady(-1) }()
			select {
			case err := <-done:
				t.Fatalf("coarse %v: woken before %s: %v", coarse, name, err)
			case <-time.After(5 * time.Millisecond):
			}
			wake()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("coarse %v: not woken by %s", coarse, name)
			}
			dialed[0].Read(1, make([]byte, 10))
		}
		drainReady(a)
		start := time.Now()
		a.WaitReady(2 * time.Millisecond)
		if took := time.Since(start); took < 2*time.Millisecond || took > 30*time.Second {
			t.Errorf("coarse %v: WaitReady of 2 ms took %v", coarse, took)
		}
		a.Wake() // makes the next WaitReady return
		start = time.Now()
		a.WaitReady(time.Minute)
		if took := time.Since(start); took > 50*time.Second {
			t.Errorf("coarse %v: WaitReady slept after Wake", coarse)
		}
	}
}

func TestCloseWakesWaitReadyAndIsSafeWhileInUse(t *testing.T) {
	for range 20 {
		a, b := openNet(t, Config{}), openNet(t, Config{})
		dialed, _ := connectStreams(t, a, b, 3)
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { a.WaitReady(-1) },
			func() { dialed[0].Read(1, make([]byte, 10)) },
			func() { dialed[1].Writev(1, [][]byte{{1}, {2}}, false) },
			a.Wake,
			func() { a.Ready(make([]link.StreamReady, 4)) },
		} {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 100 {
					f()
				}
			}()
		}
		time.Sleep(100 * time.Microsecond)
		must.Do(t, a.Close())
		wg.Wait()
		a.Wake()
		must.Fail(t, "WaitReady after Close", a.WaitReady(-1), link.ErrClosed)
		if n, err := dialed[2].Read(1, make([]byte, 1)); n != 0 || !errors.Is(err, link.ErrClosed) {
			t.Errorf("Read after Close: %d, %v", n, err)
		}
	}
}

func TestStreamsDoNotAllocate(t *testing.T) {
	a, b := openNet(t, Config{}), openNet(t, Config{})
	for _, count := range []int{1, 10} {
		dialed, accepted := connectStreams(t, a, b, count)
		drainReady(a)
		drainReady(b)
		bufs, in := [][]byte{make([]byte, 20), make([]byte, 30_000), make([]byte, 4)}, make([]byte, 128<<10)
		ready := make([]link.StreamReady, 64)
		n := testing.AllocsPerRun(50, func() {
			for i := range dialed {
				total := 0
				if k, err := dialed[i].Writev(1, bufs, i%2 == 0); k != 30_024 || err != nil {
					t.Fatal(k, err)
				}
				dialed[i].Writev(1, nil, false)
				dialed[i].Write(1, bufs[0])
				for total < 30_044 {
					b.WaitReady(time.Millisecond)
					b.Ready(ready)
					k := must.Get(accepted[i].Read(1, in))(t)
					total += k
				}
			}
			b.Wake()
			b.WaitReady(-1)
		})
		if n != 0 {
			t.Errorf("%d streams: %v allocations", count, n)
		}
	}
}
