package softiwarp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/drive"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/emu/softiwarp/mpa"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// The tests of this file send invalid octets to a device in any state. It counts them and closes
// the stream. It does not crash or hang, and writes only registered memory.

// host is a device that accepts all connections, on memory with guard bytes around it.
type host struct {
	d    *Device
	l    verbs.Listener
	mu   sync.Mutex
	bufs [][]byte
	wg   sync.WaitGroup
}

const guard, guarded = 256, 4096

// requestLen is the length of the Request of an echo.
const requestLen = wire.StartFrameLen + wire.EnhancedLen + len("hello")

// newGuarded returns an end whose registered memory has guard bytes around it.
func (h *host) newGuarded(t testing.TB) *end {
	all := bytes.Repeat([]byte{0xa5}, guard+guarded+guard)
	h.mu.Lock()
	h.bufs = append(h.bufs, all)
	h.mu.Unlock()
	e := &end{TB: t, Dev: h.d}
	e.PD = must.Get(h.d.AllocPD())(t)
	e.CQ = must.Get(h.d.CreateCQ(verbs.CQInit{Depth: 256}))(t)
	e.MR = must.Get(e.PD.RegMR(verbs.MRInit{Buf: all[guard : guard+guarded], Addr: 1 << 20, Access: fullAccess}))(t)
	e.QP = must.Get(h.d.CreateQP(e.QPInit(verbs.QPTypeRC)))(t)
	for range 32 {
		e.Recv(0, guarded)
	}
	return e
}

