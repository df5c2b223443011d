package tcplink

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// readToError reads until Read returns an error.
func readToError(t *testing.T, s *Stream) (err error) {
	t.Helper()
	eventually(t, "the stream's end", func() bool {
		_, err = s.Read(1, make([]byte, 100))
		return err != nil
	})
	return err
}

func TestStreamsAndListenersAreLimited(t *testing.T) {
	a, b := openNet(t, Config{}), openNet(t, Config{MaxStreams: 2, MaxListeners: 1})
	l := listenOn(t, b, families[0].addr)
	must.Fail(t, "a second listener", must.Err(b.Listen(netip.AddrPortFrom(families[0].addr, 0), 1)), link.ErrLimit)
	first := dialTo(t, a, l.Addr())
	acceptFrom(t, l)
	own := dialTo(t, b, listenOn(t, a, families[0].addr).Addr())
	must.Fail(t, "a third stream", must.Err(b.Dial(1, netip.AddrPort{}, l.Addr())), link.ErrLimit)
	third := dialTo(t, a, l.Addr())
	eventually(t, "the third stream is rejected", func() bool {
		if s, err := l.Accept(1); s != nil || err != nil {
			t.Fatalf("Accept = %v, %v", s, err)
		}
		return b.Stats().Rejected == 1
	})
	must.Fail(t, "read of a rejected stream", readToError(t, third), link.ErrReset)
	own.Abort(1)
	again := dialTo(t, a, l.Addr())
	acceptFrom(t, l)
	for _, s := range []*Stream{first, again} {
		eventually(t, "connected", func() bool { return s.Connected(1) })
	}
}

// A process without free descriptors resets incoming streams, and accepts again later.
func TestStreamsAreResetWithoutDescriptors(t *testing.T) {
	a, b := openNet(t, Config{}), openNet(t, Config{})
	l := listenOn(t, b, families[0].addr)
	dialed := []*Stream{dialTo(t, a, l.Addr()), dialTo(t, a, l.Addr())}
	for _, s := range dialed {
		eventually(t, "connected", func() bool { return s.Connected(1) })
	}
	var limit unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	entries := must.Get(os.ReadDir("/proc/self/fd"))(t)
	none := limit
	none.Cur = uint64(len(entries))
	for { // until no descriptor is free
		none.Cur--
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
		fd, err := openSpareFD()
		if err != nil {
			break
		}
		unix.Close(fd)
	}
	s, err := l.Accept(1)
	must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	if s != nil {
		t.Fatalf("accepted %v without a descriptor", s)
	}
	if rejected := b.Stats().Rejected; rejected == 0 {
		t.Errorf("no stream was rejected: %v", err)
	}
	must.Fail(t, "read of a rejected stream", readToError(t, dialed[0]), link.ErrReset)
	if n, err := a.Dial(1, netip.AddrPort{}, l.Addr()); err != nil {
		t.Errorf("with free descriptors: %v, %v", n, err)
	}
	acceptFrom(t, l)
}

// TCP lets a socket connect to itself if local and remote port are equal.
func TestSelfConnectIsRefused(t *testing.T) {
	n := openNet(t, Config{})
	for _, f := range families {
		l := listenOn(t, n, f.addr)
		at := l.Addr()
		l.Close()
		d := must.Get(n.Dial(1, at, at))(t)
		must.Fail(t, f.name, connectError(t, d), link.ErrRefused)
	}
}

func connectError(t *testing.T, s link.StreamLink) error {
	t.Helper()
	s.Connected(1)
	return readToError(t, s.(*Stream))
}

// The peer closes its direction and then resets: Read reports both.
func TestResetAfterEOFIsReported(t *testing.T) {
	a, b := openNet(t, Config{}), openNet(t, Config{})
	dialed, accepted := connectStreams(t, a, b, 1)
	d, acc := dialed[0], accepted[0]
	must.Do(t, acc.CloseWrite(1))
	must.Fail(t, "Read", readToError(t, d), io.EOF)
	must.Do(t, acc.Abort(1))
	var ready [4]link.StreamReady
	eventually(t, "Ready reports the stream, and Read the reset", func() bool {
		a.WaitReady(time.Millisecond)
		for _, r := range ready[:a.Ready(ready[:])] {
			if r.ID != d.ID() {
				continue
			}
			if _, err := d.Read(1, make([]byte, 1)); errors.Is(err, link.ErrReset) {
				return true
			}
		}
		return false
	})
}

