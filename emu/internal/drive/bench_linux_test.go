package drive_test

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/nstest"
)

// runner is an engine of one conn, which costs next to nothing: what is measured
// with it is the driver and the streams.
type runner struct {
	drv   *drive.RealStreams
	net   *tcplink.Net
	gate  drive.Cond
	named bool

	message []byte
	supply  int // bytes still to be sent, a multiple of the message
	sent    int // of the message under way
	got     int
	wanted  int // bytes that are worth a notice
	open    bool
	over    bool // the peer may go
}

func (r *runner) Settle(mono.Time)    {}
func (r *runner) Tick(mono.Time)      {}
func (r *runner) Deadline() mono.Time { return mono.Never }

func (r *runner) NextOutput() (drive.StreamConn, bool) {
	if !r.named {
		return nil, false
	}
	r.named = false
	return r, true
}

func (r *runner) Connected(mono.Time, netip.AddrPort, netip.AddrPort, int) {
	r.open = true
	r.gate.Notify()
}

func (r *runner) Failed(_ mono.Time, err error) {
	if !r.over {
		panic(err)
	}
}

func (r *runner) InputEOF(mono.Time) {}

func (r *runner) Input(_ mono.Time, b []byte) {
	if r.got += len(b); r.got >= r.wanted {
		r.gate.Notify()
	}
}

const header = 16

// Output gives each message in two vectors, as an engine gives what is in front
// of a payload and the payload.
func (r *runner) Output(into [][]byte) ([][]byte, drive.StreamEnd) {
	left, sent := r.supply, r.sent
	for left > 0 && len(into)+2 <= cap(into) {
		if sent < header {
			into = append(into, r.message[sent:header])
			left -= header - sent
			sent = header
		}
		into = append(into, r.message[sent:])
		left -= len(r.message) - sent
		sent = 0
	}
	return into, drive.StreamOpen
}

func (r *runner) Sent(_ mono.Time, n int) {
	r.sent = (r.sent + n) % len(r.message)
	if r.supply -= n; r.supply == 0 {
		r.gate.Notify()
	}
}

// send has n messages sent.
func (r *runner) send(n int) {
	r.drv.Lock(drive.CallPost)
	r.supply += n * len(r.message)
	r.named = true
	r.drv.Pump()
	r.drv.Unlock()
}

// receive waits until n bytes have come.
func (r *runner) receive(n int, block bool) {
	if block {
		r.drv.Lock(drive.CallWait)
		for r.wanted = n; r.got < n; {
			r.gate.Wait(-1)
		}
		r.got -= n
		r.drv.Unlock()
		return
	}
	for {
		r.drv.Lock(drive.CallPoll)
		found := r.got >= n
		if !found {
			r.drv.Progress()
			if found = r.got >= n; found {
				r.drv.PollFound()
			} else {
				r.drv.PollEmpty()
			}
		}
		if found {
			r.got -= n
		}
		r.drv.Unlock()
		if found {
			return
		}
		r.drv.Yield()
	}
}

func (r *runner) drained() {
	r.drv.Lock(drive.CallWait)
	for r.supply > 0 {
		r.gate.Wait(-1)
	}
	r.drv.Unlock()
}

// runners makes two that are connected.
func runners(b testing.TB, in [2]func(func() error) error, addrs [2]netip.AddrPort, message int) (x, y *runner) {
	b.Helper()
	var both [2]*runner
	for i := range both {
		r := &runner{message: make([]byte, message), net: openNet(b, in[i], tcplink.Config{})}
		r.drv = drive.NewRealStreams(r, r.net, 1)
		r.drv.Lock(drive.CallControl)
		r.gate = r.drv.NewCond(drive.WaitReason("bytes"))
		r.drv.Unlock()
		both[i] = r
	}
	b.Cleanup(func() {
		for _, r := range both {
			r.drv.Lock(drive.CallControl)
			r.over = true
			r.drv.Unlock()
		}
		for _, r := range both {
			r.drv.Close()
			r.net.Close()
		}
	})
	x, y = both[0], both[1]
	y.drv.Lock(drive.CallControl)
	l, err := y.drv.Listen(addrs[1], 1, func(netip.AddrPort) drive.StreamConn { return y })
	y.drv.Unlock()
	if err != nil {
		b.Fatal(err)
	}
	x.drv.Lock(drive.CallControl)
	if err := x.drv.Dial(x, addrs[0], l.Addr()); err != nil {
		b.Fatal(err)
	}
	x.drv.Unlock()
	for _, r := range both {
		r.drv.Lock(drive.CallWait)
		for !r.open {
			r.gate.Wait(-1)
		}
		r.drv.Unlock()
	}
	return x, y
}