func (h *host) serve(t *testing.T) {
	for {
		req, err := h.l.GetRequest(verbs.Forever)
		if err != nil {
			return
		}
		h.wg.Go(func() {
			e := h.newGuarded(t)
			if c, err := req.Accept(e.QP, connParam, 300*time.Millisecond); err == nil {
				if err := c.WaitDisconnect(30 * time.Second); err != nil {
					t.Errorf("WaitDisconnect: %v", err)
				}
			}
			if err := errors.Join(e.QP.Close(), e.CQ.Close(), e.MR.Close(), e.PD.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// mutate returns a changed copy of a valid stream, or random bytes.
func mutate(rng *rand.Rand, clean []byte) []byte {
	b := append([]byte(nil), clean...)
	switch rng.IntN(8) {
	case 0: // random bytes
		b = make([]byte, rng.IntN(2000))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	case 1: // a valid beginning
		return append(b[:20+rng.IntN(40)], mutate(rng, clean)...)
	case 2:
		return b[:rng.IntN(len(b))]
	}
	for range 1 + rng.IntN(4) {
		at := rng.IntN(len(b))
		if rng.IntN(2) == 0 {
			at = rng.IntN(min(len(b), 200)) // where headers are
		}
		switch rng.IntN(3) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.Uint32())
		default:
			b = append(b[:at], b[min(len(b), at+1+rng.IntN(8)):]...)
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// sendMutated sends a mutated stream in pieces, closes or resets its direction, and waits until the
// peer has closed its own. After the first octets it usually waits for a reply.
func sendMutated(seed uint64, c *net.TCPConn, clean []byte, first int) error {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := mutate(rng, clean)
	replied, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 4096); ; {
			if _, err := c.Read(buf); err != nil {
				return
			}
			select {
			case replied <- struct{}{}:
			default:
			}
		}
	}()
	waitForReply := first > 0 && rng.IntN(8) > 0
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(3000))
		if waitForReply {
			n = min(n, first)
		}
		if _, err := c.Write(b[:n]); err != nil {
			break // the peer closed the stream
		}
		b = b[n:]
		if first -= n; waitForReply && first <= 0 {
			waitForReply = false
			select { // for the Reply, if there is one
			case <-replied:
			case <-ended:
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	if rng.IntN(3) == 0 {
		if err := c.SetLinger(0); err != nil {
			return err
		}
		return c.Close()
	}
	_ = c.CloseWrite() // fails if the peer has closed the stream
	select {
	case <-ended:
		return c.Close()
	case <-time.After(30 * time.Second):
		return errors.Join(fmt.Errorf("seed %d: the peer does not close the stream", seed), c.Close())
	}
}

func TestListenerSurvivesBadInput(t *testing.T) {
	t.Parallel()
	for i, crc := range []bool{true, false} {
		cfg := Config{NIC: engine.Config{
			MPA: mpa.Config{NoCRC: !crc, RequestTimeout: time.Second}, CloseTimeout: 300 * time.Millisecond,
		}}
		sent, _ := recordEcho(t, cfg)
		h := &host{d: loopback(t, fmt.Sprintf("127.81.2.%d", 2+i), cfg)}
		h.l = must.Get(h.d.cm.Listen(netip.AddrPortFrom(h.d.cfg.Addrs[0], 0), verbs.PortSpaceTCP, 1000))(t)
		h.wg.Go(func() { h.serve(t) })
		const cases = 400
		var wg sync.WaitGroup
		for shard := range 4 {
			wg.Go(func() {
				for seed := shard; seed < cases; seed += 4 {
					c, err := net.Dial("tcp", h.l.Addr().String())
					if err == nil {
						err = sendMutated(uint64(seed), c.(*net.TCPConn), sent, requestLen)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		h.waitNoStreams(t)
		must.Do(t, h.l.Close())
		h.wg.Wait()
		h.checkIntact(t)
		bad := uint64(0)
		for _, name := range []string{"mpa_bad_frames", "mpa_bad_crcs", "mpa_truncated", "mpa_lost", "sent_terminates"} {
			n := counter(h.d, name)
			t.Logf("crc=%v: %s %d", crc, name, n)
			bad += n
			if n == 0 && (crc || name != "mpa_bad_crcs") {
				t.Errorf("%s is 0: no case caused this error", name)
			}
		}
		if conns, closed := counter(h.d, "conns"), counter(h.d, "conns_closed"); conns != closed || bad < cases/2 {
			t.Errorf("%d connections, %d closed, %d with errors", conns, closed, bad)
		}
	}
}

// waitNoStreams waits until the device has no streams.
func (h *host) waitNoStreams(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		h.d.Driver().Lock(drive.CallWait)
		n := openStreams(h.d)
		h.d.Driver().Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are open", n)
		}
	}
}

// checkIntact checks the guard bytes, and that the device still works.
func (h *host) checkIntact(t *testing.T) {
	t.Helper()
	for _, b := range h.bufs {
		for _, g := range [][]byte{b[:guard], b[guard+guarded:]} {
			if !bytes.Equal(g, bytes.Repeat([]byte{0xa5}, guard)) {
				t.Fatal("memory outside of a region was written")
			}
		}
	}
	peer := loopback(t, "127.81.2.77", Config{})
	must.Do(t, echo(t, peer, h.d, 10))
}

func TestConnectSurvivesBadInput(t *testing.T) {
	t.Parallel()
	cfg := Config{NIC: engine.Config{
		MPA: mpa.Config{NoCRC: true, ReplyTimeout: time.Second}, CloseTimeout: 300 * time.Millisecond,
	}}
	_, got := recordEcho(t, cfg)
	bad := must.Get(net.Listen("tcp", "127.81.3.3:0"))(t)
	defer bad.Close()
	const cases = 150
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		var wg sync.WaitGroup
		for seed := uint64(0); ; seed++ {
			c, err := bad.Accept()
			if err != nil {
				break
			}
			wg.Go(func() {
				if err := sendMutated(seed, c.(*net.TCPConn), got, 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}()
	h := &host{d: loopback(t, "127.81.3.2", cfg)}
	established := 0
	for range cases {
		e := h.newGuarded(t)
		c, err := h.d.cm.Connect(e.QP, netip.MustParseAddrPort(bad.Addr().String()), connParam, 30*time.Second)
		switch {
		case err == nil:
			established++
			if err := c.WaitDisconnect(30 * time.Second); err != nil {
				t.Errorf("WaitDisconnect: %v", err)
			}
		case errors.Is(err, verbs.ErrClosed):
			t.Errorf("connect: %v", err)
		}
		must.Do(t, e.QP.Close())
	}
	h.waitNoStreams(t)
	bad.Close()
	<-answered
	h.checkIntact(t)
	t.Logf("%d of %d connections were established", established, cases)
	if established == 0 || established == cases {
		t.Error("want some connections established and some failed")
	}
}
