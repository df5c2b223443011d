package providertest

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/link/tcplink"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/perflab"
	"github.com/fabrictest/fabrictest/perf"
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

func (r *runner) Sent(_ mono.Time, n int, _ mono.Time) {
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
		r := &runner{message: make([]byte, message)}
		must.Do(b, in[i](func() (err error) { r.net, err = tcplink.Open(tcplink.Config{}); return err }))
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

// pingPongTime returns half of the median round trip in µs. serve and answer run on two
// goroutines, each once a round.
func pingPongTime(rounds int, serve, answer func()) float64 {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			answer()
		}
	}()
	took := make([]float64, rounds)
	for i := range took {
		start := time.Now()
		serve()
		took[i] = float64(time.Since(start)) / 1e3
	}
	<-done
	return perf.Median(took) / 2
}

// currentNamespace runs f in the namespace of the test.
func currentNamespace(f func() error) error { return f() }

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

// BenchmarkDriverPingPong measures half a round trip of 64 bytes through the stream driver, and
// compares with bare sockets.
func BenchmarkDriverPingPong(b *testing.B) {
	const size, rounds = 64, 1000
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("block=%v", block), func(b *testing.B) {
			forEachSite(b, func(b *testing.B, in [2]func(func() error) error, ends [2]perflab.RawEndpoint) {
				x, y := connectedRunners(b, in, [2]netip.AddrPort{ends[0].Addr, ends[1].Addr}, size)
				report(b, "µs", "raw", 15, func() (float64, error) {
					return perflab.RawTCPPingPong(ends[0], ends[1], perflab.RawPingPongConfig{Bytes: size, Rounds: rounds, Block: block})
				}, func() (float64, error) {
					return pingPongTime(rounds,
						func() { x.send(1); x.receive(size, block) },
						func() { y.receive(size, block); y.send(1) }), nil
				})
			})
		})
	}
}

// BenchmarkDriverStream measures a one-way stream of messages through the stream driver, and
// compares with bare sockets.
func BenchmarkDriverStream(b *testing.B) {
	const message, total = 8192, 256 << 20
	forEachSite(b, func(b *testing.B, in [2]func(func() error) error, ends [2]perflab.RawEndpoint) {
		x, y := connectedRunners(b, in, [2]netip.AddrPort{ends[0].Addr, ends[1].Addr}, message)
		report(b, "Gb/s", "raw", 3, func() (float64, error) {
			return perflab.RawTCPStream(ends[0], ends[1], perflab.RawStreamConfig{Bytes: 256 << 10, Duration: 100 * time.Millisecond})
		}, func() (float64, error) {
			start, done := time.Now(), make(chan struct{})
			go func() { y.receive(total, true); close(done) }()
			x.send(total / message)
			x.waitSent()
			<-done
			return total * 8 / float64(time.Since(start)), nil
		})
	})
}

// Neither spinning nor blocking through the stream driver allocates.
func TestStreamDriverDoesNotAllocate(t *testing.T) {
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