// half is the median time of a half of rounds, each of which is one call of
// there and one of back, on two goroutines.
func half(rounds int, serve, answer func()) time.Duration {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			answer()
		}
	}()
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		serve()
		took[i] = time.Since(start)
	}
	<-done
	slices.Sort(took)
	return took[rounds/2] / 2
}

func middle[T time.Duration | float64](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// sites are where two ends are put.
func sites(b *testing.B, run func(b *testing.B, in [2]func(func() error) error, addrs [2]netip.AddrPort)) {
	b.Run("loopback", func(b *testing.B) {
		at := netip.MustParseAddrPort("[::1]:0")
		run(b, [2]func(func() error) error{here, here}, [2]netip.AddrPort{at, at})
	})
	b.Run("namespaces", func(b *testing.B) {
		x, y := nstest.Pair(b, 9000)
		run(b, [2]func(func() error) error{x.Do, y.Do}, [2]netip.AddrPort{x.Addr(true, 0), y.Addr(true, 0)})
	})
}

// BenchmarkStreamPingPong is a half round trip of 64 bytes through the driver,
// beside one through bare sockets, in turns.
func BenchmarkStreamPingPong(b *testing.B) {
	const size = 64
	for _, block := range []bool{false, true} {
		name := "spinning"
		if block {
			name = "blocking"
		}
		b.Run(name, func(b *testing.B) {
			sites(b, func(b *testing.B, in [2]func(func() error) error, addrs [2]netip.AddrPort) {
				x, y := runners(b, in, addrs, size)
				px, py := plainPair(b, in, addrs)
				msg, bufs := make([]byte, size), [2][]byte{make([]byte, 4096), make([]byte, 4096)}
				var ours, bare []time.Duration
				rounds := 1000
				for b.Loop() {
					for range 15 {
						bare = append(bare, half(rounds,
							func() { px.send(msg); px.receive(bufs[0], size, block) },
							func() { py.receive(bufs[1], size, block); py.send(msg) }))
						ours = append(ours, half(rounds,
							func() { x.send(1); x.receive(size, block) },
							func() { y.receive(size, block); y.send(1) }))
					}
				}
				report(b, ours, bare)
			})
		})
	}
}

func report(b *testing.B, ours, bare []time.Duration) {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = float64(ours[i]) / float64(bare[i])
	}
	b.ReportMetric(float64(middle(ours))/1e3, "µs")
	b.ReportMetric(float64(middle(bare))/1e3, "raw-µs")
	b.ReportMetric(middle(ratios), "ratio")
}

// BenchmarkStreamBandwidth is a one-way stream of messages through the driver,
// beside one through bare sockets, in turns.
func BenchmarkStreamBandwidth(b *testing.B) {
	const message, total = 8192, 256 << 20
	sites(b, func(b *testing.B, in [2]func(func() error) error, addrs [2]netip.AddrPort) {
		x, y := runners(b, in, addrs, message)
		px, py := plainPair(b, in, addrs)
		msg, buf := make([]byte, 256<<10), make([]byte, 128<<10)
		var ours, bare []time.Duration
		once := func(send, receive func()) time.Duration {
			start := time.Now()
			done := make(chan struct{})
			go func() { receive(); close(done) }()
			send()
			<-done
			return time.Since(start)
		}
		for b.Loop() {
			for range 3 {
				bare = append(bare, once(
					func() {
						for range total / len(msg) {
							px.send(msg)
						}
					},
					func() { py.receive(buf, total, true) }))
				ours = append(ours, once(
					func() { x.send(total / message); x.drained() },
					func() { y.receive(total, true) }))
			}
		}
		report(b, ours, bare)
		b.ReportMetric(total*8/float64(middle(ours)), "Gb/s")
		b.ReportMetric(total*8/float64(middle(bare)), "raw-Gb/s")
	})
}

// TestStreamsDoNotAllocate, neither spinning nor asleep.
func TestStreamsDoNotAllocate(t *testing.T) {
	const warm, rounds, size = 200, 2000, 300
	for _, block := range []bool{false, true} {
		at := netip.MustParseAddrPort("127.0.0.1:0")
		x, y := runners(t, [2]func(func() error) error{here, here}, [2]netip.AddrPort{at, at}, size)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range warm + rounds {
				y.receive(size, block)
				y.send(1)
			}
		}()
		var before, after runtime.MemStats
		var start time.Time
		for i := range warm + rounds {
			if i == warm {
				runtime.ReadMemStats(&before)
				start = time.Now()
			}
			x.send(1)
			x.receive(size, block)
		}
		runtime.ReadMemStats(&after)
		<-done
		// The background goroutines take naps, for which timers are made: the more, the
		// longer it takes.
		allowed := rounds/2 + 4*uint64(time.Since(start).Milliseconds())
		if n := after.Mallocs - before.Mallocs; n > allowed {
			t.Errorf("blocking %v: %d allocations in %d rounds", block, n, rounds)
		}
	}
}
