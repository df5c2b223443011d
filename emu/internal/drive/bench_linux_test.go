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
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/perflab"
)

// runner is an engine with one conn and almost no cost, to measure driver and streams.
type runner struct {
	drv   *drive.RealStreams
	net   *tcplink.Net
	cond  drive.Cond
	dirty bool // NextOutput returns the conn

	message []byte
	supply  int // bytes still to be sent, a multiple of the message
	sent    int // bytes sent of the current message
	got     int
	wanted  int // received bytes that the waiter wants
	open    bool
	closing bool // the peer may reset the stream
}

func (r *runner) Settle(mono.Time)    {}
func (r *runner) Tick(mono.Time)      {}
func (r *runner) Deadline() mono.Time { return mono.Never }

func (r *runner) NextOutput() (drive.StreamConn, bool) {
	if !r.dirty {
		return nil, false
	}
	r.dirty = false
	return r, true
}

func (r *runner) Connected(mono.Time, netip.AddrPort, netip.AddrPort, int) {
	r.open = true
	r.cond.Notify()
}

func (r *runner) Failed(_ mono.Time, err error) {
	if !r.closing {
		panic(err)
	}
}

func (r *runner) InputEOF(mono.Time) {}

func (r *runner) Input(_ mono.Time, b []byte) {
	if r.got += len(b); r.got >= r.wanted {
		r.cond.Notify()
	}
}

const header = 16

// Output returns each message in two vectors, as an engine does for header and payload.
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
		r.cond.Notify()
	}
}

// send sends n messages.
func (r *runner) send(n int) {
	r.drv.Lock(drive.CallPost)
	r.supply += n * len(r.message)
	r.dirty = true
	r.drv.Pump()
	r.drv.Unlock()
}

// receive waits until n bytes have arrived.
func (r *runner) receive(n int, block bool) {
	if block {
		r.drv.Lock(drive.CallWait)
		for r.wanted = n; r.got < n; {
			r.cond.Wait(-1)
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

// waitSent waits until all messages are written.
func (r *runner) waitSent() {
	r.drv.Lock(drive.CallWait)
	for r.supply > 0 {
		r.cond.Wait(-1)
	}
	r.drv.Unlock()
}

// connectedRunners returns two runners that are connected.
func connectedRunners(b testing.TB, in [2]func(func() error) error, addrs [2]netip.AddrPort, message int) (x, y *runner) {
	b.Helper()
	var both [2]*runner
	for i := range both {
		r := &runner{message: make([]byte, message), net: openNet(b, in[i], tcplink.Config{})}
		r.drv = drive.NewRealStreams(r, r.net, 1)
		r.drv.Lock(drive.CallControl)
		r.cond = r.drv.NewCond(drive.WaitReason("bytes"))
		r.drv.Unlock()
		both[i] = r
	}
	b.Cleanup(func() {
		for _, r := range both {
			r.drv.Lock(drive.CallControl)
			r.closing = true
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
	must.Do(b, x.drv.Dial(x, addrs[0], l.Addr()))
	x.drv.Unlock()
	for _, r := range both {
		r.drv.Lock(drive.CallWait)
		for !r.open {
			r.cond.Wait(-1)
		}
		r.drv.Unlock()
	}
	return x, y
}

// halfRoundTrip returns the median of half a round trip. serve and answer run on two
// goroutines, each once a round.
func halfRoundTrip(rounds int, serve, answer func()) time.Duration {
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

func median[T time.Duration | float64](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// forEachSite runs a benchmark on loopback and between two namespaces.
func forEachSite(b *testing.B, run func(b *testing.B, in [2]func(func() error) error, ends [2]perflab.RawEndpoint)) {
	b.Run("loopback", func(b *testing.B) {
		at := netip.MustParseAddrPort("[::1]:0")
		run(b, [2]func(func() error) error{currentNamespace, currentNamespace}, [2]perflab.RawEndpoint{{Addr: at}, {Addr: at}})
	})
	b.Run("namespaces", func(b *testing.B) {
		x, y := testutil.HostPair(b, 9000)
		run(b, [2]func(func() error) error{x.Do, y.Do}, [2]perflab.RawEndpoint{{NetNS: x.FD(), Addr: x.Addr(true, 0)}, {NetNS: y.FD(), Addr: y.Addr(true, 0)}})
	})
}

// BenchmarkStreamPingPong measures half a round trip of 64 bytes through the driver,
// alternating with bare sockets.
func BenchmarkStreamPingPong(b *testing.B) {
	const size = 64
	for _, block := range []bool{false, true} {
		name := "spinning"
		if block {
			name = "blocking"
		}
		b.Run(name, func(b *testing.B) {
			forEachSite(b, func(b *testing.B, in [2]func(func() error) error, ends [2]perflab.RawEndpoint) {
				x, y := connectedRunners(b, in, [2]netip.AddrPort{ends[0].Addr, ends[1].Addr}, size)
				var ours, bare []time.Duration
				const rounds = 1000
				for b.Loop() {
					for range 15 {
						µs, err := perflab.RawTCPPingPong(ends[0], ends[1], perflab.RawPingPongConfig{Bytes: size, Rounds: rounds, Block: block})
						must.Do(b, err)
						bare = append(bare, time.Duration(µs*1e3))
						ours = append(ours, halfRoundTrip(rounds,
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
	b.ReportMetric(float64(median(ours))/1e3, "µs")
	b.ReportMetric(float64(median(bare))/1e3, "raw-µs")
	b.ReportMetric(median(ratios), "ratio")
}

// BenchmarkStreamBandwidth measures a one-way stream of messages through the driver,
// alternating with bare sockets.
func BenchmarkStreamBandwidth(b *testing.B) {
	const message, total = 8192, 256 << 20
	forEachSite(b, func(b *testing.B, in [2]func(func() error) error, ends [2]perflab.RawEndpoint) {
		x, y := connectedRunners(b, in, [2]netip.AddrPort{ends[0].Addr, ends[1].Addr}, message)
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
				gbps, err := perflab.RawTCPStream(ends[0], ends[1], perflab.RawStreamConfig{Bytes: 256 << 10, Duration: 100 * time.Millisecond})
				must.Do(b, err)
				bare = append(bare, time.Duration(total*8/gbps))
				ours = append(ours, once(
					func() { x.send(total / message); x.waitSent() },
					func() { y.receive(total, true) }))
			}
		}
		report(b, ours, bare)
		b.ReportMetric(total*8/float64(median(ours)), "Gb/s")
		b.ReportMetric(total*8/float64(median(bare)), "raw-Gb/s")
	})
}

// Neither spinning nor blocking streams allocate.
func TestStreamsDoNotAllocate(t *testing.T) {
	const warm, rounds, size = 200, 2000, 300
	for _, block := range []bool{false, true} {
		at := netip.MustParseAddrPort("127.0.0.1:0")
		x, y := connectedRunners(t, [2]func(func() error) error{currentNamespace, currentNamespace}, [2]netip.AddrPort{at, at}, size)
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
		// The background goroutines allocate a timer every backgroundInterval.
		allowed := rounds/2 + 4*uint64(time.Since(start).Milliseconds())
		if n := after.Mallocs - before.Mallocs; n > allowed {
			t.Errorf("blocking %v: %d allocations in %d rounds", block, n, rounds)
		}
	}
}