func TestDialFailsWithoutRouteOrListener(t *testing.T) {
	ha, hb := testutil.HostPair(t, 1500)
	var n *Net
	must.Do(t, ha.Do(func() (err error) { n, err = Open(Config{}); return err }))
	defer n.Close()
	// An unreachable network fails at once. An unreachable neighbour would take seconds.
	must.Fail(t, "no route", must.Err(n.Dial(1, netip.AddrPort{}, netip.MustParseAddrPort("192.0.2.1:7"))), link.ErrUnreachable)
	s := dialTo(t, n, hb.Addr(true, 9))
	must.Fail(t, "no listener", readToError(t, s), link.ErrRefused)
}

func TestOptionsTakeEffect(t *testing.T) {
	ha, hb := testutil.HostPair(t, 1500)
	for _, v6 := range []bool{false, true} {
		for _, tc := range []struct {
			cfg Config
			mss int // of IPv4; IPv6 headers are 20 bytes longer
		}{{Config{}, 1500 - 40 - 12}, {Config{MaxSegment: 600, SendBufBytes: 1 << 16, RecvBufBytes: 1 << 16, UserTimeout: time.Second}, 600 - 12}} {
			var a, b *Net
			must.Do(t, ha.Do(func() (err error) { a, err = Open(tc.cfg); return err }))
			must.Do(t, hb.Do(func() (err error) { b, err = Open(tc.cfg); return err }))
			l := must.Get(b.Listen(hb.Addr(v6, 0), 1))(t)
			d := dialTo(t, a, l.Addr())
			s := acceptFrom(t, l.(*Listener))
			eventually(t, "connected", func() bool { return d.Connected(1) })
			want := tc.mss
			if v6 && tc.cfg.MaxSegment == 0 {
				want -= 20
			}
			if d.MSS() != want || s.MSS() != want {
				t.Errorf("IPv6 %v, %+v: MSS %d and %d, want %d", v6, tc.cfg, d.MSS(), s.MSS(), want)
			}
			for _, o := range []struct{ level, opt, want int }{
				{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
				{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(tc.cfg.UserTimeout.Milliseconds())},
			} {
				for _, fd := range []int{d.fd, s.fd} {
					if got, err := unix.GetsockoptInt(fd, o.level, o.opt); got != o.want || err != nil {
						t.Errorf("option %d is %d, want %d: %v", o.opt, got, o.want, err)
					}
				}
			}
			a.Close()
			b.Close()
		}
	}
}

// The zone of a link-local address is looked up in the namespace of the net.
func TestZoneIsResolvedInNamespaceOfNet(t *testing.T) {
	ha, hb := testutil.HostPair(t, 1500)
	lla := netip.MustParseAddr("fe80::77:1")
	llb := netip.MustParseAddr("fe80::77:2")
	must.Do(t, errors.Join(ha.AddAddr(netip.PrefixFrom(lla, 64)), hb.AddAddr(netip.PrefixFrom(llb, 64))))
	var a, b *Net
	must.Do(t, errors.Join(ha.Do(func() (err error) { a, err = Open(Config{}); return err }), hb.Do(func() (err error) { b, err = Open(Config{}); return err })))
	defer a.Close()
	defer b.Close()
	l := must.Get(b.Listen(netip.AddrPortFrom(llb.WithZone(testutil.HostDevice), 0), 1))(t)
	d := dialTo(t, a, l.Addr())
	acceptFrom(t, l.(*Listener))
	eventually(t, "connected", func() bool { return d.Connected(1) })
	for zone, want := range map[string]string{"": "add a zone", "nowhere0": "no such device", "a-name-that-no-interface-has": "not the name"} {
		if _, err := a.Dial(1, netip.AddrPort{}, netip.AddrPortFrom(llb.WithZone(zone), 7)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("zone %q: %v, want %q", zone, err, want)
		}
	}
}

func TestInvalidArguments(t *testing.T) {
	for want, cfg := range map[string]Config{
		"MaxStreams -1":    {MaxStreams: -1},
		"SendBufBytes -1":  {SendBufBytes: -1},
		"MaxSegment 10":    {MaxSegment: 10},
		"at least a milli": {UserTimeout: 1},
	} {
		if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tcplink: ") {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	n := openNet(t, Config{})
	for _, to := range []netip.AddrPort{{}, netip.MustParseAddrPort("[::]:7"), netip.MustParseAddrPort("10.0.0.1:0")} {
		if _, err := n.Dial(1, netip.AddrPort{}, to); err == nil {
			t.Errorf("dialed %v", to)
		}
	}
	if _, err := n.Listen(netip.AddrPort{}, 1); err == nil || !strings.Contains(fmt.Sprint(err), "no address") {
		t.Errorf("Listen without an address: %v", err)
	}
}
