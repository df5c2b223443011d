package softiwarp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link/udplink/rawbench"
	"github.com/fabrictest/fabrictest/verbs"
)

// ends makes two connected ends on two devices, in real time.
func ends(da, db *Device) (a, b *end, err error) {
	at := make(chan netip.AddrPort, 1)
	accepted := make(chan error, 1)
	go func() {
		accepted <- func() error {
			l, err := db.cm.Listen(netip.AddrPortFrom(db.cfg.Addrs[0], 0), verbs.PortSpaceTCP, 1)
			if err != nil {
				close(at)
				return err
			}
			defer l.Close()
			at <- l.Addr()
			req, err := l.GetRequest(10 * time.Second)
			if err != nil {
				return err
			}
			if b, err = newEnd(db); err != nil {
				return err
			}
			_, err = req.Accept(b.qp, connParam, 10*time.Second)
			return err
		}()
	}()
	to, ok := <-at
	if !ok {
		return nil, nil, <-accepted
	}
	if a, err = newEnd(da); err != nil {
		return nil, nil, err
	}
	_, err = da.cm.Connect(a.qp, to, connParam, 10*time.Second)
	return a, b, errors.Join(err, <-accepted)
}

// pingPong plays rounds of a SEND each way and returns the median time of a half
// round. Both ends have receives posted, and have as many afterwards.
func pingPong(a, b *end, rounds int, block bool) (time.Duration, error) {
	errs := make(chan error, 1)
	go func() {
		p := newPlayer(b, block)
		for range rounds {
			if err := p.await(); err != nil {
				errs <- err
				return
			}
			if err := p.serve(); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	p := newPlayer(a, block)
	took := make([]time.Duration, rounds)
	for i := range took {
		start := time.Now()
		if err := p.serve(); err != nil {
			return 0, err
		}
		if err := p.await(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[rounds/2] / 2, <-errs
}

// pingPongEnds makes two connected ends with receives posted.
func pingPongEnds(da, db *Device) (a, b *end, err error) {
	if a, b, err = ends(da, db); err != nil {
		return nil, nil, err
	}
	for _, e := range []*end{a, b} {
		if err := newPlayer(e, false).receives(32); err != nil {
			return nil, nil, err
		}
	}
	return a, b, nil
}

// pingBytes is the payload of a ping.
const pingBytes = 64

// player is one side of a ping-pong.
type player struct {
	*end
	block bool
	recv  []verbs.RecvWR
	send  []verbs.SendWR
	wc    []verbs.WC
}

func newPlayer(e *end, block bool) *player {
	return &player{
		end: e, block: block, wc: make([]verbs.WC, 4),
		recv: []verbs.RecvWR{{SGL: []verbs.SGE{verbs.SGEOf(e.mr, 4096, pingBytes)}}},
		send: []verbs.SendWR{{Opcode: verbs.OpSend, SGL: []verbs.SGE{verbs.SGEOf(e.mr, 0, pingBytes)}}},
	}
}

func (p *player) receives(n int) error {
	for range n {
		if _, err := p.qp.PostRecv(p.recv); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) serve() error {
	_, err := p.qp.PostSend(p.send)
	return err
}

// await takes one message and makes room for the next.
func (p *player) await() error {
	n, err := p.nextWC(p.block, p.wc)
	if err != nil {
		return err
	}
	if n != 1 || p.wc[0].Status != verbs.WCSuccess {
		return fmt.Errorf("%d completions, %v", n, p.wc[0].Status)
	}
	return p.receives(1)
}

// stream writes messages of size bytes for about the given time, until a read
// has shown that all have arrived, and returns bits a second.
func stream(a, b *end, size int, d time.Duration) (float64, error) {
	src, dst := make([]byte, size), make([]byte, size)
	smr, err := a.pd.RegMR(verbs.MRInit{Buf: src, Access: verbs.AccessLocalWrite})
	if err != nil {
		return 0, err
	}
	defer smr.Close()
	dmr, err := b.pd.RegMR(verbs.MRInit{Buf: dst, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead})
	if err != nil {
		return 0, err
	}
	defer dmr.Close()
	wr := []verbs.SendWR{{
		Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: []verbs.SGE{verbs.SGEOf(smr, 0, size)},
		Remote: verbs.Remote{Addr: dmr.Addr(), RKey: dmr.RKey()},
	}}
	wc := make([]verbs.WC, 8)
	posted, done := 0, 0
	start := time.Now()
	reap := func() error {
		n, err := a.cq.Poll(wc)
		for i := range n {
			if wc[i].Status != verbs.WCSuccess {
				return fmt.Errorf("write %d: %v", done, wc[i].Status)
			}
			done++
		}
		return err
	}
	for time.Since(start) < d {
		for posted-done < 4 {
			if _, err := a.qp.PostSend(wr); err != nil {
				return 0, err
			}
			posted++
		}
		if err := reap(); err != nil {
			return 0, err
		}
	}
	read := wr[0]
	read.Opcode, read.SGL = verbs.OpRDMARead, []verbs.SGE{verbs.SGEOf(smr, 0, 1)}
	if _, err := a.qp.PostSend([]verbs.SendWR{read}); err != nil {
		return 0, err
	}
	for done <= posted {
		if err := reap(); err != nil {
			return 0, err
		}
	}
	return float64(posted) * float64(size) * 8 / time.Since(start).Seconds(), nil
}

// rate sends short messages, several to a post, and returns millions a second. No
// receive is waited for in iWARP, so the receiver says now and then how far it is.
func rate(a, b *end, d time.Duration) (float64, error) {
	const batch, grant, window = 8, 16, 32 // b has 32 receives posted
	stop := make(chan struct{})
	errs := make(chan error, 1)
	go func() {
		p := newPlayer(b, false)
		p.send[0].SGL = nil
		wc := make([]verbs.WC, window)
		for heard := 0; ; {
			select {
			case <-stop:
				errs <- nil
				return
			default:
			}
			n, err := b.cq.Poll(wc)
			if err == nil {
				err = p.receives(n)
			}
			for heard += n; heard >= grant && err == nil; heard -= grant {
				err = p.serve()
			}
			if err != nil {
				errs <- err
				return
			}
		}
	}()
	p := newPlayer(a, false)
	wrs := make([]verbs.SendWR, batch)
	for i := range wrs {
		wrs[i] = p.send[0]
	}
	sent, granted := 0, window
	start := time.Now()
	for time.Since(start) < d {
		for granted-sent >= batch {
			if _, err := a.qp.PostSend(wrs); err != nil {
				return 0, err
			}
			sent += batch
		}
		n, err := a.cq.Poll(p.wc)
		if err != nil {
			return 0, err
		}
		for _, wc := range p.wc[:n] {
			if wc.Status != verbs.WCSuccess {
				return 0, fmt.Errorf("%v: %v", wc.Opcode, wc.Status)
			}
			granted += grant
		}
		if err := p.receives(n); err != nil {
			return 0, err
		}
	}
	took := time.Since(start)
	close(stop)
	return float64(sent) / took.Seconds() / 1e6, <-errs
}

func BenchmarkLoopback(b *testing.B) {
	da, db := loopbackPair(b)
	x, y, err := pingPongEnds(da, db)
	if err != nil {
		b.Fatal(err)
	}
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("pingpong/block=%v", block), func(b *testing.B) {
			b.ReportAllocs()
			half, err := pingPong(x, y, max(b.N, 100), block)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(half.Nanoseconds())/1e3, "µs/half")
		})
	}
	b.Run("write1M", func(b *testing.B) {
		for range b.N {
			bps, err := stream(x, y, 1<<20, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(bps/1e9, "Gb/s")
		}
	})
}

// with runs f on two connected ends, on devices of their own.
func (h *hosts) with(cfg Config, f func(a, b *end) (float64, error)) (float64, error) {
	da, db, err := h.devices(cfg)
	if err != nil {
		return 0, err
	}
	defer da.Close()
	defer db.Close()
	a, b, err := pingPongEnds(da, db)
	if err != nil {
		return 0, err
	}
	return f(a, b)
}

func families(b *testing.B, f func(b *testing.B, v6 bool)) {
	for _, v6 := range []bool{true, false} {
		name := "ipv4"
		if v6 {
			name = "ipv6"
		}
		b.Run(name, func(b *testing.B) { f(b, v6) })
	}
}

// BenchmarkStream writes 1 MiB messages between two namespaces and compares with
// plain TCP that does one copy and one CRC32c a side.
func BenchmarkStream(b *testing.B) {
	families(b, func(b *testing.B, v6 bool) {
		h := newHosts(b, v6)
		const slice = 300 * time.Millisecond
		report(b, "Gb/s", func() (float64, error) { return h.rawStream(slice) }, func() (float64, error) {
			return h.with(Config{}, func(x, y *end) (float64, error) {
				bps, err := stream(x, y, 1<<20, slice)
				return bps / 1e9, err
			})
		})
	})
}

// BenchmarkPingPong sends 64 bytes there and back between two namespaces and
// compares with plain TCP that waits in the same way.
func BenchmarkPingPong(b *testing.B) {
	for _, block := range []bool{false, true} {
		b.Run(fmt.Sprintf("block=%v", block), func(b *testing.B) {
			families(b, func(b *testing.B, v6 bool) {
				h := newHosts(b, v6)
				const rounds = 10_000
				report(b, "µs", func() (float64, error) { return h.rawPingPong(rounds, pingBytes, block) }, func() (float64, error) {
					return h.with(Config{}, func(x, y *end) (float64, error) {
						half, err := pingPong(x, y, rounds, block)
						return float64(half.Nanoseconds()) / 1e3, err
					})
				})
			})
		})
	}
}

// BenchmarkRate sends messages of 64 bytes, eight to a post.
func BenchmarkRate(b *testing.B) {
	h := newHosts(b, true)
	for b.Loop() {
		r, err := h.with(Config{}, func(x, y *end) (float64, error) { return rate(x, y, 500*time.Millisecond) })
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(r, "Mmsg/s")
	}
}

// report compares ours with bare, interleaved, and reports both and the ratio.
func report(b *testing.B, unit string, bare, ours func() (float64, error)) {
	b.Helper()
	for b.Loop() {
		c, err := rawbench.Compare(5, bare, ours)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(c.Base, "raw-"+unit)
		b.ReportMetric(c.Other, unit)
		b.ReportMetric(c.Ratio, "ratio")
		b.ReportMetric(c.Noise, "noise")
	}
}
